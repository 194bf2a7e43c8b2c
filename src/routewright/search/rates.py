"""How likely changes are to be live, learned while testing.

Changes come in families (knobs below the same knob), and a family tends to be live or inert as a
whole. Each has a rate of live changes with a broad prior; what is learned of one family tells a
little about the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from routewright.search.candidates import Change

Floats = npt.NDArray[np.float64]

# Most models leave most knobs inert, but a model with many live ones must not cost much more than
# testing each alone; so half of the belief is on small rates and half on any rate.
_RATES = np.linspace(0.0025, 0.9975, 200)
_LOG_LIVE = np.log(_RATES)
_LOG_INERT = np.log1p(-_RATES)
_PRIOR = 0.5 * _RATES ** (0.5 - 1) * (1 - _RATES) ** (12 - 1)
_PRIOR = np.log(0.5 * _PRIOR / _PRIOR.sum() + 0.5 / len(_RATES))

_SHARED = 0.1
"""How much one family's results tell about another's rate, against its own."""

_SIBLING = 0.3
"""How likely a value of a knob is to be live once another was found inert, against others."""


class Rates:
    """Probabilities of being live.

    Args:
        family: The family of each change.
        given: How likely a change is to be live by itself, where that is known.
        live: Changes found to be live.
        inert: Changes found to be inert.
        suspects: Groups with at least one live change that is not known.
    """

    def __init__(
        self,
        family: Mapping[Change, str],
        given: Mapping[Change, float],
        *,
        live: Collection[Change],
        inert: Collection[Change],
        suspects: Sequence[Sequence[Change]],
    ) -> None:
        self._family = family
        self._given = given
        self._doubtful = {name for name, _ in inert} - {name for name, _ in live}
        learned: dict[str, Floats] = {name: np.zeros_like(_RATES) for name in family.values()}
        for change, name in family.items():
            if change not in given:
                if change in live:
                    learned[name] += _LOG_LIVE
                elif change in inert:
                    learned[name] += _LOG_INERT
        used: set[Change] = set()
        for group in suspects:
            names = {family[change] for change in group}
            if len(names) == 1 and not used & set(group) and not given.keys() & set(group):
                learned[names.pop()] += np.log1p(-np.exp(len(group) * _LOG_INERT))
                used.update(group)
        total = sum(learned.values(), np.zeros_like(_RATES))
        self._weights = {
            name: _normal(_PRIOR + own + _SHARED * (total - own)) for name, own in learned.items()
        }

    def of(self, change: Change) -> float:
        """Return the probability that a change is live."""
        share = _SIBLING if change[0] in self._doubtful else 1.0
        if change in self._given:
            return share * self._given[change]
        return share * float(self._weights[self._family[change]] @ _RATES)

    def ranked(self, changes: Sequence[Change]) -> list[Change]:
        """Return changes by probability, the likely first.

        Of equal ones those of small families come first, then those listed first.
        """
        sizes: dict[str, int] = {}
        for change in changes:
            name = self._family[change]
            sizes[name] = sizes.get(name, 0) + 1
        by_family = {name: float(weights @ _RATES) for name, weights in self._weights.items()}

        place = {name: index for index, name in enumerate(dict.fromkeys(self._family.values()))}

        def key(change: Change) -> tuple[float, int, int]:
            name = self._family[change]
            share = _SIBLING if change[0] in self._doubtful else 1.0
            return -share * self._given.get(change, by_family[name]), sizes[name], place[name]

        return sorted(changes, key=key)

    def all_inert(self, ranked: Sequence[Change]) -> Floats:
        """Return the probability that the first 1, 2, ... changes are all inert."""
        running: dict[str, Floats] = {}
        inert: dict[str, float] = {}
        fixed = 1.0
        result = []
        for change in ranked:
            share = _SIBLING if change[0] in self._doubtful else 1.0
            if change in self._given:
                fixed *= 1.0 - share * self._given[change]
            else:
                name = self._family[change]
                left = running.get(name, self._weights[name]) * (1.0 - share * _RATES)
                running[name] = left
                inert[name] = float(left.sum())
            result.append(fixed * float(np.prod(list(inert.values()))))
        return np.array(result)


def _normal(log_weights: Floats) -> Floats:
    weights = np.exp(log_weights - log_weights.max())
    result: Floats = weights / weights.sum()
    return result
