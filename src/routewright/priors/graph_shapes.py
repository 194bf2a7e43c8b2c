"""Shapes and element types of every tensor of a model, for given input shapes.

ONNX's own inference stops where a shape is computed by nodes that it does not follow. Those nodes
are evaluated here: a ``Shape`` of a tensor whose shape is known is a constant, and so is whatever
a few small integer operators make of constants. Inference is then repeated, until nothing is won.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_MOST_ROUNDS = 32
_LARGEST_CONSTANT = 64
_FOLDED = frozenset(
    {
        "Add",
        "Cast",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Div",
        "Equal",
        "Gather",
        "Greater",
        "Less",
        "Max",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Range",
        "ReduceProd",
        "Reshape",
        "Shape",
        "Size",
        "Slice",
        "Squeeze",
        "Sub",
        "Unsqueeze",
        "Where",
    }
)

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What is known of one tensor.

    Attributes:
        dtype: Element type as ONNX names it, in lower case.
        shape: Its sizes; None where one is unknown.
    """

    dtype: str
    shape: tuple[int, ...] | None

    @property
    def elements(self) -> int | None:
        """How many elements it has; None where that is unknown."""
        return None if self.shape is None else int(np.prod(self.shape, dtype=np.int64))


def tensor_facts(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, TensorFacts]:
    """Return what is known of each tensor of the main graph, by name.

    Args:
        model: The model; its external data need not be loaded. It is not changed.
        shapes: Shape of every input.
    """
    work = _light_copy(model)
    _fix_inputs(work, shapes)
    constants = _small_constants(work)
    inferred = _inferred(work)
    known = _facts(inferred)
    for _ in range(_MOST_ROUNDS):
        if not _fold(work, known, constants):
            break
        inferred = _inferred(work)
        known = _facts(inferred)
    return known


def _light_copy(model: ModelProto) -> ModelProto:
    """Return a copy without the content of weights, constants of nodes among them.

    Inference copies the model each time, and weights are most of it.
    """
    work = ModelProto()
    work.CopyFrom(model)
    del work.graph.initializer[:]
    work.graph.initializer.extend(_light(tensor) for tensor in model.graph.initializer)
    del work.graph.node[:]
    for node in model.graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            tensor = _light(value)
            tensor.name = node.output[0]
            work.graph.initializer.append(tensor)
        else:
            work.graph.node.append(node)
    return work


def _light(tensor: TensorProto) -> TensorProto:
    """Return a tensor, its content left out where it is too large for a shape."""
    copy = TensorProto()
    if int(np.prod(tensor.dims, dtype=np.int64)) <= _LARGEST_CONSTANT:
        copy.CopyFrom(tensor)
        return copy
    copy.name, copy.data_type = tensor.name, tensor.data_type
    copy.dims.extend(tensor.dims)
    copy.data_location = TensorProto.EXTERNAL
    return copy


def _fix_inputs(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give the inputs their shapes, and forget what the exporter wrote about other tensors."""
    for value in model.graph.input:
        if value.name in shapes:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for size in shapes[value.name]:
                shape.dim.add().dim_value = int(size)
    del model.graph.value_info[:]
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _inferred(model: ModelProto) -> ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):
        # A model that contradicts itself still has inputs, outputs and operators.
        return model


def _facts(model: ModelProto) -> dict[str, TensorFacts]:
    graph = model.graph
    known = {value.name: _of_value(value) for value in (*graph.input, *graph.output)}
    known |= {value.name: _of_value(value) for value in graph.value_info}
    for tensor in graph.initializer:
        known[tensor.name] = TensorFacts(element_type(tensor.data_type), tuple(tensor.dims))
    return known


def _of_value(value: ValueInfoProto) -> TensorFacts:
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    is_known = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    shape = tuple(dim.dim_value for dim in dims) if is_known else None
    return TensorFacts(element_type(tensor.elem_type), shape)


def element_type(code: int) -> str:
    """Return an element type's name in lower case."""
    known = code in TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(code)).lower() if known else f"type{code}"


def _small_constants(model: ModelProto) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            found[tensor.name] = numpy_helper.to_array(tensor)
    return found


def _fold(
    model: ModelProto, known: Mapping[str, TensorFacts], constants: dict[str, Array]
) -> bool:
    """Turn nodes that compute with constants into constants; tell whether there were any."""
    kept: list[NodeProto] = []
    folded = False
    for node in model.graph.node:
        values = _evaluated(node, known, constants)
        if values is None:
            kept.append(node)
            continue
        folded = True
        for name, value in zip(node.output, values, strict=True):
            constants[name] = value
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    if folded:
        del model.graph.node[:]
        model.graph.node.extend(kept)
    return folded


def _evaluated(
    node: NodeProto, known: Mapping[str, TensorFacts], constants: Mapping[str, Array]
) -> list[Array] | None:
    if node.domain not in ("", "ai.onnx") or node.op_type not in _FOLDED:
        return None
    if node.op_type == "Shape" and not node.attribute:
        facts = known.get(node.input[0])
        if facts is None or facts.shape is None:
            return None
        return [np.array(facts.shape, dtype=np.int64)]
    given = [name for name in node.input if name]
    if not all(name in constants for name in given):
        return None
    return _computed(node, {name: constants[name] for name in given})


def _computed(node: NodeProto, given: Mapping[str, Array]) -> list[Array] | None:
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "one", inputs, outputs)
    # Any recent operator set: the shapes of these few operators' results are the same in all.
    alone = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _opset_for(node))])
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            values = ReferenceEvaluator(alone).run(None, dict(given))
    # What a damaged or unusual node raises is up to the evaluator; it is then left unevaluated.
    except Exception:  # noqa: BLE001
        return None
    arrays = [np.asarray(value) for value in values]
    return arrays if all(array.size <= _LARGEST_CONSTANT for array in arrays) else None


def _opset_for(node: NodeProto) -> int:
    """Return an operator set that reads the node's attributes as they are."""
    attributes = {attribute.name for attribute in node.attribute}
    axes_as_attribute = node.op_type in ("Squeeze", "Unsqueeze") and "axes" in attributes
    slices_as_attribute = node.op_type == "Slice" and "starts" in attributes
    if slices_as_attribute:
        return 9
    if axes_as_attribute or (node.op_type == "ReduceProd" and "axes" in attributes):
        return 11
    return 17
