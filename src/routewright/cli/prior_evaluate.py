"""``routewright prior evaluate``: what priors are worth, on recorded tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from routewright.transfer.runs import Arrival, Search, carry_out_searches, setup_of

ARRIVALS = "arrivals.jsonl"
"""File of an output folder with one line for each search."""


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
        str | None,
        typer.Option(
            help="Folder for arrivals.jsonl, summary.json and summary.md; searches that it holds "
            "are not repeated."
        ),
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
    wanted = [
        (name, Search(str(folder), condition, seed, trials, sampler))
        for seed in range(repeats)
        for folder, name in zip(folders, names, strict=True)
        if not on or name in on
        for condition in conditions
    ]
    known = _known(out, wanted, [str(folder) for folder in folders])
    searches = [s for name, s in wanted if (name, str(s.condition), s.seed) not in known]
    console = Console(stderr=True, highlight=False)
    if known:
        console.print(f"{len(wanted) - len(searches)} searches are there already")
    step = max(len(searches) // 20, 1)
    count = 0

    def hear(arrival: Arrival) -> None:
        nonlocal count
        count += 1
        known[arrival.table, arrival.condition, arrival.seed] = arrival
        if out is not None:
            with (Path(out) / ARRIVALS).open("a", encoding="utf-8") as stream:
                stream.write(f"{arrival.to_json()}\n")
        if count % step == 0:
            console.print(f"{count} of {len(searches)} searches", soft_wrap=True)

    carry_out_searches(searches, folders, jobs=jobs, on_arrival=hear)
    arrivals = [known[name, str(search.condition), search.seed] for name, search in wanted]
    _tell(arrivals, None if out is None else Path(out))
    return 0


def _known(
    out: str | None, wanted: Sequence[tuple[str, Search]], tables: Sequence[str]
) -> dict[tuple[str, str, int], Arrival]:
    """Return those of the searches that an output folder holds; its last line may be cut off."""
    if out is None:
        return {}
    setups = {
        (name, str(search.condition), search.seed): setup_of(search, tables)
        for name, search in wanted
    }
    path = Path(out) / ARRIVALS
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    read = [Arrival.from_json(line) for line in lines]
    kept = [arrival for arrival in read if arrival is not None]
    write_text_atomic(path, "".join(f"{arrival.to_json()}\n" for arrival in kept))
    keyed = {(a.table, a.condition, a.seed, a.setup): a for a in kept}
    return {key: keyed[*key, setup] for key, setup in setups.items() if (*key, setup) in keyed}


def _tell(arrivals: list[Arrival], folder: Path | None) -> None:
    verdicts = verdicts_of(arrivals)
    text = markdown(verdicts)
    typer.echo(text)
    together = overall(arrivals)
    for condition, told in together.items():
        typer.echo(
            f"{condition}: {told['builds_share']:.0%} of the cold start's builds over all tables, "
            f"at least as good after the first trials in {told['as_good_after_first']:.0%} of "
            f"{told['pairs']} pairs"
        )
    if folder is None:
        return
    content = {"verdicts": [v.to_dict() for v in verdicts], "overall": together}
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
