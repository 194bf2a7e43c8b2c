"""A recorded table as a work: its routes, replayed with their own noise, and its truth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from routewright.bounds import Limits
from routewright.replay import BACKEND, ReplayBench
from routewright.search.hints import SearchHints
from routewright.space import SearchSpace
from routewright.tables import Table


class TableWork:
    """A table under the bound that it was recorded for.

    Args:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.name = table.name
        self._truths: dict[str, float] = {}

    @cached_property
    def space(self) -> SearchSpace:
        """The routes that the table answers for."""
        return self.table.space

    @cached_property
    def limits(self) -> Limits:
        """The table's own limits."""
        return self.table.limits()

    @property
    def hints(self) -> SearchHints:
        """What ``tune`` tells a search on this table."""
        run_time_knobs = frozenset(self.table.card.get("run_time_knobs", ()))
        return SearchHints(
            fingerprints=True, surely_live=run_time_knobs & self.space.variable.keys()
        )

    @property
    def live(self) -> tuple[str, ...]:
        """Names of the knobs that change the engine."""
        return self.table.live

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the table says that its measurements are valid for."""
        card = self.table.card
        return {
            "model_sha256": card["model"]["sha256"],
            "backend": BACKEND,
            "table": self.table.digest,
            "latency": card["metric"],
            "shapes": card["shapes"],
            "bound": card["bound"],
            "environment": card["environment"],
        }

    @cached_property
    def best(self) -> float:
        """True relative latency of the fastest eligible engine."""
        return self.table.best().relative_latency

    def bench(self, seed: int) -> ReplayBench:
        """Return a fresh replay of the table."""
        return ReplayBench(self.table, seed=seed)

    def truth(self, route: str) -> float:
        """Return the relative latency that all blocks of the route's engine give together."""
        if route not in self._truths:
            self._truths[route] = self.table.entry(route).relative_latency
        return self._truths[route]


def open_table(folder: Path) -> TableWork:
    """Open a table as a work.

    Raises:
        TableError: There is none, or it cannot be read.
    """
    return TableWork(Table.load(folder))
