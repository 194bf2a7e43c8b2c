"""A few routes that a prior believes in, unlike each other, to be tried after the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.special import ndtr

from routewright.priors.learning import Belief, Beliefs
from routewright.priors.losses import NO_LOSS
from routewright.routes import Route
from routewright.search.candidates import base_route, generator, with_change
from routewright.space import SearchSpace

MOST_ROUTES = 4

_MOST_SETTINGS = 10
_LEAST_GAIN = 0.005
"""A route is worth a build if it is expected to gain this much, on the log scale."""

LEAST_TIMED = 0.3
"""What the sources that timed a setting must count together for it to be suggested."""

_LEAST_Z = 0.6
"""A route is worth a build if zero gain lies this many standard deviations off."""

_SURE = 0.75
"""A setting is considered if it helps with at least this probability."""

_SAFE = 0.9
_UNKNOWN_OK = 0.9
"""Probability that a setting whose loss no source measured keeps the bound."""

_NO_LOSS = 1e3 * NO_LOSS
_DRAWS = 12


@dataclass(frozen=True)
class Suggestion:
    """A route and what the prior expects of it.

    Attributes:
        route: The route.
        settings: The settings in it.
        mean: Expected log relative latency.
        sd: Its standard deviation.
        success: Probability that it builds and keeps the accuracy bound.
        why: In words.
    """

    route: Route
    settings: tuple[str, ...]
    mean: float
    sd: float
    success: float
    why: str

    @property
    def worth(self) -> float:
        """Expected gain on the log scale, nothing gained where it fails."""
        return -self.mean * self.success


def suggest(beliefs: Beliefs, space: SearchSpace, *, seed: int = 0) -> list[Suggestion]:
    """Return up to :data:`MOST_ROUTES` routes, the most promising first.

    They are: the settings that promise most together, the accuracy bound in mind; the same
    without what is least sure to keep the bound; the best setting alone; and what looks best if
    the beliefs are off by as much as they may be (draws from them).

    Args:
        beliefs: What is believed.
        space: The routes to choose from.
        seed: Seed of the draws.
    """
    helpful = [
        belief
        for (knob, value), belief in beliefs.settings.items()
        if knob in space.variable and value in space.variable[knob] and _helps(belief)
    ]
    helpful.sort(key=lambda belief: (belief.expected, belief.setting))
    found: list[Suggestion] = []

    def add(chosen: Sequence[Belief], why: str) -> None:
        suggestion = _suggestion(beliefs, space, chosen, why)
        known = {each.route for each in found}
        if suggestion is None or suggestion.route in known or suggestion.worth < _LEAST_GAIN:
            return
        if suggestion.mean > -_LEAST_Z * suggestion.sd:
            return
        if len(found) < MOST_ROUTES:
            found.append(suggestion)

    best = _grown(beliefs, helpful)
    add(best, "what promises most together")
    if not found:
        return []
    add([b for b in best if success_of(beliefs, [b]) >= _SAFE], "its safest settings")
    alone = max(helpful, key=lambda b: (-b.expected * success_of(beliefs, [b]), b.setting))
    add([alone], "the best setting alone")
    rng = generator(seed, "prior", len(helpful))
    for _ in range(_DRAWS):
        drawn = rng.normal([b.expected for b in helpful], [b.sd for b in helpful])
        better = [b for b, value in zip(helpful, drawn, strict=True) if value < -_LEAST_GAIN]
        chosen = _grown(beliefs, better)
        if all(_apart(chosen, each.settings) >= 2 for each in found):
            add(chosen, "what may well be best")
    return found


def success_of(beliefs: Beliefs, chosen: Iterable[Belief]) -> float:
    """Return the probability that a route of these settings builds and keeps the bound.

    Losses add up; their sum is taken as log-normal (delta method).
    """
    probability = 1.0
    losses: list[tuple[float, float]] = []
    for belief in chosen:
        probability *= 1.0 - belief.fails
        if belief.loss is not None:
            losses.append((10.0**belief.loss.mean, belief.loss.sd))
        elif math.isfinite(beliefs.target.limit):
            probability *= _UNKNOWN_OK
    total = sum(loss for loss, _ in losses)
    limit = beliefs.target.limit
    if not math.isfinite(limit) or total <= _NO_LOSS:
        return probability
    if limit <= 0.0:
        return 0.0
    sd = math.sqrt(sum((loss / total * sd) ** 2 for loss, sd in losses))
    return probability * float(ndtr((math.log10(limit) - math.log10(total)) / max(sd, 0.05)))


def _helps(belief: Belief) -> bool:
    if belief.effect is None or belief.expected >= -_LEAST_GAIN / 2:
        return False
    if belief.timed < LEAST_TIMED:
        return False
    return bool(ndtr(-belief.effect.mean / belief.effect.sd) >= _SURE)


def _grown(beliefs: Beliefs, helpful: Sequence[Belief]) -> list[Belief]:
    """Add the setting that makes the route worth most, as long as one makes it worth more."""
    chosen: list[Belief] = []
    worth = 0.0
    while len(chosen) < _MOST_SETTINGS:
        taken = {belief.knob for belief in chosen}
        open_ = [belief for belief in helpful if belief.knob not in taken]
        gains = [_worth(beliefs, [*chosen, belief]) for belief in open_]
        if not gains or max(gains) <= worth:
            break
        worth = max(gains)
        chosen.append(open_[gains.index(worth)])
    return chosen


def _worth(beliefs: Beliefs, chosen: Sequence[Belief]) -> float:
    """Return the expected gain of a route on the log scale, nothing gained where it fails."""
    return -_moments(beliefs, chosen)[0] * success_of(beliefs, chosen)


def _moments(beliefs: Beliefs, chosen: Sequence[Belief]) -> tuple[float, float]:
    """Return mean and standard deviation of a route's log relative latency."""
    names = {belief.setting for belief in chosen}
    joint = [p for pair, p in beliefs.pairs.items() if names.issuperset(pair)]
    mean = sum(b.expected for b in chosen) + sum(p.mean for p in joint)
    variance = sum(b.sd**2 for b in chosen) + sum(p.sd**2 for p in joint)
    return mean, math.sqrt(variance)


def _suggestion(
    beliefs: Beliefs, space: SearchSpace, chosen: Sequence[Belief], why: str
) -> Suggestion | None:
    if not chosen:
        return None
    route = with_change(space, base_route(space), {b.knob: b.value for b in chosen})
    values = route.values
    # What another knob switches off has no effect and is not counted.
    kept = [belief for belief in chosen if values.get(belief.knob) == belief.value]
    if not kept:
        return None
    mean, sd = _moments(beliefs, kept)
    settings = tuple(belief.setting for belief in kept)
    return Suggestion(route, settings, mean, sd, success_of(beliefs, kept), why)


def _apart(chosen: Sequence[Belief], settings: Sequence[str]) -> int:
    return len({belief.setting for belief in chosen} ^ set(settings))
