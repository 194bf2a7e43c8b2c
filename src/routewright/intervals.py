"""Where the middle of a few noisy numbers lies, and how surely.

All functions work on log ratios of latencies, so that swapping the two sides only changes signs
and a change of units changes nothing.

Sources: Hodges and Lehmann 1963 (the estimate); Hollander, Wolfe and Chicken, "Nonparametric
Statistical Methods", section 3.3 (the interval from Walsh averages); Gelman and others, "Bayesian
Data Analysis", 3rd edition, section 3.3 (the pooled variance of rounds and its Student
distribution).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

_EXACT_UP_TO = 50
"""Numbers up to which the signed-rank distribution is counted out; beyond, it is normal."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between two ends; the ends may be infinite where the data says too little."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance between the ends."""
        return (self.high - self.low) / 2

    def widened(self, extra: float) -> Interval:
        """Add an independent uncertainty of half-width ``extra`` to both sides, in quadrature."""
        return Interval(
            estimate=self.estimate,
            low=self.estimate - math.hypot(self.estimate - self.low, extra),
            high=self.estimate + math.hypot(self.high - self.estimate, extra),
        )


def hodges_lehmann(values: Sequence[float]) -> float:
    """Return the median of all pairwise means: as robust as it is efficient under noise.

    Raises:
        ValueError: ``values`` is empty.
    """
    return float(np.median(_walsh_averages(values)))


def signed_rank_interval(values: Sequence[float], confidence: float) -> Interval:
    """Return the Hodges-Lehmann estimate with the interval of Wilcoxon's signed-rank test.

    It assumes that noise is as likely upward as downward, and nothing about its tails. With so
    few values that no interval of this kind reaches ``confidence`` (fewer than 6 at 95 %),
    Student's interval about the estimate is returned instead; one value alone says nothing, so
    its ends are infinite.

    Args:
        values: Independent readings.
        confidence: Probability, above 0 and below 1.

    Raises:
        ValueError: ``values`` is empty or ``confidence`` is no probability.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    averages = _walsh_averages(values)
    estimate = float(np.median(averages))
    skipped = _averages_outside(len(values), (1 - confidence) / 2)
    if skipped is None:
        half = _student_half_width(values, confidence)
        return Interval(estimate, estimate - half, estimate + half)
    return Interval(estimate, float(averages[skipped]), float(averages[-1 - skipped]))


def student_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the quantile of Student's distribution."""
    return float(special.stdtrit(degrees_of_freedom, probability))


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution."""
    return float(special.ndtri(probability))


def pooled_interval(
    values: Sequence[float],
    variances: Sequence[float],
    *,
    prior_sd: float,
    prior_weight: float,
    confidence: float,
    others: Sequence[Sequence[float]] = (),
) -> Interval:
    """Return the mean of a few rounds that differ by more than their own noise.

    Each round is the truth, plus a deviation of the round as a whole, plus its own noise. A
    handful of rounds says little about how large the deviations are, so their variance is pooled
    with what is known beforehand, as ``prior_weight`` further observations would be, and with how
    the rounds of others scatter about their own means; the mean then follows Student's
    distribution with ``prior_weight`` and one less than the rounds of each for degrees of freedom.
    Rounds count equally: deviations, not noise, limit what a round can tell.

    Args:
        values: One estimate per round.
        variances: Each round's own variance.
        prior_sd: Standard deviation of rounds expected beforehand.
        prior_weight: Number of observations that the expectation is worth, above 0.
        confidence: Probability, above 0 and below 1.
        others: Estimates of others' rounds, which deviate alike.

    Raises:
        ValueError: No round, unequal lengths, or a weight that is not above 0.
    """
    if not values or len(values) != len(variances):
        raise ValueError("pooled_interval needs one variance for each of one or more values")
    if not prior_weight > 0:
        raise ValueError(f"prior_weight must be above 0, not {prior_weight}")
    rounds = len(values)
    mean = math.fsum(values) / rounds
    own = math.fsum(variances) / rounds
    observed, freedom = _scatter(values), prior_weight + rounds - 1
    for other in others:
        observed += _scatter(other)
        freedom += max(len(other) - 1, 0)
    variance = (prior_weight * (prior_sd**2 + own) + observed) / freedom
    half = student_quantile((1 + confidence) / 2, freedom) * math.sqrt(variance / rounds)
    return Interval(mean, mean - half, mean + half)


def _scatter(values: Sequence[float]) -> float:
    """Return the sum of squares about the mean."""
    mean = math.fsum(values) / max(len(values), 1)
    return math.fsum((value - mean) ** 2 for value in values)


def _walsh_averages(values: Sequence[float]) -> npt.NDArray[np.float64]:
    readings = np.asarray(values, dtype=np.float64)
    if readings.size == 0:
        raise ValueError("at least one value is needed")
    first, second = np.triu_indices(readings.size)
    averages = (readings[first] + readings[second]) / 2
    averages.sort()
    return averages


def _averages_outside(count: int, tail: float) -> int | None:
    """Return how many Walsh averages lie beyond either end, or None where none may."""
    if count <= _EXACT_UP_TO:
        below = int(np.searchsorted(_signed_rank_tails(count), tail, side="right"))
    else:
        pairs = count * (count + 1)
        deviation = math.sqrt(pairs * (2 * count + 1) / 24)
        # One half is the correction for a whole-numbered statistic.
        below = math.floor(pairs / 4 + normal_quantile(tail) * deviation - 0.5) + 1
    return below - 1 if below > 0 else None


@lru_cache(maxsize=_EXACT_UP_TO)
def _signed_rank_tails(count: int) -> npt.NDArray[np.float64]:
    """Return the probability that the rank sum of the positive values is at most 0, 1, 2, ..."""
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] += ways[:-rank].copy()
    tails: npt.NDArray[np.float64] = np.cumsum(ways) / 2.0**count
    return tails


def _student_half_width(values: Sequence[float], confidence: float) -> float:
    count = len(values)
    if count < 2:
        return math.inf
    deviation = float(np.std(values, ddof=1))
    return student_quantile((1 + confidence) / 2, count - 1) * deviation / math.sqrt(count)
