"""How a study starts from a prior: what its search is told, and which routes come first.

A prior guides and never decides. Its routes are tried in turn, and each result is held against
what the prior expected: as soon as they speak against it, no further route of the prior is tried.
Everything is read off the history, so a resumed study goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from routewright.priors.learning import Beliefs
from routewright.priors.suggestions import Suggestion, suggest
from routewright.records import Outcome, TrialRecord
from routewright.search.base import History
from routewright.search.hints import EffectBelief, SearchHints
from routewright.search.observations import log_sd
from routewright.space import SearchSpace

ORIGIN = "prior"
"""The origin of a trial that a prior asked for begins so."""

GIVE_UP = -1.0
"""No further route is tried once the log Bayes factor for the prior is below this."""

_NULL_SD = 0.05
"""How far a route picked blindly is from the default at least, on the log scale."""

_NULL_SUCCESS = 0.7
"""How often a route picked blindly is eligible."""

_LEAST_LIVE = 0.02
_HARDLY_LIVE = 0.1
"""Below this probability, sources contradict that a knob changes every engine."""

_VAGUE_SD = 0.5


@dataclass(frozen=True)
class WarmStart:
    """A prior, made ready for one study.

    Attributes:
        beliefs: What the prior says.
        suggestions: The routes to try first, in this order.
    """

    beliefs: Beliefs
    suggestions: Sequence[Suggestion]

    @classmethod
    def of(cls, beliefs: Beliefs, space: SearchSpace, *, seed: int = 0) -> WarmStart:
        """Make a prior ready for a search of ``space``."""
        return cls(beliefs, suggest(beliefs, space, seed=seed))

    def hints(self, known: SearchHints, space: SearchSpace) -> SearchHints:
        """Return ``known`` with what the prior adds.

        What is said to change every engine, and seldom did in the sources, is not sure any more.
        """
        told = {
            name: min(max(p, _LEAST_LIVE), 1.0 - _LEAST_LIVE)
            for name, p in self.beliefs.live_probability().items()
            if name in space.variable
        }
        sure = frozenset(n for n in known.surely_live if told.get(n, 1.0) >= _HARDLY_LIVE)
        live = {name: p for name, p in told.items() if name not in sure}
        effects = {
            key: EffectBelief(belief.effect.mean, belief.effect.sd)
            for key, belief in self.beliefs.settings.items()
            if belief.effect is not None
            and belief.effect.sd < _VAGUE_SD
            and key[0] in space.variable
        }
        return replace(
            known,
            surely_live=sure,
            live_probability={**live, **known.live_probability},
            effects={**effects, **known.effects},
        )

    def next_route(self, history: History) -> Suggestion | None:
        """Return the next route to try, or None: all were tried, or the prior proved wrong.

        What is part of a suggested route that already did better than the part is expected to is
        left out: it was to be there in case the whole does not keep the bound.
        """
        if self.support(history.records) < GIVE_UP:
            return None
        tried = history.tried()
        for suggestion in self.suggestions:
            if str(suggestion.route) in tried or self._is_surpassed(suggestion, history.records):
                continue
            return suggestion
        return None

    def _is_surpassed(self, part: Suggestion, records: Sequence[TrialRecord]) -> bool:
        for record in records:
            whole, value = self._by_route.get(record.route), record.log_relative_latency
            if whole is None or value is None or not record.eligible:
                continue
            if set(part.settings) <= set(whole.settings) and value <= part.mean:
                return True
        return False

    @cached_property
    def _by_route(self) -> dict[str, Suggestion]:
        return {str(s.route): s for s in self.suggestions}

    def support(self, records: Sequence[TrialRecord]) -> float:
        """Return the log Bayes factor of the prior against routes picked blindly, so far."""
        first: dict[str, TrialRecord] = {}
        for record in records:
            if record.route in self._by_route and record.outcome is not Outcome.SCREENED:
                first.setdefault(record.route, record)
        return sum(_log_factor(self._by_route[route], record) for route, record in first.items())


def origin_of(suggestion: Suggestion) -> str:
    """Return the origin that a trial of this suggestion is marked with."""
    return f"{ORIGIN}: {suggestion.why}"


def _log_density(deviation: float, variance: float) -> float:
    """Return the logarithm of the normal density, less a constant."""
    return -0.5 * (deviation**2 / variance + math.log(variance))


def _log_factor(suggestion: Suggestion, record: TrialRecord) -> float:
    success = min(max(suggestion.success, 0.02), 0.98)
    value = record.log_relative_latency
    if not record.eligible or value is None:
        return math.log((1.0 - success) / (1.0 - _NULL_SUCCESS))
    noise = log_sd(record) ** 2
    expected = _log_density(value - suggestion.mean, suggestion.sd**2 + noise)
    # A prior that knows nothing expects effects as large, in either direction.
    open_ = suggestion.mean**2 + suggestion.sd**2 + _NULL_SD**2
    blind = _log_density(value, open_ + noise)
    # One result, however far off, is one result: a heavy tail bounds what it can say.
    told = min(max(float(expected - blind), -3.0), 3.0)
    return math.log(success / _NULL_SUCCESS) + told
