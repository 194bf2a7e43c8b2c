"""The backend behind the real worker process, as far as a machine without a device goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trt_models
from trt_support import REAL_LIBRARY, require

from routewright.backends.base import Job
from routewright.backends.tensorrt import cuda
from routewright.backends.tensorrt.backend import METRIC, METRIC_WITH_TRANSFERS
from routewright.bounds import AccuracyBound
from routewright.errors import BackendError
from routewright.samples import SampleSet
from routewright.tensors import TensorSpec
from routewright.workbench import TrialFailure
from routewright.worker.client import Worker

SHAPES = {"x": (2, 16)}


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Any]:
    """Return a function that starts a worker with the given options of the backend."""
    require(REAL_LIBRARY)
    require("cuda")
    if not cuda.device_problem():
        pytest.skip("there is a CUDA device here")
    model = trt_models.mlp(tmp_path / "m.onnx")
    samples = SampleSet.generate(
        (TensorSpec("x", "float", ("N", 16)),), SHAPES, count=1, seed=0, ranges={}
    )
    samples.save(tmp_path / "samples.npz")
    started: list[Worker] = []

    def start(**options: str) -> Worker:
        job = Job(model, tmp_path, SHAPES, options={"cache_folder": str(tmp_path), **options})
        started.append(
            Worker(
                job,
                backend="tensorrt-rtx",
                samples=tmp_path / "samples.npz",
                references=tmp_path / "references.npz",
                bound=AccuracyBound("cos", 1e-3),
                log_folder=tmp_path,
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_a_missing_device_is_one_line(worker: Any) -> None:
    with pytest.raises(BackendError, match="needs a CUDA device") as caught:
        worker().environment()
    assert "\n" not in str(caught.value)


def test_knobs_and_failures_come_through_the_pipe(worker: Any) -> None:
    started = worker(compute_capability="SM89")
    database = started.knob_database()
    assert "-config:builder_optimization_level" in database
    assert started.environment()["library"] == "TensorRT-RTX"
    again = started.compute_references(deadline_s=started.now_s() + 60)
    assert np.isfinite(list(again.losses.values())).all()
    with pytest.raises(TrialFailure, match="no CUDA device is here to run it") as caught:
        started.build("baseline", "", deadline_s=started.now_s() + 60)
    assert caught.value.kind == "unsupported"
    with pytest.raises(TrialFailure) as late:
        started.build("baseline", "", deadline_s=started.now_s())
    assert late.value.kind == "timeout"


def test_the_worker_says_what_a_latency_covers(worker: Any) -> None:
    device_only = worker(compute_capability="SM89")
    assert device_only.backend_info().metric == METRIC
    with_transfers = worker(compute_capability="SM89", host_transfers="true")
    assert with_transfers.backend_info().metric == METRIC_WITH_TRANSFERS
