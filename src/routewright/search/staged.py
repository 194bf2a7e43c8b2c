"""The default search: screening, single changes, what helped together, then an inner search.

Each stage is read off the history:

1. **Screening** finds the live knobs by fingerprints alone (:mod:`routewright.search.screening`).
   It may take a share of the time; without fingerprints it is skipped.
2. **Single changes**: every value of every live knob, alone, in turns over the families of knobs
   (what comes before the first colon), so that a short search sees something of each.
3. **Combinations** of what helped alone: all of it, then halves of it, the better half first.
4. **Search** over the live knobs together, by an inner search method.
5. **Screening near the incumbent**, where the inner search has stopped improving: a knob may have
   been inert only because another one hid it. What turns out to be live joins in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler
from routewright.search.candidates import (
    base_route,
    narrowed_to,
    other_values,
    switches_for,
    values_in,
    with_ancestors,
    with_change,
)
from routewright.search.hints import NO_HINTS, SearchHints
from routewright.search.screening import Screening, rescreen, screen
from routewright.space import SearchSpace

SCREENING_SHARE = 0.35
"""Screening ends when this share of the search's time is used."""

PATIENCE = 8
"""Trials without an improvement before the surroundings of the incumbent are screened."""

InnerSearch = Callable[[SearchSpace, int, SearchHints], RouteSampler]
"""Makes the search method for the live knobs from their space, the seed and the hints."""


class StagedSearch(RouteSampler):
    """Screening, single changes, combinations, then an inner search.

    Args:
        space: The routes to choose from.
        seed: Seed of every random choice.
        inner: Makes the search method for the live knobs.
        hints: What is known of the knobs beforehand.
    """

    name = "staged"

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        inner: InnerSearch,
        hints: SearchHints = NO_HINTS,
    ) -> None:
        super().__init__(space, seed=seed)
        self._hints = hints
        self._inner = inner
        self._searches: dict[tuple[str, ...], RouteSampler] = {}

    def propose(self, history: History) -> Proposal | None:
        """Return the next build of the screening or the next route of the search."""
        screening = screen(self.space, history, self._hints)
        if screening.next is not None and _has_time_to_screen(history):
            return replace(screening.next, time_it=False)
        live = self._live(history, screening)
        tried = history.tried()
        for route, origin in itertools.chain(
            self._single_changes(live, screening), self._combinations(history)
        ):
            if str(route) not in tried:
                return Proposal(route, origin=origin)
        near = self._screening_near_incumbent(history, screening)
        if near is not None and _is_stuck(history):
            return near
        return self._search_for(tuple(with_ancestors(self.space, live))).propose(history) or near

    def _live(self, history: History, screening: Screening) -> list[str]:
        """Return the knobs to search: the live ones, or all that are not known to be inert."""
        live = dict.fromkeys(screening.live)
        if not screening.inert:
            live.update(dict.fromkeys(screening.unknown))
        for incumbent in _incumbents(history.records):
            live.update(dict.fromkeys(self._near(history, incumbent, screening).live))
        return [name for name in self.space.variable if name in live]

    def _single_changes(
        self, live: Sequence[str], screening: Screening
    ) -> Iterator[tuple[Route, str]]:
        start = base_route(self.space)
        families: dict[str, list[Route]] = {}
        for name in live:
            needs = switches_for(self.space, start, name, avoid=screening.unbuildable)
            if needs is None:
                continue
            home = with_change(self.space, start, dict(needs))
            for value in other_values(self.space, name, values_in(self.space, home)[name]):
                if (name, value) not in screening.unbuildable:
                    route = with_change(self.space, home, {name: value})
                    families.setdefault(name.partition(":")[0], []).append(route)
        for turn in itertools.zip_longest(*families.values()):
            for route in turn:
                if route is not None:
                    yield route, "a single change"

    def _combinations(self, history: History) -> Iterator[tuple[Route, str]]:
        """Put together what was eligible and faster alone, the fastest first."""
        start = base_route(self.space)
        gains: dict[str, tuple[float, str]] = {}
        for record in history.records:
            if record.outcome is not Outcome.TIMED or not record.eligible:
                continue
            changes = record.route.split()
            if len(changes) != 1 or record.ci95 is None or record.relative_latency is None:
                continue
            name, _, value = changes[0].partition("=")
            best = gains.get(name)
            if record.ci95[1] < 1 and (best is None or record.relative_latency < best[0]):
                gains[name] = (record.relative_latency, value)
        ranked = [
            (name, gains[name][1])
            for name in sorted(gains, key=lambda name: (gains[name][0], name))
            if name in self.space.variable
        ]
        count = len(ranked)
        while count >= 2:
            chosen = dict(ranked[:count])
            yield with_change(self.space, start, chosen), f"the {count} best single changes"
            count = (count + 1) // 2 if count > 2 else 0

    def _near(self, history: History, incumbent: TrialRecord, screening: Screening) -> Screening:
        route = Route.parse(incumbent.route, self.space.database)
        suspects = [name for name in self.space.variable if name not in screening.live]
        return rescreen(self.space, history, route, suspects, self._hints)

    def _screening_near_incumbent(self, history: History, screening: Screening) -> Proposal | None:
        incumbents = _incumbents(history.records)
        if not incumbents or not screening.inert or screening.next is not None:
            return None
        near = self._near(history, incumbents[-1], screening).next
        return None if near is None else replace(near, time_it=False)

    def _search_for(self, names: tuple[str, ...]) -> RouteSampler:
        if names not in self._searches:
            # Only the newest is needed again: knobs join and do not leave.
            space = narrowed_to(self.space, names)
            self._searches = {names: self._inner(space, self.seed, self._hints)}
        return self._searches[names]


def _incumbents(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that were each significantly faster than the baseline and the best."""
    best: list[TrialRecord] = []
    for record in records:
        if not record.eligible or record.ci95 is None or record.ci95[1] >= 1.0:
            continue
        if record.phase is Phase.CONFIRMATION or record.relative_latency is None:
            continue
        if not best or record.relative_latency < (best[-1].relative_latency or 0.0):
            best.append(record)
    return best


def _is_stuck(history: History) -> bool:
    incumbents = _incumbents(history.records)
    if not incumbents:
        return False
    searched = [r.number for r in history.records if r.phase is Phase.SEARCH]
    return sum(number > incumbents[-1].number for number in searched) >= PATIENCE


def _has_time_to_screen(history: History) -> bool:
    baseline = history.baseline
    if history.remaining_s is None or baseline is None:
        return True
    begun_s = baseline.elapsed_s
    used_s = max(record.elapsed_s for record in history.records) - begun_s
    return used_s < SCREENING_SHARE * (used_s + history.remaining_s)
