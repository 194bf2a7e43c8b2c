"""Where trials are carried out: the protocol between a trial and what builds and times engines.

Two things implement it: :class:`routewright.worker.client.Worker`, a child process with a backend
in it, on the machine's monotonic clock; and the replay workbench, a recorded table on a simulated
clock. A trial cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build yielded.

    Attributes:
        build_s: Seconds from the request to an engine that has run once.
        fingerprint: The engine's fingerprint, or None where the backend has none.
        notes: Warnings and remarks, one line each.
    """

    build_s: float
    fingerprint: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How an engine's outputs compare with the reference.

    Attributes:
        losses: Worst loss over the checked samples, by output name; infinity where the output is
            not comparable (NaN or infinity that the reference has not, wrong shape or dtype).
        reasons: Why an output is not comparable, by output name; empty where all are.
        check_s: Seconds spent.
    """

    losses: Mapping[str, float]
    reasons: Mapping[str, str]
    check_s: float


@dataclass(frozen=True, slots=True)
class Block:
    """One interleaved pair of timing blocks.

    Attributes:
        baseline_ms: Latency of each baseline run, in ms.
        candidate_ms: Latency of each candidate run, in ms.
        wall_s: Seconds that the pair took, warm-up and settling included.
    """

    baseline_ms: tuple[float, ...]
    candidate_ms: tuple[float, ...]
    wall_s: float


class TrialFailure(Exception):
    """A trial could not be finished; the study goes on.

    Args:
        kind: ``"crash"``, ``"oom"``, ``"timeout"``, ``"unsupported"``, ``"sticky"`` or
            ``"error"``.
        message: One line.
        log: The tail of what the worker wrote to its standard error.
        transient: Whether trying once more is reasonable.
    """

    def __init__(self, kind: str, message: str, *, log: str = "", transient: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.log = log
        self.transient = transient


class Workbench(Protocol):
    """Builds, checks and times engines held in named slots (``"baseline"``, ``"candidate"``)."""

    def now_s(self) -> float:
        """Return this workbench's clock: seconds, monotonic, from an arbitrary start."""

    def build(self, slot: str, route: str, *, deadline_s: float) -> BuildReport:
        """Build ``route`` into ``slot``, replacing what is there.

        Args:
            slot: Name of the slot.
            route: The route as the compiler writes it; empty for the default route.
            deadline_s: Time on :meth:`now_s` at which the build is killed.

        Raises:
            TrialFailure: The route could not be built, or not in time.
        """

    def check(self, slot: str, *, samples: Sequence[int] | None, deadline_s: float) -> CheckReport:
        """Compare the slot's outputs with the reference on ``samples`` (None: all).

        Raises:
            TrialFailure: The engine crashed or did not finish in time.
        """

    def time_pair(
        self, *, runs: int, warmup_runs: int, candidate_first: bool, deadline_s: float
    ) -> Block:
        """Time ``runs`` runs of the baseline slot and of the candidate slot, one block each.

        Raises:
            TrialFailure: An engine crashed or did not finish in time.
        """

    def restore(self, *, deadline_s: float) -> None:
        """Build again what was lost with a process of the bench's; worth it between trials.

        Raises:
            TrialFailure: It could not be built again, or not in time.
        """

    def save(self, slot: str, folder: Path) -> dict[str, str]:
        """Write the slot's engine into ``folder`` and return its files' SHA-256 by name.

        A bench that has no engines to save, such as a replayed table, writes nothing and returns
        nothing.
        """

    def drop(self, slot: str) -> None:
        """Free the slot; an empty slot is allowed."""

    def restart(self) -> None:
        """Empty every slot and go on in a fresh process: nothing of earlier builds remains."""

    def environment(self) -> dict[str, Any]:
        """Return what results depend on (see :meth:`routewright.backends.base.Backend`)."""

    def health(self) -> dict[str, Any]:
        """Return readings such as clocks and foreign load."""

    def close(self) -> None:
        """End it; calling it twice is allowed."""
