"""The effect of each setting in one study, all settings of a trial taken into account.

A linear model: a trial's value is the sum of the effects of its settings, and of a few pairs of
settings, plus noise. Effects have a normal prior around 0, and each trial counts by its own
interval and by a misfit that all share; both scales are set by marginal likelihood (Bayesian
linear regression: Bishop, "Pattern Recognition and Machine Learning", section 3.5).

What is reported is what the *data* say of an effect, the prior divided out again, for studies are
pooled later and a prior must not count once for each. So two settings that were only ever tried
together each get the wide standard error that they deserve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Pair = tuple[str, str]

MOST_PAIRS = 10
"""Interactions of one study, at most."""

_PAIR_Z = 4.0
"""An interaction must be this many standard errors from 0; hundreds of pairs are looked at."""

_LEAST_PAIR = 0.01
_FEWEST_PAIR_TRIALS = 2
_MISFITS = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
_SCALES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_USUAL_MISFIT = 0.01
_USUAL_SCALE = 0.1
_LARGEST_SE = 1.0
"""An effect known worse than this is not known, on the log scale."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial as the regression sees it.

    Attributes:
        settings: Settings away from the default, ``knob=value`` each.
        value: What was measured, relative to the default route: 0 is no change.
        sd: Its standard error.
    """

    settings: tuple[str, ...]
    value: float
    sd: float


@dataclass(frozen=True, slots=True)
class Effect:
    """What a study says of one setting, or of two beyond the sum of both.

    Attributes:
        value: The effect.
        se: Its standard error.
        trials: How many trials had the setting.
    """

    value: float
    se: float
    trials: int


@dataclass(frozen=True)
class Effects:
    """What a study says.

    Attributes:
        single: Effects by setting.
        pairs: Interactions by pair of settings, the clear ones only.
        misfit_sd: What trials scatter beyond their own intervals.
    """

    single: Mapping[str, Effect]
    pairs: Mapping[Pair, Effect]
    misfit_sd: float


def estimate_effects(trials: Sequence[Trial], *, most_pairs: int = MOST_PAIRS) -> Effects:
    """Return the effects that explain ``trials``; settings without information are left out."""
    names = sorted({setting for trial in trials for setting in trial.settings})
    if not names:
        return Effects({}, {}, _MISFITS[0])
    design = _design(trials, names)
    values = np.array([trial.value for trial in trials], dtype=float)
    noise = np.array([trial.sd**2 for trial in trials], dtype=float)
    pairs: list[Pair] = []
    candidates = _candidates(design, names)
    fitted = _fit(design, values, noise)
    while len(pairs) < most_pairs and candidates:
        found = _clearest(fitted, candidates)
        if found is None:
            break
        candidates.pop(found)
        pairs.append(found)
        column = _pair_column(design, names, found)
        fitted = _fit(np.column_stack([fitted.rows, column]), values, noise)
    counts = fitted.rows.sum(axis=0).astype(int)
    told = [
        _told(fitted, index, int(count)) if count else None for index, count in enumerate(counts)
    ]
    single = {
        name: effect for name, effect in zip(names, told, strict=False) if effect is not None
    }
    joint = {
        pair: effect
        for pair, effect in zip(pairs, told[len(names) :], strict=True)
        if effect is not None
    }
    return Effects(single, joint, fitted.misfit)


@dataclass(frozen=True)
class _Fit:
    rows: Floats
    weights: Floats
    residual: Floats
    mean: Floats
    covariance: Floats
    scale: float
    misfit: float


def _design(trials: Sequence[Trial], names: Sequence[str]) -> Floats:
    column = {name: index for index, name in enumerate(names)}
    rows = np.zeros((len(trials), len(names)))
    for row, trial in zip(rows, trials, strict=True):
        row[[column[setting] for setting in trial.settings]] = 1.0
    return rows


def _fit(rows: Floats, values: Floats, noise: Floats) -> _Fit:
    """Fit with the scales of the largest marginal likelihood."""
    _, misfit, scale = max(
        (_log_posterior(rows, values, noise, misfit, scale), misfit, scale)
        for misfit in _MISFITS
        for scale in _SCALES
    )
    weights = 1.0 / (noise + misfit**2)
    covariance = np.linalg.inv(_precision(rows, weights, scale))
    mean = covariance @ (rows.T @ (weights * values))
    residual = np.asarray(values - rows @ mean)
    return _Fit(rows, weights, residual, np.asarray(mean), np.asarray(covariance), scale, misfit)


def _precision(rows: Floats, weights: Floats, scale: float) -> Floats:
    result: Floats = rows.T @ (rows * weights[:, None]) + np.eye(rows.shape[1]) / scale**2
    return result


def _log_posterior(
    rows: Floats, values: Floats, noise: Floats, misfit: float, scale: float
) -> float:
    """Return the log posterior of the two scales, both with weak log-normal priors.

    They keep a study of two trials from believing anything.
    """
    variance = noise + misfit**2
    weights = 1.0 / variance
    precision = _precision(rows, weights, scale)
    projected = rows.T @ (weights * values)
    mean = np.linalg.solve(precision, projected)
    fit = float(values @ (weights * values) - projected @ mean)
    _, log_det = np.linalg.slogdet(precision)
    size = rows.shape[1]
    likely = (math.log(scale / _USUAL_SCALE) / 1.5) ** 2
    likely += (math.log(misfit / _USUAL_MISFIT) / 0.8) ** 2
    return float(
        -0.5 * (fit + log_det + 2 * size * math.log(scale) + np.log(variance).sum() + likely)
    )


def _told(fitted: _Fit, index: int, trials: int) -> Effect | None:
    """Divide the prior out of one effect; None where the data say next to nothing."""
    variance = float(fitted.covariance[index, index])
    precision = 1.0 / variance - 1.0 / fitted.scale**2
    if precision <= 1.0 / _LARGEST_SE**2:
        return None
    value = float(fitted.mean[index]) / variance / precision
    return Effect(value, math.sqrt(1.0 / precision), trials)


def _candidates(design: Floats, names: Sequence[str]) -> dict[Pair, Floats]:
    """Return the pairs of settings of different knobs that enough trials have."""
    together = design.T @ design
    found: dict[Pair, Floats] = {}
    for one, other in combinations(range(len(names)), 2):
        if together[one, other] < _FEWEST_PAIR_TRIALS:
            continue
        if together[one, other] in (together[one, one], together[other, other]):
            # One never comes without the other, so it cannot be told what is due to both.
            continue
        if names[one].partition("=")[0] != names[other].partition("=")[0]:
            found[names[one], names[other]] = design[:, one] * design[:, other]
    return found


def _pair_column(design: Floats, names: Sequence[str], pair: Pair) -> Floats:
    column: Floats = design[:, names.index(pair[0])] * design[:, names.index(pair[1])]
    return column


def _clearest(fitted: _Fit, candidates: Mapping[Pair, Floats]) -> Pair | None:
    """Return the pair that the residuals call for most, or None."""
    pairs = list(candidates)
    columns = np.column_stack([candidates[pair] for pair in pairs])
    weighted = columns * fitted.weights[:, None]
    cross = fitted.rows.T @ weighted
    own = (columns * weighted).sum(axis=0) - np.einsum(
        "pc,pq,qc->c", cross, fitted.covariance, cross
    )
    own = np.maximum(own, 1e-12)
    effect = (weighted.T @ fitted.residual) / own
    z = np.abs(effect) * np.sqrt(own)
    z[np.abs(effect) < _LEAST_PAIR] = 0.0
    best = int(np.argmax(z))
    return pairs[best] if z[best] >= _PAIR_Z else None
