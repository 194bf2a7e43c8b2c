"""A built engine: loading its plan, running it, timing it on the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routewright.backends.base import Arrays, BuildFailed, Engine, RunFailed
from routewright.backends.tensorrt import cuda, dtypes, streams
from routewright.backends.tensorrt.bindings import Bindings, ProfileChoice
from routewright.backends.tensorrt.caches import CacheFile
from routewright.backends.tensorrt.knobs import CUDA_GRAPH_KNOB, SPECIALIZATION_KNOB
from routewright.backends.tensorrt.library import Capabilities, Library
from routewright.backends.tensorrt.log import failure_kind, one_line
from routewright.backends.tensorrt.plan import write_artifact
from routewright.errors import StorageError

# Enqueued ahead of the device at a time; far below what a stream takes before it blocks the host.
_RUNS_AHEAD = 64
_PROBE_RUNS = 7
# From this share of the device time on, enqueueing is what takes the time.
_LAUNCH_BOUND = 0.9


class _NotRecordable(RunFailed):
    """The engine cannot be recorded as a CUDA graph."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a plan is loaded and run.

    Attributes:
        runtime: Values of run-time knobs that differ from their defaults.
        host_transfers: Whether latency covers the copies to and from the device.
        host_code_allowed: Whether the plan may carry code that runs on the host, as
            version-compatible plans do.
        kernel_cache: Where kernels compiled at run time are kept, or None.
        declared: What the model declares for its outputs, by name.
    """

    runtime: Mapping[str, str]
    host_transfers: bool
    host_code_allowed: bool
    kernel_cache: CacheFile | None
    declared: Mapping[str, np.dtype[Any] | None]


class TensorRTEngine(Engine):
    """An engine on the device, with its own stream and memory.

    Args:
        library: The library.
        capabilities: What it can do.
        plan: The plan file.
        settings: How to run it.
        notes: What the build left to say.
        manifest: What is written beside the plan when it is saved.
        describe: Returns the fingerprint, given the inspector's JSON.

    Raises:
        BuildFailed: The plan cannot be loaded or prepared for running.
    """

    def __init__(
        self,
        library: Library,
        capabilities: Capabilities,
        plan: Path,
        settings: RunSettings,
        *,
        notes: tuple[str, ...],
        manifest: Mapping[str, Any],
        describe: Callable[[str], str | None],
    ) -> None:
        self.notes = notes
        self.fingerprint = None
        self.plan = plan
        self._library = library
        self._settings = settings
        self._manifest = manifest
        self._describe = describe
        self._own_graph = capabilities.own_cuda_graph
        self._graph: streams.Graph | None = None
        self._graph_signature: tuple[Any, ...] = ()
        self._kernels: Any = None
        self._bindings: Bindings | None = None
        self._is_cold = True
        self._events: list[tuple[streams.Event, streams.Event]] = []
        self._stream: streams.Stream | None = None
        self._runtime: Any = None
        self._engine: Any = None
        self._context: Any = None
        self._runtime_config: Any = None
        mark = library.log.mark()
        try:
            self._load(mark)
        except cuda.CudaError as error:
            self.close()
            kind = "oom" if error.kind == "oom" else "error"
            raise BuildFailed(kind, f"the engine cannot be prepared: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def inspector_text(self) -> str:
        """What the library's inspector says about the engine, as JSON."""
        inspector = self._engine.create_engine_inspector()
        if inspector is None:
            return ""
        # With a context, shapes that are open in the plan are those of the last run.
        inspector.execution_context = self._context
        text = inspector.get_engine_information(self._library.module.LayerInformationFormat.JSON)
        return str(text or "")

    @property
    def device_memory_bytes(self) -> int:
        """Memory that running takes beside weights, inputs and outputs."""
        return int(self._engine.device_memory_size_v2)

    def prepare(self, inputs: Arrays) -> None:
        """Run once, record the CUDA graph if one is wanted, and take the fingerprint.

        Kernels that are compiled at run time are compiled here, so that this is part of the build
        and not of what is measured.

        Raises:
            RunFailed: The engine does not run.
            BuildFailed: The route asks for a CUDA graph and the engine cannot be recorded.
        """
        try:
            self.run(inputs)
        except _NotRecordable as error:
            raise BuildFailed("unsupported", str(error)) from error
        self.fingerprint = self._describe(self.inspector_text)
        self._keep_kernels()
        self.notes = (*self.notes, *self._launch_notes(inputs))

    def run(self, inputs: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Run once and return every output by name, in the types that the model declares.

        Raises:
            RunFailed: The engine could not run these inputs.
        """
        try:
            bindings = self._bound(inputs, copy=True)
            self._record_if_wanted(bindings)
            self._enqueue()
            self._active_stream().synchronize()
            outputs = bindings.read()
        except cuda.CudaError as error:
            raise error.as_run_failure() from error
        declared = self._settings.declared
        return {
            name: dtypes.to_declared(array, declared.get(name)) for name, array in outputs.items()
        }

    def time_runs(self, inputs: Arrays, runs: int) -> list[float]:
        """Return the latency of ``runs`` runs enqueued one behind the other, in ms.

        Taken with CUDA events around each run, with the copies between them where the job asks
        for host transfers.
        """
        try:
            bindings = self._bound(inputs, copy=False)
            if self._settings.host_transfers:
                bindings.stage(inputs)
            self._record_if_wanted(bindings)
            if self._is_cold:
                # What happens once for new shapes or new memory must not fall between two events.
                self._enqueue_run(bindings)
                self._active_stream().synchronize()
                self._is_cold = False
            latencies: list[float] = []
            while len(latencies) < runs:
                latencies += self._timed(bindings, min(_RUNS_AHEAD, runs - len(latencies)))
        except cuda.CudaError as error:
            raise error.as_run_failure() from error
        return latencies

    def settle(self) -> None:
        """Wait until the device has nothing of this engine left to do."""
        try:
            self._active_stream().synchronize()
        except cuda.CudaError as error:
            raise error.as_run_failure() from error

    def save(self, folder: Path) -> list[Path]:
        """Write the plan and its manifest into ``folder``, and a kernel cache where there is one.

        The plan is the file that was measured, byte for byte.
        """
        kernels = b"" if self._kernels is None else bytes(self._kernels.serialize())
        return write_artifact(folder, self.plan, self._manifest, kernels=kernels)

    def close(self) -> None:
        """Free the engine, its stream and its memory."""
        self._drop_graph()
        for start, end in self._events:
            start.close()
            end.close()
        self._events = []
        if self._bindings is not None:
            self._bindings.close()
            self._bindings = None
        # The library wants them gone in this order.
        self._context = None
        self._runtime_config = None
        self._kernels = None
        self._engine = None
        self._runtime = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _load(self, mark: int) -> None:
        module, library = self._library.module, self._library
        self._stream = streams.Stream()
        self._runtime = module.Runtime(library.logger)
        if self._settings.host_code_allowed:
            self._runtime.engine_host_code_allowed = True
        data = self.plan.read_bytes()
        refusal = plan_refusal(library, self._runtime, data)
        if refusal:
            raise BuildFailed("unsupported", f"{library.label} cannot run this plan: {refusal}")
        self._engine = self._runtime.deserialize_cuda_engine(data)
        if self._engine is None:
            raise self._refused("load", mark)
        self._context = self._new_context()
        if self._context is None:
            raise self._refused("run", mark)
        self._bindings = Bindings(library, self._engine, self._context, self._stream)

    def _new_context(self) -> Any:
        # The context reads it again when it changes profiles, and does not keep it alive: without
        # it, TensorRT-RTX 1.4 takes the process down there.
        self._runtime_config = self._engine.create_runtime_config()
        self._configure(self._runtime_config)
        return self._engine.create_execution_context(self._runtime_config)

    def _configure(self, config: Any) -> None:
        module, runtime = self._library.module, self._settings.runtime
        if self._own_graph and runtime.get(CUDA_GRAPH_KNOB) == "on":
            config.cuda_graph_strategy = module.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        strategy = runtime.get(SPECIALIZATION_KNOB)
        if strategy is not None:
            strategies = module.DynamicShapesKernelSpecializationStrategy.__members__
            config.dynamic_shapes_kernel_specialization_strategy = strategies[strategy.upper()]
        if self._settings.kernel_cache is not None:
            self._kernels = config.create_runtime_cache()
            cached = self._settings.kernel_cache.load()
            if cached and not self._kernels.deserialize(cached):
                self._kernels.reset()
            config.set_runtime_cache(self._kernels)

    def _refused(self, doing: str, mark: int) -> BuildFailed:
        messages = self._library.log.since(mark)
        kind = failure_kind(messages, memory_short=False)
        said = "; ".join(self._library.log.errors(mark)) or "it gave no reason"
        text = f"{self._library.label} built a plan that it cannot {doing} here: {said}"
        return BuildFailed(kind, one_line(text))

    def _bound(self, inputs: Arrays, *, copy: bool) -> Bindings:
        bindings = self._bindings
        if bindings is None:
            raise RunFailed("error", "the engine is closed")
        if copy or not bindings.is_bound_to(inputs):
            self._is_cold = True
            bindings.bind(
                inputs, ProfileChoice(self._engine, self._context, self._active_stream())
            )
        return bindings

    def _active_stream(self) -> streams.Stream:
        if self._stream is None:
            raise RunFailed("error", "the engine is closed")
        return self._stream

    def _wants_graph(self) -> bool:
        return self._settings.runtime.get(CUDA_GRAPH_KNOB) == "on" and not self._own_graph

    def _record_if_wanted(self, bindings: Bindings) -> None:
        if not self._wants_graph():
            return
        signature = bindings.signature()
        if self._graph is None or signature != self._graph_signature:
            self._graph = self._record(bindings)
            self._graph_signature = signature

    def _enqueue(self) -> None:
        if self._graph is not None:
            self._graph.launch(self._active_stream())
        else:
            self._enqueue_directly()

    def _enqueue_directly(self) -> None:
        mark = self._library.log.mark()
        if not self._context.execute_async_v3(self._active_stream().handle):
            # A lost device says so at the next call; only then is the library's word the reason.
            self._active_stream().synchronize()
            said = "; ".join(self._library.log.errors(mark)) or "the library gave no reason"
            kind = failure_kind(self._library.log.since(mark), memory_short=False)
            raise RunFailed("oom" if kind == "oom" else "error", f"the engine did not run: {said}")

    def _record(self, bindings: Bindings) -> streams.Graph:
        self._drop_graph()
        if bindings.data_dependent:
            raise _NotRecordable(
                "error",
                f"{CUDA_GRAPH_KNOB}=on: the size of output {bindings.data_dependent[0]!r} follows "
                "from the data, which a recorded graph cannot do",
            )
        # The first run after a change of shapes updates the engine's own state: not recordable.
        self._enqueue_directly()
        self._active_stream().synchronize()
        capture = streams.Capture(self._active_stream())
        try:
            with capture:
                self._enqueue_directly()
            return capture.instantiate()
        except (cuda.CudaError, RunFailed) as error:
            if isinstance(error, cuda.CudaError) and error.kind == "sticky":
                raise
            raise _NotRecordable(
                "error", f"{CUDA_GRAPH_KNOB}=on: the engine cannot be recorded: {error}"
            ) from error

    def _drop_graph(self) -> None:
        if self._graph is not None:
            self._graph.close()
            self._graph = None

    def _timed(self, bindings: Bindings, runs: int) -> list[float]:
        stream = self._active_stream()
        while len(self._events) < runs:
            self._events.append((streams.Event(), streams.Event()))
        for start, end in self._events[:runs]:
            start.record(stream)
            self._enqueue_run(bindings)
            end.record(stream)
        stream.synchronize()
        return [end.ms_since(start) for start, end in self._events[:runs]]

    def _enqueue_run(self, bindings: Bindings) -> None:
        if not self._settings.host_transfers:
            self._enqueue()
            return
        bindings.enqueue_inputs()
        self._enqueue()
        bindings.enqueue_outputs()

    def _launch_notes(self, inputs: Arrays) -> tuple[str, ...]:
        """Say whether enqueueing takes as long as the device does, which kernels cannot mend."""
        if self._settings.runtime.get(CUDA_GRAPH_KNOB) == "on":
            return ()
        enqueue_ms: list[float] = []
        device_ms: list[float] = []
        try:
            self._bound(inputs, copy=False)
            stream = self._active_stream()
            with streams.Event() as start, streams.Event() as end:
                for _ in range(_PROBE_RUNS):
                    start.record(stream)
                    begin_s = time.perf_counter()
                    self._enqueue()
                    enqueue_ms.append(1e3 * (time.perf_counter() - begin_s))
                    end.record(stream)
                    stream.synchronize()
                    device_ms.append(end.ms_since(start))
        except cuda.CudaError as error:
            raise error.as_run_failure() from error
        return launch_note(statistics.median(enqueue_ms), statistics.median(device_ms))

    def _keep_kernels(self) -> None:
        cache = self._settings.kernel_cache
        if cache is None or self._kernels is None:
            return
        try:
            cache.update(lambda present: bytes(self._kernels.serialize()))
        except StorageError as error:
            self.notes = (*self.notes, f"the kernel cache was not kept: {error}")


def launch_note(enqueue_ms: float, device_ms: float) -> tuple[str, ...]:
    """Return the note that an engine is launch-bound, if it is.

    Args:
        enqueue_ms: Host time to enqueue one run on an idle device.
        device_ms: Time between the events around that run.
    """
    if enqueue_ms < _LAUNCH_BOUND * device_ms:
        return ()
    return (
        f"launch-bound: enqueueing takes {enqueue_ms:.3f} ms of {device_ms:.3f} ms, so kernel "
        f"knobs can hardly matter; see {CUDA_GRAPH_KNOB}=on",
    )


def plan_refusal(library: Library, runtime: Any, data: bytes) -> str:
    """Return why the library would not load a plan, asked before it is loaded; empty if unknown.

    Only a library that can check plans is asked. Its word that the device is not supported is not
    taken: TensorRT-RTX 1.4 says so of a Hopper GPU, and then loads and runs the plan there.
    """
    check = getattr(runtime, "get_engine_validity", None)
    if check is None:
        return ""
    validity, diagnostics = check(data)
    if validity != library.module.EngineValidity.INVALID:
        return ""
    reasons = [
        name.lower().replace("_", " ")
        for name, member in library.module.EngineInvalidityDiagnostics.__members__.items()
        if int(diagnostics) & int(member)
    ]
    if reasons == ["unsupported cc"]:
        return ""
    return ", ".join(reasons) or "it is not valid here"
