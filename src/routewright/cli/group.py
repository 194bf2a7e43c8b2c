"""``routewright group``: what a group of shared studies has come to, by environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from routewright.cli.worker import STORAGE_VARIABLE
from routewright.errors import SettingsError, StorageError
from routewright.fleet.artifacts import fetch_engine, open_store
from routewright.fleet.identity import describe
from routewright.fleet.overview import Standing, overview
from routewright.storage import close_storage, open_storage


def group(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    storage: Annotated[
        str, typer.Option(envvar=STORAGE_VARIABLE, help="The storage of the group's workers.")
    ],
    fetch: Annotated[
        str | None,
        typer.Option(help="Fetch the winner's engine into this folder, which must not exist."),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Whose engine, where the group has several studies.")
    ] = None,
    artifacts: Annotated[
        str | None, typer.Option(help="Where the workers keep engines: a folder, or s3://BUCKET.")
    ] = None,
    trust_engines: Annotated[
        bool,
        typer.Option(
            "--trust-engines",
            help="Say that you trust whoever built the engine: loading one may run code in it.",
        ),
    ] = False,
    json_only: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON to standard output.")
    ] = False,
) -> int:
    """Print what GROUP has come to in each of its environments; fetch an engine of it."""
    opened = open_storage(storage, existing=True)
    try:
        standings = overview(opened, name)
    finally:
        close_storage(opened)
    if fetch is not None:
        _fetch(standings, study, Path(fetch), artifacts, trust_engines)
    if json_only:
        sys.stdout.write(json.dumps([standing.to_json() for standing in standings], indent=2))
        sys.stdout.write("\n")
        return 0
    _show(Console(highlight=False), standings)
    return 0


def _show(console: Console, standings: list[Standing]) -> None:
    table = Table(box=None, pad_edge=False)
    headings = ("study", "environment", "used", "workers", "trials", "best so far", "verdict")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for standing in standings:
        terms, present = standing.member.terms, standing.workers.values()
        best, verdict = standing.best, standing.verdict
        told = "" if best is None else f"{best.relative_latency:.3f} {best.route or '(default)'}"
        table.add_row(
            standing.member.name,
            describe(standing.member.identity["environment"]),
            f"{standing.used_s:.0f} of {terms.budget_s:g} s",
            f"{sum(not beat.left for beat in present)} of {len(present)}",
            f"{standing.trials}, {len(standing.running)} running",
            told,
            "not yet" if verdict is None else _verdict(verdict["result"]),
        )
    console.print(table)


def _verdict(result: dict[str, object]) -> str:
    best = result["best"]
    assert isinstance(best, dict)
    if result["verdict"] != "faster":
        return str(result["verdict"])
    low, high = best["ci95"]
    return f"{best['relative_latency']:.3f} ({low:.3f} to {high:.3f}) {best['route']}"


def _fetch(
    standings: list[Standing],
    study: str | None,
    target: Path,
    artifacts: str | None,
    trust_engines: bool,
) -> None:
    if not trust_engines:
        raise SettingsError(
            "an engine that another worker built is refused: loading one may run code that is in "
            "it; --trust-engines says that you trust whoever built it"
        )
    if artifacts is None:
        raise SettingsError("--fetch needs --artifacts: where the workers keep their engines")
    chosen = [s for s in standings if study in (None, s.member.name)]
    if len(chosen) != 1:
        listed = ", ".join(standing.member.name for standing in standings)
        raise SettingsError(f"name one study of the group with --study: {listed}")
    verdict = chosen[0].verdict
    if verdict is None or not verdict["engine"]:
        raise StorageError(
            f"{chosen[0].member.name} has no engine in an artifact store "
            f"{'yet' if verdict is None else ': its workers ran without --artifacts'}"
        )
    fetch_engine(open_store(artifacts), verdict["engine"], target)
