from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from ort_support import Bench, normal

import models
from routewright.backends import load_backend
from routewright.backends.base import BuildFailed, Job, RunFailed
from routewright.backends.onnxruntime.backend import OnnxRuntimeBackend
from routewright.backends.onnxruntime.engine import RUN_SCRIPT, OnnxRuntimeEngine, make_session
from routewright.backends.onnxruntime.reference import plain_settings
from routewright.errors import BackendError, ModelError, SettingsError
from routewright.knobs import KnobDatabase
from routewright.routes import Route

X = normal(2, 3, 16, 16)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("bench")
    return Bench(models.conv_net(), folder, samples=[{"x": X}])


def test_it_is_found_by_name() -> None:
    assert load_backend("onnxruntime") is OnnxRuntimeBackend
    assert OnnxRuntimeBackend.metric == "host end to end"


def test_the_database_is_the_compilers_json(bench: Bench) -> None:
    again = KnobDatabase.from_json(bench.database.to_json(), source="test")
    assert again == bench.database
    assert again.skipped == ()
    assert all(knob.searchable or len(knob.values) == 1 for knob in again)
    assert bench.database.tuner_version.startswith("onnxruntime-")
    assert len(bench.database) > 80
    assert [spec.name for spec in bench.backend.inputs()] == ["x"]


@pytest.mark.slow
def test_every_value_of_every_knob_builds_and_runs(bench: Bench) -> None:
    reference = bench.backend.reference_engine().run({"x": X})["y"]
    for knob in bench.database:
        for value in knob.values:
            if value == knob.default:
                continue
            parallel = knob.name.startswith("-session:parallel:")
            base = "-session:parallel=on " if parallel else ""
            engine = bench.build(f"{base}{knob.name}={value}")
            loose = knob.name.startswith(("-quanti", "-optimizer:gelu"))
            result = engine.run({"x": X})["y"]
            assert np.allclose(result, reference, atol=0.5 if loose else 1e-4), knob.name
            engine.close()


def test_identical_builds_have_one_fingerprint_and_others_another(bench: Bench) -> None:
    routes = ["", "-optimizer:NchwcTransformer=off", "-optimizer=disable", bench.int8()]
    first = [bench.build(route).fingerprint for route in routes]
    assert None not in first
    assert len(set(first)) == len(routes)
    assert [bench.build(route).fingerprint for route in routes] == first


def test_an_inert_knob_leaves_the_fingerprint(bench: Bench) -> None:
    default = bench.build().fingerprint
    assert bench.build("-optimizer:AttentionFusion=off").fingerprint == default
    assert bench.build("-optimizer:qdq_int8_allowed=on").fingerprint == default
    threads = bench.build("-session:intra_op_num_threads=1").fingerprint
    if bench.database["-session:intra_op_num_threads"].default != "1":
        assert threads != default
    # A knob that the level makes inert.
    basic = bench.build("-optimizer=basic").fingerprint
    assert bench.build("-optimizer=basic -optimizer:NchwcTransformer=off").fingerprint == basic


def test_a_build_leaves_nothing_but_what_the_engine_needs(bench: Bench, tmp_path: Path) -> None:
    plain, quantized = tmp_path / "plain", tmp_path / "int8"
    for folder, route in ((plain, ""), (quantized, bench.int8())):
        folder.mkdir()
        bench.backend.build(Route.parse(route, bench.database), folder)
    assert list(plain.iterdir()) == []
    assert [file.name for file in quantized.iterdir()] == ["model.onnx"]


def test_saving_the_optimized_graph_changes_nothing_that_runs(
    bench: Bench, tmp_path: Path
) -> None:
    settings = plain_settings(1).document()
    settings["session_options"] |= {
        "graph_optimization_level": "ORT_ENABLE_ALL",
        "enable_profiling": True,
    }
    seen = []
    for optimized in (None, tmp_path / "optimized.onnx"):
        with _inside(tmp_path):
            session = make_session(
                bench.folder / "m.onnx", settings, optimized=optimized, severity=3
            )
            (output,) = session.run(None, {"x": X})
            events = json.loads(Path(session.end_profiling()).read_text())
        kernels = sorted(
            (event["args"]["op_name"], str(event["args"].get("output_type_shape")))
            for event in events
            if event.get("cat") == "Node" and "op_name" in event["args"]
        )
        seen.append((kernels, output.tobytes()))
    assert seen[0] == seen[1]
    assert seen[0][0]


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def test_a_saved_engine_runs_without_routewright(bench: Bench, tmp_path: Path) -> None:
    assert len(RUN_SCRIPT.splitlines()) == 10
    np.savez(tmp_path / "inputs.npz", x=X)
    (tmp_path / "run.py").write_text(RUN_SCRIPT)
    (tmp_path / "routewright.py").write_text("raise SystemExit('routewright was imported')")
    routes = [
        "",
        f"-optimizer=extended -optimizer:ConvBNFusion=off -session:spinning=off {bench.int8()}",
        "-session:parallel=on -session:execution_order=priority_based -session:mem_pattern=off",
    ]
    for index, route in enumerate(routes):
        engine = bench.build(route)
        folder = tmp_path / f"engine{index}"
        folder.mkdir()
        files = engine.save(folder)
        assert sorted(files) == sorted(folder.iterdir())
        settings = json.loads((folder / "settings.json").read_text())
        assert settings["route"] == route
        finished = subprocess.run(
            [sys.executable, "run.py", folder.name, "inputs.npz"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert finished.stdout.strip() == str(list(engine.run({"x": X}).values()))
        assert finished.stderr == ""


def test_a_model_that_changed_meanwhile_is_not_saved_as_measured(tmp_path: Path) -> None:
    bench = Bench(models.mlp_static(), tmp_path)
    engine = bench.build()
    models.save(models.mlp_dynamic(), tmp_path / "m.onnx")
    target = tmp_path / "saved"
    target.mkdir()
    with pytest.raises(BackendError, match=r"m\.onnx was changed after the engine was built"):
        engine.save(target)
    assert list(target.iterdir()) == []


def test_external_data_goes_with_the_engine(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    path = models.save_external(models.conv_net(), tmp_path / "e.onnx", "weights/e.bin")
    bench = Bench(path, tmp_path, samples=[{"x": X}])
    engine = bench.build()
    target = tmp_path / "saved"
    target.mkdir()
    files = {str(file.relative_to(target)) for file in engine.save(target)}
    assert files == {"model.onnx", "weights/e.bin", "settings.json"}
    session = make_session(target / "model.onnx", plain_settings(1).document())
    assert np.allclose(session.run(None, {"x": X})[0], engine.run({"x": X})["y"], atol=1e-4)
    # The same content has the same identity, wherever it lies.
    inline = Bench(models.save(models.conv_net(), tmp_path / "i.onnx"), tmp_path)
    assert inline.build().fingerprint == engine.fingerprint


@pytest.mark.slow
def test_a_model_above_two_gigabytes(tmp_path: Path) -> None:
    bench = Bench(models.save_big(tmp_path), tmp_path, shapes={"x": (2, 8)})
    assert "2.1 GiB" in bench.database.skipped[0]
    engine = bench.build()
    assert engine.fingerprint is not None
    assert engine.run({"x": normal(2, 8)})["y"].shape == (2, 8)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("shared_symbol", {"a": normal(3, 4), "b": normal(3, 4)}),
        ("if_matmul", {"flag": np.array(False), "x": normal(2, 4)}),
        ("loop_scan", {"trips": np.array(0), "x": normal(4)}),
        ("no_inputs", {}),
        ("nonzero", {"x": np.float32([0, 1, 0, 2])}),
        ("string_identity", {"text": np.array(["a", "é"], dtype=object)}),
        ("sample_rate", {"audio": normal(1, 512), "sr": np.array(16000)}),
        ("int_add", {"a": np.arange(3), "b": np.arange(3)}),
        ("fp16_overflow", {"x": np.ones(8, np.float16)}),
    ],
)
def test_models_of_every_kind_build_run_and_are_timed(
    name: str, inputs: dict[str, np.ndarray], tmp_path: Path
) -> None:
    bench = Bench(models.MODELS[name](), tmp_path)
    engine = bench.build()
    outputs = engine.run(inputs)
    expected = bench.backend.reference_engine().run(inputs)
    assert list(outputs) == list(expected)
    for output, array in outputs.items():
        assert array.dtype == expected[output].dtype
        assert array.shape == expected[output].shape
    latencies = engine.time_runs(inputs, 3)
    assert len(latencies) == 3
    assert all(latency > 0 for latency in latencies)
    engine.settle()


def test_an_output_without_elements_has_its_shape(tmp_path: Path) -> None:
    bench = Bench(models.loop_scan(), tmp_path)
    outputs = bench.build().run({"trips": np.array(0), "x": normal(4)})
    assert outputs["steps"].shape == (0, 4)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"Required inputs \(\['x'\]\) are missing"),
        ({"x": np.zeros((2, 3, 16, 16))}, "Unexpected input data type.*double"),
        ({"x": normal(2, 4, 16, 16)}, "Got invalid dimensions for input: x"),
    ],
)
def test_wrong_inputs_are_one_line(
    inputs: dict[str, np.ndarray], message: str, bench: Bench
) -> None:
    engine = bench.build()
    for call in (engine.run, lambda feeds: engine.time_runs(feeds, 1)):
        with pytest.raises(RunFailed, match=message) as caught:
            call(inputs)
        assert caught.value.kind == "error"
        assert "\n" not in str(caught.value)


def test_a_node_that_fails_is_named(tmp_path: Path) -> None:
    bench = Bench(models.embedding(), tmp_path)
    names = [spec.name for spec in bench.backend.inputs()]
    with pytest.raises(RunFailed, match=r"Gather node.*out of data bounds, idx=100"):
        bench.build().run({name: np.array([[100]]) for name in names})


def test_too_large_an_output_is_out_of_memory(tmp_path: Path) -> None:
    node = helper.make_node("ConstantOfShape", ["x"], ["y"])
    model = models.build(
        [node], [models.value("x", TensorProto.INT64, [1])], [models.value("y", dims=["n"])]
    )
    bench = Bench(model, tmp_path)
    with pytest.raises(RunFailed, match="allocate memory") as caught:
        bench.build().run({"x": np.array([2**44])})
    assert caught.value.kind == "oom"


def broken(kind: str, folder: Path) -> Path:
    x, y = models.value("x", dims=[2, 3]), models.value("y", dims=[2, 3])
    nodes = {
        "unknown operator": [helper.make_node("NoSuchOp", ["x"], ["y"], name="culprit")],
        "unknown domain": [helper.make_node("Own", ["x"], ["y"], domain="my.ops")],
        "dangling input": [helper.make_node("Add", ["x", "nowhere"], ["y"])],
        "wrong shapes": [helper.make_node("MatMul", ["x", "x"], ["y"], name="culprit")],
        "no kernel": [
            helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
            helper.make_node("Mod", ["h", "h"], ["m"], name="culprit"),
            helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
        ],
    }
    model = models.build(nodes[kind], [x], [y], check=False)
    if kind == "unknown domain":
        model.opset_import.append(helper.make_opsetid("my.ops", 1))
    return models.save(model, folder / "broken.onnx")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("unknown operator", "NoSuchOp"),
        ("unknown domain", "my.ops"),
        ("dangling input", "'nowhere'"),
        ("wrong shapes", "culprit.*Incompatible dimensions"),
        ("no kernel", "Mod.*'culprit'"),
    ],
)
def test_a_model_that_the_library_refuses_is_one_line(
    kind: str, message: str, tmp_path: Path
) -> None:
    path = broken(kind, tmp_path)
    with pytest.raises(BackendError, match=message) as caught:
        OnnxRuntimeBackend(Job(model=path, work_folder=tmp_path))
    assert "\n" not in str(caught.value)
    assert "broken.onnx" in str(caught.value)
    assert "onnxruntime_src" not in str(caught.value)


def test_what_is_no_model_and_missing_data_is_one_line(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"nothing" * 99)
    external = models.save_external(models.conv_net(), tmp_path / "e.onnx", "gone.bin")
    (tmp_path / "gone.bin").unlink()
    for path, message in [
        (garbage, "not an ONNX model"),
        (tmp_path / "none.onnx", "does not exist"),
        (external, "gone.bin"),
    ]:
        with pytest.raises(ModelError, match=message):
            OnnxRuntimeBackend(Job(model=path, work_folder=tmp_path))


def test_options_of_the_job_are_checked_and_used(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="threads"):
        Bench(models.mlp_static(), tmp_path, options={"treads": 1})
    bench = Bench(models.mlp_static(), tmp_path, options={"threads": 1})
    assert bench.database["-session:intra_op_num_threads"].values == ("1",)
    assert bench.backend.environment()["default_threads"] == 1
    ranged = Bench(
        models.mlp_static(),
        tmp_path,
        shapes={"x": (2, 8)},
        options={"input_ranges": {"z": [0, 1]}},
    )
    with pytest.raises(BuildFailed, match="'z'"):
        ranged.build(ranged.int8())


def test_a_missing_library_is_one_line(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from pathlib import Path\n"
        "from routewright.backends import load_backend\n"
        "from routewright.backends.base import Job\n"
        "backend = load_backend('onnxruntime')\n"
        "try: backend(Job(model=Path('m'), work_folder=Path('.')))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert finished.stdout.strip() == (
        "BackendError onnxruntime is not installed: pip install onnxruntime"
    )


def test_a_session_on_another_provider_is_no_engine(bench: Bench) -> None:
    settings = plain_settings(1).document()
    settings["arguments"]["providers"] = ["CUDAExecutionProvider"]
    with (
        pytest.warns(UserWarning, match="not in available provider names"),
        pytest.raises(BuildFailed, match="runs on CPUExecutionProvider instead of CUDA"),
    ):
        make_session(bench.folder / "m.onnx", settings, severity=4)


def test_warnings_of_the_library_become_notes(tmp_path: Path) -> None:
    bench = Bench(models.initializer_as_input(), tmp_path)
    (note,) = bench.build().notes
    assert "Initializer w appears in graph inputs" in note


def test_the_environment_is_json_and_names_what_counts(bench: Bench) -> None:
    environment = bench.backend.environment()
    assert json.loads(json.dumps(environment)) == environment
    assert {"onnxruntime", "cpu", "cores", "quota_cores", "numpy", "default_threads"} <= set(
        environment
    )
    assert all(key.endswith("_now") for key in bench.backend.health())


def test_settling_ends_when_threads_rest_and_is_bounded(bench: Bench) -> None:
    feeds = {"x": X}
    quiet = bench.build("")
    assert isinstance(quiet, OnnxRuntimeEngine)
    quiet.time_runs(feeds, 2)
    quiet.settle()
    engine = bench.build("")
    assert isinstance(engine, OnnxRuntimeEngine)
    # As if it spun: the threads below stand for its own.
    engine._settings = dataclasses.replace(engine._settings, config_entries={})
    engine.time_runs(feeds, 5)
    engine.settle()
    begin_s, used_s = time.monotonic(), time.process_time()
    time.sleep(0.03)
    idle = (time.process_time() - used_s) / (time.monotonic() - begin_s)
    assert idle < 0.5
    # Threads that never rest do not hang the study.
    rest = threading.Event()
    busy = threading.Thread(target=_spin, args=(rest,))
    busy.start()
    engine.settle()
    rest.set()
    busy.join()


def _spin(rest: threading.Event) -> None:
    while not rest.is_set():
        pass


def test_a_closed_engine_says_so_and_closes_twice(bench: Bench) -> None:
    engine = bench.build()
    engine.close()
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.run({"x": X})


def test_seeds_make_calibration_reproducible(tmp_path: Path) -> None:
    def quantized(seed: int) -> str | None:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        bench = Bench(models.conv_net(), folder, shapes={"x": (2, 3, 16, 16)}, seed=seed)
        return bench.build(bench.int8()).fingerprint

    assert quantized(1) == quantized(1) != quantized(2)


def test_model_bytes_are_never_written_to(bench: Bench) -> None:
    before = (bench.folder / "m.onnx").read_bytes()
    bench.build(bench.int8())
    assert (bench.folder / "m.onnx").read_bytes() == before
    assert isinstance(onnx.load(bench.folder / "m.onnx"), ModelProto)
