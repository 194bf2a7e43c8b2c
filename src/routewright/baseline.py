"""Measuring the default route: built twice, checked, and the two timed against each other.

The baseline's relative latency is 1 by definition. What two identical engines are seen to differ
by is its interval, and tells how noisy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from routewright.bounds import Limits, suggested_threshold
from routewright.errors import NoEligibleEngineError, RoutewrightError
from routewright.records import Outcome, Phase, TrialRecord
from routewright.trial import (
    BASELINE_SLOT,
    CANDIDATE_SLOT,
    TrialRules,
    check_candidate,
    time_candidate,
    with_timing,
)
from routewright.workbench import TrialFailure, Workbench

_TIMING_SHARE = 0.15
"""Most of the remaining budget that timing the baseline against itself takes."""


def measure_baseline(
    bench: Workbench,
    rules: TrialRules,
    *,
    end_s: float,
    engine_folder: Path | None,
    explain: Callable[[TrialFailure], RoutewrightError],
) -> tuple[TrialRecord, str]:
    """Measure the default route and keep its engine.

    Args:
        bench: Its baseline slot holds the default engine afterwards.
        rules: What every trial is held to.
        end_s: Time on the bench's clock by which it must be done.
        engine_folder: Where the engine is saved, and must not exist yet; None to save none.
        explain: Says what a failure means for the user.

    Returns:
        The record, without a number yet, and a remark on the machine's noise, empty where two
        identical engines are not told apart.

    Raises:
        NoEligibleEngineError: It does not meet the bound.
        RoutewrightError: It cannot be built or run.
    """
    began_s = bench.now_s()
    try:
        bench.build(BASELINE_SLOT, "", deadline_s=end_s)
        report = bench.build(CANDIDATE_SLOT, "", deadline_s=end_s)
        record = TrialRecord(
            -1,
            "",
            Phase.BASELINE,
            Outcome.FAILED,
            origin="the default route",
            build_s=report.build_s,
            fingerprint=report.fingerprint,
            notes=report.notes,
        )
        record = check_candidate(bench, record, rules.limits, end_s)
        if record.outcome is Outcome.FAILED:
            raise TrialFailure(record.failure, record.reason)
        if record.outcome is Outcome.INACCURATE:
            raise _not_eligible(record, rules.limits)
        most_s = max(min(rules.timing.max_s, _TIMING_SHARE * (end_s - bench.now_s())), 0.2)
        timing = time_candidate(
            bench, replace(rules.timing, max_s=most_s), deadline_s=end_s, seed=rules.seed
        )
        if engine_folder is not None:
            bench.save(BASELINE_SLOT, engine_folder)
    except TrialFailure as failure:
        raise explain(failure) from failure
    record = with_timing(record, timing, bench.now_s() - began_s)
    half = timing.half_width
    noise = max(timing.relative_latency, 1 / timing.relative_latency) - 1
    record = replace(
        record,
        relative_latency=1.0,
        ci95=(math.exp(-half), math.exp(half)),
        notes=(*record.notes, f"two identical engines differed by {noise:.1%}"),
    )
    low, high = timing.ci95
    if low <= 1 <= high:
        return record, ""
    return record, (
        f"this machine is noisy: two identical engines differed by {noise:.1%} "
        f"(95% interval {low:.3f} to {high:.3f})"
    )


def _not_eligible(record: TrialRecord, limits: Limits) -> NoEligibleEngineError:
    losses = ", ".join(f"{name} {loss:.3g}" for name, loss in sorted(record.losses.items()))
    suggested = suggested_threshold(max(record.losses.values(), default=math.inf))
    way_out = (
        f"the tightest bound it meets is about {suggested:g}"
        if suggested is not None
        else "no bound lets it pass"
    )
    return NoEligibleEngineError(
        f"not even the default route meets the bound: {record.reason}; its {limits.loss} losses "
        f"are: {losses}; {way_out}"
    )
