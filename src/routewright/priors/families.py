"""Families of models: named by users, or found by clustering what models are like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from routewright.priors.evidence import Evidence
from routewright.priors.features import ModelFeatures
from routewright.priors.similarity import model_distance

FAMILY_REACH = 0.2
"""Models of one cluster are, on average, no further apart than this."""


def clusters_of(features: Sequence[ModelFeatures]) -> list[int]:
    """Return the cluster of each model, numbered in the order in which they first occur."""
    if len(features) < 2:
        return [0] * len(features)
    # A second of importing that only clustering needs.
    from sklearn.cluster import AgglomerativeClustering

    apart = np.array([[model_distance(a, b) for b in features] for a in features])
    labels = AgglomerativeClustering(
        n_clusters=None,
        metric="precomputed",
        linkage="average",
        distance_threshold=FAMILY_REACH,
    ).fit_predict(apart)
    order = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    return [order[label] for label in labels.tolist()]


def families_of(sources: Sequence[Evidence]) -> dict[str, str]:
    """Return a family for each source whose model is known, by the source's name.

    A cluster is named after what most of its sources were said to be, or after its most telling
    trait where no user named any.
    """
    known = [(s.origin.name, s.origin.family, s.origin.features) for s in sources]
    with_features = [(name, family, f) for name, family, f in known if f is not None]
    labels = clusters_of([f for _, _, f in with_features])
    named: dict[str, str] = {name: family for name, family, _ in known if family}
    taken: Counter[str] = Counter()
    for label in sorted(set(labels)):
        inside = [each for each, own in zip(with_features, labels, strict=True) if own == label]
        said = Counter(family for _, family, _ in inside if family)
        title = said.most_common(1)[0][0] if said else trait_of([f for _, _, f in inside])
        if not said:
            taken[title] += 1
            title = title if taken[title] == 1 else f"{title} {taken[title]}"
        for name, _, _ in inside:
            named.setdefault(name, title)
    return named


def trait_of(features: Sequence[ModelFeatures]) -> str:
    """Return what models have in common, in a few words: the kind of work, and what comes out."""
    work: Counter[str] = Counter()
    for each in features:
        work.update(each.flops_share)
    kind = max(sorted(work), key=lambda name: work[name]) if work else "other"
    largest = [max((s for s in f.outputs if s), key=np.prod, default=()) for f in features]
    rank = max((len(shape) for shape in largest), default=0)
    comes_out = {0: "a number", 1: "a vector", 2: "a vector", 3: "a sequence"}.get(rank, "a map")
    return f"{kind} to {comes_out}"
