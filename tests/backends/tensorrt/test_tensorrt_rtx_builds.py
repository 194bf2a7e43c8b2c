"""Real builds with TensorRT-RTX on the CPU, as far as the serialized plan, in child processes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from trt_support import REAL_LIBRARY, require, run_child

Scenario = Callable[[str], Any]


@pytest.fixture(scope="session")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """Return a function that runs a scenario of ``trt_rtx_child.py`` once and keeps its answer."""
    require(REAL_LIBRARY)

    @functools.cache
    def run(name: str) -> Any:
        return run_child("trt_rtx_child.py", name, str(tmp_path_factory.mktemp(name)))

    return run


def test_every_value_of_every_configuration_knob_builds(scenario: Scenario) -> None:
    answer = scenario("config_knobs")
    knobs = answer["knobs"]
    values, default = knobs["-config:builder_optimization_level"]
    assert values == ["0", "1", "2", "3", "4", "5"]
    assert default == "3"
    assert knobs["-config:tiling_optimization_level"][0] == ["none", "fast", "moderate", "full"]
    for name in ("max_aux_streams", "avg_timing_iterations", "max_num_tactics"):
        assert f"-config:{name}" in knobs
    for name in ("tf32", "sparse_weights"):
        assert sorted(knobs[f"-config:{name}"][0]) == ["off", "on"]
    assert any(name.startswith("-config:tactic_source_") for name in knobs)
    assert any(name.startswith("-config:preview_") for name in knobs)
    assert answer["skipped"] == []
    failed = {name: result for name, result in answer["results"].items() if "size" not in result}
    assert failed == {}
    assert all(result["size"] == result["file"] > 0 for result in answer["results"].values())
    assert len(answer["results"]) == sum(
        len(values) for name, (values, _) in knobs.items() if name.startswith("-config:")
    )
    assert "engine.plan" in answer["left"]
    assert not [name for name in answer["left"] if name.endswith(".part")]


def test_warnings_of_the_library_are_notes_of_the_build(scenario: Scenario) -> None:
    answer = scenario("config_knobs")
    notes = answer["results"]["-config:max_aux_streams=4"]["notes"]
    assert any("stream" in note.lower() for note in notes)


def test_no_knob_is_listed_that_needs_a_device_where_there_is_none(scenario: Scenario) -> None:
    answer = scenario("config_knobs")
    if answer["environment"]["device"] is None:
        assert "-config:l2_limit_for_tiling" not in answer["knobs"]
    assert "no build routes" in answer["environment"]["build_routes"]


def test_what_the_library_does_not_take_is_named(scenario: Scenario) -> None:
    answer = scenario("parsing")
    both = answer["two bad nodes"]
    assert both["type"] == "BackendError"
    for part in ("first_bad", "Frobnicate", "second_bad", "Unique", "replace what is named"):
        assert part in both["message"]
    assert answer["junk"]["type"] == "ModelError"
    assert answer["missing"]["type"] == "ModelError"
    assert "type string" in answer["strings"]["message"]
    assert answer["unknown target"]["type"] == "SettingsError"
    assert "SM89" in answer["unknown target"]["message"]
    assert "invalid ELF header" in answer["missing plugin"]["message"]
    assert all("\n" not in error["message"] for error in answer.values())


def test_shapes_and_profiles(scenario: Scenario) -> None:
    answer = scenario("shapes")
    for name in ("one profile", "two profiles", "exact", "outside weights", "values", "half"):
        assert answer[name].get("size", 0) > 0, answer[name]
    assert answer["two profiles"]["size"] > answer["one profile"]["size"]
    assert "option shape_values" in answer["no values"]["message"]
    assert "--shape x:?x16" in answer["no shape"]["message"]
    assert "outside the profile 1x16 to 4x16" in answer["outside"]["message"]


def test_a_build_is_cancelled_at_its_deadline(scenario: Scenario) -> None:
    answer = scenario("deadlines")
    assert answer["passed"]["kind"] == "cancelled"
    assert "deadline" in answer["passed"]["message"]
    assert answer["left"] == []
    assert answer["ample"]["size"] > 0
    assert answer["none"]["size"] > 0
    midst = answer["in the midst"]
    assert midst["stopped"]
    assert not midst["built"]
    assert 20 < midst["steps"] < 100


def test_variants_of_the_model(scenario: Scenario) -> None:
    answer = scenario("variants")
    assert answer["knob"] == ["original", "fp16"]
    assert answer["fp16"]["size"] < answer["original"]["size"]
    assert "variants must share them" in answer["other model"]["message"]


def test_one_line_where_there_is_no_device_or_no_library(scenario: Scenario) -> None:
    answer = scenario("no_device")
    if answer["build"] == "built":
        pytest.skip("there is a CUDA device here")
    assert "no CUDA device is here to run it" in answer["build"]
    assert "needs a CUDA device" in answer["backend"]["message"]
    assert answer["full"]["type"] == "BackendError"
    assert "routewright[tensorrt]" in answer["full"]["message"]
    assert answer["health"] == {}


def test_refittable_plans(scenario: Scenario) -> None:
    answer = scenario("refit")
    assert answer["individual"]["size"] > answer["none"]["size"]


def test_the_library_is_asked_about_a_plan_before_it_is_loaded(scenario: Scenario) -> None:
    assert scenario("damaged_plan") == {"damaged": "malformed engine"}
