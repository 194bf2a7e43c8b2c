from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routewright.priors.pooling import pool_normal, pool_rate


def pooled(values: list[float], ses: list[float]):  # type: ignore[no-untyped-def]
    return pool_normal(values, [se**2 for se in ses], mean_sd=0.15, between_sd=0.06)


def test_one_vague_study_moves_little_and_leaves_much_open() -> None:
    one = pooled([-0.3], [0.3])
    assert -0.1 < one.mean < 0
    assert one.sd > 0.1


def test_one_sharp_study_is_not_taken_for_the_truth_elsewhere() -> None:
    one = pooled([-0.3], [0.001])
    assert -0.3 < one.mean < -0.2
    assert one.sd > 0.03


def test_agreement_narrows_and_disagreement_widens() -> None:
    agreeing = pooled([-0.2, -0.21, -0.19, -0.2], [0.02] * 4)
    apart = pooled([-0.4, 0.1, -0.3, 0.2], [0.02] * 4)
    assert agreeing.sd < pooled([-0.2], [0.02]).sd
    assert apart.sd > 2 * agreeing.sd
    assert apart.between_sd > 2 * agreeing.between_sd


def test_a_sharp_study_outweighs_a_vague_one() -> None:
    assert pooled([-0.2, 0.3], [0.01, 0.4]).mean == pytest.approx(-0.18, abs=0.04)


def test_intervals_for_a_new_study_hold_what_they_promise() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        mean, tau = rng.normal(0, 0.15), abs(rng.normal(0, 0.06))
        truths = rng.normal(mean, tau, size=4)
        found = truths[:3] + rng.normal(0, 0.03, size=3)
        belief = pooled(list(found), [0.03] * 3)
        inside += abs(truths[3] - belief.mean) <= 1.96 * belief.sd
    assert 0.93 <= inside / 2000 <= 0.985


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.floats(0.001, 1.0))
def test_the_mean_never_lies_outside_what_was_found_and_zero(
    values: list[float], se: float
) -> None:
    belief = pooled(values, [se] * len(values))
    assert min([0.0, *values]) - 1e-9 <= belief.mean <= max([0.0, *values]) + 1e-9
    assert belief.sd > 0


def test_a_rate_starts_at_its_base_and_follows_what_is_seen() -> None:
    assert pool_rate([], [], base_rate=0.2, base_count=0.5)[0] == pytest.approx(0.2)
    mean, sd = pool_rate([1, 1], [1, 1], base_rate=0.2, base_count=0.5)
    assert mean == pytest.approx(0.84)
    assert sd < 0.25
