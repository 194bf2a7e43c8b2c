"""How likely a route is to meet the accuracy bound, and to be built at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import ndtr

from routewright.search.candidates import Change
from routewright.search.observations import Observation
from routewright.search.surrogate.encoding import Codes, Encoding, Floats, Options
from routewright.search.surrogate.model import (
    LOG_LOSS_GUESSES,
    LOSS_GUESSES,
    Regression,
    ScaleGuesses,
    ScaleMemory,
    fit,
)

_MOST = 20.0
"""Losses beyond this many times the threshold all count the same, as does what has no number."""

_LEAST = 0.01
"""Losses far below this share of the threshold are all alike where losses multiply."""

_LOSS_SD = 0.03


@dataclass(frozen=True, slots=True)
class LossScale:
    """A quantity that losses are turned into, on which effects of changes may add up.

    Attributes:
        shift: It is log(loss / threshold + shift). With 1, small losses add up, and large ones do
            not run away; with little, they multiply.
        guesses: What the scales of its model are likely to be.
        start_sd: Standard deviation of the start's own value.
    """

    shift: float
    guesses: ScaleGuesses
    start_sd: float

    @property
    def limit(self) -> float:
        """The largest value that meets the bound."""
        return math.log1p(self.shift)

    def of(self, violation: float) -> float:
        """Return the value for (loss - threshold) / threshold."""
        return math.log(min(max(violation + 1.0, 0.0), _MOST) + self.shift)


SUMS = LossScale(1.0, LOSS_GUESSES, 0.5)
PRODUCTS = LossScale(_LEAST, LOG_LOSS_GUESSES, 2.0)


class Accuracy:
    """Probability that the bound holds, from the losses of the routes that were checked.

    Whether losses of several changes add up or multiply differs from model to model, and from
    loss to loss (of two changes that push outputs in the same direction, 1 - cosine is more than
    the sum). So both are modelled, and each counts by how well it explains the losses seen.

    Where the threshold is 0, all that is known of a loss is whether it is 0.
    """

    def __init__(
        self,
        encoding: Encoding,
        observations: Iterable[Observation],
        memories: Mapping[float, ScaleMemory] | None = None,
    ) -> None:
        checked = [o for o in observations if o.is_checked and not o.failed]
        # Below a threshold of 0 there is nothing, so that a violation of 0 is met exactly.
        is_strict = any(o.violation == 0.0 for o in checked)
        self._parts: list[tuple[LossScale, Regression, float]] = []
        if all(o.violation <= -1.0 for o in checked):
            return
        rows = encoding.encode_all([o.route for o in checked])
        violations = [
            (3.0 if o.violation > 0.0 else -1.0) if is_strict else o.violation for o in checked
        ]
        fitted = []
        for scale in (SUMS,) if is_strict else (SUMS, PRODUCTS):
            values = np.array([scale.of(violation) for violation in violations])
            model = fit(
                rows,
                values,
                np.full(len(rows), _LOSS_SD),
                encoding.layout,
                scale.guesses,
                offset=scale.start_sd,
                rank=np.abs(values - scale.limit),  # losses near the bound tell most about it
                memory=memories.get(scale.shift) if memories is not None else None,
            )
            # The density of the losses themselves, so that the scales can be compared.
            fitted.append((scale, model, model.log_evidence - float(values.sum())))
        best = max(evidence for _, _, evidence in fitted)
        weights = [math.exp(evidence - best) for _, _, evidence in fitted]
        self._parts = sorted(
            (
                (scale, model, weight / sum(weights))
                for (scale, model, _), weight in zip(fitted, weights, strict=True)
            ),
            key=lambda part: -part[2],
        )

    @property
    def model(self) -> Regression | None:
        """The model that counts most, or None where every route so far had no loss at all."""
        return self._parts[0][1] if self._parts else None

    @property
    def limit(self) -> float:
        """The largest value of :attr:`model` that meets the bound."""
        return self._parts[0][0].limit if self._parts else math.inf

    def probability(self, rows: Floats) -> Floats:
        """Return the probability that each encoded route meets the bound."""
        if not self._parts:
            return np.ones(len(rows))
        total = np.zeros(len(rows))
        for scale, model, weight in self._parts:
            if weight > 1e-3:
                mean, sd = model.predict(rows)
                spread = np.sqrt(sd**2 + model.scales.misfit**2)
                total += weight * ndtr((scale.limit - mean) / spread)
        return np.minimum(total, 1.0)


class Failures:
    """Probability that a route builds, from which changes were in routes that did and did not.

    A failed route is blamed on one of its changes, or on two together. Changes, and pairs, that
    were in a route that built are cleared; the others share the blame, a pair much less than a
    change, and what would explain several failures more.
    """

    def __init__(self, encoding: Encoding, observations: Iterable[Observation]) -> None:
        failed: list[dict[str, str]] = []
        built: list[set[Change]] = []
        for item in observations:
            changes = encoding.changes(item.route)
            if item.failed:
                failed.append(changes)
            else:
                built.append(set(changes.items()))
        recent = [sorted(changes.items()) for changes in failed if len(changes) <= _MOST_CHANGES]
        self._groups = recent[-_MOST_FAILURES:]
        blamed: dict[tuple[Change, Change], int] = {}
        for group in self._groups:
            for pair in combinations_with_replacement(group, 2):
                blamed[pair] = blamed.get(pair, 0) + 1
        self._weights = [_blame(group, built, blamed) for group in self._groups]

    def probability(self, options: Options, codes: Codes) -> Floats:
        """Return the probability that each route builds."""
        worst = np.zeros(len(codes))
        for group, weights in zip(self._groups, self._weights, strict=True):
            places = [options.locate(name, value) for name, value in group]
            has = np.stack([codes[:, knob] == option for knob, option in places], axis=1)
            held = np.einsum("ni,ij,nj->n", has, weights, has, optimize=True)
            worst = np.maximum(worst, held)
        return 1.0 - worst


def _blame(
    group: Sequence[Change],
    built: Sequence[set[Change]],
    blamed: dict[tuple[Change, Change], int],
) -> Floats:
    """Return the share of the blame of each change (on the diagonal) and pair (above it)."""
    has = np.array([[change in good for change in group] for good in built], dtype=float)
    together = has.T @ has if len(built) else np.zeros((len(group), len(group)))
    weights = np.zeros((len(group), len(group)))
    for i, first in enumerate(group):
        for j in range(i, len(group)):
            if not together[i, j]:
                prior = 1.0 if i == j else _PAIR
                weights[i, j] = prior * _REPEATED ** (blamed[first, group[j]] - 1)
    total = weights.sum()
    # A floor keeps a route that nothing explains from being blamed on the last suspect for sure.
    return np.asarray(weights / (total + _OTHER))


_PAIR = 1 / 30
"""How likely a pair is to blame, against a single change."""

_OTHER = 0.05
"""How likely something else is to blame."""

_REPEATED = 4.0
"""How much more is suspected with each further failure that it would explain."""

_MOST_CHANGES = 100
"""Failed routes with more changes than this tell next to nothing."""

_MOST_FAILURES = 60
