"""Screening against made-up compilers whose live knobs are known."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from routewright.knobs import Knob, KnobDatabase
from routewright.records import Outcome, Phase
from routewright.routes import Route
from routewright.search.base import History, Proposal
from routewright.search.candidates import Change
from routewright.search.hints import SearchHints
from routewright.search.screening import Screening, rescreen, screen
from routewright.search.simulation import Problem, Simulation, random_problem
from routewright.space import SearchSpace

NO_HINTS = SearchHints()


def space_of(*notations: tuple[str, str, str]) -> SearchSpace:
    return SearchSpace.whole(
        KnobDatabase("test", tuple(Knob.of(name, text, to) for name, text, to in notations))
    )


def switches(count: int) -> SearchSpace:
    return space_of(*[(f"-k{i}", "[on|off]", "on") for i in range(count)])


def finish(sim: Simulation, hints: SearchHints = NO_HINTS, limit: int = 600) -> Screening:
    for _ in range(limit):
        state = screen(sim.problem.space, sim.history(), hints)
        if state.next is None:
            return state
        assert sim.problem.space.contains(state.next.route)
        sim.carry_out(state.next)
    raise AssertionError("screening does not end")


def off(*names: str) -> frozenset[Change]:
    return frozenset((name, "off") for name in names)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_all_singly_live_knobs_are_found_and_no_other(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 40))
    space = switches(count)
    names = list(space.variable)
    live = sorted(data.draw(st.sets(st.sampled_from(names), max_size=count)))
    # A live knob may hide any other knob, as long as the other one is off too.
    hidden = {
        name: (data.draw(st.sampled_from(live)), "off")
        for name in (data.draw(st.lists(st.sampled_from(names), max_size=5)) if live else [])
    }
    # Two that hide each other would give the start's engine together.
    hiding = {change[0] for change in hidden.values()}
    hidden = {name: change for name, change in hidden.items() if name not in hiding}
    problem = Problem(space=space, live=off(*live), hidden_by=hidden)
    state = finish(Simulation(problem, seed=0))
    assert sorted(state.live) == live
    assert sorted((*state.live, *state.inert)) == sorted(names)
    assert state.unknown == ()
    assert state.builds_used <= 1.1 * count + 3


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 8), st.integers(2, 5))
def test_a_knob_is_live_if_any_of_its_values_is(seed: int, live: int, values: int) -> None:
    problem = random_problem(seed, knobs=20, live=live, values=values, failing=0)
    rng = np.random.default_rng(seed)
    some = frozenset(change for change in sorted(problem.live) if rng.random() < 0.5)
    problem = dataclasses.replace(problem, live=some)
    sim = Simulation(problem, seed=0)
    state = finish(sim)
    assert set(state.live) == {name for name, _ in some}
    assert state.unknown == ()
    assert state.builds_used <= state.one_at_a_time + 3
    assert state.builds_used == sim.builds - 1


@pytest.mark.parametrize(("live", "half_of"), [(0, 6), (2, 20), (6, 32)])
def test_few_live_knobs_take_few_builds(live: int, half_of: int) -> None:
    used = []
    for seed in range(5):
        space = switches(59)
        chosen = np.random.default_rng(seed).choice(59, live, replace=False)
        problem = Problem(space=space, live=off(*(f"-k{i}" for i in chosen)))
        used.append(finish(Simulation(problem, seed=0)).builds_used)
    assert np.median(used) <= half_of


def test_hints_of_liveness_save_builds() -> None:
    space = switches(59)
    problem = Problem(space=space, live=off("-k3", "-k17", "-k40", "-k41", "-k58"))
    likely = {name: 0.9 for name, _ in problem.live}
    hints = SearchHints(
        live_probability={name: likely.get(name, 0.005) for name in space.variable}
    )
    state = finish(Simulation(problem, seed=0), hints)
    assert set(state.live) == {name for name, _ in problem.live}
    assert state.builds_used <= 5 + 3


def test_wrong_hints_cost_builds_but_no_knob() -> None:
    space = switches(30)
    problem = Problem(space=space, live=off("-k3", "-k17"))
    wrong = {name: 0.001 if name in ("-k3", "-k17") else 0.9 for name in space.variable}
    state = finish(Simulation(problem, seed=0), SearchHints(live_probability=wrong))
    assert set(state.live) == {"-k3", "-k17"}
    assert state.builds_used <= 30 + 3


def test_surely_live_knobs_are_not_built() -> None:
    problem = Problem(space=switches(8), live=off("-k1", "-k2"))
    sim = Simulation(problem, seed=0)
    state = finish(sim, SearchHints(surely_live=frozenset({"-k1"})))
    assert state.live == ("-k1", "-k2")
    assert all("-k1=" not in record.route for record in sim.records)


def test_a_hint_that_a_result_contradicts_is_dropped() -> None:
    problem = Problem(space=switches(8), live=off("-k1", "-k2"))
    sim = Simulation(problem, seed=0)
    hints = SearchHints(surely_live=frozenset({"-k1", "-k3"}))
    sim.carry_out(Proposal(Route.parse("-k2=off", problem.space.database)))
    assert "-k3" in screen(problem.space, sim.history(), hints).live
    sim.carry_out(Proposal(Route.parse("-k2=off -k3=off", problem.space.database)))
    assert "-k3" not in screen(problem.space, sim.history(), hints).live
    state = finish(sim, hints)
    assert state.live == ("-k1", "-k2")
    assert "-k3" in state.inert


def test_the_second_half_of_a_live_group_is_not_built_if_the_first_is_inert() -> None:
    problem = Problem(space=switches(2), live=off("-k1"))
    sim = Simulation(problem, seed=0)
    sim.carry_out(screening_of("-k0=off -k1=off", problem.space))
    sim.carry_out(screening_of("-k0=off", problem.space))
    state = screen(problem.space, sim.history())
    assert state.next is None
    assert state.live == ("-k1",)
    assert state.inert == ("-k0",)


def screening_of(route: str, space: SearchSpace) -> Proposal:
    return Proposal(Route.parse(route, space.database), phase=Phase.SCREENING, time_it=False)


NESTED = (
    ("-t", "[on|off]", "off"),
    ("-t:a", "[on|off]", "on"),
    ("-t:b", "[1|2|3]", "1"),
    ("-t:b:c", "[on|off]", "on"),
    ("-u", "[on|off]", "on"),
    ("-u:a", "[on|off]", "on"),
    ("-v", "[on|off]", "on"),
)


@pytest.mark.parametrize(
    "live",
    [
        {("-t:b", "3")},
        {("-t", "on"), ("-t:b", "2")},
        {("-t", "on"), ("-t:b:c", "off"), ("-u:a", "off")},
        {("-u", "off"), ("-u:a", "off")},
        set(),
    ],
)
def test_nested_knobs_are_screened_with_what_is_above_them_on(live: set[Change]) -> None:
    problem = Problem(space=space_of(*NESTED), live=frozenset(live))
    sim = Simulation(problem, seed=0)
    state = finish(sim)
    assert set(state.live) == {name for name, _ in live}
    assert state.unknown == ()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_changes_that_do_not_build_are_found_and_the_rest_is_screened(
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(2, 24))
    space = switches(count)
    names = list(space.variable)
    bad = sorted(data.draw(st.sets(st.sampled_from(names), max_size=2)))
    good = [name for name in names if name not in bad]
    live = sorted(data.draw(st.sets(st.sampled_from(good), max_size=4))) if good else []
    problem = Problem(space=space, live=off(*live), failing=tuple(off(name) for name in bad))
    state = finish(Simulation(problem, seed=0))
    assert sorted(state.live) == live
    assert sorted(state.unknown) == bad
    assert sorted(name for name, _ in state.unbuildable) == bad


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_changes_that_do_not_build_together_hide_no_live_knob(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space = switches(16)
    names = [f"-k{i}" for i in rng.permutation(16)]
    problem = Problem(
        space=space,
        live=off(*names[:3]),
        failing=(off(names[0], names[5]), off(names[6], names[7]), off(*names[8:11])),
    )
    state = finish(Simulation(problem, seed=0))
    assert sorted(state.live) == sorted(names[:3])
    assert state.unknown == ()


def test_what_the_search_builds_counts_as_well() -> None:
    problem = Problem(space=switches(12), live=off("-k5"))
    sim = Simulation(problem, seed=0)
    route = " ".join(f"-k{i}=off" for i in range(12) if i != 5)
    sim.carry_out(dataclasses.replace(screening_of(route, problem.space), phase=Phase.SEARCH))
    state = screen(problem.space, sim.history())
    assert len(state.inert) == 11
    assert state.builds_used == 0
    assert finish(sim).live == ("-k5",)
    assert sim.builds == 3


def test_without_fingerprints_nothing_is_screened() -> None:
    space = switches(5)
    sim = Simulation(Problem(space=space), seed=0)
    assert screen(space, sim.history(), SearchHints(fingerprints=False)).next is None
    blind = [dataclasses.replace(r, fingerprint=None) for r in sim.records]
    state = screen(space, History(tuple(blind)))
    assert state.next is None
    assert state.unknown == tuple(space.variable)


def test_several_workers_screen_together() -> None:
    problem = Problem(space=switches(40), live=off("-k3", "-k30"))
    sim = Simulation(problem, seed=0)
    running = []
    for _ in range(200):
        history = dataclasses.replace(
            sim.history(), running=tuple(str(each.route) for each in running)
        )
        state = screen(problem.space, history)
        if state.next is not None:
            assert str(state.next.route) not in history.running
            running.append(state.next)
        elif not running:
            break
        if len(running) == 3 or state.next is None:
            sim.carry_out(running.pop(0))
    assert state.live == ("-k3", "-k30")
    assert state.unknown == ()
    assert sim.builds <= 40


def test_a_hidden_knob_is_found_near_the_incumbent() -> None:
    space = switches(30)
    # -k9 does something only while -k2 is off.
    base = Problem(space=space, live=off("-k2"))
    sim = Simulation(base, seed=0)
    state = finish(sim)
    assert state.live == ("-k2",)

    class Revealing(Problem):
        def alive(self, route: Route) -> tuple[Change, ...]:
            made = dict(route.pairs)
            return tuple(
                change
                for change in route.pairs
                if change[0] == "-k2" or (change[0] == "-k9" and made.get("-k2") == "off")
            )

    revealing = Simulation(Revealing(space=space, live=off("-k2")), seed=0)
    finish(revealing)
    incumbent = Route.parse("-k2=off", space.database)
    if not any(r.route == "-k2=off" for r in revealing.records):
        revealing.carry_out(screening_of("-k2=off", space))
    before = revealing.builds
    for _ in range(40):
        near = rescreen(
            space, revealing.history(), incumbent, screen(space, revealing.history()).inert
        )
        if near.next is None:
            break
        revealing.carry_out(near.next)
    assert near.live == ("-k9",)
    assert len(near.inert) == 28
    assert revealing.builds - before <= 8


def test_screening_near_the_incumbent_takes_a_build_or_two_if_nothing_is_hidden() -> None:
    space = switches(59)
    sim = Simulation(Problem(space=space, live=off("-k2")), seed=0)
    inert = finish(sim).inert
    incumbent = Route.parse("-k2=off", space.database)
    sim.carry_out(dataclasses.replace(screening_of("-k2=off", space), phase=Phase.SEARCH))
    before = sim.builds
    while (state := rescreen(space, sim.history(), incumbent, inert)).next is not None:
        sim.carry_out(state.next)
    assert state.live == ()
    assert state.unknown == ()
    assert sim.builds - before <= 2


def test_a_live_group_is_timed_and_an_inert_one_is_not() -> None:
    sim = Simulation(Problem(space=switches(9), live=off("-k4")), seed=0)
    finish(sim)
    for record in sim.records[1:]:
        is_live = "-k4=off" in record.route
        assert record.outcome in ((Outcome.TIMED, Outcome.SLOW) if is_live else (Outcome.REUSED,))
        assert (record.time_s is not None) == is_live


def test_screening_works_without_timing() -> None:
    problem = Problem(space=switches(20), live=off("-k4", "-k11"))
    sim = Simulation(problem, seed=0)
    while (proposal := screen(problem.space, sim.history()).next) is not None:
        sim.carry_out(dataclasses.replace(proposal, time_it=False))
    assert screen(problem.space, sim.history()).live == ("-k4", "-k11")
    assert {r.outcome for r in sim.records[1:]} == {Outcome.SCREENED, Outcome.REUSED}
