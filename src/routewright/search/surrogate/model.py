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

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotrf, dtrtrs

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]

_MOST_ROWS_FOR_SCALES = 120
"""Scales are estimated from this many trials at most; more change them little."""

_MOST_ROWS = 140
"""A model takes this many trials at most; more make proposals slow."""

_FEW_ROWS = 40
_GROWTH = 1.2
"""With more than few trials, scales are estimated anew each time that there are so many more."""

_FADING = 0.15
"""By how much, on the log scale, the remainders of two routes resemble each other less for each
knob in which they differ."""

_LEAST_VARIANCE = 1e-7
"""What even trials of one engine differ by, so that matrices stay well conditioned."""

_RELEVANCE_WEIGHT = 1.0
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
        lean: Expected main effect where there is no belief: compilers' defaults are not bad, so
            most changes slow down, and most add to the loss.
    """

    main: float
    pair: float
    rest: float
    misfit: float
    offset: float = 0.0
    belief: float = 1.0
    lean: float = 0.0


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
    lean: float


LATENCY_GUESSES = ScaleGuesses(
    main=Guess(0.08, 1.0),
    # Small, or else routes far from all tried ones look best just for being unknown.
    pair=Guess(0.01, 1.0),
    rest=Guess(0.02, 0.7),
    misfit=Guess(0.005, 0.5),
    lean=0.02,
)
"""Of log relative latency."""

LOSS_GUESSES = ScaleGuesses(
    main=Guess(0.4, 1.2),
    pair=Guess(0.2, 1.0),
    rest=Guess(0.1, 1.0),
    misfit=Guess(0.05, 1.0),
    lean=0.05,
)
"""Of losses that add up, see :mod:`.feasibility`."""

LOG_LOSS_GUESSES = ScaleGuesses(
    main=Guess(0.7, 1.2),
    pair=Guess(0.2, 1.0),
    rest=Guess(0.1, 1.0),
    misfit=Guess(0.05, 1.0),
    lean=0.1,
)
"""Of losses that multiply."""


@dataclass(frozen=True)
class Beliefs:
    """Beliefs about main effects, by column.

    Attributes:
        mean: Expected effects.
        variance: Variance of each belief; NaN where there is none.
    """

    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class Layout:
    """How columns belong to knobs.

    Attributes:
        owner: Index of the knob that owns each column; columns of a knob are neighbours.
        squares: By column, what its products count for in the square of two routes' inner product
            over the knob's columns; NaN for columns of which that square is no such sum.
    """

    owner: npt.NDArray[np.intp]
    squares: Floats

    @classmethod
    def of_contrasts(cls, owner: npt.NDArray[np.intp]) -> Layout:
        """Return the layout of columns of which at most one is 1 for each knob, and all else 0."""
        return cls(owner, np.ones(len(owner)))

    @cached_property
    def summed(self) -> npt.NDArray[np.intp]:
        """Columns whose squares are sums."""
        return np.flatnonzero(~np.isnan(self.squares))

    @cached_property
    def smooth(self) -> list[npt.NDArray[np.intp]]:
        """Columns of each other knob."""
        rest = np.flatnonzero(np.isnan(self.squares))
        return [rest[self.owner[rest] == knob] for knob in np.unique(self.owner[rest])]


class Regression:
    """A fitted model; made by :func:`fit`."""

    def __init__(
        self,
        rows: Floats,
        values: Floats,
        noise_variance: Floats,
        layout: Layout,
        scales: Scales,
        relevance: Floats,
        beliefs: Beliefs | None,
        engines: Labels | None = None,
    ) -> None:
        self.scales = scales
        self.relevance = relevance
        self._rows = rows
        self._values = values
        self._noise = noise_variance
        self._layout = layout
        self._beliefs = beliefs
        self._engines = np.arange(len(rows)) if engines is None else engines
        self._main_variance = _main_variances(scales, relevance, beliefs)
        self._mean = np.full(rows.shape[1], scales.lean)
        if beliefs is not None:
            is_told = ~np.isnan(beliefs.variance)
            self._mean[is_told] *= 1.0 - scales.belief
            self._mean[is_told] += scales.belief * beliefs.mean[is_told]
        covariance = self._covariance(rows, rows)
        covariance += _scatter(noise_variance + scales.misfit**2, same_engine(self._engines))
        self._factor = cho_factor(covariance, lower=True, check_finite=False)
        self._residual = values - rows @ self._mean
        self._weights: Floats = cho_solve(self._factor, self._residual, check_finite=False)

    def with_believed(self, rows: Floats) -> Regression:
        """Return the model as if ``rows`` had been measured and turned out as expected."""
        return Regression(
            np.vstack([self._rows, rows]),
            np.append(self._values, self.mean(rows)),
            np.append(self._noise, np.full(len(rows), self.scales.misfit**2)),
            self._layout,
            self.scales,
            self.relevance,
            self._beliefs,
            np.append(self._engines, -1 - np.arange(len(rows))),
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
        owner = self._layout.owner
        cross_knob = owner[:, None] != owner[None, :]
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
        _, engine = np.unique(self._engines, return_inverse=True)
        drawn = rng.normal(size=len(total))[engine]
        result: Floats = np.sqrt(np.maximum(total - prior, 0.0)) * drawn
        return result

    def _pair_scale(self) -> Floats:
        """Return weights whose outer product is the prior variance of the interactions."""
        return np.asarray(self.scales.pair * self.relevance)

    def _covariance(self, left: Floats, right: Floats) -> Floats:
        scales = self.scales
        main = (left * self._main_variance) @ right.T
        result = scales.offset**2 + main + self.pair_covariance(left, right)
        if scales.rest > 0:
            result = result + scales.rest**2 * self.similarity(left, right)
        return np.asarray(result)

    def pair_covariance(self, left: Floats, right: Floats) -> Floats:
        """Return the covariance of the interactions of encoded routes."""
        weight = self.scales.pair * self.relevance
        inner = (left * weight) @ right.T
        return np.asarray(0.5 * (inner**2 - self._same_knob(left, right, weight)))

    def _prior_variance(self, rows: Floats) -> Floats:
        scales = self.scales
        weight = scales.pair * self.relevance
        squares = rows**2
        inner = squares @ weight
        per_knob = _sum_by_owner(squares * weight, self._layout.owner)
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
        summed = self._layout.summed
        factor = weight[summed] ** 2 * self._layout.squares[summed]
        total: Floats = (left[:, summed] * factor) @ right[:, summed].T
        for own in self._layout.smooth:
            total = total + ((left[:, own] * weight[own]) @ right[:, own].T) ** 2
        return total

    def similarity(self, left: Floats, right: Floats) -> Floats:
        """Return the correlation of the remainder of encoded routes."""
        a, b = (left**2).sum(axis=1), (right**2).sum(axis=1)
        distance = np.maximum(a[:, None] + b[None, :] - 2.0 * left @ right.T, 0.0)
        result: Floats = np.exp(-_FADING * distance)
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
    layout: Layout,
    guesses: ScaleGuesses,
    *,
    offset: float = 0.0,
    beliefs: Beliefs | None = None,
    engines: Labels | None = None,
    rank: Floats | None = None,
    memory: ScaleMemory | None = None,
) -> Regression:
    """Fit the model.

    Trials are expected in the order in which they were made: scales are estimated from the first
    so many, so that they are the same for some proposals in a row.

    Args:
        rows: Encoded routes, trials x columns.
        values: What was measured of each.
        sds: Standard error of each.
        layout: How columns belong to knobs.
        guesses: What the scales are likely to be.
        offset: Standard deviation of the start's own value; 0 if it is known to be 0.
        beliefs: Beliefs about main effects, or None.
        engines: A label of each trial's engine, from 0 on: trials of one engine were measured once
            and err together. None: all differ.
        rank: How much to leave each trial out where there are more than the model takes; the value
            of each if None.
        memory: Where to keep the scales for the next proposals.
    """
    noise = sds**2
    if engines is None:
        engines = np.arange(len(rows))
    first = _settled_count(len(rows))
    key = tuple(each[:first].tobytes() for each in (rows, values, noise, engines))
    if memory is None or memory.key != key:
        data = _Data(rows, values, noise, engines, layout, guesses, beliefs).of(np.arange(first))
        estimated = _estimated(data, offset)
        memory = memory or ScaleMemory()
        memory.key, memory.scales, memory.relevance = key, *estimated
    scales, relevance = memory.scales, memory.relevance
    assert scales is not None
    kept = spread_rows(values if rank is None else rank, _MOST_ROWS)
    return Regression(
        rows[kept],
        values[kept],
        noise[kept],
        layout,
        scales,
        relevance,
        beliefs,
        engines[kept],
    )


@dataclass
class ScaleMemory:
    """The scales that were estimated last, and from what."""

    key: tuple[bytes, ...] = ()
    scales: Scales | None = None
    relevance: Floats = field(default_factory=lambda: np.zeros(0))


def _settled_count(count: int) -> int:
    """Return from how many trials to estimate scales: all of few, else a number that stays."""
    settled = _FEW_ROWS
    while settled * _GROWTH <= count:
        settled = int(settled * _GROWTH)
    return min(settled, count) if count >= _FEW_ROWS else count


def _estimated(data: _Data, offset: float) -> tuple[Scales, Floats]:
    """Return scales and each column's relevance."""
    few = data.of(spread_rows(data.values, _MOST_ROWS_FOR_SCALES))
    guesses = data.guesses
    scales = Scales(
        guesses.main.median,
        guesses.pair.median,
        guesses.rest.median,
        guesses.misfit.median,
        offset,
        1.0 if data.beliefs is not None else 0.0,
        guesses.lean,
    )
    relevance = np.ones(data.rows.shape[1])
    for _ in range(2):
        scales = few.best_scales(scales, relevance)
        relevance = few.relevance(scales, relevance)
    return scales, relevance


@dataclass(frozen=True)
class _Data:
    """Trials that scales are estimated from, with all that does not depend on the scales."""

    rows: Floats
    values: Floats
    noise: Floats
    engines: Labels
    layout: Layout
    guesses: ScaleGuesses
    beliefs: Beliefs | None

    def of(self, kept: Labels) -> _Data:
        """Return some of the trials."""
        return replace(
            self,
            rows=self.rows[kept],
            values=self.values[kept],
            noise=self.noise[kept],
            engines=self.engines[kept],
        )

    def parts(self, relevance: Floats) -> _Parts:
        """Return the covariances of unit scales."""
        unit = Scales(main=1.0, pair=1.0, rest=0.0, misfit=0.0)
        kernel = Regression(
            self.rows[:0], self.values[:0], self.noise[:0], *(self.layout, unit, relevance, None)
        )
        rows, beliefs = self.rows, self.beliefs
        is_told = np.zeros(rows.shape[1], dtype=bool)
        told_mean = np.zeros(len(rows))
        told = np.zeros((len(rows), len(rows)))
        if beliefs is not None:
            is_told = ~np.isnan(beliefs.variance)
            told_mean = rows[:, is_told] @ beliefs.mean[is_told]
            told = (rows[:, is_told] * beliefs.variance[is_told]) @ rows[:, is_told].T
        return _Parts(
            main=(rows[:, ~is_told] * relevance[~is_told]) @ rows[:, ~is_told].T,
            untold=(rows[:, is_told] * relevance[is_told]) @ rows[:, is_told].T,
            told=told,
            pair=kernel.pair_covariance(rows, rows),
            rest=kernel.similarity(rows, rows),
            lean=rows[:, ~is_told].sum(axis=1),
            lean_untold=rows[:, is_told].sum(axis=1),
            told_mean=told_mean,
            same=same_engine(self.engines),
        )

    def score(self, scales: Scales, parts: _Parts) -> float:
        """Return the log posterior of the scales."""
        covariance, mean = parts.combined(scales)
        count = len(self.rows)
        covariance += _scatter(self.noise + scales.misfit**2, parts.same)
        total = 0.0
        if count:
            lower, info = dpotrf(covariance, lower=1, overwrite_a=1, clean=0)
            if info:
                return -np.inf
            residual, _ = dtrtrs(lower, self.values - mean, lower=1)
            total = -0.5 * float(residual @ residual) - float(np.log(np.diag(lower)).sum())
        for name in _SCALE_NAMES:
            guess: Guess = getattr(self.guesses, name)
            shift = math.log(getattr(scales, name) / guess.median) / guess.spread
            total -= 0.5 * shift**2
        return total

    def best_scales(self, scales: Scales, relevance: Floats) -> Scales:
        """Climb to a good set of scales, one at a time."""
        parts = self.parts(relevance)
        best = self.score(scales, parts)
        for factor in (3.0, 1.6):
            for name in _SCALE_NAMES:
                best, scales = self._climb(scales, parts, name, factor, best)
            others = [replace(scales, lean=step * self.guesses.lean) for step in (0.0, 1.0, 2.0)]
            if self.beliefs is not None:
                others += [replace(each, belief=b) for each in others for b in (0.0, 0.5, 1.0)]
            for other in others:
                score = self.score(other, parts)
                if score > best:
                    best, scales = score, other
        return scales

    def _climb(
        self, scales: Scales, parts: _Parts, name: str, factor: float, best: float
    ) -> tuple[float, Scales]:
        for step in (factor, 1.0 / factor):
            for _ in range(4):
                other = replace(scales, **{name: getattr(scales, name) * step})
                score = self.score(other, parts)
                if score <= best:
                    break
                best, scales = score, other
        return best, scales

    def relevance(self, scales: Scales, relevance: Floats) -> Floats:
        """Return each knob's relevance, from the size of its effects."""
        model = Regression(
            self.rows,
            self.values,
            self.noise,
            self.layout,
            scales,
            relevance,
            self.beliefs,
            self.engines,
        )
        mean, variance = model.effects()
        size = (mean**2 + variance) / scales.main**2
        owner = self.layout.owner
        counts = np.bincount(owner)
        by_knob = np.bincount(owner, weights=size) / np.maximum(counts, 1)
        moved = (_RELEVANCE_WEIGHT + by_knob) / (_RELEVANCE_WEIGHT + 1.0)
        result: Floats = moved[owner]
        return result


@dataclass(frozen=True)
class _Parts:
    """Covariances and means of some trials for scales of 1."""

    main: Floats
    untold: Floats
    told: Floats
    pair: Floats
    rest: Floats
    lean: Floats
    lean_untold: Floats
    told_mean: Floats
    same: npt.NDArray[np.bool_]

    def combined(self, scales: Scales) -> tuple[Floats, Floats]:
        """Return covariance and mean for given scales, noise left out."""
        doubt = 1.0 - scales.belief
        covariance = (
            scales.main**2 * (self.main + doubt * self.untold)
            + scales.belief * self.told
            + scales.pair**2 * self.pair
            + scales.rest**2 * self.rest
            + scales.offset**2
        )
        mean = scales.lean * (self.lean + doubt * self.lean_untold)
        return covariance, mean + scales.belief * self.told_mean


_SCALE_NAMES: Sequence[str] = ("main", "pair", "rest", "misfit")


def _main_variances(scales: Scales, relevance: Floats, beliefs: Beliefs | None) -> Floats:
    own = scales.main**2 * relevance
    if beliefs is None:
        return own
    # A belief that is given no weight leaves the knob as if there were none.
    told = scales.belief * beliefs.variance + (1.0 - scales.belief) * own
    return np.where(np.isnan(beliefs.variance), own, told)


def same_engine(engines: Labels) -> npt.NDArray[np.bool_]:
    """Return which trials are of one engine."""
    result: npt.NDArray[np.bool_] = engines[:, None] == engines[None, :]
    return result


def _scatter(variance: Floats, same: npt.NDArray[np.bool_]) -> Floats:
    """Return the covariance of what trials are off by; those of one engine are off together."""
    sd = np.sqrt(variance)
    result: Floats = np.where(same, np.outer(sd, sd), 0.0)
    result.flat[:: len(sd) + 1] += _LEAST_VARIANCE
    return result


def _sum_by_owner(values: Floats, owner: npt.NDArray[np.intp]) -> Floats:
    if not values.shape[1]:
        return np.zeros((len(values), 0))
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    result: Floats = np.add.reduceat(values, starts, axis=1)
    return result


def spread_rows(values: Floats, most: int) -> npt.NDArray[np.intp]:
    """Return at most so many rows, in order: the best half, the others spread over the rest."""
    count = len(values)
    if count <= most:
        return np.arange(count)
    order = np.argsort(values, kind="stable")
    best = most // 2
    picks = np.linspace(best, count - 1, most - best).round().astype(np.intp)
    result: npt.NDArray[np.intp] = np.sort(np.concatenate([order[:best], order[picks]]))
    return result
