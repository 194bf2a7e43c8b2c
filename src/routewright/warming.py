"""A tuning's use of priors: which one to ask, what it is asked, and its routes one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from routewright.environment import identifying
from routewright.errors import RoutewrightError
from routewright.outfolder import PRIOR_FILE
from routewright.preparation import Prepared
from routewright.priors.features import ModelFeatures
from routewright.priors.sources import (
    BUILT_BY,
    FEATURES,
    FEWEST_TRIALS,
    evidence_of_study,
    model_features,
)
from routewright.priors.starting import Start, start_from
from routewright.priors.store import NONE, Loaded, load, remember
from routewright.priors.tables import replayed
from routewright.priors.target import Target
from routewright.priors.warmstart import WarmStart, origin_of
from routewright.search.base import Proposal
from routewright.settings import TuneSettings
from routewright.space import SearchSpace
from routewright.study import StudyLog


def chosen_prior(settings: TuneSettings, *, resume: bool) -> Loaded | None:
    """Return the prior to ask; a resumed study asks the one that it started from.

    Raises:
        PriorError: The user named one that cannot be read.
    """
    if settings.prior == NONE:
        return None
    if resume and settings.out is not None:
        kept = Path(settings.out) / PRIOR_FILE
        return load(str(kept)) if kept.exists() else None
    return load(settings.prior)


@dataclass(frozen=True)
class Described:
    """What priors go by, worked out from the model or its table; that takes a while.

    Attributes:
        backend: The backend that builds the engines, or built the table's.
        features: The model's features; None where its graph cannot be described.
    """

    backend: str
    features: ModelFeatures | None

    @classmethod
    def of(cls, settings: TuneSettings, prepared: Prepared) -> Described:
        """Describe what is tuned."""
        subject = prepared.subject
        if subject.simulated:
            backend, _, features = replayed(subject.path)
            return cls(backend, features)
        return cls(settings.backend, model_features(subject.path, subject.shapes))


def warm_start(
    prior: Loaded, settings: TuneSettings, prepared: Prepared, described: Described
) -> Start:
    """Ask a prior about a study that is about to begin."""
    target = Target(
        backend=described.backend,
        database=prepared.database,
        features=described.features,
        model_sha256=prepared.subject.sha256,
        family=settings.family or "",
        environment=identifying(prepared.environment),
        loss=prepared.limits.loss,
        limit=min(prepared.limits.thresholds.values(), default=math.inf),
    )
    return start_from(prior, target, prepared.space, seed=settings.seed)


def note_features(log: StudyLog, settings: TuneSettings, described: Described) -> None:
    """Keep with the study what priors need to know, so that the model need not be found again."""
    if described.features is not None:
        log.note(FEATURES, described.features.to_dict())
    if described.backend != settings.backend:
        log.note(BUILT_BY, described.backend)


def enqueue_next(
    warm: WarmStart, log: StudyLog, space: SearchSpace, fits: Callable[[Proposal], bool]
) -> None:
    """Enqueue the prior's next route, as long as results keep what the prior promised."""
    if log.has_waiting:
        return
    suggestion = warm.next_route(log.history())
    if suggestion is not None and fits(Proposal(suggestion.route)):
        log.enqueue([suggestion.route], space, origin=origin_of(suggestion))


def learned(log: StudyLog, settings: TuneSettings) -> str:
    """Add a finished study to the user's own priors, and return what to say about it.

    The study has its result by now, so what goes wrong here is no more than said.
    """
    try:
        evidence = evidence_of_study(log.study, family=settings.family or "")
        if evidence.trials < FEWEST_TRIALS:
            return f"not added to your priors: fewer than {FEWEST_TRIALS} trials say nothing"
        return f"added to the priors in {remember(evidence)}"
    except RoutewrightError as error:
        return f"not added to your priors: {error}"
