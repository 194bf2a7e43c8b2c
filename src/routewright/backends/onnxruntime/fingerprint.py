"""A hash of what a session is: its optimized graph and the settings that it runs with.

The graph is hashed like a Merkle tree: a value's hash covers how it is computed, down to the
inputs (by position and type) and the weights (by type, shape and content). So neither names nor
the order of independent nodes matter, while a changed scale does. Nodes count as often as they
occur; weights that hold the same content are one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    numpy_helper,
)

_DIGEST_BYTES = 16
_CHUNK_BYTES = 2**22


@dataclass(frozen=True, slots=True)
class GraphIdentity:
    """What a graph is.

    Attributes:
        digest: Its hash.
        op_types: How often each operator occurs in the main graph, as ``domain::Name`` outside
            the default domain.
    """

    digest: str
    op_types: Mapping[str, int] = field(default_factory=dict)


def graph_identity(path: Path) -> GraphIdentity:
    """Return the identity of the model at ``path``; external data is read in pieces, once."""
    model = onnx.load(path, load_external_data=False)
    hasher = _GraphHasher(model, path.parent)
    counts: dict[str, int] = {}
    for node in model.graph.node:
        domain = _domain(node.domain)
        name = f"{domain}::{node.op_type}" if domain else node.op_type
        counts[name] = counts.get(name, 0) + 1
    return GraphIdentity(hasher.model_digest().hex(), dict(sorted(counts.items())))


def fingerprint(identity: GraphIdentity, runtime: Mapping[str, Any]) -> str:
    """Return one hash over a graph and the run-time settings that its session runs with."""
    document = {"graph": identity.digest, "runtime": runtime}
    text = json.dumps(document, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[: 2 * _DIGEST_BYTES]


class _GraphHasher:
    def __init__(self, model: ModelProto, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._functions = {
            (_domain(function.domain), function.name, function.overload): function
            for function in model.functions
        }
        self._function_digests: dict[tuple[str, str, str], bytes] = {}

    def model_digest(self) -> bytes:
        opsets = {_domain(opset.domain): opset.version for opset in self._model.opset_import}
        # ONNX Runtime declares every domain that it knows; only the standard's own matters.
        return _hash("model", str(opsets.get("", 0)), self._graph(self._model.graph, {}, 0))

    def _graph(self, graph: GraphProto, outer: Mapping[str, bytes], depth: int) -> bytes:
        values = dict(outer)
        inputs = [
            self._input(value, index, depth, values) for index, value in enumerate(graph.input)
        ]
        for tensor in graph.initializer:
            values[tensor.name] = self._tensor(tensor)
        for sparse in graph.sparse_initializer:
            values[sparse.values.name] = self._sparse(sparse)
        nodes = self._nodes(graph.node, values, depth)
        outputs = [values.get(output.name, _hash("unknown")) for output in graph.output]
        return _hash("graph", _sequence(inputs), _sequence(outputs), _sequence(sorted(nodes)))

    def _input(
        self, value: ValueInfoProto, index: int, depth: int, values: dict[str, bytes]
    ) -> bytes:
        digest = _hash("input", str(depth), str(index), _type_text(value.type))
        values[value.name] = digest
        return digest

    def _nodes(
        self, nodes: Iterable[NodeProto], values: dict[str, bytes], depth: int
    ) -> list[bytes]:
        """Hash nodes in the order in which their inputs become known, and add their outputs."""
        digests = []
        waiting = list(nodes)
        produced = {name for node in waiting for name in node.output}
        while waiting:
            left = []
            for node in waiting:
                if any(n in produced and n not in values for n in _read_names(node)):
                    left.append(node)
                    continue
                digest = self._node(node, values, depth)
                digests.append(digest)
                for index, name in enumerate(node.output):
                    if name:
                        values[name] = _hash("value", str(index), digest)
            if len(left) == len(waiting):
                # A cycle: no valid model has one, and it must not hang.
                return [*digests, *(self._node(node, values, depth) for node in left)]
            waiting = left
        return digests

    def _node(self, node: NodeProto, values: Mapping[str, bytes], depth: int) -> bytes:
        domain = _domain(node.domain)
        inputs = [
            values.get(name, _hash("unknown")) if name else _hash("absent") for name in node.input
        ]
        attributes = [
            _hash(attribute.name, self._attribute(attribute, values, depth))
            for attribute in sorted(node.attribute, key=lambda attribute: attribute.name)
        ]
        return _hash(
            "node",
            domain,
            node.op_type,
            self._function(domain, node),
            _sequence(inputs),
            _sequence(attributes),
            # Which optional outputs are wanted changes what the node computes.
            "".join("1" if name else "0" for name in node.output),
        )

    def _function(self, domain: str, node: NodeProto) -> bytes:
        key = (domain, node.op_type, node.overload)
        function = self._functions.get(key)
        if function is None:
            return b""
        if key not in self._function_digests:
            # Functions cannot call themselves; the mark only keeps a broken model from looping.
            self._function_digests[key] = _hash("function")
            self._function_digests[key] = self._function_body(function)
        return self._function_digests[key]

    def _function_body(self, function: FunctionProto) -> bytes:
        values = {name: _hash("formal", str(i)) for i, name in enumerate(function.input)}
        nodes = self._nodes(function.node, values, 0)
        outputs = [values.get(name, _hash("unknown")) for name in function.output]
        return _hash("function", _sequence(outputs), _sequence(sorted(nodes)))

    def _attribute(
        self, attribute: AttributeProto, values: Mapping[str, bytes], depth: int
    ) -> bytes:
        if attribute.ref_attr_name:
            return _hash("reference", attribute.ref_attr_name)
        kind = attribute.type
        if kind == AttributeProto.GRAPH:
            return self._graph(attribute.g, values, depth + 1)
        if kind == AttributeProto.GRAPHS:
            return _sequence([self._graph(g, values, depth + 1) for g in attribute.graphs])
        if kind == AttributeProto.TENSOR:
            return self._tensor(attribute.t)
        if kind == AttributeProto.TENSORS:
            return _sequence([self._tensor(tensor) for tensor in attribute.tensors])
        if kind == AttributeProto.SPARSE_TENSOR:
            return self._sparse(attribute.sparse_tensor)
        if kind == AttributeProto.SPARSE_TENSORS:
            return _sequence([self._sparse(sparse) for sparse in attribute.sparse_tensors])
        plain = AttributeProto()
        plain.CopyFrom(attribute)
        plain.ClearField("name")
        plain.ClearField("doc_string")
        return _hash("plain", plain.SerializeToString(deterministic=True))

    def _sparse(self, sparse: SparseTensorProto) -> bytes:
        dims = ",".join(map(str, sparse.dims))
        return _hash("sparse", dims, self._tensor(sparse.values), self._tensor(sparse.indices))

    def _tensor(self, tensor: TensorProto) -> bytes:
        content = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        if tensor.data_location == TensorProto.EXTERNAL:
            self._add_external(tensor, content)
        elif tensor.HasField("raw_data"):
            content.update(tensor.raw_data)
        elif tensor.data_type == TensorProto.STRING:
            for text in tensor.string_data:
                content.update(len(text).to_bytes(8, "little") + text)
        else:
            content.update(numpy_helper.to_array(tensor).tobytes())
        dims = ",".join(map(str, tensor.dims))
        return _hash("tensor", str(tensor.data_type), dims, content.digest())

    def _add_external(self, tensor: TensorProto, content: Any) -> None:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = self._folder / entries["location"]
        left = int(entries.get("length") or path.stat().st_size)
        with path.open("rb") as stream:
            stream.seek(int(entries.get("offset") or 0))
            while left > 0:
                piece = stream.read(min(left, _CHUNK_BYTES))
                if not piece:
                    break
                content.update(piece)
                left -= len(piece)


def _read_names(node: NodeProto) -> set[str]:
    """Return what a node reads, through its branches and loop bodies too."""
    names = set(node.input)
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else []
        for graph in [*graphs, *attribute.graphs]:
            own = {value.name for value in graph.input}
            own |= {tensor.name for tensor in graph.initializer}
            own |= {name for inner in graph.node for name in inner.output}
            read = {name for inner in graph.node for name in _read_names(inner)}
            names |= (read | {output.name for output in graph.output}) - own
    return names


def _type_text(declared: TypeProto) -> str:
    plain = TypeProto()
    plain.CopyFrom(declared)
    plain.denotation = ""
    symbols: dict[str, str] = {}
    for dim in plain.tensor_type.shape.dim:
        dim.denotation = ""
        if dim.dim_param:
            # Symbols count by which axes share them, not by name.
            dim.dim_param = symbols.setdefault(dim.dim_param, f"s{len(symbols)}")
    content: bytes = plain.SerializeToString(deterministic=True)
    return content.hex()


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _sequence(parts: Iterable[bytes]) -> bytes:
    return _hash("sequence", *parts)


def _hash(*parts: str | bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        data = part.encode("utf-8") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
