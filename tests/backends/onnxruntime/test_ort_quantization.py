from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx import numpy_helper as nph
from ort_support import Bench, cosine_loss, normal

import models
from routewright.backends.base import BuildFailed
from routewright.backends.onnxruntime import hardware

ROW = ["n", 8]


def convolutions(count: int, *, opset: int = 17, depthwise: bool = False) -> ModelProto:
    """A chain of convolutions with Relu between them. x: float [1, 8, 8, 8]."""
    nodes, tensors = [], []
    for index in range(count):
        group = 8 if depthwise and index % 2 else 1
        tensors.append(models.weights(f"w{index}", 8, 8 // group, 3, 3, seed=index, scale=0.2))
        tensors.append(models.weights(f"b{index}", 8, seed=index, scale=0.1))
        source, target = (f"r{index - 1}" if index else "x"), f"c{index}"
        inputs = [source, f"w{index}", f"b{index}"]
        nodes.append(helper.make_node("Conv", inputs, [target], group=group, pads=[1, 1, 1, 1]))
        nodes.append(
            helper.make_node("Relu", [target], [f"r{index}" if index < count - 1 else "y"])
        )
    return models.build(
        nodes,
        [models.value("x", dims=["n", 8, 8, 8])],
        [models.value("y", dims=["n", 8, 8, 8])],
        tensors,
        opset=opset,
    )


def one_node(node: NodeProto, *tensors: TensorProto, dims: Any = ROW) -> ModelProto:
    rank = len(dims)
    return models.build(
        [node], [models.value("x", dims=dims)], [models.value("y", dims=[None] * rank)], tensors
    )


def lstm(direction: str = "bidirectional") -> ModelProto:
    """An LSTM. x: float [5, 1, 6]."""
    ways = 2 if direction == "bidirectional" else 1
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=4, direction=direction
    )
    return models.build(
        [node],
        [models.value("x", dims=[5, 1, 6])],
        [models.value("y", dims=[5, ways, 1, 4]), models.value("h", dims=[ways, 1, 4])],
        [
            models.weights("w", ways, 16, 6, scale=0.3),
            models.weights("r", ways, 16, 4, scale=0.3),
            models.weights("b", ways, 32, scale=0.1),
        ],
    )


X = normal(1, 8, 8, 8)
ROWS = normal(3, 8)

CASES: dict[str, tuple[ModelProto, np.ndarray[Any, Any], int]] = {
    "conv": (convolutions(1), X, 1),
    "conv chain": (convolutions(3), X, 3),
    "depthwise": (convolutions(4, depthwise=True), X, 4),
    "opset 11": (convolutions(2, opset=11), X, 2),
    "conv without bias": (
        one_node(
            helper.make_node("Conv", ["x", "w"], ["y"]),
            models.weights("w", 4, 8, 3),
            dims=[1, 8, 9],
        ),
        normal(1, 8, 9),
        1,
    ),
    "matmul": (
        one_node(helper.make_node("MatMul", ["x", "w"], ["y"]), models.weights("w", 8, 4)),
        ROWS,
        1,
    ),
    "matmul of a stack": (
        one_node(
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            models.weights("w", 2, 8, 4),
            dims=[2, 3, 8],
        ),
        normal(2, 3, 8),
        1,
    ),
    "gemm": (
        one_node(
            helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1),
            models.weights("w", 4, 8),
            models.weights("b", 4),
        ),
        ROWS,
        1,
    ),
    "gemm with a row as a matrix for bias": (
        one_node(
            helper.make_node("Gemm", ["x", "w", "b"], ["y"]),
            models.weights("w", 8, 4),
            models.weights("b", 1, 4),
        ),
        ROWS,
        1,
    ),
    "lstm": (lstm(), normal(5, 1, 6), 1),
    "lstm one way": (lstm("reverse"), normal(5, 1, 6), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_node_runs_on_an_integer_kernel(name: str, tmp_path: Path) -> None:
    model, x, nodes = CASES[name]
    bench = Bench(model, tmp_path, samples=[{"x": x}])
    engine = bench.build(bench.int8())
    assert engine.notes[0] == f"int8: {nodes} nodes quantized, {nodes} integer kernels run"
    plain = bench.build()
    loss = cosine_loss(plain.run({"x": x}), engine.run({"x": x}))
    assert 0 < loss < 0.02
    assert engine.fingerprint != plain.fingerprint


@pytest.mark.parametrize("name", ["conv chain", "depthwise", "matmul", "gemm"])
def test_every_setting_works_with_every_other(name: str, tmp_path: Path) -> None:
    model, x, _ = CASES[name]
    bench = Bench(model, tmp_path, samples=[{"x": x}])
    plain = bench.build().run({"x": x})
    settings = [knob for knob in bench.database if knob.name.startswith("-quantization:")]
    seen = Counter[str | None]()
    for values in itertools.product(*(knob.values for knob in settings)):
        chosen = [f"{k.name}={v}" for k, v in zip(settings, values, strict=True)]
        engine = bench.build(f"{bench.int8()} {' '.join(chosen)}")
        # Signed weights of full width overflow on some CPUs, by any amount.
        if "-quantization:weights=s8" not in chosen:
            assert cosine_loss(plain, engine.run({"x": x})) < 0.05, chosen
        seen[engine.fingerprint] += 1
    # Some settings come to the same engine, such as the sign of activations on x86.
    assert len(seen) > 4


def test_weights_are_by_default_as_wide_as_the_cpu_can_multiply_exactly(tmp_path: Path) -> None:
    model, x, _ = CASES["matmul"]
    bench = Bench(model, tmp_path, samples=[{"x": x}])
    chosen = "s8" if hardware.has_exact_int8_products() else "s7"
    default = bench.build(bench.int8())
    wide = bench.build(f"{bench.int8()} -quantization:weights=s8")
    assert (
        default.fingerprint
        == bench.build(f"{bench.int8()} -quantization:weights={chosen}").fingerprint
    )
    if chosen == "s7":
        plain = bench.build().run({"x": x})
        assert cosine_loss(plain, default.run({"x": x})) < cosine_loss(plain, wide.run({"x": x}))


def test_settings_without_blocks_give_the_default_engine(tmp_path: Path) -> None:
    bench = Bench(convolutions(1), tmp_path, samples=[{"x": X}])
    engine = bench.build("-quantization:weights=u8 -quantization:per_channel=off")
    assert engine.fingerprint == bench.build().fingerprint
    assert engine.notes == ()


def test_per_channel_scales_are_kinder_to_uneven_weights(tmp_path: Path) -> None:
    weight = models.weights("w", 8, 4)
    uneven = nph.to_array(weight) * np.float32([1, 1e-3, 1e-3, 1e-3])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    bench = Bench(one_node(node, nph.from_array(uneven, "w")), tmp_path, samples=[{"x": ROWS}])
    plain = bench.build().run({"x": ROWS})["y"][:, 1:]

    def error(extra: str = "") -> float:
        run = bench.build(f"{bench.int8()} {extra}").run({"x": ROWS})
        return float(np.abs(run["y"][:, 1:] - plain).max())

    assert 10 * error() < error("-quantization:per_channel=off")


def test_blocks_are_few_and_follow_the_graph(tmp_path: Path) -> None:
    bench = Bench(convolutions(40, depthwise=True), tmp_path, shapes={"x": (1, 8, 8, 8)})
    assert bench.blocks == [
        f"-quantize:{kind}{number}" for kind in ("conv", "depthwise") for number in range(1, 5)
    ]
    texts = [bench.database[name].help for name in bench.blocks]
    assert all("5 of the" in text for text in texts)
    assert "c0 to c8" in texts[0]
    assert "c31 to c39" in texts[-1]
    one = bench.build(bench.int8("-quantize:conv2"))
    assert one.notes[0].startswith("int8: 5 nodes quantized")


def test_nodes_in_branches_and_weights_that_are_no_constants_are_left_alone(
    tmp_path: Path,
) -> None:
    for make in (models.if_matmul, models.int_add, models.initializer_as_input):
        bench = Bench(make(), tmp_path)
        assert bench.blocks == []
        assert "no -quantize knobs" in bench.database.skipped[0]
        assert not any("quantization" in knob.name for knob in bench.database)


def test_a_tensor_with_several_readers_and_an_output_in_the_middle(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1]),
        helper.make_node("Conv", ["a", "w"], ["b"], pads=[1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Add", ["b", "r"], ["y"]),
    ]
    model = models.build(
        nodes,
        [models.value("x", dims=[1, 4, 9])],
        [models.value("y", dims=[1, 4, 9]), models.value("a", dims=[1, 4, 9])],
        [models.weights("w", 4, 4, 3, scale=0.3)],
    )
    x = normal(1, 4, 9)
    bench = Bench(model, tmp_path, samples=[{"x": x}])
    engine = bench.build(bench.int8())
    assert engine.notes[0].startswith("int8: 2 nodes quantized")
    outputs = engine.run({"x": x})
    assert list(outputs) == ["y", "a"]
    assert cosine_loss(bench.build().run({"x": x}), outputs) < 0.01


def test_a_branch_may_capture_a_quantized_tensor(tmp_path: Path) -> None:
    then = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["t"])], "then", [], [models.value("t", dims=[1, 4, 9])]
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["a"], ["e"])], "else", [], [models.value("e", dims=[1, 4, 9])]
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1]),
        helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other),
    ]
    model = models.build(
        nodes,
        [models.value("flag", TensorProto.BOOL, []), models.value("x", dims=[1, 4, 9])],
        [models.value("y", dims=[1, 4, 9])],
        [models.weights("w", 4, 4, 3)],
    )
    inputs = {"flag": np.array(True), "x": normal(1, 4, 9)}
    bench = Bench(model, tmp_path, samples=[inputs])
    loss = cosine_loss(bench.build().run(inputs), bench.build(bench.int8()).run(inputs))
    assert 0 < loss < 0.01


def test_a_bias_too_large_for_int32_coarsens_the_weight(tmp_path: Path) -> None:
    tensors = [
        nph.from_array(nph.to_array(models.weights("w", 8, 4)) * np.float32(1e-9), "w"),
        nph.from_array(np.float32([1e3, 0, -1e3, 1]), "b"),
    ]
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    bench = Bench(one_node(node, *tensors), tmp_path, samples=[{"x": ROWS}])
    expected, found = (bench.build(r).run({"x": ROWS})["y"] for r in ("", bench.int8()))
    assert np.allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 1e-44, 3e38])
def test_weights_and_inputs_of_any_size_give_finite_scales(value: float, tmp_path: Path) -> None:
    weight = nph.from_array(np.full((8, 4), value, np.float32), "w")
    bench = Bench(
        one_node(helper.make_node("MatMul", ["x", "w"], ["y"]), weight),
        tmp_path,
        samples=[{"x": np.zeros((3, 8), np.float32)}],
    )
    engine = bench.build(bench.int8())
    assert np.array_equal(engine.run({"x": np.zeros((3, 8), np.float32)})["y"], np.zeros((3, 4)))


def test_values_that_are_not_finite_end_the_trial_in_one_line(tmp_path: Path) -> None:
    bad = X.copy()
    bad[0, 0, 0, 0] = np.nan
    bench = Bench(convolutions(1), tmp_path, samples=[{"x": bad}])
    with pytest.raises(BuildFailed, match="value of 'x' that is not finite") as caught:
        bench.build(bench.int8())
    assert caught.value.kind == "unsupported"
    assert "\n" not in str(caught.value)
    # What needs no calibration is not kept from being built.
    assert bench.build().fingerprint


def test_samples_that_cannot_be_made_up_end_the_trial_in_one_line(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Identity", ["t"], ["u"]),
    ]
    inputs = [models.value("x", dims=[2, 8]), models.value("t", TensorProto.STRING, [1])]
    outputs = [models.value("y", dims=[2, 4]), models.value("u", TensorProto.STRING, [1])]
    model = models.build(nodes, inputs, outputs, [models.weights("w", 8, 4)])
    bench = Bench(model, tmp_path, shapes={"x": (2, 8), "t": (1,)})
    with pytest.raises(BuildFailed, match="'t' is of type string"):
        bench.build(bench.int8())
    dynamic = f"{bench.int8()} -quantization:matmul=dynamic"
    feeds = {"x": normal(2, 8), "t": np.array(["a"], dtype=object)}
    assert bench.build(dynamic).run(feeds)["u"].tolist() == ["a"]
    given = Bench(model, tmp_path, samples=[feeds])
    assert given.build(given.int8()).run(feeds)["y"].shape == (2, 4)


def test_calibration_samples_of_another_shape_end_the_trial(tmp_path: Path) -> None:
    bench = Bench(lstm(), tmp_path, shapes={"x": (5, 1, 6)})
    assert bench.build(bench.int8())
    model = one_node(helper.make_node("MatMul", ["x", "w"], ["y"]), models.weights("w", 8, 4))
    bench = Bench(model, tmp_path, shapes={"x": (2, 9)})
    with pytest.raises(BuildFailed, match="cannot quantize: calibration failed"):
        bench.build(bench.int8())


def test_an_opset_that_cannot_be_raised_gives_no_blocks_and_the_reason(tmp_path: Path) -> None:
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("i", TensorProto.INT64, [1], [1]),
        [4],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Constant", [], ["c"], sparse_value=sparse),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    model = models.build(
        nodes,
        [models.value("x", dims=[2, 8])],
        [models.value("y", dims=[2, 4])],
        [models.weights("w", 8, 4)],
        opset=11,
        ir_version=6,
        check=False,
    )
    bench = Bench(model, tmp_path)
    assert bench.database.skipped == (
        "no -quantize knobs: its opset 11 cannot be raised to 13: Sparse tensors not supported.",
    )
    assert bench.build().run({"x": ROWS[:2]})["y"].shape == (2, 4)


def test_weights_in_files_beside_the_model_are_quantized_into_one_file(tmp_path: Path) -> None:
    path = models.save_external(convolutions(2), tmp_path / "e.onnx")
    bench = Bench(path, tmp_path, samples=[{"x": X}])
    engine = bench.build(bench.int8())
    target = tmp_path / "saved"
    target.mkdir()
    assert {file.name for file in engine.save(target)} == {"model.onnx", "settings.json"}
    assert cosine_loss(bench.build().run({"x": X}), engine.run({"x": X})) < 0.02


def test_the_quantized_model_is_plain_onnx(tmp_path: Path) -> None:
    bench = Bench(CASES["depthwise"][0], tmp_path, samples=[{"x": X}])
    target = tmp_path / "saved"
    target.mkdir()
    bench.build(bench.int8()).save(target)
    onnx.checker.check_model(target / "model.onnx", full_check=True)
    model = onnx.load(target / "model.onnx")
    assert {opset.domain for opset in model.opset_import} == {""}
    floats = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    assert all(len(t.dims) < 2 for t in floats)


def test_nothing_is_written_or_printed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "cwd"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    bench = Bench(convolutions(2, opset=11), tmp_path, samples=[{"x": X}])
    bench.build(bench.int8())
    assert list(elsewhere.iterdir()) == []
    assert [file for file in bench.work.rglob("*") if file.is_file()] == []
    assert capfd.readouterr() == ("", "")


def test_another_process_builds_the_same(tmp_path: Path) -> None:
    path = models.save(convolutions(6, opset=11, depthwise=True), tmp_path / "m.onnx")
    code = (
        "import sys; from pathlib import Path; from ort_support import Bench\n"
        "if __name__ == '__main__':\n"
        "    b = Bench(Path(sys.argv[1]), Path(sys.argv[2]), shapes={'x': (1, 8, 8, 8)}, seed=3)\n"
        "    print(b.database.to_json(), b.build().fingerprint, b.build(b.int8()).fingerprint)\n"
    )
    answers = set()
    for seed in ("1", "2", "3"):
        folder = tmp_path / seed
        folder.mkdir()
        finished = subprocess.run(
            [sys.executable, "-c", code, str(path), str(folder)],
            capture_output=True,
            text=True,
            check=True,
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )
        answers.add(finished.stdout)
    assert len(answers) == 1
