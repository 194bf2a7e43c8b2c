"""The backends ``tensorrt`` and ``tensorrt-rtx``: one class on the library it is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from routewright.backends.base import Backend, BuildFailed, Engine, Job
from routewright.backends.tensorrt import cuda, dtypes, inspector, knobs
from routewright.backends.tensorrt.build import (
    BuildSettings,
    BuiltPlan,
    build_plan,
    workspace_limit,
)
from routewright.backends.tensorrt.caches import CacheFile, default_cache_folder
from routewright.backends.tensorrt.config_knobs import probe_config_knobs
from routewright.backends.tensorrt.device import DeviceReadings, remarks
from routewright.backends.tensorrt.engine import RunSettings, TensorRTEngine
from routewright.backends.tensorrt.library import Library, load_library, tuner_version
from routewright.backends.tensorrt.network import ParsedNetwork, load_plugins, parse_network
from routewright.backends.tensorrt.options import Options
from routewright.backends.tensorrt.plan import Site, checked_plan, read_manifest
from routewright.backends.tensorrt.profiles import NetworkInput, Range, plan_profiles
from routewright.errors import BackendError, KnobError, ModelError, SettingsError
from routewright.knobs import KnobDatabase
from routewright.model import OnnxModel
from routewright.routes import Route
from routewright.samples import SampleSet
from routewright.tensors import TensorSpec

METRIC = "device only"
METRIC_WITH_TRANSFERS = "device with host transfers"


class TensorRTBackend(Backend):
    """TensorRT 11.1 or later: build routes, builder configuration and run time in one space.

    Args:
        job: The work; see :class:`routewright.backends.tensorrt.options.Options` for its options.
        library: The library to work on; found by the backend's name if None.

    Attributes:
        library: The library in use.
        capabilities: What it can do here.
        device: What CUDA says about the device, or None where plans can only be built.
    """

    name: ClassVar[str] = "tensorrt"
    metric: str = METRIC

    def __init__(self, job: Job, *, library: Library | None = None) -> None:
        self._job = job
        self._options = Options.parse(job.options)
        if self._options.host_transfers:
            self.metric = METRIC_WITH_TRANSFERS
        self.model = _open_model(job.model)
        self._models = {knobs.ORIGINAL: self.model}
        for variant, path in self._options.variants.items():
            self._models[variant] = _open_model(path)
            _check_variant(variant, self.model, self._models[variant])
        self.library = load_library(self.name) if library is None else library
        self.device, self._readings = self._open_device()
        builder = self.library.new_builder()
        # With a builder there is a logger that the plugin registry can give its reasons to.
        load_plugins(self.library, self._options.plugins)
        self.capabilities = self.library.ask_capabilities(builder)
        self._check_target()
        self._network_inputs = self._parse(knobs.ORIGINAL).inputs
        self._plan_of_shapes = plan_profiles(
            self._network_inputs,
            shapes=job.shapes,
            profiles=tuple(job.profiles),
            shape_values=self._shape_values(),
        )
        self._config_knobs = probe_config_knobs(
            self.library, builder, l2_bytes=None if self.device is None else self.device.l2_bytes
        )
        self._workspace_bytes = workspace_limit(self.library, builder, self._options)
        self._database: KnobDatabase | None = None
        self._deadline_s: float | None = None

    def knob_database(self) -> KnobDatabase:
        """Return the library's knobs and ours, for this model."""
        if self._database is None:
            self._database = knobs.knob_database(
                self.capabilities,
                self._config_knobs,
                source=f"{self.library.label} all_build_routes",
                variants=tuple(self._options.variants),
                dynamic_shapes=bool(self._plan_of_shapes.profiles),
                specializations=knobs.specializations(self.library),
            )
        return self._database

    def run_time_knobs(self) -> tuple[str, ...]:
        """Return the run-time knobs, and the choice of the model's file."""
        names = (knob.name for knob in self.knob_database())
        return tuple(
            n for n in names if n.startswith(knobs.RUNTIME_PREFIX) or n == knobs.VARIANT_KNOB
        )

    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the model's inputs; an engine's narrower types are served by conversion."""
        return self.model.inputs

    def reference_engine(self) -> Engine:
        """Return the original model on ONNX Runtime, on the CPU with nothing optimized.

        Raises:
            BackendError: ONNX Runtime refuses the model, for example for a plugin's operator.
        """
        # Only here: most workers get their references from elsewhere.
        from routewright.backends.onnxruntime.reference import reference_engine

        return reference_engine(self.model)

    def set_build_deadline(self, deadline_s: float | None) -> None:
        """Take the time on ``time.monotonic`` at which the next build should stop, or None."""
        self._deadline_s = deadline_s

    def build_plan(self, route: Route, folder: Path) -> BuiltPlan:
        """Build the plan of ``route`` into ``folder`` without loading it; needs no device.

        Raises:
            BuildFailed: This route cannot be built.
        """
        split = knobs.split_route(route.values)
        self._check_known(route)
        try:
            parsed = self._parse(split.variant)
        except BackendError as error:
            raise BuildFailed("unsupported", str(error)) from error
        _check_inputs(split.variant, self._network_inputs, parsed.inputs)
        settings = BuildSettings(
            capabilities=self.capabilities,
            options=self._options,
            config_knobs=self._config_knobs,
            profiles=self._plan_of_shapes.profiles,
            workspace_bytes=self._workspace_bytes,
            timing_cache=self._cache("timing") if self.capabilities.times_tactics else None,
            memory_mib=None if self.device is None else self.device.memory_mib,
            free_memory_mib=self._free_memory_mib,
        )
        return build_plan(
            self.library, parsed, split, settings, folder, deadline_s=self._deadline_s
        )

    def build(self, route: Route, folder: Path) -> Engine:
        """Build ``route``, load its plan, run it once and take its fingerprint."""
        plan = self.build_plan(route, folder)
        if self.device is None:
            raise BuildFailed(
                "unsupported",
                f"a plan of {plan.size} bytes was built for {self._options.compute_capability}, "
                "but no CUDA device is here to run it",
            )
        engine = self._engine(plan.path, route, plan.notes)
        try:
            engine.prepare(self._first_inputs())
        except BaseException:
            engine.close()
            raise
        return engine

    def load(self, folder: Path) -> Engine:
        """Load an engine that was saved into ``folder``.

        Only load what you saved yourself: a plan holds native code.

        Raises:
            BackendError: It was built for another model, library, version or device, or is
                damaged.
            RouteError: Its route names a knob that this library does not have.
            BuildFailed: The library refuses it nevertheless.
        """
        plan = checked_plan(folder, self._site())
        manifest = read_manifest(folder)
        route = Route.parse(str(manifest.get("route", "")), self.knob_database())
        digest = self._models[knobs.split_route(route.values).variant].sha256
        if (manifest.get("model") or {}).get("sha256") != digest:
            raise BackendError(f"{plan} was built from another model than {self.model.path.name}")
        engine = self._engine(plan, route, ())
        try:
            engine.prepare(self._first_inputs())
        except BaseException:
            engine.close()
            raise
        return engine

    def environment(self) -> dict[str, Any]:
        """Return library, device, driver and the settings that all builds share."""
        options, device = self._options, self.device
        return {
            "library": self.library.title,
            "library_version": self.library.version,
            "tuner_version": tuner_version(self.capabilities.build_routes),
            "build_routes": self.capabilities.no_build_routes or "listed",
            "device": None if device is None else device.name,
            "device_uuid": None if device is None else device.uuid,
            "compute_capability": None if device is None else device.compute_capability,
            "device_memory_mib": None if device is None else device.memory_mib,
            "driver": self._driver(),
            "cuda_driver": None if device is None else device.driver,
            "latency_covers": self.metric,
            "workspace_mib": self._workspace_bytes >> 20,
            "timing_cache": options.timing_cache,
            "target": options.compute_capability,
            "version_compatible": options.version_compatible,
            "hardware_compatibility": options.hardware_compatibility,
            "refit": options.refit,
            "free_memory_mib_now": self._free_memory_mib(),
        }

    def health(self) -> dict[str, Any]:
        """Return clocks, heat, power, throttling and other processes, with remarks on them."""
        if self._readings is None:
            return {}
        readings = self._readings.read()
        said = (self._readings.problem,) if self._readings.problem else remarks(readings)
        return {**readings, "remarks": list(said)}

    def close(self) -> None:
        """Let the device's readings go; engines are closed by who holds them."""
        if self._readings is not None:
            self._readings.close()

    def _open_device(self) -> tuple[cuda.DeviceFacts | None, DeviceReadings | None]:
        problem = cuda.device_problem(self._options.device)
        if problem and self._options.compute_capability is not None:
            return None, None
        if problem:
            raise BackendError(f"{self.library.label} needs a CUDA device: {problem}")
        try:
            facts = cuda.device_facts(self._options.device)
            readings = DeviceReadings(facts.uuid)
            before = readings.pids()
            cuda.require_device(self._options.device)
            cuda.free_memory_mib()
            readings.recognize_self(before)
        except cuda.CudaError as error:
            raise BackendError(f"CUDA device {self._options.device} fails: {error}") from error
        return facts, readings

    def _check_target(self) -> None:
        target, targets = self._options.compute_capability, self.capabilities.targets
        if target is not None and target not in targets:
            known = (
                f"it knows {', '.join(targets)}" if targets else "it builds for the device here"
            )
            raise SettingsError(
                f"the TensorRT option compute_capability is {target!r}, which "
                f"{self.library.label} does not offer; {known}"
            )

    def _check_known(self, route: Route) -> None:
        for name in route.changed:
            try:
                self.knob_database()[name]
            except KnobError as error:
                reason = self.capabilities.no_build_routes
                raise BuildFailed(
                    "unsupported",
                    f"{self.library.label}: {error}" + (f" ({reason})" if reason else ""),
                ) from error

    def _parse(self, variant: str) -> ParsedNetwork:
        return parse_network(self.library, self.capabilities, self._models[variant].path)

    def _shape_values(self) -> Mapping[str, Range]:
        wanted = {item.name for item in self._network_inputs if item.decides_shapes}
        given = dict(self._options.shape_values)
        open_names = sorted(wanted - given.keys())
        if open_names and self._job.calibration is not None:
            samples = SampleSet.load(self._job.calibration, inputs=self.model.inputs).inputs
            for name in open_names:
                given[name] = _range_in_samples(name, samples)
        return given

    def _cache(self, kind: str) -> CacheFile:
        folder = self._options.cache_folder or default_cache_folder()
        device = self.device
        parts = (
            (str(self._options.compute_capability), self.library.label)
            if device is None
            else (device.name, device.compute_capability, device.driver, self.library.label)
        )
        return CacheFile(folder, kind, parts, self._options.timing_cache)

    def _free_memory_mib(self) -> int | None:
        if self.device is None:
            return None
        try:
            return cuda.free_memory_mib()
        except cuda.CudaError as error:
            raise error.as_run_failure() from error

    def _engine(self, plan: Path, route: Route, notes: tuple[str, ...]) -> TensorRTEngine:
        split = knobs.split_route(route.values)
        settings = RunSettings(
            runtime=split.runtime,
            host_transfers=self._options.host_transfers,
            host_code_allowed=self._options.version_compatible,
            kernel_cache=self._cache("kernels") if self.capabilities.runtime_cache else None,
            declared={spec.name: dtypes.declared_dtype(spec.dtype) for spec in self.model.outputs},
        )
        return TensorRTEngine(
            self.library,
            self.capabilities,
            plan,
            settings,
            notes=notes,
            manifest=self._manifest(route, split),
            describe=lambda text: inspector.fingerprint(
                text,
                model_digest=self._models[split.variant].sha256,
                settings=knobs.hidden_settings(split, self.capabilities),
                with_tactics=self._options.fingerprint_tactics,
            ),
        )

    def _manifest(self, route: Route, split: knobs.SplitRoute) -> dict[str, Any]:
        site, options = self._site(), self._options
        return {
            "model": {
                "file": self._models[split.variant].path.name,
                "sha256": self._models[split.variant].sha256,
                "variant": split.variant,
            },
            "route": str(route),
            "build_route": split.build_route_text,
            "runtime": dict(split.runtime),
            "library": {"name": site.library, "version": site.version},
            "device": {
                "name": site.device,
                "compute_capability": site.compute_capability,
                "driver": site.driver,
            },
            "compatibility": {
                "version_compatible": options.version_compatible,
                "hardware_compatibility": options.hardware_compatibility,
                "portable": self.capabilities.runtime_cache,
            },
            "profiles": [
                {name: [list(part) for part in parts] for name, parts in profile.items()}
                for profile in self._plan_of_shapes.profiles
            ],
            "timed_shapes": {
                name: list(shape) for name, shape in self._plan_of_shapes.shapes.items()
            },
        }

    def _site(self) -> Site:
        device = self.device
        return Site(
            library=self.library.title,
            version=self.library.version,
            device=None if device is None else device.name,
            compute_capability=None if device is None else device.compute_capability,
            driver=self._driver(),
        )

    def _driver(self) -> str | None:
        if self.device is None or self._readings is None:
            return None
        return self._readings.driver_version() or f"CUDA {self.device.driver}"

    def _first_inputs(self) -> dict[str, npt.NDArray[Any]]:
        """Return zeros of the timed shapes: valid ids and masks whatever the model is."""
        declared = {spec.name: dtypes.declared_dtype(spec.dtype) for spec in self.model.inputs}
        plan = self._plan_of_shapes
        arrays: dict[str, npt.NDArray[Any]] = {}
        for item in self._network_inputs:
            array = np.zeros(plan.shapes[item.name], declared[item.name])
            if item.decides_shapes:
                array[...] = np.reshape(plan.profiles[0][item.name][1], array.shape)
            arrays[item.name] = array
        return arrays


class TensorRTRTXBackend(TensorRTBackend):
    """TensorRT-RTX: the same Python API family, without build routes where it lists none."""

    name: ClassVar[str] = "tensorrt-rtx"


def _open_model(path: Path) -> OnnxModel:
    model = OnnxModel.open(path)
    for kind, specs in (("input", model.inputs), ("output", model.outputs)):
        for spec in specs:
            if not spec.is_tensor or spec.dtype == "string":
                raise BackendError(
                    f"{kind} {spec.name!r} of {path.name} is of type {spec.dtype}, which TensorRT "
                    "does not have; use the backend onnxruntime, or cut the model before it"
                )
    return model


def _check_variant(variant: str, original: OnnxModel, model: OnnxModel) -> None:
    for kind in ("inputs", "outputs"):
        wanted = sorted(spec.name for spec in getattr(original, kind))
        found = sorted(spec.name for spec in getattr(model, kind))
        if wanted != found:
            raise ModelError(
                f"the variant {variant!r} ({model.path.name}) has {kind} {', '.join(found)}, but "
                f"the model has {', '.join(wanted)}; variants must share them"
            )


def _check_inputs(
    variant: str, wanted: tuple[NetworkInput, ...], found: tuple[NetworkInput, ...]
) -> None:
    shapes = {item.name: (item.shape, item.decides_shapes) for item in found}
    for item in wanted:
        if shapes.get(item.name) != (item.shape, item.decides_shapes):
            raise BuildFailed(
                "unsupported",
                f"{knobs.VARIANT_KNOB}={variant}: its input {item.name!r} has another shape than "
                "that of the original",
            )


def _range_in_samples(name: str, samples: Any) -> Range:
    values = [tuple(int(v) for v in np.ravel(sample[name])) for sample in samples]
    low = tuple(min(column) for column in zip(*values, strict=True))
    high = tuple(max(column) for column in zip(*values, strict=True))
    return low, values[0], high
