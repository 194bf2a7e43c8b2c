"""The values that a knob is varied over, as a sequence of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex, overload

from routewright.errors import RouteError
from routewright.knobs import MAX_LISTED, Knob, KnobKind, is_off
from routewright.notation import integer_of
from routewright.routes import checked_value

_SPREAD = 9
"""How many values stand for a wide range where single changes are listed."""


@dataclass(frozen=True, slots=True)
class IntegerRange(Sequence[str]):
    """The integers from ``low`` to ``high`` as knob values, without holding them."""

    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low + 1

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> str | tuple[str, ...]:
        numbers = range(self.low, self.high + 1)
        if isinstance(index, slice):
            return tuple(map(str, numbers[index]))
        return str(numbers[index])

    def __contains__(self, value: object) -> bool:
        return self._position(value) is not None

    def index(self, value: object, start: int = 0, stop: int | None = None) -> int:
        """Return the position of ``value``, see :meth:`collections.abc.Sequence.index`."""
        position = self._position(value)
        if position is None or position not in range(len(self))[start:stop]:
            raise ValueError(f"{value!r} is not in the range")
        return position

    def spread(self) -> tuple[str, ...]:
        """Return a few values that lie evenly over the range, both ends included."""
        steps = min(_SPREAD, len(self)) - 1
        if steps == 0:
            return (self[0],)
        return tuple(self[(len(self) - 1) * step // steps] for step in range(steps + 1))

    def _position(self, value: object) -> int | None:
        number = integer_of(value) if isinstance(value, str) else None
        if number is None or str(number) != value or not self.low <= number <= self.high:
            return None
        return number - self.low


def all_choices(knob: Knob) -> Sequence[str]:
    """Return all values of a searchable knob."""
    if knob.values or knob.low is None or knob.high is None:
        return knob.values
    return IntegerRange(knob.low, knob.high)


def checked_choices(knob: Knob, values: Sequence[str]) -> Sequence[str]:
    """Return the values that ``knob`` is varied over, as routes spell them.

    Raises:
        RouteError: The knob takes any text; or a value is not allowed or listed twice, or there is
            none.
    """
    if knob.kind is KnobKind.UNSEARCHABLE:
        raise RouteError(f"{knob.name} takes any text and cannot be varied; pin it")
    if isinstance(values, str):
        raise RouteError(f"the values of {knob.name} are one text; give a list of texts")
    if isinstance(values, IntegerRange) and len(values) > MAX_LISTED:
        if knob.kind is KnobKind.CLOSED:
            raise RouteError(f"{knob.name} takes {knob.describe_values()}, not a range")
        for end in (values[0], values[-1]):
            checked_value(knob, end)
        return values
    listed = tuple(checked_value(knob, value) for value in values)
    if not listed:
        raise RouteError(f"no values are listed for {knob.name}; list some or leave it out")
    if len(set(listed)) < len(listed):
        raise RouteError(f"a value is listed twice for {knob.name}; list each value once")
    return listed


def in_canonical_order(knob: Knob, values: Sequence[str]) -> list[str]:
    """Return ``values`` in the database's order; integers that it does not list ascend."""
    if knob.values:
        position = {value: index for index, value in enumerate(knob.values)}
        return sorted(values, key=position.__getitem__)
    numbers = {value: number for value in values if (number := integer_of(value)) is not None}
    words = sorted(value for value in values if value not in numbers)
    return sorted(numbers, key=numbers.__getitem__) + words


def off_positions(values: Sequence[str]) -> tuple[int, ...]:
    """Return where the off values are."""
    if isinstance(values, IntegerRange):
        return (values.index("0"),) if "0" in values else ()
    return tuple(position for position, value in enumerate(values) if is_off(value))


def representatives(values: Sequence[str], current: str | None = None) -> Sequence[str]:
    """Return the values, or a few of a wide range: those beside ``current`` and an even spread."""
    if not isinstance(values, IntegerRange):
        return values
    few = set(values.spread())
    if current in values:
        position = values.index(current)
        few.update(values[max(position - 1, 0) : position + 2])
    return sorted(few, key=int)
