"""Reading the text that describes a knob's values.

A compiler prints the values of a knob in a notation made for people: ``[on|off]``, ``[0 ~ 3]``,
``[1|2|4|...]``, ``op_list``. :func:`classify` says what such a notation allows. Where a notation
could mean more than one thing, the answer is the one that searches less: a value is never made up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MAX_LISTED = 64
"""An integer range of at most this many values is spelled out; a wider one stays a range."""

OFF_VALUES = frozenset({"off", "0", "none", "disable", "disabled", "false"})
"""Values (in lower case) that switch a knob off, and with it the knobs below it."""

_OTHER_SWITCH_VALUES = frozenset(
    {"on", "true", "yes", "no", "enable", "enabled", "auto", "default", "must"}
)
_BOOLEAN_SPELLINGS = (("on", "off"), ("true", "false"), ("yes", "no"), ("0", "1"))
_PLACEHOLDERS = frozenset(
    {
        *("string", "str", "char", "path", "file", "filename", "dir", "directory", "folder"),
        *("list", "op_list", "float", "float32", "float64", "double", "bool", "boolean"),
        *("etc", "etc."),
    }
)
_CLOSING = {"[": "]", "{": "}", "<": ">", "(": ")"}
_BRACKETS = frozenset("[]{}<>()")

# Nineteen digits hold every 64-bit integer; longer text is no number that a compiler could take.
_INTEGER = r"[+-]?[0-9]{1,19}"
_DOTS = r"(?:\.{2,}|…)"
_INTEGER_TEXT = re.compile(_INTEGER)
_DOTS_TEXT = re.compile(_DOTS)
_NUMBER_AND_DOTS = re.compile(rf"(?P<before>{_INTEGER})\s*{_DOTS}|{_DOTS}\s*(?P<after>{_INTEGER})")
_DOTTED_SPAN = re.compile(rf"({_INTEGER})\s*{_DOTS}\s*({_INTEGER})")
_DASHED_SPAN = re.compile(rf"({_INTEGER})\s*(?:[-–—]|\bto\b)\s*({_INTEGER}|[A-Za-z]\w*)?")
_FLOAT_TEXT = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+[eE]).*")
_INTEGER_TYPE = re.compile(r"(u?)int(8|16|32|64)?(?:_t)?", re.IGNORECASE)
_PRECISION = re.compile(r"u?int(8|16)", re.IGNORECASE)
_OTHER_INTEGER_TYPES: dict[str, tuple[int | None, int | None]] = {
    "#": (None, None),
    "integer": (None, None),
    "long": (None, None),
    "unsigned": (0, None),
    "unsigned int": (0, None),
    "size_t": (0, None),
}
_NUMBERED_WORD = re.compile(r"([A-Za-z_]+)([0-9]{1,9})")


class KnobKind(StrEnum):
    """What kind of values a knob takes."""

    CLOSED = "closed"
    """A list of values."""
    RANGE = "range"
    """Integers between two ends, of which one may be unknown."""
    OPEN = "open"
    """Integers without a known last one."""
    UNSEARCHABLE = "unsearchable"
    """Text such as a path or a list of operators."""


@dataclass(frozen=True, slots=True)
class Notation:
    """What a notation allows.

    Attributes:
        kind: The kind of values.
        values: Every value, as spelled and in the order listed, for a closed list and for a range
            of at most :data:`MAX_LISTED` integers; empty otherwise.
        low: Smallest integer of a range or open-ended knob; None where unknown.
        high: Largest integer of a range or open-ended knob; None where unknown.
        special: Words that an open-ended knob takes besides integers, such as ``auto``.
        notes: What had to be mended, one line each.
    """

    kind: KnobKind
    values: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    special: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Word:
    """A value spelled out, an integer or not."""

    text: str

    @property
    def number(self) -> int | None:
        return integer_of(self.text)


@dataclass(frozen=True, slots=True)
class _Integers:
    """Integers from ``low`` to ``high``; None where that end is unknown."""

    low: int | None
    high: int | None

    def spelled(self) -> tuple[str, ...] | None:
        """Return every integer; None where there are too many or an end is unknown."""
        if self.low is None or self.high is None or self.high - self.low >= MAX_LISTED:
            return None
        return tuple(str(number) for number in range(self.low, self.high + 1))


@dataclass(frozen=True, slots=True)
class _Ellipsis:
    """The list goes on."""


@dataclass(frozen=True, slots=True)
class _Other:
    """Text that stands for something a search cannot choose."""


_Item = _Word | _Integers | _Ellipsis | _Other
_UNSEARCHABLE = Notation(KnobKind.UNSEARCHABLE)


def classify(text: str, default: str = "") -> Notation:
    """Say what a value notation allows.

    Alternatives are separated by ``|``, or by commas in braces or where they plainly are values.
    Ranges are written with ``~``, ``-``, ``..`` or ``to``. An ellipsis or the name of an integer
    type makes a list open-ended. A name for text (``path``, ``STRING``), brackets that do not
    match or are nested, and anything not understood are unsearchable.

    Args:
        text: The notation, that is the text after ``=``.
        default: The knob's default. It settles how a ``bool`` is spelled, and whether a word is
            a value or stands for one.

    Returns:
        The kind and its values or bounds; never an error.
    """
    body = " ".join(text.split())
    bracket = body[:1] if body[:1] in _CLOSING else ""
    if bracket:
        if len(body) < 2 or body[-1] != _CLOSING[bracket]:
            return _UNSEARCHABLE
        body = body[1:-1].strip()
    if not body or any(char in _BRACKETS for char in body):
        return _UNSEARCHABLE
    if "|" in body:
        parts = [part.strip() for part in body.split("|")]
    elif "," in body and bracket:
        parts = [part.strip() for part in body.split(",")]
        if bracket != "{" and not _are_plainly_values(parts, default):
            return _UNSEARCHABLE
    else:
        return _classify_one(body, default, is_bare=not bracket)
    if bracket != "{":
        # An empty alternative is a value in braces only; trtexec drops it elsewhere as well.
        parts = [part for part in parts if part]
    if not parts:
        return _UNSEARCHABLE
    if len(parts) == 1:
        return _classify_one(parts[0], default, is_bare=False)
    return _classify_list(parts, default)


def integer_of(text: str) -> int | None:
    """Return the integer that ``text`` spells in ASCII digits, or None."""
    return int(text) if _INTEGER_TEXT.fullmatch(text) else None


def is_off(value: str) -> bool:
    """Tell whether ``value`` switches its knob off, see :data:`OFF_VALUES`."""
    return value.lower() in OFF_VALUES


def is_spellable(value: str) -> bool:
    """Tell whether ``value`` survives in a route: printable, no white space, no brackets.

    A route is split at white space, and square brackets make a list of what they hold.
    """
    return value.isprintable() and not any(char in "[]" or char.isspace() for char in value)


def quoted(text: str, limit: int = 160) -> str:
    """Return ``text`` in quotes on one line, control characters escaped, cut at ``limit``."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")


def _classify_one(body: str, default: str, *, is_bare: bool) -> Notation:
    """Classify a notation without separators; ``is_bare`` where it had no brackets."""
    if body.lower() in ("bool", "boolean"):
        return Notation(KnobKind.CLOSED, _boolean_values(default))
    span = _read_span(body, alone=True)
    if span is not None and body != default:
        notes: tuple[str, ...] = ()
        if _runs_down(span):
            span = _Integers(span.high, span.low)
            notes = (f"the range {quoted(body)} runs downwards and was turned round",)
        return Notation(KnobKind.RANGE, span.spelled() or (), span.low, span.high, notes=notes)
    integers = _integer_type(body)
    if integers is not None:
        return Notation(KnobKind.OPEN, low=integers.low, high=integers.high)
    if integer_of(body) is not None or (not is_bare and _is_known_value(body, default)):
        return Notation(KnobKind.CLOSED, (body,))
    return _UNSEARCHABLE


def _classify_list(parts: Sequence[str], default: str) -> Notation:
    items = _read_items(parts, default)
    if any(isinstance(item, _Other) for item in items):
        return _UNSEARCHABLE
    if any(isinstance(item, _Ellipsis) for item in items) or any(
        isinstance(item, _Integers) and item.spelled() is None for item in items
    ):
        return _open_ended(items)
    spelled: list[str] = []
    for item in items:
        if isinstance(item, _Integers):
            spelled.extend(item.spelled() or ())
        elif isinstance(item, _Word):
            spelled.append(item.text)
    times_listed = Counter(spelled)
    notes = tuple(
        f"the value {quoted(value)} is listed more than once"
        for value, times in times_listed.items()
        if times > 1
    )
    return Notation(KnobKind.CLOSED, tuple(times_listed), notes=notes)


def _open_ended(items: Sequence[_Item]) -> Notation:
    words = [item for item in items if isinstance(item, _Word)]
    special = tuple(dict.fromkeys(word.text for word in words if word.number is None))
    lows: list[int | None] = []
    highs: list[int | None] = []
    before: list[int] = []
    after: list[int] = []
    goes_on = False
    for item in items:
        if isinstance(item, _Ellipsis):
            goes_on = True
        elif isinstance(item, _Integers):
            lows.append(item.low)
            highs.append(item.high)
        elif isinstance(item, _Word) and item.number is not None:
            lows.append(item.number)
            highs.append(item.number)
            (after if goes_on else before).append(item.number)
    if not lows:
        # Nothing numeric goes on in ``op1,op2,...``.
        return _UNSEARCHABLE
    if goes_on and not after:
        # Going on upwards leaves the top unknown, going on downwards the bottom.
        descends = len(before) > 1 and before[-1] < before[-2]
        (lows if descends else highs).append(None)
    elif goes_on and not before:
        lows.append(None)
    return Notation(KnobKind.OPEN, low=_least(lows), high=_greatest(highs), special=special)


def _least(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return min(known) if len(known) == len(numbers) else None


def _greatest(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return max(known) if len(known) == len(numbers) else None


def _read_items(parts: Sequence[str], default: str) -> list[_Item]:
    types = {part for part in parts if _integer_type(part) is not None}
    others_are_numeric = all(_is_numeric(part) for part in parts if part not in types)
    items: list[_Item] = []
    for part in parts:
        integers = _integer_type(part)
        # ``int`` beside words is any integer, but ``int8`` beside words is a precision.
        is_type = len(types) == 1 and (others_are_numeric or not _PRECISION.fullmatch(part))
        if integers is not None and is_type and part != default:
            items.append(integers)
        else:
            items.extend(_read_part(part, default))
    return items


def _read_part(part: str, default: str) -> list[_Item]:
    if integer_of(part) is not None or part == "":
        return [_Word(part)]
    if _DOTS_TEXT.fullmatch(part):
        return [_Ellipsis()]
    if match := _NUMBER_AND_DOTS.fullmatch(part):
        if match["before"] is not None:
            return [_Word(match["before"]), _Ellipsis()]
        return [_Ellipsis(), _Word(match["after"])]
    span = _read_span(part, alone=False)
    if span is not None and part != default:
        return [_Integers(span.high, span.low) if _runs_down(span) else span]
    if not is_spellable(part) or "," in part:
        return [_Other()]
    if part == default:
        return [_Word(part)]
    stands_for_text = (
        part.lower() in _PLACEHOLDERS
        or part.startswith("@")
        or "~" in part
        or _DOTS_TEXT.search(part) is not None
    )
    return [_Other()] if stands_for_text else [_Word(part)]


def _read_span(text: str, *, alone: bool) -> _Integers | None:
    """Read ``0-4``, ``-1 ~ 3``, ``2~``, ``0 ~ cache size``; None where it is no range.

    Args:
        text: One alternative.
        alone: Whether it is the only one. Then ``0-n`` and ``1..`` are ranges too, which beside
            other alternatives are a word and a list that goes on.
    """
    if text.count("~") == 1:
        low_text, _, high_text = text.partition("~")
    elif alone and len(ends := _DOTS_TEXT.split(text)) == 2:
        low_text, high_text = ends
    elif match := _DOTTED_SPAN.fullmatch(text):
        low_text, high_text = match[1], match[2]
    elif match := _DASHED_SPAN.fullmatch(text):
        low_text, high_text = match[1], match[2] or ""
        if not alone and integer_of(high_text) is None:
            return None
    else:
        return None
    low_text, high_text = low_text.strip(), high_text.strip()
    if _FLOAT_TEXT.fullmatch(low_text) or _FLOAT_TEXT.fullmatch(high_text):
        return None
    low, high = integer_of(low_text), integer_of(high_text)
    return None if low is None and high is None else _Integers(low, high)


def _runs_down(span: _Integers) -> bool:
    return span.low is not None and span.high is not None and span.low > span.high


def _integer_type(text: str) -> _Integers | None:
    """Return the bounds of an integer type's name; None where ``text`` is no such name."""
    if match := _INTEGER_TYPE.fullmatch(text):
        unsigned = bool(match[1])
        if match[2] is None:
            return _Integers(0 if unsigned else None, None)
        bits = int(match[2])
        if unsigned:
            return _Integers(0, 2**bits - 1)
        return _Integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    bounds = _OTHER_INTEGER_TYPES.get(text.lower())
    return None if bounds is None else _Integers(*bounds)


def _is_numeric(part: str) -> bool:
    return (
        integer_of(part) is not None
        or _DOTS_TEXT.fullmatch(part) is not None
        or _NUMBER_AND_DOTS.fullmatch(part) is not None
        or _read_span(part, alone=False) is not None
    )


def _are_plainly_values(parts: Sequence[str], default: str) -> bool:
    """Tell values between commas, ``[0,1,2]``, from what a list looks like, ``[op1,op2]``."""
    if all(_is_numeric(part) or _integer_type(part) is not None for part in parts):
        return True
    numbered = [match for part in parts if (match := _NUMBERED_WORD.fullmatch(part))]
    if len({match[1] for match in numbered}) == 1 and len(numbered) == len(parts):
        numbers = [int(match[2]) for match in numbered]
        if numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(parts))):
            return False
    return any(_is_known_value(part, default) for part in parts)


def _is_known_value(word: str, default: str) -> bool:
    """Tell whether a word is a value for certain: a usual switch position, or the default."""
    if not word or "," in word or not is_spellable(word):
        return False
    lowered = word.lower()
    if lowered in OFF_VALUES or lowered in _OTHER_SWITCH_VALUES:
        return True
    return word == default and lowered not in _PLACEHOLDERS


def _boolean_values(default: str) -> tuple[str, ...]:
    """Return the spelling of a boolean that ``default`` belongs to; on and off where unknown."""
    for spelling in _BOOLEAN_SPELLINGS:
        for cased in (spelling, tuple(map(str.title, spelling)), tuple(map(str.upper, spelling))):
            if default in cased:
                return cased
    return _BOOLEAN_SPELLINGS[0]
