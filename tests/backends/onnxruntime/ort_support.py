"""What the tests of the ONNX Runtime backend share."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

import models
from routewright.backends.base import Arrays, Engine, Job
from routewright.backends.onnxruntime.backend import OnnxRuntimeBackend
from routewright.routes import Route
from routewright.samples import SampleSet


class Bench:
    """A backend for one model, with its knob database."""

    def __init__(
        self,
        model: ModelProto | Path,
        folder: Path,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        samples: list[dict[str, np.ndarray[Any, Any]]] | None = None,
        **job: Any,
    ) -> None:
        self.folder = folder
        path = model if isinstance(model, Path) else models.save(model, folder / "m.onnx")
        work = folder / "work"
        work.mkdir(exist_ok=True)
        calibration = None
        if samples is not None:
            calibration = folder / "calibration.npz"
            SampleSet(tuple(samples)).save(calibration)
        self.backend = OnnxRuntimeBackend(
            Job(model=path, work_folder=work, shapes=shapes or {}, calibration=calibration, **job)
        )
        self.database = self.backend.knob_database()
        self.work = work

    def build(self, route: str = "") -> Engine:
        """Build a route given as text."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        return self.backend.build(Route.parse(route, self.database), folder)

    @property
    def blocks(self) -> list[str]:
        """Names of the knobs that quantize a block."""
        return [knob.name for knob in self.database if knob.name.startswith("-quantize:")]

    def int8(self, *names: str) -> str:
        """Return the route that quantizes the named blocks, all by default."""
        return " ".join(f"{name}=int8" for name in names or self.blocks)


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return float32 standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def cosine_loss(reference: Arrays, actual: Arrays) -> float:
    """Return the largest 1 - cosine similarity over the outputs."""
    losses = []
    for name, expected in reference.items():
        one = np.asarray(expected, dtype=np.float64).ravel()
        other = np.asarray(actual[name], dtype=np.float64).ravel()
        losses.append(1 - one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
    return float(max(losses))
