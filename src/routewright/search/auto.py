"""The default search: screening and a model-based search of the live knobs, side by side.

Everything is read off the history:

* **Screening** finds the live knobs by fingerprints alone (:mod:`routewright.search.screening`).
  It may take half of the time; without fingerprints it is skipped.
* **Search** goes over the knobs known, or by hint likely, to be live
  (:mod:`routewright.search.surrogate`).
  As long as it promises more than another live knob would, the two take turns, and the longer it
  finds nothing, the more builds go to the screening.
* **Screening near the best route**: knobs that looked inert are screened once more near a route
  that is much faster, since another knob may have hidden them, and again near later ones when all
  else is done. What turns out to be live joins the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler
from routewright.search.candidates import narrowed_to, with_ancestors
from routewright.search.hints import NO_HINTS, SearchHints
from routewright.search.screening import Screening, family_of, rescreen, screen
from routewright.search.surrogate.sampler import Candidate, SurrogateSearch
from routewright.space import SearchSpace

SCREENING_SHARE = 0.5
"""Screening ends when it has used this share of the time."""

WORTHWHILE_GAIN = 0.0015
"""The search takes turns with the screening if it expects this much, on the log scale."""

WORTH_OF_LIVE = 0.2
"""What finding a live knob gains on average, against the typical size of an effect. Where the
search expects less than what the screening is about to find, the screening goes on.
"""

IMPROVEMENT = 0.01
"""A trial improves on the best so far if it is faster by this share."""

MOST_WAITING = 2
"""Builds of the screening between two trials of a search that finds nothing."""

DEAR_TIMING = 2.0
"""Where time is limited, and check and timing take so many times as long as a build, engines of
several changes are built for their fingerprint only: what one of the changes does is hardly
to be seen in their time.
"""

LIKELY_LIVE = 0.5
"""A knob that is live with this probability is searched before the screening gets to it."""

_FOUND_LIVE = frozenset({Outcome.TIMED, Outcome.SLOW, Outcome.INACCURATE})

LANDMARK = 0.03
"""Knobs are screened anew near a route that is faster by this share than where that was last done.
"""


@dataclass(frozen=True)
class Plan:
    """What ``auto`` knows of a study, for reports.

    Attributes:
        screening: The screening at the start.
        revealed: Knobs that are inert at the start and live near a better route.
        searched: The knobs that the search varies.
        is_cut_short: Whether time ran out for screening, so that untested knobs are searched too.
        near: What to build next near the best route, to see what is live there.
        promise: How many live knobs to expect for each further build of the screening.
        size: How many knobs the next build of the screening changes.
    """

    screening: Screening
    revealed: tuple[str, ...]
    searched: tuple[str, ...]
    is_cut_short: bool
    near: Proposal | None
    promise: float
    size: int


class AutoSearch(RouteSampler):
    """Screening, then a search over the live knobs.

    Args:
        space: The routes to choose from.
        seed: Seed of every random choice.
        hints: What is known of the knobs beforehand.

    Attributes:
        search_type: What searches the live knobs; a subclass may have another.
    """

    name = "auto"
    search_type: type[SurrogateSearch] = SurrogateSearch

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        hints: SearchHints = NO_HINTS,
    ) -> None:
        super().__init__(space, seed=seed)
        self._hints = hints
        self._searches: dict[tuple[str, ...], SurrogateSearch] = {}

    def plan_of(self, history: History) -> Plan:
        """Return what the history says about the knobs."""
        screening = screen(self.space, history, self._hints)
        is_cut_short = screening.next is not None and not _has_time_to_screen(history)
        revealed: dict[str, None] = {}
        near: Proposal | None = None
        promise, size = screening.promise, screening.size
        inert_elsewhere: set[str] = set()
        landmarks = _landmarks(history.records) if screening.is_possible else []
        for landmark in landmarks:
            is_last = landmark is landmarks[-1]
            route = Route.parse(landmark.route, self.space.database)
            # A family is screened again once it was screened as a whole.
            unfinished = set(map(family_of, screening.unknown))
            suspects = [name for name in screening.inert if family_of(name) not in unfinished]
            if screening.next is not None:
                # Until all is screened at the start, once near a better route is enough.
                suspects = [name for name in suspects if name not in inert_elsewhere]
            found = rescreen(
                self.space,
                history,
                route,
                [name for name in suspects if name not in revealed],
                self._hints,
                wants_next=is_last and not is_cut_short,
            )
            revealed.update(dict.fromkeys(found.live))
            inert_elsewhere.update(found.inert)
            near = found.next
            if near is not None:
                promise, size = found.promise, found.size
        likely = self._hints.live_probability
        wanted = {*screening.live, *revealed}
        wanted.update(n for n in screening.unknown if likely.get(n, 0.0) >= LIKELY_LIVE)
        if is_cut_short or not screening.is_possible:
            wanted.update(screening.unknown)
        searched = tuple(with_ancestors(self.space, wanted))
        names = tuple(name for name in self.space.variable if name in revealed)
        return Plan(screening, names, searched, is_cut_short, near, promise, size)

    def propose(self, history: History) -> Proposal | None:
        """Return the next build of the screening or the next route of the search."""
        plan = self.plan_of(history)
        screening = None if plan.is_cut_short else plan.near or plan.screening.next
        if screening is not None and not plan.searched:
            return screening
        best = self._search_for(plan.searched).best_candidate(
            history, inert=plan.screening.inert_changes
        )
        if best is None or screening is None:
            return screening if best is None else best.proposal
        costs = _Costs.of(plan, best, history)
        if best.expected_gain >= WORTHWHILE_GAIN and _is_turn_of_search(history.records):
            worth = WORTH_OF_LIVE * plan.promise * best.effect_sd
            if best.expected_gain >= worth * (costs.search_s / costs.screening_s):
                return best.proposal
        return replace(screening, time_it=costs.times_screening)

    def _search_for(self, names: tuple[str, ...]) -> SurrogateSearch:
        if names not in self._searches:
            # Only the newest is needed again: knobs join, and seldom leave.
            space = narrowed_to(self.space, names)
            self._searches = {names: self.search_type(space, seed=self.seed, hints=self._hints)}
        return self._searches[names]


def _landmarks(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that were each much faster than the landmark before; see ``LANDMARK``."""
    found: list[TrialRecord] = []
    limit = 1.0
    for record in records:
        ratio = record.relative_latency
        if ratio is None or not record.eligible or record.phase is Phase.CONFIRMATION:
            continue
        if record.ci95 is not None and record.ci95[1] < 1.0 and ratio <= limit * (1.0 - LANDMARK):
            found.append(record)
            limit = ratio
    return found


def _is_turn_of_search(records: Sequence[TrialRecord]) -> bool:
    """Whether the search goes next: after as many builds of the screening as it had failures.

    A failure is a trial of the search in a row that did not improve on the best so far. What the
    screening finds to be live gives the search a fresh start.
    """
    best = 1.0
    failures = 0
    waited = 0
    for record in records:
        ratio = record.relative_latency
        is_better = record.eligible and ratio is not None and ratio < best * (1.0 - IMPROVEMENT)
        if is_better and ratio is not None:
            best = ratio
        if record.phase is Phase.SEARCH:
            failures = 0 if is_better else failures + 1
            waited = 0
        elif record.phase is Phase.SCREENING:
            waited += 1
            if record.outcome in _FOUND_LIVE:
                failures = min(failures, 1)
    return waited >= min(failures, MOST_WAITING)


@dataclass(frozen=True)
class _Costs:
    """What the next trial costs: seconds where they are limited, else builds.

    Attributes:
        search_s: Of a trial of the search.
        screening_s: Of a build of the screening.
        times_screening: Whether the screening's engine is timed.
    """

    search_s: float
    screening_s: float
    times_screening: bool

    @classmethod
    def of(cls, plan: Plan, best: Candidate, history: History) -> _Costs:
        if history.remaining_s is None:
            return cls(1.0, 1.0, True)
        is_timed = plan.size <= 1 or best.timing_s <= DEAR_TIMING * best.build_s
        likely_live = min(plan.promise, 1.0)
        timing_s = likely_live * best.timing_s if is_timed else 0.0
        return cls(best.expected_s, best.build_s + timing_s, is_timed)


def _has_time_to_screen(history: History) -> bool:
    if history.remaining_s is None or not history.records:
        return True
    used_s = max(record.elapsed_s for record in history.records)
    screening_s = sum(r.cost_s for r in history.records if r.phase is Phase.SCREENING)
    return screening_s < SCREENING_SHARE * (used_s + history.remaining_s)
