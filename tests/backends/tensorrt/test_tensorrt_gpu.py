"""The backend on a real device: load, run, time, record, save, and fail as it should.

The library is TensorRT-RTX unless ROUTEWRIGHT_GPU_BACKEND names the other one. What the inspector
says is kept in the folder that ROUTEWRIGHT_GPU_OUT names, if any.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import trt_models
from trt_support import run_child

from routewright.backends import load_backend
from routewright.backends.base import BuildFailed, Job, RunFailed
from routewright.backends.tensorrt import cuda, streams
from routewright.backends.tensorrt.backend import METRIC_WITH_TRANSFERS, TensorRTBackend
from routewright.backends.tensorrt.engine import TensorRTEngine
from routewright.backends.tensorrt.plan import add_to_manifest, read_manifest
from routewright.errors import BackendError
from routewright.routes import Route

pytestmark = pytest.mark.gpu

NAME = os.environ.get("ROUTEWRIGHT_GPU_BACKEND", "tensorrt-rtx")
SMALL = {"x": ((1, 16), (2, 16), (4, 16))}
LARGE = {"x": ((5, 16), (8, 16), (64, 16))}

Make = Callable[..., TensorRTBackend]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Return a function that makes a backend; its engines are closed at the end."""
    made: list[TensorRTBackend] = []
    kind: Any = load_backend(NAME)

    def new(model: Path, *, shapes: Any = None, profiles: Any = (), **options: Any) -> Any:
        given = {"x": (2, 16)} if shapes is None else shapes
        settings = {"cache_folder": str(tmp_path / "cache"), **options}
        backend = kind(Job(model, tmp_path, given, profiles, options=settings))
        made.append(backend)
        return backend

    yield new
    for backend in made:
        backend.close()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., TensorRTEngine]]:
    """Return a function that builds an engine in a folder of its own."""
    engines: list[Any] = []

    def new(backend: TensorRTBackend, route: str = "") -> Any:
        folder = tmp_path / f"build{len(engines)}"
        folder.mkdir()
        engines.append(backend.build(Route.parse(route, backend.knob_database()), folder))
        return engines[-1]

    yield new
    for engine in engines:
        engine.close()
        engine.close()


def reference(model: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of ONNX Runtime on the CPU."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def built_or_refused(build: Any, backend: TensorRTBackend) -> tuple[Any, str]:
    """Return the engine of the default route, or None and why there is none."""
    try:
        return build(backend), ""
    except BuildFailed as failure:
        return None, str(failure)


def batch(size: int) -> dict[str, Any]:
    rng = np.random.default_rng(size)
    return {"x": rng.standard_normal((size, 16)).astype(np.float32)}


def test_an_engine_computes_what_the_model_says(make: Make, build: Any, tmp_path: Path) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx")
    backend = make(model)
    engine = build(backend)
    for seed in range(3):
        inputs = {"x": np.random.default_rng(seed).standard_normal((2, 16)).astype(np.float32)}
        actual = engine.run(inputs)
        assert set(actual) == {"y"}
        assert actual["y"].dtype == np.float32
        # TF32 rounds inputs to 10 bits.
        np.testing.assert_allclose(actual["y"], reference(model, inputs)["y"], atol=2e-2)
    assert engine.device_memory_bytes >= 0
    environment = backend.environment()
    assert environment["device"]
    assert environment["compute_capability"]
    assert environment["free_memory_mib_now"] > 0
    json.dumps(environment)


def test_outputs_do_not_change_from_run_to_run(make: Make, build: Any, tmp_path: Path) -> None:
    engine = build(make(trt_models.mlp(tmp_path / "m.onnx")))
    first = engine.run(batch(2))["y"]
    engine.time_runs(batch(2), 20)
    np.testing.assert_array_equal(engine.run(batch(2))["y"], first)


def test_latencies_are_one_per_run_and_positive(make: Make, build: Any, tmp_path: Path) -> None:
    engine = build(make(trt_models.mlp(tmp_path / "m.onnx")))
    inputs = batch(2)
    for runs in (1, 7, 150):
        latencies = engine.time_runs(inputs, runs)
        assert len(latencies) == runs
        assert all(0 < latency < 1000 for latency in latencies)
    engine.settle()


def test_timing_leaves_the_right_inputs_behind(make: Make, build: Any, tmp_path: Path) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx")
    engine = build(make(model))
    first, second = batch(2), {"x": np.ones((2, 16), np.float32)}
    engine.time_runs(first, 3)
    engine.run(second)
    engine.time_runs(first, 3)
    expected = reference(model, first)["y"]
    np.testing.assert_allclose(engine.run(first)["y"], expected, atol=2e-2)


def test_a_variant_in_half_precision_gives_the_declared_types(
    make: Make, build: Any, tmp_path: Path
) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx")
    half = trt_models.mlp(tmp_path / "half.onnx", half=True)
    backend = make(model, variants={"fp16": str(half)})
    original = build(backend)
    engine = build(backend, "-model:variant=fp16")
    actual = engine.run(batch(2))["y"]
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, reference(model, batch(2))["y"], atol=5e-2)
    if engine.fingerprint is not None:
        assert engine.fingerprint != original.fingerprint


def test_open_shapes_run_in_whichever_profile_takes_them(
    make: Make, build: Any, tmp_path: Path
) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx")
    engine = build(make(model, profiles=(SMALL, LARGE)))
    for size in (1, 4, 5, 64, 2, 8):
        actual = engine.run(batch(size))["y"]
        np.testing.assert_allclose(actual, reference(model, batch(size))["y"], atol=2e-2)
    with pytest.raises(RunFailed, match="input 'x' of 65x16 is outside") as caught:
        engine.run(batch(65))
    assert caught.value.kind == "error"
    assert len(engine.run(batch(4))["y"]) == 4


def test_a_shape_between_two_profiles_is_refused(make: Make, build: Any, tmp_path: Path) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx")
    far = {"x": ((16, 16), (32, 16), (64, 16))}
    engine = build(make(model, profiles=(SMALL, far)))
    with pytest.raises(
        RunFailed, match=r"of 8x16 is outside.* 1x16 to 4x16 and .* 16x16 to 64x16"
    ):
        engine.run(batch(8))
    assert len(engine.run(batch(16))["y"]) == 16


def test_fixed_shapes_run_and_others_are_refused(make: Make, build: Any, tmp_path: Path) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx", batch=2)
    engine = build(make(model))
    np.testing.assert_allclose(
        engine.run(batch(2))["y"], reference(model, batch(2))["y"], atol=2e-2
    )
    with pytest.raises(RunFailed, match="refused input 'x' of 3x16"):
        engine.run(batch(3))
    with pytest.raises(RunFailed, match="refused input 'x' of 2x4x4"):
        engine.run({"x": np.zeros((2, 4, 4), np.float32)})
    assert engine.run(batch(2))["y"].shape == (2, 8)


def test_values_that_decide_shapes(make: Make, build: Any, tmp_path: Path) -> None:
    model = trt_models.reshape_by_values(tmp_path / "r.onnx")
    values = {"shape": {"min": [2, 6], "opt": [4, 6], "max": [4, 12]}}
    engine = build(make(model, shapes={}, shape_values=values))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for shape in ((4, 6), (2, 12)):
        actual = engine.run({"x": x, "shape": np.array(shape, np.int64)})["y"]
        np.testing.assert_array_equal(actual, x.reshape(shape))
    with pytest.raises(RunFailed, match="out of bounds"):
        engine.run({"x": x, "shape": np.array((1, 24), np.int64)})


def test_sizes_that_follow_from_the_data_are_read_or_refused(
    make: Make, build: Any, tmp_path: Path
) -> None:
    model = trt_models.nonzero(tmp_path / "n.onnx")
    try:
        backend = make(model, shapes={})
    except BackendError as error:
        backend, refusal = None, str(error)
    if backend is None:
        assert "NonZero" in refusal
        return
    engine, refusal = built_or_refused(build, backend)
    if engine is None:
        assert "nonzero" in refusal.lower()
        return
    for seed in range(3):
        x = (np.random.default_rng(seed).random((4, 4)) > 0.5).astype(np.float32)
        np.testing.assert_array_equal(engine.run({"x": x})["y"], np.stack(np.nonzero(x)))


def test_whole_numbers(make: Make, build: Any, tmp_path: Path) -> None:
    engine = build(make(trt_models.int64_sum(tmp_path / "i.onnx"), shapes={"a": (3,), "b": (3,)}))
    a, b = np.array([1, 2**20, -3]), np.array([5, 6, 7])
    actual = engine.run({"a": a, "b": b})["y"]
    assert actual.dtype == np.int64
    np.testing.assert_array_equal(actual, a + b)


def test_cuda_graphs_give_the_same_outputs(make: Make, build: Any, tmp_path: Path) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx")
    backend = make(model, profiles=(SMALL,))
    plain, recorded = build(backend), build(backend, "-runtime:cuda_graph=on")
    for size in (2, 4, 2):
        expected = plain.run(batch(size))["y"]
        np.testing.assert_array_equal(recorded.run(batch(size))["y"], expected)
        assert all(latency > 0 for latency in recorded.time_runs(batch(size), 10))
    if plain.fingerprint is not None:
        assert plain.fingerprint != recorded.fingerprint


def test_our_own_recording_gives_the_same_outputs(make: Make, build: Any, tmp_path: Path) -> None:
    """What a library without CUDA graphs of its own gets; tried here on any library."""
    model = trt_models.mlp(tmp_path / "m.onnx")
    backend = make(model, profiles=(SMALL,))
    backend.capabilities = dataclasses.replace(backend.capabilities, own_cuda_graph=False)
    plain, recorded = build(backend), build(backend, "-runtime:cuda_graph=on")
    for size in (2, 4, 2):
        expected = plain.run(batch(size))["y"]
        np.testing.assert_array_equal(recorded.run(batch(size))["y"], expected)
        assert all(latency > 0 for latency in recorded.time_runs(batch(size), 10))


def test_latency_with_host_transfers(make: Make, build: Any, tmp_path: Path) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx")
    backend = make(model, host_transfers=True)
    assert backend.metric == METRIC_WITH_TRANSFERS
    assert backend.environment()["latency_covers"] == METRIC_WITH_TRANSFERS
    engine = build(backend)
    assert all(latency > 0 for latency in engine.time_runs(batch(2), 100))
    np.testing.assert_allclose(
        engine.run(batch(2))["y"], reference(model, batch(2))["y"], atol=2e-2
    )


def test_two_builds_of_one_route_have_one_fingerprint(
    make: Make, build: Any, tmp_path: Path
) -> None:
    backend = make(trt_models.mlp(tmp_path / "m.onnx"))
    first, second = build(backend), build(backend)
    keep("inspector.json", first.inspector_text)
    assert first.fingerprint == second.fingerprint


def test_kernels_compiled_at_run_time_are_kept(make: Make, build: Any, tmp_path: Path) -> None:
    backend = make(trt_models.mlp(tmp_path / "m.onnx"))
    if not backend.capabilities.runtime_cache:
        pytest.skip("this library compiles nothing at run time")
    build(backend)
    (kept,) = (tmp_path / "cache").glob("*.kernels")
    assert kept.stat().st_size > 0
    build(backend)


def test_a_saved_engine_is_loaded_and_gives_the_same(
    make: Make, build: Any, tmp_path: Path
) -> None:
    backend = make(trt_models.mlp(tmp_path / "m.onnx"))
    engine = build(backend, "-runtime:cuda_graph=on")
    folder = tmp_path / "saved"
    folder.mkdir()
    assert {path.name for path in engine.save(folder)} >= {"engine.plan", "manifest.json"}
    loaded = backend.load(folder)
    np.testing.assert_array_equal(loaded.run(batch(2))["y"], engine.run(batch(2))["y"])
    assert loaded.fingerprint == engine.fingerprint
    loaded.close()
    manifest = read_manifest(folder)
    for part in ("model", "route", "library", "device", "profiles"):
        assert part in manifest
    add_to_manifest(folder, {"library": {**manifest["library"], "version": "0.1"}})
    with pytest.raises(BackendError, match=r"0\.1, and this is"):
        backend.load(folder)


def test_readings_of_the_device(make: Make, build: Any, tmp_path: Path) -> None:
    backend = make(trt_models.mlp(tmp_path / "m.onnx"))
    build(backend)
    readings = backend.health()
    json.dumps(readings)
    keep("health.json", json.dumps(readings, indent=1))
    if not readings["remarks"]:
        assert readings["sm_clock_mhz"] > 0
        assert readings["temperature_c"] > 0
        assert readings["other_processes"] == []


def test_the_l2_knob_is_listed_where_there_is_a_device(make: Make, tmp_path: Path) -> None:
    database = make(trt_models.mlp(tmp_path / "m.onnx")).knob_database()
    keep("knobs.json", database.to_json())
    assert database["-config:l2_limit_for_tiling"].values == ("auto", "quarter", "half", "all")


def test_memory_that_is_not_there_is_out_of_memory() -> None:
    with streams.DeviceBuffer() as buffer, pytest.raises(cuda.CudaError) as caught:
        buffer.reserve(1 << 50)
    assert caught.value.kind == "oom"
    with streams.DeviceBuffer() as buffer:
        assert buffer.reserve(1 << 20)


def test_wrong_inputs_are_refused_before_they_run(make: Make, build: Any, tmp_path: Path) -> None:
    engine = build(make(trt_models.mlp(tmp_path / "m.onnx")))
    with pytest.raises(RunFailed, match="needs an input 'x'"):
        engine.run({})
    with pytest.raises(RunFailed, match="of type int32"):
        engine.run({"x": np.zeros((2, 16), np.int32)})
    assert engine.run(batch(2))["y"].shape == (2, 8)


def test_a_plan_for_another_target_is_refused_with_the_reason_or_runs_right(
    make: Make, build: Any, tmp_path: Path
) -> None:
    model = trt_models.mlp(tmp_path / "m.onnx")
    backend = make(model)
    if "SM120" not in backend.capabilities.targets:
        pytest.skip("this library builds for the device here only")
    if backend.environment()["compute_capability"].startswith("12"):
        pytest.skip("this device is the target")
    engine, refusal = built_or_refused(build, make(model, compute_capability="SM120"))
    if engine is None:
        assert "cannot" in refusal
        return
    actual = engine.run(batch(2))["y"]
    np.testing.assert_allclose(actual, reference(model, batch(2))["y"], atol=2e-2)


def test_a_lost_device_is_said_to_be_lost(tmp_path: Path) -> None:
    answer = run_child("trt_sticky_child.py", NAME, str(tmp_path), may_crash_at_exit=True)
    assert answer["kind"] == "sticky"
    assert "the device is lost for this process" in answer["message"]
    assert answer["next"] == "sticky"


def keep(name: str, text: str) -> None:
    """Keep a text with the results of this run, where a folder for them is named."""
    folder = os.environ.get("ROUTEWRIGHT_GPU_OUT")
    if folder:
        (Path(folder) / name).write_text(text)
