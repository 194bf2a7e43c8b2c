"""``routewright tune``: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from routewright.budget import parse_duration_s
from routewright.cli import started
from routewright.cli.live import console_progress
from routewright.errors import SettingsError
from routewright.report.publishing import Publisher
from routewright.report.source import view_of_result
from routewright.report.story import tell
from routewright.report.terminal import show_answers
from routewright.settings import TuneSettings, read_study_file
from routewright.studyfile import stored_settings
from routewright.tuning import run

INTERRUPTED = 130


def tune(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL|STUDY.toml",
            help="The ONNX file to tune, or a study file. May be left out with --resume.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Wall-clock time for everything, e.g. 90s, 2m, 1h30m. Default: 2m."),
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Input shape to time, name:1x3x320x320. Repeatable.")
    ] = None,
    min_shape: Annotated[
        list[str] | None, typer.Option(help="Smallest shape of the optimization profile.")
    ] = None,
    opt_shape: Annotated[
        list[str] | None, typer.Option(help="The same as --shape, beside --min-/--max-shape.")
    ] = None,
    max_shape: Annotated[
        list[str] | None, typer.Option(help="Largest shape of the optimization profile.")
    ] = None,
    samples: Annotated[
        list[str] | None,
        typer.Option(help="Inputs: .npz, Polygraphy JSON, or name:file.bin. Default: made up."),
    ] = None,
    references: Annotated[
        list[str] | None,
        typer.Option(help="Reference outputs for --samples. Default: the original model's."),
    ] = None,
    num_samples: Annotated[
        int | None, typer.Option(help="How many samples to make up. Default: 2.")
    ] = None,
    input_range: Annotated[
        list[str] | None, typer.Option(help="Range of a made-up input, name=low:high.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="Loss of the bound: l0, l1, l2, linf, cos. Default: cos.")
    ] = None,
    bound: Annotated[
        str | None,
        typer.Option(help="Largest loss allowed; goes with --loss. Default: 1e-3 for cos."),
    ] = None,
    output_bound: Annotated[
        list[str] | None, typer.Option(help="Bound of one output, name=1e-2. Repeatable.")
    ] = None,
    atol: Annotated[float | None, typer.Option(help="Absolute tolerance of l0.")] = None,
    rtol: Annotated[float | None, typer.Option(help="Relative tolerance of l0.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="Your own loss, package.module:function; this runs that code."),
    ] = None,
    expr: Annotated[
        str | None, typer.Option(help="Route expression that restricts the search.")
    ] = None,
    expr_file: Annotated[str | None, typer.Option(help="File with a route expression.")] = None,
    backend: Annotated[
        str | None, typer.Option(help="What builds and runs engines. Default: onnxruntime.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the backend, name=value. Repeatable.")
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="Search method. Default: auto.")] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            help="What earlier studies teach: none, auto (the shipped priors and your own), or a "
            "path. Default: none."
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(help="Family of the model. Default: told by what it is like."),
    ] = None,
    learn: Annotated[
        bool, typer.Option("--learn", help="Add the finished study to your own priors.")
    ] = False,
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage URL. Default: a file in --out.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the study.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the study in --out with what is left.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Seed of every random choice. Default: 0.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Output folder. Default: a fresh one under routewright-out/."),
    ] = None,
    half_width: Annotated[
        float | None,
        typer.Option(help="Interval half-width at which timing ends. Default: 0.015."),
    ] = None,
    max_timing: Annotated[
        str | None, typer.Option(help="Most time for timing one candidate. Default: 6s.")
    ] = None,
    memory_limit_gib: Annotated[
        float | None, typer.Option(help="Memory the worker may use. Default: 80% of what is free.")
    ] = None,
    shared_device: Annotated[
        bool,
        typer.Option("--shared-device", help="Time even while another tuner times here."),
    ] = False,
    json_only: Annotated[
        bool, typer.Option("--json", help="Print only the result, as JSON, to standard output.")
    ] = False,
) -> int:
    """Find the fastest build route of MODEL within an accuracy bound and a time budget.

    The result is written to the output folder: result.json, best.route, the engine and the study.
    """
    started_s = started.AT_S.get()
    given: dict[str, Any] = {
        "budget_s": None if budget is None else parse_duration_s(budget),
        "shape": shape,
        "min_shape": min_shape,
        "opt_shape": opt_shape,
        "max_shape": max_shape,
        "samples": samples,
        "references": references,
        "num_samples": num_samples,
        "input_range": input_range,
        "loss": loss,
        "bound": bound,
        "output_bound": output_bound,
        "atol": atol,
        "rtol": rtol,
        "metric": metric,
        "expr": expr,
        "expr_file": expr_file,
        "backend": backend,
        "option": option,
        "sampler": sampler,
        "prior": prior,
        "family": family,
        "learn": learn or None,
        "storage": storage,
        "study": study,
        "seed": seed,
        "out": out,
        "half_width": half_width,
        "max_timing_s": None
        if max_timing is None
        else parse_duration_s(max_timing, "--max-timing"),
        "memory_limit_gib": memory_limit_gib,
        "shared_device": shared_device or None,
    }
    named = {name: value for name, value in given.items() if value is not None and value != []}
    settings = _settings(model, named, resume)
    console = Console(stderr=True, highlight=False)
    with console_progress(console, settings) as progress:
        result = run(settings, resume=resume, progress=Publisher(progress), started_s=started_s)
    if json_only:
        sys.stdout.write(result.to_json())
    else:
        screen = Console(highlight=False)
        show_answers(screen, tell(view_of_result(result)))
        screen.print(f"written to {result.out}", soft_wrap=True, markup=False)
    return INTERRUPTED if result.interrupted else 0


def _settings(model: str | None, named: dict[str, Any], resume: bool) -> TuneSettings:
    if resume:
        return _resumed(model, named)
    if model is None:
        raise SettingsError("MODEL is missing: name the ONNX file to tune, or a study file")
    if model.endswith(".toml"):
        base = read_study_file(Path(model)).to_dict()
        return TuneSettings.from_dict({**base, **named})
    return TuneSettings.from_dict({"model": model, **named})


def _resumed(model: str | None, named: dict[str, Any]) -> TuneSettings:
    if "out" not in named:
        raise SettingsError("--resume needs --out: the folder of the study to continue")
    stored = stored_settings(Path(named["out"])).to_dict()
    if model is not None and model.endswith(".toml"):
        named = {**read_study_file(Path(model)).to_dict(), **named}
    elif model is not None:
        named["model"] = model
    return TuneSettings.from_dict({**stored, **named})
