"""Bayesian regression of one quantity on routes.

The model is linear in the contrasts of :mod:`.encoding`, in all products of contrasts of two
knobs, and in a smooth remainder:

    f(route) = sum of main effects + sum of pairwise interactions + remainder

Every coefficient has a normal prior around 0 (around a belief where there is one). How large
effects are, how much interactions and the remainder count, and how much trials scatter beyond
their own intervals is estimated by marginal likelihood (empirical Bayes) with weak priors. Each
knob has a relevance of its own, so that most interactions stay near 0: two knobs interact as
strongly as the product of their relevances.

With n trials everything is computed from n x n matrices, so the number of pairs does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

Floats = npt.NDArray[np.float64]

_MOST_ROWS_FOR_SCALES = 160
"""Scales are estimated from this many trials at most; more change them little."""

_RELEVANCE_WEIGHT = 2.0
"""How many effects' worth of belief say that a knob is as relevant as others."""


@dataclass(frozen=True, slots=True)
class Scales:
    """Standard deviations of the parts of the model.

    Attributes:
        main: Of a main effect.
        pair: Of an interaction of two knobs of common relevance.
        rest: Of the remainder.
        misfit: Of a trial, beyond its own interval.
        offset: Of the start's own value; 0 where that is known to be 0.
        belief: Weight of the prior beliefs, from 0 to 1.
    """

    main: float
    pair: float
    rest: float
    misfit: float
    offset: float = 0.0
    belief: float = 1.0


@dataclass(frozen=True, slots=True)
class Guess:
    """A log-normal prior on one scale: its median and the standard deviation of its logarithm."""

    median: float
    spread: float


@dataclass(frozen=True)
class ScaleGuesses:
    """What scales are likely to be."""

    main: Guess
    pair: Guess
    rest: Guess
    misfit: Guess


LATENCY_GUESSES = ScaleGuesses(
    main=Guess(0.08, 1.0), pair=Guess(0.03, 1.0), rest=Guess(0.015, 1.0), misfit=Guess(0.005, 0.7)
)
"""Of log relative latency."""

LOSS_GUESSES = ScaleGuesses(
    main=Guess(0.4, 1.2), pair=Guess(0.2, 1.0), rest=Guess(0.1, 1.0), misfit=Guess(0.05, 1.0)
)
"""Of the log loss of :mod:`.feasibility`."""


@dataclass(frozen=True)
class Beliefs:
    """Beliefs about main effects, by column.

    Attributes:
        mean: Expected effects.
        variance: Variance of each belief; NaN where there is none.
    """

    mean: Floats
    variance: Floats


class Regression:
    """A fitted model; made by :func:`fit`."""

    def __init__(
        self,
        rows: Floats,
        values: Floats,
        noise_variance: Floats,
        owner: npt.NDArray[np.intp],
        scales: Scales,
        relevance: Floats,
        beliefs: Beliefs | None,
    ) -> None:
        self.scales = scales
        self.relevance = relevance
        self._rows = rows
        self._values = values
        self._noise = noise_variance
        self._owner = owner
        self._beliefs = beliefs
        self._main_variance = _main_variances(scales, relevance, beliefs)
        self._mean = np.zeros(rows.shape[1])
        if beliefs is not None:
            self._mean = scales.belief * beliefs.mean
        covariance = self._covariance(rows, rows)
        covariance[np.diag_indices_from(covariance)] += noise_variance + scales.misfit**2 + 1e-10
        self._factor = cho_factor(covariance, lower=True, check_finite=False)
        self._residual = values - rows @ self._mean
        self._weights: Floats = cho_solve(self._factor, self._residual, check_finite=False)

    def with_believed(self, rows: Floats) -> Regression:
        """Return the model as if ``rows`` had been measured and turned out as expected."""
        return Regression(
            np.vstack([self._rows, rows]),
            np.append(self._values, self.mean(rows)),
            np.append(self._noise, np.full(len(rows), self.scales.misfit**2)),
            self._owner,
            self.scales,
            self.relevance,
            self._beliefs,
        )

    @property
    def log_evidence(self) -> float:
        """Log marginal likelihood of the data."""
        if not len(self._rows):
            return 0.0
        log_det = 2.0 * float(np.log(np.diag(self._factor[0])).sum())
        fit = float(self._residual @ self._weights)
        return -0.5 * (fit + log_det + len(self._rows) * float(np.log(2 * np.pi)))

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of f for each row."""
        cross = self._covariance(rows, self._rows)
        mean = rows @ self._mean + cross @ self._weights
        prior = self._prior_variance(rows)
        solved = cho_solve(self._factor, cross.T, check_finite=False)
        variance = prior - np.einsum("ij,ji->i", cross, solved)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def mean(self, rows: Floats) -> Floats:
        """Return the mean of f for each row."""
        result: Floats = rows @ self._mean + self._covariance(rows, self._rows) @ self._weights
        return result

    def effects(self) -> tuple[Floats, Floats]:
        """Return the main effects' means and variances, by column."""
        gain = self._main_variance[:, None] * self._rows.T
        mean = self._mean + gain @ self._weights
        solved = cho_solve(self._factor, gain.T, check_finite=False)
        variance = self._main_variance - np.einsum("ij,ji->i", gain, solved)
        return mean, np.maximum(variance, 0.0)

    def coefficients(self, rng: np.random.Generator | None = None) -> Coefficients:
        """Return main effects and interactions: the mean, or a draw from the posterior.

        A draw leaves the remainder at its mean of 0. It is made by drawing from the prior and
        correcting by what the data say (Matheron's rule), so its cost does not grow with the
        square of the number of coefficients.
        """
        rows = self._rows
        scale = self._pair_scale()
        cross_knob = self._owner[:, None] != self._owner[None, :]
        if rng is None:
            single = self._mean.copy()
            joint = np.zeros((rows.shape[1], rows.shape[1]))
            offset = 0.0
            weights = self._weights
        else:
            single = self._mean + np.sqrt(self._main_variance) * rng.normal(size=rows.shape[1])
            upper = np.triu(rng.normal(size=(rows.shape[1], rows.shape[1])), 1)
            joint = (upper + upper.T) * np.sqrt(np.outer(scale, scale)) * cross_knob
            offset = self.scales.offset * float(rng.normal())
            drawn = offset + rows @ single + 0.5 * np.einsum("ni,ni->n", rows @ joint, rows)
            noise = self._noise_draw(rng)
            target = self._residual + rows @ self._mean - drawn - noise
            weights = cho_solve(self._factor, target, check_finite=False)
        single = single + self._main_variance * (rows.T @ weights)
        weighted = rows.T @ (rows * weights[:, None])
        joint = joint + np.outer(scale, scale) * weighted * cross_knob
        offset += self.scales.offset**2 * float(weights.sum())
        return Coefficients(offset, single, joint)

    def _noise_draw(self, rng: np.random.Generator) -> Floats:
        rest = self.scales.rest**2
        factor = np.tril(self._factor[0])
        total = np.einsum("ij,ij->i", factor, factor)
        prior = self._prior_variance(self._rows) - rest
        result: Floats = np.sqrt(np.maximum(total - prior, 0.0)) * rng.normal(size=len(total))
        return result

    def _pair_scale(self) -> Floats:
        """Return weights whose outer product is the prior variance of the interactions."""
        return np.asarray(self.scales.pair * self.relevance)

    def _covariance(self, left: Floats, right: Floats) -> Floats:
        scales = self.scales
        main = (left * self._main_variance) @ right.T
        weight = self.scales.pair * self.relevance
        inner = (left * weight) @ right.T
        pair = 0.5 * (inner**2 - self._same_knob(left, right, weight))
        result = scales.offset**2 + main + pair
        if scales.rest > 0:
            result = result + scales.rest**2 * self._similarity(left, right)
        return np.asarray(result)

    def _prior_variance(self, rows: Floats) -> Floats:
        scales = self.scales
        weight = scales.pair * self.relevance
        squares = rows**2
        inner = squares @ weight
        per_knob = _sum_by_owner(squares * weight, self._owner)
        own = (per_knob**2).sum(axis=1)
        result: Floats = (
            scales.offset**2
            + squares @ self._main_variance
            + 0.5 * (inner**2 - own)
            + scales.rest**2
        )
        return result

    def _same_knob(self, left: Floats, right: Floats, weight: Floats) -> Floats:
        """Return the sum over knobs of the squared inner products of their columns."""
        binary = _is_binary(left, right)
        total: Floats = (left[:, binary] * weight[binary] ** 2) @ right[:, binary].T
        for knob in np.unique(self._owner[~binary]):
            own = self._owner == knob
            total = total + ((left[:, own] * weight[own]) @ right[:, own].T) ** 2
        return total

    def _similarity(self, left: Floats, right: Floats) -> Floats:
        inner = (left * self.relevance) @ right.T
        a = (left**2) @ self.relevance
        b = (right**2) @ self.relevance
        distance = np.maximum(a[:, None] + b[None, :] - 2.0 * inner, 0.0)
        result: Floats = np.exp(-0.5 * distance)
        return result


@dataclass(frozen=True)
class Coefficients:
    """Main effects and interactions as numbers.

    Attributes:
        offset: Value of the start.
        single: Main effect of each column.
        joint: Symmetric matrix of interactions; 0 between columns of one knob.
    """

    offset: float
    single: Floats
    joint: Floats

    def value(self, rows: Floats) -> Floats:
        """Return f for each row."""
        result: Floats = (
            self.offset + rows @ self.single + 0.5 * np.einsum("ni,ni->n", rows @ self.joint, rows)
        )
        return result


def fit(
    rows: Floats,
    values: Floats,
    sds: Floats,
    owner: npt.NDArray[np.intp],
    guesses: ScaleGuesses,
    *,
    offset: float = 0.0,
    beliefs: Beliefs | None = None,
) -> Regression:
    """Fit the model.

    Args:
        rows: Encoded routes, trials x columns.
        values: What was measured of each.
        sds: Standard error of each.
        owner: Index of the knob that owns each column.
        guesses: What the scales are likely to be.
        offset: Standard deviation of the start's own value; 0 if it is known to be 0.
        beliefs: Beliefs about main effects, or None.
    """
    noise = sds**2
    chosen = _spread_rows(len(rows), values)
    few = _Data(rows[chosen], values[chosen], noise[chosen], owner, guesses, beliefs)
    scales = Scales(
        guesses.main.median,
        guesses.pair.median,
        guesses.rest.median,
        guesses.misfit.median,
        offset,
        1.0 if beliefs is not None else 0.0,
    )
    relevance = np.ones(rows.shape[1])
    for _ in range(2):
        scales = few.best_scales(scales, relevance)
        relevance = few.relevance(scales, relevance)
    return Regression(rows, values, noise, owner, scales, relevance, beliefs)


@dataclass(frozen=True)
class _Data:
    rows: Floats
    values: Floats
    noise: Floats
    owner: npt.NDArray[np.intp]
    guesses: ScaleGuesses
    beliefs: Beliefs | None

    def model(self, scales: Scales, relevance: Floats) -> Regression:
        return Regression(
            self.rows, self.values, self.noise, self.owner, scales, relevance, self.beliefs
        )

    def score(self, scales: Scales, relevance: Floats) -> float:
        """Return the log posterior of the scales."""
        total = self.model(scales, relevance).log_evidence
        for name in ("main", "pair", "rest", "misfit"):
            guess: Guess = getattr(self.guesses, name)
            shift = np.log(getattr(scales, name) / guess.median) / guess.spread
            total -= 0.5 * float(shift) ** 2
        return total

    def best_scales(self, scales: Scales, relevance: Floats) -> Scales:
        """Climb to a good set of scales, one at a time."""
        best = self.score(scales, relevance)
        for factor in (3.0, 1.6):
            for name in _SCALE_NAMES:
                best, scales = self._climb(scales, relevance, name, factor, best)
            if self.beliefs is not None:
                for belief in (0.0, 0.5, 1.0):
                    other = replace(scales, belief=belief)
                    score = self.score(other, relevance)
                    if score > best:
                        best, scales = score, other
        return scales

    def _climb(
        self, scales: Scales, relevance: Floats, name: str, factor: float, best: float
    ) -> tuple[float, Scales]:
        for step in (factor, 1.0 / factor):
            for _ in range(4):
                other = replace(scales, **{name: getattr(scales, name) * step})
                score = self.score(other, relevance)
                if score <= best:
                    break
                best, scales = score, other
        return best, scales

    def relevance(self, scales: Scales, relevance: Floats) -> Floats:
        """Return each knob's relevance, from the size of its effects."""
        mean, variance = self.model(scales, relevance).effects()
        size = (mean**2 + variance) / scales.main**2
        counts = np.bincount(self.owner)
        by_knob = np.bincount(self.owner, weights=size) / np.maximum(counts, 1)
        moved = (_RELEVANCE_WEIGHT + by_knob) / (_RELEVANCE_WEIGHT + 1.0)
        result: Floats = moved[self.owner]
        return result


_SCALE_NAMES: Sequence[str] = ("main", "misfit", "pair", "rest")


def _main_variances(scales: Scales, relevance: Floats, beliefs: Beliefs | None) -> Floats:
    own = scales.main**2 * relevance
    if beliefs is None:
        return own
    # A belief that is given no weight leaves the knob as if there were none.
    told = scales.belief * beliefs.variance + (1.0 - scales.belief) * own
    return np.where(np.isnan(beliefs.variance), own, told)


def _sum_by_owner(values: Floats, owner: npt.NDArray[np.intp]) -> Floats:
    if not values.shape[1]:
        return np.zeros((len(values), 0))
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    result: Floats = np.add.reduceat(values, starts, axis=1)
    return result


def _is_binary(left: Floats, right: Floats) -> npt.NDArray[np.bool_]:
    def check(rows: Floats) -> npt.NDArray[np.bool_]:
        result: npt.NDArray[np.bool_] = ((rows == 0.0) | (rows == 1.0)).all(axis=0)
        return result

    return check(left) & check(right)


def _spread_rows(count: int, values: Floats) -> npt.NDArray[np.intp]:
    """Return the rows to estimate scales from: spread evenly from the best to the worst."""
    if count <= _MOST_ROWS_FOR_SCALES:
        return np.arange(count)
    order = np.argsort(values, kind="stable")
    picks = np.linspace(0, count - 1, _MOST_ROWS_FOR_SCALES).round().astype(np.intp)
    result: npt.NDArray[np.intp] = np.sort(order[picks])
    return result
