"""How much each knob value changes the latency, as far as a study's own trials tell.

A linear model of log relative latency on knob values, fitted by Bayesian regression with a
zero-mean normal prior on every effect (Gelman and others, "Bayesian Data Analysis", 3rd edition,
section 14.8): with few trials an effect stays near zero and its interval wide, instead of one
lucky trial being read as an effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from routewright.records import Outcome, TrialRecord

PRIOR_SD = 0.15
"""Standard deviation of an effect expected beforehand, on the log scale."""

MISFIT_SD = 0.02
"""What a sum of single effects leaves unexplained, on the log scale."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of setting one knob away from its default.

    Attributes:
        setting: The knob and its value, as a route spells it.
        ratio: Factor on the latency; below 1 is faster.
        ci95: 95% interval of the factor.
        trials: Timed trials with this setting.
    """

    setting: str
    ratio: float
    ci95: tuple[float, float]
    trials: int

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 1."""
        return self.ci95[1] < 1 or self.ci95[0] > 1


def knob_effects(records: Sequence[TrialRecord]) -> list[Effect]:
    """Return the effect of every setting that was timed, the fastest first."""
    timed = [
        r
        for r in records
        if r.outcome in (Outcome.TIMED, Outcome.SLOW) and r.log_relative_latency is not None
    ]
    settings = sorted({token for record in timed for token in record.route.split()})
    if not settings:
        return []
    column = {setting: index for index, setting in enumerate(settings)}
    design = np.zeros((len(timed), len(settings)))
    target = np.array([record.log_relative_latency for record in timed], dtype=float)
    weight = np.array([1 / ((r.log_sd or MISFIT_SD) ** 2 + MISFIT_SD**2) for r in timed])
    for row, record in enumerate(timed):
        for token in record.route.split():
            design[row, column[token]] = 1.0
    precision = design.T @ (design * weight[:, None]) + np.eye(len(settings)) / PRIOR_SD**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ design.T @ (weight * target)
    spread = 1.96 * np.sqrt(np.diag(covariance))
    effects = [
        Effect(
            setting,
            math.exp(mean[index]),
            (math.exp(mean[index] - spread[index]), math.exp(mean[index] + spread[index])),
            int(design[:, index].sum()),
        )
        for setting, index in column.items()
    ]
    return sorted(effects, key=lambda effect: (effect.ratio, effect.setting))
