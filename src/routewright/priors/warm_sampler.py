"""Any search method, with a prior's routes before its own proposals."""

from __future__ import annotations

from routewright.priors.warmstart import WarmStart, origin_of
from routewright.search.base import History, Proposal, RouteSampler


class WarmSampler(RouteSampler):
    """Proposes the prior's routes while they keep what they promise, then what another proposes.

    ``tune`` enqueues these routes in the study instead, which comes to the same; this is for runs
    without a study.

    Args:
        warm: The prior.
        inner: The search method; made with the prior's hints by whoever calls.
    """

    def __init__(self, warm: WarmStart, inner: RouteSampler) -> None:
        super().__init__(inner.space, seed=inner.seed)
        self.name = inner.name
        self._warm = warm
        self._inner = inner

    def propose(self, history: History) -> Proposal | None:
        """Return the prior's next route, or what the inner method proposes."""
        suggestion = self._warm.next_route(history)
        if suggestion is not None:
            return Proposal(suggestion.route, origin=origin_of(suggestion))
        return self._inner.propose(history)
