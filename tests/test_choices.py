from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from routewright.choices import (
    IntegerRange,
    all_choices,
    checked_choices,
    in_canonical_order,
    off_positions,
    representatives,
)
from routewright.errors import RouteError
from routewright.knobs import Knob

CLOSED = Knob.of("-closed", "[on|off|auto]", "on")
WIDE = Knob.of("-wide", "[-5~1000]", "0")
OPEN = Knob.of("-open", "[auto|1|2|...]", "auto")
TEXT = Knob.of("-text", "op_list", "")


def test_a_range_is_a_sequence_of_texts() -> None:
    numbers = IntegerRange(-5, 1000)
    assert len(numbers) == 1006
    assert (numbers[0], numbers[5], numbers[-1]) == ("-5", "0", "1000")
    assert numbers[:2] == ("-5", "-4")
    assert "1000" in numbers
    assert numbers.index("0") == 5
    assert [text in numbers for text in ("1001", "-6", "+1", "01", "x", "", 3)] == [False] * 7
    assert list(numbers) == [str(number) for number in range(-5, 1001)]
    for text, start in (("x", 0), ("-5", 1)):
        with pytest.raises(ValueError, match="not in the range"):
            numbers.index(text, start)
    with pytest.raises(IndexError):
        numbers[1006]


def test_a_huge_range_costs_nothing() -> None:
    numbers = IntegerRange(0, 2**53)
    assert str(2**53) in numbers
    assert numbers.index("7") == 7
    assert numbers.spread()[0] == "0"
    assert numbers.spread()[-1] == str(2**53)


@pytest.mark.parametrize("width", [1, 2, 5, 9, 10, 1000])
def test_spread_is_ascending_and_has_both_ends(width: int) -> None:
    spread = [int(text) for text in IntegerRange(3, 2 + width).spread()]
    assert spread == sorted(set(spread))
    assert (spread[0], spread[-1]) == (3, 2 + width)
    assert len(spread) == min(width, 9)


def test_all_choices() -> None:
    assert all_choices(CLOSED) == ("on", "off", "auto")
    assert all_choices(WIDE) == IntegerRange(-5, 1000)
    assert all_choices(Knob.of("-k", "[0-2]", "auto")) == ("0", "1", "2", "auto")


def test_checked_choices_spell_values_as_routes_do() -> None:
    assert checked_choices(CLOSED, ["off", "on"]) == ("off", "on")
    assert checked_choices(OPEN, ["auto", "02"]) == ("auto", "2")
    assert checked_choices(WIDE, IntegerRange(0, 500)) == IntegerRange(0, 500)
    assert checked_choices(WIDE, IntegerRange(0, 2)) == ("0", "1", "2")


@pytest.mark.parametrize(
    ("knob", "values", "said"),
    [
        (CLOSED, [], "no values are listed for -closed"),
        (CLOSED, ["on", "on"], "listed twice for -closed"),
        (OPEN, ["1", "01"], "listed twice for -open"),
        (CLOSED, ["maybe"], "'maybe' is not allowed for -closed"),
        (CLOSED, [True], "not text"),
        (CLOSED, "on", "one text"),
        (CLOSED, IntegerRange(0, 100), "not a range"),
        (WIDE, IntegerRange(0, 1001), "'1001' is not allowed for -wide"),
        (TEXT, ["x"], "cannot be varied"),
    ],
)
def test_checked_choices_refuse(knob: Knob, values: Any, said: str) -> None:
    with pytest.raises(RouteError, match=said):
        checked_choices(knob, values)


@pytest.mark.parametrize(
    ("knob", "values", "expected"),
    [
        (CLOSED, ("auto", "on"), ["on", "auto"]),
        (Knob.of("-k", "[0|1|-1]", "0"), ("-1", "1", "0"), ["0", "1", "-1"]),
        (WIDE, ("10", "9", "-1"), ["-1", "9", "10"]),
        (OPEN, ("10", "auto", "9"), ["9", "10", "auto"]),
    ],
)
def test_canonical_order(knob: Knob, values: Sequence[str], expected: list[str]) -> None:
    assert in_canonical_order(knob, values) == expected


def test_off_positions() -> None:
    assert off_positions(("on", "off", "1", "0", "None")) == (1, 3, 4)
    assert off_positions(IntegerRange(-5, 1000)) == (5,)
    assert off_positions(IntegerRange(1, 1000)) == ()


def test_representatives() -> None:
    assert representatives(("a", "b"), "a") == ("a", "b")
    near = representatives(IntegerRange(0, 800), "401")
    assert near == ["0", "100", "200", "300", "400", "401", "402", "500", "600", "700", "800"]
    assert representatives(IntegerRange(0, 800), "-1") == list(IntegerRange(0, 800).spread())
    assert representatives(IntegerRange(0, 800), "0")[:2] == ["0", "1"]
