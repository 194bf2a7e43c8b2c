"""Pooling what several studies say, with how much studies differ taken into account.

Effects follow the normal random-effects model (DerSimonian and Laird, 1986): a study's true effect
lies around a common mean, scattered by a between-study standard deviation tau. Two or three
studies cannot tell tau, and a point estimate of 0 would make a prior far too sure of itself; so
tau has a half-t prior (Gelman, "Prior distributions for variance parameters", 2006) and is
averaged over on a grid (Roever, "Bayesian random-effects
meta-analysis using the bayesmeta R package", 2020). Frequencies are pooled by a beta-binomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_GRID = 30
_FINEST, _WIDEST = 0.1, 20.0
"""The grid for tau begins and ends at these multiples of its prior's scale."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """What studies say of one more study.

    Attributes:
        mean: Expected value in a new study.
        sd: Its standard deviation there, scatter between studies included.
        between_sd: Expected scatter between studies.
        studies: How many studies it rests on.
    """

    mean: float
    sd: float
    between_sd: float
    studies: int


def pool_normal(
    values: Sequence[float],
    variances: Sequence[float],
    *,
    mean_sd: float,
    between_sd: float,
    center: float = 0.0,
) -> Pooled:
    """Pool one value of each study.

    Args:
        values: What each study found.
        variances: Squared standard error of each, more for studies that are far away.
        mean_sd: Standard deviation of the common mean around ``center`` before any study.
        between_sd: Scale of the prior on the scatter between studies: a half Student t with 3
            degrees of freedom, so that studies that disagree for real can say so.
        center: Where the mean is shrunk to.
    """
    found = np.asarray(values, dtype=float) - center
    known = np.asarray(variances, dtype=float)
    taus = np.concatenate([[0.0], between_sd * np.geomspace(_FINEST, _WIDEST, _GRID)])
    weight = 1.0 / (known[None, :] + taus[:, None] ** 2)
    precision = weight.sum(axis=1) + 1.0 / mean_sd**2
    means = (weight @ found) / precision
    variance = 1.0 / precision
    # The marginal likelihood of tau, the common mean integrated out.
    fit = (weight * found**2).sum(axis=1) - means**2 * precision
    log_weight = 0.5 * (np.log(weight).sum(axis=1) - np.log(precision) - fit)
    log_weight -= 2.0 * np.log1p((taus / between_sd) ** 2 / 3.0)
    share = np.exp(log_weight - log_weight.max()) * _widths(taus)
    share /= share.sum()
    mean = float(share @ means)
    spread = float(share @ (variance + taus**2 + (means - mean) ** 2))
    return Pooled(center + mean, math.sqrt(spread), float(share @ taus), len(found))


def _widths(grid: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return what each point of a grid stands for, by the trapezoidal rule."""
    steps = np.diff(grid)
    widths: npt.NDArray[np.float64] = np.append(steps, 0.0) / 2 + np.insert(steps, 0, 0.0) / 2
    return widths


def pool_rate(
    events: Sequence[float],
    counts: Sequence[float],
    *,
    base_rate: float,
    base_count: float,
) -> tuple[float, float]:
    """Return the posterior mean and standard deviation of a rate.

    Args:
        events: Events of each study, weighted.
        counts: Observations of each study, weighted likewise.
        base_rate: Rate expected before any study.
        base_count: How many observations that expectation is worth.
    """
    alpha = base_rate * base_count + sum(events)
    beta = (1.0 - base_rate) * base_count + sum(counts) - sum(events)
    total = alpha + beta
    mean = alpha / total
    return mean, math.sqrt(mean * (1.0 - mean) / (total + 1.0))
