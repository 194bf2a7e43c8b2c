"""What every search goes by, whoever runs it: what is best so far, and what still fits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from routewright.records import Phase, TrialRecord
from routewright.search.base import Proposal
from routewright.trial import TrialRules

_EXPECTED_FROM = 10
"""Recent trials from which the next one's seconds are expected."""


def expected_s(
    records: Sequence[TrialRecord],
    baseline: TrialRecord,
    proposal: Proposal,
    rules: TrialRules,
) -> float:
    """Return the seconds that a trial of ``proposal`` is likely to need.

    Args:
        records: Finished trials, the baseline among them.
        baseline: The baseline's record.
        proposal: What to try.
        rules: What the trial is held to.
    """
    builds_s = [r.build_s for r in records if r.build_s is not None]
    build_s = float(np.quantile(builds_s[-_EXPECTED_FROM:], 0.8))
    if not proposal.time_it:
        return build_s
    timed_s = [
        (r.check_s or 0.0) + (r.time_s or 0.0)
        for r in records
        if r.time_s is not None and r.phase is not Phase.BASELINE
    ]
    if not timed_s:
        return (
            build_s
            + (baseline.check_s or 0.0)
            + min(rules.timing.max_s, baseline.time_s or rules.timing.max_s)
        )
    return build_s + float(np.quantile(timed_s[-_EXPECTED_FROM:], 0.8))


def best_of(records: Iterable[TrialRecord]) -> TrialRecord | None:
    """Return the eligible record with the lowest relative latency, confirmations left out."""
    return min(
        (r for r in records if r.eligible and r.phase is not Phase.CONFIRMATION),
        key=value_of,
        default=None,
    )


def value_of(record: TrialRecord) -> float:
    """Return a record's relative latency, infinity where it has none."""
    return math.inf if record.relative_latency is None else record.relative_latency
