"""The model made ready for quantization: opset raised, constants folded, normalizations fused.

Batch normalization behind a convolution must be folded into its weights before these are
quantized, and per-channel weights need opset 13. ONNX Runtime's own basic optimizations do the
folding; they are not bound to a machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from routewright.backends.onnxruntime.library import (
    PROVIDER,
    library_errors,
    load_library,
    one_line,
)
from routewright.model import OnnxModel

LARGEST_BYTES = 2**30
"""Models with more weights are not quantized: it needs the whole model in memory several times,
and a protobuf of more than 2 GiB cannot be written."""

LOWEST_OPSET = 13
"""DequantizeLinear takes one scale per channel from here on."""


# Before, every initializer had to be listed as an input and was constant all the same.
_OVERRIDABLE_FROM_IR = 4


class CannotPrepareError(Exception):
    """This model cannot be quantized; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that int8 nodes can be written into.

    Attributes:
        model: Weights inline, nodes in topological order; not to be changed.
        opset_raised_from: Opset version of the original, or None if it was high enough.
    """

    model: ModelProto
    opset_raised_from: int | None

    @property
    def constants(self) -> dict[str, TensorProto]:
        """The weights by name, without those that a user may override as an input."""
        inputs = {value.name for value in self.model.graph.input}
        overridable = inputs if self.model.ir_version >= _OVERRIDABLE_FROM_IR else set()
        return {
            tensor.name: tensor
            for tensor in self.model.graph.initializer
            if tensor.name not in overridable
        }


def prepare(source: OnnxModel, folder: Path) -> PreparedModel:
    """Prepare a model; ``folder`` takes the intermediate files, which are removed again.

    Raises:
        CannotPrepareError: The model is too large, or its opset cannot be raised.
    """
    size = source.path.stat().st_size
    size += sum(file.path.stat().st_size for file in source.external_files)
    if size > LARGEST_BYTES:
        raise CannotPrepareError(
            f"the model takes {size / 2**30:.1f} GiB; quantization works up to "
            f"{LARGEST_BYTES / 2**30:.0f} GiB"
        )
    raised_from = source.opset if 0 < source.opset < LOWEST_OPSET else None
    inline = folder / "inline.onnx"
    try:
        if raised_from is not None:
            onnx.save(_raise_opset(onnx.load(source.path), raised_from), inline)
        elif source.external_files:
            onnx.save(onnx.load(source.path), inline)
        model = _fold(inline if inline.exists() else source.path, folder)
    except ValueError as error:
        # Protobuf refuses to write more than 2 GiB, whatever the files' sizes were.
        raise CannotPrepareError(f"it cannot be written as one file: {one_line(error)}") from error
    finally:
        inline.unlink(missing_ok=True)
    _keep_used_opsets(model)
    return PreparedModel(model, raised_from)


def _raise_opset(model: ModelProto, opset: int) -> ModelProto:
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, LOWEST_OPSET)
    except (version_converter.ConvertError, RuntimeError, ValueError) as error:
        raise CannotPrepareError(
            f"its opset {opset} cannot be raised to {LOWEST_OPSET}: {one_line(error)}"
        ) from error


def _fold(source: Path, folder: Path) -> ModelProto:
    library = load_library()
    target = folder / "folded.onnx"
    options = library.SessionOptions()
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.optimized_model_filepath = str(target)
    try:
        library.InferenceSession(str(source), options, providers=[PROVIDER])
        return onnx.load(target)
    except library_errors() as error:
        raise CannotPrepareError(
            f"ONNX Runtime refuses it while folding constants: {one_line(error)}"
        ) from error
    finally:
        target.unlink(missing_ok=True)


def _keep_used_opsets(model: ModelProto) -> None:
    """Drop the domains that ONNX Runtime declares without need; other tools stumble over them."""
    used = {node.domain for node in _all_nodes(model.graph)}
    for function in model.functions:
        used.add(function.domain)
        used |= {node.domain for node in function.node}
    kept = [o for o in model.opset_import if o.domain in used or o.domain in ("", "ai.onnx")]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)
            for inner in attribute.graphs:
                yield from _all_nodes(inner)
