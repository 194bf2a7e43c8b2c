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
from routewright.compare.live import compare_live, live_table
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
from routewright.report.publishing import Publisher
from routewright.search.registry import check_sampler
from routewright.settings import TuneSettings, read_study_file, relative_to, resolve_model
from routewright.storage import HIDDEN, redact, storage_url
from routewright.studyfile import storable

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
    live: Annotated[
        str | None,
        typer.Option(
            help="Instead of tables: a real model, or a study file; the options below say more.",
            metavar="MODEL|STUDY.toml",
        ),
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
    until: Annotated[
        str | None,
        typer.Option(
            help="End a run, too, once what it would report is this near to the best route of the "
            "table, e.g. 1%. Saves time; says nothing of the rest of the run."
        ),
    ] = None,
    shuffle_knobs: Annotated[
        bool,
        typer.Option(
            "--shuffle-knobs",
            help="Give each seed the knobs in an order of its own: a sweep that meets a helpful "
            "knob early is lucky with the order.",
        ),
    ] = False,
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
    shape: Annotated[
        list[str] | None, typer.Option(help="With --live, as for tune: input shape.")
    ] = None,
    samples: Annotated[
        list[str] | None, typer.Option(help="With --live, as for tune: inputs.")
    ] = None,
    references: Annotated[
        list[str] | None, typer.Option(help="With --live, as for tune: reference outputs.")
    ] = None,
    input_range: Annotated[
        list[str] | None, typer.Option(help="With --live, as for tune: range of a made-up input.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="With --live, as for tune: loss of the bound.")
    ] = None,
    bound: Annotated[
        str | None, typer.Option(help="With --live, as for tune: largest loss allowed.")
    ] = None,
    expr: Annotated[
        str | None, typer.Option(help="With --live, as for tune: route expression.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="With --live, as for tune: what builds and runs engines.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="With --live, as for tune: option of the backend.")
    ] = None,
) -> int:
    """Compare search methods on recorded tables, with the same seeds and rules for each.

    Writes results.csv (a line for each run and trial), summary.md, .csv and .json, figures, and
    every run as an Optuna study.

    With --live, every run is a whole tuning of a real model with the same --budget, and what
    counts is the relative latency that it confirmed.
    """
    tuned = {
        "shape": shape,
        "samples": samples,
        "references": references,
        "input_range": input_range,
        "loss": loss,
        "bound": bound,
        "expr": expr,
        "backend": backend,
        "option": option,
    }
    tuned = {name: value for name, value in tuned.items() if value}
    if out is None:
        raise SettingsError("name the output folder with --out")
    if jobs < 1:
        raise SettingsError(f"jobs must be at least 1, not {jobs}")
    folder = ComparisonFolder(Path(out))
    stored = folder.stored() if resume else {}
    settings = _live_settings(live, tuned, stored)
    tables = {} if settings else {n: Path(path) for n, path in _tables(table, stored).items()}
    if settings and (table or trials is not None or until or shuffle_knobs or jobs > 1):
        raise SettingsError(
            "--live goes with --budget, without --table, --trials, --until, --shuffle-knobs and "
            "--jobs: real builds take turns, each with the same time"
        )
    plan = Plan(
        samplers=_samplers(samplers, stored),
        works=tuple(tables) if settings is None else (resolve_model(settings.model).stem,),
        repeats=_first(repeats, stored.get("repeats"), DEFAULT_REPEATS),
        extent=_extent(trials, budget, until, stored),
        seed=_first(seed, stored.get("seed"), 0),
        half_width=_first(half_width, stored.get("half_width"), DEFAULT_HALF_WIDTH),
        max_timing_s=_first(
            None if max_timing is None else parse_duration_s(max_timing, "--max-timing"),
            stored.get("max_timing_s"),
            DEFAULT_MAX_TIMING_S,
        ),
        shuffle_knobs=shuffle_knobs or bool(stored.get("shuffle_knobs")),
    )
    url = _storage(storage, stored)
    note: dict[str, Any] = {"storage": None if url is None else redact(url)}
    console = Console(stderr=True, highlight=False)
    if settings is not None:
        note["live"] = storable(settings)
        return _compare_live(plan, settings, folder, url, resume, note, console)
    note["tables"] = {name: str(path) for name, path in tables.items()}
    with _progress(console, plan) as on_run:
        compared = compare(
            plan,
            {name: partial(open_table, path) for name, path in tables.items()},
            folder,
            storage=url,
            jobs=jobs,
            resume=resume,
            on_run=on_run,
            note=note,
            draw=partial(draw_comparison, note=lambda text: console.print(f"note: {text}")),
        )
    return _told(compared, folder)


def _compare_live(
    plan: Plan,
    settings: TuneSettings,
    folder: ComparisonFolder,
    url: str | None,
    resume: bool,
    note: Mapping[str, Any],
    console: Console,
) -> int:
    with _progress(console, plan) as on_run:
        summary, interrupted = compare_live(
            plan,
            settings,
            folder,
            storage=url,
            resume=resume,
            note=note,
            on_run=on_run,
            listen=Publisher,
        )
    screen = Console(highlight=False)
    if summary.standings:
        screen.print(Markdown("\n".join(live_table(summary))))
    _say_where(screen, folder, plan.repeats * len(plan.samplers) - len(summary.results))
    return INTERRUPTED if interrupted else 0


def _told(compared: Compared, folder: ComparisonFolder) -> int:
    screen = Console(highlight=False)
    if compared.summary is not None:
        _show(screen, compared.summary)
    _say_where(screen, folder, compared.missing)
    return INTERRUPTED if compared.interrupted else 0


def _say_where(screen: Console, folder: ComparisonFolder, missing: int) -> None:
    if missing:
        screen.print(
            f"{missing} runs are not done; go on with: routewright compare --resume "
            f"--out {folder.path}",
            soft_wrap=True,
            markup=False,
        )
    screen.print(f"written to {folder.path}", soft_wrap=True, markup=False)


def _show(screen: Console, summary: Summary) -> None:
    screen.print(Markdown("\n".join(ranking_table(summary))))
    if summary.leads:
        screen.print(Markdown("\n".join(lead_table(summary))))


def _live_settings(
    model: str | None, tuned: Mapping[str, Any], stored: Mapping[str, Any]
) -> TuneSettings | None:
    """Return what a comparison on a real model tunes, or None where it is on tables."""
    if model is None and "live" in stored:
        return TuneSettings.from_dict({**stored["live"], **tuned})
    if model is None:
        if tuned:
            raise SettingsError(f"--{next(iter(tuned)).replace('_', '-')} goes with --live only")
        return None
    given: Mapping[str, Any] = {"model": model}
    if model.endswith(".toml"):
        given = read_study_file(Path(model)).to_dict()
    return relative_to(TuneSettings.from_dict({**given, **tuned}), Path.cwd())


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


def _extent(
    trials: int | None, budget: str | None, until: str | None, stored: Mapping[str, Any]
) -> Extent:
    if trials is None and budget is None and until is None and "extent" in stored:
        return Extent(**stored["extent"])
    return Extent(trials, None if budget is None else parse_duration_s(budget), _share(until))


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise SettingsError(f"--until is {text!r}; write for example 1% or 0.01") from error


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
