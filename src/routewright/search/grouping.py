"""Group testing: what results of groups say about their members, and which group to test next.

Knows nothing of routes: a *change* is a knob and the value it is set to, a group is a set of
changes of different knobs that are built together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from routewright.search.candidates import Change
from routewright.search.rates import Rates

CanJoin = Callable[[Mapping[str, str], Change], bool]
"""Whether a change can be tested together with a group, given as value by knob."""

_SINGLE = (3 - 5**0.5) / 2
"""From this probability on, testing changes one by one takes the fewest builds."""

_SMALL = 8
_SINGLE_OF_SMALL = 0.2
"""In families of so few changes, changes are tested one by one from this probability on.

It costs a build or two, but the time of a change alone says what the change does, whereas a good
one next to a bad one would be overlooked for long.
"""

_OFTEN = 0.1
"""From this probability on, a group is of one family: what is found says something of it alone."""

_MOST_LOST = 2
_MOST_LOST_SHARE = 0.05
"""How many builds groups may lose against testing one by one before that is done instead, and how
many more for each change that is still open, since groups may make good for it.

Less would end many a screening of few live knobs at its first unlucky groups.
"""

_SLOWER = 0.01
"""A live group that is slower by this much, on the log scale, is split after all else."""


@dataclass
class GroupTests:
    """Results of groups, and what follows from them.

    Attributes:
        changes: Everything to be tested, in the order in which to group it.
        probability: How likely a change is to be live, where that is known beforehand.
        family: The family of each change, whose members share a rate; ``""`` where not given.
        live_knobs: Knobs that are known to be live.
        builds: How many groups were built to get here.
        inert: Changes known to be inert.
        live: Changes known to be live.
        unbuildable: Changes that alone make a build fail.
        open: Changes about which nothing is known, as far as their knob is not live.
        suspects: Groups that are live for a reason not yet found, inert changes taken out; the
            promising first.
        hopeless: Those of the suspects that were slower than the start.
        to_blame: Groups that cannot be built for a reason not yet found, changes that were part
            of a build taken out.
    """

    changes: Sequence[Change]
    probability: Mapping[Change, float] = field(default_factory=dict)
    family: Mapping[Change, str] = field(default_factory=dict)
    live_knobs: set[str] = field(default_factory=set)
    builds: int = 0
    inert: set[Change] = field(default_factory=set)
    live: set[Change] = field(default_factory=set)
    unbuildable: set[Change] = field(default_factory=set)
    open: list[Change] = field(default_factory=list)
    suspects: list[list[Change]] = field(default_factory=list)
    hopeless: list[list[Change]] = field(default_factory=list)
    to_blame: list[list[Change]] = field(default_factory=list)
    _live_groups: list[frozenset[Change]] = field(default_factory=list)
    _log_ratios: dict[frozenset[Change], float] = field(default_factory=dict)
    _failed_groups: list[frozenset[Change]] = field(default_factory=list)
    _running: set[Change] = field(default_factory=set)

    def add_inert(self, group: Iterable[Change]) -> None:
        """Add a group that was built and left the engine as it was."""
        self.inert.update(group)

    def add_live(self, group: Iterable[Change], log_ratio: float | None = None) -> None:
        """Add a group that was built and gave another engine.

        Args:
            group: The group.
            log_ratio: How fast its engine is, or None if it was not timed.
        """
        members = frozenset(group)
        self._live_groups.append(members)
        if log_ratio is not None:
            self._log_ratios[members] = log_ratio

    def add_failed(self, group: Iterable[Change]) -> None:
        """Add a group that could not be built."""
        self._failed_groups.append(frozenset(group))

    def add_running(self, group: Iterable[Change]) -> None:
        """Add a group that is being built; its members are left alone until then."""
        self._running.update(group)

    def conclude(self) -> None:
        """Work out everything that follows from the groups added."""
        order = {change: position for position, change in enumerate(self.changes)}
        for group in self._live_groups:
            rest = group - self.inert
            if len(rest) == 1:
                self.live |= rest
        self.live_knobs |= {name for name, _ in self.live}
        built = self.inert.union(*self._live_groups)
        # What remains of a failed group is not blamed unseen: two changes may only fail together.
        for group in self._failed_groups:
            if len(group) == 1:
                self.unbuildable |= group

        def is_explained(change: Change) -> bool:
            return change[0] in self.live_knobs

        def in_order(group: Iterable[Change]) -> list[Change]:
            return sorted((c for c in group if c in order), key=order.__getitem__)

        worth: dict[frozenset[Change], float] = {}
        for group in self._live_groups:
            rest = group - self.inert
            # Where another change may be the live one, the group says little of those to test.
            if len(rest) > 1 and rest <= order.keys() and not any(map(is_explained, rest)):
                worth[rest] = min(worth.get(rest, math.inf), self._log_ratios.get(group, 0.0))
        blame = {group - built for group in self._failed_groups}
        blame = {rest for rest in blame if rest <= order.keys()}

        def by_size(group: Collection[Change]) -> tuple[int, list[int]]:
            return len(group), sorted(order[change] for change in group)

        ranked = sorted(worth, key=lambda rest: (worth[rest], by_size(rest)))
        self.suspects = [in_order(rest) for rest in ranked]
        self.hopeless = [in_order(rest) for rest in ranked if worth[rest] > _SLOWER]
        self.to_blame = [
            in_order(rest)
            for rest in sorted(blame, key=by_size)
            if rest and not rest & self.unbuildable
        ]
        self.open = [
            change
            for change in self.changes
            if change not in self.inert
            and change not in self.unbuildable
            and not is_explained(change)
        ]

    def would_fail(self, group: Iterable[Change]) -> bool:
        """Whether ``group`` holds all of a group that is known not to build."""
        if not self._failed_groups:
            return False
        members = set(group)
        return any(failed and failed <= members for failed in self._failed_groups)

    def is_running(self, change: Change) -> bool:
        """Whether a group with this change is being built."""
        return change in self._running

    @property
    def lost(self) -> int:
        """How many builds were lost so far against testing one by one.

        Each suspected group will tell its last member for nothing, so it counts as one gained.
        """
        return self.builds - len(self.inert) - len(self.live) - len(self.suspects)

    def rates(self) -> Rates:
        """Return how likely changes are to be live by what is known so far."""
        return Rates(
            {change: self.family.get(change, "") for change in self.changes},
            self.probability,
            live=self.live,
            inert=self.inert,
            suspects=self.suspects,
        )


@dataclass(frozen=True, slots=True)
class Group:
    """A group to test, and why.

    Attributes:
        changes: The group.
        reason: Why it is tested.
        promise: How many live changes each build will have found, about, once the group and its
            parts are tested.
    """

    changes: tuple[Change, ...]
    reason: str
    promise: float = 0.0


def next_group(
    tests: GroupTests, *, can_join: CanJoin, is_new: Callable[[Sequence[Change]], bool]
) -> Group | None:
    """Return the group whose build says most, or None when there is none.

    Args:
        tests: What is known, after :meth:`GroupTests.conclude`.
        can_join: Whether a change can be tested together with a group.
        is_new: Whether a group's route has not been built yet.
    """
    rates = tests.rates()
    for group in tests.to_blame:
        half = _compatible(tests, group, can_join)[: max(len(group) // 2, 1)]
        if half and is_new(half):
            return Group(tuple(half), "part of a group that does not build")

    def part_of(groups: Iterable[Sequence[Change]], reason: str) -> Group | None:
        for group in groups:
            usable = _compatible(tests, rates.ranked(group), can_join)
            part = _informative(tests, usable[: len(group) - 1], rates, all_of=group)
            if part and is_new(part):
                return Group(tuple(part), reason, 1.0 / (1.0 + math.log2(len(group))))
        return None

    promising = [group for group in tests.suspects if group not in tests.hopeless]
    found = part_of(promising, "part of a live group")
    if found is not None:
        return found
    suspected = {name for group in tests.suspects for name, _ in group}
    ranked = rates.ranked([change for change in tests.open if change[0] not in suspected])
    part = _informative(tests, _compatible(tests, ranked, can_join), rates)
    if part and is_new(part):
        return Group(tuple(part), _described(part), _promise(part, rates))
    found = part_of(tests.hopeless, "part of a live, slower group")
    if found is not None:
        return found
    for change in [*ranked, *(change for change in tests.open if change[0] in suspected)]:
        if not tests.is_running(change) and not tests.would_fail([change]) and is_new([change]):
            return Group((change,), "one change alone", _promise([change], rates))
    return None


def _promise(part: Sequence[Change], rates: Rates) -> float:
    expected = sum(map(rates.of, part))
    return expected / (1.0 + expected * math.log2(len(part)))


def _described(part: Sequence[Change]) -> str:
    return "one change alone" if len(part) == 1 else f"{len(part)} changes at once"


def _compatible(tests: GroupTests, changes: Iterable[Change], can_join: CanJoin) -> list[Change]:
    """Return the changes that can be built together, one of each knob, the earlier first."""
    chosen: dict[str, str] = {}
    for change in changes:
        if change[0] in chosen or tests.is_running(change) or not can_join(chosen, change):
            continue
        if not tests.would_fail([*chosen.items(), change]):
            chosen[change[0]] = change[1]
    return list(chosen.items())


def _informative(
    tests: GroupTests,
    ranked: Sequence[Change],
    rates: Rates,
    all_of: Sequence[Change] | None = None,
) -> list[Change]:
    """Return the leading changes whose joint result is nearest to a toss of a coin.

    Args:
        tests: What is known.
        ranked: The changes to take from.
        rates: How likely changes are to be live.
        all_of: A group known to be live that they are part of, or None.
    """
    if not ranked:
        return []
    most_lost = _MOST_LOST + _MOST_LOST_SHARE * len(tests.open)
    likely = rates.of(ranked[0])
    family = tests.family.get(ranked[0], "")
    is_small = sum(each == family for each in tests.family.values()) <= _SMALL
    single = _SINGLE_OF_SMALL if is_small else _SINGLE
    if tests.lost >= most_lost or (all_of is None and likely >= single):
        return [ranked[0]]
    if likely >= _OFTEN:
        ranked = [change for change in ranked if tests.family.get(change, "") == family]
    certain = 1.0 if all_of is None else 1.0 - rates.all_inert(all_of)[-1]
    live = (1.0 - rates.all_inert(ranked)) / max(certain, 1e-12)
    return list(ranked[: int(np.argmin(np.abs(live - 0.5))) + 1])
