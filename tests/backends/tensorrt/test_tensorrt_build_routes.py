"""Build routes, on the double of a full TensorRT library (see ``trt_double.py``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trt_double import KNOB_COUNT, NOTED, TUNER_VERSION
from trt_support import REAL_LIBRARY, require, run_child


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    require(REAL_LIBRARY)
    folder: Path = tmp_path_factory.mktemp("routes")
    found: dict[str, Any] = run_child("trt_rtx_child.py", "build_routes", str(folder))
    return found


def test_all_four_kinds_of_knobs_are_in_one_database(answer: dict[str, Any]) -> None:
    kinds = dict(answer["kinds"])
    listed = [name for name in kinds if not name.startswith(("-config:", "-runtime:", "-model:"))]
    assert answer["listed"] == len(listed) == KNOB_COUNT
    assert answer["tuner_version"] == TUNER_VERSION
    assert "-config:builder_optimization_level" in kinds
    assert "-runtime:cuda_graph" in kinds
    assert "-model:variant" in kinds
    assert list(kinds)[: len(NOTED)] == list(NOTED)
    assert set(kinds.values()) == {"closed", "range", "open", "unsearchable"}


def test_only_build_route_knobs_reach_the_build_route(answer: dict[str, Any]) -> None:
    assert answer["results"]["mixed"]["size"] > 0
    assert answer["routes"] == ["", "-conv_lowering=on -kgen:tiling=2"]


def test_a_route_that_the_library_refuses_in_silence_is_an_error(answer: dict[str, Any]) -> None:
    refused = answer["results"]["silent"]
    assert refused["kind"] == "unsupported"
    assert "-reshape_ppg=off" in refused["message"]
    assert "-kgen:tiling" not in refused["message"]


def test_a_route_that_the_library_refuses_aloud_gives_its_reason(answer: dict[str, Any]) -> None:
    refused = answer["results"]["refused aloud"]
    assert refused["kind"] == "unsupported"
    assert "did not take -gone=1" in refused["message"]
    assert "invalid knob" in refused["message"]
    assert "-kgen:tiling" not in refused["message"]


def test_a_knob_that_this_version_does_not_have_is_named(answer: dict[str, Any]) -> None:
    refused = answer["results"]["foreign"]
    assert refused["kind"] == "unsupported"
    assert "-from_another_version" in refused["message"]


def test_the_timing_cache_is_kept_per_device_and_version(answer: dict[str, Any]) -> None:
    assert answer["times_tactics"]
    assert "SM89-TensorRT_11.4.0.106.timing" in answer["caches"]
    entries = json.loads(answer["cache"])["entries"]
    assert set(entries) == {
        "kernel for the default",
        "kernel for -conv_lowering=on -kgen:tiling=2",
    }
