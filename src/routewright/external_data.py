"""Weights that an ONNX model keeps in files beside it: found, checked and hashed, never loaded."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from routewright.errors import ModelError
from routewright.tensors import NUMPY_DTYPES

_PACKED_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4e2m1": 4}
# How these are packed in a file is not settled; their declared length is taken on trust.
_UNSETTLED = {"float6e2m3", "float6e3m2", "string"}


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """A data file that a model refers to.

    Attributes:
        location: Its path as the model spells it, relative to the model's folder.
        path: Where it lies.
    """

    location: str
    path: Path


def iter_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node: of the graph, of its branches and loop bodies, and of functions."""
    yield from _graph_nodes(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _with_subgraphs(node)


def find_external_files(model: ModelProto, path: Path) -> tuple[ExternalFile, ...]:
    """Return the data files of the model at ``path``, by location, after checking each.

    Raises:
        ModelError: A file is missing, shorter than the model says, or outside the model's
            folder, or its description is invalid.
    """
    files: dict[str, ExternalFile] = {}
    sizes: dict[str, int] = {}
    for tensor in _iter_tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {str(entry.key): str(entry.value) for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in files:
            files[location] = ExternalFile(location, _locate(location, tensor, path))
            sizes[location] = _size_bytes(files[location], path)
        end = _end_byte(entries, tensor, path)
        if end > sizes[location]:
            raise ModelError(
                f"{path}: the external data file {location!r} is truncated: tensor "
                f"{tensor.name!r} ends at byte {end}, the file has {sizes[location]}; fetch it "
                "again or export the model again"
            )
    return tuple(files[location] for location in sorted(files))


def hash_with_external(graph_digest: str, files: tuple[ExternalFile, ...]) -> str:
    """Return one SHA-256 over a graph and its data files; without files, the graph's own.

    The folder plays no part. The names and ranges that the graph refers to are part of the
    graph's digest already.

    Raises:
        ModelError: A file cannot be read.
    """
    if not files:
        return graph_digest
    combined = hashlib.sha256(f"graph {graph_digest}\n".encode())
    for file in files:
        try:
            with file.path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise ModelError(
                f"cannot read the external data file {file.path}: {error.strerror or error}"
            ) from error
        name = file.location.encode()
        combined.update(f"data {len(name)} ".encode() + name + f" {digest}\n".encode())
    return combined.hexdigest()


def _locate(location: str, tensor: TensorProto, path: Path) -> Path:
    parts = PurePosixPath(location).parts
    if not parts or "\0" in location:
        raise ModelError(
            f"{path}: tensor {tensor.name!r} is kept in an external file but names none; export "
            "the model again"
        )
    # As ONNX Runtime does it: links may not lead out either, except that a model which is itself
    # a link (as in download caches) may have its data beside the file that it points to.
    found = path.parent / location
    folders = (os.path.realpath(path.parent), os.path.dirname(os.path.realpath(path)))
    inside = any(Path(os.path.realpath(found)).is_relative_to(folder) for folder in folders)
    if PurePosixPath(location).is_absolute() or _climbs_out(parts) or not inside:
        raise ModelError(
            f"{path}: the external data file {location!r} lies outside the model's folder, "
            "which is not allowed; move it beside the model and export the model again"
        )
    return found


def _climbs_out(parts: tuple[str, ...]) -> bool:
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False


def _size_bytes(file: ExternalFile, path: Path) -> int:
    try:
        if not file.path.is_file():
            reason = "is not a file" if file.path.exists() else "is missing"
            raise ModelError(
                f"{path}: the external data file {file.location!r} {reason}; it belongs beside "
                "the model, under this name"
            )
        return file.path.stat().st_size
    except OSError as error:
        raise ModelError(
            f"{path}: cannot read the external data file {file.location!r}: "
            f"{error.strerror or error}"
        ) from error


def _end_byte(entries: dict[str, str], tensor: TensorProto, path: Path) -> int:
    numbers = {}
    for key in ("offset", "length"):
        text = entries.get(key, "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise ModelError(
                f"{path}: tensor {tensor.name!r} gives {key} {text!r} for its external data, "
                "which is not a number of bytes; export the model again"
            )
        numbers[key] = int(text) if text else None
    needed = _tensor_bytes(tensor)
    length = numbers["length"]
    if length is not None and needed is not None and length != needed:
        raise ModelError(
            f"{path}: tensor {tensor.name!r} takes {needed} bytes but gives {length} as the "
            "length of its external data; export the model again"
        )
    return (numbers["offset"] or 0) + (length if length is not None else needed or 0)


def _tensor_bytes(tensor: TensorProto) -> int | None:
    """Return how many bytes the tensor takes in a file, or None where that is not known."""
    if tensor.data_type not in TensorProto.DataType.values() or min(tensor.dims, default=0) < 0:
        return None
    name = str(TensorProto.DataType.Name(tensor.data_type)).lower()
    if name in _UNSETTLED or name not in NUMPY_DTYPES:
        return None
    bits = _PACKED_BITS.get(name, NUMPY_DTYPES[name].itemsize * 8)
    size_bits: int = math.prod(tensor.dims) * bits
    return -(-size_bits // 8)


def _iter_tensors(model: ModelProto) -> Iterator[TensorProto]:
    yield from _graph_tensors(model.graph)
    for node in iter_nodes(model):
        for attribute in node.attribute:
            yield from _attribute_tensors(attribute)
            for graph in _subgraphs(attribute):
                yield from _graph_tensors(graph)


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    if attribute.HasField("sparse_tensor"):
        yield attribute.sparse_tensor.values
        yield attribute.sparse_tensor.indices
    for sparse in attribute.sparse_tensors:
        yield sparse.values
        yield sparse.indices


def _subgraphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _graph_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield from _with_subgraphs(node)


def _with_subgraphs(node: NodeProto) -> Iterator[NodeProto]:
    yield node
    for attribute in node.attribute:
        for graph in _subgraphs(attribute):
            yield from _graph_nodes(graph)
