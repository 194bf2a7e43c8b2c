"""The set of routes that a study searches, and its translation to Optuna.

A space varies some knobs, each over its own values, and holds every other knob at one value: the
pinned one or the default.

**Nesting.** A knob named with colons belongs to the nearest knob above it: ``-a:b:c`` to
``-a:b`` where that exists, else to ``-a``. It is *inactive* while the knob above is inactive or
has an off value (:data:`routewright.knobs.OFF_VALUES`). A varied knob is then held at its default,
so that no two routes of a space differ in nothing but inactive knobs. A pinned knob keeps its
value always: the user asked for it, and one value splits nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from routewright.choices import (
    IntegerRange,
    all_choices,
    checked_choices,
    in_canonical_order,
    off_positions,
    representatives,
)
from routewright.errors import RouteError
from routewright.knobs import Knob, KnobDatabase, is_off, quoted
from routewright.routes import DEFAULT_ROUTE, Route, RouteExpression, find_knob


class SearchSpace:
    """The routes that a study may try. See the module for how knobs nest.

    The order of knobs is the one given (the database's for :meth:`whole`, the one written for
    :meth:`from_expression`, which is trtexec's), but a knob comes after those above it. The order
    of values is the one given.

    The default route need not be in the space: a knob's listed values may lack its default, and
    knobs may be pinned. :meth:`route` of no parameters has the varied knobs at their defaults all
    the same.

    Attributes:
        database: The knobs.
        variable: Values by name of every varied knob; an :class:`IntegerRange` for a range of more
            than :data:`routewright.knobs.MAX_LISTED` integers, a tuple otherwise.
        pinned: The pinned knobs, the varied ones at their defaults.
        size: How many routes there are, exactly.
        notes: Which of the given knobs are not searched, or have no effect, because a knob above
            them is off in every route; one line each.
    """

    def __init__(
        self,
        database: KnobDatabase,
        variable: Mapping[str, Sequence[str]],
        pinned: Route = DEFAULT_ROUTE,
    ) -> None:
        """Make a space.

        Args:
            database: The knobs.
            variable: Values by name of the knobs to vary.
            pinned: Values of knobs to hold away from their defaults.

        Raises:
            RouteError: A knob or value is not in the database, a value is listed twice, a knob has
                no value, takes any text, or is both varied and pinned.
        """
        self.database = database
        self.pinned = Route.of(pinned.values, database)
        choices: dict[str, Sequence[str]] = {}
        for name, values in variable.items():
            knob = find_knob(name, database)
            if knob.name in choices:
                raise RouteError(f"{knob.name} is varied twice; name each knob once")
            if knob.name in self.pinned.values:
                raise RouteError(f"{knob.name} is both pinned and varied; do one of them")
            choices[knob.name] = checked_choices(knob, values)
        self._positions = {knob.name: position for position, knob in enumerate(database)}
        searched, parents, self.notes = self._nest(choices)
        ordered = _parents_first(searched, parents)
        self.variable: Mapping[str, Sequence[str]] = MappingProxyType(
            {name: searched[name] for name in ordered}
        )
        self._defaults = {name: database[name].default for name in ordered}
        self._parents = {name: parents[name] for name in ordered if name in parents}
        self._off = {name: off_positions(searched[name]) for name in ordered}
        self._below, self._counts = self._count()
        self.size = 1
        for name in ordered:
            if name not in self._parents:
                self.size *= self._counts[name]

    @classmethod
    def whole(cls, database: KnobDatabase) -> SearchSpace:
        """Return the space of every searchable knob over all its values."""
        return cls(
            database, {knob.name: all_choices(knob) for knob in database if knob.searchable}
        )

    @classmethod
    def from_expression(cls, expression: RouteExpression, database: KnobDatabase) -> SearchSpace:
        """Return the routes of a route expression; knobs it does not name keep their defaults.

        Raises:
            RouteError: The expression was read with another database that does not fit this one.
        """
        return cls(database, expression.variable, Route.of(expression.pinned, database))

    def __repr__(self) -> str:
        return f"<SearchSpace of {len(self.variable)} varied and {len(self.pinned.pairs)} pinned>"

    def distribution(self, name: str) -> BaseDistribution:
        """Return the Optuna distribution of a varied knob.

        Choices are text, in the database's order (integers that the database does not list
        ascend), however the space was written; so they stay the same when a study is resumed.

        Raises:
            RouteError: The knob is not varied.
        """
        knob = self._varied(name)
        values = self.variable[knob.name]
        if isinstance(values, IntegerRange):
            return IntDistribution(values.low, values.high)
        return CategoricalDistribution(in_canonical_order(knob, values))

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the Optuna distribution of every varied knob by name."""
        return {name: self.distribution(name) for name in self.variable}

    def route(self, params: Mapping[str, str | int]) -> Route:
        """Return the route of Optuna parameters.

        Varied knobs without a parameter are at their default, pinned knobs at their value.
        Inactive knobs are put to their default whatever their parameter says.

        Raises:
            RouteError: A name is not varied here, or a value is not one of the knob's.
        """
        return self._route({name: self._value(name, value) for name, value in params.items()})

    def params(self, route: Route) -> dict[str, str | int]:
        """Return the Optuna parameters of a route, one for every varied knob.

        An inactive knob's parameter is its default, or its first value where the default is not
        listed. :meth:`route` gives the same route back.

        Raises:
            RouteError: The route is not in the space.
        """
        fault = self._fault(route)
        if fault:
            raise RouteError(f"{quoted(str(route))} is not in the search space: {fault}")
        given = route.values
        params: dict[str, str | int] = {}
        for name, values in self.variable.items():
            value = given.get(name, self._defaults[name])
            if value not in values:
                value = values[0]
            params[name] = int(value) if isinstance(values, IntegerRange) else value
        return params

    def contains(self, route: Route) -> bool:
        """Tell whether ``route`` is one of the space's routes."""
        return not self._fault(route)

    def is_active(self, name: str, route: Route) -> bool:
        """Tell whether a knob of the database can matter in ``route``: no knob above it is off.

        Raises:
            RouteError: There is no such knob.
        """
        given = route.values
        above = self.database.parent(find_knob(name, self.database).name)
        while above is not None:
            if is_off(given.get(above.name, above.default)):
                return False
            above = self.database.parent(above.name)
        return True

    def route_at(self, index: int) -> Route:
        """Return the route at ``index`` of :meth:`enumerate` without going through the others.

        Raises:
            IndexError: ``index`` is negative or not below :attr:`size`.
        """
        index = operator.index(index)
        if not 0 <= index < self.size:
            raise IndexError("the index is not that of a route of this space")
        chosen: dict[str, str] = {}
        inactive: set[str] = set()
        # How many routes share the values chosen so far. Choosing a value replaces its knob's
        # count in this product by that of the knobs that it makes active.
        rest = self.size
        for name, values in self.variable.items():
            parent = self._parents.get(name)
            if parent is not None and (parent in inactive or is_off(chosen[parent])):
                inactive.add(name)
                continue
            rest //= self._counts[name]
            block = rest * self._below[name]
            position, index = _locate(index, rest, block, self._off[name])
            chosen[name] = values[position]
            if not is_off(values[position]):
                rest = block
        return self._route(chosen)

    def enumerate(self) -> Iterator[Route]:
        """Yield every route once, lazily, as a number whose last digit is the last knob."""
        for index in range(self.size):
            yield self.route_at(index)

    def one_knob_changes(self, *, reverse_knobs: bool = False) -> Iterator[Route]:
        """Yield the routes that differ from the baseline in one varied knob.

        The baseline is the route of no parameters. Values come in listed order without the
        default; a wide range is represented by a few of its values. A knob that is inactive in
        the baseline is left out: changing it alone changes nothing.

        Args:
            reverse_knobs: Go through the knobs from last to first, as trtexec's ``fast`` does.
        """
        inactive = self._inactive({})
        names = [name for name in self.variable if name not in inactive]
        for name in reversed(names) if reverse_knobs else names:
            for value in representatives(self.variable[name]):
                if value != self._defaults[name]:
                    yield self._route({name: value})

    def neighbours(self, route: Route) -> Iterator[Route]:
        """Yield the routes that differ from ``route`` in the value of one active varied knob.

        Of a wide range, the values next to the present one and a few others are taken. Where a
        knob is switched on, those below it start from their default, or from their first value
        where the default is not listed.
        """
        given = route.values
        current = {name: given.get(name, self._defaults[name]) for name in self.variable}
        inactive = self._inactive(current)
        for name, values in self.variable.items():
            if name in inactive:
                continue
            for value in representatives(values, current[name]):
                if value == current[name]:
                    continue
                changed = current | {name: value}
                self._start_switched_on(changed, inactive)
                yield self._route(changed)

    def random_route(self, rng: np.random.Generator) -> Route:
        """Return a route whose active knobs each have a value drawn uniformly.

        So a knob's values are equally likely whatever is nested below them, which is not uniform
        over routes.
        """
        chosen: dict[str, str] = {}
        for name, values in self.variable.items():
            parent = self._parents.get(name)
            if parent is None or (parent in chosen and not is_off(chosen[parent])):
                chosen[name] = values[int(rng.integers(len(values)))]
        return self._route(chosen)

    def restricted_to(self, names: Iterable[str]) -> SearchSpace:
        """Return the space that varies only ``names``; other varied knobs are at their default.

        Raises:
            RouteError: A name is not varied here.
        """
        wanted = {self._varied(name).name for name in names}
        kept = {name: values for name, values in self.variable.items() if name in wanted}
        return SearchSpace(self.database, kept, self.pinned)

    def _varied(self, name: str) -> Knob:
        knob = find_knob(name, self.database)
        if knob.name not in self.variable:
            raise RouteError(f"{knob.name} is not varied in this search space")
        return knob

    def _value(self, name: str, value: str | int) -> str:
        values = self.variable.get(name)
        if values is None:
            raise RouteError(f"{quoted(name)} is not varied in this search space")
        # True equals 1, so a boolean is never taken for a number.
        if isinstance(values, IntegerRange) and type(value) is int:
            value = str(value)
        if not isinstance(value, str) or value not in values:
            raise RouteError(f"{value!r} is not one of the values of {name} in this search space")
        return value

    def _route(self, values: Mapping[str, str]) -> Route:
        """Return the route of ``values`` with inactive knobs at their defaults."""
        inactive = self._inactive(values)
        changed = {
            name: value
            for name, value in values.items()
            if value != self._defaults[name] and name not in inactive
        } | dict(self.pinned.pairs)
        return Route(tuple(sorted(changed.items(), key=lambda pair: self._positions[pair[0]])))

    def _inactive(self, values: Mapping[str, str]) -> set[str]:
        """Return the varied knobs that are inactive; knobs not in ``values`` are at default."""
        inactive: set[str] = set()
        for name, parent in self._parents.items():
            if parent in inactive or is_off(values.get(parent, self._defaults[parent])):
                inactive.add(name)
        return inactive

    def _start_switched_on(self, values: dict[str, str], inactive: Set[str]) -> None:
        """Give listed values to the knobs of ``inactive`` that ``values`` makes active."""
        still_inactive: set[str] = set()
        # Parents come first, so a value given here counts for the knobs below.
        for name, parent in self._parents.items():
            if parent in still_inactive or is_off(values[parent]):
                still_inactive.add(name)
            elif name in inactive and values[name] not in self.variable[name]:
                values[name] = self.variable[name][0]

    def _fault(self, route: Route) -> str:
        """Return why ``route`` is not in the space, or an empty string."""
        given = route.values
        fixed = {name: value for name, value in given.items() if name not in self.variable}
        if fixed != dict(self.pinned.pairs):
            differing = sorted(fixed.items() ^ dict(self.pinned.pairs).items())
            return f"it has another value than the space holds for {differing[0][0]}"
        inactive = self._inactive(given)
        for name, values in self.variable.items():
            if name in inactive:
                if name in given:
                    return f"{name} is set while {self._parents[name]} is off"
            elif given.get(name, self._defaults[name]) not in values:
                return f"{name} has a value that is not searched"
        return ""

    def _nest(
        self, choices: Mapping[str, Sequence[str]]
    ) -> tuple[dict[str, Sequence[str]], dict[str, str], tuple[str, ...]]:
        """Find the nearest varied knob above each varied one.

        Returns:
            The knobs that are active in some route, the nearest varied knob above each that has
            one, and a note on each other knob.
        """
        searched: dict[str, Sequence[str]] = {}
        parents: dict[str, str] = {}
        notes: dict[str, str] = {}
        given = self.pinned.values
        # A knob has fewer colons than those below it, so it is settled before them.
        for name in sorted((*choices, *given), key=lambda name: name.count(":")):
            reason = ""
            above = self.database.parent(name)
            while above is not None and above.name not in searched:
                if above.name in choices or is_off(given.get(above.name, above.default)):
                    reason = f"{above.name} is {'inactive' if above.name in choices else 'off'}"
                    break
                above = self.database.parent(above.name)
            if above is not None and above.name in searched:
                values = searched[above.name]
                if len(off_positions(values)) == len(values):
                    reason = f"{above.name} is off"
                else:
                    parents[name] = above.name
            if reason:
                verb = "is not searched" if name in choices else "has no effect"
                notes[name] = f"{name} {verb}: {reason} in every route"
            elif name in choices:
                searched[name] = choices[name]
        in_order = tuple(notes[name] for name in self._positions if name in notes)
        return {name: searched[name] for name in choices if name in searched}, parents, in_order

    def _count(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return, for each varied knob, how many ways those below and its own subtree can be set.

        Both suppose that the knob is active; the first that it is on, too.
        """
        below = dict.fromkeys(self.variable, 1)
        counts: dict[str, int] = {}
        for name in reversed(tuple(self.variable)):
            off = len(self._off[name])
            counts[name] = off + (len(self.variable[name]) - off) * below[name]
            parent = self._parents.get(name)
            if parent is not None:
                below[parent] *= counts[name]
        return below, counts


def _parents_first(names: Iterable[str], parents: Mapping[str, str]) -> list[str]:
    """Keep the order of ``names``, but put each knob's parents before it."""
    placed: dict[str, None] = {}
    for name in names:
        line = []
        current: str | None = name
        while current is not None and current not in placed:
            line.append(current)
            current = parents.get(current)
        placed.update(dict.fromkeys(reversed(line)))
    return list(placed)


def _locate(index: int, off: int, on: int, off_values: Sequence[int]) -> tuple[int, int]:
    """Find the value under which the route ``index`` lies.

    Args:
        index: Number of the route among those of the knobs not yet chosen.
        off: How many routes lie under each off value.
        on: How many routes lie under each other value.
        off_values: Positions of the off values, ascending.

    Returns:
        The value's position and the number of the route among those under it.
    """
    first = 0
    for position in off_values:
        between = (position - first) * on
        if index < between:
            break
        index -= between
        if index < off:
            return position, index
        index -= off
        first = position + 1
    return first + index // on, index % on
