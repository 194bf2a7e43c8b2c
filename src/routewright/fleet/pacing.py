"""Replaying a table in real time, so that several workers can share a budget.

A replay has a clock of its own, on which nothing but the recorded seconds pass. Workers share
nothing but real time, in which storage and search take their share too. Here a replay's seconds
are real ones, shortened or drawn out by its pace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from routewright.replay import ReplayBench
from routewright.workbench import Block, BuildReport, CheckReport


class RealTimeReplay:
    """A :class:`routewright.workbench.Workbench` over a replay whose clock is real time.

    Args:
        bench: The replay; sleeps ``pace`` real seconds for each of its own.
        pace: Real seconds for each second of this clock, above 0.
        now_s: A monotonic clock.
    """

    def __init__(
        self, bench: ReplayBench, pace: float, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._bench = bench
        self._pace = pace
        self._now_s = now_s
        self._began_s = now_s()

    def now_s(self) -> float:
        """Return the clock: real seconds since the start, divided by the pace."""
        return (self._now_s() - self._began_s) / self._pace

    def build(self, slot: str, route: str, *, deadline_s: float) -> BuildReport:
        """Build as the replay does."""
        return self._bench.build(slot, route, deadline_s=self._theirs(deadline_s))

    def check(self, slot: str, *, samples: Sequence[int] | None, deadline_s: float) -> CheckReport:
        """Check as the replay does."""
        return self._bench.check(slot, samples=samples, deadline_s=self._theirs(deadline_s))

    def time_pair(
        self, *, runs: int, warmup_runs: int, candidate_first: bool, deadline_s: float
    ) -> Block:
        """Time as the replay does."""
        return self._bench.time_pair(
            runs=runs,
            warmup_runs=warmup_runs,
            candidate_first=candidate_first,
            deadline_s=self._theirs(deadline_s),
        )

    def restore(self, *, deadline_s: float) -> None:
        """Do nothing: no engine is ever lost."""

    def save(self, slot: str, folder: Path) -> dict[str, str]:
        """Write nothing: a table holds no engines."""
        return self._bench.save(slot, folder)

    def drop(self, slot: str) -> None:
        """Free the slot."""
        self._bench.drop(slot)

    def restart(self) -> None:
        """Empty every slot."""
        self._bench.restart()

    def environment(self) -> dict[str, Any]:
        """Return the environment that the table was recorded in."""
        return self._bench.environment()

    def health(self) -> dict[str, Any]:
        """Return nothing: there is no device."""
        return self._bench.health()

    def close(self) -> None:
        """Free everything."""
        self._bench.close()

    def _theirs(self, deadline_s: float) -> float:
        return self._bench.now_s() + deadline_s - self.now_s()
