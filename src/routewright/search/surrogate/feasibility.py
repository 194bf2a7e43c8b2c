"""How likely a route is to meet the accuracy bound, and to be built at all."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import combinations

import numpy as np
from scipy.special import ndtr

from routewright.routes import Route
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

    A failed route is blamed on one of its changes that was in no route that built; if there is
    none, on two (or else three) changes that were together in no such route. What would explain
    several failures is suspected more.
    """

    def __init__(self, encoding: Encoding, observations: Iterable[Observation]) -> None:
        self._encoding = encoding
        built: set[frozenset[Change]] = set()
        failed: list[frozenset[Change]] = []
        for item in observations:
            changes = self._changes(item.route)
            if item.failed:
                failed.append(changes)
            else:
                built.add(changes)
        self._suspects = [_suspects(group, built) for group in failed]
        blamed: dict[frozenset[Change], int] = {}
        for suspects in self._suspects:
            for each in suspects:
                blamed[each] = blamed.get(each, 0) + 1
        self._weights = [
            {each: _BLAME ** (blamed[each] - 1) for each in suspects}
            for suspects in self._suspects
        ]

    def probability(self, options: Options, codes: Codes) -> Floats:
        """Return the probability that each route builds."""
        worst = np.zeros(len(codes))
        for weights in self._weights:
            total = sum(weights.values())
            held = np.zeros(len(codes))
            for suspect, weight in weights.items():
                has_all = np.ones(len(codes), dtype=bool)
                for name, value in suspect:
                    index, option = options.locate(name, value)
                    has_all &= codes[:, index] == option
                held += weight * has_all
            if total > 0:
                worst = np.maximum(worst, held / total)
        return 1.0 - worst

    def _changes(self, route: Route) -> frozenset[Change]:
        return frozenset(self._encoding.changes(route).items())


_BLAME = 4.0
"""How much more a change is suspected with each further failure that it would explain."""

_MOST_COMBINED = 40
"""Pairs of a failed route with more changes than this are not gone through."""


def _suspects(
    group: frozenset[Change], built: Collection[frozenset[Change]]
) -> list[frozenset[Change]]:
    cleared = frozenset().union(*built)
    alone = [frozenset([change]) for change in sorted(group - cleared)]
    if alone or len(group) > _MOST_COMBINED:
        return alone
    for size in (2, 3):
        found = [
            frozenset(each)
            for each in combinations(sorted(group), size)
            if not any(good.issuperset(each) for good in built)
        ]
        if found:
            return found
    return [group]
