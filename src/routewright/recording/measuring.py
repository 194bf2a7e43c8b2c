"""Measuring one route for a recording: build, check, and timing beside the default engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from routewright.bounds import Limits
from routewright.recording.journal import Journal, loss_to_json
from routewright.tables.entries import log_ratios
from routewright.timing import TimingLimits, plan_blocks
from routewright.trial import BASELINE_SLOT, CANDIDATE_SLOT
from routewright.workbench import Block, TrialFailure
from routewright.worker.client import Worker

STEP_LIMIT_S = 300.0
"""Seconds that a build, a check or a timing may take."""

_LEAST_RUNS = 3
_SETTLING_S = 0.05


@dataclass(frozen=True, slots=True)
class Built:
    """What building and checking a route yielded.

    Attributes:
        route: The route.
        fingerprint: Its engine's, or None where it could not be built.
        failure: Step, kind and message, or None.
        losses: Worst loss by output name; empty where it could not be checked.
        build_s: Seconds of the build.
    """

    route: str
    fingerprint: str | None
    failure: tuple[str, str, str] | None
    losses: Mapping[str, float]
    build_s: float

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Built:
        """Read it from the journal."""
        failure = line.get("failure")
        return cls(
            route=line["route"],
            fingerprint=line.get("fingerprint"),
            failure=None if failure is None else (failure[0], failure[1], failure[2]),
            losses={name: float(loss) for name, loss in line.get("losses", {}).items()},
            build_s=float(line["build_s"]),
        )


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How timing is divided.

    Attributes:
        runs: Runs of each engine in a pair of blocks.
        warmup_runs: Uncounted runs before these.
        pairs: Pairs of blocks of a full timing.
        pair_s: Seconds that a pair of two default engines took.
    """

    runs: int
    warmup_runs: int
    pairs: int
    pair_s: float


@dataclass
class Measuring:
    """Measures routes and keeps what was measured in the journal.

    Attributes:
        worker: Holds the default engine in its baseline slot.
        journal: Where everything goes.
        limits: What makes a route eligible.
        plan: How timing is divided.
        timed: Log relative latency and its standard error by fingerprint, as far as timed.
        built: What is known by route.
    """

    worker: Worker
    journal: Journal
    limits: Limits
    plan: BlockPlan
    built: dict[str, Built] = field(default_factory=dict)
    timed: dict[str, tuple[float, float]] = field(default_factory=dict)
    fully_timed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for line in self.journal:
            if line["kind"] == "build" and line["purpose"] == "table":
                built = Built.from_line(line)
                self.built.setdefault(built.route, built)
            elif line["kind"] == "timing" and line["purpose"] in ("table", "quick"):
                self._remember(line)

    def route(self, route: str, *, timing: str = "", checked: bool = True) -> Built:
        """Build a route once; check and time its engine where that is not known yet.

        Args:
            route: The route.
            timing: ``"table"`` for a full timing, ``"quick"`` for a rough one, else none.
            checked: Whether its outputs are checked.
        """
        known = self.built.get(route)
        if known is not None and (known.losses or known.failure or not checked):
            lacks = known.fingerprint not in (
                self.fully_timed if timing == "table" else self.timed
            )
            if not timing or known.failure or not lacks:
                return known
        lines = self.fresh(
            route,
            purpose="table",
            timing=timing,
            checked=checked,
            skip_timing_of=self.fully_timed if timing == "table" else self.timed.keys(),
        )
        built = Built.from_line(lines[0])
        # The first build counts, unless it was not checked.
        if known is None or not (known.losses or known.failure):
            self.built[route] = built
        return built

    def fresh(
        self,
        route: str,
        *,
        purpose: str,
        timing: str = "",
        checked: bool = True,
        skip_timing_of: Any = (),
    ) -> list[dict[str, Any]]:
        """Build, check and time a route whatever is known of it, and return the new lines."""
        lines = [self._build(route, purpose, checked)]
        line = lines[0]
        eligible_for_timing = "failure" not in line and line["fingerprint"] not in skip_timing_of
        if timing and eligible_for_timing:
            try:
                timed = self._time(
                    self.plan.pairs if timing == "table" else max(6, self.plan.pairs // 2)
                )
            except TrialFailure as failure:
                line["failure"] = ["timing", failure.kind, failure.message]
            else:
                kept = timing if purpose == "table" else purpose
                lines.append(
                    {
                        "kind": "timing",
                        "purpose": kept,
                        "route": route,
                        "fingerprint": line["fingerprint"],
                        "generation": self.worker.generation,
                        **timed,
                    }
                )
        self.journal.append(*lines)
        for line in lines[1:]:
            if line["purpose"] in ("table", "quick"):
                self._remember(line)
        return lines

    def ensure_baseline(self) -> None:
        """Build the default engine that candidates are timed beside, where there is none."""
        self.worker.restore(deadline_s=self._deadline_s())

    def _build(self, route: str, purpose: str, checked: bool) -> dict[str, Any]:
        line: dict[str, Any] = {"kind": "build", "purpose": purpose, "route": route}
        self.ensure_baseline()
        started_s = self.worker.now_s()
        step = "build"
        try:
            report = self.worker.build(CANDIDATE_SLOT, route, deadline_s=self._deadline_s())
            line["build_s"] = self.worker.now_s() - started_s
            line["fingerprint"] = report.fingerprint
            if report.notes:
                line["notes"] = list(report.notes)
            if checked:
                step = "check"
                for key, samples in (("first", [0]), ("all", None)):
                    started_s = self.worker.now_s()
                    check = self.worker.check(
                        CANDIDATE_SLOT, samples=samples, deadline_s=self._deadline_s()
                    )
                    line[f"check_{key}_s"] = self.worker.now_s() - started_s
                    if key == "first":
                        line["first_losses"] = loss_to_json(check.losses)
                        continue
                    line["losses"] = loss_to_json(check.losses)
                    if check.reasons:
                        line["reasons"] = dict(check.reasons)
        except TrialFailure as failure:
            line["failure"] = [step, failure.kind, failure.message]
            line.setdefault("build_s", self.worker.now_s() - started_s)
        line["generation"] = self.worker.generation
        line["at_s"] = round(self.worker.now_s(), 1)
        return line

    def _time(self, pairs: int) -> dict[str, Any]:
        begun_s = self.worker.now_s()
        while True:
            self._pair(candidate_first=False)
            if self.worker.now_s() - begun_s > _SETTLING_S:
                break
        blocks = [self._pair(candidate_first=number % 2 == 1) for number in range(pairs)]
        return {
            "warmup_runs": self.plan.warmup_runs,
            "candidate_first": [number % 2 for number in range(pairs)],
            "baseline_ms": [list(block.baseline_ms) for block in blocks],
            "candidate_ms": [list(block.candidate_ms) for block in blocks],
            "wall_s": [block.wall_s for block in blocks],
        }

    def _pair(self, *, candidate_first: bool) -> Block:
        return self.worker.time_pair(
            runs=self.plan.runs,
            warmup_runs=self.plan.warmup_runs,
            candidate_first=candidate_first,
            deadline_s=self._deadline_s(),
        )

    def _deadline_s(self) -> float:
        return self.worker.now_s() + STEP_LIMIT_S

    def _remember(self, line: Mapping[str, Any]) -> None:
        fingerprint = str(line["fingerprint"])
        full = line["purpose"] == "table"
        if full or fingerprint not in self.fully_timed:
            self.timed[fingerprint] = log_ratio(line["baseline_ms"], line["candidate_ms"])
        if full:
            self.fully_timed.add(fingerprint)


def log_ratio(
    baseline_ms: Sequence[Sequence[float]], candidate_ms: Sequence[Sequence[float]]
) -> tuple[float, float]:
    """Return the median log ratio of paired blocks and its standard error."""
    ratios = log_ratios(np.array(baseline_ms), np.array(candidate_ms))
    # The two orders within pairs are averaged, which takes their difference out.
    couples = (ratios[0::2][: len(ratios) // 2] + ratios[1::2]) / 2
    spread = 1.4826 * float(np.median(np.abs(couples - np.median(couples))))
    return float(np.median(couples)), 1.2533 * spread / math.sqrt(len(couples))


def plan_timing(worker: Worker, *, target_s: float) -> BlockPlan:
    """Time the default engine against another of its kind to see how long a pair takes.

    Args:
        worker: Holds the default route in both slots.
        target_s: Seconds that a full timing should take.
    """
    limits = TimingLimits()
    walls_s: list[float] = []
    runs_ms: list[float] = []
    for number in range(12):
        block = worker.time_pair(
            runs=_LEAST_RUNS,
            warmup_runs=limits.warmup_runs,
            candidate_first=bool(number % 2),
            deadline_s=worker.now_s() + STEP_LIMIT_S,
        )
        walls_s.append(block.wall_s)
        runs_ms += [*block.baseline_ms, *block.candidate_ms]
    run_ms = median(runs_ms[len(runs_ms) // 2 :])
    wall_s = median(walls_s[len(walls_s) // 2 :])
    busy_ms = run_ms * (_LEAST_RUNS + limits.warmup_runs)
    runs, warmup_runs = plan_blocks(run_ms, max(0.0, wall_s * 1e3 / 2 - busy_ms), limits)
    runs = max(runs, _LEAST_RUNS)
    pair_s = wall_s + 2e-3 * run_ms * (runs + warmup_runs - _LEAST_RUNS - limits.warmup_runs)
    pairs = 2 * round(min(max(target_s / pair_s, 10), 24) / 2)
    return BlockPlan(runs, warmup_runs, pairs, pair_s)


def build_defaults(worker: Worker) -> None:
    """Build the default route into both slots."""
    for slot in (BASELINE_SLOT, CANDIDATE_SLOT):
        worker.build(slot, "", deadline_s=worker.now_s() + STEP_LIMIT_S)
