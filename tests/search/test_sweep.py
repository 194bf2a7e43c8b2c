"""Sweeps against tables that were written by hand from trtexec's rules."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from routewright.knobs import Knob, KnobDatabase
from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route, RouteExpression
from routewright.search.base import History, RouteSampler
from routewright.search.sweep import (
    FastSweep,
    FullSweep,
    MixedSweep,
    TrtexecMixedSweep,
    fast_routes,
)
from routewright.space import SearchSpace

DATABASE = KnobDatabase(
    "test",
    (
        Knob.of("-a", "[on|off]", "on"),
        Knob.of("-b", "[0|1|2]", "1"),
        Knob.of("-c", "[x|y]", "y"),
        Knob.of("-d", "[on|off]", "off"),
    ),
)


def space_of(expression: str) -> SearchSpace:
    return SearchSpace.from_expression(RouteExpression.parse(expression, DATABASE), DATABASE)


def timed(number: int, route: str, ratio: float, *, width: float = 0.01) -> TrialRecord:
    return TrialRecord(
        number,
        route,
        Phase.BASELINE if number == 0 else Phase.SEARCH,
        Outcome.TIMED,
        latency_ms=10.0 * ratio,
        baseline_ms=10.0,
        relative_latency=ratio,
        ci95=(ratio - width, ratio + width),
        violation=-0.5,
    )


def walk(sampler: RouteSampler, ratios: dict[str, float], limit: int = 100) -> list[str]:
    """Return what the sampler proposes, each answered with a ratio by route (1 if not listed)."""
    records: list[TrialRecord] = []
    for number in range(limit):
        proposal = sampler.propose(History(tuple(records)))
        if proposal is None:
            break
        route = str(proposal.route)
        records.append(timed(number, route, ratios.get(route, 1.0)))
    return [record.route for record in records]


FAST_TABLE = {
    "-a=[on|off] -b=[0|1|2] -c=[x|y]": ["", "-c=x", "-b=0", "-b=2", "-a=off"],
    "-b=[2|1|0] -a=[off|on]": ["", "-a=off", "-b=2", "-b=0"],
    "-a=[on|off] -d=on -c=[x|y]": ["-d=on", "-c=x -d=on", "-a=off -d=on"],
    "-b=[0|2] -c=[x|y]": ["-b=0", "-b=0 -c=x", "-b=2"],
}

FULL_TABLE = {
    "-a=[on|off] -b=[0|1|2]": ["-b=0", "", "-b=2", "-a=off -b=0", "-a=off", "-a=off -b=2"],
    "-b=[2|0] -a=[off|on] -d=on": [
        "-a=off -b=2 -d=on",
        "-b=2 -d=on",
        "-a=off -b=0 -d=on",
        "-b=0 -d=on",
    ],
}


@pytest.mark.parametrize("expression", FAST_TABLE)
def test_fast_walks_as_the_table_says(expression: str) -> None:
    assert walk(FastSweep(space_of(expression), seed=0), {}) == FAST_TABLE[expression]


@pytest.mark.parametrize("expression", FULL_TABLE)
def test_full_walks_as_the_table_says(expression: str) -> None:
    assert walk(FullSweep(space_of(expression), seed=0), {}) == FULL_TABLE[expression]


def test_fast_counts_one_and_every_other_listed_value() -> None:
    space = SearchSpace.whole(DATABASE)
    assert len(list(fast_routes(space))) == 1 + 1 + 2 + 1 + 1


def test_full_over_two_to_the_two_hundred_starts_at_once() -> None:
    database = KnobDatabase("wide", tuple(Knob.of(f"-k{i}", "[on|off]", "on") for i in range(200)))
    space = SearchSpace.whole(database)
    assert space.size == 2**200
    routes = walk(FullSweep(space, seed=0), {}, limit=10)
    assert routes[:3] == ["", "-k199=off", "-k198=off"]
    assert routes[9] == "-k196=off -k199=off"


MIXED_SPACE = "-a=[on|off] -b=[0|1|2] -c=[x|y]"
PHASE_1 = FAST_TABLE[MIXED_SPACE]


def test_trtexec_mixed_goes_over_all_values_of_the_faster_knobs_and_repeats() -> None:
    # -b=2 is a hair faster than the baseline and counts; -c does not.
    ratios = {"-a=off": 0.9, "-b=2": 0.999, "-c=x": 1.1}
    assert walk(TrtexecMixedSweep(space_of(MIXED_SPACE), seed=0), ratios) == [
        *PHASE_1,
        *["-b=0", "", "-b=2", "-a=off -b=0", "-a=off", "-a=off -b=2"],
    ]


def test_trtexec_mixed_ends_after_one_faster_knob() -> None:
    ratios = {"-a=off": 0.9}
    assert walk(TrtexecMixedSweep(space_of(MIXED_SPACE), seed=0), ratios) == PHASE_1


def test_trtexec_mixed_compares_with_the_baseline_as_it_was_timed_once() -> None:
    records = [timed(0, "", 1.0)]
    records += [timed(i + 1, route, 1.05) for i, route in enumerate(PHASE_1[1:])]
    # The machine got slower: side by side the candidates are equal, by clock they are not.
    drifted = [records[0], *(replace(r, latency_ms=9.9) for r in records[1:])]
    sampler = TrtexecMixedSweep(space_of(MIXED_SPACE), seed=0)
    assert sampler.propose(History(tuple(records))) is None
    assert sampler.propose(History(tuple(drifted))) is not None


def test_mixed_needs_significance_and_repeats_nothing() -> None:
    ratios = {"-a=off": 0.9, "-b=2": 0.999, "-c=x": 0.8}
    assert walk(MixedSweep(space_of(MIXED_SPACE), seed=0), ratios) == [
        *PHASE_1,
        "-a=off -c=x",
    ]


def test_mixed_needs_eligibility() -> None:
    records = [timed(i, route, 0.8 if route else 1.0) for i, route in enumerate(PHASE_1)]
    inaccurate = [
        replace(r, violation=0.5, outcome=Outcome.INACCURATE) if "-a" in r.route else r
        for r in records
    ]
    sampler = MixedSweep(space_of(MIXED_SPACE), seed=0)
    proposal = sampler.propose(History(tuple(inaccurate)))
    assert proposal is not None
    assert "-a" not in str(proposal.route)


def test_mixed_holds_the_other_knobs_where_the_sweep_starts() -> None:
    # -b's default is not listed, so the sweep starts from -b=0.
    space = space_of("-b=[0|2] -a=[on|off] -c=[x|y]")
    ratios = {"-a=off -b=0": 0.9, "-b=0 -c=x": 0.9}
    assert walk(MixedSweep(space, seed=0), ratios) == [
        *["-b=0", "-b=0 -c=x", "-a=off -b=0", "-b=2"],
        "-a=off -b=0 -c=x",
    ]


def test_nested_knobs_are_swept_without_equal_routes() -> None:
    database = KnobDatabase(
        "nested",
        (
            Knob.of("-t", "[on|off]", "on"),
            Knob.of("-t:size", "[1|2]", "1"),
            Knob.of("-u", "[on|off]", "off"),
            Knob.of("-u:size", "[1|2]", "1"),
        ),
    )
    space = SearchSpace.whole(database)
    assert walk(FastSweep(space, seed=0), {}) == ["", "-u=on", "-t:size=2", "-t=off"]
    full = walk(FullSweep(space, seed=0), {})
    assert len(full) == len(set(full)) == space.size == 9


@pytest.mark.parametrize("kind", [FastSweep, FullSweep, MixedSweep, TrtexecMixedSweep])
def test_a_sweep_resumes_where_it_stopped(kind: type[RouteSampler]) -> None:
    space = space_of(MIXED_SPACE)
    ratios = {"-a=off": 0.9, "-b=2": 0.9, "-c=x": 0.8}
    whole = walk(kind(space, seed=0), ratios)
    for done in range(len(whole)):
        records = [timed(i, route, ratios.get(route, 1.0)) for i, route in enumerate(whole[:done])]
        proposal = kind(space, seed=0).propose(History(tuple(records)))
        assert proposal is not None
        assert str(proposal.route) == whole[done]


@pytest.mark.parametrize("kind", [FastSweep, FullSweep])
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_share_a_sweep(kind: type[RouteSampler], workers: int) -> None:
    space = space_of(MIXED_SPACE)
    samplers = [kind(space, seed=0) for _ in range(workers)]
    running: list[str] = []
    records: list[TrialRecord] = []
    for turn in itertools.count():
        sampler = samplers[turn % workers]
        proposal = sampler.propose(History(tuple(records), running=tuple(running)))
        if proposal is None:
            break
        running.append(str(proposal.route))
        if len(running) == workers:
            records.append(timed(len(records), running.pop(0), 1.0))
    tried = [*(r.route for r in records), *running]
    assert sorted(tried) == sorted(walk(kind(space, seed=0), {}))


def test_a_route_whose_worker_died_is_tried_again() -> None:
    sampler = FullSweep(space_of("-a=[on|off] -c=[x|y]"), seed=0)
    first = sampler.propose(History(()))
    assert first is not None
    second = sampler.propose(History((), running=(str(first.route),)))
    assert second is not None
    assert second.route != first.route
    done = timed(0, str(second.route), 1.0)
    again = sampler.propose(History((done,)))
    assert again is not None
    assert again.route == first.route


def test_a_build_for_its_fingerprint_only_does_not_count_as_tried() -> None:
    record = replace(timed(0, "-c=x", 1.0), outcome=Outcome.SCREENED, relative_latency=None)
    sampler = FastSweep(space_of(MIXED_SPACE), seed=0)
    proposal = sampler.propose(History((timed(0, "", 1.0), record)))
    assert proposal is not None
    assert proposal.route == Route.parse("-c=x", DATABASE)
