"""The table: routes to engines, engines to measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from routewright.bounds import AccuracyBound, Limits
from routewright.errors import KnobError, RouteError
from routewright.knobs import KnobDatabase
from routewright.routes import Route
from routewright.space import SearchSpace
from routewright.tables.entries import Entry, TableError, true_log_ratio
from routewright.tables.files import load_table, save_table
from routewright.tables.measurements import NOTHING, Floats, Measurements


@dataclass(frozen=True, eq=False)
class Table:
    """Everything that was measured of a space of routes.

    Attributes:
        card: What the table is, as ``card.json`` holds it.
        database: The live knobs with the values that were recorded, and all inert knobs.
        live: Names of the live knobs, in the database's order.
        data: The measurements.
    """

    card: Mapping[str, Any]
    database: KnobDatabase
    live: tuple[str, ...]
    data: Measurements
    _rows: Mapping[tuple[int, ...], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = {tuple(map(int, values)): row for row, values in enumerate(self.data.values)}
        object.__setattr__(self, "_rows", rows)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a table; see :func:`routewright.tables.files.load_table`."""
        card, database, data = load_table(Path(folder))
        return cls(card, database, tuple(card["live"]), data)

    def save(self, folder: Path) -> None:
        """Write the table; see :func:`routewright.tables.files.save_table`."""
        save_table(Path(folder), self.card, self.database, self.data)

    @property
    def name(self) -> str:
        """Name of the table."""
        return str(self.card["name"])

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers; of its own for each table that was not read from a file."""
        data = self.card.get("data")
        return str(data["sha256"]) if data else f"unsaved-{id(self.data):x}"

    @property
    def family(self) -> str:
        """Family of the model; empty where unknown."""
        return str(self.card.get("family", ""))

    @cached_property
    def live_space(self) -> SearchSpace:
        """The routes over the live knobs alone, each of which was built."""
        return self.space.restricted_to(self.live)

    @cached_property
    def space(self) -> SearchSpace:
        """All routes that the table answers for."""
        return SearchSpace.whole(self.database)

    @cached_property
    def bound(self) -> AccuracyBound:
        """The bound that the table was recorded for; any other can be judged as well."""
        return AccuracyBound.from_dict(self.card["bound"])

    def limits(self, bound: AccuracyBound | None = None) -> Limits:
        """Return the largest losses that ``bound`` allows; the table's own bound, if None."""
        return (bound or self.bound).limits(self.card["outputs"])

    def live_part(self, route: Route | str) -> Route:
        """Return the live knobs' part of a route.

        Raises:
            TableError: The route is not in the table.
        """
        try:
            parsed = Route.parse(str(route), self.database)
        except (RouteError, KnobError) as error:
            raise TableError(f"not in the table {self.name}: {error}") from error
        live = set(self.live)
        part = Route(tuple(pair for pair in parsed.pairs if pair[0] in live))
        if not self.live_space.contains(part):
            raise TableError(
                f"not in the table {self.name}: in {str(part)!r} a knob is set that has no effect "
                "there, and such routes were not measured"
            )
        return part

    def entry(self, route: Route | str) -> Entry:
        """Return what was measured of the engine that ``route`` gives.

        Raises:
            TableError: The route is not in the table.
        """
        return replace(self._entry_of_row(self.row(route)), route=str(route))

    def row(self, route: Route | str) -> int:
        """Return the row of :attr:`data` that holds what ``route`` was measured to be.

        Raises:
            TableError: The route is not in the table.
        """
        part = self.live_part(route)
        row = self._rows.get(self._key(part))
        if row is None:
            raise TableError(f"not in the table {self.name}: {str(part)!r} was not measured")
        return row

    @cached_property
    def entries(self) -> list[Entry]:
        """Every engine once, by the route that changes least."""
        rows: dict[int, int] = {}
        changes = np.count_nonzero(self.data.values != self._defaults, axis=1)
        for row in np.argsort(changes, kind="stable"):
            engine = int(self.data.engine[row])
            if engine != NOTHING:
                rows.setdefault(engine, int(row))
        return [self._entry_of_row(rows[engine]) for engine in sorted(rows)]

    @property
    def default(self) -> Entry:
        """The default route's engine."""
        return self.entry("")

    def eligible(self, entry: Entry, bound: AccuracyBound | None = None) -> bool:
        """Whether the engine was built and timed, and meets the bound."""
        if entry.failure is not None or not entry.timed:
            return False
        return self.limits(bound).judge(entry.losses, entry.reasons).eligible

    def best(self, bound: AccuracyBound | None = None) -> Entry:
        """Return the engine that is fastest, by all its blocks, of those that meet the bound.

        Raises:
            TableError: None does.
        """
        eligible = [entry for entry in self.entries if self.eligible(entry, bound)]
        if not eligible:
            raise TableError(f"no engine of the table {self.name} meets the bound")
        return min(eligible, key=lambda entry: entry.relative_latency)

    @property
    def instance_sd(self) -> float:
        """Standard deviation of the log ratio between two builds of one route."""
        return float(self.card["repeatability"]["instance_sd"])

    @cached_property
    def _defaults(self) -> npt.NDArray[np.int16]:
        return np.array([self._position(name, "") for name in self.live], dtype=np.int16)

    @cached_property
    def true_ratios(self) -> Sequence[float]:
        """Relative latency of each engine from all its blocks; NaN where it was not timed."""
        pairs = zip(self.data.baseline_ms, self.data.candidate_ms, strict=True)
        return [float(np.exp(true_log_ratio(baseline, own))) for baseline, own in pairs]

    def _position(self, name: str, value: str) -> int:
        knob = self.database[name]
        return knob.values.index(value or knob.default)

    def _key(self, part: Route) -> tuple[int, ...]:
        values = part.values
        return tuple(self._position(name, values.get(name, "")) for name in self.live)

    def _entry_of_row(self, row: int) -> Entry:
        data, engine = self.data, int(self.data.engine[row])
        outputs = list(self.card["outputs"])
        failure = int(data.failure[row])
        step, kind, message = self.card["failures"][failure] if failure != NOTHING else ("",) * 3
        reason = int(data.reason[row])
        none: Floats = np.zeros((0, 1), dtype=np.float32)
        timed = (
            engine != NOTHING and step != "timing" and bool(np.isfinite(data.wall_s[engine]).all())
        )
        return Entry(
            route=self._route_of_row(row),
            fingerprint=None if engine == NOTHING else str(data.fingerprints[engine]),
            losses=_losses(outputs, data.losses[row]),
            first_losses=_losses(outputs, data.first_losses[row]),
            reasons={} if reason == NOTHING else dict(self.card["reasons"][reason]),
            failure=(kind, message) if step else None,
            failed_step=step,
            build_s=float(data.build_s[row]),
            check_s=float(data.check_s[row]),
            first_check_s=float(data.first_check_s[row]),
            baseline_ms=data.baseline_ms[engine] if timed else none,
            candidate_ms=data.candidate_ms[engine] if timed else none,
            wall_s=data.wall_s[engine] if timed else none[:, 0],
            candidate_first=data.candidate_first if timed else np.zeros(0, dtype=np.bool_),
            relative_latency=self.true_ratios[engine] if timed else float("nan"),
        )

    def _route_of_row(self, row: int) -> str:
        values = {
            name: self.database[name].values[position]
            for name, position in zip(self.live, self.data.values[row], strict=True)
        }
        return str(Route.of(values, self.database))


def _losses(outputs: Iterable[str], losses: Floats) -> dict[str, float]:
    return {
        name: float(loss) for name, loss in zip(outputs, losses, strict=True) if not np.isnan(loss)
    }
