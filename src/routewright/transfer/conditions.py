"""The priors that a search is tried with: good ones, wrong ones, and none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from routewright.priors.evidence import Evidence
from routewright.priors.similarity import model_distance
from routewright.search.candidates import generator


class Condition(StrEnum):
    """Which prior a search of one table starts from."""

    COLD = "cold"
    """None."""
    MODEL_OUT = "model out"
    """Every other table: what ``--prior auto`` would know. Leaves one model out."""
    FAMILY_OUT = "family out"
    """Every table of another family. Leaves one family out."""
    FLIPPED = "signs flipped"
    """Every other table, every effect with the opposite sign."""
    WRONG_FAMILY = "wrong family"
    """The most unlike family, and the user says that the model is of it."""
    ELSEWHERE = "other environment"
    """Every other table as if from another device, release and thread count, where the effects
    are those of other settings: dealt out anew among the settings."""


ADVERSARIAL = (Condition.FLIPPED, Condition.WRONG_FAMILY, Condition.ELSEWHERE)
"""Priors that are deliberately wrong."""


def sources_for(
    condition: Condition, target: Evidence, everything: Sequence[Evidence], *, seed: int = 0
) -> tuple[list[Evidence], str]:
    """Return the sources of a condition, and the family that the user is to name.

    Args:
        condition: Which prior.
        target: Evidence of the table that is searched; none of it is in the result.
        everything: Evidence of all tables.
        seed: Seed of what is dealt out at random.
    """
    others = [e for e in everything if e.key != target.key and not _same_model(e, target)]
    family = target.origin.family
    strangers = [e for e in others if not family or e.origin.family != family]
    if condition is Condition.MODEL_OUT:
        return others, ""
    if condition is Condition.FAMILY_OUT:
        return strangers, ""
    if condition is Condition.FLIPPED:
        return [_with_effects(e, -1.0) for e in others], ""
    if condition is Condition.ELSEWHERE:
        return [_elsewhere(e, seed) for e in others], ""
    if condition is Condition.WRONG_FAMILY:
        claimed = _most_unlike_family(target, strangers)
        return [e for e in strangers if e.origin.family == claimed], claimed
    return [], ""


def has_family(target: Evidence, everything: Sequence[Evidence]) -> bool:
    """Tell whether another model of the target's family was recorded."""
    family = target.origin.family
    return bool(family) and any(
        e.origin.family == family and not _same_model(e, target) for e in everything
    )


def _same_model(one: Evidence, other: Evidence) -> bool:
    digest = one.origin.model_sha256
    return digest is not None and digest == other.origin.model_sha256


def _most_unlike_family(target: Evidence, strangers: Sequence[Evidence]) -> str:
    distances: dict[str, list[float]] = {}
    for each in strangers:
        apart = 1.0
        if each.origin.features is not None and target.origin.features is not None:
            apart = model_distance(each.origin.features, target.origin.features)
        distances.setdefault(each.origin.family, []).append(apart)
    ranked: Mapping[str, float] = {name: float(np.mean(d)) for name, d in distances.items()}
    return max(sorted(ranked), key=lambda name: ranked[name], default="")


def _with_effects(evidence: Evidence, factor: float) -> Evidence:
    settings, pairs = evidence.settings.copy(), evidence.pairs.copy()
    settings["effect"] *= factor
    pairs["effect"] *= factor
    return replace(evidence, settings=settings, pairs=pairs)


def _elsewhere(evidence: Evidence, seed: int) -> Evidence:
    origin = evidence.origin
    there = dict(origin.environment)
    for name, value in there.items():
        if name in ("cpu", "device"):
            there[name] = f"another than {value}"
        elif name in ("onnxruntime", "library_version"):
            there[name] = f"0.{value}"
        elif name == "default_threads":
            there[name] = 8 * int(value)
    settings = evidence.settings.copy()
    timed = settings.index[settings["effect"].notna()]
    order = generator(seed, "elsewhere", evidence.key).permutation(len(timed))
    columns = ["effect", "effect_se"]
    settings.loc[timed, columns] = settings.loc[timed[order], columns].to_numpy()
    return replace(
        evidence,
        origin=replace(origin, environment=there),
        settings=settings,
        pairs=evidence.pairs.iloc[:0].copy(),
    )
