"""A child process that builds, checks and times engines, as its owner sees it.

Whatever goes wrong in a compiler happens there: a hang is killed at its deadline, a crash or an
exhausted memory ends that process only, and each becomes a :class:`TrialFailure` with a reason.
The next request starts a fresh child. See :mod:`routewright.worker.supervisor` for what makes sure
that nothing is left behind, and :mod:`routewright.worker.protocol` for what goes over the pipes.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from routewright.backends.base import Job
from routewright.bounds import AccuracyBound
from routewright.errors import StorageError
from routewright.files import explain_os_error, replace_atomic
from routewright.knobs import KnobDatabase
from routewright.tensors import TensorSpec
from routewright.workbench import Block, BuildReport, CheckReport, TrialFailure
from routewright.worker.answers import (
    BackendInfo,
    read_block,
    read_build,
    read_check,
    read_digests,
    read_mapping,
    read_nothing,
    read_specs,
    read_text,
)
from routewright.worker.child import Child, ChildSettings
from routewright.worker.memory import default_limit_bytes
from routewright.worker.protocol import job_to_json

_WATCH_WHILE_TIMING_S = 0.25
_DROP_S = 20.0

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Rebuild:
    """An engine that had to be built again because the child that held it is gone.

    Attributes:
        slot: Its slot.
        generation: Number of the child that holds it now.
        build_s: Seconds that the build took.
        same_engine: Whether its fingerprint is the same as before; None where the backend has no
            fingerprints.
    """

    slot: str
    generation: int
    build_s: float
    same_engine: bool | None


@dataclass(frozen=True, slots=True)
class _Slot:
    route: str
    fingerprint: str | None
    generation: int


class Worker:
    """A :class:`routewright.workbench.Workbench` in a child process, on the monotonic clock.

    The child starts with the first request, lives as long as it is healthy, and is replaced when
    it dies, when its device is lost, after ``recycle_after_builds`` builds, or when it leaks. An
    engine in one of the ``kept_slots`` that was lost with a child is built again when it is needed
    next, within that request's deadline, or by :meth:`restore`. An engine in any other slot is
    not: what was checked, what is timed and what is saved must be one engine.

    One request at a time; a second thread waits. Closing it, or leaving it as a context manager,
    ends the child. It also ends when this process does, however that happens.

    Args:
        job: What to build.
        backend: Name of the backend, or ``package.module:Class``.
        samples: Where :meth:`routewright.samples.SampleSet.save` wrote the inputs.
        references: Where it wrote the same inputs with reference outputs; may be the same file.
            :meth:`compute_references` can write it.
        bound: The accuracy bound; its losses are computed in the child.
        log_folder: Where the output of each child is kept, a file each.
        output_dtypes: Declared ONNX element type by output name; see
            :func:`routewright.accuracy.compare_outputs`.
        memory_limit_bytes: A child that uses more, with all it started, is killed. By default 80%
            of the memory that is available when the worker is made.
        data_limit_bytes: Limit on the child's private writable memory (``RLIMIT_DATA``), so that
            allocations fail instead of the child being killed. It counts what is reserved, not
            only what is used, so it fits no backend that reserves much; by default none.
        recycle_after_builds: Builds after which a child is replaced.
        grace_s: Seconds between the request to end and the kill.
        start_timeout_s: Seconds that a child may take to load the backend and the model.
        answer_timeout_s: Seconds for requests that have no deadline of their own.
        save_timeout_s: Seconds for writing an engine.
        kept_slots: Slots that outlive a child.

    Attributes:
        generation: Number of children so far.
        rebuilds: Engines that had to be built again, in order.
        memory_limit_bytes: Memory that a child may use.
    """

    def __init__(
        self,
        job: Job,
        *,
        backend: str,
        samples: Path,
        references: Path,
        bound: AccuracyBound,
        log_folder: Path,
        output_dtypes: Mapping[str, str] | None = None,
        memory_limit_bytes: int | None = None,
        data_limit_bytes: int | None = None,
        recycle_after_builds: int = 50,
        grace_s: float = 0.3,
        start_timeout_s: float = 120.0,
        answer_timeout_s: float = 60.0,
        save_timeout_s: float = 600.0,
        kept_slots: Sequence[str] = ("baseline",),
    ) -> None:
        if memory_limit_bytes is not None and memory_limit_bytes <= 0:
            raise ValueError(f"memory_limit_bytes must be above 0, not {memory_limit_bytes}")
        if recycle_after_builds < 1:
            raise ValueError(
                f"recycle_after_builds must be at least 1, not {recycle_after_builds}"
            )
        if grace_s < 0:
            raise ValueError(f"grace_s must be at least 0, not {grace_s}")
        self.generation = 0
        self.rebuilds: list[Rebuild] = []
        self.memory_limit_bytes = memory_limit_bytes or default_limit_bytes()
        self._settings = ChildSettings(
            start_params={
                "backend": backend,
                "job": job_to_json(job),
                "samples": str(samples.absolute()),
                "references": str(references.absolute()),
                "bound": bound.to_dict(),
                "output_dtypes": None if output_dtypes is None else dict(output_dtypes),
                "data_limit_bytes": data_limit_bytes,
            },
            work_folder=job.work_folder.absolute(),
            log_folder=log_folder.absolute(),
            memory_limit_bytes=self.memory_limit_bytes,
            most_builds=recycle_after_builds,
            grace_s=grace_s,
            start_timeout_s=start_timeout_s,
        )
        self._backend = backend
        self._answer_timeout_s = answer_timeout_s
        self._save_timeout_s = save_timeout_s
        self._kept_slots = frozenset(kept_slots)
        self._lock = threading.RLock()
        self._closed = False
        self._child: Child | None = None
        self._loss = TrialFailure("error", "there was no worker yet")
        self._slots: dict[str, _Slot] = {}

    @property
    def log_path(self) -> Path | None:
        """The file that takes the living child's output; None while there is no child."""
        child = self._child
        return None if child is None else child.log_path

    @property
    def child_pid(self) -> int | None:
        """Number of the process that everything started here descends from; None without one."""
        child = self._child
        return None if child is None else child.pid

    def now_s(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()

    def build(self, slot: str, route: str, *, deadline_s: float) -> BuildReport:
        """Build ``route`` into ``slot``, replacing what is there, and run it once.

        Raises:
            TrialFailure: The route could not be built, or not in time; the slot is then empty.
            RouteError: The route does not fit the backend's knobs.
        """
        with self._lock:
            _require_time(deadline_s, "the build")
            self._drop(slot, deadline_s)
            self._replace_if_worn()
            return self._build(slot, route, deadline_s)

    def check(self, slot: str, *, samples: Sequence[int] | None, deadline_s: float) -> CheckReport:
        """Compare the slot's outputs with the reference on ``samples`` (None: all).

        Raises:
            TrialFailure: The engine failed, crashed or did not finish in time.
        """
        with self._lock:
            begin_s = time.monotonic()
            child = self._child_with((slot,), deadline_s, "the accuracy check")
            return child.ask(
                "check",
                {"slot": slot, "samples": None if samples is None else list(samples)},
                lambda answer: read_check(answer, time.monotonic() - begin_s),
                doing="the accuracy check",
                deadline_s=deadline_s,
            )

    def time_pair(
        self, *, runs: int, warmup_runs: int, candidate_first: bool, deadline_s: float
    ) -> Block:
        """Time ``runs`` runs of ``"baseline"`` and of ``"candidate"``, on the first sample.

        Raises:
            TrialFailure: An engine failed, crashed or did not finish in time.
        """
        if runs < 1 or warmup_runs < 0:
            raise ValueError(f"cannot time {runs} runs after {warmup_runs} warm-up runs")
        with self._lock:
            begin_s = time.monotonic()
            child = self._child_with(("baseline", "candidate"), deadline_s, "the timing")
            return child.ask(
                "time_pair",
                {"runs": runs, "warmup_runs": warmup_runs, "candidate_first": candidate_first},
                lambda answer: read_block(answer, runs, time.monotonic() - begin_s),
                doing="the timing",
                deadline_s=deadline_s,
                watch_s=_WATCH_WHILE_TIMING_S,
            )

    def compute_references(self, *, deadline_s: float) -> CheckReport:
        """Run the original model on all samples and write the reference outputs.

        Returns:
            How a second run compares; a loss is above 0 where the model does not give the same
            outputs for the same inputs.

        Raises:
            TrialFailure: The model failed, crashed or did not finish in time.
        """
        with self._lock:
            _require_time(deadline_s, "the reference run")
            begin_s = time.monotonic()
            return self._started_child(deadline_s).ask(
                "compute_references",
                {},
                lambda answer: read_check(answer, time.monotonic() - begin_s),
                doing="the reference run",
                deadline_s=deadline_s,
            )

    def restore(self, *, deadline_s: float) -> None:
        """Build again what the kept slots held before their child was lost.

        Worth calling between trials: otherwise the next trial's deadline has to cover it.

        Raises:
            TrialFailure: It could not be built again, or not in time.
        """
        with self._lock:
            kept = tuple(slot for slot in sorted(self._slots) if slot in self._kept_slots)
            if kept:
                self._child_with(kept, deadline_s, "the rebuild")

    def save(self, slot: str, folder: Path) -> dict[str, str]:
        """Write the slot's engine into ``folder`` and return its files' SHA-256 by name.

        An engine that was lost with its child is not built again for this: what is saved is what
        was measured.

        Raises:
            StorageError: The folder holds something already, or cannot be written.
            TrialFailure: The engine is lost, or cannot be saved.
        """
        with self._lock:
            child = self._child_with((slot,), math.inf, "the saving", rebuild=False)
            folder = folder.absolute()
            part = folder.parent / f".{folder.name}.{os.getpid()}.part"
            _make_folder(part)
            try:
                digests = child.ask(
                    "save",
                    {"slot": slot, "folder": str(part)},
                    read_digests,
                    doing="the saving",
                    deadline_s=time.monotonic() + self._save_timeout_s,
                )
                replace_atomic(part, folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            return digests

    def drop(self, slot: str) -> None:
        """Free the slot; an empty slot is allowed."""
        with self._lock:
            self._drop(slot, math.inf)

    def restart(self) -> None:
        """Empty every slot and go on in a fresh process: nothing of earlier builds remains."""
        with self._lock:
            self._slots.clear()
            child = self._living_child()
            if child is not None:
                child.close()

    def environment(self) -> dict[str, Any]:
        """Return what results depend on (see :meth:`routewright.backends.base.Backend`)."""
        with self._lock:
            return self._ask("environment", read_mapping, "the look at the environment")

    def health(self) -> dict[str, Any]:
        """Return readings such as clocks and foreign load."""
        with self._lock:
            return self._ask("health", read_mapping, "the look at the device")

    def knob_database(self) -> KnobDatabase:
        """Return the knobs of the backend for this model."""
        with self._lock:
            text = self._ask("knobs", read_text, "the listing of knobs")
            return KnobDatabase.from_json(text, source=f"the backend {self._backend}")

    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs that an engine expects from its user."""
        with self._lock:
            return self._ask("inputs", read_specs, "the listing of inputs")

    def backend_info(self) -> BackendInfo:
        """Return what the backend is."""
        with self._lock:
            return self._started_child(math.inf).info

    def close(self) -> None:
        """End the child and everything it started; calling it twice is allowed."""
        with self._lock:
            self._closed = True
            self._slots.clear()
            if self._child is not None:
                self._child.close()
                self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _drop(self, slot: str, deadline_s: float) -> None:
        held = self._slots.pop(slot, None)
        child = self._living_child()
        if held is None or child is None or held.generation != child.number:
            return
        try:
            child.ask(
                "drop",
                {"slot": slot},
                read_nothing,
                doing="the freeing of an engine",
                deadline_s=min(deadline_s, time.monotonic() + _DROP_S),
            )
        except TrialFailure:
            # The slot is free in any case, if need be with the whole child.
            child.close()
        else:
            child.look_for_leak(frozenset(self._loaded()))

    def _build(self, slot: str, route: str, deadline_s: float) -> BuildReport:
        child = self._started_child(deadline_s)
        child.builds += 1
        report = child.ask(
            "build",
            {"slot": slot, "route": route},
            read_build,
            doing="the build",
            deadline_s=deadline_s,
        )
        self._slots[slot] = _Slot(route, report.fingerprint, child.number)
        return report

    def _child_with(
        self, slots: Sequence[str], deadline_s: float, doing: str, *, rebuild: bool = True
    ) -> Child:
        """Return a child that holds these slots' engines."""
        _require_time(deadline_s, doing)
        for slot in slots:
            if slot not in self._slots:
                raise ValueError(f"slot {slot!r} is empty; build into it first")
        self._living_child()
        loaded = self._loaded()
        lost = [slot for slot in slots if slot not in loaded]
        for slot in lost:
            if not rebuild or slot not in self._kept_slots:
                raise self._loss_of(slot)
        for slot in lost:
            self._rebuild(slot, deadline_s)
        # One that died just now is found out by asking it, not replaced by one without engines.
        return self._child or self._started_child(deadline_s)

    def _rebuild(self, slot: str, deadline_s: float) -> None:
        before = self._slots[slot]
        try:
            report = self._build(slot, before.route, deadline_s)
        except TrialFailure as failure:
            # Not the fault of the trial that needs it.
            raise TrialFailure(
                failure.kind,
                f"{slot} could not be built again for a new worker: {failure.message}",
                log=failure.log,
                transient=True,
            ) from failure
        known = before.fingerprint is not None and report.fingerprint is not None
        same = before.fingerprint == report.fingerprint if known else None
        self.rebuilds.append(Rebuild(slot, self.generation, report.build_s, same))

    def _loss_of(self, slot: str) -> TrialFailure:
        return TrialFailure(
            self._loss.kind,
            f"the engine in slot {slot!r} is lost: {self._loss.message}",
            log=self._loss.log,
            transient=self._loss.transient,
        )

    def _loaded(self) -> list[str]:
        """Return the slots whose engines the living child holds."""
        number = None if self._child is None else self._child.number
        return sorted(slot for slot, held in self._slots.items() if held.generation == number)

    def _ask(self, method: str, read: Callable[[Any], _Result], doing: str) -> _Result:
        """Ask for something that has no deadline of its own."""
        child = self._started_child(math.inf)
        deadline_s = time.monotonic() + self._answer_timeout_s
        return child.ask(method, {}, read, doing=doing, deadline_s=deadline_s)

    def _living_child(self) -> Child | None:
        """Return the child, or None where there is none, for example because it just died."""
        if self._closed:
            raise ValueError("this worker is closed")
        if self._child is not None:
            end = self._child.end()
            if end is not None:
                self._loss = end
                self._child = None
        return self._child

    def _started_child(self, deadline_s: float) -> Child:
        child = self._living_child()
        if child is None:
            _require_time(deadline_s, "a new worker")
            self.generation += 1
            child = self._child = Child.start(self._settings, self.generation, deadline_s)
        return child

    def _replace_if_worn(self) -> None:
        child = self._living_child()
        # Only a kept engine can be had again.
        if child is not None and child.worn and self._kept_slots.issuperset(self._loaded()):
            child.close()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise StorageError(f"cannot make {folder}: {explain_os_error(error)}") from error


def _require_time(deadline_s: float, doing: str) -> None:
    if math.isnan(deadline_s):
        raise ValueError("a deadline must be a number")
    if time.monotonic() >= deadline_s:
        raise TrialFailure("timeout", f"there was no time left for {doing}")
