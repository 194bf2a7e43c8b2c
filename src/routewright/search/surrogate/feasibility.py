"""How likely a route is to meet the accuracy bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from routewright.search.observations import Observation, engine_labels
from routewright.search.surrogate.encoding import Encoding, Floats
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

_DOUBT = 0.2
"""What the less likely scale counts for at least, against the other."""


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
                engines=engine_labels(checked),
                rank=np.abs(values - scale.limit),  # losses near the bound tell most about it
                memory=memories.get(scale.shift) if memories is not None else None,
            )
            # The density of the losses themselves, so that the scales can be compared.
            fitted.append((scale, model, model.log_evidence - float(values.sum())))
        best = max(evidence for _, _, evidence in fitted)
        weights = [max(math.exp(evidence - best), _DOUBT) for _, _, evidence in fitted]
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
