"""ONNX models as a study sees them: digest, inputs, shapes."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto

from routewright.errors import ModelError
from routewright.external_data import (
    ExternalFile,
    find_external_files,
    hash_with_external,
    iter_nodes,
)
from routewright.shapes import ResolvedShapes, resolve_shapes
from routewright.tensors import Shape, TensorSpec

__all__ = ["OnnxModel", "TensorSpec"]

_PROTOBUF_LIMIT_BYTES = 2**31 - 1
# What exporters write for an axis of which they know nothing; no two such axes need agree.
_ANONYMOUS = {"", "?", "*", "-1", "None"}
_LFS_POINTER = b"version https://git-lfs."


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """What there is to know about an ONNX file without loading its external data.

    Plain data: it can be sent to another process.

    Attributes:
        path: The file, as it was given.
        sha256: Over the graph file and every external data file, wherever the folder lies. For a
            model in one file it is that file's own SHA-256.
        opsets: Opset version by operator domain; the default domain is ``""``.
        inputs: What a user must supply, in the model's order: inputs that have an initializer
            are left out.
        outputs: In the model's order.
        op_types: How often each operator occurs, branches, loop bodies and functions included.
            Operators outside the default domain are ``domain::Name``.
        external_files: The data files, by location.
    """

    path: Path
    sha256: str
    opsets: Mapping[str, int]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    op_types: Mapping[str, int]
    external_files: tuple[ExternalFile, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> OnnxModel:
        """Read the model at ``path``.

        Raises:
            ModelError: There is no such file, it is not an ONNX model or a damaged one, or an
                external data file is missing, truncated or outside the model's folder.
        """
        path = Path(path)
        data = _read(path)
        digest = hashlib.sha256(data).hexdigest()
        model = _parse(data, path)
        del data
        _check_text(model, path)
        external_files = find_external_files(model, path)
        graph = model.graph
        initialized = {tensor.name for tensor in graph.initializer}
        initialized |= {sparse.values.name for sparse in graph.sparse_initializer}
        return cls(
            path=path,
            sha256=hash_with_external(digest, external_files),
            opsets=_opsets(model),
            inputs=tuple(
                _spec(value, path) for value in graph.input if value.name not in initialized
            ),
            outputs=tuple(_spec(value, path) for value in graph.output),
            op_types=_op_types(model),
            external_files=external_files,
        )

    @property
    def opset(self) -> int:
        """The opset version of the default domain; 0 where the model does not use it."""
        return self.opsets.get("", 0)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbolic sizes of the inputs, in order of appearance."""
        dims = (dim for spec in self.inputs for dim in spec.shape or ())
        return tuple(dict.fromkeys(dim for dim in dims if isinstance(dim, str)))

    def resolve(self, given: Mapping[str, Sequence[int]]) -> ResolvedShapes:
        """Return a shape for every tensor input, with the values of symbols and what was assumed.

        See :func:`routewright.shapes.resolve_shapes` for the rules.

        Raises:
            ModelError: ``given`` does not fit the model, or a size is missing.
        """
        return resolve_shapes(self.inputs, given)

    def resolve_shapes(self, given: Mapping[str, Sequence[int]]) -> dict[str, Shape]:
        """Return the shapes of :meth:`resolve` alone."""
        return self.resolve(given).shapes


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            if not path.exists():
                raise ModelError(f"{path} does not exist; give the path of an ONNX file")
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise ModelError(f"{path} is {kind}; give the path of an ONNX file")
        if path.stat().st_size > _PROTOBUF_LIMIT_BYTES:
            raise ModelError(
                f"{path} is larger than 2 GiB, which no ONNX file can be; save the model with "
                "its weights as external data"
            )
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error}") from error
    if not data:
        raise ModelError(f"{path} is empty; export or fetch the model again")
    if data.startswith(_LFS_POINTER):
        raise ModelError(f"{path} is a Git LFS pointer, not the model; run: git lfs pull")
    return data


def _parse(data: bytes, path: Path) -> ModelProto:
    refused = f"{path} is not an ONNX model, or is damaged"
    way_out = "export or fetch the model again"
    try:
        model: ModelProto = ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelError(f"{refused}: it cannot be parsed; {way_out}") from error
    # Many files that are no model at all parse as one with nothing in it, and so do the first
    # bytes of a model.
    if not model.HasField("graph") or model.ir_version < 1:
        raise ModelError(f"{refused}: it holds no graph; {way_out}")
    if not model.graph.output:
        raise ModelError(f"{refused}: its graph has no outputs; {way_out}")
    if not model.opset_import and model.ir_version >= 3:
        raise ModelError(f"{refused}: it names no operator set; {way_out}")
    return model


def _check_text(model: ModelProto, path: Path) -> None:
    """Refuse names that are not UTF-8, which protobuf hands out as bytes."""
    graph = model.graph
    texts: list[object] = [value.name for value in (*graph.input, *graph.output)]
    texts += [opset.domain for opset in model.opset_import]
    texts += [tensor.name for tensor in graph.initializer]
    for value in (*graph.input, *graph.output):
        texts += [dim.dim_param for dim in value.type.tensor_type.shape.dim]
    for node in iter_nodes(model):
        texts += [node.op_type, node.domain]
    for text in texts:
        if not isinstance(text, str):
            raise ModelError(
                f"{path} is damaged: it holds the name {text!r}, which is not text; export or "
                "fetch the model again"
            )


def _opsets(model: ModelProto) -> dict[str, int]:
    opsets = {_plain_domain(opset.domain): opset.version for opset in model.opset_import}
    # Models from before opsets existed follow the first one.
    return dict(sorted(opsets.items())) or {"": 1}


def _op_types(model: ModelProto) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for node in iter_nodes(model):
        domain = _plain_domain(node.domain)
        counts[f"{domain}::{node.op_type}" if domain else node.op_type] += 1
    return dict(sorted(counts.items()))


def _plain_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _spec(value: ValueInfoProto, path: Path) -> TensorSpec:
    tensor = value.type.tensor_type
    is_tensor = value.type.WhichOneof("value") == "tensor_type"
    shape = _shape(tensor.shape) if is_tensor and tensor.HasField("shape") else None
    return TensorSpec(value.name, _type_name(value.type, value.name, path), shape)


def _type_name(declared: TypeProto, tensor: str, path: Path) -> str:
    def element(code: int) -> str:
        if code not in TensorProto.DataType.values():
            raise ModelError(
                f"{path}: {tensor!r} has element type {code}, which onnx {onnx.__version__} does "
                "not know; install a newer onnx"
            )
        return str(TensorProto.DataType.Name(code)).lower()

    kind = declared.WhichOneof("value")
    if kind == "tensor_type":
        return element(declared.tensor_type.elem_type)
    if kind == "sparse_tensor_type":
        return f"sparse({element(declared.sparse_tensor_type.elem_type)})"
    if kind == "sequence_type":
        return f"sequence({_type_name(declared.sequence_type.elem_type, tensor, path)})"
    if kind == "optional_type":
        return f"optional({_type_name(declared.optional_type.elem_type, tensor, path)})"
    if kind == "map_type":
        value = _type_name(declared.map_type.value_type, tensor, path)
        return f"map({element(declared.map_type.key_type)}, {value})"
    return "undefined" if kind is None else "opaque()"


def _shape(shape: TensorShapeProto) -> tuple[int | str | None, ...]:
    dims: list[int | str | None] = []
    for dim in shape.dim:
        if dim.WhichOneof("value") == "dim_value":
            # Some exporters write -1 for what they do not know.
            dims.append(dim.dim_value if dim.dim_value >= 0 else None)
        else:
            dims.append(None if dim.dim_param in _ANONYMOUS else dim.dim_param)
    return tuple(dims)
