"""Which knobs change the engine of this model, as far as the trials tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from routewright.records import TrialRecord
from routewright.result import KnobCensus


def knob_names(route: str) -> frozenset[str]:
    """Return the knobs that a canonical route changes."""
    return frozenset(token.partition("=")[0] for token in route.split())


def take_census(records: Sequence[TrialRecord], searchable: Iterable[str]) -> KnobCensus:
    """Sort the searched knobs into live, inert and unknown.

    A route with the baseline's fingerprint shows that every knob it changes is inert. A route
    that differs from a known one in a single knob, and in fingerprint, shows that knob live; so
    does a route of which all knobs but one are inert.
    """
    names = list(searchable)
    known = [r for r in records if r.fingerprint is not None]
    baseline = next((r.fingerprint for r in known if not r.route), None)
    inert: set[str] = set()
    for record in known:
        if record.fingerprint == baseline:
            inert |= knob_names(record.route)
    live: set[str] = set()
    engines = {record.route: record.fingerprint for record in known}
    for record in known:
        tokens = record.route.split()
        suspects = knob_names(record.route) - inert
        if record.fingerprint != baseline and len(suspects) == 1:
            live |= suspects
        for index, token in enumerate(tokens):
            other = " ".join(tokens[:index] + tokens[index + 1 :])
            if other in engines and engines[other] != record.fingerprint:
                live.add(token.partition("=")[0])
    inert -= live
    return KnobCensus(
        searchable=len(names),
        live=tuple(name for name in names if name in live),
        inert=tuple(name for name in names if name in inert),
        unknown=tuple(name for name in names if name not in live and name not in inert),
    )
