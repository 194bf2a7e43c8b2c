"""The range of every activation that may become int8, found by running samples once."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, helper

from routewright.backends.base import Arrays
from routewright.backends.onnxruntime.library import (
    PROVIDER,
    library_errors,
    load_library,
    one_line,
)
from routewright.backends.onnxruntime.values import OutputReader, feed

MOST_SAMPLES = 16
"""Samples used; more change a range of minimum and maximum little."""


class CalibrationError(Exception):
    """No range can be had; the message says why, in one line."""


def activation_ranges(
    model: ModelProto,
    tensors: Collection[str],
    samples: Sequence[Arrays],
    folder: Path,
    *,
    threads: int,
) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest value of each tensor over the samples.

    Args:
        model: The prepared model.
        tensors: Names of float tensors of its main graph.
        samples: Inputs by name; the first :data:`MOST_SAMPLES` are used.
        folder: Takes an intermediate file, which is removed again.
        threads: Threads to run with.

    Raises:
        CalibrationError: There is no sample, the model does not run, or a value is not finite.
    """
    if not samples:
        raise CalibrationError("there is no sample to calibrate with")
    names = sorted(tensors)
    path = folder / "calibration.onnx"
    library = load_library()
    options = library.SessionOptions()
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.force_spinning_stop", "1")
    outputs = [_output(name, side) for name in names for side in ("min", "max")]
    try:
        onnx.save(_with_extremes(model, names), path)
        session = library.InferenceSession(str(path), options, providers=[PROVIDER])
        found = [
            OutputReader(session, outputs).run(feed(session, sample))
            for sample in samples[:MOST_SAMPLES]
        ]
    except library_errors() as error:
        raise CalibrationError(f"calibration failed: {one_line(error)}") from error
    finally:
        path.unlink(missing_ok=True)
    return {name: _range(name, found) for name in names}


def _range(name: str, found: Sequence[Arrays]) -> tuple[float, float]:
    low = min(float(sample[_output(name, "min")]) for sample in found)
    high = max(float(sample[_output(name, "max")]) for sample in found)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise CalibrationError(f"calibration found a value of {name!r} that is not finite")
    return low, high


def _output(name: str, side: str) -> str:
    return f"routewright/{side}/{name}"


def _with_extremes(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """Return a copy whose outputs are the extremes of ``names`` instead of the model's own."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    del graph.output[:]
    for name in names:
        for side, op_type in (("min", "ReduceMin"), ("max", "ReduceMax")):
            output = _output(name, side)
            graph.node.append(helper.make_node(op_type, [name], [output], keepdims=0))
            graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, []))
    return copy
