from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import models
from routewright.priors.features import features_of, features_of_file
from routewright.priors.similarity import distance_parts, model_distance

SHAPES: dict[str, dict[str, Sequence[int]]] = {
    "det": {"x": (1, 3, 320, 320)},
    "rec": {"x": (1, 3, 48, 320)},
    "cls": {"x": (1, 3, 48, 192)},
}


def test_a_model_is_like_itself_and_distance_is_mutual() -> None:
    one = features_of(models.conv_net(), {"x": (1, 3, 16, 16)})
    other = features_of(models.mlp_static(), {"x": (2, 8)})
    assert model_distance(one, one) == pytest.approx(0.0, abs=1e-6)
    assert model_distance(one, other) == pytest.approx(model_distance(other, one))
    assert 0.0 < model_distance(one, other) <= 1.0


def test_input_size_counts_less_than_what_the_model_is_made_of() -> None:
    small = features_of(models.conv_net(), {"x": (1, 3, 16, 16)})
    batch = features_of(models.conv_net(), {"x": (4, 3, 16, 16)})
    other = features_of(models.attention(), {"x": (1, 8, 16)})
    assert model_distance(small, batch) < model_distance(small, other) / 2


def test_parts_say_what_differs() -> None:
    small = features_of(models.conv_net(), {"x": (1, 3, 16, 16)})
    large = features_of(models.conv_net(), {"x": (64, 3, 16, 16)})
    parts = distance_parts(small, large)
    assert parts["ops"] == pytest.approx(0.0, abs=1e-6)
    assert parts["scale"] > 0


def test_detectors_recognizers_and_classifiers_are_nearest_to_their_own_kind(
    model_path: Callable[[str], Path],
) -> None:
    names = [f"ppocr-{version}-{kind}" for version in ("v3", "v4", "v5") for kind in SHAPES]
    names = [name.replace("v3-cls", "v2-cls") for name in names if name != "ppocr-v4-cls"]
    features = {
        name: features_of_file(model_path(name), SHAPES[name.rpartition("-")[2]]) for name in names
    }
    for name, mine in features.items():
        kind = name.rpartition("-")[2]
        own = [model_distance(mine, f) for n, f in features.items() if n.endswith(kind)]
        others = [model_distance(mine, f) for n, f in features.items() if not n.endswith(kind)]
        assert max(own) < min(others), name
