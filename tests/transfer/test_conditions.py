from __future__ import annotations

import pytest

from prior_studies import TRANSFORMER, features, random_study, source
from routewright.priors.evidence import Evidence
from routewright.transfer.conditions import Condition, has_family, sources_for

EFFECTS = {"-a=on": -0.2, "-b=on": 0.1, "-c=on": 0.3}
HERE = {"cpu": "A", "onnxruntime": "1.32.0", "default_threads": 2}


def table(name: str, family: str, digest: str, like: object = None) -> Evidence:
    return source(
        name,
        random_study(EFFECTS, seed=len(name)),
        family=family,
        model_sha256=digest * 64,
        features=like or features(),
        environment=HERE,
    )


TABLES = [
    table("det-1", "det", "1"),
    table("det-2", "det", "2"),
    table("rec-1", "rec", "3"),
    table("text", "text", "4", TRANSFORMER),
]


def names(condition: Condition, target: Evidence = TABLES[0]) -> list[str]:
    return [e.origin.name for e in sources_for(condition, target, TABLES)[0]]


def test_nothing_of_the_searched_model_is_ever_in_its_prior() -> None:
    again = table("det-1 again", "det", "1")
    for condition in Condition:
        found, _ = sources_for(condition, TABLES[0], [*TABLES, again])
        assert all(e.origin.model_sha256 != "1" * 64 for e in found)


def test_a_model_or_a_family_is_left_out() -> None:
    assert names(Condition.COLD) == []
    assert names(Condition.MODEL_OUT) == ["det-2", "rec-1", "text"]
    assert names(Condition.FAMILY_OUT) == ["rec-1", "text"]


def test_the_wrong_family_is_the_most_unlike_one_and_is_claimed() -> None:
    found, claimed = sources_for(Condition.WRONG_FAMILY, TABLES[0], TABLES)
    assert [e.origin.name for e in found] == ["text"]
    assert claimed == "text"


def test_flipping_turns_effects_round_and_leaves_the_original_alone() -> None:
    before = TABLES[1].settings["effect"].tolist()
    flipped, _ = sources_for(Condition.FLIPPED, TABLES[0], TABLES)
    assert flipped[0].settings["effect"].tolist() == pytest.approx([-e for e in before])
    assert TABLES[1].settings["effect"].tolist() == before


def test_elsewhere_other_settings_have_the_effects() -> None:
    there, _ = sources_for(Condition.ELSEWHERE, TABLES[0], TABLES)
    moved, was = there[0].settings["effect"], TABLES[1].settings["effect"]
    assert sorted(moved) == sorted(was)
    environment = there[0].origin.environment
    assert environment["cpu"] != "A"
    assert environment["default_threads"] == 16
    again, _ = sources_for(Condition.ELSEWHERE, TABLES[0], TABLES)
    assert again[0].settings.equals(there[0].settings)


def test_an_outsider_has_no_family() -> None:
    assert has_family(TABLES[0], TABLES)
    assert not has_family(TABLES[3], TABLES)
