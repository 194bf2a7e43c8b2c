from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, IntDistribution

from routewright.choices import IntegerRange
from routewright.errors import RouteError
from routewright.knobs import Knob, KnobDatabase, is_off
from routewright.routes import Route, RouteExpression
from routewright.space import SearchSpace

# Other work on the machine must not fail a test.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def database_of(*knobs: tuple[str, str, str]) -> KnobDatabase:
    return KnobDatabase("1.0", tuple(Knob.of(*knob) for knob in knobs))


FLAT = database_of(
    ("-a", "[on|off]", "on"),
    ("-b", "[0|1|2]", "1"),
    ("-c", "int32_t", "8"),
    ("-d", "[x|y]", "y"),
    ("-e", "op_list", ""),
)
NESTED = database_of(
    ("-p:c", "[0|1|2]", "1"),
    ("-p", "[off|on|must]", "off"),
    ("-p:c:g", "[0-2]", "0"),
    ("-q", "[0|1]", "1"),
    ("-p:x:y", "[on|off]", "on"),
)


def space_of(expression: str, database: KnobDatabase) -> SearchSpace:
    return SearchSpace.from_expression(RouteExpression.parse(expression, database), database)


def listed(routes: Any) -> list[str]:
    return [str(route) for route in routes]


def test_the_whole_space_has_every_searchable_knob() -> None:
    space = SearchSpace.whole(FLAT)
    assert dict(space.variable) == {
        "-a": ("on", "off"),
        "-b": ("0", "1", "2"),
        "-d": ("x", "y"),
    }
    assert space.size == 12
    assert space.pinned == Route()
    assert space.notes == ()
    assert space.database is FLAT


def test_an_expression_is_enumerated_as_trtexec_does() -> None:
    space = space_of("-d=[y|x] -c=[1|8] -a=off", FLAT)
    assert listed(space.enumerate()) == [
        "-a=off -c=1",
        "-a=off",
        "-a=off -c=1 -d=x",
        "-a=off -d=x",
    ]
    assert listed(space.one_knob_changes()) == ["-a=off -d=x", "-a=off -c=1"]
    assert listed(space.one_knob_changes(reverse_knobs=True)) == ["-a=off -c=1", "-a=off -d=x"]


def test_a_list_need_not_hold_the_default() -> None:
    space = space_of("-b=[0|2]", FLAT)
    assert listed(space.enumerate()) == ["-b=0", "-b=2"]
    assert listed(space.one_knob_changes()) == ["-b=0", "-b=2"]
    assert space.route({}) == Route()
    assert not space.contains(Route())
    assert listed(space.neighbours(Route())) == ["-b=0", "-b=2"]
    with pytest.raises(RouteError, match="-b has a value that is not searched"):
        space.params(Route())


def test_distributions_hold_text_in_the_databases_order() -> None:
    space = space_of("-b=[2|0] -c=[16|2|8] -a=[off|on]", FLAT)
    assert space.distributions() == {
        "-b": CategoricalDistribution(("0", "2")),
        "-c": CategoricalDistribution(("2", "8", "16")),
        "-a": CategoricalDistribution(("on", "off")),
    }
    assert list(space.distributions()) == ["-b", "-c", "-a"]
    assert space.distribution("a") == space.distribution("-a")
    with pytest.raises(RouteError, match="-d is not varied"):
        space.distribution("-d")
    with pytest.raises(RouteError, match="no knob 'z'"):
        space.distribution("z")


def test_only_wide_ranges_are_integers_to_optuna() -> None:
    database = database_of(
        ("-narrow", "[0~63]", "0"), ("-wide", "[0~64]", "3"), ("-away", "[1~100]", "auto")
    )
    space = SearchSpace.whole(database)
    assert isinstance(space.distribution("-narrow"), CategoricalDistribution)
    assert space.distribution("-wide") == IntDistribution(0, 64)
    assert space.variable["-wide"] == IntegerRange(0, 64)
    assert space.size == 64 * 65 * 100
    route = space.route({"-wide": 5, "-away": "7"})
    assert str(route) == "-wide=5 -away=7"
    assert space.params(route) == {"-narrow": "0", "-wide": 5, "-away": 7}
    assert space.route(space.params(route)) == route
    assert not space.contains(Route())
    changes = listed(space.one_knob_changes())
    assert len(changes) == 63 + 9 + 9
    assert "-wide=64" in changes
    near = listed(space.neighbours(route))
    assert "-wide=4 -away=7" in near
    assert "-wide=5 -away=8" in near
    assert space.route_at(space.size - 1) == Route.parse("-narrow=63 -wide=64 -away=100", database)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"-c": "8"}, "'-c' is not varied"),
        ({"-zz": "8"}, "'-zz' is not varied"),
        ({"-a": "maybe"}, "'maybe' is not one of the values of -a"),
        ({"-b": 1}, "1 is not one of the values of -b"),
        ({"-b": True}, "True is not one"),
        ({"-b": 1.0}, "1.0 is not one"),
        ({"-b": None}, "None is not one"),
        ({"-w": 501}, "'501' is not one"),
        ({"-w": True}, "True is not one"),
        ({"-w": 3.0}, "3.0 is not one"),
        ({"-w": "03"}, "'03' is not one"),
    ],
)
def test_foreign_parameters_are_refused(params: Any, said: str) -> None:
    wide = Knob.of("-w", "[0~500]", "0")
    database = KnobDatabase("1", (*FLAT.knobs, wide))
    with pytest.raises(RouteError, match=said):
        SearchSpace.whole(database).route(params)


@pytest.mark.parametrize(
    ("variable", "pinned", "said"),
    [
        ({"-zz": ("1",)}, "", "no knob '-zz'"),
        ({"-a": ("on",), "a": ("on",)}, "", "-a is varied twice"),
        ({"-a": ("on", "off")}, "-a=off", "both pinned and varied"),
        ({"-a": ()}, "", "no values"),
        ({"-a": ("on", "on")}, "", "listed twice"),
        ({"-a": ("maybe",)}, "", "not allowed"),
        ({"-e": ("x",)}, "", "cannot be varied"),
    ],
)
def test_a_space_is_checked(variable: Any, pinned: str, said: str) -> None:
    with pytest.raises(RouteError, match=said):
        SearchSpace(FLAT, variable, Route.parse(pinned, FLAT))


def test_pinned_routes_are_checked_against_the_database() -> None:
    with pytest.raises(RouteError, match="no knob '-zz'"):
        SearchSpace(FLAT, {}, Route((("-zz", "1"),)))


def test_children_of_an_off_knob_do_not_split_the_space() -> None:
    space = SearchSpace.whole(NESTED)
    assert list(space.variable) == ["-p", "-p:c", "-p:c:g", "-q", "-p:x:y"]
    # Off: -q only. On or must: -q, -p:x:y, and -p:c off or else -p:c:g.
    assert space.size == 1 * 2 + 2 * (1 + 2 * 3) * 2 * 2
    assert listed(space.enumerate())[:4] == [
        "-q=0",
        "",
        "-p:c=0 -p=on -q=0",
        "-p:c=0 -p=on -q=0 -p:x:y=off",
    ]
    assert len(set(space.enumerate())) == space.size
    forced = space.route({"-p": "off", "-p:c": "2", "-p:c:g": "2", "-p:x:y": "off"})
    assert forced == Route()
    inert = Route.parse("-p:c=2", NESTED)
    assert not space.contains(inert)
    with pytest.raises(RouteError, match="-p:c is set while -p is off"):
        space.params(inert)
    assert listed(space.one_knob_changes()) == ["-p=on", "-p=must", "-q=0"]


def test_activity_follows_the_knobs_above() -> None:
    space = SearchSpace.whole(NESTED)
    on = Route.parse("-p=on", NESTED)
    assert not space.is_active("-p:c", Route())
    assert space.is_active("p:c", on)
    assert space.is_active("-p", Route())
    assert space.is_active("-p:c:g", on)
    assert not space.is_active("-p:c:g", Route.parse("-p=on -p:c=0", NESTED))
    assert not space.is_active("-p:c:g", Route.parse("-p:c=2", NESTED))
    with pytest.raises(RouteError, match="no knob"):
        space.is_active("-zz", Route())


def test_children_of_a_knob_that_stays_off_are_not_searched() -> None:
    space = space_of("-p=off -p:c=[0|1|2] -p:c:g=[0|1] -p:x:y=off -q=[0|1]", NESTED)
    assert list(space.variable) == ["-q"]
    assert space.notes == (
        "-p:c is not searched: -p is off in every route",
        "-p:c:g is not searched: -p:c is inactive in every route",
        "-p:x:y has no effect: -p is off in every route",
    )
    assert listed(space.enumerate()) == ["-q=0 -p:x:y=off", "-p:x:y=off"]
    # The same where the default, or every listed value, is an off value.
    assert space_of("-p:c=[0|1|2] -q=[0|1]", NESTED).notes == (
        "-p:c is not searched: -p is off in every route",
    )
    only_off = space_of("-p=[off] -p:c=[0|1]", NESTED)
    assert (list(only_off.variable), only_off.size) == (["-p"], 1)
    assert len(only_off.notes) == 1


def test_a_pinned_child_keeps_its_value() -> None:
    space = space_of("-p=[off|on] -p:c=2 -p:c:g=[0|1]", NESTED)
    assert listed(space.enumerate()) == ["-p:c=2", "-p:c=2 -p=on", "-p:c=2 -p=on -p:c:g=1"]
    assert space.notes == ()


def test_a_child_without_its_default_in_the_list() -> None:
    space = space_of("-p=[off|on] -p:c=[0|2]", NESTED)
    assert listed(space.enumerate()) == ["", "-p:c=0 -p=on", "-p:c=2 -p=on"]
    assert space.params(Route()) == {"-p": "off", "-p:c": "0"}
    assert listed(space.neighbours(Route())) == ["-p:c=0 -p=on"]


def test_switching_on_a_knob_whose_listed_value_switches_on_another() -> None:
    database = database_of(
        ("-p", "[off|on]", "off"), ("-p:c", "[0|1]", "0"), ("-p:c:g", "[x|y|z]", "x")
    )
    space = space_of("-p=[off|on] -p:c=[1] -p:c:g=[y|z]", database)
    assert listed(space.neighbours(Route())) == ["-p=on -p:c=1 -p:c:g=y"]


def test_restriction_puts_the_others_to_their_default() -> None:
    space = space_of("-p=[on|off] -p:c=[0|1|2] -q=[0|1] -p:x:y=off", NESTED)
    assert list(space.restricted_to(["q"]).variable) == ["-q"]
    narrow = space.restricted_to(["-p:c", "-p"])
    assert list(narrow.variable) == ["-p", "-p:c"]
    assert narrow.pinned == space.pinned
    without_parent = space.restricted_to(["-p:c"])
    assert without_parent.size == 1
    assert "-p:c is not searched: -p is off in every route" in without_parent.notes
    assert listed(space.restricted_to([]).enumerate()) == ["-p:x:y=off"]
    with pytest.raises(RouteError, match="-p:x:y is not varied"):
        space.restricted_to(["-p:x:y"])


def test_index_bounds() -> None:
    space = SearchSpace.whole(FLAT)
    for index in (-1, 12, 2**200):
        with pytest.raises(IndexError):
            space.route_at(index)
    with pytest.raises(TypeError):
        space.route_at("1")  # type: ignore[arg-type]


def test_random_routes_are_uniform_over_values_and_repeat_with_the_seed() -> None:
    space = SearchSpace.whole(NESTED)
    routes = [space.random_route(np.random.default_rng(seed)) for seed in range(900)]
    assert routes[:50] == [space.random_route(np.random.default_rng(seed)) for seed in range(50)]
    assert all(map(space.contains, routes))
    counts = [sum(route.values.get("-p", "off") == v for route in routes) for v in ("off", "on")]
    assert all(240 < count < 360 for count in counts)


def wide_database(count: int) -> KnobDatabase:
    """Return ``count`` binary knobs in families of one parent and four children."""
    names = [
        f"-family{index // 5}" + (f":child{index % 5}" if index % 5 else "")
        for index in range(count)
    ]
    return database_of(*((name, "[on|off]", "on") for name in names))


def test_a_space_of_250_knobs_is_exact_and_lazy() -> None:
    database = wide_database(250)
    space = SearchSpace.whole(database)
    assert space.size == (1 + 2**4) ** 50
    last = space.route_at(space.size - 1)
    assert len(last.changed) == 50
    assert len(list(itertools.islice(space.enumerate(), 20))) == 20
    flat = SearchSpace.whole(database_of(*((f"-k{i}", "[a|b]", "a") for i in range(200))))
    assert flat.size == 2**200
    index = 0x5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A5A
    assert flat.route_at(index).changed == tuple(
        f"-k{i}" for i in range(200) if index >> (199 - i) & 1
    )


def test_work_grows_with_the_knobs_and_no_faster() -> None:
    # Processor time of this process, and far from the real cost, so that a loaded machine passes.
    database = wide_database(250)
    rng = np.random.default_rng(0)
    start = time.process_time()
    for _ in range(20):
        space = SearchSpace.whole(database)
        space.distributions()
        route = space.random_route(rng)
        space.route(space.params(route))
        space.route_at(space.size // 3)
    assert time.process_time() - start < 4


def test_optuna_asks_within_the_space() -> None:
    space = SearchSpace.whole(NESTED)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(20):
        trial = study.ask(space.distributions())
        route = space.route(trial.params)
        assert space.contains(route)
        study.enqueue_trial(space.params(route))
        again = study.ask(space.distributions())
        assert space.route(again.params) == route


NAMES = ("-a", "-a:b", "-a:b:c", "-a:d", "-e:f", "-e:f:g", "-h")
VALUES = ("off", "0", "1", "2", "on", "none")


@st.composite
def spaces(draw: st.DrawFn) -> SearchSpace:
    """Draw a small space: any subset of a tree of knobs, in any order, some varied."""
    names = draw(st.permutations(draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))))
    knobs = []
    for name in names:
        values = draw(st.lists(st.sampled_from(VALUES), unique=True, min_size=1, max_size=3))
        default = draw(st.sampled_from([*values, "other"]))
        knobs.append(Knob.of(name, f"[{'|'.join([*values, 'pad'])}]", default))
    database = KnobDatabase("1", tuple(knobs))
    variable = {}
    pinned = {}
    for name in draw(st.permutations(names)):
        knob = database[name]
        role = draw(st.sampled_from(["vary", "vary", "vary", "pin", "leave"]))
        if role == "vary":
            variable[name] = tuple(
                draw(st.lists(st.sampled_from(knob.values), unique=True, min_size=1, max_size=3))
            )
        elif role == "pin":
            pinned[name] = draw(st.sampled_from(knob.values))
    return SearchSpace(database, variable, Route.of(pinned, database))


def brute_force(space: SearchSpace) -> set[Route]:
    """Set every varied knob to every value, put inactive knobs to their default, collect."""
    database = space.database
    found = set()
    for chosen in itertools.product(*space.variable.values()):
        values = {knob.name: knob.default for knob in database}
        values |= dict(space.pinned.values)
        values |= dict(zip(space.variable, chosen, strict=True))
        for name in sorted(space.variable, key=len):
            above = database.parent(name)
            while above is not None:
                if is_off(values[above.name]):
                    values[name] = database[name].default
                above = database.parent(above.name)
        found.add(Route.of(values, database))
    return found


@given(spaces())
@settings(UNTIMED, max_examples=300)
def test_size_is_the_number_of_distinct_routes(space: SearchSpace) -> None:
    routes = list(space.enumerate())
    assert len(routes) == space.size
    assert len(set(routes)) == space.size
    assert set(routes) == brute_force(space)
    assert [space.route_at(index) for index in range(space.size)] == routes


@given(spaces())
@settings(UNTIMED, max_examples=150)
def test_parameters_lose_nothing(space: SearchSpace) -> None:
    distributions = space.distributions()
    for route in itertools.islice(space.enumerate(), 40):
        params = space.params(route)
        assert list(params) == list(space.variable)
        assert space.route(params) == route
        assert space.contains(route)
        assert Route.parse(str(route), space.database) == route
        for name, value in params.items():
            distribution = distributions[name]
            assert distribution.to_external_repr(distribution.to_internal_repr(value)) == value


@given(spaces(), st.integers(0, 2**32 - 1))
@settings(UNTIMED, max_examples=150)
def test_random_routes_and_neighbours_stay_inside(space: SearchSpace, seed: int) -> None:
    route = space.random_route(np.random.default_rng(seed))
    assert space.contains(route)
    near = list(space.neighbours(route))
    assert len(set(near)) == len(near)
    assert route not in near
    assert all(map(space.contains, near))
    active = [name for name in space.variable if space.is_active(name, route)]
    assert len(near) == sum(len(space.variable[name]) - 1 for name in active)


@given(spaces())
@settings(UNTIMED, max_examples=150)
def test_one_knob_changes_change_one_knob(space: SearchSpace) -> None:
    baseline = space.route({})
    forward = list(space.one_knob_changes())
    assert sorted(map(str, forward)) == sorted(
        map(str, space.one_knob_changes(reverse_knobs=True))
    )
    assert len(set(forward)) == len(forward)
    for route in forward:
        changed = dict(route.pairs).items() ^ dict(baseline.pairs).items()
        assert len({name for name, _ in changed}) == 1


@given(spaces(), st.data())
@settings(UNTIMED, max_examples=100)
def test_restriction_keeps_a_subset(space: SearchSpace, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(space.variable) or ["-"]), unique=True))
    if not space.variable:
        names = []
    narrow = space.restricted_to(names)
    assert set(narrow.variable) <= set(names)
    assert list(narrow.variable) == [name for name in space.variable if name in narrow.variable]
    assert narrow.route({}) == space.route({})
    assert narrow.size <= space.size
