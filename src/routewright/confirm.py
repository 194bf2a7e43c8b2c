"""Confirming the winner: the best few against the baseline again, with fresh builds.

The best of many noisy readings is better than its truth. So the few best candidates are built
anew, in a fresh process each round, checked again and timed against a fresh baseline; only these
readings count for the verdict, and their intervals are corrected for picking the best of them.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from routewright.records import Outcome, Phase, TrialRecord
from routewright.search.base import Proposal
from routewright.timing import CombinedTiming, PairedTiming, combine_rounds
from routewright.trial import (
    BASELINE_SLOT,
    CANDIDATE_SLOT,
    TrialRules,
    check_candidate,
    time_candidate,
    with_timing,
)
from routewright.workbench import BuildReport, TrialFailure, Workbench

CANDIDATES = 3
ROUNDS = 4
"""Rounds of fresh builds where the budget allows."""

TIE_BAND = 0.02
"""Candidates within this share of the best are a tie; the one that changes least wins it."""


@dataclass
class Confirmed:
    """A candidate with its rounds.

    Attributes:
        record: The trial that made it a candidate.
        rounds: One timing per round.
        losses: Worst loss by output over all rounds.
        failure: Why it is out, or empty.
        combined: What its rounds say together, or None before the first.
        engine: Folder of the engine that was measured last.
        files: SHA-256 of that engine's files by name.
        fingerprint: That engine's fingerprint.
    """

    record: TrialRecord
    rounds: list[PairedTiming] = field(default_factory=list)
    losses: dict[str, float] = field(default_factory=dict)
    failure: str = ""
    combined: CombinedTiming | None = None
    engine: Path | None = None
    files: dict[str, str] = field(default_factory=dict)
    fingerprint: str | None = None

    @property
    def faster(self) -> bool:
        """Whether it is faster than the baseline beyond doubt."""
        return not self.failure and self.combined is not None and self.combined.faster

    @property
    def changes(self) -> int:
        """How many knobs it changes."""
        return len(self.record.route.split())


Recorder = Callable[[Proposal, Callable[[int], TrialRecord]], TrialRecord]
"""Starts a trial of the proposal, calls the function with its number, and commits the record."""


def choose_candidates(
    records: Iterable[TrialRecord], count: int = CANDIDATES
) -> list[TrialRecord]:
    """Return the most promising engines, at most one record for each, best first."""
    chosen: dict[str, TrialRecord] = {}
    eligible = [
        r
        for r in records
        if r.eligible and r.outcome in (Outcome.TIMED, Outcome.REUSED) and r.route
    ]
    ranked = sorted(
        eligible, key=lambda r: (r.relative_latency or math.inf, len(r.route.split()), r.number)
    )
    for record in ranked:
        if (record.relative_latency or math.inf) >= 1 or (record.ci95 or (0.0, 0.0))[0] >= 1:
            continue
        chosen.setdefault(record.fingerprint or record.route, record)
    return list(chosen.values())[:count]


def confirm(
    bench: Workbench,
    candidates: Sequence[TrialRecord],
    *,
    rules: TrialRules,
    record_trial: Recorder,
    route_of: Callable[[str], Proposal],
    engines: Path,
    deadline_s: float,
    rounds: int = ROUNDS,
) -> list[Confirmed]:
    """Measure the candidates again in rounds of fresh builds, as many as fit.

    Args:
        bench: Builds, checks and times.
        candidates: The best few of the search, best first.
        rules: What every trial is held to.
        record_trial: Keeps each reading as a trial of the study.
        route_of: Turns a candidate's route into the proposal of its confirming trial.
        engines: Folder in which each candidate's last measured engine is kept.
        deadline_s: Time on the bench's clock at which everything must be done.
        rounds: Most rounds.
    """
    standing = [Confirmed(record) for record in candidates]
    one_s = 0.0
    for number in range(rounds):
        # The best so far goes first: where time runs out within a round, it has had its turn.
        racing = sorted((c for c in standing if not c.failure), key=_estimate)
        started_s = bench.now_s()
        if not racing or started_s + one_s > deadline_s:
            break
        bench.restart()
        # The later build tends to lie better or worse in memory, so the order alternates.
        baseline_first = number % 2 == 0
        measured = 0
        for candidate in racing:
            if bench.now_s() + one_s > deadline_s:
                break
            reading = _measure_again(
                bench, candidate, number, baseline_first, rules, record_trial, route_of, deadline_s
            )
            if reading.outcome is Outcome.TIMED:
                _keep_engine(bench, candidate, reading, engines)
            measured += 1
        _combine(standing, len(candidates))
        _drop_hopeless(standing)
        one_s = (bench.now_s() - started_s) / max(measured, 1)
    return standing


def pick(confirmed: Sequence[Confirmed]) -> Confirmed | None:
    """Return the winner: faster beyond doubt, and of those that tie the one that changes least."""
    faster = [c for c in confirmed if c.faster and c.combined is not None]
    if not faster:
        return None

    best = min(faster, key=_estimate)
    interval = best.combined.interval if best.combined else (1.0, 1.0)
    band = min(TIE_BAND, math.log(interval[1] / interval[0]) / 2)
    ties = [c for c in faster if math.log(_estimate(c) / _estimate(best)) <= band]
    return min(ties, key=lambda c: (c.changes, _estimate(c)))


def _estimate(candidate: Confirmed) -> float:
    """Return the relative latency that is known best: of the rounds, else of the search."""
    if candidate.combined is not None:
        return candidate.combined.relative_latency
    return candidate.record.relative_latency or math.inf


def _measure_again(
    bench: Workbench,
    candidate: Confirmed,
    number: int,
    baseline_first: bool,
    rules: TrialRules,
    record_trial: Recorder,
    route_of: Callable[[str], Proposal],
    deadline_s: float,
) -> TrialRecord:
    def reading(trial: int) -> TrialRecord:
        record = TrialRecord(
            trial,
            candidate.record.route,
            Phase.CONFIRMATION,
            Outcome.FAILED,
            origin=f"confirmation of trial {candidate.record.number}, round {number + 1}",
        )
        started_s = bench.now_s()
        try:
            report = _build_both(bench, record.route, baseline_first, deadline_s)
            record = replace(
                record,
                build_s=bench.now_s() - started_s,
                fingerprint=report.fingerprint,
                notes=report.notes,
            )
            record = check_candidate(bench, record, rules.limits, deadline_s)
            if record.outcome is not Outcome.TIMED:
                return record
            started_s = bench.now_s()
            timing = time_candidate(
                bench, rules.timing, deadline_s=deadline_s, seed=rules.seed + trial
            )
        except TrialFailure as failure:
            return replace(
                record, outcome=Outcome.FAILED, failure=failure.kind, reason=failure.message
            )
        candidate.rounds.append(timing)
        return with_timing(record, timing, bench.now_s() - started_s)

    record = record_trial(route_of(candidate.record.route), reading)
    for name, loss in record.losses.items():
        candidate.losses[name] = max(loss, candidate.losses.get(name, 0.0))
    out_of_time = record.failure == "timeout" and bench.now_s() >= deadline_s - 1.0
    if record.outcome is not Outcome.TIMED and not out_of_time:
        candidate.failure = record.reason or str(record.outcome)
    return record


def _keep_engine(
    bench: Workbench, candidate: Confirmed, measured: TrialRecord, engines: Path
) -> None:
    """Keep the engine just measured: that one ships, not another build of its route."""
    folder = engines / f"trial-{measured.number}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        files = bench.save(CANDIDATE_SLOT, folder)
    except TrialFailure as failure:
        candidate.failure = f"its engine could not be saved: {failure.message}"
        return
    candidate.fingerprint = measured.fingerprint
    if not files:
        return
    if candidate.engine is not None:
        shutil.rmtree(candidate.engine, ignore_errors=True)
    candidate.engine, candidate.files = folder, files


def _build_both(
    bench: Workbench, route: str, baseline_first: bool, deadline_s: float
) -> BuildReport:
    if baseline_first:
        bench.build(BASELINE_SLOT, "", deadline_s=deadline_s)
    report = bench.build(CANDIDATE_SLOT, route, deadline_s=deadline_s)
    if not baseline_first:
        bench.build(BASELINE_SLOT, "", deadline_s=deadline_s)
    return report


def _combine(standing: Sequence[Confirmed], comparisons: int) -> None:
    for candidate in standing:
        if candidate.rounds:
            candidate.combined = combine_rounds(
                candidate.rounds,
                comparisons=comparisons,
                siblings=[other.rounds for other in standing if other is not candidate],
            )


def _drop_hopeless(standing: Sequence[Confirmed]) -> None:
    """Take out who cannot win any more: slower than the best beyond both intervals."""
    with contextlib.suppress(ValueError):
        best = min(
            c.combined.interval[1] for c in standing if c.combined is not None and not c.failure
        )
        for candidate in standing:
            if candidate.combined is not None and candidate.combined.interval[0] > best:
                candidate.failure = "slower than the best candidate"
