"""A model's compute nodes, grouped into a few named blocks that a route can quantize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from onnx import NodeProto, TensorProto

from routewright.backends.onnxruntime.preparation import PreparedModel

MOST_BLOCKS = 4
"""Blocks per kind, at most."""

FEWEST_NODES = 4
"""Nodes per block, at least, where a kind has more than one block."""

_LONGEST_LABEL = 60

KINDS = {
    "conv": "convolutions",
    "depthwise": "depthwise convolutions",
    "matmul": "matrix products with constant weights",
    "lstm": "LSTM layers",
}
"""Kind of node to what its nodes are; the order is the order of the knobs."""


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes that are quantized together.

    Attributes:
        name: Kind and number, for example ``"conv1"``.
        kind: One of :data:`KINDS`.
        nodes: Indices into the prepared model's nodes, ascending.
        first: Name or first output of the first node, for a reader.
        last: Likewise of the last node.
        weights: Number of weights that become int8.
    """

    name: str
    kind: str
    nodes: tuple[int, ...]
    first: str
    last: str
    weights: int

    @property
    def help(self) -> str:
        """What the block is, in one line."""
        count = len(self.nodes)
        where = self.first if count == 1 else f"{self.first} to {self.last}"
        return f"{count} of the {KINDS[self.kind]}, {self.weights} weights: {where}"


def find_blocks(prepared: PreparedModel) -> tuple[Block, ...]:
    """Group the nodes that have an int8 kernel and constant float weights.

    Nodes inside branches and loop bodies are left alone. Membership depends on topological order
    and kind alone, not on names, so it is the same in every process.
    """
    constants = prepared.constants
    nodes = prepared.model.graph.node
    by_kind: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for index, node in enumerate(nodes):
        kind = kind_of(node, constants)
        if kind:
            by_kind[kind].append(index)
    blocks = []
    for kind, indices in by_kind.items():
        for number, members in enumerate(_split(indices), start=1):
            blocks.append(
                Block(
                    name=f"{kind}{number}",
                    kind=kind,
                    nodes=tuple(members),
                    first=_label(nodes[members[0]]),
                    last=_label(nodes[members[-1]]),
                    weights=sum(_weights(nodes[i], constants) for i in members),
                )
            )
    return tuple(blocks)


def kind_of(node: NodeProto, constants: Mapping[str, TensorProto]) -> str:
    """Return the kind of a node that can be quantized; empty for any other."""
    if node.domain not in ("", "ai.onnx") or len(node.input) < 2:
        return ""
    weight = constants.get(node.input[1])
    if weight is None or weight.data_type != TensorProto.FLOAT or node.input[0] in constants:
        return ""
    rank = len(weight.dims)
    if 0 in weight.dims:
        return ""
    if node.op_type == "Conv" and rank >= 3:
        # There is no int8 kernel of transposed convolution on the CPU.
        return "depthwise" if weight.dims[1] == 1 and _group(node) > 1 else "conv"
    if node.op_type == "MatMul" and rank >= 2:
        return "matmul"
    if node.op_type == "Gemm" and rank == 2:
        return "matmul" if _is_plain_product(node) else ""
    if node.op_type == "LSTM" and rank == 3:
        recurrent = constants.get(node.input[2]) if len(node.input) > 2 else None
        layout = next((a.i for a in node.attribute if a.name == "layout"), 0)
        if recurrent is not None and recurrent.data_type == TensorProto.FLOAT and layout == 0:
            return "lstm"
    return ""


def _is_plain_product(node: NodeProto) -> bool:
    """Tell whether a Gemm does no scaling; the int8 kernel takes its bias in unscaled steps."""
    factors = [a.f for a in node.attribute if a.name in ("alpha", "beta")]
    transposed = any(a.i for a in node.attribute if a.name == "transA")
    return all(factor == 1 for factor in factors) and not transposed


def _group(node: NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "group"), 1)


def _split(indices: list[int]) -> list[list[int]]:
    if not indices:
        return []
    count = max(1, min(MOST_BLOCKS, len(indices) // FEWEST_NODES))
    ends = [round(len(indices) * part / count) for part in range(count + 1)]
    return [indices[begin:end] for begin, end in pairwise(ends)]


def _label(node: NodeProto) -> str:
    text = str(node.name or next((name for name in node.output if name), node.op_type))
    text = " ".join(text.split())
    # The end of a long name tells more than its beginning.
    return text if len(text) <= _LONGEST_LABEL else f"...{text[-_LONGEST_LABEL:]}"


def _weights(node: NodeProto, constants: Mapping[str, TensorProto]) -> int:
    names = node.input[1:3] if node.op_type == "LSTM" else node.input[1:2]
    total = 0
    for name in names:
        count = 1
        for dim in constants[name].dims:
            count *= dim
        total += count
    return total
