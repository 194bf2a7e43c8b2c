"""Group testing on its own."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from routewright.search.candidates import Change
from routewright.search.grouping import GroupTests, next_group


def builds_for(count: int, live: set[int]) -> int:
    changes = [(f"-k{i}", "off") for i in range(count)]
    truth = {changes[i] for i in live}
    results: list[tuple[tuple[Change, ...], bool]] = []
    while True:
        tests = GroupTests(changes)
        for group, is_live in results:
            (tests.add_live if is_live else tests.add_inert)(group)
        tests.conclude()
        chosen = next_group(
            tests,
            can_join=lambda group, change: True,
            is_new=lambda group: set(group) not in [set(tested) for tested, _ in results],
        )
        if chosen is None:
            assert tests.live == truth
            assert tests.inert == set(changes) - truth
            return len(results)
        results.append((chosen.changes, bool(truth & set(chosen.changes))))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 70), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_hardly_more_builds_than_one_at_a_time(count: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    live = set(rng.choice(count, round(share * count), replace=False).tolist())
    assert builds_for(count, live) <= 1.1 * count + 3


@pytest.mark.parametrize("count", [59, 209])
@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_near_the_information_limit_where_few_are_live(count: int, share: float) -> None:
    live = max(1, round(share * count))
    used = [
        builds_for(count, set(np.random.default_rng(s).choice(count, live, replace=False)))
        for s in range(5)
    ]
    # Generalized binary splitting: k log2(n / k) + O(k).
    assert np.mean(used) <= live * np.log2(count / live) + 2.0 * live + 3


def test_sure_probabilities_are_believed_in_the_order_of_tests() -> None:
    changes = [("-a", "off"), ("-b", "off"), ("-c", "off"), ("-d", "off")]
    tests = GroupTests(changes, dict(zip(changes, [0.01, 0.9, 0.01, 0.01], strict=True)))
    tests.conclude()
    chosen = next_group(tests, can_join=lambda g, c: True, is_new=lambda g: True)
    assert chosen is not None
    assert chosen.changes == (("-b", "off"),)


def test_two_values_of_a_knob_are_never_in_one_group() -> None:
    changes = [("-a", "1"), ("-b", "1"), ("-a", "2"), ("-b", "2")]
    tests = GroupTests(changes, dict.fromkeys(changes, 0.05))
    tests.conclude()
    chosen = next_group(tests, can_join=lambda g, c: True, is_new=lambda g: True)
    assert chosen is not None
    assert [name for name, _ in chosen.changes] == ["-a", "-b"]


def test_changes_that_are_live_only_together_end_the_splitting() -> None:
    changes = [("-a", "off"), ("-b", "off"), ("-c", "off")]
    tests = GroupTests(changes)
    tests.add_live(changes)
    for change in changes:
        tests.add_inert([change])
    tests.conclude()
    assert tests.live == set()
    assert tests.open == []
    assert next_group(tests, can_join=lambda g, c: True, is_new=lambda g: True) is None


def test_groups_with_changes_that_are_not_to_be_tested_leave_the_others_open() -> None:
    tests = GroupTests([("-a", "1"), ("-b", "1"), ("-c", "1")])
    tests.add_live([("-a", "1"), ("-b", "2")])
    tests.add_failed([("-c", "1"), ("-b", "3")])
    tests.conclude()
    assert tests.suspects == []
    assert tests.to_blame == []
    assert tests.open == [("-a", "1"), ("-b", "1"), ("-c", "1")]


def test_slower_groups_are_split_last_and_faster_ones_first() -> None:
    changes = [(f"-k{i}", "off") for i in range(12)]
    tests = GroupTests(changes)
    tests.add_live(changes[:4], 0.2)
    tests.add_live(changes[4:8], -0.1)
    order = []
    for _ in range(40):
        tests.conclude()
        tried = [set(group) for group in order]
        chosen = next_group(
            tests,
            can_join=lambda group, change: True,
            is_new=lambda group, tried=tried: set(group) not in tried,  # type: ignore[misc]
        )
        if chosen is None:
            break
        order.append(chosen.changes)
        is_live = bool({changes[3], changes[7]} & set(chosen.changes))
        (tests.add_live if is_live else tests.add_inert)(chosen.changes)
    assert tests.live == {changes[3], changes[7]}
    where = [min(changes.index(change) // 4 for change in group) for group in order]
    # The fast group (1), then what is not yet tested (2), then the slow one (0).
    assert where == sorted(where, key=[1, 2, 0].index)
