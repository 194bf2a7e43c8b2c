"""A made-up work for comparisons, which other processes can open by itself."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from routewright.bounds import Limits
from routewright.routes import Route
from routewright.search.candidates import narrowed_to
from routewright.search.hints import NO_HINTS, SearchHints
from routewright.search.simulation import Problem, random_problem
from routewright.space import SearchSpace
from routewright.workbench import TrialFailure
from scripted_bench import Engine, ScriptedBench


class MadeUpWork:
    """A problem of :mod:`routewright.search.simulation` on the scripted workbench."""

    def __init__(self, name: str, problem: Problem) -> None:
        self.name = name
        self.problem = problem
        changed = narrowed_to(problem.space, sorted({knob for knob, _ in problem.live}))
        self.best = math.exp(
            min(
                problem.log_ratio(route)
                for route in changed.enumerate()
                if not problem.fails(route) and problem.log_loss(route) <= 0
            )
        )

    @property
    def space(self) -> SearchSpace:
        return self.problem.space

    @property
    def limits(self) -> Limits:
        return Limits("cos", {"y": 1.0})

    @property
    def hints(self) -> SearchHints:
        return NO_HINTS

    @property
    def live(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _ in sorted(self.problem.live)))

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"backend": "made up"}

    def bench(self, seed: int) -> ScriptedBench:
        return ScriptedBench(default=self._engine, seed=seed)

    def truth(self, route: str) -> float:
        return math.exp(self.problem.log_ratio(self._parsed(route)))

    def _parsed(self, route: str) -> Route:
        return Route.parse(route, self.space.database)

    def _engine(self, text: str) -> Engine:
        route = self._parsed(text)
        failure = TrialFailure("error", "no such pair") if self.problem.fails(route) else None
        return Engine(
            ratio=math.exp(self.problem.log_ratio(route)),
            loss=math.exp(self.problem.log_loss(route)),
            fingerprint=self.problem.fingerprint(route),
            failure=failure,
        )


def open_work(name: str, seed: int, knobs: int = 8) -> MadeUpWork:
    """Make the work of a name and a seed."""
    return MadeUpWork(name, random_problem(seed, knobs=knobs, live=4, pairs=2, failing=1))


def openers(**seeds: int) -> dict[str, partial[MadeUpWork]]:
    """Return openers of works by name."""
    return {name: partial(open_work, name, seed) for name, seed in seeds.items()}
