"""The worker's loop: one backend, engines in named slots, requests answered one at a time."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import hashlib
import math
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from routewright.accuracy import compare_outputs
from routewright.backends import load_backend
from routewright.backends.base import Arrays, Backend, Engine, RunFailed
from routewright.bounds import AccuracyBound
from routewright.errors import SampleError
from routewright.knobs import KnobDatabase
from routewright.model import OnnxModel
from routewright.routes import Route
from routewright.samples import SampleSet
from routewright.worker.failures import describe, failure_of, user_error_of
from routewright.worker.protocol import (
    decode,
    encode,
    job_from_json,
    one_line,
    spec_to_json,
    user_error_to_json,
)

_CANCEL_EARLY_SHARE = 0.05
_CANCEL_EARLY_S = 1.0
_LEAST_REST_S = 0.001


@runtime_checkable
class CancellableBackend(Protocol):
    """A backend that can stop a build by itself; better than being killed with all its engines."""

    def set_build_deadline(self, deadline_s: float | None) -> None:
        """Take the time on ``time.monotonic`` at which the next build should stop, or None.

        A build that stops for it raises ``BuildFailed("cancelled", ...)``.
        """


@runtime_checkable
class ReferenceBackend(Protocol):
    """A backend that has its own way to run the model exactly as it was given."""

    def reference_engine(self) -> Engine:
        """Return an engine of the original model: full precision, nothing optimized."""


@dataclass(slots=True)
class _Slot:
    engine: Engine
    folder: Path


class WorkerService:
    """Carries out requests; the public methods are what can be asked, by name.

    Args:
        params: What :class:`routewright.worker.client.Worker` sends first.

    Attributes:
        remaining_s: Seconds that the request being carried out may still take.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.remaining_s = math.inf
        self._job = job_from_json(params["job"])
        self._bound = AccuracyBound.from_dict(params["bound"])
        self._output_dtypes: dict[str, str] | None = params["output_dtypes"]
        self._samples_path = Path(params["samples"])
        self._references_path = Path(params["references"])
        self._build_folder = Path(params["build_folder"])
        self._samples: SampleSet | None = None
        self._references: Sequence[Arrays] | None = None
        self._database: KnobDatabase | None = None
        self._slots: dict[str, _Slot] = {}
        self._settling_s: dict[str, float] = {}
        self._backend: Backend = load_backend(params["backend"])(self._job)

    def describe(self) -> dict[str, Any]:
        """Return what the backend is."""
        backend = self._backend
        return {
            "name": backend.name,
            "metric": backend.metric,
            "fingerprints": backend.fingerprints,
            "run_time_knobs": list(backend.run_time_knobs()),
        }

    def environment(self) -> dict[str, Any]:
        """Return what results depend on."""
        return dict(self._backend.environment())

    def health(self) -> dict[str, Any]:
        """Return readings of the device."""
        return dict(self._backend.health())

    def knobs(self) -> str:
        """Return the knob database as its own JSON text."""
        return self._knob_database().to_json()

    def inputs(self) -> list[dict[str, Any]]:
        """Return what an engine expects from its user."""
        return [spec_to_json(spec) for spec in self._backend.inputs()]

    def compute_references(self) -> dict[str, Any]:
        """Run the original model on all samples, twice, and write the outputs of the first time.

        The second time shows whether the model gives the same outputs for the same inputs.
        """
        samples = self._sample_set()
        engine = self._reference_engine()
        try:
            first = [engine.run(inputs) for inputs in samples.inputs]
            again = [engine.run(inputs) for inputs in samples.inputs]
        finally:
            engine.close()
        worst = _Worst(self._bound, self._output_dtypes)
        for index, (reference, actual) in enumerate(zip(first, again, strict=True)):
            worst.add(index, reference, actual)
        samples.with_references(first).save(self._references_path)
        self._references = None
        return {"losses": worst.losses, "reasons": worst.reasons}

    def build(self, slot: str, route: str) -> dict[str, Any]:
        """Build ``route`` into ``slot`` and run it once."""
        self.drop(slot)
        inputs = self._sample_set().inputs[0]
        parsed = Route.parse(route, self._knob_database())
        # Not before: what a fresh worker reads once is no part of this route's cost.
        begin_s = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="build-", dir=self._build_folder))
        try:
            engine = self._build(parsed, folder)
            try:
                engine.run(inputs)
            except BaseException:
                _close_broken(engine)
                raise
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._slots[slot] = _Slot(engine, folder)
        return {
            "build_s": time.monotonic() - begin_s,
            "fingerprint": engine.fingerprint,
            "notes": [one_line(note) for note in engine.notes],
        }

    def check(self, slot: str, samples: Sequence[int] | None) -> dict[str, Any]:
        """Compare outputs with the reference on ``samples``, all if None."""
        engine = self._engine(slot)
        inputs, references = self._sample_set().inputs, self._reference_outputs()
        worst = _Worst(self._bound, self._output_dtypes)
        for index in range(len(inputs)) if samples is None else samples:
            worst.add(index, references[index], engine.run(inputs[index]))
        return {"losses": worst.losses, "reasons": worst.reasons}

    def time_pair(self, runs: int, warmup_runs: int, candidate_first: bool) -> dict[str, Any]:
        """Time one block of each engine, on the first sample.

        Always the first one: blocks of different inputs could not be pooled, and one input of the
        job's shapes is what the latency is of.
        """
        inputs = self._sample_set().inputs[0]
        order = ("candidate", "baseline") if candidate_first else ("baseline", "candidate")
        engines = {slot: self._engine(slot) for slot in order}
        latencies: dict[str, list[float]] = {}
        collecting = gc.isenabled()
        gc.disable()
        try:
            # The engine that has its turn second may still hold threads or queued work.
            engines[order[1]].settle()
            for slot in order:
                latencies[slot] = _time_block(engines[slot], inputs, runs, warmup_runs, slot)
                self._rest_after(slot, engines)
        finally:
            if collecting:
                gc.enable()
        return latencies

    def _rest_after(self, slot: str, engines: Mapping[str, Engine]) -> None:
        """Let the engine settle, and wait as long as the one that takes longest to settle.

        A processor runs faster after a rest, so blocks of both engines must follow equal rests.
        """
        begin_s = time.monotonic()
        engines[slot].settle()
        settling_s = time.monotonic() - begin_s
        self._settling_s[slot] = max(settling_s, self._settling_s.get(slot, 0.0))
        rest_s = max(self._settling_s.get(each, 0.0) for each in engines) - settling_s
        if rest_s > _LEAST_REST_S:
            time.sleep(rest_s)

    def save(self, slot: str, folder: str) -> dict[str, str]:
        """Write the slot's engine into ``folder`` and return its files' SHA-256."""
        target = Path(folder)
        digests: dict[str, str] = {}
        for path in sorted(self._engine(slot).save(target)):
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            digests[path.relative_to(target).as_posix()] = digest
        return digests

    def drop(self, slot: str) -> None:
        """Free the slot, if it holds anything, down to what the allocator keeps for later."""
        freed = self._slots.pop(slot, None)
        self._settling_s.pop(slot, None)
        if freed is None:
            return
        try:
            freed.engine.close()
        finally:
            shutil.rmtree(freed.folder, ignore_errors=True)
        del freed
        gc.collect()
        _trim_heap()

    def close(self) -> None:
        """Free everything; one thing that cannot be freed does not keep the others."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._backend.close)
            for slot in self._slots.copy():
                stack.callback(self.drop, slot)

    def _reference_engine(self) -> Engine:
        if isinstance(self._backend, ReferenceBackend):
            return self._backend.reference_engine()
        # Only here, so that a worker of another compiler does not load this one.
        from routewright.backends.onnxruntime.reference import reference_engine

        return reference_engine(OnnxModel.open(self._job.model))

    def _build(self, route: Route, folder: Path) -> Engine:
        backend = self._backend
        if not isinstance(backend, CancellableBackend):
            return backend.build(route, folder)
        early_s = min(_CANCEL_EARLY_S, _CANCEL_EARLY_SHARE * self.remaining_s)
        limited = math.isfinite(self.remaining_s)
        backend.set_build_deadline(
            time.monotonic() + self.remaining_s - early_s if limited else None
        )
        try:
            return backend.build(route, folder)
        finally:
            backend.set_build_deadline(None)

    def _engine(self, slot: str) -> Engine:
        return self._slots[slot].engine

    def _knob_database(self) -> KnobDatabase:
        if self._database is None:
            self._database = self._backend.knob_database()
        return self._database

    def _sample_set(self) -> SampleSet:
        if self._samples is None:
            self._samples = SampleSet.load(self._samples_path, inputs=self._backend.inputs())
        return self._samples

    def _reference_outputs(self) -> Sequence[Arrays]:
        if self._references is None:
            loaded = SampleSet.load(self._references_path, inputs=self._backend.inputs())
            if loaded.inputs_digest != self._sample_set().inputs_digest:
                raise SampleError(
                    f"the reference outputs in {self._references_path} are of other inputs than "
                    f"those in {self._samples_path}; compute them anew"
                )
            if loaded.references is None:
                raise SampleError(f"{self._references_path} holds no reference outputs")
            self._references = loaded.references
        return self._references


class _Worst:
    """The worst loss of every output over samples, and why one could not be compared."""

    def __init__(self, bound: AccuracyBound, dtypes: Mapping[str, str] | None) -> None:
        self.losses: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        self._bound = bound
        self._dtypes = dtypes

    def add(self, index: int, reference: Arrays, actual: Arrays) -> None:
        compared = compare_outputs(reference, actual, self._bound, dtypes=self._dtypes)
        for name, output in compared.outputs.items():
            if output.loss > self.losses.get(name, -math.inf):
                self.losses[name] = output.loss
                if output.reason is not None:
                    self.reasons[name] = one_line(f"sample {index}: {output.reason}")


def serve(requests: int, answers: int) -> None:
    """Answer requests until told to close, until the parent is gone, or until unfit.

    Args:
        requests: File descriptor to read from.
        answers: File descriptor to write to.
    """
    faulthandler.enable()
    service: WorkerService | None = None
    with open(requests, "rb", closefd=False) as lines:
        for asked in lines:
            request = decode(asked)
            params = request["params"]
            if request["method"] == "close":
                break
            if service is None:
                _prepare(params)
            service, line, retire = _answer(service, request)
            _write(answers, line)
            if retire:
                # Freeing what hangs on a lost device may hang as well.
                return
    if service is not None:
        service.close()


def _prepare(params: Mapping[str, Any]) -> None:
    """Make this process import what the parent can import, and limit it."""
    sys.path[:] = params["module_folders"]
    if params["python_path"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = params["python_path"]
    limit = params["data_limit_bytes"]
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _answer(
    service: WorkerService | None, request: Mapping[str, Any]
) -> tuple[WorkerService | None, bytes, bool]:
    """Carry out one request; the first one makes the service.

    Returns:
        The service, the answer, and whether this process should end.
    """
    number, params = request["id"], request["params"]
    try:
        if service is None:
            service = WorkerService(params)
            result: Any = service.describe()
        else:
            service.remaining_s = request["remaining_s"]
            method: Callable[..., Any] = getattr(service, request["method"])
            result = method(**params)
        return service, encode({"id": number, "ok": result}), False
    except Exception as error:  # noqa: BLE001 - the boundary of the process: all are reported
        user_error = user_error_of(error)
        if user_error is not None:
            line = encode({"id": number, "user_error": user_error_to_json(user_error)})
            return service, line, False
        traceback.print_exc()
        failure = failure_of(error)
        return service, encode({"id": number, "failure": asdict(failure)}), failure.retire


def _time_block(
    engine: Engine, inputs: Arrays, runs: int, warmup_runs: int, slot: str
) -> list[float]:
    if warmup_runs:
        engine.time_runs(inputs, warmup_runs)
    latencies = [float(latency) for latency in engine.time_runs(inputs, runs)]
    if len(latencies) != runs:
        raise RunFailed("error", f"{slot}: {len(latencies)} latencies for {runs} runs")
    for latency in latencies:
        if not (math.isfinite(latency) and latency > 0):
            raise RunFailed("error", f"{slot}: a latency of {latency} ms cannot be")
    return latencies


def _close_broken(engine: Engine) -> None:
    """Close an engine that failed; what it says then must not hide why it failed."""
    try:
        engine.close()
    except Exception as error:  # noqa: BLE001 - see above
        print(f"closing the broken engine failed: {describe(error)}", file=sys.stderr)


def _trim_heap() -> None:
    # Only the GNU C library has it; without it, freed memory just returns later.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _write(answers: int, line: bytes) -> None:
    unsent = memoryview(line)
    while unsent:
        unsent = unsent[os.write(answers, unsent) :]
