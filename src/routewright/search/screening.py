"""Screening: find out in few builds which knobs are live.

Many knobs are changed at once. If the engine's fingerprint stays what it was, all of them are
inert for this model, and nothing is timed; if it changes, at least one is live and the group is
split. Everything is read off the history, so a resumed study, or one whose search built something
new, just knows more:

* a group with the start's fingerprint: every change in it is inert;
* a group with another fingerprint, all but one of whose changes are known to be inert: that one
  is live (so the second half of a live group is never built if the first half is inert);
* a group that cannot be built is split until a change alone does not build, or all of them were
  built in parts.

A live group is timed while it is built: it may be the best route so far, and a group that is
slower than the start is split only after all else, since what is wanted of it is least likely to
be in there. Where only liveness matters, the proposals can be carried out without timing.

How large a group is follows from how likely its knobs are to be live: by hint where there is one,
otherwise by a rate that is learned on the way. A group is made so large that its result is a toss
of a coin, which is what a build can tell most by. This is generalized binary splitting: about
k log2(n / k) builds for k live of n.

Knobs that are inactive at the start are screened with the knobs above them switched on. A knob can
be inert while another one hides it, so :func:`rescreen` does the same near a better route.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from routewright.knobs import is_off
from routewright.records import Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import History, Proposal
from routewright.search.candidates import (
    Change,
    ancestors_of,
    base_route,
    other_values,
    parsed,
    switches_for,
    values_in,
    with_change,
)
from routewright.search.grouping import GroupTests, next_group
from routewright.search.hints import NO_HINTS, SearchHints
from routewright.space import SearchSpace

_RARELY_LIVE = 0.1
"""How likely a family of knobs is to hold a hidden one: inert at the start and live elsewhere."""


@dataclass(frozen=True, slots=True)
class Screening:
    """What screening knows, and what it would build next.

    Attributes:
        live: Knobs of which some value changes the engine, in the space's order.
        inert: Knobs of which no value does.
        unknown: Knobs not (fully) tested, or that cannot be built.
        unbuildable: Changes that alone make the build fail.
        inert_changes: Changes that alone leave the engine as it is.
        builds_used: Builds that were made for screening.
        one_at_a_time: Builds that testing every change alone would have taken at most.
        next: What to build next; None when nothing is left, or all of it is being built.
        promise: How many live changes to expect for each build from ``next`` on.
        size: How many changes ``next`` tests at once.
        is_possible: Whether engines carry fingerprints, so that there is anything to go by.
    """

    live: tuple[str, ...]
    inert: tuple[str, ...]
    unknown: tuple[str, ...]
    unbuildable: tuple[Change, ...] = ()
    inert_changes: frozenset[Change] = frozenset()
    builds_used: int = 0
    one_at_a_time: int = 0
    next: Proposal | None = None
    promise: float = 0.0
    size: int = 0
    is_possible: bool = True


@dataclass(frozen=True)
class _Place:
    """Changes that are tested together, and the route that they are changes of."""

    start: Route
    changes: tuple[Change, ...]
    needs: tuple[Change, ...] = ()


@dataclass
class _Findings:
    promise: float = 0.0
    size: int = 0
    live: set[str] = field(default_factory=set)
    inert: set[Change] = field(default_factory=set)
    unbuildable: set[Change] = field(default_factory=set)


def screen(space: SearchSpace, history: History, hints: SearchHints = NO_HINTS) -> Screening:
    """Return what the history says about which knobs are live, and the next build.

    Without fingerprints every knob is unknown and there is nothing to build.
    """
    start = base_route(space)
    known = _Known(history)
    changes = {
        name: tuple((name, value) for value in other_values(space, name, at))
        for name, at in values_in(space, start).items()
    }
    contradicted = _contradicted(space, hints.surely_live, known)
    found = _Findings(
        live={n for n in space.variable if n in hints.surely_live and n not in contradicted}
    )
    proposal: Proposal | None = None
    is_possible = hints.fingerprints and not known.lacks_fingerprints(start)
    if is_possible:
        active = [name for name in space.variable if space.is_active(name, start)]
        place = _Place(start, _changes_in_turn(changes, active))
        proposal = _study(space, place, known, hints, found)
        if proposal is None and not known.running:
            for inner in _places_below(space, start, changes, found):
                proposal = _study(space, inner, known, hints, found)
                if proposal is not None:
                    break
    state = _summary(space, space.variable, changes, found, history.records, proposal)
    return replace(state, is_possible=is_possible)


def rescreen(
    space: SearchSpace,
    history: History,
    incumbent: Route,
    suspects: Collection[str],
    hints: SearchHints = NO_HINTS,
    *,
    wants_next: bool = True,
) -> Screening:
    """Screen knobs that were inert at the start near a better route, where they may be live.

    Args:
        space: The routes to choose from.
        history: All trials so far.
        incumbent: The route to test changes of.
        suspects: The knobs to test; those inactive in ``incumbent`` stay unknown.
        hints: Facts about knobs; liveness probabilities hold at the start and are not used.
        wants_next: Whether to work out the next build.
    """
    known = _Known(history)
    at = values_in(space, incumbent)
    names = [name for name in space.variable if name in set(suspects)]
    # One value stands for all of a knob: what else it can be is tried by the search.
    changes = {
        name: tuple((name, value) for value in other_values(space, name, at[name])[:1])
        for name in names
    }
    found = _Findings()
    proposal = None
    is_possible = hints.fingerprints and not known.lacks_fingerprints(incumbent)
    if is_possible:
        active = [name for name in names if space.is_active(name, incumbent)]
        place = _Place(incumbent, _changes_in_turn(changes, active))
        rare = SearchHints(live_probability=_rarely_live(active))
        proposal = _study(space, place, known, rare, found, wants_next=wants_next)
    state = _summary(space, names, changes, found, history.records, proposal)
    return replace(state, is_possible=is_possible)


class _Known:
    """Fingerprints and failures by route."""

    def __init__(self, history: History) -> None:
        self.fingerprints: dict[str, str] = {}
        self.failed: dict[str, None] = {}
        self.log_ratios: dict[str, float] = {}
        self.built: set[str] = set()
        self.screened: set[str] = set()
        self.running = frozenset(history.running)
        for record in history.records:
            if record.fingerprint is not None:
                self.fingerprints[record.route] = record.fingerprint
            elif record.failure:
                self.failed[record.route] = None
            self.built.add(record.route)
            if record.phase is Phase.SCREENING:
                self.screened.add(record.route)
            if record.log_relative_latency is not None:
                self.log_ratios[record.route] = record.log_relative_latency

    def lacks_fingerprints(self, route: Route) -> bool:
        """Whether ``route`` was tried, yet its fingerprint is not known."""
        text = str(route)
        return text in self.built and text not in self.fingerprints

    def compared(self, text: str, start: Route) -> float | None:
        """Return how fast a route is against ``start``, on the log scale; None if not known."""
        there, here = self.log_ratios.get(text), self.log_ratios.get(str(start))
        return None if there is None or here is None else there - here

    def has(self, route: Route) -> bool:
        """Whether building ``route`` tells nothing new, or is under way."""
        text = str(route)
        return text in self.built or text in self.running


def _contradicted(space: SearchSpace, said: Collection[str], known: _Known) -> set[str]:
    """Return which knobs are said to change every engine, yet left one as it was."""
    first: dict[str, Route] = {}
    found: set[str] = set()
    for text, fingerprint in known.fingerprints.items():
        route = parsed(space, text)
        if route is None:
            continue
        start = first.setdefault(fingerprint, route)
        if start is not route:
            group, _ = _difference(space, start, text, said)
            found.update(name for name, _ in group)
    return found


def _study(
    space: SearchSpace,
    place: _Place,
    known: _Known,
    hints: SearchHints,
    found: _Findings,
    *,
    wants_next: bool = True,
) -> Proposal | None:
    """Add what is known at one place to ``found`` and return what to build next there."""
    reference = known.fingerprints.get(str(place.start))
    if reference is None:
        if place.needs and all(change in found.inert for change in place.needs):
            reference = known.fingerprints.get(str(base_route(space)))
        elif known.has(place.start):
            return None
        else:
            return _proposal(place.start, "screening: the start")
    if reference is None:
        return None
    tests = GroupTests(
        changes=place.changes,
        probability={
            change: hints.live_probability[change[0]]
            for change in place.changes
            if change[0] in hints.live_probability
        },
        family={change: family_of(change[0]) for change in place.changes},
        live_knobs=found.live & {name for name, _ in place.changes},
    )
    allowed = {name for name, _ in place.changes}
    for text, fingerprint in known.fingerprints.items():
        group, is_foreign = _difference(space, place.start, text, allowed)
        if fingerprint == reference:
            tests.add_inert(group)
        elif not is_foreign:
            tests.add_live(group, known.compared(text, place.start))
        tests.builds += bool(group) and not is_foreign and text in known.screened
    for text in known.failed:
        group, is_foreign = _difference(space, place.start, text, allowed)
        if not is_foreign:
            tests.add_failed(group)
    for text in known.running:
        tests.add_running(_difference(space, place.start, text, allowed)[0])
    tests.conclude()
    found.live |= tests.live_knobs
    found.inert |= tests.inert
    found.unbuildable |= tests.unbuildable

    if not wants_next:
        return None

    def can_join(group: Mapping[str, str], change: Change) -> bool:
        return not _switches_off(space, group, change)

    def is_new(group: Sequence[Change]) -> bool:
        return not known.has(with_change(space, place.start, dict(group)))

    chosen = next_group(tests, can_join=can_join, is_new=is_new)
    if chosen is None:
        return None
    route = with_change(space, place.start, dict(chosen.changes))
    found.promise, found.size = chosen.promise, len(chosen.changes)
    return _proposal(route, f"screening: {chosen.reason}")


def family_of(name: str) -> str:
    """Return the family of a knob: the name of what it is written below."""
    return name.rpartition(":")[0]


def _rarely_live(names: Sequence[str]) -> dict[str, float]:
    """Return how likely each knob is to be hidden; its family as a whole counts, not its size."""
    sizes = Counter(map(family_of, names))
    return {name: _RARELY_LIVE / sizes[family_of(name)] for name in names}


def _proposal(route: Route, origin: str) -> Proposal:
    return Proposal(route, phase=Phase.SCREENING, origin=origin)


def _changes_in_turn(
    changes: dict[str, tuple[Change, ...]], names: Iterable[str]
) -> tuple[Change, ...]:
    """Return every knob's first change, then every knob's second, and so on.

    The last knob goes first, as in trtexec's sweeps: where nothing is known of knobs, neither
    method is to profit from the order in which a compiler happens to list them.
    """
    lists = [changes[name] for name in reversed(list(names))]
    longest = max((len(each) for each in lists), default=0)
    return tuple(each[turn] for turn in range(longest) for each in lists if turn < len(each))


def _difference(
    space: SearchSpace, start: Route, text: str, allowed: Collection[str]
) -> tuple[list[Change], bool]:
    """Return the changes that lead from ``start`` to a route, and whether there are others."""
    changes = _compared(space, start, text)
    if changes is None:
        return [], True
    group = [change for change in changes if change[0] in allowed]
    return group, len(group) < len(changes)


_DIFFERENCES: WeakKeyDictionary[SearchSpace, dict[Route, dict[str, tuple[Change, ...] | None]]] = (
    WeakKeyDictionary()
)


def _compared(space: SearchSpace, start: Route, text: str) -> tuple[Change, ...] | None:
    """Return the differences, which are kept, as every proposal asks for those of all trials."""
    of_space = _DIFFERENCES.get(space)
    if of_space is None:
        of_space = _DIFFERENCES[space] = {}
    known = of_space.get(start)
    if known is None:
        known = of_space[start] = {}
    if text not in known:
        known[text] = _all_differences(space, start, text)
    return known[text]


def _all_differences(space: SearchSpace, start: Route, text: str) -> tuple[Change, ...] | None:
    """Return all changes from ``start`` to a route, or None if the route is none of the space's.

    What another knob switches off there is left out.
    """
    route = parsed(space, text)
    if route is None:
        return None
    here, there = start.values, route.values
    nested = ancestors_of(space)
    changes: list[Change] = []
    for name in sorted({*here, *there}):
        default = space.database[name].default
        value = there.get(name, default)
        if value == here.get(name, default):
            continue
        if name in nested and not space.is_active(name, route):
            continue
        changes.append((name, value))
    return tuple(changes)


def _switches_off(space: SearchSpace, group: Mapping[str, str], change: Change) -> bool:
    """Whether one of ``group`` makes ``change`` inactive, or the other way round."""
    nested = ancestors_of(space)
    if not nested:
        return False
    name, value = change
    if any(above in group and is_off(group[above]) for above in nested.get(name, ())):
        return True
    return is_off(value) and any(name in nested.get(other, ()) for other in group)


def _places_below(
    space: SearchSpace,
    start: Route,
    changes: dict[str, tuple[Change, ...]],
    found: _Findings,
) -> Iterator[_Place]:
    """Yield where to test knobs that are inactive at the start, the least nested first.

    Those that only need inert knobs switched on share one place, whose engine is the start's.
    """
    by_needs: dict[tuple[Change, ...], list[str]] = {}
    for name in space.variable:
        needs = switches_for(space, start, name, avoid=found.unbuildable)
        if needs:
            by_needs.setdefault(needs, []).append(name)
    in_order = sorted(by_needs, key=len)
    free = [needs for needs in in_order if all(change in found.inert for change in needs)]
    if free:
        together = tuple(dict.fromkeys(change for needs in free for change in needs))
        names = [name for needs in free for name in by_needs[needs]]
        yield _at(space, start, together, _changes_in_turn(changes, names))
    for needs in in_order:
        if needs not in free:
            yield _at(space, start, needs, _changes_in_turn(changes, by_needs[needs]))


def _at(
    space: SearchSpace, start: Route, needs: tuple[Change, ...], changes: tuple[Change, ...]
) -> _Place:
    return _Place(with_change(space, start, dict(needs)), changes, needs)


def _summary(
    space: SearchSpace,
    names: Iterable[str],
    changes: dict[str, tuple[Change, ...]],
    found: _Findings,
    records: Iterable[TrialRecord],
    proposal: Proposal | None,
) -> Screening:
    names = list(names)
    inert = [
        name
        for name in names
        if name not in found.live and all(change in found.inert for change in changes[name])
    ]
    settled = found.live | set(inert)
    return Screening(
        live=tuple(name for name in names if name in found.live),
        inert=tuple(inert),
        unknown=tuple(name for name in names if name not in settled),
        unbuildable=tuple(sorted(found.unbuildable)),
        inert_changes=frozenset(found.inert),
        builds_used=sum(
            record.phase is Phase.SCREENING
            and (record.build_s is not None or record.failure != "")
            for record in records
        ),
        one_at_a_time=sum(len(each) for each in changes.values()),
        next=proposal,
        promise=found.promise,
        size=found.size,
    )
