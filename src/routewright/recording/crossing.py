"""Choosing what a table crosses: live knobs whose effects make the table worth searching.

Every value of every knob is tried alone, and again near a few changed routes, since knobs mask
each other. Values that change the engine are ranked by what they were measured to do to time and
to accuracy, and crossed, the largest first, as long as the number of distinct engines stays within
what is to be measured. Nothing here knows a knob by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from routewright.bounds import Limits
from routewright.choices import representatives
from routewright.recording.measuring import Built, Measuring
from routewright.routes import Route
from routewright.space import SearchSpace

_GAIN_WEIGHT = 3.0
"""What being faster counts for, against being slower by as much."""

_LOSS_WEIGHT = 0.05
"""What a tenfold loss counts for, as a share of the latency."""

_LARGEST_LOSS_DECADES = 2.0
_LARGEST_SLOWDOWN = 0.2
_LEAST_SCORE = 1e-4

_FURTHER_VALUES = 0.3
"""What a further value of a knob is worth beside one that is crossed already, as a share."""

_GROWTH_SAMPLE = 8
"""Routes from which it is judged how many engines a further value adds."""

_ENOUGH = 0.7
"""Share of the most engines that is enough to stop crossing."""

_ROUTES_PER_ENGINE = 3
"""Most routes of the crossing for each engine allowed."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Change:
    """One knob set to one value other than its default.

    Attributes:
        knob: Name of the knob.
        value: The value.
    """

    knob: str
    value: str


@dataclass
class Scan:
    """What single changes were seen to do.

    Attributes:
        live: Changes that made another engine somewhere, in the database's order.
        scores: How much each is worth crossing.
        contexts: The routes near which changes were tried, by name.
    """

    live: list[Change] = field(default_factory=list)
    scores: dict[Change, float] = field(default_factory=dict)
    contexts: dict[str, str] = field(default_factory=dict)


def scan(measuring: Measuring, space: SearchSpace, *, seed: int, say: Say) -> Scan:
    """Try every change alone and near other routes.

    Args:
        measuring: Builds and times, and remembers.
        space: The routes there are.
        seed: Seed of the random route that changes are tried near.
        say: Told what goes on.
    """
    changes = [
        Change(name, value)
        for name, values in space.variable.items()
        for value in representatives(values, space.database[name].default)
        if value != space.database[name].default
    ]
    found = Scan()
    live: set[Change] = set()
    gains = _try_near(measuring, space, "", changes, found, live, timing=True)
    say(f"{len(live)} of {len(changes)} values change the engine of the default route")

    improved = _improved_route(measuring, space, gains, measuring.limits)
    contexts = {"improved": improved}
    strongest = max(gains, key=lambda change: gains[change], default=None)
    if strongest is not None:
        contexts["strongest"] = str(_with(space, Route(), strongest))
    rng = np.random.default_rng([seed, 1])
    chosen = {
        change.knob: change.value for change in _in_order(live, changes) if rng.random() < 0.5
    }
    contexts["random"] = _canonical(space, chosen)
    for name, route in contexts.items():
        if route and route not in found.contexts.values():
            found.contexts[name] = route
            before = len(live)
            _try_near(measuring, space, route, changes, found, live, timing=name != "random")
            say(f"near the {name} route {route!r}: {len(live) - before} more")
    found.live = _in_order(live, changes)
    return found


def choose_crossing(
    measuring: Measuring,
    space: SearchSpace,
    found: Scan,
    *,
    most: int,
    seed: int,
    say: Say,
) -> SearchSpace:
    """Return the space to record: live values in order of worth, as many as give enough engines.

    Args:
        measuring: Builds, and remembers.
        space: The routes there are.
        found: What single changes do.
        most: Most distinct engines.
        seed: Seed of the routes by which growth is judged.
        say: Told what goes on.
    """
    chosen: dict[str, list[str]] = {}
    worth = {change: found.scores.get(change, 0.0) for change in found.live}
    engines, crossing = 1.0, SearchSpace(space.database, {}, space.pinned)
    while worth and engines < _ENOUGH * most:
        change = max(worth, key=lambda change: worth[change])
        values = chosen.get(change.knob, [space.database[change.knob].default])
        others = math.prod(len(listed) for name, listed in chosen.items() if name != change.knob)
        if others * (len(values) + 1) > _ROUTES_PER_ENGINE * most:
            del worth[change]
            continue
        share = _share_changed(measuring, space, chosen, change, seed=seed)
        grown = engines * (1 + share / len(values))
        rest = max((other for key, other in worth.items() if key != change), default=0.0)
        # What is hidden in most of the crossing waits for what shows everywhere.
        shown = share * found.scores.get(change, 0.0) * _FURTHER_VALUES ** (len(values) - 1)
        if share <= 0 or grown > most:
            del worth[change]
            continue
        if shown < rest and shown < worth[change]:
            worth[change] = shown
            continue
        say(
            f"crossing {change.knob}={change.value} (worth {shown:.3f}): about {grown:.0f} engines"
        )
        chosen[change.knob] = [*values, change.value]
        del worth[change]
        for other in worth:
            if other.knob == change.knob:
                worth[other] *= _FURTHER_VALUES
        engines = grown
        crossing = _crossing_of(space, chosen)
        if engines >= _ENOUGH * most:
            engines = _count_engines(measuring, crossing)
            say(f"{crossing.size} routes gave {engines:.0f} engines")
    return crossing


def _crossing_of(space: SearchSpace, chosen: Mapping[str, Sequence[str]]) -> SearchSpace:
    return SearchSpace(
        space.database,
        {
            name: [value for value in space.variable[name] if value in chosen[name]]
            for name in space.variable
            if name in chosen
        },
        space.pinned,
    )


def _count_engines(measuring: Measuring, crossing: SearchSpace) -> int:
    return len({measuring.route(str(route)).fingerprint for route in crossing.enumerate()})


def inert_in_crossing(
    measuring: Measuring,
    space: SearchSpace,
    crossing: SearchSpace,
    suspects: Sequence[str],
    *,
    routes: int,
    seed: int,
    say: Say,
) -> list[str]:
    """Return the knobs of ``suspects`` that change no engine anywhere in the crossing.

    Random values of all of them are set on random routes of the crossing; where the engine
    differs from the route's own, the one at fault is found by halves and taken out.

    Args:
        measuring: Builds, and remembers.
        space: The routes there are.
        crossing: The routes that are recorded.
        suspects: Knobs thought inert.
        routes: Routes in a row that must agree.
        seed: Seed of the routes.
        say: Told what goes on.
    """
    inert = list(suspects)
    rng = np.random.default_rng([seed, 3])
    agreed = 0
    while inert and agreed < routes:
        base = crossing.random_route(rng)
        flips = _random_flips(space, inert, rng)
        culprits = _culprits(measuring, space, base, flips)
        agreed = 0 if culprits else agreed + 1
        for name in culprits:
            inert.remove(name)
            say(f"{name} is live where {str(base)!r} is the rest of the route; it is left out")
    return inert


def _try_near(
    measuring: Measuring,
    space: SearchSpace,
    route: str,
    changes: Sequence[Change],
    found: Scan,
    live: set[Change],
    *,
    timing: bool,
) -> dict[Change, float]:
    """Make each change near ``route``; return the size of each effect on time where timed."""
    database = space.database
    base_route = Route.parse(route, database)
    kind = "quick" if timing else ""
    base = measuring.route(route, timing=kind)
    effects: dict[Change, float] = {}
    for change in changes:
        if base_route.values.get(change.knob, database[change.knob].default) == change.value:
            continue
        changed = _with(space, base_route, change)
        if changed is None:
            continue
        built = measuring.route(str(changed), checked=False)
        if built.fingerprint == base.fingerprint and not built.failure:
            continue
        live.add(change)
        if not timing:
            continue
        built = measuring.route(str(changed), timing=kind)
        effects[change] = _weigh(measuring, base, built, change, found)
    return effects


def _weigh(measuring: Measuring, base: Built, built: Built, change: Change, found: Scan) -> float:
    """Add to the change's score what it did here; return how much it changed the latency."""
    if built.failure or base.failure:
        found.scores[change] = max(found.scores.get(change, 0.0), _LEAST_SCORE)
        return 0.0
    ratio, error = measuring.timed[str(built.fingerprint)]
    base_ratio, base_error = measuring.timed[str(base.fingerprint)]
    effect, doubt = ratio - base_ratio, 2 * math.hypot(error, base_error)
    eligible = measuring.limits.judge(built.losses).eligible
    gain = max(-effect - doubt, 0.0) if eligible else 0.0
    slowdown = min(max(effect - doubt, 0.0), _LARGEST_SLOWDOWN)
    decades = _loss_decades(base.losses, built.losses)
    score = _GAIN_WEIGHT * gain + slowdown + _LOSS_WEIGHT * decades + _LEAST_SCORE
    found.scores[change] = max(found.scores.get(change, 0.0), score)
    return max(abs(effect) - doubt, 0.0)


def _loss_decades(base: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Return over how many powers of ten the loss moved; tiny losses are all alike."""

    def size(losses: Mapping[str, float]) -> float:
        worst = max(losses.values(), default=math.inf)
        return math.log10(min(max(worst, 1e-6), 1e6))

    return min(abs(size(other) - size(base)), _LARGEST_LOSS_DECADES)


def _improved_route(
    measuring: Measuring, space: SearchSpace, effects: Mapping[Change, float], limits: Limits
) -> str:
    """Return a route of changes that made the default route faster, all eligible together."""
    default = measuring.built[""]
    ratio_of = measuring.timed
    gains: dict[Change, float] = {}
    for change in effects:
        changed = _with(space, Route(), change)
        built = measuring.built[str(changed)]
        if built.failure or not limits.judge(built.losses).eligible:
            continue
        effect = ratio_of[str(built.fingerprint)][0] - ratio_of[str(default.fingerprint)][0]
        if effect < -0.005:
            gains[change] = effect
    values: dict[str, str] = {}
    for change in sorted(gains, key=lambda change: gains[change]):
        if change.knob in values:
            continue
        tried = _canonical(space, values | {change.knob: change.value})
        built = measuring.route(tried)
        if not built.failure and limits.judge(built.losses).eligible:
            values[change.knob] = change.value
    return _canonical(space, values)


def _share_changed(
    measuring: Measuring,
    space: SearchSpace,
    chosen: Mapping[str, Sequence[str]],
    change: Change,
    *,
    seed: int,
) -> float:
    """Return in what share of the crossing the change makes another engine."""
    rng = np.random.default_rng([seed, 2, len(chosen)])
    changed = tried = 0
    for _ in range(_GROWTH_SAMPLE):
        values = {
            name: listed[int(rng.integers(len(listed)))]
            for name, listed in chosen.items()
            if name != change.knob
        }
        before = measuring.route(_canonical(space, values), checked=False)
        after = measuring.route(
            _canonical(space, values | {change.knob: change.value}), checked=False
        )
        tried += 1
        changed += after.fingerprint != before.fingerprint or after.failure != before.failure
    return changed / tried


def _random_flips(
    space: SearchSpace, names: Sequence[str], rng: np.random.Generator
) -> dict[str, str]:
    flips: dict[str, str] = {}
    for name in names:
        if rng.random() < 0.5:
            default = space.database[name].default
            others = [v for v in representatives(space.variable[name], default) if v != default]
            flips[name] = others[int(rng.integers(len(others)))]
    return flips


def _culprits(
    measuring: Measuring, space: SearchSpace, base: Route, flips: Mapping[str, str]
) -> list[str]:
    """Return the knobs whose flips change the engine of ``base``, found by halves."""
    own = measuring.route(str(base), checked=False)

    def differs(names: Sequence[str]) -> bool:
        values = dict(base.values) | {name: flips[name] for name in names}
        built = measuring.route(_canonical(space, values), checked=False)
        return built.fingerprint != own.fingerprint or built.failure != own.failure

    def search(names: Sequence[str]) -> list[str]:
        if not names or not differs(names):
            return []
        if len(names) == 1:
            return list(names)
        half = len(names) // 2
        found = search(names[:half]) + search(names[half:])
        # Only together do they change it: none of them can stay.
        return found or list(names)

    return search(list(flips))


def _with(space: SearchSpace, route: Route, change: Change) -> Route | None:
    """Return the route with the change, or None where the knob is inactive in it."""
    values = dict(route.values) | {change.knob: change.value}
    changed = _canonical(space, values)
    parsed = Route.parse(changed, space.database)
    return parsed if parsed.values.get(change.knob) == change.value else None


def _canonical(space: SearchSpace, values: Mapping[str, str]) -> str:
    """Return the route of these values as text, inactive knobs left at their defaults."""
    params = {
        name: values.get(name, space.database[name].default)
        for name, listed in space.variable.items()
        if values.get(name, space.database[name].default) in listed
    }
    return str(space.route(params))


def _in_order(live: set[Change], changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change in live]
