"""What every search method owes, held against each one of the registry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import optuna
import pytest

from routewright.knobs import Knob, KnobDatabase
from routewright.records import Phase, TrialRecord
from routewright.routes import Route, RouteExpression
from routewright.search.base import History, RouteSampler
from routewright.search.registry import SAMPLERS, make_sampler
from routewright.search.simulation import Problem, Simulation, random_problem
from routewright.space import SearchSpace

NAMES = [name for name, entry in SAMPLERS.items() if not entry.missing()]
REPEATING = {"mixed-trtexec"}


def routes(records: Sequence[TrialRecord]) -> list[str]:
    return [record.route for record in records]


def small_problem(seed: int = 3) -> Problem:
    return random_problem(seed, knobs=12, live=4, values=3, pairs=2, failing=1)


@pytest.mark.parametrize("name", NAMES)
def test_proposals_lie_in_the_space_and_are_new(name: str) -> None:
    problem = small_problem()
    sampler = make_sampler(name, problem.space, seed=1)
    sim = Simulation(problem, seed=1)
    for _ in range(40):
        proposal = sampler.propose(sim.history())
        if proposal is None:
            break
        assert problem.space.contains(proposal.route)
        assert proposal.origin
        assert name in REPEATING or str(proposal.route) not in sim.history().tried()
        sim.carry_out(proposal)


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_study_goes_on_as_if_it_had_not_stopped(name: str) -> None:
    problem = small_problem()
    sim = Simulation(problem, seed=2)
    kept = make_sampler(name, problem.space, seed=7)
    for _ in range(30):
        proposal = kept.propose(sim.history())
        assert make_sampler(name, problem.space, seed=7).propose(sim.history()) == proposal
        if proposal is None:
            break
        sim.carry_out(proposal)


@pytest.mark.parametrize("name", NAMES)
def test_a_small_space_is_used_up_and_then_there_is_nothing_left(name: str) -> None:
    problem = random_problem(5, knobs=4, live=4, values=2, pairs=1, failing=1)
    sim = Simulation(problem, seed=0)
    sim.run(make_sampler(name, problem.space, seed=0), builds=200)
    assert make_sampler(name, problem.space, seed=0).propose(sim.history()) is None
    tried = set(routes(sim.records))
    if name in ("full", "random", "tpe", "gp", "auto", "surrogate"):
        assert len(tried) == problem.space.size


@pytest.mark.parametrize("name", NAMES)
def test_routes_running_elsewhere_are_left_to_others(name: str) -> None:
    problem = small_problem()
    sim = Simulation(problem, seed=1)
    sampler = make_sampler(name, problem.space, seed=1)
    for _ in range(12):
        proposal = sampler.propose(sim.history())
        if proposal is None:
            break
        history = History(tuple(sim.records), running=(str(proposal.route),))
        other = make_sampler(name, problem.space, seed=1).propose(history)
        assert other is None or other.route != proposal.route
        sim.carry_out(proposal)


@pytest.mark.parametrize("name", NAMES)
def test_pinned_knobs_and_unlisted_defaults_are_respected(name: str) -> None:
    database = KnobDatabase(
        "test",
        (
            Knob.of("-a", "[on|off]", "on"),
            Knob.of("-b", "[0|1|2]", "1"),
            Knob.of("-c", "[x|y]", "y"),
            Knob.of("-d", "[0-1000]", "7"),
        ),
    )
    expression = RouteExpression.parse("-a=off -b=[0|2] -c=[x|y]", database)
    space = SearchSpace.from_expression(expression, database)
    problem = Problem(space=space, live=frozenset({("-a", "off"), ("-b", "0"), ("-c", "x")}))
    sim = Simulation(problem, seed=0)
    sim.run(make_sampler(name, space, seed=0), builds=20)
    searched = {record.route for record in sim.records if record.phase is not Phase.BASELINE}
    assert all(space.contains(Route.parse(route, database)) for route in searched)
    assert searched
    if name not in ("mixed", "mixed-trtexec", "fast"):
        assert len(searched) == 4 or name == "auto"


@pytest.mark.parametrize("name", NAMES)
def test_wide_ranges_can_be_searched(name: str) -> None:
    database = KnobDatabase(
        "test", (Knob.of("-n", "[0-100000]", "7"), Knob.of("-a", "[on|off]", "on"))
    )
    space = SearchSpace.whole(database)
    sim = Simulation(Problem(space=space, live=frozenset({("-a", "off")})), seed=0)
    sim.run(make_sampler(name, space, seed=0), builds=15)
    assert len(sim.records) > 3


@pytest.mark.parametrize("name", NAMES)
def test_a_space_without_knobs_has_the_default_route_only(name: str) -> None:
    space = SearchSpace(KnobDatabase("empty", (Knob.of("-a", "[on|off]", "on"),)), {})
    sim = Simulation(Problem(space=space), seed=0)
    assert make_sampler(name, space, seed=0).propose(sim.history()) is None


@pytest.mark.parametrize("name", [n for n in NAMES if n != "mixed-trtexec"])
def test_a_study_of_optuna_can_be_driven_by_it(name: str) -> None:
    problem = small_problem()
    sampler: RouteSampler = make_sampler(name, problem.space, seed=1)
    sim = Simulation(problem, seed=1)
    study = optuna.create_study(sampler=sampler)
    baseline = sim.records[0]
    study.add_trial(optuna.trial.create_trial(value=1.0, user_attrs=baseline.to_attributes()))
    for _ in range(5):
        trial = study.ask()
        params = dict(trial.relative_params)
        proposal = sampler.proposal_of(trial.number)
        assert proposal is not None
        assert problem.space.route(params) == proposal.route
        record = sim.carry_out(proposal)
        for key, value in record.to_attributes().items():
            trial.set_user_attr(key, value)
        study.tell(trial, 1.0)


SCRIPT = """
import json, sys
from routewright.search.registry import make_sampler
from routewright.search.simulation import Simulation, random_problem
problem = random_problem(3, knobs=12, live=4, values=3, pairs=2, failing=1)
found = {}
for name in json.loads(sys.argv[1]):
    sim = Simulation(problem, seed=2)
    sim.run(make_sampler(name, problem.space, seed=7), builds=25)
    found[name] = [record.route for record in sim.records]
print(json.dumps(found))
"""


def test_one_seed_gives_one_sequence_whatever_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, json.dumps(NAMES)],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
