from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ort_support import Bench, normal

import models
from routewright.backends.onnxruntime.reference import compute_references
from routewright.errors import BackendError, ModelError


def test_a_plain_model_is_deterministic(tmp_path: Path) -> None:
    path = models.save(models.mlp_static(), tmp_path / "m.onnx")
    samples = [{"x": normal(2, 8, seed=seed)} for seed in range(3)]
    run = compute_references(path, samples, threads=1)
    assert run.deterministic
    assert run.spread == {"y": 0.0}
    assert len(run.outputs) == 3
    weight = models.weights("w", 8, 4)
    assert run.outputs[0]["y"].shape == (2, 4)
    assert not np.array_equal(run.outputs[0]["y"], run.outputs[1]["y"])
    assert weight.dims == [8, 4]


def test_random_operators_are_noticed_with_their_spread(tmp_path: Path) -> None:
    path = models.save(models.random_normal(), tmp_path / "m.onnx")
    run = compute_references(path, [{"x": normal(4)}])
    assert not run.deterministic
    assert 0 < run.spread["y"] < 100


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("no_inputs", {}),
        ("string_identity", {"text": np.array(["a", "b"], dtype=object)}),
        ("int_add", {"a": np.arange(3), "b": np.arange(3)}),
        ("nonzero", {"x": np.float32([0, 1, 0, 0])}),
        ("fp16_overflow", {"x": np.full(8, 1000, np.float16)}),
    ],
)
def test_every_kind_of_output_is_compared(
    name: str, inputs: dict[str, np.ndarray], tmp_path: Path
) -> None:
    run = compute_references(models.save(models.MODELS[name](), tmp_path / "m.onnx"), [inputs])
    assert run.deterministic
    assert set(run.spread.values()) == {0.0}


def test_the_reference_is_not_optimized(tmp_path: Path) -> None:
    bench = Bench(models.conv_net(), tmp_path)
    x = normal(1, 3, 16, 16)
    reference = bench.backend.reference_engine()
    disabled = bench.build("-optimizer=disable -session:intra_op_num_threads=1")
    assert np.array_equal(reference.run({"x": x})["y"], disabled.run({"x": x})["y"])
    assert reference.fingerprint is None


def test_what_does_not_run_is_one_line(tmp_path: Path) -> None:
    path = models.save(models.mlp_static(), tmp_path / "m.onnx")
    with pytest.raises(BackendError, match=r"m\.onnx does not run: .*invalid dimensions"):
        compute_references(path, [{"x": normal(2, 9)}])
    with pytest.raises(ModelError, match="does not exist"):
        compute_references(tmp_path / "none.onnx", [])
