"""How likely a route is to meet the accuracy bound, and to be built at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations_with_replacement

import numpy as np
from scipy.special import ndtr

from routewright.search.candidates import Change
from routewright.search.observations import Observation
from routewright.search.surrogate.encoding import Codes, Encoding, Floats, Options
from routewright.search.surrogate.model import LOSS_GUESSES, Regression, fit

_LIMIT = math.log(2.0)
_CAP = 3.0
_LOSS_SD = 0.03
_START_SD = 0.5
_STRICT_GAP = 2.0 * _LIMIT


def log_loss(violation: float, *, is_strict: bool = False) -> float:
    """Return log(1 + loss / threshold), the quantity that is modelled.

    For small losses it adds up over changes as losses do, for large ones it does not run away;
    whatever is beyond twenty times the threshold, or cannot be compared, counts the same. The
    bound is met up to log 2.

    Args:
        violation: (loss - threshold) / threshold.
        is_strict: The threshold is 0, so that only pass or fail is known.
    """
    if is_strict:
        return _STRICT_GAP if violation > 0.0 else 0.0
    return min(math.log(2.0 + max(violation, -1.0)), _CAP)


class Accuracy:
    """Probability that the bound holds, from the losses of the routes that were checked."""

    def __init__(self, encoding: Encoding, observations: Iterable[Observation]) -> None:
        checked = [o for o in observations if o.is_checked and not o.failed]
        # Below a threshold of 0 there is nothing, so that a violation of 0 is met exactly.
        is_strict = any(o.violation == 0.0 for o in checked)
        self._is_free = all(o.violation <= -1.0 for o in checked)
        self._model: Regression | None = None
        if not self._is_free:
            self._model = fit(
                encoding.encode_all([o.route for o in checked]),
                np.array([log_loss(o.violation, is_strict=is_strict) for o in checked]),
                np.full(len(checked), _LOSS_SD),
                encoding.owner,
                LOSS_GUESSES,
                offset=_START_SD,
            )

    @property
    def model(self) -> Regression | None:
        """The fitted log loss, or None where every route so far had no loss at all."""
        return self._model

    @property
    def limit(self) -> float:
        """The largest log loss that meets the bound."""
        return _LIMIT

    def probability(self, rows: Floats) -> Floats:
        """Return the probability that each encoded route meets the bound."""
        if self._model is None:
            return np.ones(len(rows))
        mean, sd = self._model.predict(rows)
        spread = np.sqrt(sd**2 + self._model.scales.misfit**2)
        return np.asarray(ndtr((_LIMIT - mean) / spread))


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
