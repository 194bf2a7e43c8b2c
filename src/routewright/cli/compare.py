"""``routewright compare``: search methods against each other on the same work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from routewright.budget import parse_duration_s
from routewright.compare.folder import ComparisonFolder
from routewright.compare.job import Compared, compare
from routewright.compare.markdown import lead_table, ranking_table
from routewright.compare.plan import (
    DEFAULT_HALF_WIDTH,
    DEFAULT_MAX_TIMING_S,
    Extent,
    Plan,
    RunKey,
)
from routewright.compare.summary import Summary
from routewright.compare.tablework import open_table
from routewright.errors import SettingsError
from routewright.report.comparison import draw_comparison
from routewright.search.registry import check_sampler
from routewright.storage import HIDDEN, redact, storage_url

INTERRUPTED = 130

DEFAULT_SAMPLERS = "auto,mixed-trtexec,tpe,random"
DEFAULT_REPEATS = 30


def compare_samplers(
    samplers: Annotated[
        str | None,
        typer.Option(
            help="Search methods, separated by commas; the first is held against the others. "
            f"Default: {DEFAULT_SAMPLERS}.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Folder of a recorded table to work on. Repeatable.", metavar="DIR"),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(help=f"Runs of each sampler on each work. Default: {DEFAULT_REPEATS}."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Trials of each run, the baseline not counted.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Time of each run on the work's clock, e.g. 30m; without confirmation."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 1,
    out: Annotated[str | None, typer.Option(help="Output folder.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage of the runs. Default: a file in --out.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed. Default: 0.")] = None,
    half_width: Annotated[
        float | None,
        typer.Option(help="Interval half-width at which timing ends. Default: 0.015."),
    ] = None,
    max_timing: Annotated[
        str | None, typer.Option(help="Most time for timing one candidate. Default: 6s.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the comparison in --out.")
    ] = False,
) -> int:
    """Compare search methods on recorded tables, with the same seeds and rules for each.

    Writes results.csv (a line for each run and trial), summary.md, .csv and .json, figures, and
    every run as an Optuna study.
    """
    if out is None:
        raise SettingsError("name the output folder with --out")
    if jobs < 1:
        raise SettingsError(f"jobs must be at least 1, not {jobs}")
    folder = ComparisonFolder(Path(out))
    stored = folder.stored() if resume else {}
    tables = {name: Path(path) for name, path in _tables(table, stored).items()}
    plan = Plan(
        samplers=_samplers(samplers, stored),
        works=tuple(tables),
        repeats=_first(repeats, stored.get("repeats"), DEFAULT_REPEATS),
        extent=_extent(trials, budget, stored),
        seed=_first(seed, stored.get("seed"), 0),
        half_width=_first(half_width, stored.get("half_width"), DEFAULT_HALF_WIDTH),
        max_timing_s=_first(
            None if max_timing is None else parse_duration_s(max_timing, "--max-timing"),
            stored.get("max_timing_s"),
            DEFAULT_MAX_TIMING_S,
        ),
    )
    url = _storage(storage, stored)
    console = Console(stderr=True, highlight=False)
    with _progress(console, plan) as on_run:
        compared = compare(
            plan,
            {name: partial(open_table, path) for name, path in tables.items()},
            folder,
            storage=url,
            jobs=jobs,
            resume=resume,
            on_run=on_run,
            note={
                "tables": {name: str(path) for name, path in tables.items()},
                "storage": None if url is None else redact(url),
            },
            draw=partial(draw_comparison, note=lambda text: console.print(f"note: {text}")),
        )
    return _told(compared, folder)


def _told(compared: Compared, folder: ComparisonFolder) -> int:
    screen = Console(highlight=False)
    if compared.summary is not None:
        _show(screen, compared.summary)
    if compared.missing:
        screen.print(
            f"{compared.missing} runs are not done; go on with: routewright compare --resume "
            f"--out {folder.path}",
            soft_wrap=True,
            markup=False,
        )
    screen.print(f"written to {folder.path}", soft_wrap=True, markup=False)
    return INTERRUPTED if compared.interrupted else 0


def _show(screen: Console, summary: Summary) -> None:
    screen.print(Markdown("\n".join(ranking_table(summary))))
    if summary.leads:
        screen.print(Markdown("\n".join(lead_table(summary))))


def _samplers(given: str | None, stored: Mapping[str, Any]) -> tuple[str, ...]:
    if given is None and "samplers" in stored:
        return tuple(stored["samplers"])
    names = tuple(name.strip() for name in (given or DEFAULT_SAMPLERS).split(","))
    for name in names:
        check_sampler(name)
    return names


def _tables(given: list[str] | None, stored: Mapping[str, Any]) -> dict[str, str]:
    if not given and "tables" in stored:
        return dict(stored["tables"])
    if not given:
        raise SettingsError(
            "name what to compare on: --table studies/tables/NAME, once for each table"
        )
    named: dict[str, str] = {}
    for path in given:
        name = open_table(Path(path)).name
        if name in named:
            raise SettingsError(f"two tables are named {name!r}: {named[name]} and {path}")
        named[name] = str(Path(path).absolute())
    return named


def _extent(trials: int | None, budget: str | None, stored: Mapping[str, Any]) -> Extent:
    if trials is None and budget is None and "extent" in stored:
        return Extent(**stored["extent"])
    return Extent(trials, None if budget is None else parse_duration_s(budget))


def _storage(given: str | None, stored: Mapping[str, Any]) -> str | None:
    if given is not None:
        return storage_url(given)
    url = stored.get("storage")
    if url is not None and HIDDEN in url:
        raise SettingsError(f"give --storage again: the password of {url} was not kept")
    return url


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


@contextmanager
def _progress(console: Console, plan: Plan) -> Iterator[Callable[[RunKey, int], None]]:
    total = sum(1 for _ in plan.runs())
    if not console.is_terminal:
        step = max(total // 20, 1)

        def line(key: RunKey, left: int) -> None:
            if left % step == 0:
                console.print(f"{total - left} of {total} runs: {key.name}", soft_wrap=True)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("runs", total=total)
        yield lambda key, left: bar.update(task, completed=total - left, description=key.name)
