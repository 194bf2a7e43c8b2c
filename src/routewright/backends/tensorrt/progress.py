"""Watching a build and stopping it when its time is up, before anybody has to kill it."""

from __future__ import annotations

import threading
import time
from typing import Any


class BuildWatch:
    """Counts a build's steps and says when to stop; safe to call from any thread.

    Args:
        deadline_s: Time on ``time.monotonic`` at which the build should stop, or None.

    Attributes:
        stopped: Whether it told the library to stop.
        steps: Steps completed so far.
        phase: The phase that began last.
    """

    def __init__(self, deadline_s: float | None) -> None:
        self.deadline_s = deadline_s
        self.stopped = False
        self.steps = 0
        self.phase = ""
        self._lock = threading.Lock()

    def begin(self, phase: str) -> None:
        """Note that ``phase`` began."""
        with self._lock:
            self.phase = phase

    def may_go_on(self) -> bool:
        """Count a step and return whether there is time for more."""
        with self._lock:
            self.steps += 1
            if self.deadline_s is not None and time.monotonic() >= self.deadline_s:
                self.stopped = True
            return not self.stopped


def make_monitor(module: Any, watch: BuildWatch) -> Any:
    """Return a progress monitor of the library ``module`` that asks ``watch``.

    The library keeps a bare pointer to it, so the caller holds it until the build has returned.
    """
    base: Any = module.IProgressMonitor

    class Monitor(base):  # type: ignore[misc]
        def __init__(self) -> None:
            base.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            watch.begin(phase_name)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return watch.may_go_on()

        def phase_finish(self, phase_name: str) -> None:
            pass

    return Monitor()
