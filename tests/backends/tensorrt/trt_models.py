"""Small ONNX models that these tests build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: list[onnx.TensorProto] | None = None,
    *,
    external: bool = False,
) -> Path:
    """Save a graph as a model of opset 17; weights beside it if ``external``."""
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers or [])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("made.up", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    if external:
        onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    else:
        onnx.save(model, path)
    return path


def mlp(path: Path, *, batch: int | str = "N", half: bool = False, external: bool = False) -> Path:
    """Save a two-layer network on ``x`` of batch x 16; deterministic weights."""
    kind, dtype = (HALF, np.float16) if half else (FLOAT, np.float32)
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(dtype) * dtype(0.2), name)
        for name, shape in (("w1", (16, 32)), ("w2", (32, 8)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    return save(
        path,
        nodes,
        [helper.make_tensor_value_info("x", kind, [batch, 16])],
        [helper.make_tensor_value_info("y", kind, [batch, 8])],
        weights,
        external=external,
    )


def two_bad_nodes(path: Path) -> Path:
    """Save a model of which two nodes cannot be taken."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="fine"),
        helper.make_node("Frobnicate", ["a"], ["b"], name="first_bad", domain="made.up"),
        helper.make_node("Unique", ["b"], ["y"], name="second_bad"),
    ]
    x = helper.make_tensor_value_info("x", FLOAT, [4])
    return save(path, nodes, [x], [helper.make_tensor_value_info("y", FLOAT, [None])])


def reshape_by_values(path: Path) -> Path:
    """Save a model whose input ``shape`` decides the output's shape by its values."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="reshape")]
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, [4, 6]),
        helper.make_tensor_value_info("shape", INT64, [2]),
    ]
    return save(path, nodes, inputs, [helper.make_tensor_value_info("y", FLOAT, [None, None])])


def nonzero(path: Path) -> Path:
    """Save a model whose output size follows from the data."""
    nodes = [helper.make_node("NonZero", ["x"], ["y"], name="nonzero")]
    x = helper.make_tensor_value_info("x", FLOAT, [4, 4])
    return save(path, nodes, [x], [helper.make_tensor_value_info("y", INT64, [2, None])])


def strings(path: Path) -> Path:
    """Save a model of strings."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    return save(path, nodes, [x], [helper.make_tensor_value_info("y", TensorProto.STRING, [2])])


def int64_sum(path: Path) -> Path:
    """Save ``y = a + b`` on int64 tensors of open length."""
    nodes = [helper.make_node("Add", ["a", "b"], ["y"], name="add")]
    inputs = [helper.make_tensor_value_info(name, INT64, ["N"]) for name in ("a", "b")]
    return save(path, nodes, inputs, [helper.make_tensor_value_info("y", INT64, ["N"])])
