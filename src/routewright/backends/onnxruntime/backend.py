"""The ONNX Runtime backend."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import psutil

from routewright.backends.base import Arrays, Backend, BuildFailed, Engine, Job, RunFailed
from routewright.backends.onnxruntime import hardware
from routewright.backends.onnxruntime.blocks import Block
from routewright.backends.onnxruntime.engine import MODEL_FILE, OnnxRuntimeEngine, make_session
from routewright.backends.onnxruntime.fingerprint import (
    GraphIdentity,
    fingerprint,
    graph_identity,
)
from routewright.backends.onnxruntime.knobs import (
    BLOCK_PREFIX,
    chosen_blocks,
    knob_database,
    quantization_settings,
)
from routewright.backends.onnxruntime.library import (
    is_out_of_memory,
    library_errors,
    load_library,
    one_line,
)
from routewright.backends.onnxruntime.logs import caught_warnings
from routewright.backends.onnxruntime.options import Options
from routewright.backends.onnxruntime.quantized_models import QuantizedModels
from routewright.backends.onnxruntime.reference import reference_engine
from routewright.backends.onnxruntime.settings import (
    SESSION_PREFIX,
    ModelTraits,
    SessionSettings,
    SettingKnob,
    read_settings,
    setting_knobs,
)
from routewright.backends.onnxruntime.transformers import Catalog, installed_catalog
from routewright.external_data import ExternalFile
from routewright.knobs import KnobDatabase
from routewright.model import OnnxModel, TensorSpec
from routewright.routes import Route
from routewright.samples import SampleSet

_CALIBRATION_SAMPLES = 8
_QUANTIZING_OPS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_INTEGER_KERNELS = frozenset(
    {
        "MatMulInteger",
        "QLinearConv",
        "com.microsoft::DynamicQuantizeLSTM",
        "com.microsoft::DynamicQuantizeMatMul",
        "com.microsoft::MatMulIntegerToFloat",
        "com.microsoft::QGemm",
        "com.microsoft::QLinearConv",
        "QLinearMatMul",
    }
)
_NCHWC_CONVOLUTION = "com.microsoft.nchwc::Conv"
# The optimized graph can be larger than the model: folded constants, rearranged weights.
_OPTIMIZED_GROWTH = 2.0


class OnnxRuntimeBackend(Backend):
    """Builds sessions of one model on the CPU.

    Options (:attr:`Job.options`): see :class:`.options.Options`.
    """

    name: ClassVar[str] = "onnxruntime"
    metric: str = "host end to end"

    def __init__(self, job: Job) -> None:
        """Check the options, and that ONNX Runtime takes the model.

        Raises:
            BackendError: ONNX Runtime is missing or refuses the model.
            ModelError: The model cannot be read.
            SettingsError: An option is unknown or has a wrong value.
        """
        self._library = load_library()
        self._job = job
        self._options = Options.read(job.options)
        self._model = OnnxModel.open(job.model)
        # Nothing else tells as surely whether the library can run it.
        reference_engine(self._model, threads=1).close()
        folder = job.work_folder / "onnxruntime"
        folder.mkdir(parents=True, exist_ok=True)
        self._int8 = QuantizedModels(
            self._model, folder, self._calibration_samples, threads=self._default_threads
        )

    def knob_database(self) -> KnobDatabase:
        """Return the knobs of the installed version, for this model."""
        reason = self._int8.reason
        notes = [] if reason is None else [reason]
        return knob_database(self._catalog, self._setting_knobs, self._int8.blocks, notes)

    def run_time_knobs(self) -> tuple[str, ...]:
        """Return the session's knobs."""
        names = (knob.name for knob in self._setting_knobs)
        return tuple(name for name in names if name.startswith(SESSION_PREFIX))

    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs that an engine expects from its user."""
        return self._model.inputs

    def build(self, route: Route, folder: Path) -> Engine:
        """Build the engine of ``route``.

        Raises:
            BuildFailed: This route cannot be built.
        """
        values = dict(route.values)
        optimizers = tuple(name for name, _ in self._catalog.optimizers)
        settings = read_settings(values, self._setting_knobs, optimizers)
        model, external_files = self._model.path, self._model.external_files
        blocks, quantized = _known_blocks(values, self._int8), 0
        try:
            if blocks:
                model, external_files = folder / MODEL_FILE, ()
                quantized = self._int8.write(blocks, quantization_settings(values), model)
            session, identity, notes = _make(model, external_files, settings, folder)
        except OSError as error:
            raise BuildFailed("error", f"cannot write the build: {one_line(error)}") from error
        if blocks and identity is not None:
            notes = [*_int8_notes(blocks, quantized, identity), *notes]
        try:
            return OnnxRuntimeEngine(
                session,
                settings,
                route=str(route),
                model=model,
                external_files=external_files,
                version=str(self._library.__version__),
                fingerprint=None if identity is None else _fingerprint(identity, settings),
                notes=tuple(notes),
            )
        except RunFailed as error:
            raise BuildFailed("unsupported", str(error)) from error

    def reference_engine(self) -> Engine:
        """Return an engine of the original model with every optimization off."""
        return reference_engine(self._model)

    def environment(self) -> dict[str, Any]:
        """Return what results depend on."""
        return {
            "onnxruntime": str(self._library.__version__),
            "onnxruntime_build": str(getattr(self._library, "get_build_info", lambda: "")()),
            "numpy": np.__version__,
            "onnx": onnx.__version__,
            "machine": platform.machine(),
            "cpu": hardware.cpu_model(),
            "exact_int8_products": hardware.has_exact_int8_products(),
            "cores": list(hardware.affinity_cores()),
            "quota_cores": hardware.quota_cores(),
            "default_threads": self._default_threads,
            "memory_bytes": psutil.virtual_memory().total,
            **self.health(),
        }

    def health(self) -> dict[str, Any]:
        """Return readings that tell whether something else is using the machine."""
        return {
            "load_1min_now": psutil.getloadavg()[0],
            "memory_available_bytes_now": psutil.virtual_memory().available,
        }

    @cached_property
    def _catalog(self) -> Catalog:
        return installed_catalog()

    @cached_property
    def _default_threads(self) -> int:
        return hardware.default_threads(self._options.threads)

    @cached_property
    def _setting_knobs(self) -> tuple[SettingKnob, ...]:
        ops = set(self._model.op_types)
        traits = ModelTraits(
            convolutions="Conv" in ops,
            quantized=bool(self._int8.blocks or ops & _QUANTIZING_OPS),
        )
        return setting_knobs(
            traits,
            self._catalog,
            default_threads=self._default_threads,
            usable_threads=hardware.usable_threads(self._options.threads),
        )

    def _calibration_samples(self) -> Sequence[Arrays]:
        if self._job.calibration is not None:
            return SampleSet.load(self._job.calibration, inputs=self._model.inputs).inputs
        shapes = self._job.shapes or self._model.resolve_shapes({})
        return SampleSet.generate(
            self._model.inputs,
            shapes,
            count=_CALIBRATION_SAMPLES,
            seed=self._job.seed,
            ranges=self._options.input_ranges,
        ).inputs


def _known_blocks(values: dict[str, str], int8: QuantizedModels) -> list[Block]:
    """Return the blocks of a route, without preparing the model where there are none."""
    if not any(name.startswith(BLOCK_PREFIX) for name in values):
        return []
    return chosen_blocks(values, int8.blocks)


def _make(
    model: Path, external_files: Sequence[ExternalFile], settings: SessionSettings, folder: Path
) -> tuple[Any, GraphIdentity | None, list[str]]:
    """Return the session, what its graph is, and notes."""
    notes: list[str] = []
    optimized: Path | None = folder / "optimized.onnx"
    size = model.stat().st_size + sum(file.path.stat().st_size for file in external_files)
    if shutil.disk_usage(folder).free < _OPTIMIZED_GROWTH * size:
        notes.append("no fingerprint: too little disk space for the optimized graph")
        optimized = None
    try:
        with caught_warnings() as warnings:
            session = make_session(model, settings.document(), optimized=optimized)
        identity = graph_identity(optimized) if optimized else None
    except library_errors() as error:
        kind = "oom" if is_out_of_memory(error) else "unsupported"
        raise BuildFailed(kind, one_line(error)) from error
    finally:
        for leftover in folder.glob("optimized.onnx*"):
            leftover.unlink()
    return session, identity, [*notes, *warnings]


def _fingerprint(identity: GraphIdentity, settings: SessionSettings) -> str:
    convolutions = _NCHWC_CONVOLUTION in identity.op_types
    return fingerprint(identity, settings.runtime_identity(nchwc_convolutions=convolutions))


def _int8_notes(blocks: Sequence[Block], quantized: int, identity: GraphIdentity) -> list[str]:
    names = ", ".join(BLOCK_PREFIX + block.name for block in blocks)
    if not quantized:
        return [f"no effect: {names} inserted nothing"]
    running = sum(identity.op_types.get(op, 0) for op in _INTEGER_KERNELS)
    return [f"int8: {quantized} nodes quantized, {running} integer kernels run"]
