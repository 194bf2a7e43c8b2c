"""Statistics of a comparison: quantiles of what some runs never reach, ranks, and their doubt.

Sources: Friedman 1937 and Nemenyi 1963, as Demsar, "Statistical Comparisons of Classifiers over
Multiple Data Sets" (JMLR 7, 2006) puts them to use; Efron and Tibshirani, "An Introduction to the
Bootstrap" (1993), chapter 13, for percentile intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from routewright.compare.measures import Reached

Floats = npt.NDArray[np.float64]

RESAMPLES = 2_000
"""Bootstrap samples behind each interval."""

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of times of which some are only known to be longer.

    Attributes:
        value: The quantile, or a bound below it.
        is_bound: Whether ``value`` is only a lower bound: the share was not reached.
    """

    value: float
    is_bound: bool

    def __str__(self) -> str:
        told = f"{self.value:.0f}"
        return f"> {told}" if self.is_bound else told

    def to_dict(self) -> dict[str, float | bool]:
        """Return it as JSON values."""
        return {"value": self.value, "is_lower_bound": self.is_bound}


def quantile_reached(times: Sequence[Reached], share: float) -> Quantile:
    """Return the time by which a share of the runs had reached something.

    If fewer did, what is known of the quantile is that it lies above what the runs show when each
    that did not reach it counts as its own end.

    Args:
        times: One for each run; at least one.
        share: Above 0, at most 1.
    """
    place = max(math.ceil(share * len(times) - 1e-9), 1) - 1
    reached = sorted(time.at for time in times if time.reached)
    if place < len(reached):
        return Quantile(reached[place], False)
    return Quantile(sorted(time.at for time in times)[place], True)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95% interval; the ends may be infinite."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of samplers over works and seeds; 1 is best, ties share their ranks.

    Attributes:
        mean_ranks: With 95% bootstrap intervals over seeds, by sampler, best first.
        blocks: Pairs of work and seed that every sampler ran.
        friedman_p: P-value of Friedman's test that all samplers are alike; None where it cannot
            be computed.
        critical_difference: Nemenyi's: mean ranks that differ by less are not told apart at 95%;
            None for a single sampler.
    """

    mean_ranks: Mapping[str, Interval]
    blocks: int
    friedman_p: float | None
    critical_difference: float | None


def rank(
    scores: Mapping[str, Sequence[Sequence[float]]], *, seed: int = 0, resamples: int = RESAMPLES
) -> Ranking:
    """Rank samplers by paired scores, the lowest first.

    The intervals are over seeds, drawn again within each work and for all samplers together; they
    tell of these works, not of others.

    Args:
        scores: By sampler, for each work, for each seed; infinity where something was not
            reached. All works have as many seeds for every sampler.
        seed: Seed of the bootstrap.
        resamples: Bootstrap samples.
    """
    names = list(scores)
    works = [
        _ranks(np.array([scores[name][work] for name in names], dtype=float).T)
        for work in range(len(scores[names[0]]))
    ]
    works = [ranks for ranks in works if len(ranks)]
    blocks = np.concatenate(works) if works else np.empty((0, len(names)))
    if not len(blocks):
        return Ranking({}, 0, None, None)
    rng = np.random.default_rng(seed)
    means = np.empty((resamples, len(names)))
    for sample in range(resamples):
        drawn = [ranks[rng.integers(len(ranks), size=len(ranks))] for ranks in works]
        means[sample] = np.concatenate(drawn).mean(axis=0)
    low, high = np.quantile(means, _tails(), axis=0)
    found = {
        name: Interval(float(blocks[:, i].mean()), float(low[i]), float(high[i]))
        for i, name in enumerate(names)
    }
    return Ranking(
        mean_ranks=dict(sorted(found.items(), key=lambda item: item[1].estimate)),
        blocks=len(blocks),
        friedman_p=_friedman_p(blocks),
        critical_difference=critical_difference(len(names), len(blocks)),
    )


def critical_difference(samplers: int, blocks: int) -> float | None:
    """Return Nemenyi's critical difference of mean ranks at 95%."""
    if samplers < 2 or blocks < 1:
        return None
    quantile = float(stats.studentized_range.ppf(CONFIDENCE, samplers, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(samplers * (samplers + 1) / (6 * blocks))


def ratio_of_medians(
    ours: Sequence[Reached],
    theirs: Sequence[Reached],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """Return the ratio of two medians with its paired bootstrap interval.

    A median that is not reached counts as infinite, so a ratio may be 0 or infinite: reached
    against not reached, and the other way round.

    Args:
        ours: One for each seed.
        theirs: One for each of the same seeds.
        seed: Seed of the bootstrap.
        resamples: Bootstrap samples.

    Returns:
        None where the ratio has no meaning: neither is reached, or the others' median is 0.
    """
    mine, other = _with_infinity(ours), _with_infinity(theirs)
    estimate = float(_ratio(_medians(mine[None, :]), _medians(other[None, :]))[0])
    if math.isnan(estimate):
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(mine), size=(resamples, len(mine)))
    ratios = _ratio(_medians(mine[drawn]), _medians(other[drawn]))
    # Where it has no meaning it could be anything, which is counted on both sides.
    unknown = np.isnan(ratios)
    low = float(np.quantile(np.where(unknown, 0.0, ratios), _tails()[0], method="lower"))
    high = float(np.quantile(np.where(unknown, np.inf, ratios), _tails()[1], method="higher"))
    return Interval(estimate, low, high)


def quartiles(values: Floats) -> Floats:
    """Return the quartiles of each column: 25%, 50%, 75%."""
    found: Floats = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    return found


def _with_infinity(times: Sequence[Reached]) -> Floats:
    return np.array([time.at if time.reached else np.inf for time in times])


def _medians(rows: Floats) -> Floats:
    """Return the value that half of each row is at or below, as :func:`quantile_reached` does."""
    place = math.ceil(rows.shape[1] / 2) - 1
    found: Floats = np.sort(rows, axis=1)[:, place]
    return found


def _ratio(ours: Floats, theirs: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(theirs == 0.0, np.nan, ours / theirs)
    return found


def _ranks(scores: Floats) -> Floats:
    """Return the ranks of the columns in each row, ties sharing the mean of theirs."""
    found: Floats = stats.rankdata(scores, axis=1) if len(scores) else scores
    return found


def _friedman_p(ranks: Floats) -> float | None:
    if ranks.shape[1] < 3 or len(ranks) < 2 or np.all(ranks == ranks[:, :1]):
        return None
    return float(stats.friedmanchisquare(*ranks.T).pvalue)


def _tails() -> tuple[float, float]:
    return (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
