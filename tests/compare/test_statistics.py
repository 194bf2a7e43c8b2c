"""Quantiles of what some runs never reach, ranks, and their doubt."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routewright.compare.measures import Reached
from routewright.compare.statistics import (
    Interval,
    Quantile,
    critical_difference,
    quantile_reached,
    rank,
    ratio_of_medians,
)


def reached(*at: float) -> list[Reached]:
    return [Reached(time, True) for time in at]


def ended(*at: float) -> list[Reached]:
    return [Reached(time, False) for time in at]


def test_the_median_is_when_half_of_the_runs_had_reached_it() -> None:
    assert quantile_reached(reached(5, 1, 3), 0.5) == Quantile(3, False)
    assert quantile_reached(reached(5, 1, 3, 4), 0.5) == Quantile(3, False)
    assert quantile_reached(reached(5, 1) + ended(9, 9), 0.5) == Quantile(5, False)


def test_where_fewer_did_it_is_only_known_to_be_longer() -> None:
    found = quantile_reached(reached(5) + ended(40, 60), 0.5)
    assert found == Quantile(40, True)
    assert str(found) == "> 40"


times = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=12)


@given(times, st.floats(0.05, 1.0))
def test_a_bound_is_never_above_the_truth(pairs: list[tuple[int, int]], share: float) -> None:
    """``pairs`` are when a run would reach it and when it ends."""
    seen = [Reached(float(min(at, end)), at <= end) for at, end in pairs]
    place = max(math.ceil(share * len(pairs) - 1e-9), 1) - 1
    truth = sorted(at for at, _ in pairs)[place]
    found = quantile_reached(seen, share)
    if found.is_bound:
        assert found.value <= truth
    else:
        assert found.value >= truth
        # Exact where every run that ended early did so later than that.
        if all(at <= end or end >= found.value for at, end in pairs):
            assert found.value == truth


def test_ranks_are_over_works_and_seeds_and_ties_share() -> None:
    ranking = rank(
        {"a": [[1.0, 1.0], [0.0]], "b": [[2.0, 1.0], [1.0]], "c": [[3.0, 5.0], [math.inf]]}
    )
    assert list(ranking.mean_ranks) == ["a", "b", "c"]
    assert ranking.mean_ranks["a"].estimate == pytest.approx((1 + 1.5 + 1) / 3)
    assert ranking.mean_ranks["b"].estimate == pytest.approx((2 + 1.5 + 2) / 3)
    assert ranking.mean_ranks["c"] == Interval(3.0, 3.0, 3.0)
    assert ranking.blocks == 3


def test_equal_samplers_are_not_told_apart_and_unequal_ones_are() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4, 2, 30))
    alike = rank({name: noise[i].tolist() for i, name in enumerate("abcd")})
    spread = [interval.estimate for interval in alike.mean_ranks.values()]
    assert alike.critical_difference is not None
    assert max(spread) - min(spread) < alike.critical_difference
    assert alike.friedman_p is not None
    assert alike.friedman_p > 0.05
    noise[0] -= 2.0
    apart = rank({name: noise[i].tolist() for i, name in enumerate("abcd")})
    best, *others = apart.mean_ranks
    assert best == "a"
    assert all(apart.mean_ranks[o].low > apart.mean_ranks["a"].high for o in others)
    assert apart.friedman_p is not None
    assert apart.friedman_p < 1e-6


def test_ranks_of_nothing() -> None:
    assert rank({"a": [[]], "b": [[]]}).mean_ranks == {}


def test_a_tie_of_all_has_no_p_value() -> None:
    assert rank({name: [[0.0, 0.0]] for name in "abc"}).friedman_p is None


def test_the_critical_difference_is_that_of_the_literature() -> None:
    # Demsar 2006, section 3.2.2: 4 classifiers, 14 data sets.
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.01)
    assert critical_difference(1, 14) is None


def test_a_ratio_of_medians_has_an_interval_around_it() -> None:
    rng = np.random.default_rng(1)
    theirs = [Reached(float(at), True) for at in rng.integers(40, 60, 30)]
    ours = [Reached(time.at / 4, True) for time in theirs]
    ratio = ratio_of_medians(ours, theirs)
    assert ratio is not None
    assert ratio.estimate == pytest.approx(0.25)
    # Paired: what both share cancels.
    assert ratio.low == pytest.approx(0.25)
    shuffled = ratio_of_medians([ours[i] for i in rng.permutation(30)], theirs)
    assert shuffled is not None
    assert shuffled.low < 0.25 < shuffled.high


def test_a_ratio_to_what_was_not_reached() -> None:
    assert ratio_of_medians(reached(3, 4), ended(9, 9)) == Interval(0.0, 0.0, 0.0)
    assert ratio_of_medians(ended(9, 9), reached(3, 4)) == Interval(math.inf, math.inf, math.inf)
    assert ratio_of_medians(ended(9, 9), ended(9, 9)) is None
    assert ratio_of_medians(reached(3), reached(0)) is None


def test_where_a_resample_has_no_ratio_the_interval_is_open() -> None:
    ours = reached(*[3] * 8) + ended(*[50] * 7)
    theirs = reached(*[6] * 8) + ended(*[50] * 7)
    ratio = ratio_of_medians(ours, theirs)
    assert ratio == Interval(0.5, 0.0, math.inf)
