"""Which changes, alone or two together, are to blame for routes that went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations_with_replacement

import numpy as np

from routewright.search.candidates import Change
from routewright.search.observations import Observation
from routewright.search.surrogate.encoding import Codes, Encoding, Floats, Options

_EASE = 2.0
"""How fast it becomes unlikely that adding changes divides a loss by so much."""

_PAIR = 1 / 30
"""How likely a pair is to blame, against a single change."""

_OTHER = 0.05
"""How likely something else is to blame."""

_REPEATED = 4.0
"""How much more is suspected with each further failure that it would explain."""

_MOST_CHANGES = 100
"""Failed routes with more changes than this tell next to nothing."""

_MOST_FAILURES = 60


class Blame:
    """Probability that a route goes right, from which changes were in routes that did and did not.

    A route that went wrong is blamed on one of its changes, or on two together. Changes, and
    pairs, that were in a route that went right are cleared; the others share the blame, a pair
    much less than a change, and what would explain several failures more.

    Args:
        wrong: Changes of each route that went wrong, and how sure it is, from 0 to 1, that the
            same change or pair goes wrong again.
        right: Changes of each route that went right.
    """

    def __init__(
        self, wrong: Iterable[tuple[Mapping[str, str], float]], right: Sequence[set[Change]]
    ) -> None:
        recent = [
            (sorted(changes.items()), sure)
            for changes, sure in wrong
            if len(changes) <= _MOST_CHANGES
        ][-_MOST_FAILURES:]
        blamed: dict[tuple[Change, Change], int] = {}
        for group, _ in recent:
            for pair in combinations_with_replacement(group, 2):
                blamed[pair] = blamed.get(pair, 0) + 1
        self._groups = [group for group, _ in recent]
        self._weights = [sure * _shares(group, right, blamed) for group, sure in recent]

    def probability(self, options: Options, codes: Codes) -> Floats:
        """Return the probability that each route goes right."""
        worst = np.zeros(len(codes))
        for group, weights in zip(self._groups, self._weights, strict=True):
            places = [options.locate(name, value) for name, value in group]
            has = np.stack([codes[:, knob] == option for knob, option in places], axis=1)
            held = np.einsum("ni,ij,nj->n", has, weights, has, optimize=True)
            worst = np.maximum(worst, held)
        return 1.0 - worst


def failures(encoding: Encoding, observations: Iterable[Observation]) -> Blame:
    """Blame routes that could not be built."""
    wrong: list[tuple[dict[str, str], float]] = []
    right: list[set[Change]] = []
    for item in observations:
        changes = encoding.changes(item.route)
        if item.failed:
            wrong.append((changes, 1.0))
        else:
            right.append(set(changes.items()))
    return Blame(wrong, right)


def breaches(encoding: Encoding, observations: Iterable[Observation]) -> Blame:
    """Blame routes that break the accuracy bound, the more the further they are beyond it.

    Adding changes to a route now and then makes its loss smaller, but seldom many times so.
    """
    wrong: list[tuple[dict[str, str], float]] = []
    right: list[set[Change]] = []
    for item in observations:
        if item.failed or not item.is_checked:
            continue
        changes = encoding.changes(item.route)
        if item.violation > 0.0:
            wrong.append((changes, 1.0 - (1.0 + item.violation) ** -_EASE))
        else:
            right.append(set(changes.items()))
    return Blame(wrong, right)


def _shares(
    group: Sequence[Change],
    right: Sequence[set[Change]],
    blamed: Mapping[tuple[Change, Change], int],
) -> Floats:
    """Return the share of the blame of each change (on the diagonal) and pair (above it)."""
    has = np.array([[change in good for change in group] for good in right], dtype=float)
    together = has.T @ has if len(right) else np.zeros((len(group), len(group)))
    weights = np.zeros((len(group), len(group)))
    for i, first in enumerate(group):
        for j in range(i, len(group)):
            if not together[i, j]:
                prior = 1.0 if i == j else _PAIR
                weights[i, j] = prior * _REPEATED ** (blamed[first, group[j]] - 1)
    total = weights.sum()
    # A floor keeps a route that nothing explains from being blamed on the last suspect for sure.
    return np.asarray(weights / (total + _OTHER))
