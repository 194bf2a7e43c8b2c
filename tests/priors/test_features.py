from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx import numpy_helper as nph

import models
from routewright.errors import ModelError
from routewright.priors.features import ModelFeatures, features_of, features_of_file
from routewright.priors.graph_shapes import tensor_facts


def test_operations_of_a_perceptron_are_those_of_its_products() -> None:
    features = features_of(models.mlp_dynamic(), {"x": (3, 16)})
    products = 2 * 3 * 16 * 32 + 2 * 3 * 32 * 4
    assert features.flops == products + 3 * 32
    assert features.weights == {"float": 16 * 32 + 32 + 32 * 4 + 4}
    assert features.activations == {"float": 2 * 3 * 32 + 3 * 4}
    assert (features.depth, features.width) == (2, 18.0)
    assert features.inputs == ((3, 16),)
    assert features.outputs == ((3, 4),)
    assert features.resolved == 1.0


def test_operations_grow_with_the_input() -> None:
    small = features_of(models.conv_net(), {"x": (1, 3, 16, 16)})
    large = features_of(models.conv_net(), {"x": (2, 3, 16, 16)})
    assert large.flops == pytest.approx(2 * small.flops, rel=1e-2)
    assert small.flops_share["conv"] > 0.9


def test_a_product_of_two_activations_is_attention() -> None:
    features = features_of(models.attention(), {"x": (1, 8, 16)})
    assert features.flops_share["attention"] > 0
    assert features.flops_share["matmul"] > features.flops_share["attention"]


def test_a_shape_that_nodes_compute_is_followed() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["rows"]),
        helper.make_node("Mul", ["rows", "two"], ["half"]),
        helper.make_node("Concat", ["half", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["folded"]),
        helper.make_node("MatMul", ["folded", "w"], ["y"]),
    ]
    model = models.build(
        nodes,
        [models.value("x", dims=("n", 8))],
        [models.value("y", dims=(None, None))],
        [
            nph.from_array(np.array([0], dtype=np.int64), "axis"),
            nph.from_array(np.array([2], dtype=np.int64), "two"),
            nph.from_array(np.array([-1], dtype=np.int64), "rest"),
            models.weights("w", 4, 5),
        ],
    )
    facts = tensor_facts(model, {"x": (6, 8)})
    assert facts["folded"].shape == (12, 4)
    assert facts["y"].shape == (12, 5)
    assert features_of(model, {"x": (6, 8)}).flops == 2 * 12 * 5 * 4


def test_a_model_with_unknown_shapes_is_described_as_far_as_it_goes() -> None:
    features = features_of(models.nonzero(), {"x": (4,)})
    assert features.ops == {"NonZero": 1}
    assert features.resolved < 1


def test_integer_kernels_are_told_from_float_ones() -> None:
    scale = nph.from_array(np.array(0.1, dtype=np.float32), "scale")
    zero = nph.from_array(np.array(0, dtype=np.uint8), "zero")
    weight = nph.from_array(np.ones((4, 2), dtype=np.uint8), "w")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node(
            "QLinearMatMul", ["q", "scale", "zero", "w", "scale", "zero", "scale", "zero"], ["y"]
        ),
    ]
    model = models.build(
        nodes,
        [models.value("x", dims=(3, 4))],
        [models.value("y", TensorProto.UINT8, (3, 2))],
        [scale, zero, weight],
    )
    assert features_of(model, {"x": (3, 4)}).quantized == 1.0
    assert features_of(models.mlp_static(), {"x": (2, 8)}).quantized == 0.0


def test_features_survive_writing_and_reading() -> None:
    features = features_of(models.conv_net(), {"x": (1, 3, 16, 16)})
    assert ModelFeatures.from_dict(features.to_dict()) == features


@pytest.mark.parametrize("damage", [{"flops": None}, {"ops": 3}, {"inputs": 1}])
def test_malformed_features_are_refused(damage: dict[str, object]) -> None:
    content = features_of(models.mlp_static(), {"x": (2, 8)}).to_dict() | damage
    with pytest.raises(ValueError, match="malformed"):
        ModelFeatures.from_dict(content)


def test_missing_features_are_named() -> None:
    with pytest.raises(ValueError, match="flops"):
        ModelFeatures.from_dict({"ops": {}})


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"model\.onnx"):
        features_of_file(path, {})


def test_every_shape_of_a_recognizer_is_resolved(model_path: Callable[[str], Path]) -> None:
    shape: Sequence[int] = (1, 3, 48, 320)
    features = features_of_file(model_path("ppocr-v4-rec"), {"x": shape})
    assert features.resolved == 1.0
    assert features.flops > 1e9
