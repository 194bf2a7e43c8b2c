"""How long a study has been worked on, agreed on by workers whose clocks do not agree.

No time of day is ever compared: every worker counts seconds on its own monotonic clock, tells its
count with each beat of its lease, and takes over a larger count that it sees. A jump of a wall
clock, or two hosts an hour apart, change nothing. Seconds in which no worker is there are not
counted, as a resumed ``tune`` does not count them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from routewright.budget import Budget


class StudyClock:
    """Seconds of a study as one worker knows them.

    Args:
        started_s: When this worker started, on ``now_s``.
        now_s: A monotonic clock.
    """

    def __init__(self, started_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._started_s = started_s
        self._before_s = 0.0
        self._others_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the study's first worker started."""
        return self._before_s + self.machine_s

    @property
    def machine_s(self) -> float:
        """Seconds that this worker has been there."""
        return self._now_s() - self._started_s

    @property
    def total_machine_s(self) -> float:
        """Seconds that all workers together have been there, as far as their beats told."""
        return self._others_s + self.machine_s

    def hear(self, elapsed_s: float, others_machine_s: float) -> None:
        """Take over what others told: the largest count, and their machine-seconds together."""
        self._before_s += max(0.0, elapsed_s - self.elapsed_s)
        self._others_s = max(self._others_s, others_machine_s)


class SharedBudget(Budget):
    """A budget that several workers use together.

    Args:
        limit_s: Wall-clock seconds from the start of the study's first worker.
        clock: The study's clock.
        machine_limit_s: Machine-seconds of all workers together, or None.
        bench_now_s: The clock that trials are held to; runs ``1 / pace`` times as fast as time.
        pace: Real seconds for each second of ``bench_now_s``.
    """

    def __init__(
        self,
        limit_s: float,
        *,
        clock: StudyClock,
        machine_limit_s: float | None = None,
        bench_now_s: Callable[[], float] = time.monotonic,
        pace: float = 1.0,
    ) -> None:
        super().__init__(limit_s, now_s=bench_now_s, started_s=bench_now_s())
        self.machine_limit_s = machine_limit_s
        self._clock = clock
        self._pace = pace
        self._curtailed_s = float("inf")
        self.workers = 1
        """How many workers share what is left of the machine-seconds."""
        self.refresh()

    @property
    def wall_left_s(self) -> float:
        """Real seconds that are left for this worker."""
        left_s = self.limit_s - self._clock.elapsed_s
        if self.machine_limit_s is not None:
            machine_left_s = self.machine_limit_s - self._clock.total_machine_s
            left_s = min(left_s, machine_left_s / max(self.workers, 1))
        return left_s

    @property
    def used_s(self) -> float:
        """Seconds since the study's first worker started."""
        return self._clock.elapsed_s

    @property
    def remaining_s(self) -> float:
        """Real seconds left; below 0 once it is overrun."""
        return self.wall_left_s

    def refresh(self) -> None:
        """Bring the end, as the clock of trials shows it, up to date with what others told."""
        self.end_s = self.now_s() + self.wall_left_s / self._pace
