"""Routes as vectors of contrasts, and as codes.

Every varied knob owns a few columns, all 0 where the knob is as in the start (the route of the
space that is nearest to the default). A knob with unordered values has one column for each other
value, and, where there are several, one more for being changed at all: what one value was seen to
do says something about the others. A knob with many ordered values (a thread count, a size) has up
to four smooth columns, so that neighbouring values share what is learned of them.

Searching goes through thousands of routes, so it works on *codes*: one integer for each knob, the
position of its value in :class:`Options`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from routewright.choices import representatives
from routewright.knobs import is_off
from routewright.notation import integer_of
from routewright.routes import Route
from routewright.search.candidates import ancestors_of, default_values
from routewright.search.surrogate.model import Layout
from routewright.space import SearchSpace

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

_MOST_CATEGORIES = 5
"""An ordered knob with more values than this gets smooth columns."""

_SMOOTH_COLUMNS = 4

_ALIKE = 0.5
"""Correlation of the effects of two unordered values of one knob."""

_LENGTH_SCALE = 0.3
"""How far apart, in units of the range of ranks, ordered values still resemble each other."""


class Encoding:
    """Turns the routes of a space into vectors.

    Attributes:
        space: The space.
        knobs: Names of the varied knobs, in the space's order.
        columns: Number of columns.
        layout: How columns belong to knobs.
        slices: Columns of each knob.
        start: Value of each knob at the start.
    """

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.knobs = tuple(space.variable)
        self.start = default_values(space)
        self.slices: list[slice] = []
        self._tables: list[_Table] = []
        owner: list[int] = []
        for index, name in enumerate(self.knobs):
            is_ordered = space.database[name].ordered
            table = _Table(space.variable[name], self.start[name], is_ordered=is_ordered)
            self._tables.append(table)
            self.slices.append(slice(len(owner), len(owner) + table.width))
            owner.extend([index] * table.width)
        self.columns = len(owner)
        self._rows: dict[Route, Floats] = {}
        self._changes: dict[Route, dict[str, str]] = {}
        squares = np.concatenate([np.zeros(0), *(table.squares() for table in self._tables)])
        self.layout = Layout(np.array(owner, dtype=np.intp), squares)
        self.position = {name: index for index, name in enumerate(self.knobs)}
        self._unlisted = [n for n in self.knobs if self.start[n] != space.database[n].default]

    def changes_tried(self, route: Route) -> Mapping[str, str]:
        """Return the changes of a route that was tried, and keep them for the next proposal."""
        known = self._changes.get(route)
        if known is None:
            known = self._changes[route] = self.changes(route)
        return known

    def changes(self, route: Route) -> dict[str, str]:
        """Return the value of every knob that is not as at the start."""
        changed = {
            name: value
            for name, value in route.pairs
            if name in self.position and value != self.start[name]
        }
        if self._unlisted:
            given = route.values
            for name in self._unlisted:
                if name not in given and self.space.is_active(name, route):
                    changed[name] = self.space.database[name].default
        return changed

    def encode_all(self, routes: Sequence[Route]) -> Floats:
        """Return the vectors of routes, one in each row."""
        if not routes:
            return np.zeros((0, self.columns))
        return np.stack([self._encoded(route) for route in routes])

    def _encoded(self, route: Route) -> Floats:
        """Return the vector of a route that was tried, and keep it for the next proposal."""
        known = self._rows.get(route)
        if known is None:
            known = np.zeros(self.columns)
            for name, value in self.changes_tried(route).items():
                index = self.position[name]
                known[self.slices[index]] = self._tables[index].row(value)
            self._rows[route] = known
        return known

    def column_of(self, name: str, value: str) -> int | None:
        """Return the column that stands for one value alone, or None if there is none."""
        index = self.position.get(name)
        if index is None:
            return None
        offset = self._tables[index].column(value)
        return None if offset is None else self.slices[index].start + offset

    def shared_column_of(self, name: str) -> int | None:
        """Return the column for a knob being changed at all, or None if it has none."""
        index = self.position[name]
        return self.slices[index].start if self._tables[index].is_shared else None

    def part(self, index: int, value: str) -> Floats:
        """Return the columns of one value of one knob."""
        return self._tables[index].row(value)


class Options:
    """The values that a search chooses from.

    Args:
        encoding: The encoding.
        also: Values by knob name to choose from beside the usual ones; matters for wide ranges,
            of which a few values stand for all.

    Attributes:
        rows: Columns of each option, 0 outside its knob's own.
        knob: Index of the knob of each option.
        first: Index of the first option of each knob, and the number of options.
        at_start: Index of the option that each knob is at in the start.
    """

    def __init__(
        self, encoding: Encoding, also: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self.encoding = encoding
        self._values: list[str] = []
        self._keys: dict[Route, bytes | None] = {}
        self._index: list[dict[str, int]] = []
        knob: list[int] = []
        first = [0]
        for index, name in enumerate(encoding.knobs):
            listed = list(representatives(encoding.space.variable[name]))
            for value in (encoding.start[name], *sorted((also or {}).get(name, ()))):
                if value not in listed:
                    listed.append(value)
            self._index.append({value: first[-1] + i for i, value in enumerate(listed)})
            self._values.extend(listed)
            knob.extend([index] * len(listed))
            first.append(len(self._values))
        self.first = np.array(first, dtype=np.int32)
        self.knob = np.array(knob, dtype=np.intp)
        self.rows = np.zeros((len(knob), encoding.columns))
        for option, (index, value) in enumerate(zip(knob, self._values, strict=True)):
            self.rows[option, encoding.slices[index]] = encoding.part(index, value)
        self.at_start = np.array(
            [self._index[i][encoding.start[n]] for i, n in enumerate(encoding.knobs)],
            dtype=np.int32,
        )
        self._nested = self._find_nested()

    def codes_of(self, route: Route) -> Codes | None:
        """Return the option of each knob in ``route``, or None if a value is no option."""
        codes = self.at_start.copy()
        for name, value in self.encoding.changes(route).items():
            index = self.encoding.position[name]
            option = self._index[index].get(value)
            if option is None:
                return None
            codes[index] = option
        return codes

    def key_of(self, route: Route) -> bytes | None:
        """Return the codes of a route that was tried as bytes; they are kept."""
        if route not in self._keys:
            codes = self.codes_of(route)
            self._keys[route] = None if codes is None else codes.tobytes()
        return self._keys[route]

    def indicators(self, codes: Codes) -> Floats:
        """Return 1 for each option that a route has and 0 for the others, routes x options."""
        result = np.zeros((len(codes), len(self.knob)))
        np.put_along_axis(result, codes.astype(np.intp), 1.0, axis=1)
        return result

    def locate(self, name: str, value: str) -> tuple[int, int]:
        """Return the index of a knob and of its option; -1 for a value that is no option."""
        index = self.encoding.position[name]
        return index, self._index[index].get(value, -1)

    def route_of(self, codes: Codes) -> Route:
        """Return the route of one row of codes."""
        values = {n: self._values[c] for n, c in zip(self.encoding.knobs, codes, strict=True)}
        database = self.encoding.space.database
        return self.encoding.space.route(
            {name: value for name, value in values.items() if value != database[name].default}
        )

    def encode(self, codes: Codes) -> Floats:
        """Return the vectors of rows of codes."""
        chosen = np.zeros((len(codes), len(self.knob)))
        chosen[np.arange(len(codes))[:, None], codes] = 1.0
        result: Floats = chosen @ self.rows
        return result

    def settle(self, codes: Codes) -> Codes:
        """Put inactive knobs to the start, in place, and return ``codes``."""
        inactive: dict[int, npt.NDArray[np.bool_]] = {}
        for index, parent, off in self._nested:
            is_inactive = np.isin(codes[:, parent], off)
            if parent in inactive:
                is_inactive |= inactive[parent]
            inactive[index] = is_inactive
            codes[is_inactive, index] = self.at_start[index]
        return codes

    def random(self, count: int, rng: np.random.Generator) -> Codes:
        """Return routes with every knob's value drawn uniformly."""
        sizes = np.diff(self.first)
        drawn = (rng.random((count, len(sizes))) * sizes).astype(np.int32)
        return self.settle(drawn + self.first[:-1])

    def neighbours(self, codes: Codes) -> Codes:
        """Return all routes that differ from one route in one knob."""
        wanted = np.flatnonzero(codes[self.knob] != np.arange(len(self.knob)))
        near = np.tile(codes, (len(wanted), 1))
        near[np.arange(len(wanted)), self.knob[wanted]] = wanted
        return self.settle(near)

    def mutated(self, codes: Codes, changes: int, rng: np.random.Generator) -> Codes:
        """Return each row of ``codes`` with some knobs drawn anew."""
        result = codes.copy()
        sizes = np.diff(self.first)
        for _ in range(changes):
            knob = rng.integers(len(sizes), size=len(codes))
            drawn = (rng.random(len(codes)) * sizes[knob]).astype(np.int32) + self.first[knob]
            result[np.arange(len(codes)), knob] = drawn
        return self.settle(result)

    def _find_nested(self) -> list[tuple[int, int, Codes]]:
        """Return each nested knob, the nearest varied knob above it, and that one's off options.

        Knobs above come first, as they do in the space.
        """
        found: list[tuple[int, int, Codes]] = []
        position = self.encoding.position
        for name, line in ancestors_of(self.encoding.space).items():
            above = next((each for each in line if each in position), None)
            if above is not None:
                parent = position[above]
                off = [i for value, i in self._index[parent].items() if is_off(value)]
                found.append((position[name], parent, np.array(off, dtype=np.int32)))
        return sorted(found, key=lambda each: each[0])


class _Table:
    """The columns of one knob."""

    def __init__(self, values: Sequence[str], start: str, *, is_ordered: bool) -> None:
        listed = list(representatives(values, start))
        self._start = start
        self._others = {value: i for i, value in enumerate(v for v in listed if v != start)}
        self._is_smooth = is_ordered and len(listed) > _MOST_CATEGORIES
        self.is_shared = not self._is_smooth and len(self._others) > 1
        if self._is_smooth:
            self._numbers = np.array(sorted(integer_of(v) or 0 for v in listed), dtype=float)
            self._at = self._place(start)
            places = np.linspace(0.0, 1.0, len(listed))
            gram = self._gram(places, places)
            roots, vectors = np.linalg.eigh(gram)
            chosen = [i for i in np.argsort(-roots)[:_SMOOTH_COLUMNS] if roots[i] > 1e-6]
            self._places = places
            self._project = vectors[:, chosen] / np.sqrt(roots[chosen])
            self.width = len(chosen)
        else:
            self.width = len(self._others) + self.is_shared
        self._known: dict[str, Floats] = {}

    def row(self, value: str) -> Floats:
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._row(value)
        return known

    def column(self, value: str) -> int | None:
        if self._is_smooth or value not in self._others:
            return None
        return self._others[value] + self.is_shared

    def squares(self) -> Floats:
        """Return the columns' part of :class:`Layout`."""
        if self._is_smooth:
            return np.full(self.width, np.nan)
        if not self.is_shared:
            return np.ones(self.width)
        # Two routes' inner product is 1 for the same value, _ALIKE for two others, else 0.
        return np.array([_ALIKE, *([1.0 + _ALIKE] * len(self._others))])

    def _row(self, value: str) -> Floats:
        if self._is_smooth:
            here = np.array([self._place(value)])
            smooth: Floats = (self._gram(here, self._places) @ self._project)[0]
            return smooth
        row = np.zeros(self.width)
        if value in self._others and self.is_shared:
            row[0] = math.sqrt(_ALIKE)
            row[1 + self._others[value]] = math.sqrt(1.0 - _ALIKE)
        elif value in self._others:
            row[self._others[value]] = 1.0
        return row

    def _place(self, value: str) -> float:
        """Return where a value lies between the lowest and the highest, by rank, from 0 to 1."""
        ranks = np.linspace(0.0, 1.0, len(self._numbers))
        return float(np.interp(integer_of(value) or 0, self._numbers, ranks))

    def _gram(self, here: Floats, there: Floats) -> Floats:
        """Return the kernel of contrasts with the start: 0 where either value is the start."""

        def kernel(a: Floats, b: Floats) -> Floats:
            distance = (a[:, None] - b[None, :]) / _LENGTH_SCALE
            result: Floats = np.exp(-0.5 * distance**2)
            return result

        start = np.array([self._at])
        return kernel(here, there) - kernel(here, start) - kernel(start, there) + 1.0


def rows_as_keys(codes: Codes) -> list[bytes]:
    """Return something hashable for each row."""
    flat = np.ascontiguousarray(codes)
    return [row.tobytes() for row in flat]


def distinct(codes: Codes, seen: Collection[bytes]) -> Codes:
    """Return the rows that are not among those seen, each once, in order."""
    kept: dict[bytes, int] = {}
    for index, key in enumerate(rows_as_keys(codes)):
        if key not in seen:
            kept.setdefault(key, index)
    return codes[list(kept.values())]


def stacked(parts: Iterable[Codes], width: int) -> Codes:
    """Return all rows of several arrays."""
    gathered = [part.reshape(-1, width) for part in parts]
    return np.concatenate(gathered) if gathered else np.zeros((0, width), dtype=np.int32)
