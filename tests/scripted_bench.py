"""A workbench whose engines are numbers: true ratios, noise and faults by route, simulated time.

It stands for the machine, not for our code: everything above the workbench runs as it is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from routewright.workbench import Block, BuildReport, CheckReport, TrialFailure


@dataclass
class Engine:
    """How the engine of a route behaves."""

    ratio: float = 1.0
    loss: float = 0.0
    fingerprint: str | None = None
    build_s: float = 0.5
    failure: TrialFailure | None = None
    fails_at: str = "build"
    failures_left: int = 10**9


@dataclass
class ScriptedBench:
    """Engines by route; a route that is not listed is made by ``default``."""

    engines: dict[str, Engine] = field(default_factory=dict)
    default: Callable[[str], Engine] = lambda route: Engine(fingerprint=route)
    noise_sd: float = 0.01
    instance_sd: float = 0.0
    run_ms: float = 10.0
    seed: int = 0
    clock_s: float = 0.0
    calls: list[tuple[str, str]] = field(default_factory=list)
    glitches: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._slots: dict[str, tuple[str, float]] = {}
        self._timings = 0

    def _engine(self, route: str) -> Engine:
        if route not in self.engines:
            self.engines[route] = self.default(route)
        return self.engines[route]

    def _maybe_fail(self, engine: Engine, step: str) -> None:
        if engine.failure is not None and engine.fails_at == step and engine.failures_left > 0:
            engine.failures_left -= 1
            raise engine.failure

    def now_s(self) -> float:
        return self.clock_s

    def build(self, slot: str, route: str, *, deadline_s: float) -> BuildReport:
        self.calls.append(("build", route))
        engine = self._engine(route)
        self.clock_s += engine.build_s
        if self.clock_s > deadline_s:
            self.clock_s = deadline_s
            raise TrialFailure("timeout", "the build did not end in time")
        self._maybe_fail(engine, "build")
        self._slots[slot] = (route, self._random.gauss(0, self.instance_sd))
        self._timings += slot == "candidate"
        return BuildReport(engine.build_s, engine.fingerprint)

    def check(self, slot: str, *, samples: Sequence[int] | None, deadline_s: float) -> CheckReport:
        route, _ = self._slots[slot]
        self.calls.append(("check" if samples is None else "check first", route))
        engine = self._engine(route)
        self.clock_s += 0.05
        self._maybe_fail(engine, "check")
        reasons = {"y": "NaN"} if math.isinf(engine.loss) else {}
        return CheckReport({"y": engine.loss}, reasons, 0.05)

    def time_pair(
        self, *, runs: int, warmup_runs: int, candidate_first: bool, deadline_s: float
    ) -> Block:
        route, instance = self._slots["candidate"]
        _, baseline_instance = self._slots["baseline"]
        self.calls.append(("time", route))
        engine = self._engine(route)
        self._maybe_fail(engine, "timing")
        ratio = engine.ratio * self.glitches.get(self._timings, 1.0)
        ratio *= math.exp(instance - baseline_instance + self._random.gauss(0, self.noise_sd))
        seconds = (2 * (runs + warmup_runs)) * self.run_ms / 1e3
        self.clock_s += seconds
        return Block((self.run_ms,) * runs, (self.run_ms * ratio,) * runs, seconds)

    def save(self, slot: str, folder: Path) -> dict[str, str]:
        folder.mkdir()
        (folder / "engine").write_text(self._slots[slot][0])
        return {"engine": "digest"}

    def drop(self, slot: str) -> None:
        self._slots.pop(slot, None)

    def restart(self) -> None:
        self.calls.append(("restart", ""))
        self.clock_s += 1.0
        self._slots.clear()

    def environment(self) -> dict[str, Any]:
        return {"device": "scripted"}

    def health(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self._slots.clear()
