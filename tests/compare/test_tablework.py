"""A recorded table as a work: its truth, and the same noise for every sampler."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from routewright.compare.tablework import TableWork, open_table
from routewright.timing import TimingLimits
from routewright.trial import time_candidate

TABLE = Path(__file__).resolve().parent.parent.parent / "studies" / "tables" / "ppocr-v2-cls"


@pytest.fixture(scope="module")
def work() -> TableWork:
    return open_table(TABLE)


def test_the_best_is_the_lowest_truth_that_is_eligible(work: TableWork) -> None:
    eligible = [entry for entry in work.table.entries if work.table.eligible(entry)]
    assert work.best == min(work.truth(entry.route) for entry in eligible)
    assert work.best < work.truth("")


def test_inert_knobs_do_not_change_the_truth(work: TableWork) -> None:
    name = next(name for name in work.space.variable if name not in work.live)
    other = next(v for v in work.space.variable[name] if v != work.space.database[name].default)
    assert work.truth(f"{name}={other}") == work.truth("")


def timed(work: TableWork, seed: int, routes: list[str]) -> dict[str, float]:
    bench = work.bench(seed)
    bench.build("baseline", "", deadline_s=math.inf)
    found = {}
    for route in routes:
        bench.build("candidate", route, deadline_s=math.inf)
        timing = time_candidate(bench, TimingLimits(), deadline_s=math.inf, seed=1)
        found[route] = timing.relative_latency
    return found


def test_one_seed_gives_an_engine_the_same_noise_whatever_was_tried_before(
    work: TableWork,
) -> None:
    one, other, *_ = (entry.route for entry in work.table.entries[3:])
    first = timed(work, 5, [one, other])
    second = timed(work, 5, [other, one])
    assert first == second
    assert timed(work, 6, [one]) != {one: first[one]}
