"""The study that a prior is asked about, and how near each source is to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from routewright.knobs import KnobDatabase
from routewright.priors.environments import environment_distance
from routewright.priors.evidence import Evidence
from routewright.priors.features import ModelFeatures
from routewright.priors.similarity import model_distance

UNKNOWN_DISTANCE = 0.35
"""Distance of models of which one has no features."""

SAME_FAMILY = 0.1
"""Models of the family that the user names are no further apart than this."""

OTHER_FAMILY = 0.3
"""Models of other families are no nearer than this."""

MODEL_REACH = 0.25
"""Models that are this far apart count for each other by a factor of e less."""

LEAST_WEIGHT = 0.02
"""Sources with less weight than this are dropped."""


@dataclass(frozen=True)
class Target:
    """What is about to be tuned.

    Attributes:
        backend: What will build the engines.
        database: The knobs.
        features: Features of the model, or None.
        model_sha256: Digest of the model, or None.
        family: Family that the user named, or an empty string.
        environment: What times will depend on.
        loss: Name of the loss.
        limit: Largest loss allowed.
    """

    backend: str
    database: KnobDatabase
    features: ModelFeatures | None = None
    model_sha256: str | None = None
    family: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    loss: str = ""
    limit: float = math.inf


@dataclass(frozen=True)
class Source:
    """One source of a prior, seen from a target.

    Attributes:
        evidence: What it says.
        model_distance: How unlike the models are, 0 to 1.
        environment_distance: How far apart the environments are, from 0.
        weight: What its counts count here, 0 to 1.
        remarks: What differs, one line each.
    """

    evidence: Evidence
    model_distance: float
    environment_distance: float
    weight: float
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """Which sources a target uses.

    Attributes:
        used: The sources, the nearest first.
        dropped: Why each other source is not used, by its name.
    """

    used: Sequence[Source]
    dropped: Mapping[str, str]


def choose_sources(sources: Sequence[Evidence], target: Target) -> Choice:
    """Return the sources that say something about ``target``, each with its weight."""
    used: list[Source] = []
    dropped: dict[str, str] = {}
    for evidence in sources:
        origin = evidence.origin
        if origin.backend != target.backend:
            dropped[origin.name] = f"its backend is {origin.backend}"
            continue
        source = _seen(evidence, target)
        if source.weight < LEAST_WEIGHT:
            dropped[origin.name] = f"its model is too unlike ({source.model_distance:.2f})"
            continue
        used.append(source)
    used.sort(key=lambda s: (-s.weight, s.model_distance, s.evidence.key))
    return Choice(used, dropped)


def _seen(evidence: Evidence, target: Target) -> Source:
    origin = evidence.origin
    apart = environment_distance(origin.environment, target.environment)
    distance = _model_distance(evidence, target)
    weight = math.exp(-((distance / MODEL_REACH) ** 2) - apart.version)
    return Source(evidence, distance, apart.total, weight, apart.reasons)


def _model_distance(evidence: Evidence, target: Target) -> float:
    origin = evidence.origin
    if origin.model_sha256 is not None and origin.model_sha256 == target.model_sha256:
        return 0.0
    if origin.features is None or target.features is None:
        distance = UNKNOWN_DISTANCE
    else:
        distance = model_distance(origin.features, target.features)
    if target.family and origin.family:
        is_same = origin.family == target.family
        return min(distance, SAME_FAMILY) if is_same else max(distance, OTHER_FAMILY)
    return distance
