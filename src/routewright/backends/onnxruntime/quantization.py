"""Int8 written into a model: the nodes of chosen blocks, with ranges from calibration.

Static nodes get QuantizeLinear and DequantizeLinear around them, in the patterns that ONNX
Runtime turns into integer kernels. Dynamic matrix products quantize their activation when they
run. LSTM layers have a dynamic kernel only. Everything written is standard ONNX, but for the LSTM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from routewright.backends.onnxruntime.blocks import kind_of
from routewright.backends.onnxruntime.preparation import PreparedModel

Ranges = Mapping[str, tuple[float, float]]
Floats = npt.NDArray[np.float32]

_MICROSOFT = "com.microsoft"
# Clip or Relu right behind a convolution is folded into its output range.
_FOLDED_ACTIVATIONS = frozenset({"Relu", "Clip"})
_WEIGHT_LEVELS = {"s8": 127, "s7": 63, "u8": 127}
# A bias is int32 in steps of input scale times weight scale; half the type's range is used.
_LARGEST_BIAS = 2.0**30


@dataclass(frozen=True, slots=True)
class QuantizationSettings:
    """How chosen nodes are quantized.

    Attributes:
        per_channel: One scale per output channel of a weight instead of one for all.
        weights: ``"s8"``; ``"s7"``, which cannot overflow on CPUs without VNNI; or ``"u8"``.
        activations: ``"u8"`` or ``"s8"``.
        symmetric: Activation ranges are made symmetric about zero.
        dynamic_matmul: Matrix products quantize their activation when they run.
    """

    per_channel: bool = True
    weights: str = "s8"
    activations: str = "u8"
    symmetric: bool = False
    dynamic_matmul: bool = False

    def is_dynamic(self, kind: str) -> bool:
        """Tell whether nodes of a kind need no calibration."""
        return kind == "lstm" or (kind == "matmul" and self.dynamic_matmul)


@dataclass(slots=True)
class _Weight:
    """A quantized weight: names of its tensors and the scale of each channel."""

    quantized: str
    scale: str
    zero_point: str
    scales: Floats
    axis: int | None


@dataclass(slots=True)
class Quantized:
    """What :func:`quantize` yields.

    Attributes:
        model: The model to run.
        nodes: How many nodes were quantized.
    """

    model: ModelProto
    nodes: int


def activations_of(prepared: PreparedModel, nodes: Iterable[int]) -> set[str]:
    """Return the tensors whose range static quantization of ``nodes`` needs."""
    constants = prepared.constants
    graph = prepared.model.graph
    consumers = _consumers(graph.node)
    needed: set[str] = set()
    for index in nodes:
        node = graph.node[index]
        kind = kind_of(node, constants)
        if kind in ("", "lstm"):
            continue
        needed.add(node.input[0])
        if kind in ("conv", "depthwise"):
            needed.add(_quantized_output(node, consumers, _output_names(prepared)))
    return needed


def quantize(
    prepared: PreparedModel,
    nodes: Collection[int],
    ranges: Ranges,
    settings: QuantizationSettings,
) -> Quantized:
    """Return a copy of the prepared model with ``nodes`` quantized.

    Args:
        prepared: The prepared model; not changed.
        nodes: Indices of nodes of some kind; see :func:`..blocks.kind_of`.
        ranges: Range of every tensor in :func:`activations_of` for static nodes.
        settings: How.
    """
    writer = _Writer(prepared, set(nodes), ranges, settings)
    return writer.write()


class _Writer:
    """Writes one quantized copy; names it adds begin with ``routewright/``."""

    def __init__(
        self,
        prepared: PreparedModel,
        nodes: set[int],
        ranges: Ranges,
        settings: QuantizationSettings,
    ) -> None:
        self._prepared = prepared
        self._chosen = nodes
        self._ranges = ranges
        self._settings = settings
        self._constants = prepared.constants
        self._consumers = _consumers(prepared.model.graph.node)
        self._outputs = _output_names(prepared)
        self._new_tensors: dict[str, TensorProto] = {}
        self._weights: dict[tuple[str, int | None, bool], _Weight] = {}
        self._dequantized: dict[str, str] = {}
        # Tensors whose name is given to the dequantized copy; the float one is renamed.
        self._renamed: dict[str, str] = {}
        self._nodes: list[NodeProto] = []
        self._count = 0

    def write(self) -> Quantized:
        source = self._prepared.model
        for node in self._static_convolutions():
            tensor = _quantized_output(node, self._consumers, self._outputs)
            self._renamed[tensor] = f"routewright/float/{tensor}"
        for index, node in enumerate(source.graph.node):
            copy = NodeProto()
            copy.CopyFrom(node)
            if index in self._chosen:
                self._quantize(copy, index)
            else:
                self._nodes.append(copy)
            self._requantize_outputs(copy)
        return Quantized(self._assemble(), self._count)

    def _static_convolutions(self) -> list[NodeProto]:
        nodes = self._prepared.model.graph.node
        kinds = ("conv", "depthwise")
        return [
            nodes[index]
            for index in sorted(self._chosen)
            if kind_of(nodes[index], self._constants) in kinds
        ]

    def _quantize(self, node: NodeProto, index: int) -> None:
        kind = kind_of(node, self._constants)
        if not kind:
            self._nodes.append(node)
            return
        self._count += 1
        if kind == "lstm":
            self._quantize_lstm(node)
        elif self._settings.is_dynamic(kind):
            self._quantize_dynamic_product(node, index)
        else:
            self._quantize_static(node, kind, index)

    def _quantize_static(self, node: NodeProto, kind: str, index: int) -> None:
        source = node.input[0]
        weight = self._weight(node, kind)
        input_scale, _ = self._activation_parameters(self._ranges[source])
        if len(node.input) > 2 and node.input[2] in self._constants:
            weight = self._with_room_for_bias(node, weight, kind, float(input_scale), index)
            bias = self._bias(node.input[2], weight, float(input_scale), index)
            if bias:
                node.input[2] = bias
        node.input[0] = self._dequantized_activation(source)
        node.input[1] = self._dequantized_weight(weight)
        self._nodes.append(node)

    def _quantize_dynamic_product(self, node: NodeProto, index: int) -> None:
        name = f"routewright/dynamic/{index}"
        weight = self._weight(node, "matmul", transposed=_flag(node, "transB"))
        quantized, scale, zero = f"{name}/q", f"{name}/scale", f"{name}/zero"
        self._add("DynamicQuantizeLinear", [node.input[0]], [quantized, scale, zero])
        inputs = [quantized, weight.quantized, zero, weight.zero_point]
        self._add("MatMulInteger", inputs, [f"{name}/int"])
        self._add("Cast", [f"{name}/int"], [f"{name}/cast"], to=int(TensorProto.FLOAT))
        self._add("Mul", [scale, weight.scale], [f"{name}/factor"])
        has_bias = len(node.input) > 2 and node.input[2]
        output = node.output[0]
        product = f"{name}/product" if has_bias else output
        self._add("Mul", [f"{name}/cast", f"{name}/factor"], [product])
        if has_bias:
            self._add("Add", [product, node.input[2]], [output])

    def _quantize_lstm(self, node: NodeProto) -> None:
        """Replace an LSTM by the dynamic kernel; weights are transposed for it."""
        replaced = NodeProto()
        replaced.CopyFrom(node)
        replaced.op_type, replaced.domain = "DynamicQuantizeLSTM", _MICROSOFT
        del replaced.attribute[:]
        replaced.attribute.extend(a for a in node.attribute if a.name != "layout")
        del replaced.input[:]
        parameters: list[str] = []
        replaced.input.append(node.input[0])
        for name in node.input[1:3]:
            array = self._array(name)
            axes = 2 if self._settings.per_channel else (1, 2)
            levels = _WEIGHT_LEVELS[self._settings.weights]
            scales = _scales(np.abs(array).max(axis=axes), levels)
            spread = scales.reshape(scales.shape + (1,) * (array.ndim - scales.ndim))
            stored, zero = self._weight_codes(array / spread)
            stem = f"routewright/lstm/{name}"
            self._tensor(f"{stem}/q", np.ascontiguousarray(stored.transpose(0, 2, 1)))
            self._tensor(f"{stem}/scale", scales)
            self._tensor(f"{stem}/zero", np.full(scales.shape, zero))
            replaced.input.append(f"{stem}/q")
            parameters += [f"{stem}/scale", f"{stem}/zero"]
        rest = list(node.input[3:8])
        replaced.input.extend(rest + [""] * (5 - len(rest)))
        replaced.input.extend(parameters)
        self._nodes.append(replaced)

    def _requantize_outputs(self, node: NodeProto) -> None:
        for position, output in enumerate(node.output):
            renamed = self._renamed.get(output)
            if renamed is None:
                continue
            node.output[position] = renamed
            self._quantize_dequantize(renamed, output, self._ranges[output])
            self._dequantized[output] = output

    def _dequantized_activation(self, tensor: str) -> str:
        if tensor not in self._dequantized:
            output = f"routewright/dequantized/{tensor}"
            self._quantize_dequantize(tensor, output, self._ranges[tensor])
            self._dequantized[tensor] = output
        return self._dequantized[tensor]

    def _quantize_dequantize(self, source: str, output: str, range_: tuple[float, float]) -> None:
        scale, zero_point = self._activation_parameters(range_)
        stem = f"routewright/activation/{output}"
        self._tensor(f"{stem}/scale", np.asarray(scale, dtype=np.float32))
        self._tensor(f"{stem}/zero", np.asarray(zero_point))
        parameters = [f"{stem}/scale", f"{stem}/zero"]
        self._add("QuantizeLinear", [source, *parameters], [f"{stem}/q"])
        self._add("DequantizeLinear", [f"{stem}/q", *parameters], [output])

    def _activation_parameters(
        self, range_: tuple[float, float]
    ) -> tuple[np.float32, np.integer[Any]]:
        """Return scale and zero point; zero must be exact, since padding is zero."""
        low, high = min(range_[0], 0.0), max(range_[1], 0.0)
        signed = self._settings.activations == "s8"
        if self._settings.symmetric:
            scale = _scale(max(-low, high), 127)
            return scale, np.int8(0) if signed else np.uint8(128)
        scale = _scale(high - low, 255)
        zero = int(np.clip(np.rint(-low / float(scale)), 0, 255))
        return scale, np.int8(zero - 128) if signed else np.uint8(zero)

    def _weight(self, node: NodeProto, kind: str, *, transposed: bool = False) -> _Weight:
        name = node.input[1]
        rank = len(self._constants[name].dims)
        axis = _channel_axis(node, rank) if self._settings.per_channel else None
        if kind == "matmul" and rank != 2:
            axis = None
        key = (name, axis, transposed)
        if key not in self._weights:
            array = self._array(name)
            if transposed:
                array, axis = np.ascontiguousarray(array.T), None if axis is None else 1 - axis
            self._weights[key] = self._write_weight(name, array, axis, f"{len(self._weights)}")
        return self._weights[key]

    def _write_weight(
        self,
        name: str,
        array: Floats,
        axis: int | None,
        suffix: str,
        least_scales: Floats | None = None,
    ) -> _Weight:
        levels = _WEIGHT_LEVELS[self._settings.weights]
        others = tuple(i for i in range(array.ndim) if i != axis)
        scales = _scales(np.abs(array).max(axis=others if axis is not None else None), levels)
        if least_scales is not None:
            scales = np.maximum(scales, least_scales).astype(np.float32)
        shape = [1] * array.ndim
        if axis is not None:
            shape[axis] = -1
        stored, zero = self._weight_codes(array / scales.reshape(shape))
        stem = f"routewright/weight/{suffix}/{name}"
        self._tensor(f"{stem}/q", stored)
        self._tensor(f"{stem}/scale", scales)
        self._tensor(f"{stem}/zero", np.full(scales.shape, zero))
        return _Weight(f"{stem}/q", f"{stem}/scale", f"{stem}/zero", scales, axis)

    def _weight_codes(self, steps: Floats) -> tuple[npt.NDArray[np.integer[Any]], np.integer[Any]]:
        """Return weights in whole steps, as stored, and the code of zero."""
        levels = _WEIGHT_LEVELS[self._settings.weights]
        values = np.clip(np.rint(steps), -levels, levels)
        if self._settings.weights == "u8":
            return (values + 128).astype(np.uint8), np.uint8(128)
        return values.astype(np.int8), np.int8(0)

    def _dequantized_weight(self, weight: _Weight) -> str:
        output = f"{weight.quantized}/dequantized"
        if output not in self._dequantized:
            inputs = [weight.quantized, weight.scale, weight.zero_point]
            attributes = {} if weight.axis is None else {"axis": weight.axis}
            self._add("DequantizeLinear", inputs, [output], **attributes)
            self._dequantized[output] = output
        return output

    def _with_room_for_bias(
        self, node: NodeProto, weight: _Weight, kind: str, input_scale: float, index: int
    ) -> _Weight:
        """Coarsen weight scales under which the bias would not fit an int32."""
        bias = np.abs(self._array(node.input[2]).astype(np.float64)).reshape(-1)
        if bias.size not in (1, weight.scales.size) and weight.scales.size != 1:
            return weight
        needed = bias / (input_scale * _LARGEST_BIAS)
        if weight.scales.size == 1:
            needed = needed.max(initial=0.0, keepdims=True).reshape(weight.scales.shape)
        if bool(np.all(needed <= weight.scales)):
            return weight
        return self._write_weight(
            node.input[1],
            self._array(node.input[1]),
            weight.axis,
            f"bias{index}",
            np.broadcast_to(needed, weight.scales.shape).astype(np.float32),
        )

    def _bias(self, name: str, weight: _Weight, input_scale: float, index: int) -> str:
        """Write a bias as int32; return the dequantized name, or an empty text to leave it."""
        bias = self._array(name)
        # A row written as a matrix of one row is as good; the kernel takes a row only.
        if not bias.ndim or bias.shape[-1] != bias.size:
            return ""
        bias = bias.reshape(-1)
        if weight.scales.size not in (1, bias.size):
            return ""
        scales = (weight.scales * np.float32(input_scale)).astype(np.float32)
        # A product of two tiny scales can vanish in float32.
        scales = np.where(scales > 0, scales, np.float32(1)).astype(np.float32)
        limit = 2.0**31 - 1
        values = np.clip(np.rint(bias.astype(np.float64) / scales), -limit, limit)
        stem = f"routewright/bias/{index}/{name}"
        self._tensor(f"{stem}/q", values.astype(np.int32))
        self._tensor(f"{stem}/scale", scales)
        self._tensor(f"{stem}/zero", np.zeros(scales.shape, dtype=np.int32))
        attributes = {"axis": 0} if scales.ndim else {}
        inputs = [f"{stem}/q", f"{stem}/scale", f"{stem}/zero"]
        self._add("DequantizeLinear", inputs, [f"{stem}/dequantized"], **attributes)
        return f"{stem}/dequantized"

    def _array(self, name: str) -> Floats:
        return numpy_helper.to_array(self._constants[name])

    def _tensor(self, name: str, array: npt.NDArray[Any]) -> None:
        self._new_tensors[name] = numpy_helper.from_array(array, name)

    def _add(self, op_type: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        self._nodes.append(helper.make_node(op_type, inputs, outputs, **attributes))

    def _assemble(self) -> ModelProto:
        source = self._prepared.model
        model = ModelProto()
        for field_, value in source.ListFields():
            if field_.name not in ("graph", "opset_import"):
                _copy_field(model, field_.name, value)
        model.opset_import.extend(source.opset_import)
        domains = {node.domain for node in self._nodes} - {o.domain for o in model.opset_import}
        model.opset_import.extend(helper.make_opsetid(d, 1) for d in sorted(domains - {"ai.onnx"}))
        graph = model.graph
        graph.name = source.graph.name
        graph.input.extend(source.graph.input)
        graph.output.extend(source.graph.output)
        graph.sparse_initializer.extend(source.graph.sparse_initializer)
        graph.node.extend(self._nodes)
        used = _used_names(graph.node) | self._outputs
        kept = {tensor.name for tensor in source.graph.input}
        graph.initializer.extend(
            tensor
            for tensor in source.graph.initializer
            if tensor.name in used or tensor.name in kept
        )
        graph.initializer.extend(
            tensor for name, tensor in self._new_tensors.items() if name in used
        )
        return model


def _copy_field(model: ModelProto, name: str, value: Any) -> None:
    if isinstance(value, int | str | bytes):
        setattr(model, name, value)
    else:
        getattr(model, name).extend(value)


def _output_names(prepared: PreparedModel) -> set[str]:
    return {output.name for output in prepared.model.graph.output}


def _consumers(nodes: Iterable[NodeProto]) -> dict[str, list[NodeProto]]:
    """Return the nodes that read each tensor; a node with branches reads all that they name."""
    consumers: dict[str, list[NodeProto]] = {}
    for node in nodes:
        for name in _used_names([node]):
            consumers.setdefault(name, []).append(node)
    return consumers


def _used_names(nodes: Iterable[NodeProto]) -> set[str]:
    used: set[str] = set()
    for node in nodes:
        used.update(node.input)
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.HasField("g") else []
            for graph in [*graphs, *attribute.graphs]:
                used |= _used_names(graph.node) | {output.name for output in graph.output}
    return used - {""}


def _quantized_output(
    node: NodeProto, consumers: Mapping[str, list[NodeProto]], outputs: Collection[str]
) -> str:
    """Return the tensor that is quantized behind a convolution."""
    tensor = node.output[0]
    readers = consumers.get(tensor, [])
    if len(readers) == 1 and tensor not in outputs:
        reader = readers[0]
        if reader.op_type in _FOLDED_ACTIVATIONS and reader.input[0] == tensor:
            return str(reader.output[0])
    return str(tensor)


def _channel_axis(node: NodeProto, rank: int) -> int:
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if _flag(node, "transB") else 1
    return rank - 1


def _flag(node: NodeProto, name: str) -> bool:
    return bool(next((a.i for a in node.attribute if a.name == name), 0))


def _scale(span: float, levels: int) -> np.float32:
    return np.float32(_scales(np.asarray(span), levels))


def _scales(spans: npt.NDArray[Any], levels: int) -> Floats:
    """Return the step with which ``levels`` steps cover each span; 1 for an empty span."""
    scales = (spans.astype(np.float64) / levels).astype(np.float32)
    usable = scales >= np.finfo(np.float32).tiny
    return np.where(usable, scales, np.float32(1)).astype(np.float32)
