"""The Python interface: :func:`tune`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from routewright.budget import parse_duration_s
from routewright.progress import Progress
from routewright.report.publishing import Publisher
from routewright.result import TuneResult
from routewright.settings import TuneSettings
from routewright.tuning import run

Texts = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def tune(
    model: str | os.PathLike[str],
    *,
    budget: str | float = "2m",
    shape: Texts | Mapping[str, Sequence[int]] = (),
    min_shape: Texts | Mapping[str, Sequence[int]] = (),
    max_shape: Texts | Mapping[str, Sequence[int]] = (),
    samples: Texts = (),
    references: Texts = (),
    num_samples: int = 2,
    input_range: Texts = (),
    loss: str | None = None,
    bound: float | None = None,
    output_bound: Mapping[str, float] | Texts = (),
    atol: float | None = None,
    rtol: float | None = None,
    metric: str | None = None,
    expr: str | None = None,
    expr_file: str | os.PathLike[str] | None = None,
    backend: str = "onnxruntime",
    option: Texts = (),
    sampler: str = "auto",
    prior: str | os.PathLike[str] = "none",
    family: str | None = None,
    learn: bool = False,
    storage: str | None = None,
    study: str | None = None,
    resume: bool = False,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    half_width: float = 0.015,
    max_timing_s: float = 6.0,
    memory_limit_gib: float | None = None,
    shared_device: bool = False,
    progress: Progress | None = None,
) -> TuneResult:
    """Find the fastest build route of a model within an accuracy bound and a time budget.

    Args:
        model: The ONNX file.
        budget: Seconds, or a text such as ``"2m"``; covers everything, confirmation included.
        shape: Input shapes to time: ``{"x": (1, 3, 320, 320)}`` or ``"x:1x3x320x320"``.
        min_shape: Smallest shapes of the optimization profile, for backends that have one.
        max_shape: Largest shapes of the optimization profile.
        samples: Sample files; none: samples are made up.
        references: Reference outputs; none: the original model computes them.
        num_samples: How many samples to make up.
        input_range: Ranges of made-up inputs, ``"name=low:high"``.
        loss: ``"l0"``, ``"l1"``, ``"l2"``, ``"linf"`` or ``"cos"``; goes with ``bound``.
        bound: Largest loss allowed; neither given: cos at 1e-3.
        output_bound: Bounds of single outputs, ``{"scores": 1e-2}``.
        atol: Absolute tolerance of l0.
        rtol: Relative tolerance of l0.
        metric: The user's own loss, ``"package.module:function"``.
        expr: Route expression that restricts the search.
        expr_file: File with a route expression.
        backend: What builds and runs engines.
        option: Options of the backend, ``"name=value"``.
        sampler: Search method.
        prior: What earlier studies teach: ``"none"``, ``"auto"``, or the path of a prior.
        family: Family of the model, for priors; none: told by what it is like.
        learn: Add the finished study to the user's own priors.
        storage: URL of an Optuna storage; none: a file in ``out``.
        study: Name of the study.
        resume: Continue the study in ``out`` with what is left of its budget.
        seed: Seed of every random choice.
        out: Output folder; none: a fresh one after the model.
        half_width: Timing of a candidate ends when its 95% interval is this tight.
        max_timing_s: Timing of a candidate ends after this many seconds.
        memory_limit_gib: Memory that the worker may use.
        shared_device: Time even while another tuner times on this device.
        progress: Hears what happens.

    Returns:
        The result, as in ``out/result.json``.

    Raises:
        RoutewrightError: Something the user can mend; its message says how.

    Example:
        >>> import routewright
        >>> result = routewright.tune(
        ...     "model.onnx", shape={"x": (1, 3, 320, 320)}, loss="cos", bound=1e-2, budget="3m"
        ... )  # doctest: +SKIP
        >>> result.verdict, result.best.route  # doctest: +SKIP
    """
    settings = TuneSettings(
        model=os.fspath(model),
        backend=backend,
        budget_s=parse_duration_s(budget) if isinstance(budget, str) else float(budget),
        shape=_shapes(shape),
        min_shape=_shapes(min_shape),
        max_shape=_shapes(max_shape),
        samples=_texts(samples),
        references=_texts(references),
        num_samples=num_samples,
        input_range=_texts(input_range),
        loss=loss,
        bound=bound,
        output_bound=_bounds(output_bound),
        atol=atol,
        rtol=rtol,
        metric=metric,
        expr=expr,
        expr_file=None if expr_file is None else os.fspath(expr_file),
        sampler=sampler,
        prior=os.fspath(prior),
        family=family,
        learn=learn,
        storage=storage,
        study=study,
        seed=seed,
        out=None if out is None else os.fspath(out),
        option=_texts(option),
        half_width=half_width,
        max_timing_s=max_timing_s,
        memory_limit_gib=memory_limit_gib,
        shared_device=shared_device,
    )
    return run(settings, resume=resume, progress=Publisher(progress or Progress()))


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str | os.PathLike):
        return (os.fspath(value),)
    return tuple(os.fspath(item) for item in value)


def _shapes(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Mapping):
        return _texts(value)
    return tuple(
        f"{name}:{'x'.join(str(int(size)) for size in sizes) or 'scalar'}"
        for name, sizes in value.items()
    )


def _bounds(value: Any) -> tuple[str, ...]:
    if not isinstance(value, Mapping):
        return _texts(value)
    return tuple(f"{name}={limit!r}" for name, limit in value.items())
