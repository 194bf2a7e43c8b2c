"""The summary as Markdown says what a reader has to know."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from routewright.compare.markdown import lead_table, markdown
from routewright.compare.measures import Trace
from routewright.compare.plan import Extent, Plan, RunKey
from routewright.compare.sees import OWN, SEES
from routewright.compare.summary import Summary, summarize
from routewright.records import Outcome
from routewright.search.registry import SAMPLERS

PLAN = Plan(("auto", "tpe", "my.module:Search"), ("w",), 3, Extent(trials=4))


def trace(sampler: str, seed: int, regret: list[float]) -> Trace:
    count = len(regret)
    return Trace(
        key=RunKey("w", sampler, seed),
        builds=np.arange(count),
        seconds=np.arange(count) * 2.0,
        regret=np.array(regret),
        tried_regret=np.array(regret),
        shares=dict.fromkeys(map(str, Outcome), 0.0),
        proposal_s=np.full(count - 1, 0.01),
    )


def summary() -> Summary:
    good, slow, never = [0.5, 0.01, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.015, 0.0], [0.5] * 5
    traces = [
        trace(sampler, seed, regret)
        for sampler, regret in zip(PLAN.samplers, (good, slow, never), strict=True)
        for seed in PLAN.seeds
    ]
    return summarize(PLAN, traces, {"w": 0.8})


def test_what_was_not_reached_is_told_as_a_bound() -> None:
    text = markdown(summary())
    (line,) = [line for line in text.splitlines() if line.startswith("| `my.module:Search` | 50")]
    assert "> 4 (0% of runs)" in line
    (row,) = [line for line in lead_table(summary()) if line.startswith("| w |")]
    assert row == "| w | 1 | 3 (0.33, 0.33 to 0.33) | > 4 (below 0.25) |"


def test_it_says_what_each_sampler_sees() -> None:
    text = markdown(summary())
    assert all(f"`{name}`" in text for name in PLAN.samplers)
    assert OWN in text
    assert set(SEES) == set(SAMPLERS)


def test_it_says_when_runs_ended_at_the_target() -> None:
    found = summary()
    assert "tells no more than whether it got there" not in markdown(found)
    plan = replace(PLAN, extent=Extent(trials=4, until=0.01))
    assert "tells no more than whether it got there" in markdown(replace(found, plan=plan))


def test_a_summary_of_runs_that_are_not_paired_ranks_nothing() -> None:
    found = summarize(PLAN, [trace("auto", 0, [0.5, 0.1])], {"w": 0.8})
    assert "No seed was run with every sampler yet" in markdown(found)
    assert math.isclose(found.of("w")[0].regret[1], 0.1)
