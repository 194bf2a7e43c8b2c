"""How an Optuna sampler is shown a history."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import optuna
import pytest
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from routewright.records import WORST_VIOLATION, Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import History, Proposal
from routewright.search.optuna_adapter import Form, OptunaRouteSampler
from routewright.search.simulation import Problem, Simulation, random_problem
from routewright.space import SearchSpace


class Spy(RandomSampler):
    """Random search that keeps what it was shown; it always proposes the first values."""

    shown: Sequence[FrozenTrial] = ()
    always_first = False

    def sample_independent(
        self, study: Any, trial: Any, param_name: str, param_distribution: Any
    ) -> Any:
        Spy.shown = [t for t in study.get_trials() if t.number != trial.number]
        if Spy.always_first:
            return param_distribution.choices[0]
        return super().sample_independent(study, trial, param_name, param_distribution)


@pytest.fixture
def space() -> SearchSpace:
    return random_problem(0, knobs=4, live=2).space


def spied(space: SearchSpace, form: Form) -> OptunaRouteSampler:
    return OptunaRouteSampler(
        space, seed=0, make_sampler=lambda seed: Spy(seed=seed), form=form, name="spy"
    )


def shown(space: SearchSpace, form: Form, history: History) -> list[FrozenTrial]:
    assert spied(space, form).propose(history) is not None
    return [t for t in Spy.shown if t.state is not TrialState.FAIL]


BASELINE = TrialRecord(
    0,
    "",
    Phase.BASELINE,
    Outcome.TIMED,
    relative_latency=1.0,
    ci95=(0.99, 1.01),
    violation=-0.9,
    fingerprint="f0",
)


def record(number: int, route: str, outcome: Outcome, **fields: Any) -> TrialRecord:
    return replace(
        BASELINE,
        **{
            "number": number,
            "route": route,
            "phase": Phase.SEARCH,
            "outcome": outcome,
            "fingerprint": f"f{number}",
            **fields,
        },
    )


HISTORY = History(
    (
        BASELINE,
        record(1, "-knob0=off", Outcome.TIMED, relative_latency=0.8, ci95=(0.79, 0.81)),
        record(2, "-knob1=off", Outcome.SLOW, relative_latency=1.5, ci95=(1.3, 1.7)),
        record(
            3, "-knob2=off", Outcome.INACCURATE, relative_latency=None, ci95=None, violation=2.5
        ),
        record(
            4,
            "-knob3=off",
            Outcome.FAILED,
            relative_latency=None,
            ci95=None,
            violation=None,
            failure="crash",
        ),
        record(
            5,
            "-knob0=off -knob1=off",
            Outcome.SCREENED,
            relative_latency=None,
            ci95=None,
            violation=None,
        ),
        record(
            6,
            "-knob0=off -knob2=off",
            Outcome.REUSED,
            relative_latency=None,
            ci95=None,
            violation=2.5,
        ),
    ),
    running=("-knob0=off -knob3=off",),
)


def test_tpe_is_shown_pruned_trials_with_their_violation(space: SearchSpace) -> None:
    trials = shown(space, Form.PRUNED, HISTORY)
    states = [trial.state.name for trial in trials]
    assert states == ["COMPLETE", "COMPLETE", "COMPLETE", *["PRUNED"] * 3, "RUNNING"]
    values = [t.value for t in trials if t.state is TrialState.COMPLETE]
    assert values == pytest.approx([0.0, -0.2231, 0.4055], abs=1e-3)
    amounts = [t.constraints["bound"] for t in trials if t.state.is_finished()]
    assert amounts == [-0.9, -0.9, -0.9, 2.5, WORST_VIOLATION, 2.5]
    assert trials[-1].params["knob0".join(["-", ""])] == "off"


def test_others_are_shown_complete_trials_with_a_constraint(space: SearchSpace) -> None:
    trials = shown(space, Form.COMPLETE, HISTORY)
    finished = [t for t in trials if t.state.is_finished()]
    assert all(t.state is TrialState.COMPLETE for t in finished)
    assert [t.value for t in finished[3:]] == [0.0, 0.0, 0.0]
    amounts = [t.constraints["bound"] for t in finished]
    assert amounts[3] == pytest.approx(1.2528, abs=1e-3)
    assert amounts[4] == pytest.approx(2.2528, abs=1e-3)


def test_random_search_is_shown_nothing(space: SearchSpace) -> None:
    assert shown(space, Form.NOTHING, HISTORY) == []


def test_repeated_measurements_of_a_route_are_pooled(space: SearchSpace) -> None:
    again = record(7, "-knob0=off", Outcome.TIMED, relative_latency=0.9, ci95=(0.89, 0.91))
    trials = shown(space, Form.PRUNED, History((*HISTORY.records[:2], again)))
    assert len(trials) == 2
    assert trials[1].value is not None
    assert -0.2231 < trials[1].value < -0.1054


def test_a_route_that_was_measured_again_is_shown_anew(space: SearchSpace) -> None:
    sampler = spied(space, Form.PRUNED)
    sampler.propose(History(HISTORY.records[:2]))
    again = record(7, "-knob0=off", Outcome.TIMED, relative_latency=0.9, ci95=(0.89, 0.91))
    sampler.propose(History((*HISTORY.records[:2], again)))
    complete = [t for t in Spy.shown if t.state is TrialState.COMPLETE]
    assert len(complete) == 2


def test_a_finished_route_is_no_longer_running(space: SearchSpace) -> None:
    sampler = spied(space, Form.PRUNED)
    sampler.propose(HISTORY)
    done = record(8, "-knob0=off -knob3=off", Outcome.TIMED)
    sampler.propose(History((*HISTORY.records, done)))
    assert not any(t.state is TrialState.RUNNING for t in Spy.shown)


def test_a_sampler_that_repeats_itself_is_led_elsewhere(
    space: SearchSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spy, "always_first", True)
    sim = Simulation(Problem(space=space), seed=0)
    sampler = spied(space, Form.PRUNED)
    while (proposal := sampler.propose(sim.history())) is not None:
        sim.carry_out(proposal)
    assert len({r.route for r in sim.records}) == len(sim.records) == space.size
    assert any("beside" in r.origin for r in sim.records)


def test_failing_routes_are_not_asked_for_again() -> None:
    problem = random_problem(1, knobs=5, live=3, failing=3)
    sim = Simulation(problem, seed=0)
    sampler = OptunaRouteSampler(
        problem.space,
        seed=0,
        make_sampler=lambda seed: TPESampler(seed=seed),
        form=Form.PRUNED,
        takes_categories=True,
    )
    sim.run(sampler, builds=40)
    routes = [r.route for r in sim.records]
    assert len(set(routes)) == len(routes) == problem.space.size


def test_nothing_is_logged_and_other_studies_still_are(
    space: SearchSpace, caplog: pytest.LogCaptureFixture
) -> None:
    optuna.logging.enable_propagation()
    try:
        with caplog.at_level(logging.INFO, logger="optuna"):
            spied(space, Form.PRUNED).propose(HISTORY)
            assert caplog.records == []
            optuna.create_study()
            assert caplog.records != []
    finally:
        optuna.logging.disable_propagation()


def test_any_sampler_of_optuna_runs(space: SearchSpace) -> None:
    sim = Simulation(random_problem(0, knobs=4, live=2), seed=0)
    makers = (
        lambda seed: optuna.samplers.QMCSampler(seed=seed, warn_independent_sampling=False),
        lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
        lambda seed: optuna.samplers.BruteForceSampler(seed=seed),
    )
    for make in makers:
        sampler = OptunaRouteSampler(sim.problem.space, seed=0, make_sampler=make)
        proposal = sampler.propose(sim.history())
        assert isinstance(proposal, Proposal)
        assert sim.problem.space.contains(proposal.route)


def test_the_default_route_is_left_out_where_the_space_does_not_hold_it(
    space: SearchSpace,
) -> None:
    narrow = SearchSpace(space.database, {"-knob0": ("off",), "-knob1": ("on", "off")}, Route())
    trials = shown(narrow, Form.PRUNED, HISTORY)
    finished = [t for t in trials if t.state.is_finished()]
    assert [t.params["-knob0"] for t in finished] == ["off"]
