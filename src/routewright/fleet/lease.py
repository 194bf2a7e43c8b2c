"""Who is alive: a counter that every worker raises, watched by all others.

With ask and tell Optuna writes no heartbeats, and its journal and gRPC storages have none at all.
So each worker keeps one user attribute of the study, its *lease*, and raises a counter in it.
Others note, each on its own monotonic clock, for how long they have not seen the counter change;
times of day are not compared. Only time in which the storage could be read counts, so that an
outage of the storage, or of the watcher itself, condemns nobody.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import optuna

from routewright.fleet.clock import StudyClock
from routewright.storage import STORAGE_FAULTS

PREFIX = "worker:"
"""User attributes of a study that start so are leases."""

DEFAULT_LEASE_S = 60.0

_BEATS = 6
"""Beats within a lease."""


@dataclass(frozen=True)
class Beat:
    """A lease as it is stored.

    Attributes:
        count: Raised with every beat.
        elapsed_s: The study's seconds, as this worker counts them.
        machine_s: This worker's seconds.
        host: Where it runs, for people.
        pid: Its process, for people.
        left: Whether it said goodbye.
    """

    count: int
    elapsed_s: float
    machine_s: float
    host: str = ""
    pid: int = 0
    left: bool = False


def beats_in(attributes: Mapping[str, Any]) -> dict[str, Beat]:
    """Return the leases among a study's user attributes, by worker."""
    found: dict[str, Beat] = {}
    for key, value in attributes.items():
        if key.startswith(PREFIX) and isinstance(value, dict):
            found[key.removeprefix(PREFIX)] = Beat(
                count=int(value.get("count", 0)),
                elapsed_s=max(float(value.get("elapsed_s", 0.0)), 0.0),
                machine_s=max(float(value.get("machine_s", 0.0)), 0.0),
                host=str(value.get("host", "")),
                pid=int(value.get("pid", 0)),
                left=bool(value.get("left", False)),
            )
    return found


def new_worker_name() -> str:
    """Return a name that no other worker has or had."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


class Watch:
    """Says which workers are gone.

    Args:
        lease_s: A worker is gone when its counter was not seen to change for so long.
        now_s: A monotonic clock.
    """

    def __init__(self, lease_s: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.lease_s = lease_s
        self._now_s = now_s
        self._looked_s: float | None = None
        self._counts: dict[str, int] = {}
        self._silent_s: dict[str, float] = {}
        self._left: set[str] = set()

    def look(self, beats: Mapping[str, Beat]) -> None:
        """Take in the leases as they are now."""
        now_s = self._now_s()
        # A longer gap means that nobody was looking, not that nobody was there.
        gap_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        gap_s = min(gap_s, 1.5 * self.lease_s / _BEATS)
        self._looked_s = now_s
        for worker in {*self._silent_s, *beats}:
            beat = beats.get(worker)
            count = -1 if beat is None else beat.count
            if beat is not None and beat.left:
                self._left.add(worker)
            if worker not in self._counts or self._counts[worker] != count:
                self._counts[worker] = count
                self._silent_s[worker] = 0.0
            else:
                self._silent_s[worker] += gap_s

    def is_gone(self, worker: str) -> bool:
        """Whether a worker has left, or has not been heard of for a lease."""
        if worker in self._left:
            return True
        return self._silent_s.setdefault(worker, 0.0) >= self.lease_s


class Lease:
    """This worker's lease: a thread that raises the counter and watches the others'.

    Args:
        study: The study.
        worker: This worker's name.
        watch: Takes in what others' leases say.
        clock: The study's clock, told with every beat.
        hear: Hears the study's user attributes with every beat.
    """

    def __init__(
        self,
        study: optuna.Study,
        worker: str,
        *,
        watch: Watch,
        clock: StudyClock,
        hear: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.worker = worker
        self.watch = watch
        self._study = study
        self._clock = clock
        self._hear = hear
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Beat once, so that others know of this worker before its first trial, and go on."""
        self.beat()
        self._thread.start()

    def beat(self, *, left: bool = False) -> None:
        """Raise the counter, and look at the others'.

        Raises:
            Exception: What the storage raises where it cannot be reached.
        """
        self._count += 1
        # Numbers first: what is told is at most a beat old when the next worker joins.
        self._study.set_user_attr(
            f"{PREFIX}{self.worker}",
            {
                "count": self._count,
                "elapsed_s": round(self._clock.elapsed_s, 3),
                "machine_s": round(self._clock.machine_s, 3),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "left": left,
            },
        )
        attributes = self._study.user_attrs
        beats = beats_in(attributes)
        beats.pop(self.worker, None)
        self.watch.look(beats)
        self._clock.hear(
            max((beat.elapsed_s for beat in beats.values()), default=0.0),
            sum(beat.machine_s for beat in beats.values()),
        )
        self._hear(attributes)

    def end(self) -> None:
        """Say goodbye; a storage that is away hears nothing and waits for the lease to end."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5.0)
        try:
            self.beat(left=True)
        except STORAGE_FAULTS:
            return

    def _run(self) -> None:
        while not self._stop.wait(self.watch.lease_s / _BEATS):
            try:
                self.beat()
            except STORAGE_FAULTS:
                # The storage is away; everybody's lease stands still until it is back.
                continue
