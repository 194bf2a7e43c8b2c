"""What search methods are compared on: a space, a workbench, and the truth about every route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from routewright.bounds import Limits
from routewright.search.hints import SearchHints
from routewright.space import SearchSpace
from routewright.workbench import Workbench


class Work(Protocol):
    """A problem whose every answer is known."""

    @property
    def name(self) -> str:
        """Name of the work."""

    @property
    def space(self) -> SearchSpace:
        """The routes to search."""

    @property
    def limits(self) -> Limits:
        """The largest loss allowed for each output."""

    @property
    def hints(self) -> SearchHints:
        """What the backend tells a search beforehand."""

    @property
    def live(self) -> tuple[str, ...]:
        """Names of the knobs that change the engine."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What its answers are valid for, as JSON values."""

    @property
    def best(self) -> float:
        """True relative latency of the fastest eligible route."""

    def bench(self, seed: int) -> Workbench:
        """Return a fresh workbench with noise of its own for each seed."""

    def truth(self, route: str) -> float:
        """Return the true relative latency of a route of the space that builds and runs."""
