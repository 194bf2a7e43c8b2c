from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from routewright.intervals import (
    Interval,
    hodges_lehmann,
    pooled_interval,
    signed_rank_interval,
)

readings = st.lists(
    st.floats(-10, 10, allow_nan=False).map(lambda value: round(value, 3)), min_size=1, max_size=12
)


def rank_sum_tail(count: int, value: int) -> float:
    """P(W+ <= value), by trying every assignment of signs."""
    sums = [
        sum(rank for rank, sign in zip(range(1, count + 1), signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=count)
    ]
    return sum(total <= value for total in sums) / len(sums)


@pytest.mark.parametrize("count", range(1, 11))
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_interval_is_the_widest_rank_test_that_does_not_reject(
    count: int, confidence: float
) -> None:
    # By the definition: all shifts that the two-sided exact test at this level does not reject.
    values = np.random.default_rng(count).standard_normal(count)
    averages = sorted((values[i] + values[j]) / 2 for i in range(count) for j in range(i, count))
    middles = [averages[0] - 1, *((a + b) / 2 for a, b in itertools.pairwise(averages))]
    accepted = []
    for shift in [*middles, averages[-1] + 1]:
        moved = values - shift
        ranks = stats.rankdata(abs(moved))
        plus = round(ranks[moved > 0].sum())
        minus = round(ranks[moved < 0].sum())
        p_value = 2 * rank_sum_tail(count, min(plus, minus))
        if p_value > 1 - confidence:
            accepted.append(shift)
    interval = signed_rank_interval(values.tolist(), confidence)
    assert interval.estimate == pytest.approx(np.median(averages))
    if rank_sum_tail(count, 0) > (1 - confidence) / 2:
        # No such interval has two ends; Student's is used.
        if count == 1:
            assert math.isinf(interval.high)
        else:
            half = stats.t.ppf((1 + confidence) / 2, count - 1) * stats.sem(values)
            assert interval.half_width == pytest.approx(half)
        return
    inside = [shift for shift in middles[1:] if interval.low < shift < interval.high]
    assert inside == [shift for shift in accepted if shift in middles[1:]]
    assert averages[0] - 1 not in accepted


@pytest.mark.parametrize("count", [20, 50, 51, 60, 200])
def test_exact_and_normal_intervals_agree(count: int) -> None:
    values = np.random.default_rng(5).standard_t(3, count).tolist()
    ours = signed_rank_interval(values, 0.95)
    sums = count * (count + 1)
    deviation = math.sqrt(sums * (2 * count + 1) / 24)
    averages = np.sort(
        [(a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2)]
    )
    outside = sums / 4 - 1.96 * deviation
    assert ours.low == pytest.approx(averages[round(outside)], abs=0.02)
    assert ours.high == pytest.approx(averages[-1 - round(outside)], abs=0.02)


@given(readings)
def test_swapping_the_sides_mirrors_the_interval(values: list[float]) -> None:
    one = signed_rank_interval(values, 0.95)
    other = signed_rank_interval([-value for value in values], 0.95)
    assert other.estimate == pytest.approx(-one.estimate, abs=1e-12)
    assert other.low == pytest.approx(-one.high, abs=1e-12)
    assert other.high == pytest.approx(-one.low, abs=1e-12)


@given(readings, st.floats(-5, 5))
def test_a_shift_moves_everything_alike(values: list[float], shift: float) -> None:
    one = signed_rank_interval(values, 0.9)
    other = signed_rank_interval([value + shift for value in values], 0.9)
    assert other.estimate == pytest.approx(one.estimate + shift, abs=1e-9)
    assert other.low == pytest.approx(one.low + shift, abs=1e-9)


def test_one_spike_hardly_moves_the_estimate() -> None:
    calm = [0.01 * (index % 5 - 2) for index in range(20)]
    assert abs(hodges_lehmann([*calm, 3.0]) - hodges_lehmann(calm)) < 0.005


def test_widening_is_in_quadrature() -> None:
    widened = Interval(1.0, 0.7, 1.4).widened(0.4)
    assert widened.low == pytest.approx(1.0 - 0.5)
    assert widened.high == pytest.approx(1.0 + math.hypot(0.4, 0.4))
    assert widened.estimate == 1.0


def test_rejects_nonsense() -> None:
    with pytest.raises(ValueError, match="at least one"):
        hodges_lehmann([])
    with pytest.raises(ValueError, match="confidence"):
        signed_rank_interval([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="one variance"):
        pooled_interval([1.0], [], prior_sd=1, prior_weight=1, confidence=0.9)
    with pytest.raises(ValueError, match="prior_weight"):
        pooled_interval([1.0], [1.0], prior_sd=1, prior_weight=0, confidence=0.9)


def test_pooled_interval_without_belief_is_students() -> None:
    values = [0.3, -0.1, 0.2, 0.25]
    interval = pooled_interval(values, [0.0] * 4, prior_sd=0, prior_weight=1e-9, confidence=0.95)
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert interval.low == pytest.approx(low)
    assert interval.high == pytest.approx(high)


def test_pooled_interval_with_firm_belief_is_normal() -> None:
    interval = pooled_interval(
        [0.1, 0.1], [0.03**2] * 2, prior_sd=0.04, prior_weight=1e9, confidence=0.95
    )
    assert interval.half_width == pytest.approx(1.959964 * 0.05 / math.sqrt(2), rel=1e-4)


def test_rounds_that_disagree_widen_the_pooled_interval() -> None:
    common = {"prior_sd": 0.004, "prior_weight": 8.0, "confidence": 0.95}
    agreeing = pooled_interval([0.05, 0.05, 0.05], [1e-6] * 3, **common)
    disagreeing = pooled_interval([0.0, 0.05, 0.1], [1e-6] * 3, **common)
    assert 0 < agreeing.half_width < 0.01 < disagreeing.half_width
