"""The surrogate search as a whole."""

from __future__ import annotations

import dataclasses

import numpy as np

from routewright.knobs import Knob, KnobDatabase
from routewright.records import Outcome, Phase
from routewright.routes import Route
from routewright.search.auto import AutoSearch
from routewright.search.base import History
from routewright.search.hints import EffectBelief, SearchHints
from routewright.search.simulation import Problem, Simulation, random_problem
from routewright.search.surrogate.encoding import Encoding, Floats, Options
from routewright.search.surrogate.model import Coefficients
from routewright.search.surrogate.optimize import climb
from routewright.search.surrogate.sampler import SurrogateSearch
from routewright.space import SearchSpace


def best_of(problem: Problem) -> float:
    return min(
        problem.log_ratio(route)
        for route in problem.space.enumerate()
        if problem.is_eligible(route)
    )


def small(seed: int) -> Problem:
    return random_problem(seed, knobs=7, live=7, values=3, pairs=5, failing=2)


def test_it_comes_within_two_percent_in_few_builds() -> None:
    regrets = []
    for seed in range(4):
        problem = small(seed)
        sim = Simulation(problem, seed=seed)
        sim.run(SurrogateSearch(problem.space, seed=seed), builds=45)
        regrets.append(sim.best_true_ratio() - best_of(problem))
    assert np.median(regrets) <= 0.01
    assert max(regrets) <= 0.04


def test_few_of_its_trials_break_the_bound_or_fail() -> None:
    wasted = []
    for seed in range(3):
        problem = small(seed)
        sim = Simulation(problem, seed=seed)
        sim.run(SurrogateSearch(problem.space, seed=seed), builds=40)
        bad = (Outcome.INACCURATE, Outcome.FAILED)
        wasted.append(sum(r.outcome in bad for r in sim.records) / len(sim.records))
    assert np.mean(wasted) < 0.45


def test_workers_get_different_routes() -> None:
    problem = small(1)
    sim = Simulation(problem, seed=1)
    sampler = SurrogateSearch(problem.space, seed=1)
    sim.run(sampler, builds=15)
    running: list[str] = []
    for _ in range(4):
        proposal = sampler.propose(dataclasses.replace(sim.history(), running=tuple(running)))
        assert proposal is not None
        assert str(proposal.route) not in running
        running.append(str(proposal.route))


def test_a_right_belief_helps_and_a_wrong_one_does_little_harm() -> None:
    def builds_to_best(sign: float) -> float:
        used = []
        for seed in range(3):
            problem = dataclasses.replace(small(seed), failing=(), losses={}, pairs={})
            effects = {
                change: EffectBelief(sign * effect, 0.03)
                for change, effect in problem.effects.items()
            }
            hints = SearchHints(effects=effects if sign else {})
            sim = Simulation(problem, seed=seed)
            sampler = SurrogateSearch(problem.space, seed=seed, hints=hints)
            target = best_of(problem) + 0.02
            while sim.best_true_ratio() > target and sim.builds < 60:
                sim.run(sampler, builds=sim.builds + 1)
            used.append(sim.builds)
        return float(np.mean(used))

    without = builds_to_best(0.0)
    assert builds_to_best(1.0) <= 6
    assert builds_to_best(-1.0) <= 1.5 * without + 5


def test_a_subclass_may_judge_latency_by_another_model() -> None:
    class FewestChanges:
        def mean(self, rows: Floats) -> Floats:
            return (rows**2).sum(axis=1)

        def predict(self, rows: Floats) -> tuple[Floats, Floats]:
            return self.mean(rows), np.full(len(rows), 0.1)

    class Search(SurrogateSearch):
        def judge_of(self, *known: object) -> FewestChanges:
            return FewestChanges()

    class Auto(AutoSearch):
        search_type = Search

    problem = small(0)
    without_screening = SearchHints(fingerprints=False)
    for sampler in (
        Search(problem.space, seed=0),
        Auto(problem.space, seed=0, hints=without_screening),
    ):
        sim = Simulation(problem, seed=0)
        sim.run(sampler, builds=8)
        searched = [record.route for record in sim.records if record.phase is Phase.SEARCH]
        assert searched
        assert all(len(route.split()) == 1 for route in searched)


def test_an_ordered_range_is_searched_between_its_listed_values() -> None:
    database = KnobDatabase(
        "test", (Knob.of("-n", "[0-1000]", "0"), Knob.of("-a", "[on|off]", "on"))
    )
    space = SearchSpace.whole(database)

    class Bowl(Problem):
        def alive(self, route: Route) -> tuple[tuple[str, str], ...]:
            return route.pairs

        def log_ratio(self, route: Route) -> float:
            number = int(route.values.get("-n", "0"))
            return 0.3 * ((number / 1000 - 0.62) ** 2 - 0.62**2)

    sim = Simulation(Bowl(space=space, noise_sd=0.003), seed=0)
    sim.run(SurrogateSearch(space, seed=0), builds=25)
    assert sim.best_true_ratio() <= -0.3 * 0.62**2 + 0.003


def test_climbing_ends_at_the_optimum_of_a_sum() -> None:
    problem = small(0)
    options = Options(Encoding(problem.space))
    rng = np.random.default_rng(0)
    columns = options.encoding.columns
    latency = Coefficients(0.0, rng.normal(size=columns), np.zeros((columns, columns)))
    top = climb(options, options.at_start, latency, None, 0.0)
    values = latency.value(options.encode(options.random(3000, rng)))
    assert latency.value(options.encode(top[None, :]))[0] <= values.min() + 1e-9


def test_climbing_heeds_the_limit_of_the_loss() -> None:
    problem = small(0)
    options = Options(Encoding(problem.space))
    columns = options.encoding.columns
    none = np.zeros((columns, columns))
    latency = Coefficients(0.0, np.full(columns, -0.1), none)
    loss = Coefficients(0.0, np.full(columns, 0.3), none)
    top = climb(options, options.at_start, latency, loss, 0.7)
    assert 0.5 <= loss.value(options.encode(top[None, :]))[0] <= 0.75


def test_a_used_up_space_ends_the_search() -> None:
    problem = random_problem(0, knobs=3, live=3)
    sim = Simulation(problem, seed=0)
    sampler = SurrogateSearch(problem.space, seed=0)
    sim.run(sampler, builds=50)
    assert len({r.route for r in sim.records}) == problem.space.size
    assert sampler.propose(sim.history()) is None
    assert sampler.propose(History(tuple(sim.records[:-1]))) is not None
