"""``routewright prior check``: what a prior would have a study of one model try, and why."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from routewright.bounds import parse_threshold
from routewright.cli.database import start_worker
from routewright.environment import identifying
from routewright.errors import BackendError
from routewright.model import OnnxModel
from routewright.priors.explanation import (
    describe_belief,
    describe_source,
    describe_suggestion,
)
from routewright.priors.families import trait_of
from routewright.priors.similarity import distance_parts
from routewright.priors.sources import model_features
from routewright.priors.starting import start_from
from routewright.priors.store import AUTO, load
from routewright.priors.target import Target
from routewright.settings import DEFAULT_BOUND, DEFAULT_LOSS, resolve_model
from routewright.shapes import parse_shape_options
from routewright.space import SearchSpace
from routewright.workbench import TrialFailure

_LIKELY = 0.5
_MOST_LISTED = 20


def check(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The ONNX file.")],
    prior: Annotated[
        str, typer.Option(help="File or folder; auto: the shipped priors and your own.")
    ] = AUTO,
    shape: Annotated[
        list[str] | None, typer.Option(help="Input shape, name:1x3x320x320. Repeatable.")
    ] = None,
    backend: Annotated[str, typer.Option(help="What builds and runs engines.")] = "onnxruntime",
    family: Annotated[
        str, typer.Option(help="Family of the model. Default: told by what it is like.")
    ] = "",
    loss: Annotated[str, typer.Option(help="Loss of the bound.")] = DEFAULT_LOSS,
    bound: Annotated[str, typer.Option(help="Largest loss allowed.")] = str(DEFAULT_BOUND),
    why: Annotated[
        bool, typer.Option("--why", help="Explain every setting of the suggested routes.")
    ] = False,
) -> int:
    """Print what a prior knows about models like MODEL and which routes it would try first."""
    console = Console(highlight=False)
    path = resolve_model(model)
    opened = OnnxModel.open(path)
    shapes = opened.resolve_shapes(parse_shape_options(tuple(shape or ())))
    features = model_features(path, shapes)
    loaded = load(prior)
    with (
        tempfile.TemporaryDirectory(prefix="routewright-") as folder,
        start_worker(backend, str(path), tuple(shape or ()), Path(folder)) as worker,
    ):
        try:
            database, environment = worker.knob_database(), worker.environment()
        except TrialFailure as failure:
            raise BackendError(f"the backend {backend} failed: {failure.message}") from failure
    target = Target(
        backend=backend,
        database=database,
        features=features,
        model_sha256=opened.sha256,
        family=family,
        environment=identifying(environment),
        loss=loss,
        limit=parse_threshold(bound),
    )
    space = SearchSpace.whole(database)
    start = start_from(loaded, target, space, seed=0)
    beliefs = start.beliefs

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    if features is not None:
        say(
            f"{path.name}: {trait_of([features])}, {features.flops / 1e6:.0f} million operations, "
            f"{sum(features.weights.values()) / 1e6:.2f} million weights, depth {features.depth}"
        )
    for note in start.notes:
        say(note)
    for source in beliefs.choice.used:
        say(f"source: {describe_source(source)}")
        known = source.evidence.origin.features
        if features is not None and known is not None:
            parts = distance_parts(known, features)
            say("  " + ", ".join(f"{name} {part:.2f}" for name, part in parts.items()))
    live = sorted(beliefs.live_probability().items(), key=lambda item: -item[1])
    likely = [f"{name} ({p:.2f})" for name, p in live if p >= _LIKELY and name in space.variable]
    if beliefs.choice.used:
        more = f" and {len(likely) - _MOST_LISTED} more" if len(likely) > _MOST_LISTED else ""
        told = ", ".join(likely[:_MOST_LISTED]) or "none"
        say(f"likely live: {told}{more}; {len(live) - len(likely)} knobs likely inert")
    if start.warm is not None:
        for suggestion in start.warm.suggestions:
            say(f"would try: {describe_suggestion(suggestion)}")
            for setting in suggestion.settings if why else ():
                knob, _, value = setting.partition("=")
                for line in describe_belief(beliefs.settings[knob, value]):
                    say(f"  {line}")
    return 0
