from __future__ import annotations

from routewright.priors.environments import FARTHEST, environment_distance

HERE = {"cpu": "A", "default_threads": 2, "onnxruntime": "1.32.0", "load_1min_now": 1.0}


def test_the_same_environment_is_at_no_distance_whatever_its_load() -> None:
    assert environment_distance({**HERE, "load_1min_now": 9.0}, HERE).total == 0


def test_each_difference_adds_and_is_named() -> None:
    far = environment_distance({**HERE, "cpu": "B", "default_threads": 8}, HERE)
    assert far.total > environment_distance({**HERE, "cpu": "B"}, HERE).total > 0
    assert far.version == 0
    assert far.reasons == ("cpu B instead of A", "default_threads 8 instead of 2")


def test_another_release_is_further_than_another_patch() -> None:
    patch = environment_distance({**HERE, "onnxruntime": "1.32.1"}, HERE)
    release = environment_distance({**HERE, "onnxruntime": "1.27.0"}, HERE)
    assert 0 < patch.version < release.version


def test_what_only_one_side_tells_is_not_held_against_it() -> None:
    assert environment_distance({"device": "GPU"}, HERE).total == 0


def test_distance_is_bounded() -> None:
    there = {name: f"other {value}" for name, value in HERE.items()} | {"default_threads": 10**9}
    assert environment_distance(there, HERE).total == FARTHEST
