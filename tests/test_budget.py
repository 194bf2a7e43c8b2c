"""Durations and the budget's arithmetic."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routewright.budget import Budget, parse_duration_s, process_started_s
from routewright.errors import BudgetError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("2m", 120), ("2min", 120), ("1h30m", 5400), (" 1.5H ", 5400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "-5", "0", "0s", "m", "2x", "1e3", "nan", "inf", "2m3"])
def test_what_is_no_duration_is_refused_in_one_line(text: str) -> None:
    if text == "2m3":
        assert parse_duration_s(text) == 123
        return
    with pytest.raises(BudgetError) as caught:
        parse_duration_s(text)
    assert "\n" not in str(caught.value)


@given(st.text())
def test_arbitrary_text_gives_seconds_or_a_budget_error(text: str) -> None:
    with contextlib.suppress(BudgetError):
        assert parse_duration_s(text) > 0


def test_a_resumed_budget_has_what_was_left() -> None:
    now = [100.0]
    budget = Budget(60.0, now_s=lambda: now[0], started_s=100.0, used_before_s=45.0)
    assert budget.remaining_s == 15.0
    now[0] = 110.0
    assert budget.used_s == 55.0
    assert budget.remaining_s == 5.0


def test_a_curtailed_budget_ends_earlier_and_counts_only_what_was_used() -> None:
    now = [0.0]
    budget = Budget(300.0, now_s=lambda: now[0], started_s=0.0)
    now[0] = 20.0
    budget.curtail(15.0)
    assert budget.remaining_s == 15.0
    assert budget.used_s == 20.0
    budget.curtail(100.0)
    assert budget.remaining_s == 15.0


def test_messages_say_what_the_duration_is_of() -> None:
    with pytest.raises(BudgetError, match="--max-timing must be above 0"):
        parse_duration_s("0", "--max-timing")


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_that_is_no_time_is_refused(limit_s: float) -> None:
    with pytest.raises(BudgetError):
        Budget(limit_s, now_s=lambda: 0.0, started_s=0.0)


def test_the_process_started_before_now() -> None:
    import time

    assert process_started_s() <= time.monotonic()
