"""From what a user says about a prior to a study that starts from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from routewright.priors.explanation import summary
from routewright.priors.learning import Beliefs, form_beliefs
from routewright.priors.store import Loaded
from routewright.priors.target import Target
from routewright.priors.warmstart import WarmStart
from routewright.space import SearchSpace


@dataclass(frozen=True)
class Start:
    """A prior that was asked about a study.

    Attributes:
        warm: What the study starts from; None where no source fits.
        notes: What was taken and what was dropped, one line each.
        used: The sources that were used, as a prior of their own.
        beliefs: What they say.
    """

    warm: WarmStart | None
    notes: tuple[str, ...]
    used: Loaded
    beliefs: Beliefs


def start_from(loaded: Loaded, target: Target, space: SearchSpace, *, seed: int) -> Start:
    """Return what a study of ``target`` starts from."""
    beliefs: Beliefs = form_beliefs(loaded.sources, target)
    sources = [source.evidence for source in beliefs.choice.used]
    warm = WarmStart.of(beliefs, space, seed=seed) if sources else None
    notes = tuple(summary(loaded, beliefs))
    if warm is not None:
        count = len(warm.suggestions)
        routes = "no route" if not count else "1 route" if count == 1 else f"{count} routes"
        rest = ", as long as they keep what it promises" if count else ""
        notes = (*notes, f"prior: {routes} to try first{rest}")
    return Start(warm, notes, replace(loaded, sources=sources), beliefs)
