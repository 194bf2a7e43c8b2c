"""``routewright export``: studies and winners for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import optuna
import typer

from routewright.errors import StorageError
from routewright.interop.commands import rebuild_commands
from routewright.interop.exporting import export_cache
from routewright.interop.formats import CacheFormat
from routewright.interop.torch_tensorrt import TORCH_TENSORRT
from routewright.interop.trtexec import TRTEXEC
from routewright.knobs import KnobDatabase
from routewright.result import read_result
from routewright.storage import (
    HIDDEN,
    STORAGE_FAULTS,
    fault_line,
    is_storage,
    open_storage,
    redact,
)
from routewright.study import load_study, our_studies
from routewright.studyfile import read_study_note, storage_in

app = typer.Typer(
    help="Write a study as another tuner's cache, or print how to rebuild its winner.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Source = Annotated[
    str, typer.Argument(metavar="STUDY|DIR", help="Study in --storage, or output folder.")
]
Cache = Annotated[str, typer.Argument(metavar="CACHE", help="The file to write.")]
Storage = Annotated[str | None, typer.Option(help="Optuna storage URL that holds STUDY.")]
Database = Annotated[
    str | None, typer.Option(help="Knob database (JSON), for the defaults of all knobs.")
]


@app.command("trtexec")
def export_trtexec(
    source: Source, cache: Cache, storage: Storage = None, database: Database = None
) -> int:
    """Write a study as trtexec writes its tuning cache."""
    return _export(TRTEXEC, source, cache, storage, database)


@app.command("torch-tensorrt")
def export_torch_tensorrt(
    source: Source, cache: Cache, storage: Storage = None, database: Database = None
) -> int:
    """Write a study as Torch-TensorRT writes its tuning cache."""
    return _export(TORCH_TENSORRT, source, cache, storage, database)


@app.command("command")
def export_command(
    source: Annotated[
        str, typer.Argument(metavar="RESULT|DIR", help="result.json, or its output folder.")
    ],
) -> int:
    """Print the trtexec, Python and Torch-TensorRT lines that rebuild the winner."""
    path = Path(source)
    if path.is_dir():
        path = path / "result.json"
    if not path.exists():
        raise StorageError(
            f"there is no result {path}: name a result.json, or the output folder of a tuning "
            "that ended"
        )
    try:
        printed = rebuild_commands(read_result(path), path.parent)
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path} is not what a tuning wrote: {error!r}") from error
    typer.echo(printed, nl=False)
    return 0


def study_in(source: str, storage: str | None) -> optuna.Study:
    """Open one of our studies.

    Args:
        source: Its name; or an output folder, or a storage that holds one study of ours.
        storage: URL of the storage, where ``source`` is a name.

    Raises:
        StorageError: There is no such study.
    """
    folder = Path(source)
    if storage is not None:
        return load_study(open_storage(storage, existing=True), source)
    if folder.is_dir():
        return _study_of_folder(folder)
    if is_storage(source):
        return _only_study(source)
    raise StorageError(
        f"there is no folder {source}; to name a study, say where it is with --storage"
    )


def _export(
    cache_format: CacheFormat, source: str, cache: str, storage: str | None, database: str | None
) -> int:
    report = export_cache(
        study_in(source, storage),
        Path(cache),
        cache_format,
        database=None if database is None else KnobDatabase.from_file(Path(database)),
    )
    typer.echo(f"{report.rows} rows written to {cache}")
    for note in report.notes:
        typer.echo(f"note: {note}", err=True)
    return 0


def _study_of_folder(folder: Path) -> optuna.Study:
    note = read_study_note(folder)
    if note.get("begun") is False:
        raise StorageError(
            f"{folder} holds no trial yet: the default route was not measured to the end"
        )
    url = storage_in(folder, note.get("storage"))
    if HIDDEN in url:
        raise StorageError(
            f"the study lies in {url}, and passwords are not kept: name the study "
            f"{note['study']!r} and that storage, with its password, as --storage"
        )
    return load_study(open_storage(url, existing=True), str(note["study"]))


def _only_study(url: str) -> optuna.Study:
    storage = open_storage(url, existing=True)
    try:
        ours = our_studies(storage)
    except STORAGE_FAULTS as error:
        raise StorageError(f"cannot read {redact(url)}: {fault_line(error)}") from error
    if len(ours) != 1:
        told = ", ".join(ours) or "none of Routewright's"
        raise StorageError(
            f"the storage holds these studies: {told}; name one, with the storage as --storage"
        )
    return load_study(storage, ours[0])
