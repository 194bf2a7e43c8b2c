"""From settings to everything a study needs: model, samples, references, worker, search space."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routewright.backends.base import Job
from routewright.bounds import METRIC, Limits
from routewright.budget import Budget
from routewright.environment import identifying, versions
from routewright.errors import BackendError, BudgetError, ModelError, SampleError, SettingsError
from routewright.knobs import KnobDatabase
from routewright.model import OnnxModel
from routewright.outfolder import OutFolder
from routewright.progress import Progress
from routewright.routes import RouteExpression
from routewright.samples import SampleSet, parse_input_range
from routewright.search.hints import SearchHints
from routewright.settings import TuneSettings, resolve_model
from routewright.shapes import parse_shape_options, resolve_profile
from routewright.space import SearchSpace
from routewright.tensors import Shape, describe_shape
from routewright.workbench import TrialFailure, Workbench
from routewright.worker.client import Worker

_GIB = 2**30


@dataclass(frozen=True)
class Inputs:
    """A model and what goes into it.

    Attributes:
        model: The model.
        shapes: Shape of every input that is timed.
        samples: Inputs, and references where the user gave them.
    """

    model: OnnxModel
    shapes: Mapping[str, Shape]
    samples: SampleSet

    @property
    def subject(self) -> Subject:
        """What a study has to know of them."""
        files = [self.model.path, *(file.path for file in self.model.external_files)]
        return Subject(
            path=self.model.path,
            sha256=self.model.sha256,
            shapes=self.shapes,
            samples=self.samples.digest,
            size_bytes=sum(file.stat().st_size for file in files),
        )

    def now_s(self) -> float:
        """Return the clock that budgets are kept on."""
        return time.monotonic()

    def prepare(
        self, settings: TuneSettings, out: OutFolder, budget: Budget, progress: Progress
    ) -> Prepared:
        """Get everything ready; see :func:`prepare`."""
        return prepare(settings, self, out, budget, progress)


@dataclass(frozen=True)
class Subject:
    """What is tuned, as far as a study has to know it.

    Attributes:
        path: The ONNX file, or the folder of the table.
        sha256: SHA-256 of the model.
        shapes: Shape of every input that is timed.
        samples: Digest of the inputs.
        size_bytes: Size of the model, about that of an engine; 0 where none is written.
        table: SHA-256 of the table's numbers where one is replayed, else empty.
    """

    path: Path
    sha256: str
    shapes: Mapping[str, Shape]
    samples: str
    size_bytes: int
    table: str = ""

    @property
    def simulated(self) -> bool:
        """Whether a table is replayed, so that nothing runs and no engine is saved."""
        return bool(self.table)


@dataclass(frozen=True)
class Prepared:
    """What a study works with.

    Attributes:
        subject: What is tuned.
        limits: Largest loss allowed, by output.
        worker: Builds, checks and times.
        database: The backend's knobs for this model.
        space: The routes to search.
        environment: What results depend on.
        metric: What one latency covers.
        hints: What the backend tells a search beforehand.
        notes: What a user should know, one line each.
    """

    subject: Subject
    limits: Limits
    worker: Workbench
    database: KnobDatabase
    space: SearchSpace
    environment: Mapping[str, Any]
    metric: str
    hints: SearchHints
    notes: tuple[str, ...]

    def identity(self, settings: TuneSettings) -> dict[str, Any]:
        """Return what the study is valid for; a resumed study must agree with it."""
        choices = {name: list(map(str, values)) for name, values in self.space.variable.items()}
        searched = json.dumps([choices, str(self.space.pinned)])
        digest = hashlib.sha256(searched.encode()).hexdigest()[:16]
        replayed = {"table": self.subject.table} if self.subject.simulated else {}
        return {
            "model_sha256": self.subject.sha256,
            "backend": settings.backend,
            "latency": self.metric,
            "shapes": {name: list(shape) for name, shape in self.subject.shapes.items()},
            "samples": self.subject.samples,
            "bound": settings.accuracy_bound().to_dict(),
            "environment": identifying(self.environment),
            "knobs": {"tuner_version": self.database.tuner_version, "choices": digest},
            "versions": versions(),
            "seed": settings.seed,
            **replayed,
        }


def prepare_inputs(settings: TuneSettings) -> Inputs:
    """Open the model and load or make up its samples; nothing is run or written.

    Raises:
        RoutewrightError: Model, shapes or samples do not fit together.
    """
    model = OnnxModel.open(resolve_model(settings.model))
    given = parse_shape_options(settings.shape or settings.opt_shape)
    if not settings.samples:
        shapes = dict(_profile(settings, model, given))
        ranges = dict(parse_input_range(text, model.inputs) for text in settings.input_range)
        samples = SampleSet.generate(
            model.inputs,
            shapes,
            count=settings.num_samples,
            seed=settings.seed,
            ranges=ranges,
        )
        if settings.references:
            raise SampleError("references without samples: give the inputs they belong to as well")
        return Inputs(model, shapes, samples)
    if settings.input_range:
        raise SampleError("input_range is for made-up samples and does not go with samples")
    samples = SampleSet.load(
        list(settings.samples),
        inputs=model.inputs,
        outputs=model.outputs,
        shapes=given,
        references=list(settings.references),
    )
    shapes = samples.input_shapes
    for name, shape in given.items():
        named = name or next(iter(shapes), "")
        if named in shapes and shapes[named] != tuple(shape):
            raise SampleError(
                f"input {named!r} is {describe_shape(shapes[named])} in the first sample and "
                f"{describe_shape(shape)} in --shape; the first sample is timed, so leave --shape "
                "out or give a sample of that shape"
            )
    return Inputs(model, shapes, samples)


def prepare(
    settings: TuneSettings, inputs: Inputs, out: OutFolder, budget: Budget, progress: Progress
) -> Prepared:
    """Start the worker and get everything ready for the baseline.

    Raises:
        RoutewrightError: Something the user can mend.
    """
    model, samples = inputs.model, inputs.samples
    limits = settings.accuracy_bound().limits(
        {output.name: output.dtype for output in model.outputs}
    )
    worker = make_worker(settings, inputs, work=out.work, logs=out.logs)
    notes = list(samples.notes)
    try:
        database, environment = worker.knob_database(), worker.environment()
        space = search_space(settings, database)
        if samples.references is None:
            progress.phase("reference", "outputs of the original model")
            notes += compute_references(worker, limits, deadline_s=budget.end_s)
        info = worker.backend_info()
    except TrialFailure as failure:
        worker.close()
        raise too_short(budget, failure) or BackendError(
            f"the backend {settings.backend} cannot run this model: {failure}"
        ) from failure
    except BaseException:
        worker.close()
        raise
    return Prepared(
        subject=inputs.subject,
        limits=limits,
        worker=worker,
        database=database,
        space=space,
        environment=environment,
        metric=info.metric,
        hints=SearchHints(
            fingerprints=info.fingerprints,
            surely_live=info.run_time_knobs & space.variable.keys(),
        ),
        notes=(*notes, *space.notes),
    )


def make_worker(settings: TuneSettings, inputs: Inputs, *, work: Path, logs: Path) -> Worker:
    """Return a worker for the model; it starts with its first request.

    Args:
        settings: Backend, bound and options.
        inputs: The model and what goes into it.
        work: Folder for samples, references and builds.
        logs: Folder for what the worker prints.
    """
    model, samples = inputs.model, inputs.samples
    samples_path, references_path = work / "samples.npz", work / "references.npz"
    samples.save(samples_path)
    if samples.references is not None:
        samples.save(references_path)
    builds = work / "builds"
    builds.mkdir(exist_ok=True)
    job = Job(
        model=model.path,
        work_folder=builds,
        shapes=inputs.shapes,
        profiles=_profiles(settings, model),
        calibration=samples_path,
        options=settings.backend_options(),
        seed=settings.seed,
    )
    memory_gib = settings.memory_limit_gib
    return Worker(
        job,
        backend=settings.backend,
        samples=samples_path,
        references=references_path,
        bound=settings.accuracy_bound(),
        log_folder=logs,
        memory_limit_bytes=None if memory_gib is None else int(memory_gib * _GIB),
    )


def too_short(budget: Budget, failure: TrialFailure, *, kept_s: float = 0.0) -> BudgetError | None:
    """Return what to say where it is the budget that a first step failed for, else None.

    Args:
        budget: The budget.
        failure: How the step failed.
        kept_s: Seconds of the budget that the step was not allowed to use.
    """
    if failure.kind != "timeout" or budget.remaining_s > kept_s + 1.0:
        return None
    return BudgetError(
        f"the budget of {budget.limit_s:g} s ended before the default route was measured "
        f"({failure.message}); give a larger --budget"
    )


def compute_references(worker: Worker, limits: Limits, *, deadline_s: float) -> list[str]:
    """Compute the reference outputs and return what a user should know of them.

    Raises:
        ModelError: The model's own spread breaks the bound.
        SettingsError: The user's metric gives no loss.
        TrialFailure: The model could not be run in time.
    """
    again = worker.compute_references(deadline_s=deadline_s)
    spread = again.losses
    verdict = limits.judge(spread)
    if limits.loss == METRIC and not all(map(math.isfinite, spread.values())):
        why = next(iter(again.reasons.values()), "it is not a number")
        raise SettingsError(
            f"the metric gives no loss even for two runs of the original model: {why}; "
            "it must return a number from 0 on"
        )
    if not verdict.eligible:
        raise ModelError(
            "the model is not deterministic: two runs of it on the same inputs differ "
            f"({verdict.broken[0]}), so no bound this tight can be judged; give a wider --bound "
            "or remove the random operators"
        )
    return [
        f"two runs of the original model differ at output {name!r}: {limits.loss} {loss:.3g}"
        for name, loss in sorted(spread.items())
        if loss > 0
    ]


def search_space(settings: TuneSettings, database: KnobDatabase) -> SearchSpace:
    """Return the space that the settings describe over these knobs."""
    if settings.expr is not None:
        expression = RouteExpression.parse(settings.expr, database)
    elif settings.expr_file is not None:
        expression = RouteExpression.from_file(Path(settings.expr_file), database)
    else:
        return SearchSpace.whole(database)
    return SearchSpace.from_expression(expression, database)


def _profile(
    settings: TuneSettings, model: OnnxModel, given: Mapping[str, Shape]
) -> Mapping[str, Shape]:
    if settings.min_shape or settings.max_shape:
        return {name: shapes[1] for name, shapes in _profiles(settings, model)[0].items()}
    return model.resolve_shapes(given)


def _profiles(
    settings: TuneSettings, model: OnnxModel
) -> tuple[dict[str, tuple[Shape, Shape, Shape]], ...]:
    if not (settings.min_shape or settings.max_shape):
        return ()
    return (
        resolve_profile(
            model.inputs,
            parse_shape_options(settings.min_shape),
            parse_shape_options(settings.shape or settings.opt_shape),
            parse_shape_options(settings.max_shape),
        ),
    )
