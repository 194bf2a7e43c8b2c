"""A run held against the truth: what it would report after each trial, and how good that is.

What a run would report is its *incumbent*: the eligible trial with the lowest relative latency as
measured, which is not always the best of those it tried. Its *regret* is by how much its true
relative latency exceeds that of the work's fastest eligible route, as a share of the latter. The
regret of the best route tried tells how much of that is due to what was tried (exploration) and
how much to having picked by noisy times (selection).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from routewright.compare.plan import RunKey
from routewright.compare.run import Run, was_built
from routewright.records import Outcome, Phase, TrialRecord

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One trial of one run, as a line of ``results.csv``.

    Attributes:
        work: Name of the work.
        sampler: Name of the search method.
        seed: Seed of the run.
        trial: Number of the trial; 0 is the baseline.
        builds: Builds so far, the baseline's not counted.
        seconds: Seconds on the work's clock so far, the baseline's included.
        phase: Who asked for the trial.
        outcome: How it ended.
        failure: Kind of failure, or empty.
        eligible: Whether it was timed within the bound.
        relative_latency: As measured, or None.
        ci95_low: Lower end of its 95% interval, or None.
        ci95_high: Upper end, or None.
        violation: Signed amount by which the bound is exceeded, or None.
        fingerprint: Of its engine, or None.
        reused_from: Trial whose result stands for it, or None.
        build_s: Seconds of the build, or None.
        check_s: Seconds of the accuracy check, or None.
        time_s: Seconds of timing, or None.
        proposal_s: Seconds that the sampler took to propose it, on the machine that compared.
        incumbent: Trial that the run would report now.
        incumbent_measured: Its relative latency as measured.
        incumbent_true: Its true relative latency.
        tried_true: Lowest true relative latency of the eligible routes timed so far.
        regret: ``incumbent_true`` over the best of the work, less 1.
    """

    work: str
    sampler: str
    seed: int
    trial: int
    builds: int
    seconds: float
    phase: str
    outcome: str
    failure: str
    eligible: bool
    relative_latency: float | None
    ci95_low: float | None
    ci95_high: float | None
    violation: float | None
    fingerprint: str | None
    reused_from: int | None
    build_s: float | None
    check_s: float | None
    time_s: float | None
    proposal_s: float
    incumbent: int
    incumbent_measured: float
    incumbent_true: float
    tried_true: float
    regret: float


COLUMNS = tuple(item.name for item in fields(Row))
"""Columns of ``results.csv``."""


def rows_of(run: Run, truth: Callable[[str], float], best: float) -> list[Row]:
    """Return a run's rows.

    Args:
        run: The run.
        truth: True relative latency by route.
        best: True relative latency of the work's fastest eligible route.
    """
    rows: list[Row] = []
    incumbent: TrialRecord | None = None
    incumbent_true = tried_true = np.inf
    builds = 0
    for record, proposal_s in zip(run.records, run.proposal_s, strict=True):
        builds += was_built(record)
        if record.eligible and record.phase is not Phase.CONFIRMATION:
            true = truth(record.route)
            tried_true = min(tried_true, true)
            if incumbent is None or _measured(record) < _measured(incumbent):
                incumbent, incumbent_true = record, true
        assert incumbent is not None, "the baseline is eligible"
        low, high = record.ci95 or (None, None)
        rows.append(
            Row(
                work=run.key.work,
                sampler=run.key.sampler,
                seed=run.key.seed,
                trial=record.number,
                builds=builds,
                seconds=record.elapsed_s,
                phase=str(record.phase),
                outcome=str(record.outcome),
                failure=record.failure,
                eligible=record.eligible,
                relative_latency=record.relative_latency,
                ci95_low=low,
                ci95_high=high,
                violation=record.violation,
                fingerprint=record.fingerprint,
                reused_from=record.reused_from,
                build_s=record.build_s,
                check_s=record.check_s,
                time_s=record.time_s,
                proposal_s=proposal_s,
                incumbent=incumbent.number,
                incumbent_measured=_measured(incumbent),
                incumbent_true=incumbent_true,
                tried_true=tried_true,
                regret=incumbent_true / best - 1.0,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class Reached:
    """When something was reached, or until when it was not.

    Attributes:
        at: When it was reached; the end of the run if it was not.
        reached: Whether it was.
    """

    at: float
    reached: bool


@dataclass(frozen=True)
class Trace:
    """The course of one run, as arrays over its trials.

    Attributes:
        key: Which run it is.
        builds: Builds so far.
        seconds: Seconds so far.
        regret: Regret of the incumbent.
        tried_regret: Regret of the best route tried.
        shares: Share of the trials after the baseline, by outcome.
        proposal_s: Seconds of each proposal after the baseline.
        stopped: Why the run ended.
    """

    key: RunKey
    builds: npt.NDArray[np.int64]
    seconds: Floats
    regret: Floats
    tried_regret: Floats
    shares: Mapping[str, float]
    proposal_s: Floats
    stopped: str = ""

    @cached_property
    def trials(self) -> int:
        """Trials after the baseline."""
        return len(self.builds) - 1

    def regret_at_builds(self, counts: Sequence[float] | Floats) -> Floats:
        """Return the regret after so many builds; a run that ended stays where it was."""
        return self._regret_at(self.builds, counts)

    def regret_at_seconds(self, seconds: Sequence[float] | Floats) -> Floats:
        """Return the regret after so many seconds; before the baseline was measured, its own."""
        return self._regret_at(self.seconds, seconds)

    def builds_to(self, share: float) -> Reached:
        """Return the builds after which the incumbent first was within ``share`` of the best."""
        return self._reached(self.builds, share)

    def seconds_to(self, share: float) -> Reached:
        """Return the seconds after which the incumbent first was within ``share`` of the best."""
        return self._reached(self.seconds, share)

    def _reached(self, clock: npt.NDArray[np.generic], share: float) -> Reached:
        within = np.flatnonzero(self.regret <= share + 1e-12)
        if within.size:
            return Reached(float(clock[within[0]]), True)
        return Reached(float(clock[-1]), False)

    def _regret_at(self, clock: npt.NDArray[np.generic], at: Sequence[float] | Floats) -> Floats:
        last = np.searchsorted(clock, np.asarray(at, dtype=float), side="right") - 1
        picked: Floats = self.regret[np.maximum(last, 0)]
        return picked


def trace_of(run: Run, rows: Sequence[Row], best: float) -> Trace:
    """Return the course of a run whose rows are ``rows``."""
    after = [row for row in rows if row.phase != Phase.BASELINE]
    counts = Counter(row.outcome for row in after)
    total = max(len(after), 1)
    return Trace(
        key=run.key,
        builds=np.array([row.builds for row in rows], dtype=np.int64),
        seconds=np.array([row.seconds for row in rows]),
        regret=np.array([row.regret for row in rows]),
        tried_regret=np.array([row.tried_true / best - 1.0 for row in rows]),
        shares={str(outcome): counts[str(outcome)] / total for outcome in Outcome},
        proposal_s=np.array([row.proposal_s for row in after]),
        stopped=run.stopped,
    )


def _measured(record: TrialRecord) -> float:
    return float("inf") if record.relative_latency is None else record.relative_latency
