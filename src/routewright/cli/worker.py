"""``routewright worker``: work on a shared study with others."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from routewright.budget import parse_duration_s
from routewright.cli import started
from routewright.cli.live import console_progress
from routewright.errors import SettingsError
from routewright.fleet.lease import DEFAULT_LEASE_S
from routewright.fleet.running import run_worker
from routewright.report.source import read_study
from routewright.report.story import tell
from routewright.report.terminal import show_answers

STORAGE_VARIABLE = "ROUTEWRIGHT_STORAGE"


def worker(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study file (TOML), which begins the group where nobody has; or the name of a "
            "group in the storage.",
        ),
    ],
    storage: Annotated[
        str,
        typer.Option(
            envvar=STORAGE_VARIABLE,
            help="postgresql://USER@HOST/NAME, grpc://HOST:PORT of a storage proxy, or, on one "
            "machine, sqlite:///FILE.",
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="The model on this machine, where it lies elsewhere.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Output folder. Default: a fresh one under routewright-out/."),
    ] = None,
    cpus: Annotated[
        str | None,
        typer.Option(help="CPUs to run on, e.g. 0-3 or 0,2; workers on others do not disturb."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Wall-clock time from the start of the first worker. Default: the study file's; "
            "a larger one extends a study that runs."
        ),
    ] = None,
    machine_budget: Annotated[
        str | None,
        typer.Option(help="Time of all workers together, e.g. 10h; for who begins the study."),
    ] = None,
    new_environment: Annotated[
        bool,
        typer.Option(
            "--new-environment",
            help="Open a study of its own in the group where this machine is another environment.",
        ),
    ] = False,
    artifacts: Annotated[
        str | None,
        typer.Option(help="Where the winner's engine is kept for all: a folder, or s3://BUCKET."),
    ] = None,
    trust_engines: Annotated[
        bool,
        typer.Option(
            "--trust-engines",
            help="Fetch the engine even if another worker built it: loading one may run code.",
        ),
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(help="Name the study's own loss, package.module:function, to let it run."),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            help="A worker is lost when it is not heard of for so long; for who begins the "
            f"study. Default: {DEFAULT_LEASE_S:g}s."
        ),
    ] = None,
    memory_limit_gib: Annotated[
        float | None,
        typer.Option(help="Memory this worker may use. Default: 80% of what is free."),
    ] = None,
    json_only: Annotated[
        bool, typer.Option("--json", help="Print only the result, as JSON, to standard output.")
    ] = False,
) -> int:
    """Work on STUDY with other workers until its budget or its end.

    Any number may join and leave at any time. One of them confirms the winner.
    """
    if cpus is not None:
        # First of all: what is counted and locked is what this process may run on.
        os.sched_setaffinity(0, parse_cpus(cpus))
    given: dict[str, Any] = {}
    if memory_limit_gib is not None:
        given["memory_limit_gib"] = memory_limit_gib
    console = Console(stderr=True, highlight=False)
    verdict, folder = run_worker(
        study,
        storage,
        change=lambda settings: replace(settings, **given),
        model=model,
        metric=metric,
        out=out,
        budget_s=None if budget is None else parse_duration_s(budget),
        machine_budget_s=None
        if machine_budget is None
        else parse_duration_s(machine_budget, "--machine-budget"),
        lease_s=DEFAULT_LEASE_S if lease is None else parse_duration_s(lease, "--lease"),
        new_environment=new_environment,
        artifacts=artifacts,
        trust_engines=trust_engines,
        progress=lambda settings: console_progress(console, settings),
        started_s=started.AT_S.get(),
    )
    if json_only:
        sys.stdout.write((folder / "result.json").read_text(encoding="utf-8"))
        return 0
    screen = Console(highlight=False)
    view = read_study(storage, verdict["result"]["study"]["name"])
    show_answers(screen, tell(replace(view, result=verdict["result"])))
    screen.print(f"written to {folder}", soft_wrap=True, markup=False)
    if verdict["result"]["best"]["files"] and not (folder / "engine").exists():
        screen.print(
            f"the engine was built by {verdict['worker']} and is in "
            f"{'its artifact store' if verdict['engine'] else 'its output folder'}"
            f"{'; --artifacts and --trust-engines fetch it' if verdict['engine'] else ''}",
            soft_wrap=True,
            markup=False,
        )
    return 0


def parse_cpus(text: str) -> set[int]:
    """Return the CPUs that ``0-3`` or ``0,2`` names.

    Raises:
        SettingsError: It names none, or one that this process may not use.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise SettingsError(f"--cpus is {text!r}; write for example 0-3 or 0,2")
        chosen |= set(range(int(first), int(last or first) + 1))
    usable = os.sched_getaffinity(0)
    if not chosen or not chosen <= usable:
        listed = ",".join(map(str, sorted(usable)))
        raise SettingsError(f"--cpus {text} is not among the CPUs that may be used here: {listed}")
    return chosen
