"""Reference outputs: the original model, every graph optimization off, run twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routewright.backends.base import Arrays, BuildFailed, RunFailed
from routewright.backends.onnxruntime import hardware
from routewright.backends.onnxruntime.engine import OnnxRuntimeEngine, make_session
from routewright.backends.onnxruntime.library import library_errors, load_library, one_line
from routewright.backends.onnxruntime.settings import SessionSettings
from routewright.errors import BackendError
from routewright.model import OnnxModel


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """What the original model answers.

    Attributes:
        outputs: Outputs by name, one mapping per sample.
        deterministic: Whether running again gave the same bits everywhere.
        spread: How far two runs lie apart, by output name: the largest absolute difference over
            all samples, for text and booleans the largest share of elements that differ; infinity
            where a shape differs or only one run was finite.
    """

    outputs: tuple[dict[str, npt.NDArray[Any]], ...]
    deterministic: bool
    spread: dict[str, float]


def compute_references(
    model: Path, samples: Sequence[Arrays], *, threads: int | None = None
) -> ReferenceRun:
    """Run every sample twice through the original model, nothing optimized.

    Args:
        model: The ONNX file.
        samples: Inputs by name.
        threads: Threads to run with; as many as can run at once by default.

    Raises:
        BackendError: ONNX Runtime refuses the model or a sample.
        ModelError: The model cannot be read.
    """
    engine = reference_engine(OnnxModel.open(model), threads=threads)
    try:
        first = [engine.run(sample) for sample in samples]
        again = [engine.run(sample) for sample in samples]
    except RunFailed as error:
        raise BackendError(f"{model} does not run: {error}") from error
    finally:
        engine.close()
    spread: dict[str, float] = {}
    same = True
    for one, other in zip(first, again, strict=True):
        for name in one:
            same = same and _same(one[name], other[name])
            spread[name] = max(spread.get(name, 0.0), _distance(one[name], other[name]))
    return ReferenceRun(tuple(first), same, spread)


def reference_engine(model: OnnxModel, *, threads: int | None = None) -> OnnxRuntimeEngine:
    """Return an engine of the original model with every graph optimization off.

    Raises:
        BackendError: ONNX Runtime refuses the model.
    """
    library = load_library()
    settings = plain_settings(threads or hardware.usable_threads())
    try:
        session = make_session(model.path, settings.document(), severity=3)
        return OnnxRuntimeEngine(
            session,
            settings,
            route="",
            model=model.path,
            external_files=model.external_files,
            version=str(library.__version__),
            fingerprint=None,
            notes=(),
        )
    except library_errors() as error:
        raise BackendError(f"ONNX Runtime refuses {model.path}: {one_line(error)}") from error
    except (BuildFailed, RunFailed) as error:
        raise BackendError(f"ONNX Runtime cannot run {model.path} for a study: {error}") from error


def plain_settings(threads: int) -> SessionSettings:
    """Return settings that optimize nothing and leave the cores alone between runs."""
    options: Mapping[str, bool | int | str] = {
        "graph_optimization_level": "ORT_DISABLE_ALL",
        "execution_mode": "ORT_SEQUENTIAL",
        "execution_order": "DEFAULT",
        "intra_op_num_threads": threads,
        "inter_op_num_threads": 1,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_cpu_mem_arena": True,
    }
    return SessionSettings(options, {"session.intra_op.allow_spinning": "0"}, ())


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype == object:
        return bool(np.array_equal(one, other))
    return one.tobytes() == other.tobytes()


def _distance(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    if one.shape != other.shape:
        return float("inf")
    if not one.size or _same(one, other):
        return 0.0
    if one.dtype.kind in "OSUb":
        return float(np.mean(one != other))
    left, right = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(left) & np.isfinite(right)
    with np.errstate(invalid="ignore"):
        alike = finite | (left == right) | (np.isnan(left) & np.isnan(right))
    if not alike.all():
        return float("inf")
    return float(np.abs(left - right)[finite].max(initial=0.0))
