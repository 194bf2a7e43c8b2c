"""A prior in plain words."""

from __future__ import annotations

import math
from collections.abc import Iterator

from routewright.priors.learning import Belief, Beliefs
from routewright.priors.store import Loaded
from routewright.priors.suggestions import Suggestion
from routewright.priors.target import Source

_MOST_NAMED = 4


def summary(loaded: Loaded, beliefs: Beliefs) -> Iterator[str]:
    """Yield what was taken from where, how near it is, and what was dropped, one line each."""
    used, dropped = beliefs.choice.used, beliefs.choice.dropped
    if not used:
        reason = "nothing was learned yet" if not loaded.sources else "no source fits this model"
        yield f"prior: none, for {reason}"
    else:
        nearest = ", ".join(
            f"{s.evidence.origin.name} at {s.model_distance:.2f}" for s in used[:_MOST_NAMED]
        )
        more = f" and {len(used) - _MOST_NAMED} more" if len(used) > _MOST_NAMED else ""
        places = ", ".join(str(place) for place in loaded.places)
        plural = "study" if len(used) == 1 else "studies"
        yield (
            f"prior: {len(used)} {plural} from {places}; distance of their models, 0 alike to 1: "
            f"{nearest}{more}"
        )
    elsewhere = [s for s in used if s.environment_distance > 0]
    if elsewhere:
        remarks = list(dict.fromkeys(r for s in elsewhere for r in s.remarks))
        told = "; ".join(remarks[:_MOST_NAMED])
        yield f"prior: {len(elsewhere)} of them from another environment, so less sure: {told}"
    if dropped:
        told = "; ".join(f"{name}: {why}" for name, why in list(dropped.items())[:_MOST_NAMED])
        yield f"prior: dropped {len(dropped)} of {len(loaded.sources)} sources: {told}"
    if beliefs.unknown_knobs:
        names = list(beliefs.unknown_knobs)
        told = ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
        yield f"prior: dropped {len(names)} knobs that are not searched here: {told}"
    yield from loaded.notes


def describe_suggestion(suggestion: Suggestion) -> str:
    """Return a route and what is expected of it, in one line."""
    low, middle, high = (math.exp(suggestion.mean + z * suggestion.sd) for z in (-1.96, 0.0, 1.96))
    return (
        f"{suggestion.route} ({suggestion.why}): expected {middle:.3f} of the default's time "
        f"({low:.3f} to {high:.3f}), eligible with probability {suggestion.success:.2f}"
    )


def describe_belief(belief: Belief) -> Iterator[str]:
    """Yield why a setting is believed to do what it does, one line each."""
    if belief.effect is not None:
        low, middle, high = factor_interval(belief)
        yield (
            f"{belief.setting}: where it matters, {middle:.3f} of the time ({low:.3f} to "
            f"{high:.3f}) in one more study; studies scatter by about "
            f"{100 * belief.effect.between_sd:.1f}%"
        )
    else:
        yield f"{belief.setting}: no source timed it"
    yield (
        f"it alone changes the engine with probability {belief.live:.2f}, beside other settings "
        f"with {belief.matters:.2f}; a build fails through it with {belief.fails:.2f}"
    )
    if belief.loss is not None:
        yield (
            f"loss that it brings about: {10**belief.loss.mean:.1e} (a factor of "
            f"{10 ** (1.96 * belief.loss.sd):.1f} either way)"
        )
    for share in belief.shares:
        said = "did nothing there" if share.live == 0 else "not timed there"
        if share.effect is not None and share.effect_se is not None:
            said = f"{math.exp(share.effect):.3f} there, known to {100 * share.effect_se:.1f}%"
        yield f"  {share.source} (weight {share.weight:.2f}): {said}"


def describe_source(source: Source) -> str:
    """Return how near a source is, in one line."""
    origin = source.evidence.origin
    family = f", family {origin.family}" if origin.family else ""
    remarks = f"; {'; '.join(source.remarks)}" if source.remarks else ""
    return (
        f"{origin.name} ({origin.kind}{family}, {source.evidence.trials} trials): model at "
        f"{source.model_distance:.2f}, environment at {source.environment_distance:.2f}, weight "
        f"{source.weight:.2f}{remarks}"
    )


def factor_interval(belief: Belief) -> tuple[float, float, float]:
    """Return lower end, middle and upper end of the factor on the latency, 95%."""
    assert belief.effect is not None, "only for a setting that some source timed"
    mean, sd = belief.effect.mean, belief.effect.sd
    return math.exp(mean - 1.96 * sd), math.exp(mean), math.exp(mean + 1.96 * sd)
