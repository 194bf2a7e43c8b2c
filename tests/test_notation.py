from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routewright.notation import (
    MAX_LISTED,
    KnobKind,
    Notation,
    classify,
    integer_of,
    is_off,
    is_spellable,
    quoted,
)

# Other work on the machine must not fail a test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)


def closed(*values: str) -> Notation:
    return Notation(KnobKind.CLOSED, values)


def between(low: int, high: int) -> Notation:
    return Notation(KnobKind.RANGE, tuple(map(str, range(low, high + 1))), low, high)


def half_open(low: int | None, high: int | None = None) -> Notation:
    return Notation(KnobKind.RANGE, (), low, high)


def open_ended(low: int | None = None, high: int | None = None, *special: str) -> Notation:
    return Notation(KnobKind.OPEN, (), low, high, special)


UNSEARCHABLE = Notation(KnobKind.UNSEARCHABLE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[on|off]", closed("on", "off")),
        ("[0|1|2|3]", closed("0", "1", "2", "3")),
        ("[0|1|-1]", closed("0", "1", "-1")),
        ("[-1|0|1|2]", closed("-1", "0", "1", "2")),
        ("[auto|none|static|dynamic]", closed("auto", "none", "static", "dynamic")),
        ("[disable|enable|must]", closed("disable", "enable", "must")),
        ("[auto|on|off]", closed("auto", "on", "off")),
        ("[0,1,2]", closed("0", "1", "2")),
        ("{,prefer_tf32,prefer_f32}", closed("", "prefer_tf32", "prefer_f32")),
        ("bool", closed("on", "off")),
        # The same kinds, written otherwise.
        ("[ on |\toff ]", closed("on", "off")),
        ("  [on|off]\n", closed("on", "off")),
        ("on|off", closed("on", "off")),
        ("{a|b}", closed("a", "b")),
        ("{ , a }", closed("", "a")),
        ("{a,b,}", closed("a", "b", "")),
        ("[on,off]", closed("on", "off")),
        ("[off|int8]", closed("off", "int8")),
        ("[fp32|fp16|int8]", closed("fp32", "fp16", "int8")),
        ("[int32|int64]", closed("int32", "int64")),
        ("[0.5|1.0|1e-3]", closed("0.5", "1.0", "1e-3")),
        ("[0]", closed("0")),
        ("[-1]", closed("-1")),
        ("[on]", closed("on")),
        ("[on|]", closed("on")),
        ("[on||off]", closed("on", "off")),
        ("[|on|off]", closed("on", "off")),
        ("[0-2|8]", closed("0", "1", "2", "8")),
        ("[auto|0 ~ 2]", closed("auto", "0", "1", "2")),
        ("[pre-norm|1-pass|2-pass]", closed("pre-norm", "1-pass", "2-pass")),
        ("[bool]", closed("on", "off")),
        ("BOOL", closed("on", "off")),
    ],
)
def test_closed_lists(text: str, expected: Notation) -> None:
    assert classify(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[0-4]", between(0, 4)),
        ("[0-5]", between(0, 5)),
        ("[0 ~ 3]", between(0, 3)),
        ("[0~2]", between(0, 2)),
        ("[0 ~ 1]", between(0, 1)),
        ("[2~]", half_open(2)),
        ("[1 ~ ]", half_open(1)),
        ("[0 ~ num_of_candidates_ktm]", half_open(0)),
        ("[0 ~ l2 cache size]", half_open(0)),
        ("[-1~3]", between(-1, 3)),
        ("[-3--1]", between(-3, -1)),
        ("[-3 - -1]", between(-3, -1)),
        ("[0..4]", between(0, 4)),
        ("[0...4]", between(0, 4)),
        ("[0…4]", between(0, 4)),
        ("[0–4]", between(0, 4)),
        ("[0 to 4]", between(0, 4)),
        ("0-4", between(0, 4)),
        ("0 ~ 4", between(0, 4)),
        ("{0-4}", between(0, 4)),
        ("[7-7]", between(7, 7)),
        ("[+1~+3]", between(1, 3)),
        ("[0-n]", half_open(0)),
        ("[1..]", half_open(1)),
        ("[1...]", half_open(1)),
        ("[..5]", half_open(None, 5)),
        ("[~5]", half_open(None, 5)),
        ("[0 ~ 2^31-1]", half_open(0)),
        ("[min ~ 4]", half_open(None, 4)),
        (f"[0~{MAX_LISTED - 1}]", between(0, MAX_LISTED - 1)),
        (f"[0~{MAX_LISTED}]", half_open(0, MAX_LISTED)),
        ("[0 ~ 1099511627776]", half_open(0, 2**40)),
    ],
)
def test_ranges(text: str, expected: Notation) -> None:
    assert classify(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("int", open_ended()),
        ("int64", open_ended(*INT64)),
        ("int32_t", open_ended(*INT32)),
        ("[int]", open_ended()),
        ("[-1|int]", open_ended()),
        ("[-1|0|int]", open_ended()),
        ("[1|2|...]", open_ended(1)),
        ("[0|1|...]", open_ended(0)),
        ("[0|1|..]", open_ended(0)),
        ("[1|..]", open_ended(1)),
        ("[1|2|4|...]", open_ended(1)),
        ("[0|1|2...]", open_ended(0)),
        ("[0|1|2...|64|128|256]", open_ended(0, 256)),
        ("[#]", open_ended()),
        ("[ 1 | 2 | ... ]", open_ended(1)),
        ("[1|2|…]", open_ended(1)),
        ("[0,1,...]", open_ended(0)),
        ("[0|-1|...]", open_ended(None, 0)),
        ("[...|5]", open_ended(None, 5)),
        ("[1|...|9]", open_ended(1, 9)),
        ("[-1|0|1|...]", open_ended(-1)),
        ("uint8", open_ended(0, 255)),
        ("[uint8]", open_ended(0, 255)),
        ("int16_t", open_ended(-(2**15), 2**15 - 1)),
        ("size_t", open_ended(0)),
        ("unsigned int", open_ended(0)),
        ("INT", open_ended()),
        ("[-1|int8]", open_ended(-128, 127)),
        ("[-1|#]", open_ended()),
        ("[auto|int]", open_ended(None, None, "auto")),
        ("[auto|int64]", open_ended(*INT64, "auto")),
        ("[auto|1|2|...]", open_ended(1, None, "auto")),
        ("[-1|0 ~ n]", open_ended(-1)),
        ("[auto|0~100]", open_ended(0, 100, "auto")),
    ],
)
def test_open_ended(text: str, expected: Notation) -> None:
    assert classify(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "STRING",
        "[file name]",
        "[path]",
        "op_list",
        "op1,op2,...",
        "[opt1,opt2,opt3]",
        "[sm0,sm1,...]",
        "[@pass1@pass2@pass3...",
        "[@pass1@pass2@pass3...]",
        "",
        " ",
        "[",
        "]",
        "[]",
        "[ ]",
        "{}",
        "[|]",
        "[|||]",
        "...",
        "[...]",
        "[a|b|...]",
        "[on|off",
        "on|off]",
        "]on|off[",
        "[on|off}",
        "[[0|1]|2]",
        "[[0|1]]",
        "[0|1][2|3]",
        "[on|off] (default on)",
        "[fast mode|slow mode]",
        "[none|path]",
        "[none|op1,op2]",
        "[0|1,2]",
        "float",
        "[float]",
        "[0|float]",
        "[0.0 ~ 1.0]",
        "[0.0~1.0]",
        "[auto|0.0~1.0]",
        "[0 ~ 1.5]",
        "[~]",
        "[min ~ max]",
        "[name]",
        "[a,b]",
        "0,1,2",
        "on",
        "[on|o\x00ff]",
        "[99999999999999999999999-5]",
    ],
)
def test_unsearchable(text: str) -> None:
    assert classify(text) == UNSEARCHABLE


@pytest.mark.parametrize(
    ("default", "values"),
    [
        ("off", ("on", "off")),
        ("true", ("true", "false")),
        ("False", ("True", "False")),
        ("0", ("0", "1")),
        ("NO", ("YES", "NO")),
        ("", ("on", "off")),
        ("perhaps", ("on", "off")),
    ],
)
def test_boolean_is_spelled_like_its_default(default: str, values: tuple[str, ...]) -> None:
    assert classify("bool", default) == closed(*values)


@pytest.mark.parametrize(
    ("text", "default", "expected"),
    [
        ("[fast]", "fast", closed("fast")),
        ("[path]", "path", UNSEARCHABLE),
        ("[fast,slow]", "fast", closed("fast", "slow")),
        ("[opt1,opt2]", "opt1", UNSEARCHABLE),
        ("[auto|int]", "int", closed("auto", "int")),
        ("[2-pass]", "2-pass", closed("2-pass")),
        ("[half|float]", "float", closed("half", "float")),
        ("[a b|c]", "a b", UNSEARCHABLE),
    ],
)
def test_the_default_settles_what_a_word_is(text: str, default: str, expected: Notation) -> None:
    assert classify(text, default) == expected


def test_mended_notations_are_noted() -> None:
    repeated = classify("[on|off|on]")
    assert repeated.values == ("on", "off")
    assert repeated.notes == ("the value 'on' is listed more than once",)
    turned = classify("[4-0]")
    assert (turned.low, turned.high) == (0, 4)
    assert len(turned.notes) == 1


@given(st.text(), st.text())
@UNTIMED
def test_any_text_has_a_class(text: str, default: str) -> None:
    check_invariants(classify(text, default))


@given(
    st.lists(
        st.sampled_from([*"[]{}()<>|,~-. #0123", "..", "...", "int", "on", "off", "8_t", "auto"]),
        max_size=14,
    ).map("".join),
    st.sampled_from(["", "on", "0", "-1", "auto", "int"]),
)
@UNTIMED
def test_text_like_a_notation_has_a_class(text: str, default: str) -> None:
    check_invariants(classify(text, default))


def check_invariants(notation: Notation) -> None:
    """Hold what a notation of each kind promises."""
    assert len(set(notation.values)) == len(notation.values)
    assert all(is_spellable(value) for value in (*notation.values, *notation.special))
    if notation.kind is KnobKind.CLOSED:
        assert notation.values
    if notation.kind is not KnobKind.OPEN:
        assert not notation.special
    if notation.kind in (KnobKind.CLOSED, KnobKind.UNSEARCHABLE):
        assert notation.low is None
        assert notation.high is None
    if notation.low is not None and notation.high is not None:
        assert notation.low <= notation.high
    if notation.kind is KnobKind.RANGE:
        assert notation.low is not None or notation.high is not None
        assert len(notation.values) <= MAX_LISTED
    if notation.kind in (KnobKind.OPEN, KnobKind.UNSEARCHABLE):
        assert not notation.values


def test_a_long_notation_takes_no_quadratic_time() -> None:
    many = "|".join(map(str, range(50_000)))
    assert len(classify(f"[{many}]").values) == 50_000
    words = "|".join(f"int{number}" for number in range(20_000))
    assert len(classify(f"[{words}]").values) == 20_000


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-12", -12), ("+3", 3), ("007", 7), ("", None), ("1.0", None), ("٣", None)],
)
def test_integer_of(text: str, number: int | None) -> None:
    assert integer_of(text) == number


def test_is_off() -> None:
    assert all(map(is_off, ["off", "OFF", "0", "none", "None", "disable", "disabled", "False"]))
    assert not any(map(is_off, ["", "on", "1", "-0", "00", "auto", "offline"]))


def test_is_spellable() -> None:
    assert all(map(is_spellable, ["", "on", "-1", "a=b", "a|b", "é", "{x}"]))
    assert not any(map(is_spellable, ["a b", "a\tb", "[a", "a]", "\x00", "\ud800", "a\u00a0b"]))


def test_quoted_is_one_short_line() -> None:
    assert quoted("-a=x[on]") == "'-a=x[on]'"
    assert quoted("a\nb\ud800") == r"'a\nb\ud800'"
    assert len(quoted("x" * 10_000)) < 200
