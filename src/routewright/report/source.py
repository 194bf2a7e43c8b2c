"""Reading a study from wherever it lies: an output folder, or any Optuna storage.

A study may be running, finished, killed, or imported from another tuner; it is read, never
written.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import TrialState

from routewright.census import knob_names, take_census
from routewright.errors import StorageError
from routewright.frames import trials_frame
from routewright.records import Phase, TrialRecord, record_of
from routewright.result import RESULT_ATTRIBUTE, KnobCensus, TuneResult, Verdict, read_result
from routewright.search.base import history_of
from routewright.storage import (
    HIDDEN,
    STORAGE_FAULTS,
    fault_line,
    is_storage,
    open_storage,
    redact,
)
from routewright.study import MARK, StudyLog, load_study, our_studies
from routewright.studyfile import read_study_note, storage_in

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

IMPORTED = "imported"
"""Key in a study's identity that marks it as another tuner's."""


@dataclass(frozen=True)
class StudyView:
    """A study as it was when it was read.

    Attributes:
        name: Name of the study; the folder's where nothing was measured yet.
        records: Finished trials in the order of their numbers.
        running: Routes that are being tried.
        searched: Names of the knobs that are searched.
        identity: What the study is valid for (see :mod:`routewright.preparation`).
        settings: What it was started with.
        result: ``result.json``'s content, or None where there is no result yet.
        folder: The output folder, or None where a storage was named.
        storage: URL of the storage without its password.
        in_use: Whether a process is tuning in the output folder; None where that is not known.
        used_s: Seconds of the budget that were used, or None.
    """

    name: str
    records: tuple[TrialRecord, ...] = ()
    running: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    folder: Path | None = None
    storage: str = ""
    in_use: bool | None = None
    used_s: float | None = None

    @property
    def baseline(self) -> TrialRecord | None:
        """The default route's record."""
        return next((r for r in self.records if r.phase is Phase.BASELINE), None)

    @property
    def imported(self) -> Mapping[str, Any] | None:
        """Where an imported study came from; None for one that was measured here."""
        mark = self.identity.get(IMPORTED)
        return mark if isinstance(mark, Mapping) else None

    def census(self) -> KnobCensus:
        """Return which knobs are live, inert and unknown."""
        return take_census(self.records, self.searched)

    def trials_dataframe(self) -> pd.DataFrame:
        """Return one row a trial; see :func:`routewright.frames.trials_frame`."""
        return trials_frame(self.records)

    def figures(self) -> dict[str, go.Figure]:
        """Return the study's Plotly figures by name, those left out that would be empty.

        Names are ``speed-loss``, ``best-so-far``, ``knob-effects`` and ``timing-blocks``.
        """
        # They are told from a view, so their modules import this one.
        from routewright.report.figures.study import study_figures
        from routewright.report.story import tell

        return {shown.key: shown.figure for shown in study_figures(tell(self))}


def read_study(source: str | os.PathLike[str], study: str | None = None) -> StudyView:
    """Read a study.

    Args:
        source: Output folder of a tuning, or an Optuna storage: a URL or a file.
        study: Name of the study, where a storage holds several.

    Raises:
        StorageError: There is no such study, or it cannot be read.
    """
    text = os.fspath(source)
    if is_storage(text):
        return _of_storage(text, study)
    if os.path.isdir(text):
        return _of_folder(Path(text), study)
    raise StorageError(f"there is no folder {text}; name an output folder or a storage URL")


def view_of(study: optuna.Study, **known: Any) -> StudyView:
    """Return the view of an opened study; ``known`` are further fields of :class:`StudyView`."""
    history = history_of(study)
    attributes = study.user_attrs
    stored = _mapping(attributes.get(RESULT_ATTRIBUTE))
    if stored:
        known.setdefault(
            "result", checked_result(stored, f"the result of study {study.study_name!r}")
        )
    return StudyView(
        name=study.study_name,
        records=tuple(history.records),
        running=tuple(history.running),
        searched=_searched(study, history.records),
        identity=_mapping(attributes.get(MARK)),
        settings=_mapping(attributes.get("settings")),
        **known,
    )


def view_of_result(result: TuneResult, log: StudyLog | None = None) -> StudyView:
    """Return the view of a study that this process has just finished."""
    knobs = result.knobs
    identity = {
        "backend": result.backend,
        "latency": result.metric,
        "bound": result.bound,
        "environment": result.environment,
        "model_sha256": result.model["sha256"],
    }
    return StudyView(
        name=result.study["name"],
        records=result.records,
        searched=(*knobs.live, *knobs.inert, *knobs.unknown),
        identity=identity if log is None else log.identity,
        settings={} if log is None else _mapping(log.study.user_attrs.get("settings")),
        result=result.to_content(),
        folder=Path(result.out),
        storage=result.study["storage"],
        in_use=False,
    )


def storage_of_folder(folder: Path) -> tuple[str, str] | None:
    """Return storage URL and study name of an output folder; None before its first trial.

    Raises:
        StorageError: The folder holds no study.
    """
    result = folder / "result.json"
    if result.exists():
        content = read_result(result)
        try:
            storage, name = content["study"]["storage"], content["study"]["name"]
        except (KeyError, TypeError) as error:
            raise StorageError(f"{result} is not what a tuning wrote: {error!r}") from error
    else:
        content = read_study_note(folder)
        if not content.get("begun"):
            return None
        storage, name = content.get("storage", ""), content["study"]
    return storage_in(folder, storage), str(name)


def _of_folder(folder: Path, study: str | None) -> StudyView:
    path = folder / "result.json"
    result = checked_result(read_result(path), str(path)) if path.exists() else None
    place = storage_of_folder(folder)
    note: Mapping[str, Any] = {}
    if (folder / "study.json").exists():
        note = read_study_note(folder)
    known: dict[str, Any] = {
        "folder": folder.absolute(),
        "in_use": _is_locked(folder / ".lock"),
        "used_s": note.get("used_s"),
    }
    if place is None:
        return StudyView(str(note["study"]), settings=_mapping(note["settings"]), **known)
    url, name = place
    with _opened(url) as storage:
        view = view_of(load_study(storage, study or name), storage=redact(url), **known)
    return view if result is None or study not in (None, name) else replace(view, result=result)


def _of_storage(url: str, study: str | None) -> StudyView:
    with _opened(url) as storage:
        name = only_study(storage) if study is None else study
        return view_of(load_study(storage, name), storage=redact(url))


@contextmanager
def _opened(url: str) -> Iterator[BaseStorage]:
    if HIDDEN in url:
        raise StorageError(
            f"the study lies in {url}, and passwords are not kept: name that storage, with its "
            "password, instead of the folder"
        )
    storage = open_storage(url, existing=True)
    try:
        yield storage
    except STORAGE_FAULTS as error:
        raise StorageError(f"cannot read {redact(url)}: {fault_line(error)}") from error
    finally:
        _let_go(storage)


def _let_go(storage: BaseStorage) -> None:
    # Unlike close_storage, this leaves the journal mode to the process that writes.
    if isinstance(storage, RDBStorage):
        storage.remove_session()
        storage.engine.dispose()


def only_study(storage: BaseStorage) -> str:
    """Return the name of the one study of ours in a storage.

    Raises:
        StorageError: There is none, or there are several.
    """
    ours = our_studies(storage)
    if not ours:
        raise StorageError("the storage holds no study of Routewright's")
    if len(ours) > 1:
        raise StorageError(
            f"the storage holds several studies: {', '.join(ours)}; name one with --study"
        )
    return ours[0]


def checked_result(result: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return ``result`` if it holds what is told of it.

    Raises:
        StorageError: It is not what a tuning wrote.
    """
    try:
        best, bound = result["best"], result["bound"]
        float(best["relative_latency"]), float(best["latency_ms"])
        low, high = map(float, best["ci95"])
        is_whole = (
            low <= high
            and all(isinstance(best[name], str) for name in ("route", "command"))
            and isinstance(best["losses"], Mapping)
            and isinstance(bound, Mapping)
            and result["verdict"] in list(Verdict)
            and isinstance(result["study"]["name"], str)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{where} is not what a tuning wrote: {error!r}") from error
    if not is_whole:
        raise StorageError(f"{where} is not what a tuning wrote")
    return result


def _searched(study: optuna.Study, records: Any) -> tuple[str, ...]:
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        record = record_of(trial) if trial.distributions else None
        if record is not None and record.phase is Phase.BASELINE:
            return tuple(trial.distributions)
    names: set[str] = set()
    for record in records:
        names |= knob_names(record.route)
    return tuple(sorted(names))


def _is_locked(path: Path) -> bool | None:
    """Whether a process holds an output folder's lock; it goes with the process, even a killed."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
