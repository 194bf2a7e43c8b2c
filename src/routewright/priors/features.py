"""What a model is like, in numbers: which models are related follows from these.

Everything is read off the ONNX graph at given input shapes. Weights that lie in external files are
counted by their shapes and not loaded.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto

from routewright.errors import ModelError
from routewright.priors.graph_shapes import TensorFacts, element_type, tensor_facts

KINDS = ("conv", "depthwise", "matmul", "attention", "recurrent", "other")
"""Kinds of work that floating-point operations are split into."""

_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_ATTENTION = frozenset({"Attention", "MultiHeadAttention", "GroupQueryAttention"})
_QUANTIZED = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "MatMulInteger",
        "MatMulNBits",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    }
)
_NO_WORK = frozenset(
    {
        "Cast",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Pad",
        "Reshape",
        "Shape",
        "Slice",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)


@dataclass(frozen=True)
class ModelFeatures:
    """A model in numbers.

    Attributes:
        ops: How often each operator occurs in the main graph; operators outside the default
            domain are ``domain::Name``.
        flops: Floating-point operations of one run, a multiplication and an addition counting
            two. Nodes of unknown shape are left out; see ``resolved``.
        flops_share: Share of ``flops`` by kind of work, see :data:`KINDS`.
        weights: Number of weights by element type.
        activations: Number of elements of all intermediate tensors by element type.
        depth: Nodes with weights on the longest path.
        width: Output channels of the nodes with weights, their median.
        inputs: Shapes of the inputs.
        outputs: Shapes of the outputs; None for one of unknown shape.
        quantized: Share of the nodes with weights that compute in integers.
        resolved: Share of the tensors whose shape is known.
    """

    ops: Mapping[str, int]
    flops: int
    flops_share: Mapping[str, float]
    weights: Mapping[str, int]
    activations: Mapping[str, int]
    depth: int
    width: float
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...] | None, ...]
    quantized: float
    resolved: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, in a stable order."""
        content = asdict(self)
        content["inputs"] = [list(shape) for shape in self.inputs]
        content["outputs"] = [None if s is None else list(s) for s in self.outputs]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ModelFeatures:
        """Read what :meth:`to_dict` gives.

        Raises:
            ValueError: A field is missing or not of its type.
        """
        missing = [item.name for item in fields(cls) if item.name not in content]
        if missing:
            raise ValueError(f"model features lack {', '.join(missing)}")
        try:
            return cls(
                ops=_counts(content["ops"]),
                flops=int(content["flops"]),
                flops_share={str(k): float(v) for k, v in content["flops_share"].items()},
                weights=_counts(content["weights"]),
                activations=_counts(content["activations"]),
                depth=int(content["depth"]),
                width=float(content["width"]),
                inputs=tuple(tuple(map(int, shape)) for shape in content["inputs"]),
                outputs=tuple(
                    None if s is None else tuple(map(int, s)) for s in content["outputs"]
                ),
                quantized=float(content["quantized"]),
                resolved=float(content["resolved"]),
            )
        except (AttributeError, TypeError) as error:
            raise ValueError(f"model features are malformed: {error}") from error


def features_of_file(
    path: str | os.PathLike[str], shapes: Mapping[str, Sequence[int]]
) -> ModelFeatures:
    """Return the features of the model at ``path``, run at ``shapes`` (by input name).

    Raises:
        ModelError: The file cannot be read as an ONNX model.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    # protobuf and the file system each raise their own.
    except Exception as error:
        raise ModelError(f"cannot read {os.fspath(path)}: {error}") from error
    return features_of(model, shapes)


def features_of(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelFeatures:
    """Return the features of a model that is run at ``shapes`` (by input name)."""
    facts = tensor_facts(model, shapes)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {output for node in graph.node if _is_constant(node) for output in node.output}
    flops: Counter[str] = Counter()
    activations: Counter[str] = Counter()
    weighted, integers, widths = 0, 0, []
    resolved = total = 0
    attending = _attention_products(graph.node, constants)
    dequantized = {
        name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output
    }
    for index, node in enumerate(graph.node):
        if _is_constant(node):
            continue
        kind = "attention" if index in attending else _kind(node, facts)
        flops[kind] += _flops(node, facts)
        for output in filter(None, node.output):
            total += 1
            known = facts.get(output)
            if known is not None and known.elements is not None:
                resolved += 1
                activations[known.dtype] += known.elements
        if _has_weights(node, constants):
            weighted += 1
            integers += node.op_type in _QUANTIZED or node.input[0] in dequantized
            widths.append(_channels(node, facts))
    work = sum(flops.values())
    return ModelFeatures(
        ops=dict(sorted(Counter(map(_op_name, graph.node)).items())),
        flops=int(work),
        flops_share={kind: round(flops[kind] / work, 6) if work else 0.0 for kind in KINDS},
        weights=_weights(graph),
        activations=dict(sorted(activations.items())),
        depth=_depth(graph.node, constants),
        width=float(np.median(widths)) if widths else 0.0,
        inputs=tuple(tuple(shapes[value.name]) for value in graph.input if value.name in shapes),
        outputs=tuple(
            facts[value.name].shape if value.name in facts else None for value in graph.output
        ),
        quantized=round(integers / weighted, 6) if weighted else 0.0,
        resolved=round(resolved / total, 6) if total else 1.0,
    )


def _counts(values: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(count) for name, count in values.items()}


def _op_name(node: NodeProto) -> str:
    domain = "" if node.domain == "ai.onnx" else node.domain
    return f"{domain}::{node.op_type}" if domain else str(node.op_type)


def _is_constant(node: NodeProto) -> bool:
    return node.op_type == "Constant"


def _has_weights(node: NodeProto, constants: set[str]) -> bool:
    computes = node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm", *_RECURRENT)
    if not computes and node.op_type not in _QUANTIZED - {"QuantizeLinear"}:
        return False
    return any(name in constants for name in node.input[1:])


def _weights(graph: GraphProto) -> dict[str, int]:
    """Return the number of constant elements by type; some exporters write weights as nodes."""
    tensors = list(graph.initializer)
    tensors += [
        attribute.t
        for node in graph.node
        if _is_constant(node)
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    counts: Counter[str] = Counter()
    for tensor in tensors:
        counts[element_type(tensor.data_type)] += int(np.prod(tensor.dims, dtype=np.int64))
    return dict(sorted(counts.items()))


def _kind(node: NodeProto, facts: Mapping[str, TensorFacts]) -> str:
    op = node.op_type
    if op in ("Conv", "ConvTranspose", "QLinearConv", "ConvInteger"):
        weight = facts.get(node.input[3 if op == "QLinearConv" else 1])
        groups = next((a.i for a in node.attribute if a.name == "group"), 1)
        is_depthwise = weight is not None and weight.shape is not None and weight.shape[1] == 1
        return "depthwise" if is_depthwise and groups > 1 else "conv"
    if op in _RECURRENT or op == "DynamicQuantizeLSTM":
        return "recurrent"
    if op in _ATTENTION:
        return "attention"
    if op in ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "QGemm", "MatMulNBits"):
        return "matmul"
    return "other"


def _attention_products(nodes: Sequence[NodeProto], constants: set[str]) -> set[int]:
    """Return the products of two activations, which is what attention is made of."""
    return {
        index
        for index, node in enumerate(nodes)
        if node.op_type == "MatMul" and not any(name in constants for name in node.input)
    }


def _flops(node: NodeProto, facts: Mapping[str, TensorFacts]) -> int:
    """Return the floating-point operations of a node; 0 where its shapes are unknown."""
    op = node.op_type
    output = facts.get(next(filter(None, node.output), ""))
    if output is None or output.elements is None or op in _NO_WORK:
        return 0
    shapes = [facts[name].shape if name in facts else None for name in node.input]
    if op in ("Conv", "ConvTranspose", "QLinearConv", "ConvInteger"):
        weight = shapes[3 if op == "QLinearConv" else 1]
        if weight is None:
            return 0
        if op == "ConvTranspose":
            source = facts[node.input[0]].elements if shapes[0] is not None else None
            return 2 * (source or 0) * math.prod(weight[1:])
        return 2 * output.elements * math.prod(weight[1:])
    if op in ("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul"):
        left = shapes[0]
        if not left:
            return 0
        transposed = any(a.name == "transA" and a.i for a in node.attribute)
        return 2 * output.elements * (left[0] if transposed else left[-1])
    if op in _RECURRENT:
        return _recurrent_flops(op, shapes)
    return output.elements if "float" in output.dtype or output.dtype == "double" else 0


def _recurrent_flops(op: str, shapes: Sequence[tuple[int, ...] | None]) -> int:
    source, weight = shapes[0], shapes[1]
    recurrence = shapes[2] if len(shapes) > 2 else None
    if source is None or weight is None or recurrence is None:
        return 0
    steps = math.prod(source[:2])
    return 2 * steps * (math.prod(weight) + math.prod(recurrence))


def _channels(node: NodeProto, facts: Mapping[str, TensorFacts]) -> int:
    output = facts.get(next(filter(None, node.output), ""))
    if output is None or not output.shape:
        return 0
    is_image = node.op_type in ("Conv", "ConvTranspose", "QLinearConv", "ConvInteger")
    return output.shape[1] if is_image and len(output.shape) > 1 else output.shape[-1]


def _depth(nodes: Sequence[NodeProto], constants: set[str]) -> int:
    depth: dict[str, int] = {}
    for node in nodes:
        below = max((depth.get(name, 0) for name in node.input), default=0)
        here = below + _has_weights(node, constants)
        for output in node.output:
            depth[output] = here
    return max(depth.values(), default=0)
