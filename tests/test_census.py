"""Live, inert, unknown: what fingerprints tell of knobs, and simpler routes by them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routewright.census import take_census
from routewright.knobs import KnobDatabase
from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import Proposal
from routewright.simplify import simplify
from routewright.space import SearchSpace

NAMES = [f"-k{index}" for index in range(8)]
OPTIONS = ",".join(
    f'{{"option": "{name}", "allowed_values": "{name}=[on|off]", "default_value": "on", '
    f'"help": ""}}'
    for name in NAMES
)
DATABASE = KnobDatabase.from_json(
    f'{{"tuner_version": "1", "tuner_options": [{OPTIONS}]}}', source="test"
)
SPACE = SearchSpace.whole(DATABASE)


def built(number: int, route: str, fingerprint: str) -> TrialRecord:
    return TrialRecord(number, route, Phase.SCREENING, Outcome.SCREENED, fingerprint=fingerprint)


def test_a_group_with_the_baselines_engine_is_inert() -> None:
    census = take_census([built(0, "", "d"), built(1, "-k0=off -k1=off", "d")], NAMES)
    assert census.inert == ("-k0", "-k1")
    assert census.live == ()
    assert len(census.unknown) == 6


def test_what_is_left_when_the_inert_are_known_is_live() -> None:
    records = [
        built(0, "", "d"),
        built(1, "-k0=off", "d"),
        built(2, "-k0=off -k1=off", "x"),
        built(3, "-k1=off -k2=off", "y"),
    ]
    census = take_census(records, NAMES)
    assert census.live == ("-k1",)
    assert census.inert == ("-k0",)


def test_one_knob_apart_and_another_engine_is_live_wherever_it_was() -> None:
    records = [
        built(0, "", "d"),
        built(1, "-k0=off -k1=off", "x"),
        built(2, "-k0=off -k1=off -k2=off", "y"),
    ]
    assert take_census(records, NAMES).live == ("-k2",)


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES), min_size=1))
def test_a_simplified_route_changes_exactly_the_live_knobs(
    live: set[str], changed: set[str]
) -> None:
    def engine(route: Route) -> str:
        return " ".join(sorted(set(route.changed) & live))

    start = Route.of(dict.fromkeys(changed, "off"), DATABASE)
    record = built(1, str(start), engine(start))
    builds = []

    def try_build(proposal: Proposal) -> TrialRecord:
        builds.append(proposal)
        return built(len(builds) + 1, str(proposal.route), engine(proposal.route))

    simple = simplify(record, SPACE, try_build, inert=())
    assert set(Route.parse(simple.route, DATABASE).changed) == changed & live
    assert simple.fingerprint == record.fingerprint
    assert all(not proposal.time_it for proposal in builds)


def test_without_time_or_fingerprint_a_route_stays_as_it_is() -> None:
    record = built(1, "-k0=off -k1=off", "x")
    assert simplify(record, SPACE, lambda proposal: None, inert=()) is record
    blind = TrialRecord(1, "-k0=off", Phase.SEARCH, Outcome.TIMED)
    assert simplify(blind, SPACE, lambda proposal: blind, inert=()) is blind
