"""What each search method takes from trials that were not timed to the end.

Samplers differ in this, and a comparison that hid it would be unfair: Optuna's samplers ignore
failed trials, and some ignore pruned ones. :mod:`routewright.search.optuna_adapter` shows each the
form that it learns from.
"""

from __future__ import annotations

from collections.abc import Mapping

_OPTUNA = "of a timing that ended early the time so far; nothing of builds for a fingerprint only"

SEES: Mapping[str, str] = {
    "staged": "screening by fingerprints, failed builds included; then as `tpe`",
    "auto": "screening by fingerprints, failed builds included; then as `surrogate`",
    "surrogate": "losses as amounts, failures, build seconds, and the time so far of a timing "
    "that ended early with its wider interval",
    "fast": "only which routes were tried",
    "full": "only which routes were tried",
    "mixed": "whether a knob's change alone is eligible and its interval below 1",
    "mixed-trtexec": "whether a knob's change alone took fewer ms than the baseline; a route that "
    "breaks the bound has no time here",
    "random": "nothing; a route tried before is not drawn again",
    "tpe": "a broken bound as pruned with its amount, a failure as pruned with the worst amount; "
    f"{_OPTUNA}",
    "gp": "a broken bound and a failure as complete, without gain, with the amount as constraint; "
    f"{_OPTUNA}",
}
"""By the sampler's name."""

OWN = (
    "your own class: as the class takes it; an Optuna sampler sees a broken bound and a failure "
    "as complete, without gain, with the amount as constraint"
)
"""What is said of a sampler that is not in :data:`SEES`."""


def sees(sampler: str) -> str:
    """Return what a sampler takes from trials that were not timed to the end."""
    return SEES.get(sampler, OWN)
