"""Routes that several search methods need: where a space starts, and what is left to try."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from routewright.choices import representatives
from routewright.errors import RoutewrightError
from routewright.knobs import is_off
from routewright.routes import Route
from routewright.space import SearchSpace

Change = tuple[str, str]
"""A knob and the value that it is set to."""

_DEFAULTS: WeakKeyDictionary[SearchSpace, Mapping[str, str]] = WeakKeyDictionary()
_ANCESTORS: WeakKeyDictionary[SearchSpace, Mapping[str, tuple[str, ...]]] = WeakKeyDictionary()

_PARSED: WeakKeyDictionary[SearchSpace, dict[str, Route | None]] = WeakKeyDictionary()

_HELD: WeakKeyDictionary[SearchSpace, dict[Route, bool]] = WeakKeyDictionary()

_RANDOM_TRIES = 64
_LISTED_ROUTES = 4096


def generator(seed: int, *keys: int | str) -> np.random.Generator:
    """Return a generator that is a function of the seed and the keys, whatever ran before."""
    digest = hashlib.sha256(repr((seed, *keys)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def default_values(space: SearchSpace) -> Mapping[str, str]:
    """Return each varied knob's default, or its first value where the default is not listed."""
    known = _DEFAULTS.get(space)
    if known is None:
        chosen: dict[str, str] = {}
        for name, values in space.variable.items():
            default = space.database[name].default
            chosen[name] = default if default in values else values[0]
        known = _DEFAULTS[space] = MappingProxyType(chosen)
    return known


def ancestors_of(space: SearchSpace) -> Mapping[str, tuple[str, ...]]:
    """Return the knobs above each varied knob, the nearest first; only of knobs that have some."""
    known = _ANCESTORS.get(space)
    if known is None:
        found: dict[str, tuple[str, ...]] = {}
        for name in space.variable:
            line: list[str] = []
            above = space.database.parent(name)
            while above is not None:
                line.append(above.name)
                above = space.database.parent(above.name)
            if line:
                found[name] = tuple(line)
        known = _ANCESTORS[space] = MappingProxyType(found)
    return known


def parsed(space: SearchSpace, text: str) -> Route | None:
    """Return the route that a record names, or None where the database does not know it.

    Records are read again for every proposal, so what was parsed is kept.
    """
    known = _PARSED.setdefault(space, {})
    if text not in known:
        try:
            known[text] = Route.parse(text, space.database)
        except RoutewrightError:
            known[text] = None
    return known[text]


def holds(space: SearchSpace, route: Route) -> bool:
    """Return whether ``space`` contains ``route``; what was asked is kept."""
    known = _HELD.setdefault(space, {})
    if route not in known:
        known[route] = space.contains(route)
    return known[route]


def base_route(space: SearchSpace) -> Route:
    """Return the route of the space that is nearest to the default route."""
    return space.route(default_values(space))


def values_in(space: SearchSpace, route: Route) -> dict[str, str]:
    """Return the value of every varied knob in ``route``; inactive ones as at the start."""
    given = route.values
    return {name: given.get(name, value) for name, value in default_values(space).items()}


def with_change(space: SearchSpace, route: Route, changes: Mapping[str, str]) -> Route:
    """Return ``route`` with some varied knobs set; what that makes inactive is at its default."""
    values = values_in(space, route) | dict(changes)
    database = space.database
    # Most knobs are at their default, and leaving them out saves checking them.
    return space.route({n: v for n, v in values.items() if v != database[n].default})


def other_values(space: SearchSpace, name: str, current: str) -> list[str]:
    """Return the values to change a knob to; a few of a wide range stand for all."""
    return [v for v in representatives(space.variable[name], current) if v != current]


def narrowed_to(space: SearchSpace, names: Iterable[str]) -> SearchSpace:
    """Return the space that varies ``names`` only and holds the other knobs where they start.

    A knob that is inactive there is left out; see :func:`with_ancestors`.
    """
    kept = set(names)
    held = {name: value for name, value in default_values(space).items() if name not in kept}
    start = space.route(held).values
    pinned = dict(space.pinned.values) | {name: start[name] for name in held if name in start}
    return SearchSpace(
        space.database,
        {name: values for name, values in space.variable.items() if name in kept},
        Route.of(pinned, space.database),
    )


def with_ancestors(space: SearchSpace, names: Iterable[str]) -> list[str]:
    """Return ``names`` and every varied knob above one of them, in the space's order.

    A knob whose parent is not varied and off by default could not be searched.
    """
    above = ancestors_of(space)
    wanted: set[str] = set()
    for name in names:
        wanted.update((name, *above.get(name, ())))
    return [name for name in space.variable if name in wanted]


def switches_for(
    space: SearchSpace, start: Route, name: str, *, avoid: Collection[Change] = ()
) -> tuple[Change, ...] | None:
    """Return the changes of ``start`` that make a knob active; None if none can.

    Args:
        space: The routes to choose from.
        start: The route to change.
        name: A varied knob.
        avoid: Changes not to use.
    """
    line = ancestors_of(space).get(name, ())
    if not line:
        return ()
    at = values_in(space, start)
    needs: list[Change] = []
    for above in line:
        if above in space.variable and is_off(at[above]):
            on = [
                (above, value)
                for value in other_values(space, above, at[above])
                if not is_off(value) and (above, value) not in avoid
            ]
            if not on:
                return None
            needs.append(on[0])
    return tuple(reversed(needs))


def unseen_neighbour(
    space: SearchSpace, route: Route, seen: Collection[str], rng: np.random.Generator
) -> Route | None:
    """Return an untried route one knob away from ``route``, at random, or None."""
    fresh = [other for other in space.neighbours(route) if str(other) not in seen]
    return fresh[int(rng.integers(len(fresh)))] if fresh else None


def unseen_random(
    space: SearchSpace, seen: Collection[str], rng: np.random.Generator
) -> Route | None:
    """Return an untried route at random, or None where the space has none left.

    A space that is nearly used up is looked through from a random place on.
    """
    for _ in range(_RANDOM_TRIES):
        route = space.random_route(rng)
        if str(route) not in seen:
            return route
    if space.size > max(_LISTED_ROUTES, 2 * len(seen)):
        first = int(rng.integers(2**62)) % space.size
    else:
        first = int(rng.integers(space.size))
    # More routes than were tried are looked at, so one of them is new unless none is left.
    for route in _from(space, first, len(seen) + 1):
        if str(route) not in seen:
            return route
    return None


def _from(space: SearchSpace, first: int, count: int) -> Iterator[Route]:
    for offset in range(min(count, space.size)):
        yield space.route_at((first + offset) % space.size)
