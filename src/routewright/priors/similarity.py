"""How alike two models are, and how alike two environments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from routewright.priors.features import ModelFeatures

_WEIGHTS = {"ops": 0.35, "work": 0.2, "scale": 0.2, "ends": 0.2, "types": 0.05}
"""What each part counts in the distance of two models; together 1."""

_SCALE_DECADES = 2.0
"""Models that differ by this many powers of ten in every size are as unlike as can be."""


def model_distance(one: ModelFeatures, other: ModelFeatures) -> float:
    """Return how unlike two models are, from 0 (alike) to 1.

    Which operators there are and what work they do are compared by Hellinger distance of their
    shares, sizes on a logarithmic scale.
    """
    parts = distance_parts(one, other)
    return sum(_WEIGHTS[name] * part for name, part in parts.items())


def distance_parts(one: ModelFeatures, other: ModelFeatures) -> dict[str, float]:
    """Return the parts of :func:`model_distance`, each from 0 to 1, for an explanation."""
    return {
        "ops": _hellinger(one.ops, other.ops),
        "work": _hellinger(one.flops_share, other.flops_share),
        "scale": _scale_distance(_sizes(one), _sizes(other)),
        "ends": _scale_distance(_ends(one), _ends(other)),
        "types": max(_hellinger(one.weights, other.weights), abs(one.quantized - other.quantized)),
    }


def _sizes(features: ModelFeatures) -> list[float]:
    return [
        features.flops,
        sum(features.weights.values()),
        sum(features.activations.values()),
        features.depth,
        features.width,
        sum(features.ops.values()),
    ]


def _ends(features: ModelFeatures) -> list[float]:
    """Return what goes in and comes out: sizes of inputs and outputs, and their last axes.

    A detector gives a map as large as its input, a recognizer a sequence, a classifier a vector.
    """
    inputs = [s for s in features.inputs if s]
    outputs = [s for s in features.outputs if s]
    most_in = max((math.prod(s) for s in inputs), default=1)
    most_out = max((math.prod(s) for s in outputs), default=1)
    largest = max(outputs, key=math.prod, default=(1,))
    source = max(inputs, key=math.prod, default=(1,))
    return [
        most_in,
        most_out,
        math.prod(largest[2:]) or 1,
        largest[-1],
        (source[-1] / source[-2]) if len(source) > 1 and source[-2] else 1.0,
    ]


def _scale_distance(one: Sequence[float], other: Sequence[float]) -> float:
    steps = [
        min(abs(math.log10(max(a, 1e-3)) - math.log10(max(b, 1e-3))) / _SCALE_DECADES, 1.0)
        for a, b in zip(one, other, strict=True)
    ]
    return sum(steps) / len(steps) if steps else 0.0


def _hellinger(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    total_one, total_other = sum(one.values()), sum(other.values())
    if not total_one or not total_other:
        return 0.0 if total_one == total_other else 1.0
    overlap = sum(
        math.sqrt(one[name] / total_one * other[name] / total_other)
        for name in sorted(one.keys() & other.keys())
    )
    return math.sqrt(max(1.0 - overlap, 0.0))
