"""One trial, start to finish, cheapest veto first.

Known route -> build -> known fingerprint -> first sample -> all samples -> timing in pairs of
blocks. Each step can end the trial; what was measured until then is in its record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from routewright.bounds import Limits
from routewright.records import Outcome, Phase, TrialRecord
from routewright.search.base import Proposal
from routewright.timing import (
    PairedTiming,
    ReadingError,
    StopReason,
    TimingLimits,
    glitch_suspicion,
    measure,
)
from routewright.workbench import Block, TrialFailure, Workbench

BASELINE_SLOT = "baseline"
CANDIDATE_SLOT = "candidate"

_MEASURED = frozenset({Outcome.TIMED, Outcome.SLOW, Outcome.INACCURATE})


@dataclass(frozen=True, slots=True)
class TrialRules:
    """What every trial of a study is held to.

    Attributes:
        limits: The largest loss allowed for each output.
        timing: When timing a candidate ends.
        step_factor: Build, check and timing may each take this many times the baseline's.
        least_step_s: Each may always take this many seconds.
        seed: Seed of the order in which blocks alternate.
    """

    limits: Limits
    timing: TimingLimits
    step_factor: float = 10.0
    least_step_s: float = 20.0
    seed: int = 0

    def step_limit_s(self, baseline_s: float | None) -> float:
        """Return the seconds that a step may take which took ``baseline_s`` for the baseline."""
        return max(self.least_step_s, self.step_factor * (baseline_s or 0.0))


class KnownResults:
    """What earlier trials of a study measured, by route and by fingerprint."""

    def __init__(self, records: Iterable[TrialRecord] = ()) -> None:
        self._by_route: dict[str, TrialRecord] = {}
        self._by_fingerprint: dict[str, TrialRecord] = {}
        for record in records:
            self.add(record)

    def add(self, record: TrialRecord) -> None:
        """Remember a finished trial; confirmations measure again on purpose and are left out."""
        if record.phase is Phase.CONFIRMATION:
            return
        if record.outcome in _MEASURED or record.outcome is Outcome.FAILED:
            self._by_route[record.route] = record
        if record.outcome in _MEASURED and record.fingerprint is not None:
            self._by_fingerprint[record.fingerprint] = record
        if record.outcome is Outcome.REUSED and record.relative_latency is not None:
            self._by_route.setdefault(record.route, record)

    def of_route(self, route: str) -> TrialRecord | None:
        """Return what is known of exactly this route."""
        return self._by_route.get(route)

    def of_fingerprint(self, fingerprint: str | None) -> TrialRecord | None:
        """Return what is known of this engine, whichever route gave it."""
        return None if fingerprint is None else self._by_fingerprint.get(fingerprint)


def run_trial(
    bench: Workbench,
    number: int,
    proposal: Proposal,
    *,
    rules: TrialRules,
    known: KnownResults,
    deadline_s: float,
    baseline: TrialRecord | None = None,
    incumbent: TrialRecord | None = None,
) -> TrialRecord:
    """Try one route and return its record; nothing that a route can do raises.

    Args:
        bench: Holds the baseline engine in its baseline slot.
        number: The trial's number.
        proposal: The route, and whether to time it.
        rules: What the trial is held to.
        known: Results that may stand for this trial's.
        deadline_s: Time on the bench's clock at which the trial is ended.
        baseline: The baseline's record, for the limit on each step.
        incumbent: The best eligible record so far; a candidate that is clearly slower is not
            timed to the end.
    """
    route = str(proposal.route)
    phase = proposal.phase
    earlier = known.of_route(route)
    if earlier is not None and phase is not Phase.CONFIRMATION:
        return _known_route(earlier, number, route, phase)

    started = TrialRecord(number, route, phase, Outcome.FAILED, origin=proposal.origin)
    typical = baseline or started

    def step_end_s(baseline_s: float | None) -> float:
        return min(deadline_s, bench.now_s() + rules.step_limit_s(baseline_s))

    record = _build(bench, started, step_end_s(typical.build_s))
    if record.build_s is None:
        return record
    earlier = known.of_fingerprint(record.fingerprint)
    if earlier is not None and phase is not Phase.CONFIRMATION:
        reason = f"same engine as trial {earlier.number}"
        reused = earlier.standing_for(number, route, phase=phase, reason=reason)
        return replace(reused, build_s=record.build_s, notes=record.notes)
    if not proposal.time_it:
        return replace(record, outcome=Outcome.SCREENED, reason="built for its fingerprint only")
    record = check_candidate(bench, record, rules.limits, step_end_s(typical.check_s))
    if record.outcome in (Outcome.INACCURATE, Outcome.FAILED):
        return record
    return _time(bench, record, rules, incumbent, step_end_s(typical.time_s))


def check_candidate(
    bench: Workbench, record: TrialRecord, limits: Limits, deadline_s: float
) -> TrialRecord:
    """Check the candidate slot on the first sample, then on all, and add the losses.

    The returned record's outcome is INACCURATE where the bound is broken, FAILED where the
    engine could not be run, and TIMED (to be timed) otherwise.
    """
    started_s = bench.now_s()
    try:
        report = bench.check(CANDIDATE_SLOT, samples=[0], deadline_s=deadline_s)
        if limits.judge(report.losses, report.reasons).eligible:
            report = bench.check(CANDIDATE_SLOT, samples=None, deadline_s=deadline_s)
    except TrialFailure as failure:
        return _failed(record, failure, "check", check_s=bench.now_s() - started_s)
    verdict = limits.judge(report.losses, report.reasons)
    record = replace(
        record,
        outcome=Outcome.TIMED,
        check_s=bench.now_s() - started_s,
        losses=dict(report.losses),
        violation=verdict.violation,
    )
    if not verdict.eligible:
        return replace(record, outcome=Outcome.INACCURATE, reason=verdict.broken[0])
    return record


def time_candidate(
    bench: Workbench,
    limits: TimingLimits,
    *,
    deadline_s: float,
    contender: float | None = None,
    seed: int = 0,
) -> PairedTiming:
    """Time the candidate slot against the baseline slot in interleaved pairs of blocks.

    Args:
        bench: Holds both engines.
        limits: How far to measure; cut to what is left until the deadline.
        deadline_s: Time on the bench's clock at which the timing is killed.
        contender: Relative latency that the candidate has to reach, or None.
        seed: Seed of the order within pairs.

    Raises:
        TrialFailure: An engine crashed, hung, or gave times that are no times.
    """

    def pair(*, runs: int, warmup_runs: int, candidate_first: bool) -> Block:
        return bench.time_pair(
            runs=runs,
            warmup_runs=warmup_runs,
            candidate_first=candidate_first,
            deadline_s=deadline_s,
        )

    left_s = max(deadline_s - bench.now_s(), 0.01)
    try:
        return measure(
            pair,
            replace(limits, max_s=min(limits.max_s, left_s)),
            now_s=bench.now_s,
            contender=contender,
            seed=seed,
        )
    except ReadingError as error:
        raise TrialFailure("error", str(error)) from error


def with_timing(record: TrialRecord, timing: PairedTiming, time_s: float) -> TrialRecord:
    """Add a timing to a record that is eligible so far."""
    return replace(
        record,
        outcome=Outcome.TIMED,
        time_s=(record.time_s or 0.0) + time_s,
        saved_s=round(timing.saved_s, 3) or None,
        latency_ms=timing.latency_ms,
        baseline_ms=timing.baseline_ms,
        relative_latency=timing.relative_latency,
        ci95=timing.ci95,
        log_ratios=tuple(round(ratio, 5) for ratio in timing.log_ratios),
        notes=record.notes + timing.notes,
    )


def _known_route(earlier: TrialRecord, number: int, route: str, phase: Phase) -> TrialRecord:
    if earlier.outcome is Outcome.FAILED:
        return replace(
            earlier,
            number=number,
            phase=phase,
            reason=f"known to fail since trial {earlier.number}: {earlier.reason}",
            reused_from=earlier.number,
            build_s=None,
            check_s=None,
        )
    return earlier.standing_for(
        number, route, phase=phase, reason=f"same route as trial {earlier.number}"
    )


def _build(bench: Workbench, record: TrialRecord, deadline_s: float) -> TrialRecord:
    route = record.route
    notes: tuple[str, ...] = ()
    for attempt in (1, 2):
        started_s = bench.now_s()
        try:
            report = bench.build(CANDIDATE_SLOT, route, deadline_s=deadline_s)
        except TrialFailure as failure:
            failed = _failed(record, failure, "build")
            # Running out of memory can be another process's doing, so it gets one more try.
            if not failure.transient or attempt == 2 or bench.now_s() >= deadline_s:
                return replace(failed, notes=notes + failed.notes)
            notes = (f"built again after: {failure.message}",)
            continue
        return replace(
            record,
            build_s=bench.now_s() - started_s,
            fingerprint=report.fingerprint,
            notes=notes + tuple(report.notes),
        )
    raise AssertionError("unreachable: the second attempt returns")


def _time(
    bench: Workbench,
    record: TrialRecord,
    rules: TrialRules,
    incumbent: TrialRecord | None,
    deadline_s: float,
) -> TrialRecord:
    best, contender = 1.0, 1.0
    if incumbent is not None and incumbent.relative_latency is not None:
        best = min(1.0, incumbent.relative_latency)
        contender = min(1.0, incumbent.ci95[1] if incumbent.ci95 else best)
    started_s = bench.now_s()

    def timing_of(seed: int) -> PairedTiming:
        return time_candidate(
            bench, rules.timing, deadline_s=deadline_s, contender=contender, seed=seed
        )

    try:
        timing = timing_of(rules.seed + record.number)
    except TrialFailure as failure:
        return _failed(record, failure, "timing", time_s=bench.now_s() - started_s)
    suspicion = glitch_suspicion(timing, expected=best)
    if suspicion is not None:
        try:
            _build_afresh(bench, record, deadline_s)
            timing = timing_of(rules.seed + record.number + 1)
            note = f"measured again in a fresh process: {suspicion}"
        except TrialFailure as failure:
            if failure.kind != "timeout":
                return _failed(record, failure, "timing", time_s=bench.now_s() - started_s)
            # Confirmation measures every winner again, so the reading may stand until then.
            note = f"there was no time to measure again, though {suspicion}"
        record = replace(record, notes=(*record.notes, note))
    record = with_timing(record, timing, bench.now_s() - started_s)
    if timing.stopped is StopReason.NO_CONTENDER:
        reason = f"clearly slower than {contender:.3f}, which it had to reach"
        return replace(record, outcome=Outcome.SLOW, reason=reason)
    return record


def _build_afresh(bench: Workbench, record: TrialRecord, deadline_s: float) -> None:
    """Build baseline and candidate anew in a fresh process, so that a second reading counts.

    Raises:
        TrialFailure: One of them could not be built again.
    """
    bench.restart()
    bench.build(BASELINE_SLOT, "", deadline_s=deadline_s)
    bench.build(CANDIDATE_SLOT, record.route, deadline_s=deadline_s)


def _failed(
    record: TrialRecord, failure: TrialFailure, step: str, **seconds: float
) -> TrialRecord:
    log = tuple(failure.log.splitlines()[-5:])
    return replace(
        record,
        outcome=Outcome.FAILED,
        failure=failure.kind,
        reason=f"{step}: {failure.message}",
        notes=record.notes + log,
        log=failure.log,
        relative_latency=None,
        ci95=None,
        **seconds,  # type: ignore[arg-type]
    )
