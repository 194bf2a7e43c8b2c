from __future__ import annotations

import pytest

from routewright.transfer.report import markdown, overall, verdicts_of
from routewright.transfer.runs import Arrival


def arrival(
    condition: str, seed: int, builds: int, after: float, *, arrived: bool = True
) -> Arrival:
    return Arrival(
        table="t",
        family="det",
        condition=condition,
        seed=seed,
        builds=builds,
        seconds=2.0 * builds,
        arrived=arrived,
        after_first=after,
        suggested=2,
        tried=1,
        sources=3,
    )


ARRIVALS = [
    *(arrival("cold", seed, 20 + seed, 1.0) for seed in range(5)),
    *(arrival("model out", seed, 5 + seed, 0.9 + 0.1 * (seed == 4) * 2) for seed in range(5)),
]


def test_medians_and_paired_shares_are_told() -> None:
    (verdict,) = verdicts_of(ARRIVALS)
    assert (verdict.builds.value, verdict.cold_builds.value) == (7, 22)
    assert verdict.ratio is not None
    assert verdict.ratio.estimate == pytest.approx(7 / 22)
    assert verdict.as_good == 0.8
    assert verdict.better == 0.8
    assert verdict.seeds == 5


def test_a_search_that_never_arrives_is_no_fast_one() -> None:
    late = [arrival("model out", seed, 80, 1.0, arrived=False) for seed in range(5)]
    (verdict,) = verdicts_of([*ARRIVALS[:5], *late])
    assert verdict.builds.is_bound
    assert "> 80" in markdown([verdict])


def test_over_all_tables_every_build_counts() -> None:
    told = overall(ARRIVALS)["model out"]
    assert told["pairs"] == 5
    assert told["builds_share"] == pytest.approx(35 / 110)


def test_seeds_without_a_cold_run_are_left_out() -> None:
    (verdict,) = verdicts_of(ARRIVALS[2:])
    assert verdict.seeds == 3
    assert verdicts_of(ARRIVALS[5:]) == []
