"""Sweeps: ``fast``, ``full`` and ``mixed``, in the order in which trtexec walks them.

Each is a fixed sequence of routes, and a proposal is its first route that the history does not
hold. So a resumed sweep goes on where it stopped, several workers share one, and nothing is kept
between proposals.

Two things differ from trtexec where knobs are nested: a route that differs from an earlier one in
inactive knobs only is not tried again, and a knob that is inactive at the start is not part of the
one-knob changes. Where an expression does not list a knob's default, the sweep starts from the
first value it lists. A range too wide to list is swept over a few of its values by ``fast``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler
from routewright.search.candidates import (
    base_route,
    narrowed_to,
    other_values,
    values_in,
    with_change,
)
from routewright.space import SearchSpace


def fast_routes(space: SearchSpace) -> Iterator[Route]:
    """Yield the start, then every route that changes one knob of it, the last knob first."""
    start = base_route(space)
    yield start
    for _, route in fast_changes(space):
        if route != start:
            yield route


def fast_changes(space: SearchSpace) -> Iterator[tuple[str, Route]]:
    """Yield the changed knob and the route for every one-knob change, the last knob first."""
    start = base_route(space)
    values = values_in(space, start)
    for name in reversed(tuple(space.variable)):
        if space.is_active(name, start):
            for value in other_values(space, name, values[name]):
                yield name, with_change(space, start, {name: value})


class FastSweep(RouteSampler):
    """The start, then one knob changed at a time."""

    name = "fast"

    def propose(self, history: History) -> Proposal | None:
        """Return the first one-knob change that is not in the history."""
        return _first_untried(fast_routes(self.space), history, "one knob changed")


class FullSweep(RouteSampler):
    """Every route of the space, the last knob varying fastest."""

    name = "full"

    def __init__(self, space: SearchSpace, *, seed: int) -> None:
        super().__init__(space, seed=seed)
        self._skipped = 0

    def propose(self, history: History) -> Proposal | None:
        """Return the first route that is not in the history."""
        finished = {r.route for r in history.records if r.outcome is not Outcome.SCREENED}
        tried = history.tried()
        # Finished routes stay finished, so the walk need not pass them again. A history that
        # does not hold them is another study's.
        if len(finished) < self._skipped:
            self._skipped = 0
        for index in range(self._skipped, self.space.size):
            route = self.space.route_at(index)
            if str(route) not in tried:
                return Proposal(route, origin=f"full sweep: route {index}")
            if index == self._skipped and str(route) in finished:
                self._skipped += 1
        return None


class MixedSweep(RouteSampler):
    """A fast sweep, then a full sweep over the knobs that were found to help.

    A knob helps if some one-knob change of it is eligible and its 95% interval lies below 1. No
    route is tried twice.
    """

    name = "mixed"

    def propose(self, history: History) -> Proposal | None:
        """Return the first route of the two phases that is not in the history."""
        first = _first_untried(fast_routes(self.space), history, "one knob changed")
        if first is not None:
            return first
        helpful = helpful_knobs(self.space, history.records)
        if len(helpful) < 2:
            return None
        return _first_untried(
            narrowed_to(self.space, helpful).enumerate(),
            history,
            f"full sweep of {len(helpful)} helpful knobs",
        )


class TrtexecMixedSweep(RouteSampler):
    """``mixed`` by trtexec's rules, its weak spots included.

    Any latency below the baseline's counts as help, noise included: the two are not measured side
    by side, the baseline once only, and accuracy is not asked for. The second phase asks again for
    routes that the first had.
    """

    name = "mixed-trtexec"

    def propose(self, history: History) -> Proposal | None:
        """Return the next route of the two phases, however often it was tried before."""
        used = Counter(history.running)
        used.update(
            r.route
            for r in history.records
            if r.outcome is not Outcome.SCREENED and r.phase in (Phase.BASELINE, Phase.SEARCH)
        )
        first = _first_unused(fast_routes(self.space), used)
        if first is not None:
            return Proposal(first, origin="one knob changed")
        faster = faster_knobs(self.space, history)
        if len(faster) < 2:
            return None
        second = _first_unused(narrowed_to(self.space, faster).enumerate(), used)
        if second is None:
            return None
        return Proposal(second, origin=f"full sweep of {len(faster)} faster knobs")


def helpful_knobs(space: SearchSpace, records: Iterable[TrialRecord]) -> list[str]:
    """Return the knobs of which one change alone is eligible and significantly faster."""
    helpful = {
        record.route
        for record in records
        if record.eligible and record.ci95 is not None and record.ci95[1] < 1.0
    }
    return _knobs_of(space, helpful)


def faster_knobs(space: SearchSpace, history: History) -> list[str]:
    """Return the knobs of which one change alone had a latency below the baseline's."""
    baseline = history.baseline
    if baseline is None or baseline.latency_ms is None:
        return []
    faster = {
        record.route
        for record in history.records
        if record.phase is Phase.SEARCH
        and record.latency_ms is not None
        and record.latency_ms < baseline.latency_ms
    }
    return _knobs_of(space, faster)


def _knobs_of(space: SearchSpace, routes: set[str]) -> list[str]:
    found = {name for name, route in fast_changes(space) if str(route) in routes}
    return [name for name in space.variable if name in found]


def _first_untried(routes: Iterable[Route], history: History, origin: str) -> Proposal | None:
    tried = history.tried()
    for route in routes:
        if str(route) not in tried:
            return Proposal(route, origin=origin)
    return None


def _first_unused(routes: Iterable[Route], used: Counter[str]) -> Route | None:
    """Walk the sequence, each route using up one trial of it; return the first without one."""
    for route in routes:
        text = str(route)
        if not used[text]:
            return route
        used[text] -= 1
    return None
