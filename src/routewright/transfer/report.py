"""What the searches with a prior say against those without: the table of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from routewright.compare.markdown import ratio_text, table_lines
from routewright.compare.measures import Reached
from routewright.compare.statistics import (
    Interval,
    Quantile,
    quantile_reached,
    ratio_of_medians,
)
from routewright.transfer.conditions import Condition
from routewright.transfer.runs import FIRST_TRIALS, TARGET, Arrival


@dataclass(frozen=True)
class Verdict:
    """One condition on one table against the cold start, over paired seeds.

    Attributes:
        table: Name of the table.
        family: Family of its model.
        condition: The condition.
        seeds: How many seeds.
        builds: Median builds to the target.
        cold_builds: The cold start's.
        ratio: Ratio of the two with 95% bootstrap interval, or None where it has no meaning.
        seconds: Median simulated seconds to the target.
        cold_seconds: The cold start's.
        as_good: Share of seeds whose incumbent after the first trials is truly at least as good.
        better: Share of seeds where it is truly better.
        sources: Sources that were near enough to be used.
        tried: Mean number of the prior's routes that were tried.
    """

    table: str
    family: str
    condition: str
    seeds: int
    builds: Quantile
    cold_builds: Quantile
    ratio: Interval | None
    seconds: Quantile
    cold_seconds: Quantile
    as_good: float
    better: float
    sources: int
    tried: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        ratio = self.ratio
        return {
            "table": self.table,
            "family": self.family,
            "condition": self.condition,
            "seeds": self.seeds,
            "builds": self.builds.to_dict(),
            "cold_builds": self.cold_builds.to_dict(),
            "ratio": None
            if ratio is None
            else [_finite(ratio.estimate), _finite(ratio.low), _finite(ratio.high)],
            "seconds": self.seconds.to_dict(),
            "cold_seconds": self.cold_seconds.to_dict(),
            "as_good_after_first": self.as_good,
            "better_after_first": self.better,
            "sources": self.sources,
            "routes_tried": self.tried,
        }


def verdicts_of(arrivals: Sequence[Arrival]) -> list[Verdict]:
    """Return a verdict for each table and condition, in the order of the arrivals."""
    groups: dict[tuple[str, str], dict[int, Arrival]] = {}
    for arrival in arrivals:
        groups.setdefault((arrival.table, arrival.condition), {})[arrival.seed] = arrival
    verdicts = []
    for (table, condition), warm in groups.items():
        cold = groups.get((table, str(Condition.COLD)))
        if condition == Condition.COLD or cold is None:
            continue
        seeds = sorted(warm.keys() & cold.keys())
        if seeds:
            pairs = [(warm[seed], cold[seed]) for seed in seeds]
            verdicts.append(_verdict(pairs))
    return verdicts


def _verdict(pairs: Sequence[tuple[Arrival, Arrival]]) -> Verdict:
    first = pairs[0][0]
    builds = [_builds(warm) for warm, _ in pairs]
    cold_builds = [_builds(cold) for _, cold in pairs]
    return Verdict(
        table=first.table,
        family=first.family,
        condition=first.condition,
        seeds=len(pairs),
        builds=quantile_reached(builds, 0.5),
        cold_builds=quantile_reached(cold_builds, 0.5),
        ratio=ratio_of_medians(builds, cold_builds),
        seconds=quantile_reached([_seconds(warm) for warm, _ in pairs], 0.5),
        cold_seconds=quantile_reached([_seconds(cold) for _, cold in pairs], 0.5),
        as_good=float(np.mean([w.after_first <= c.after_first + 1e-9 for w, c in pairs])),
        better=float(np.mean([w.after_first < c.after_first - 1e-9 for w, c in pairs])),
        sources=first.sources,
        tried=float(np.mean([warm.tried for warm, _ in pairs])),
    )


def markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as a Markdown table, a line for each table and condition."""
    heads = (
        "table",
        "prior",
        f"builds to {TARGET:.0%}",
        "cold",
        "ratio (95% interval)",
        "seconds",
        "cold",
        f"at least as good after {FIRST_TRIALS} trials",
        "sources",
    )
    rows = [
        (
            verdict.table,
            verdict.condition,
            str(verdict.builds),
            str(verdict.cold_builds),
            _ratio(verdict.ratio),
            str(verdict.seconds),
            str(verdict.cold_seconds),
            f"{verdict.as_good:.0%}",
            str(verdict.sources),
        )
        for verdict in verdicts
    ]
    return "\n".join(table_lines(heads, rows))


def overall(arrivals: Sequence[Arrival]) -> Mapping[str, Mapping[str, Any]]:
    """Return each condition over all tables: builds in sum, and how often at least as good.

    Medians of single tables hide what a prior costs where it fails; the sum of all builds does
    not. A search that did not arrive counts with all its builds.
    """
    cold = {(a.table, a.seed): a for a in arrivals if a.condition == Condition.COLD}
    found: dict[str, dict[str, Any]] = {}
    for condition in dict.fromkeys(a.condition for a in arrivals):
        if condition == Condition.COLD:
            continue
        mine = [a for a in arrivals if a.condition == condition and (a.table, a.seed) in cold]
        theirs = [cold[a.table, a.seed] for a in mine]
        total = sum(a.builds for a in theirs)
        found[condition] = {
            "pairs": len(mine),
            "builds_share": sum(a.builds for a in mine) / total if total else None,
            "as_good_after_first": float(
                np.mean(
                    [
                        a.after_first <= c.after_first + 1e-9
                        for a, c in zip(mine, theirs, strict=True)
                    ]
                )
            ),
        }
    return found


def _builds(arrival: Arrival) -> Reached:
    return Reached(arrival.builds, arrival.arrived)


def _seconds(arrival: Arrival) -> Reached:
    return Reached(arrival.seconds, arrival.arrived)


def _ratio(ratio: Interval | None) -> str:
    if ratio is None:
        return "no ratio"
    low, middle, high = (ratio_text(v) for v in (ratio.low, ratio.estimate, ratio.high))
    return f"{middle} ({low} to {high})"


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
