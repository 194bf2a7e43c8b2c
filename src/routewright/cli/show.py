"""``routewright show``: a study on one screen, running, finished or broken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import optuna
import typer
from optuna.storages import BaseStorage
from rich.console import Console
from rich.text import Text

from routewright.errors import StorageError
from routewright.records import TrialRecord
from routewright.report.terminal import show_effects, show_result, show_trials
from routewright.result import read_result
from routewright.search.base import history_of
from routewright.storage import (
    HIDDEN,
    STORAGE_FAULTS,
    fault_line,
    open_storage,
    redact,
    sqlite_url,
)
from routewright.study import MARK, load_study
from routewright.studyfile import read_study_note


def show(
    source: Annotated[
        str, typer.Argument(metavar="DIR|STORAGE", help="Output folder, or storage URL.")
    ],
    study: Annotated[
        str | None, typer.Option(help="Study in the storage, where it holds several.")
    ] = None,
) -> int:
    """Print a study: best route, trials, and what each knob does."""
    console = Console(highlight=False)
    if "://" in source or source.endswith((".db", ".log", ".journal", ".jsonl")):
        records = _records(source, study)
    elif os.path.isdir(source):
        records = _of_folder(console, Path(source), study)
    else:
        raise StorageError(f"there is no folder {source}; name an output folder or a storage URL")
    if records:
        show_trials(console, records)
        show_effects(console, records)
    return 0


def _of_folder(console: Console, folder: Path, study: str | None) -> list[TrialRecord]:
    result = folder / "result.json"
    if result.exists():
        content = read_result(result)
        try:
            show_result(console, content)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{result} is not what a tuning wrote: {error!r}") from error
        storage, name = content["study"]["storage"], study or content["study"]["name"]
    else:
        content = read_study_note(folder)
        console.print(Text("no result yet: the study is running, or was interrupted"))
        if not content.get("begun"):
            console.print(Text("no trial yet: the default route was not measured to the end"))
            return []
        storage, name = content["storage"], study or content["study"]
    # A folder may have been moved since; its own database goes with it.
    database = folder / "study.db"
    if database.exists():
        storage = sqlite_url(database)
    return _records(str(storage), name)


def _records(url: str, name: str | None) -> list[TrialRecord]:
    if HIDDEN in url:
        raise StorageError(
            f"the study lies in {url}, and passwords are not kept: name that storage, with its "
            "password, instead of the folder"
        )
    storage = open_storage(url, existing=True)
    try:
        if name is None:
            name = _only_study(storage)
        return list(history_of(load_study(storage, name)).records)
    except STORAGE_FAULTS as error:
        raise StorageError(f"cannot read {redact(url)}: {fault_line(error)}") from error


def _only_study(storage: BaseStorage) -> str:
    ours = [
        summary.study_name
        for summary in optuna.get_all_study_summaries(storage, include_best_trial=False)
        if MARK in summary.user_attrs
    ]
    if not ours:
        raise StorageError("the storage holds no study of Routewright's")
    if len(ours) > 1:
        raise StorageError(
            f"the storage holds several studies: {', '.join(ours)}; name one with --study"
        )
    return ours[0]
