"""Which changes are to blame for routes that did not build, or broke the bound?"""

from __future__ import annotations

import pytest
from seen_routes import DATABASE, ENCODING, seen

from routewright.routes import Route
from routewright.search.observations import Observation
from routewright.search.surrogate.blame import Blame, breaches, failures
from routewright.search.surrogate.encoding import Options

OPTIONS = Options(ENCODING)


def chance(blame: Blame, text: str) -> float:
    codes = OPTIONS.codes_of(Route.parse(text, DATABASE))
    assert codes is not None
    return float(blame.probability(OPTIONS, codes[None, :])[0])


def builds(observations: list[Observation], text: str) -> float:
    return chance(failures(ENCODING, observations), text)


def keeps_the_bound(observations: list[Observation], text: str) -> float:
    return chance(breaches(ENCODING, observations), text)


def test_a_change_that_was_in_no_built_route_is_to_blame() -> None:
    history = [seen(""), seen("-k1=off"), seen("-k0=off -k1=off", failed=True)]
    assert builds(history, "-k0=off") < 0.15
    assert builds(history, "-k1=off -k2=off") == 1.0


def test_blame_is_shared_until_more_is_known() -> None:
    history = [seen(""), seen("-k0=off -k1=off", failed=True)]
    assert builds(history, "-k0=off") == pytest.approx(0.5, abs=0.05)
    more = [*history, seen("-k0=off -k2=off", failed=True)]
    assert builds(more, "-k0=off") < 0.3
    assert builds(more, "-k1=off") > 0.5


def test_the_last_suspect_may_yet_fail_in_company_only() -> None:
    changes = [f"-k{i}=off" for i in range(6)]
    history = [seen(""), *map(seen, changes[1:]), seen(" ".join(changes), failed=True)]
    assert 0.2 < builds(history, changes[0]) < 0.6


def test_changes_that_only_fail_together_are_avoided_together() -> None:
    history = [
        *(seen(""), seen("-k0=off"), seen("-k1=off"), seen("-k2=off -k1=off")),
        seen("-k0=off -k1=off -k2=off", failed=True),
    ]
    assert builds(history, "-k0=off -k1=off") == pytest.approx(0.7, abs=0.15)
    assert builds(history, "-k0=off -k2=off") == pytest.approx(0.7, abs=0.15)
    assert builds(history, "-k1=off -k2=off") == 1.0


def test_without_failures_everything_builds() -> None:
    assert builds([seen("")], "-k0=off") == 1.0


def test_what_is_far_beyond_the_bound_stays_beyond_it_in_company() -> None:
    history = [seen(""), seen("-k0=off", 5.0), seen("-k1=off", 0.1)]
    assert keeps_the_bound(history, "-k0=off -k2=off") < 0.15
    assert keeps_the_bound(history, "-k1=off -k2=off") > 0.75
    assert keeps_the_bound(history, "-k2=off") == 1.0


def test_two_changes_that_keep_the_bound_alone_are_blamed_together() -> None:
    history = [seen(""), seen("-k0=off"), seen("-k1=off"), seen("-k2=off")]
    once = [*history, seen("-k0=off -k1=off -k2=off", 3.0), seen("-k0=off -k2=off")]
    twice = [*once, seen("-k0=off -k1=off", 3.0)]
    assert keeps_the_bound(twice, "-k0=off -k1=off") < keeps_the_bound(once, "-k0=off -k1=off")
    assert keeps_the_bound(twice, "-k0=off -k1=off") < 0.35
    assert keeps_the_bound(twice, "-k0=off -k2=off") == 1.0


def test_a_failed_build_says_nothing_of_the_bound() -> None:
    assert keeps_the_bound([seen(""), seen("-k0=off", failed=True)], "-k0=off") == 1.0
