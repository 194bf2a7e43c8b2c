"""What is kept of every trial, and how it is written into an Optuna trial's attributes.

A record is the single account of a trial: samplers, reports and priors read records, never raw
Optuna attributes. Names of attributes carry their units and are a file format: changing one needs
a new :data:`SCHEMA_VERSION`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from optuna.trial import FrozenTrial, TrialState

SCHEMA_VERSION = 1

RECORD = "record"
"""Attribute that holds a whole record. Shared studies write it in one piece, so that a killed
worker leaves all of a record or nothing; other studies have an attribute for each field."""

LOST = "lost"
"""Attribute of a trial that was taken from its worker: why, and what it was for."""

WORST_VIOLATION = 1e6
"""Constraint amount of a trial that crashed, timed out or gave outputs that cannot be compared."""


class Outcome(StrEnum):
    """How a trial ended."""

    TIMED = "timed"
    """Built, eligible, timed until its interval was tight or its time cap was reached."""
    SLOW = "slow"
    """Built and eligible; timing ended early because it is clearly no contender."""
    SCREENED = "screened"
    """Built for its fingerprint only; neither checked nor timed."""
    REUSED = "reused"
    """Its route or fingerprint was known; the earlier result stands for it."""
    INACCURATE = "inaccurate"
    """Built; an output broke the accuracy bound."""
    FAILED = "failed"
    """Not built, crashed, timed out or ran out of memory."""


class Phase(StrEnum):
    """Which part of a study asked for a trial."""

    BASELINE = "baseline"
    SCREENING = "screening"
    SEARCH = "search"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One finished trial.

    Attributes:
        number: The Optuna trial's number.
        route: The route in canonical form; empty for the default route.
        phase: Who asked for it.
        outcome: How it ended.
        origin: For people: why this route was proposed.
        reason: One line for people: why it failed, was pruned or was reused.
        failure: Kind of failure (``"crash"``, ``"oom"``, ``"timeout"``, ``"unsupported"``,
            ``"error"`` ...), empty unless the outcome is FAILED.
        fingerprint: The engine's fingerprint, or None.
        build_s: Seconds of the build, or None if none happened.
        check_s: Seconds of the accuracy check, or None.
        time_s: Seconds of timing, or None.
        saved_s: Seconds of timing that giving it up early likely saved, or None.
        latency_ms: Median latency of the candidate, or None.
        baseline_ms: Median latency of the baseline measured beside it, or None.
        relative_latency: Candidate time / baseline time; below 1 is faster. None if not timed.
        ci95: 95% interval of ``relative_latency``, or None.
        losses: Worst loss over the samples, by output name; empty if not checked.
        violation: Signed amount by which the bound is exceeded; above 0 is not eligible. None if
            the outputs were not checked.
        reused_from: Number of the trial whose result stands for this one, or None.
        log_ratios: One log(candidate / baseline) for each timing pair.
        notes: Remarks of the backend, one line each.
        elapsed_s: Seconds of the budget used when the trial ended.
        log: What the worker printed at the end of a trial that failed; kept as a file of the
            trial, not as one of its attributes.
    """

    number: int
    route: str
    phase: Phase
    outcome: Outcome
    origin: str = ""
    reason: str = ""
    failure: str = ""
    fingerprint: str | None = None
    build_s: float | None = None
    check_s: float | None = None
    time_s: float | None = None
    saved_s: float | None = None
    latency_ms: float | None = None
    baseline_ms: float | None = None
    relative_latency: float | None = None
    ci95: tuple[float, float] | None = None
    losses: Mapping[str, float] = field(default_factory=dict)
    violation: float | None = None
    reused_from: int | None = None
    log_ratios: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    log: str = ""

    @property
    def eligible(self) -> bool:
        """Whether it built, ran and met the bound, and so may win."""
        return self.relative_latency is not None and (self.violation or 0.0) <= 0.0

    @property
    def log_relative_latency(self) -> float | None:
        """Natural logarithm of ``relative_latency``, or None if it was not timed."""
        return None if self.relative_latency is None else math.log(self.relative_latency)

    @property
    def log_sd(self) -> float | None:
        """Standard error of :attr:`log_relative_latency` that its interval implies."""
        if self.ci95 is None:
            return None
        return (math.log(self.ci95[1]) - math.log(self.ci95[0])) / (2 * 1.96)

    @property
    def cost_s(self) -> float:
        """Seconds that the trial took: build, check and timing."""
        return (self.build_s or 0.0) + (self.check_s or 0.0) + (self.time_s or 0.0)

    def standing_for(self, number: int, route: str, *, phase: Phase, reason: str) -> TrialRecord:
        """Return the record of another route that gave the same engine as this one.

        Args:
            number: Trial number of the other route.
            route: The other route.
            phase: Who asked for it.
            reason: Why this record stands for it.
        """
        origin = self.number if self.reused_from is None else self.reused_from
        return replace(
            self,
            number=number,
            route=route,
            phase=phase,
            outcome=Outcome.REUSED,
            reason=reason,
            reused_from=origin,
            build_s=None,
            check_s=None,
            time_s=None,
            saved_s=None,
            log_ratios=(),
        )

    def to_attributes(self) -> dict[str, Any]:
        """Return the record as JSON values, in a stable order, without the trial number.

        What was not measured is left out: every attribute costs a storage a round trip.
        """
        attributes: dict[str, Any] = {}
        for item in fields(self):
            if item.name in _LEFT_OUT:
                continue
            value = getattr(self, item.name)
            if isinstance(value, StrEnum):
                value = str(value)
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Mapping):
                value = {name: _finite_or_text(loss) for name, loss in value.items()}
            if value not in (None, "", [], {}) or item.name in _ALWAYS:
                attributes[item.name] = value
        return attributes

    @classmethod
    def from_attributes(cls, number: int, attributes: Mapping[str, Any]) -> TrialRecord:
        """Read a record back; attributes of other names are left alone.

        Raises:
            KeyError: ``route``, ``phase`` or ``outcome`` is missing: not a trial of ours.
        """
        ci95 = attributes.get("ci95")
        return cls(
            number=number,
            route=attributes["route"],
            phase=Phase(attributes["phase"]),
            outcome=Outcome(attributes["outcome"]),
            origin=attributes.get("origin", ""),
            reason=attributes.get("reason", ""),
            failure=attributes.get("failure", ""),
            fingerprint=attributes.get("fingerprint"),
            build_s=attributes.get("build_s"),
            check_s=attributes.get("check_s"),
            time_s=attributes.get("time_s"),
            saved_s=attributes.get("saved_s"),
            latency_ms=attributes.get("latency_ms"),
            baseline_ms=attributes.get("baseline_ms"),
            relative_latency=attributes.get("relative_latency"),
            ci95=None if ci95 is None else (float(ci95[0]), float(ci95[1])),
            losses={k: float(v) for k, v in (attributes.get("losses") or {}).items()},
            violation=attributes.get("violation"),
            reused_from=attributes.get("reused_from"),
            log_ratios=tuple(attributes.get("log_ratios") or ()),
            notes=tuple(attributes.get("notes") or ()),
            elapsed_s=attributes.get("elapsed_s", 0.0),
        )


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """Return the record of a trial, or None if it has none: unfinished, lost, or not ours."""
    attributes: Mapping[str, Any] = trial.user_attrs
    if not trial.state.is_finished():
        return None
    if LOST in attributes and trial.state is TrialState.FAIL:
        attributes = attributes[LOST].get(RECORD) or {}
    else:
        attributes = attributes.get(RECORD, attributes)
    if "outcome" not in attributes:
        return None
    return TrialRecord.from_attributes(trial.number, attributes)


_LEFT_OUT = frozenset({"number", "log"})
_ALWAYS = frozenset({"route", "phase", "outcome"})


def _finite_or_text(value: float) -> float | str:
    # JSON has no infinity; PostgreSQL's JSON refuses Python's extension of it.
    return value if math.isfinite(value) else str(value)
