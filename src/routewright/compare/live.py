"""Search methods against each other on a real model: real builds, equal budgets.

Every run is a whole tuning (:mod:`routewright.tuning`) with the budget's confirmation in it. There
is no table to look the truth up in: what counts is the confirmed relative latency with its 95%
interval, and 1 where a run found no gain. Runs take turns, since two at once would spoil each
other's times, and who goes first changes from seed to seed, since machines drift.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from routewright.compare.folder import ComparisonFolder
from routewright.compare.measures import rows_of
from routewright.compare.plan import Plan, RunKey
from routewright.compare.run import Run
from routewright.compare.statistics import Interval, Ranking, rank
from routewright.files import write_text_atomic
from routewright.intervals import student_quantile
from routewright.progress import Progress
from routewright.result import Verdict, read_result
from routewright.search.base import history_of
from routewright.settings import TuneSettings
from routewright.sources import open_source, resolved
from routewright.storage import close_storage, open_storage, sqlite_url
from routewright.study import load_study
from routewright.tuning import run

LIVE_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class LiveResult:
    """What one tuning came to.

    Attributes:
        sampler: Name of the search method.
        seed: Its seed.
        verdict: Whether it found a gain.
        relative_latency: As confirmed; 1 without a gain.
        ci95_low: Lower end of its 95% interval.
        ci95_high: Upper end.
        baseline_ms: The default route's latency in this run.
        builds: Builds that succeeded.
        timed: Candidates that were timed.
        infeasible: Trials that broke the bound.
        failed: Trials that failed.
        seconds: Seconds of the budget used.
        stopped: Why the search ended.
        route: The best route.
    """

    sampler: str
    seed: int
    verdict: str
    relative_latency: float
    ci95_low: float
    ci95_high: float
    baseline_ms: float
    builds: int
    timed: int
    infeasible: int
    failed: int
    seconds: float
    stopped: str
    route: str


@dataclass(frozen=True)
class LiveStanding:
    """How one sampler did.

    Attributes:
        sampler: Its name.
        runs: How many tunings.
        faster: How many found a gain.
        mean: Geometric mean of the confirmed relative latencies, with Student's 95% interval over
            the seeds; of a single run, that run's own interval.
        best: Lowest of them.
        worst: Highest of them.
        builds: Median number of builds.
    """

    sampler: str
    runs: int
    faster: int
    mean: Interval
    best: float
    worst: float
    builds: float


@dataclass(frozen=True)
class LiveSummary:
    """A comparison on a real model.

    Attributes:
        plan: What was compared.
        results: Every finished run.
        standings: By sampler, in the plan's order.
        ranking: Mean ranks by confirmed relative latency.
    """

    plan: Plan
    results: tuple[LiveResult, ...]
    standings: tuple[LiveStanding, ...]
    ranking: Ranking


def order_of(plan: Plan) -> Iterator[RunKey]:
    """Yield every run; who goes first changes from seed to seed."""
    (work,) = plan.works
    for turn, seed in enumerate(plan.seeds):
        first = turn % len(plan.samplers)
        for sampler in (*plan.samplers[first:], *plan.samplers[:first]):
            yield RunKey(work, sampler, seed)


def compare_live(
    plan: Plan,
    settings: TuneSettings,
    folder: ComparisonFolder,
    *,
    storage: str | None = None,
    resume: bool = False,
    note: Mapping[str, Any] | None = None,
    on_run: Callable[[RunKey, int], None] = lambda key, left: None,
    listen: Callable[[Progress], Progress] = lambda progress: progress,
) -> tuple[LiveSummary, bool]:
    """Tune a model with every sampler and seed, and put the results side by side.

    Args:
        plan: What to compare; its one work is the model's name, its extent a budget.
        settings: How to tune; sampler, seed, budget, output and storage are the plan's.
        folder: Where it goes.
        storage: Optuna storage of the studies; None: a file in the folder.
        resume: Go on with the comparison in the folder; a tuning that was cut off begins anew.
        note: What else to keep with the plan.
        on_run: Hears of every finished run and how many are left.
        listen: Wraps the progress that each tuning tells.

    Returns:
        The summary, and whether the user ended it early.

    Raises:
        RoutewrightError: Something the user can mend.
    """
    # Whatever is wrong with the inputs is said before anything is written.
    open_source(resolved(settings))
    with folder.opened(plan, resume=resume, note=dict(note or {})):
        url = storage or sqlite_url(folder.database)
        keys = list(order_of(plan))
        missing = [key for key in keys if not _result_file(folder, key).exists()]
        interrupted = False
        for done, key in enumerate(missing, 1):
            interrupted = _tuned(plan, settings, folder, key, url, listen)
            if interrupted:
                # Its budget was cut short, so it would not be fair to count it.
                _discard(folder, key, url)
                break
            on_run(key, len(missing) - done)
        finished = [key for key in keys if _result_file(folder, key).exists()]
        results = [_result_of(key, read_result(_result_file(folder, key))) for key in finished]
        summary = summarize_live(plan, results)
        _write_rows(folder, finished, url)
        _write_results(folder, results)
        write_text_atomic(folder.path / "summary.md", live_markdown(summary))
        write_text_atomic(folder.path / "summary.json", _as_json(summary))
        return summary, interrupted


def summarize_live(plan: Plan, results: Sequence[LiveResult]) -> LiveSummary:
    """Put the results of tunings side by side."""
    by_sampler = {name: [r for r in results if r.sampler == name] for name in plan.samplers}
    seeds = [
        seed
        for seed in plan.seeds
        if all(any(r.seed == seed for r in found) for found in by_sampler.values())
    ]
    scores = {
        name: [[r.relative_latency for seed in seeds for r in found if r.seed == seed]]
        for name, found in by_sampler.items()
    }
    return LiveSummary(
        plan=plan,
        results=tuple(results),
        standings=tuple(_standing(name, found) for name, found in by_sampler.items() if found),
        ranking=rank(scores),
    )


def live_markdown(summary: LiveSummary) -> str:
    """Return the summary as Markdown."""
    plan = summary.plan
    lines = [
        f"# Comparison of search methods on {plan.works[0]}",
        "",
        f"{len(summary.results)} of {plan.repeats * len(plan.samplers)} tunings, {plan.extent} "
        "each, real builds, one after the other. What counts is the relative latency that each "
        "confirmed with fresh builds; 1 where it found no gain.",
        "",
        *live_table(summary),
        "",
        "| sampler | seed | verdict | relative latency (95% interval) | builds, timed | route |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{r.sampler}` | {r.seed} | {r.verdict} | {r.relative_latency:.3f} "
        f"({r.ci95_low:.3f} to {r.ci95_high:.3f}) | {r.builds}, {r.timed} | "
        f"`{r.route or 'default'}` |"
        for r in summary.results
    ]
    return "\n".join(lines) + "\n"


def live_table(summary: LiveSummary) -> list[str]:
    """Return the lines of the table of samplers."""
    lines = [
        "| sampler | tunings | found a gain | mean relative latency (95% interval) | best, worst "
        "| mean rank | median builds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for s in summary.standings:
        ranked = summary.ranking.mean_ranks.get(s.sampler)
        told = "" if ranked is None else f"{ranked.estimate:.2f}"
        lines.append(
            f"| `{s.sampler}` | {s.runs} | {s.faster} | {s.mean.estimate:.3f} "
            f"({s.mean.low:.3f} to {s.mean.high:.3f}) | {s.best:.3f}, {s.worst:.3f} | {told} | "
            f"{s.builds:.0f} |"
        )
    return lines


def _tuned(
    plan: Plan,
    settings: TuneSettings,
    folder: ComparisonFolder,
    key: RunKey,
    url: str,
    listen: Callable[[Progress], Progress],
) -> bool:
    """Carry out one tuning; return whether the user ended it."""
    _discard(folder, key, url)
    out = _out(folder, key)
    out.parent.mkdir(parents=True, exist_ok=True)
    result = run(
        replace(
            settings,
            sampler=key.sampler,
            seed=key.seed,
            budget_s=plan.extent.budget_s or settings.budget_s,
            half_width=plan.half_width,
            max_timing_s=plan.max_timing_s,
            out=str(out),
            storage=url,
            study=f"{folder.name}/{key.name}",
        ),
        progress=listen(Progress()),
    )
    return result.interrupted


def _discard(folder: ComparisonFolder, key: RunKey, url: str) -> None:
    """Remove what a tuning that was cut off left."""
    shutil.rmtree(_out(folder, key), ignore_errors=True)
    storage = open_storage(url)
    try:
        with contextlib.suppress(KeyError):
            optuna.delete_study(study_name=f"{folder.name}/{key.name}", storage=storage)
    finally:
        close_storage(storage)


def _out(folder: ComparisonFolder, key: RunKey) -> Path:
    return folder.of_run(key).with_name(f"seed-{key.seed}")


def _result_file(folder: ComparisonFolder, key: RunKey) -> Path:
    return _out(folder, key) / "result.json"


def _result_of(key: RunKey, result: Mapping[str, Any]) -> LiveResult:
    best, trials = result["best"], result["trials"]
    low, high = (float(end) for end in best["ci95"])
    return LiveResult(
        sampler=key.sampler,
        seed=key.seed,
        verdict=str(result["verdict"]),
        relative_latency=float(best["relative_latency"]),
        ci95_low=low,
        ci95_high=high,
        baseline_ms=float(result["baseline"]["latency_ms"]),
        builds=int(trials["built"]),
        timed=int(trials["timed"]),
        infeasible=int(trials["pruned_accuracy"]),
        failed=int(trials["failed"]),
        seconds=float(result["budget"]["used_s"]),
        stopped=str(result["stopped"]),
        route=str(best["route"]),
    )


def _standing(sampler: str, found: Sequence[LiveResult]) -> LiveStanding:
    logs = np.log([result.relative_latency for result in found])
    mean = float(logs.mean())
    if len(found) == 1:
        low, high = found[0].ci95_low, found[0].ci95_high
    else:
        half = student_quantile(0.975, len(found) - 1) * float(logs.std(ddof=1))
        half /= math.sqrt(len(found))
        low, high = math.exp(mean - half), math.exp(mean + half)
    return LiveStanding(
        sampler=sampler,
        runs=len(found),
        faster=sum(result.verdict == Verdict.FASTER for result in found),
        mean=Interval(math.exp(mean), low, high),
        best=float(np.exp(logs.min())),
        worst=float(np.exp(logs.max())),
        builds=float(np.median([result.builds for result in found])),
    )


def _write_rows(folder: ComparisonFolder, finished: Sequence[RunKey], url: str) -> None:
    """Write ``results.csv``; what only a table's truth can tell stays empty."""
    storage = open_storage(url)
    try:
        rows = []
        for key in finished:
            study = load_study(storage, f"{folder.name}/{key.name}")
            records = tuple(history_of(study).records)
            found = Run(key, records, (math.nan,) * len(records), "")
            rows += rows_of(found, lambda route: math.nan, math.nan)
        folder.write_results(rows)
    finally:
        close_storage(storage)


def _write_results(folder: ComparisonFolder, results: Sequence[LiveResult]) -> None:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [f.name for f in fields(LiveResult)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(result) for result in results)
    write_text_atomic(folder.path / "summary.csv", stream.getvalue())


def _as_json(summary: LiveSummary) -> str:
    content = {
        "schema_version": LIVE_SCHEMA_VERSION,
        **asdict(summary),
        "plan": summary.plan.to_dict(),
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
