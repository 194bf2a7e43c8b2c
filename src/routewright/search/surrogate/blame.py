"""Which changes, alone or two together, are to blame for routes that went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
        self, wrong: Iterable[tuple[Mapping[str, str], float]], right: Iterable[Mapping[str, str]]
    ) -> None:
        recent = [
            (sorted(changes.items()), sure)
            for changes, sure in wrong
            if len(changes) <= _MOST_CHANGES
        ][-_MOST_FAILURES:]
        index: dict[Change, int] = {}
        for group, _ in recent:
            for change in group:
                index.setdefault(change, len(index))
        went_wrong = _membership([group for group, _ in recent], index)
        # Of many routes that went right nothing is worked out where none went wrong.
        went_right = _membership([each.items() for each in right] if recent else [], index)
        explained = went_wrong.T @ went_wrong
        is_open = (went_right.T @ went_right) == 0
        likely = np.where(np.eye(len(index), dtype=bool), 1.0, _PAIR)
        suspicion = is_open * likely * _REPEATED ** (explained - 1.0)
        self._changes = list(index)
        self._groups = [np.array([index[c] for c in group], dtype=np.intp) for group, _ in recent]
        self._shares = []
        for members, (_, sure) in zip(self._groups, recent, strict=True):
            # Each change on the diagonal, each pair once, above it.
            weights = np.triu(suspicion[np.ix_(members, members)])
            # A floor keeps a route that nothing explains from being blamed on the last suspect
            # for sure.
            self._shares.append(sure * weights / (weights.sum() + _OTHER))

    def probability(self, options: Options, codes: Codes) -> Floats:
        """Return the probability that each route goes right."""
        places = [options.locate(name, value) for name, value in self._changes]
        knobs = np.array([knob for knob, _ in places], dtype=np.intp)
        wanted = np.array([option for _, option in places], dtype=codes.dtype)
        has = (codes[:, knobs] == wanted).astype(float)
        worst = np.zeros(len(codes))
        for members, shares in zip(self._groups, self._shares, strict=True):
            own = has[:, members]
            worst = np.maximum(worst, ((own @ shares) * own).sum(axis=1))
        return 1.0 - worst


def failures(encoding: Encoding, observations: Iterable[Observation]) -> Blame:
    """Blame routes that could not be built."""
    tried = list(observations)
    wrong = [(encoding.changes_tried(o.route), 1.0) for o in tried if o.failed]
    return Blame(wrong, (encoding.changes_tried(o.route) for o in tried if not o.failed))


def breaches(encoding: Encoding, observations: Iterable[Observation]) -> Blame:
    """Blame routes that break the accuracy bound, the more the further they are beyond it.

    Adding changes to a route now and then makes its loss smaller, but seldom many times so.
    """
    checked = [o for o in observations if o.is_checked and not o.failed]
    wrong = [
        (encoding.changes_tried(o.route), 1.0 - (1.0 + o.violation) ** -_EASE)
        for o in checked
        if o.violation > 0.0
    ]
    return Blame(wrong, (encoding.changes_tried(o.route) for o in checked if o.violation <= 0.0))


def _membership(groups: Sequence[Iterable[Change]], index: Mapping[Change, int]) -> Floats:
    """Return which of the indexed changes are in each group, groups x changes."""
    result = np.zeros((len(groups), len(index)))
    for row, group in enumerate(groups):
        result[row, [index[change] for change in group if change in index]] = 1.0
    return result
