"""``routewright knobs``: the knob database, and which knobs are live for a model."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from routewright.cli.database import knob_database, start_worker
from routewright.errors import BackendError
from routewright.knobs import Knob, KnobDatabase
from routewright.liveness import find_live_knobs
from routewright.workbench import TrialFailure


def knobs(
    model: Annotated[
        str | None, typer.Argument(help="Also find out which knobs are live for this model.")
    ] = None,
    knob: Annotated[
        str | None, typer.Option(help="Show this knob only; the leading dash may be left out.")
    ] = None,
    backend: Annotated[str, typer.Option(help="Whose knobs.")] = "onnxruntime",
    database: Annotated[
        str | None, typer.Option(help="Knob database (JSON) instead of the backend's.")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Input shape of MODEL.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the database as JSON to standard output.")
    ] = False,
) -> int:
    """Print the knobs of a backend or of a knob database file."""
    shapes = tuple(shape or ())
    if model is None or as_json or knob is not None:
        listed = knob_database(backend, model=model, database=database, shape=shapes)
        states: dict[str, str] = {}
    else:
        listed, states = _with_liveness(backend, model, shapes)
    if knob is not None:
        _print_one(listed[knob])
        return 0
    if as_json:
        sys.stdout.write(listed.to_json())
        if not listed.to_json().endswith("\n"):
            sys.stdout.write("\n")
        return 0
    _print_all(listed, states)
    return 0


def _with_liveness(
    backend: str, model: str, shapes: tuple[str, ...]
) -> tuple[KnobDatabase, dict[str, str]]:
    with (
        tempfile.TemporaryDirectory(prefix="routewright-") as folder,
        start_worker(backend, model, shapes, Path(folder)) as worker,
    ):
        try:
            database = worker.knob_database()
            begin_s = time.monotonic()
            found = find_live_knobs(worker, database)
        except TrialFailure as failure:
            raise BackendError(
                f"the backend {backend} cannot build this model: {failure.message}"
            ) from failure
    typer.echo(
        f"{len(found.live)} live, {len(found.inert)} inert, {len(found.unknown)} unknown, found "
        f"in {found.builds} builds ({time.monotonic() - begin_s:.0f} s)",
        err=True,
    )
    states = dict.fromkeys(found.inert, "inert") | dict.fromkeys(found.unknown, "unknown")
    return database, states | dict.fromkeys(found.live, "live")


def _print_one(knob: Knob) -> None:
    console = Console(highlight=False)
    for label, text in (
        ("knob", knob.name),
        ("values", knob.notation),
        ("default", knob.default),
        ("kind", str(knob.kind)),
        ("help", knob.help),
    ):
        console.print(Text(f"{label + ':':9}{text}"), soft_wrap=True)


def _print_all(database: KnobDatabase, states: dict[str, str]) -> None:
    console = Console(highlight=False)
    table = Table(title=f"{len(database)} knobs, tuner version {database.tuner_version}")
    table.add_column("knob", overflow="fold")
    table.add_column("values", overflow="fold")
    table.add_column("default")
    if states:
        table.add_column("here")
    table.add_column("help", overflow="fold")
    order = {"live": 0, "unknown": 1, "": 2, "inert": 3}
    for knob in sorted(database, key=lambda k: order[states.get(k.name, "")]):
        row = [knob.name, knob.notation, knob.default]
        if states:
            row.append(states.get(knob.name, ""))
        table.add_row(*map(Text, row), Text(knob.help))
    console.print(table)
    for line in database.skipped:
        console.print(Text(f"skipped: {line}"), soft_wrap=True)
