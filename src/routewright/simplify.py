"""Taking out of a route what changes nothing: the same engine with fewer changed knobs.

A search that flips many knobs at once carries inert ones along. They do not belong in a winner's
route: people read a route as advice. Groups of changes are taken out and the fingerprints
compared, halving a group that matters (delta debugging: Zeller and Hildebrandt 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from routewright.records import Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import Proposal
from routewright.space import SearchSpace

TryBuild = Callable[[Proposal], TrialRecord | None]
"""Builds a proposal as a trial of the study; None when there is no time for it."""


def simplify(
    record: TrialRecord, space: SearchSpace, try_build: TryBuild, *, inert: Collection[str]
) -> TrialRecord:
    """Return the record of the simplest route found that gives the same engine.

    Args:
        record: A trial with a fingerprint; without one it is returned as it is.
        space: The routes that may be asked for.
        try_build: Builds a route.
        inert: Knobs that are inert near the default route; they are tried first, all at once.
    """
    if record.fingerprint is None:
        return record
    simplest = record
    route = Route.parse(record.route, space.database)

    def without(names: Collection[str]) -> Route:
        kept = {name: value for name, value in route.values.items() if name not in names}
        return space.route({name: v for name, v in kept.items() if name in space.variable})

    def take_out(names: Sequence[str]) -> None:
        nonlocal route, simplest
        names = [name for name in names if name in route.values and name in space.variable]
        if not names:
            return
        candidate = without(names)
        if len(candidate.changed) >= len(route.changed):
            return
        proposal = Proposal(
            candidate,
            phase=Phase.SCREENING,
            time_it=False,
            origin=f"trial {record.number} with fewer changed knobs",
        )
        built = try_build(proposal)
        if built is None:
            return
        if built.fingerprint == record.fingerprint:
            route, simplest = candidate, built
        elif len(names) > 1:
            middle = len(names) // 2
            take_out(names[:middle])
            take_out(names[middle:])

    take_out([name for name in route.changed if name in inert])
    take_out(list(route.changed))
    return simplest
