from __future__ import annotations

from dataclasses import replace

import pytest

from prior_studies import BASELINE, database, features, random_study, source, timed
from routewright.knobs import Knob, KnobDatabase
from routewright.priors.learning import form_beliefs
from routewright.priors.suggestions import MOST_ROUTES, Suggestion
from routewright.priors.target import Target
from routewright.priors.warmstart import WarmStart
from routewright.records import Outcome, Phase, TrialRecord
from routewright.search.base import History
from routewright.search.hints import SearchHints
from routewright.space import SearchSpace

KNOBS = ("-a", "-b", "-c", "-d", "-x")
EFFECTS = {"-a=on": -0.2, "-b=on": 0.1, "-c=on": -0.1, "-d=on": -0.15}


def warm(
    knobs: KnobDatabase | None = None,
    *,
    limit: float = 0.01,
    losses: dict[str, float] | None = None,
) -> tuple[WarmStart, SearchSpace]:
    known = knobs or database(*KNOBS)
    sources = [
        source(
            f"s{seed}",
            random_study(EFFECTS, seed=seed, losses=losses),
            knobs=KNOBS,
            inert=["-x"],
            features=features(),
        )
        for seed in range(3)
    ]
    target = Target("synthetic", known, features(), loss="cos", limit=limit)
    space = SearchSpace.whole(known)
    return WarmStart.of(form_beliefs(sources, target), space), space


def result(suggestion: Suggestion, log_ratio: float, number: int = 1) -> TrialRecord:
    return timed(number, str(suggestion.route), log_ratio, sd=0.01)


def test_the_first_route_is_what_promises_most_together() -> None:
    start, _ = warm()
    assert str(start.suggestions[0].route) == "-a=on -c=on -d=on"
    assert start.suggestions[0].mean == pytest.approx(-0.45, abs=0.06)


def test_routes_are_few_and_unlike_each_other() -> None:
    start, _ = warm()
    routes = [str(s.route) for s in start.suggestions]
    assert 2 <= len(routes) <= MOST_ROUTES
    assert len(set(routes)) == len(routes)
    assert "-a=on" in routes


def test_a_route_that_would_break_the_bound_is_not_suggested() -> None:
    losses = {"-a=on": 0.2, "-c=on": 1e-4, "-d=on": 1e-4}
    start, _ = warm(losses=losses)
    assert str(start.suggestions[0].route) == "-c=on -d=on"
    wide, _ = warm(losses=losses, limit=10.0)
    assert "-a=on" in str(wide.suggestions[0].route)


def test_losses_add_up() -> None:
    losses = {"-a=on": 0.008, "-c=on": 0.008, "-d=on": 0.008}
    start, _ = warm(losses=losses)
    assert len(start.suggestions[0].settings) == 1


def test_nothing_is_suggested_where_nothing_helps() -> None:
    records = [random_study({"-a=on": 0.2, "-b=on": 0.0}, seed=seed) for seed in (0, 1)]
    sources = [source(f"s{i}", r, features=features()) for i, r in enumerate(records)]
    known = database("-a", "-b")
    beliefs = form_beliefs(sources, Target("synthetic", known, features()))
    assert WarmStart.of(beliefs, SearchSpace.whole(known)).suggestions == []


def test_a_setting_outside_the_space_is_not_suggested() -> None:
    known = database("-b", "-c")
    start, space = warm(known)
    assert [str(s.route) for s in start.suggestions] == ["-c=on"]
    assert all(space.contains(s.route) for s in start.suggestions)


def test_what_another_knob_switches_off_is_left_out() -> None:
    knobs = [Knob.of("-a", "[off|on]", "off"), Knob.of("-a:c", "[off|on]", "off")]
    known = KnobDatabase("synthetic-1", tuple(knobs))
    sources = [
        source(f"s{i}", [BASELINE, timed(1, "-a=on", 0.1), timed(2, "-a=on -a:c=on", -0.2)])
        for i in (0, 1)
    ]
    beliefs = form_beliefs(sources, Target("synthetic", known))
    start = WarmStart.of(beliefs, SearchSpace.whole(known))
    assert all(s.settings for s in start.suggestions)


def test_part_of_a_route_that_did_well_already_is_left_out() -> None:
    start, _ = warm()
    whole, *others = start.suggestions
    parts = [s for s in others if set(s.settings) < set(whole.settings)]
    assert parts
    done = [BASELINE, result(whole, whole.mean)]
    following = start.next_route(History(records=done))
    assert following is None or following not in parts
    # A whole that does no better than is expected of the part leaves the part worth a trial.
    modest = WarmStart(start.beliefs, [replace(whole, mean=0.95 * parts[0].mean), *parts])
    slow = [BASELINE, result(whole, 0.95 * parts[0].mean)]
    assert modest.next_route(History(records=slow)) == parts[0]


def test_sources_overrule_a_hint_that_a_knob_changes_every_engine() -> None:
    start, space = warm()
    hints = start.hints(SearchHints(surely_live=frozenset({"-a", "-x"})), space)
    assert hints.surely_live == {"-a"}
    assert hints.live_probability["-x"] < 0.1


def test_hints_tell_what_is_likely_live_and_how_effects_are_believed_to_be() -> None:
    start, space = warm()
    hints = start.hints(SearchHints(surely_live=frozenset({"-b"})), space)
    assert hints.surely_live == {"-b"}
    assert "-b" not in hints.live_probability
    assert hints.live_probability["-a"] > 0.8
    assert hints.live_probability["-x"] < 0.1
    assert hints.effects["-a", "on"].mean == pytest.approx(-0.2, abs=0.05)


def test_routes_come_one_by_one_as_long_as_they_keep_what_they_promise() -> None:
    told, _ = warm()
    # Suggestions of which none is part of another.
    apart = [replace(s, settings=(f"-{i}=on",)) for i, s in enumerate(told.suggestions)]
    start = WarmStart(told.beliefs, apart)
    records = [BASELINE]
    for number, expected in enumerate(apart, 1):
        assert start.next_route(History(records=records)) == expected
        records.append(result(expected, expected.mean, number))
    assert start.next_route(History(records=records)) is None


def test_results_as_expected_speak_for_a_prior() -> None:
    start, _ = warm()
    assert start.support([BASELINE, *(result(s, s.mean) for s in start.suggestions)]) > 0


def test_a_route_that_is_being_tried_is_not_asked_for_again() -> None:
    start, _ = warm()
    running = [str(start.suggestions[0].route)]
    assert start.next_route(History(records=[BASELINE], running=running)) == start.suggestions[1]


def test_a_prior_that_proves_wrong_is_given_up_at_once() -> None:
    start, _ = warm()
    records = [BASELINE, result(start.suggestions[0], +0.1)]
    assert start.support(records) < -1
    assert start.next_route(History(records=records)) is None


def test_a_failure_speaks_against_a_prior_that_was_sure() -> None:
    start, _ = warm()
    route = str(start.suggestions[0].route)
    failed = TrialRecord(1, route, Phase.SEARCH, Outcome.FAILED, failure="crash")
    assert start.next_route(History(records=[BASELINE, failed])) is None
    unsure = replace(start.suggestions[0], success=0.5)
    other = WarmStart(start.beliefs, [unsure, *start.suggestions[1:]])
    assert other.next_route(History(records=[BASELINE, failed])) == start.suggestions[1]
