"""The searches that screen first, as a whole: ``auto``, the default, and ``staged``."""

from __future__ import annotations

import dataclasses

import pytest

from routewright.records import Outcome, Phase
from routewright.search.hints import SearchHints
from routewright.search.registry import make_sampler
from routewright.search.simulation import Problem, Simulation, random_problem

BOTH = pytest.mark.parametrize("name", ["staged", "auto"])


def run(name: str, problem: Problem, *, builds: int, seed: int = 0, **hints: object) -> Simulation:
    sim = Simulation(problem, seed=seed)
    sampler = make_sampler(
        name,
        problem.space,
        seed=seed,
        hints=SearchHints(**hints),  # type: ignore[arg-type]
    )
    sim.run(sampler, builds=builds)
    return sim


def test_screening_comes_first_and_then_every_live_knob_alone() -> None:
    problem = random_problem(1, knobs=50, live=5, failing=0)
    sim = run("staged", problem, builds=60)
    phases = [record.phase for record in sim.records[1:]]
    screened = phases.index(Phase.SEARCH)
    assert screened <= 35
    assert all(phase is Phase.SCREENING for phase in phases[:screened])
    alone = sim.records[1 + screened : 1 + screened + 5]
    live = {name for name, _ in problem.live}
    assert {record.route.split("=")[0] for record in alone} == live


def test_what_helped_alone_is_then_tried_together() -> None:
    problem = random_problem(1, knobs=50, live=5, failing=0)
    sim = run("staged", problem, builds=60)
    (together, *_) = [r for r in sim.records if "best single changes" in r.origin] or [None]
    gains = [r for r in sim.records if r.origin == "a single change" and r.eligible]
    helped = [r for r in gains if r.ci95 is not None and r.ci95[1] < 1]
    assert (together is not None) == (len({r.route.split("=")[0] for r in helped}) >= 2)


@BOTH
def test_only_live_knobs_are_searched(name: str) -> None:
    problem = random_problem(2, knobs=50, live=5, failing=0)
    sim = run(name, problem, builds=60)
    live = {name for name, _ in problem.live}
    for record in sim.records:
        if record.phase is Phase.SEARCH and record.route:
            assert {token.split("=")[0] for token in record.route.split()} <= live


@BOTH
def test_without_fingerprints_the_whole_space_is_searched(name: str) -> None:
    problem = random_problem(2, knobs=20, live=5)
    sim = run(name, problem, builds=30, fingerprints=False)
    assert not any(record.phase is Phase.SCREENING for record in sim.records)
    assert sim.builds == 30


@BOTH
def test_screening_leaves_time_for_the_search(name: str) -> None:
    problem = random_problem(3, knobs=200, live=30)
    sim = Simulation(problem, seed=0, budget_s=400.0)
    sim.run(make_sampler(name, problem.space, seed=0), builds=1000)
    screening_s = sum(r.cost_s for r in sim.records if r.phase is Phase.SCREENING)
    assert 0.05 * 400 <= screening_s <= 0.6 * 400
    assert any(record.phase is Phase.SEARCH for record in sim.records)


@BOTH
def test_a_model_without_live_knobs_ends_the_search(name: str) -> None:
    problem = random_problem(4, knobs=40, live=1)
    problem = dataclasses.replace(problem, live=frozenset(), failing=(), pairs={})
    sim = run(name, problem, builds=100)
    assert sim.builds <= 5
    assert all(r.outcome in (Outcome.TIMED, Outcome.REUSED) for r in sim.records)


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_it_finds_a_better_route_than_one_change_alone(name: str, seed: int) -> None:
    problem = random_problem(seed, knobs=40, live=6, pairs=3, failing=1)
    sim = run(name, problem, builds=70, seed=seed)
    singles = [
        problem.log_ratio(route)
        for route in problem.space.one_knob_changes()
        if problem.is_eligible(route)
    ]
    assert sim.best_true_ratio() <= min(singles) + 0.01


def test_a_likely_live_knob_is_searched_before_the_screening_gets_to_it() -> None:
    problem = random_problem(3, knobs=50, live=5, failing=0, noise_sd=0.002)
    likely = {name: 0.9 for name, _ in problem.live}
    sim = run("auto", problem, builds=8, live_probability=likely)
    first = next(r for r in sim.records if r.phase is Phase.SEARCH and r.route)
    screened = [r.route for r in sim.records[: sim.records.index(first)]]
    knobs = {token.split("=")[0] for token in first.route.split()}
    assert knobs <= likely.keys()
    assert not any(knobs <= {t.split("=")[0] for t in route.split()} for route in screened)
