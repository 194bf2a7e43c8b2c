"""Which settings change the engine when they are made alone, as far as the trials tell."""

from __future__ import annotations

from collections.abc import Sequence

from routewright.records import TrialRecord
from routewright.search.grouping import GroupTests


def live_settings(records: Sequence[TrialRecord]) -> dict[str, float]:
    """Return 1 for each setting that changes the default engine, 0 for each that does not.

    Read off fingerprints as screening does: a group of settings with the default engine's
    fingerprint is inert, and a group with another one of which all but one are inert shows that
    one to be live. What cannot be told is left out.
    """
    reference = next((r.fingerprint for r in records if not r.route and r.fingerprint), None)
    if reference is None:
        return {}
    groups = {
        record.route: record.fingerprint
        for record in records
        if record.route and record.fingerprint is not None
    }
    changes = sorted({_change(token) for route in groups for token in route.split()})
    tests = GroupTests(changes=changes)
    for route, fingerprint in groups.items():
        group = [_change(token) for token in route.split()]
        if fingerprint == reference:
            tests.add_inert(group)
        else:
            tests.add_live(group)
    tests.conclude()
    found = {f"{name}={value}": 0.0 for name, value in tests.inert}
    found |= {f"{name}={value}": 1.0 for name, value in tests.live}
    return found


def _change(token: str) -> tuple[str, str]:
    name, _, value = token.partition("=")
    return name, value
