"""All runs of a comparison side by side: per work and sampler, ranks, the first one's lead.

:func:`summarize` turns traces into a :class:`Summary`; ``summary.json`` holds all of it,
``summary.csv`` one line per work and sampler. Infinities are texts in JSON, since it has none.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from routewright.compare.measures import Trace
from routewright.compare.plan import Plan
from routewright.compare.statistics import (
    Interval,
    Quantile,
    Ranking,
    quantile_reached,
    quartiles,
    rank,
    ratio_of_medians,
)
from routewright.records import Outcome

SUMMARY_SCHEMA_VERSION = 1

TARGETS = (0.05, 0.02, 0.01)
"""Shares above the best relative latency that a run is to come within."""

MAIN_TARGET = 0.02
"""The one of :data:`TARGETS` that samplers are ranked by."""

_POINTS = 120
"""Points of a curve."""


@dataclass(frozen=True)
class Curve:
    """Quartiles of the regret over the runs, at points of an axis.

    Attributes:
        at: Builds or seconds.
        low: Lower quartile.
        middle: Median.
        high: Upper quartile.
    """

    at: tuple[float, ...]
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Standing:
    """How one sampler did on one work.

    Attributes:
        work: Name of the work.
        sampler: Name of the sampler.
        runs: How many runs there are.
        trials: Median number of trials after the baseline.
        builds: Median number of builds after the baseline's.
        seconds: Median seconds on the work's clock.
        regret: Quartiles of the regret at the end.
        tried_regret: Quartiles of the regret of the best route tried.
        builds_to: Builds by which half of the runs were within each target.
        seconds_to: Seconds by which half of the runs were.
        share_within: Share of the runs that came within each target.
        shares: Mean share of the trials, by outcome.
        proposal_ms: Median over the runs of the mean milliseconds a proposal took.
        slowest_proposal_ms: The longest that any proposal took.
        by_builds: Regret over builds.
        by_seconds: Regret over seconds.
        stopped: How many runs ended for which reason.
    """

    work: str
    sampler: str
    runs: int
    trials: float
    builds: float
    seconds: float
    regret: tuple[float, float, float]
    tried_regret: tuple[float, float, float]
    builds_to: Mapping[float, Quantile]
    seconds_to: Mapping[float, Quantile]
    share_within: Mapping[float, float]
    shares: Mapping[str, float]
    proposal_ms: float
    slowest_proposal_ms: float
    by_builds: Curve
    by_seconds: Curve
    stopped: Mapping[str, int]


@dataclass(frozen=True)
class Lead:
    """Builds that the first sampler needs for a target, against another's.

    Attributes:
        work: Name of the work.
        other: The other sampler.
        target: Share above the best relative latency.
        ours: The first sampler's median.
        theirs: The other's median.
        ratio: The first's over the other's, with its 95% interval; None where it has no meaning.
    """

    work: str
    other: str
    target: float
    ours: Quantile
    theirs: Quantile
    ratio: Interval | None


@dataclass(frozen=True)
class Summary:
    """A comparison in numbers.

    Attributes:
        plan: What was compared.
        best: True relative latency of the fastest eligible route, by work.
        runs: Finished runs.
        standings: By work and sampler, in the plan's order.
        by_regret: Ranks by the regret at the end.
        by_builds: Ranks by the builds to within :data:`MAIN_TARGET`.
        leads: The first sampler against each other, by work.
        versions: Of Python and packages.
    """

    plan: Plan
    best: Mapping[str, float]
    runs: int
    standings: tuple[Standing, ...]
    by_regret: Ranking
    by_builds: Ranking
    leads: tuple[Lead, ...]
    versions: Mapping[str, str]

    def of(self, work: str) -> list[Standing]:
        """Return the standings on one work."""
        return [standing for standing in self.standings if standing.work == work]

    def to_json(self) -> str:
        """Return everything as JSON text."""
        content: dict[str, Any] = {
            "schema_version": SUMMARY_SCHEMA_VERSION,
            "planned_runs": sum(1 for _ in self.plan.runs()),
            **asdict(self),
            "plan": self.plan.to_dict(),
        }
        return json.dumps(_plain(content), indent=1) + "\n"

    def to_csv(self) -> str:
        """Return one line per work and sampler as CSV text."""
        stream = io.StringIO()
        lines = [_flat(standing) for standing in self.standings]
        writer = csv.DictWriter(stream, list(lines[0]) if lines else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return stream.getvalue()


def summarize(
    plan: Plan,
    traces: Iterable[Trace],
    best: Mapping[str, float],
    *,
    versions: Mapping[str, str] | None = None,
) -> Summary:
    """Put the runs of a comparison side by side.

    Args:
        plan: What was compared.
        traces: The finished runs.
        best: True relative latency of the fastest eligible route, by work.
        versions: Of Python and packages.
    """
    by_pair: dict[tuple[str, str], dict[int, Trace]] = {}
    for trace in traces:
        by_pair.setdefault((trace.key.work, trace.key.sampler), {})[trace.key.seed] = trace
    standings = tuple(
        _standing(work, sampler, _ends(by_pair, work), list(by_pair[work, sampler].values()))
        for work in plan.works
        for sampler in plan.samplers
        if (work, sampler) in by_pair
    )
    paired = {work: _paired(plan, work, by_pair) for work in plan.works}
    return Summary(
        plan=plan,
        best=dict(best),
        runs=sum(map(len, by_pair.values())),
        standings=standings,
        by_regret=rank(_scores(plan, paired, lambda trace: float(trace.regret[-1]))),
        by_builds=rank(_scores(plan, paired, _builds_to_main_target)),
        leads=tuple(_leads(plan, paired)),
        versions=dict(versions or {}),
    )


def _builds_to_main_target(trace: Trace) -> float:
    reached = trace.builds_to(MAIN_TARGET)
    return reached.at if reached.reached else math.inf


def _ends(
    by_pair: Mapping[tuple[str, str], Mapping[int, Trace]], work: str
) -> tuple[float, float]:
    """Return the most builds and seconds of any run on a work, where its curves end."""
    traces = [t for (on, _), runs in by_pair.items() if on == work for t in runs.values()]
    return (
        float(max(trace.builds[-1] for trace in traces)),
        float(max(trace.seconds[-1] for trace in traces)),
    )


def _standing(
    work: str, sampler: str, ends: tuple[float, float], traces: Sequence[Trace]
) -> Standing:
    last_build, last_second = ends
    builds_at = np.unique(np.round(np.linspace(0, last_build, _POINTS)))
    seconds_at = np.linspace(0, last_second, _POINTS)
    stopped: dict[str, int] = {}
    for trace in traces:
        stopped[trace.stopped] = stopped.get(trace.stopped, 0) + 1
    return Standing(
        work=work,
        sampler=sampler,
        runs=len(traces),
        trials=float(np.median([trace.trials for trace in traces])),
        builds=float(np.median([trace.builds[-1] for trace in traces])),
        seconds=float(np.median([trace.seconds[-1] for trace in traces])),
        regret=_three([trace.regret[-1] for trace in traces]),
        tried_regret=_three([trace.tried_regret[-1] for trace in traces]),
        builds_to={t: quantile_reached([x.builds_to(t) for x in traces], 0.5) for t in TARGETS},
        seconds_to={t: quantile_reached([x.seconds_to(t) for x in traces], 0.5) for t in TARGETS},
        share_within={
            t: float(np.mean([x.builds_to(t).reached for x in traces])) for t in TARGETS
        },
        shares={
            str(outcome): float(np.mean([trace.shares[str(outcome)] for trace in traces]))
            for outcome in Outcome
        },
        proposal_ms=1e3 * float(np.median([_mean(trace.proposal_s) for trace in traces])),
        slowest_proposal_ms=1e3
        * max((float(trace.proposal_s.max(initial=0.0)) for trace in traces), default=0.0),
        by_builds=_curve(builds_at, [trace.regret_at_builds(builds_at) for trace in traces]),
        by_seconds=_curve(seconds_at, [trace.regret_at_seconds(seconds_at) for trace in traces]),
        stopped=stopped,
    )


def _paired(
    plan: Plan, work: str, by_pair: Mapping[tuple[str, str], Mapping[int, Trace]]
) -> dict[str, list[Trace]]:
    """Return each sampler's traces for the seeds that every sampler ran on a work."""
    runs = {sampler: by_pair.get((work, sampler), {}) for sampler in plan.samplers}
    seeds = [seed for seed in plan.seeds if all(seed in found for found in runs.values())]
    return {sampler: [found[seed] for seed in seeds] for sampler, found in runs.items()}


def _scores(
    plan: Plan, paired: Mapping[str, Mapping[str, Sequence[Trace]]], score: Any
) -> dict[str, list[list[float]]]:
    return {
        sampler: [[score(trace) for trace in paired[work][sampler]] for work in plan.works]
        for sampler in plan.samplers
    }


def _leads(plan: Plan, paired: Mapping[str, Mapping[str, Sequence[Trace]]]) -> Iterable[Lead]:
    first, *others = plan.samplers
    for work in plan.works:
        if not paired[work][first]:
            continue
        for other in others:
            for target in TARGETS:
                ours = [trace.builds_to(target) for trace in paired[work][first]]
                theirs = [trace.builds_to(target) for trace in paired[work][other]]
                yield Lead(
                    work=work,
                    other=other,
                    target=target,
                    ours=quantile_reached(ours, 0.5),
                    theirs=quantile_reached(theirs, 0.5),
                    ratio=ratio_of_medians(ours, theirs),
                )


def _curve(at: Any, regrets: Sequence[Any]) -> Curve:
    low, middle, high = quartiles(np.array(regrets))
    return Curve(*(tuple(map(float, values)) for values in (at, low, middle, high)))


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = quartiles(np.array(values, dtype=float))
    return float(low), float(middle), float(high)


def _mean(values: Any) -> float:
    return float(values.mean()) if len(values) else 0.0


def _flat(standing: Standing) -> dict[str, Any]:
    line: dict[str, Any] = {
        "work": standing.work,
        "sampler": standing.sampler,
        "runs": standing.runs,
        "median_trials": standing.trials,
        "median_builds": standing.builds,
        "median_seconds": round(standing.seconds, 3),
    }
    for name, values in (("regret", standing.regret), ("tried_regret", standing.tried_regret)):
        for quartile, value in zip(("low", "median", "high"), values, strict=True):
            line[f"{name}_{quartile}"] = round(value, 6)
    for target in TARGETS:
        percent = f"{target:.0%}".removesuffix("%")
        for unit, times in (("builds", standing.builds_to), ("seconds", standing.seconds_to)):
            line[f"{unit}_to_{percent}_percent"] = round(times[target].value, 3)
            line[f"{unit}_to_{percent}_percent_is_lower_bound"] = times[target].is_bound
        line[f"share_within_{percent}_percent"] = round(standing.share_within[target], 4)
    line |= {f"share_{name}": round(share, 4) for name, share in standing.shares.items()}
    line["proposal_ms"] = round(standing.proposal_ms, 3)
    line["slowest_proposal_ms"] = round(standing.slowest_proposal_ms, 3)
    return line


def _plain(value: Any) -> Any:
    """Return ``value`` as strict JSON takes it, numbers rounded to what they are worth."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
