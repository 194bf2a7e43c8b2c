"""``routewright prior evaluate``: what priors are worth, on recorded tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from routewright.errors import SettingsError
from routewright.files import write_text_atomic
from routewright.search.registry import check_sampler
from routewright.tables import Table
from routewright.tensors import did_you_mean
from routewright.transfer.conditions import Condition
from routewright.transfer.report import markdown, overall, verdicts_of
from routewright.transfer.runs import Arrival, Search, carry_out_searches


def evaluate(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE...", help="Folders of recorded tables, at least two."),
    ],
    repeats: Annotated[int, typer.Option(help="Seeds of each search.", min=1)] = 30,
    trials: Annotated[int, typer.Option(help="Trials of a search, at most.", min=1)] = 150,
    sampler: Annotated[str, typer.Option(help="Search method.")] = "auto",
    only: Annotated[
        list[str] | None,
        typer.Option(help="Condition to try, beside the cold start. Repeatable. Default: all."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(help="Table to search, by name; the others only teach. Default: all."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
    out: Annotated[
        str | None, typer.Option(help="Folder for arrivals.jsonl, summary.json and summary.md.")
    ] = None,
) -> int:
    """Search each table with and without a prior learned from the other ones.

    Leaves one model out, and one family out; and tries priors that are deliberately wrong: signs
    flipped, of the wrong family, of another environment. What a prior is learned from is every
    engine of the other tables.
    """
    check_sampler(sampler)
    folders = [Path(table) for table in tables]
    names = [Table.load(folder).name for folder in folders]
    if len(set(names)) < 2:
        raise SettingsError("name at least two tables: a prior for one is learned from the others")
    chosen = [_condition(name) for name in only or ()] or list(Condition)
    conditions = list(dict.fromkeys([Condition.COLD, *chosen]))
    for name in on or ():
        if name not in names:
            raise SettingsError(f"there is no table {name!r}{did_you_mean(name, names)}")
    searches = [
        Search(str(folder), condition, seed, trials, sampler)
        for seed in range(repeats)
        for folder, name in zip(folders, names, strict=True)
        if not on or name in on
        for condition in conditions
    ]
    console = Console(stderr=True, highlight=False)
    step = max(len(searches) // 20, 1)
    done: list[Arrival] = []

    def hear(arrival: Arrival) -> None:
        done.append(arrival)
        if len(done) % step == 0:
            console.print(f"{len(done)} of {len(searches)} searches", soft_wrap=True)

    arrivals = carry_out_searches(searches, folders, jobs=jobs, on_arrival=hear)
    verdicts = verdicts_of(arrivals)
    text = markdown(verdicts)
    typer.echo(text)
    for condition, told in overall(arrivals).items():
        share = told["builds_share"]
        typer.echo(
            f"{condition}: {share:.0%} of the cold start's builds over all tables, at least as "
            f"good after the first trials in {told['as_good_after_first']:.0%} of "
            f"{told['pairs']} pairs"
        )
    if out is not None:
        _write(Path(out), arrivals, text)
    return 0


def _write(folder: Path, arrivals: list[Arrival], text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{arrival.to_json()}\n" for arrival in arrivals)
    write_text_atomic(folder / "arrivals.jsonl", lines)
    content = {
        "verdicts": [verdict.to_dict() for verdict in verdicts_of(arrivals)],
        "overall": overall(arrivals),
    }
    write_text_atomic(
        folder / "summary.json", json.dumps(content, indent=1, allow_nan=False) + "\n"
    )
    write_text_atomic(folder / "summary.md", text + "\n")
    typer.echo(f"written to {folder}")


def _condition(name: str) -> Condition:
    known = [str(each) for each in Condition]
    if name not in known:
        raise SettingsError(
            f"there is no condition {name!r}{did_you_mean(name, known)}; there are "
            f"{', '.join(known)}"
        )
    return Condition(name)
