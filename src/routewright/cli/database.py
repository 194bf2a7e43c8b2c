"""Where a command gets a knob database from: a file, or a backend in a worker process."""

from __future__ import annotations

import tempfile
from pathlib import Path

from routewright.backends.base import Job
from routewright.bounds import AccuracyBound
from routewright.errors import BackendError, SettingsError
from routewright.knobs import KnobDatabase
from routewright.preparation import prepare_inputs
from routewright.settings import TuneSettings
from routewright.workbench import TrialFailure
from routewright.worker.client import Worker


def knob_database(
    backend: str, *, model: str | None, database: str | None, shape: tuple[str, ...] = ()
) -> KnobDatabase:
    """Return the knobs of a file, or of a backend.

    Args:
        backend: Name of the backend.
        model: The model to list knobs for; None: a model that has no say in them.
        database: Knob database file; goes before the backend.
        shape: Shapes of the model's inputs.

    Raises:
        RoutewrightError: The file or the backend cannot be used.
    """
    if database is not None:
        if model is not None:
            raise SettingsError("--database and a model exclude each other; give one")
        return KnobDatabase.from_file(Path(database))
    with (
        tempfile.TemporaryDirectory(prefix="routewright-") as folder,
        start_worker(backend, model, shape, Path(folder)) as worker,
    ):
        try:
            return worker.knob_database()
        except TrialFailure as failure:
            raise BackendError(f"the backend {backend} failed: {failure.message}") from failure


def start_worker(backend: str, model: str | None, shape: tuple[str, ...], folder: Path) -> Worker:
    """Return a worker for looking at knobs; nothing is checked against references.

    Raises:
        RoutewrightError: Model and shapes do not fit together.
    """
    settings = TuneSettings(
        model=str(model or _minimal_model(folder)), backend=backend, shape=shape, num_samples=1
    )
    inputs = prepare_inputs(settings)
    samples_path = folder / "samples.npz"
    inputs.samples.save(samples_path)
    logs, builds = folder / "logs", folder / "builds"
    logs.mkdir()
    builds.mkdir()
    job = Job(
        model=inputs.model.path,
        work_folder=builds,
        shapes=inputs.shapes,
        calibration=samples_path,
    )
    return Worker(
        job,
        backend=backend,
        samples=samples_path,
        references=folder / "references.npz",
        bound=AccuracyBound("cos", float("inf")),
        log_folder=logs,
    )


def _minimal_model(folder: Path) -> Path:
    """Write the smallest model there is: a backend is only ever made for a model."""
    from onnx import TensorProto, checker, helper, save

    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "minimal",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(proto)
    path = folder / "minimal.onnx"
    save(proto, path)
    return path
