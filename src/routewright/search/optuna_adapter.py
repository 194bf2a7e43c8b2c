"""Any Optuna sampler as a search method.

An Optuna sampler sees a *shadow study*: an in-memory study that holds one trial for each route of
the history, in the form that this sampler learns from. The real study cannot serve, for samplers
differ in what they read: TPE learns from pruned trials, the Gaussian process and random search
ignore them, and all ignore failed ones, so that they would ask for crashing routes for ever. How
each outcome is shown:

========================== ============================ ===================================
outcome                    ``Form.PRUNED`` (TPE)        ``Form.COMPLETE`` (GP and others)
========================== ============================ ===================================
timed, slow, or reused     complete, log relative       the same
from one of these          latency
breaks the bound           pruned, constraint           complete, constraint ``log1p`` of
                           violation                    the violation, value 0 (no gain)
failed                     pruned, the worst            complete, a constraint of 1 more
                           violation there is           than the worst seen, value 0
built for its fingerprint  not shown: nothing is        not shown
only                       known of its speed
being tried elsewhere      running                      running
========================== ============================ ===================================

With ``Form.NOTHING`` the study stays empty, for samplers that learn nothing. Results of a route
that was measured more than once are pooled, each weighted by its interval. A log ratio of 0 is
the default route's speed.
"""

from __future__ import annotations

import logging
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from routewright.records import WORST_VIOLATION
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler
from routewright.search.candidates import generator, unseen_neighbour, unseen_random
from routewright.search.observations import Observation, observations_of
from routewright.space import SearchSpace

CONSTRAINT = "bound"
"""Name of the constraint in the shadow study."""

_ASKS = 5
"""How often a sampler is asked before a repeated route is replaced."""

SamplerFactory = Callable[[int], BaseSampler]
"""Makes the Optuna sampler from a seed."""


class Form(StrEnum):
    """How results without a usable time are shown to a sampler."""

    PRUNED = "pruned"
    """As pruned trials with a constraint."""
    COMPLETE = "complete"
    """As complete trials with a constraint and the default route's value."""
    NOTHING = "nothing"
    """No result is shown."""


class OptunaRouteSampler(RouteSampler):
    """Runs an Optuna sampler on a shadow study.

    Proposals are a function of the space, the seed and the history: the sampler is made anew for
    each, with a seed that follows from the study's seed and the number of routes known.

    Args:
        space: The routes to choose from.
        seed: Seed of every random choice.
        make_sampler: Makes the Optuna sampler.
        form: What the sampler learns from.
        takes_categories: Whether the sampler's own model takes every kind of parameter, so that it
            need not search the study for those it can handle.
        name: Name of the search method.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        make_sampler: SamplerFactory,
        form: Form = Form.COMPLETE,
        takes_categories: bool = False,
        name: str = "",
    ) -> None:
        super().__init__(space, seed=seed)
        self.name = name
        self._make_sampler = make_sampler
        self._form = form
        self._takes_categories = takes_categories
        self._shadow = _ShadowStudy(space, form)

    def propose(self, history: History) -> Proposal | None:
        """Return the sampler's next route that is new, or None when the space is used up."""
        seen = history.tried()
        self._shadow.update(history)
        route = self._space_route(0, len(seen))
        for attempt in range(1, _ASKS):
            if str(route) not in seen:
                break
            route = self._space_route(attempt, len(seen))
        if str(route) not in seen:
            return Proposal(route, origin=f"{self.name or 'optuna'}")
        rng = generator(self.seed, "repeat", len(seen))
        nearby = unseen_neighbour(self.space, route, seen, rng)
        if nearby is not None:
            return Proposal(nearby, origin=f"{self.name}: beside a route that it repeated")
        other = unseen_random(self.space, seen, rng)
        if other is None:
            return None
        return Proposal(other, origin=f"{self.name}: random, for it repeated a route")

    def _space_route(self, attempt: int, known: int) -> Route:
        seed = int(generator(self.seed, known, attempt).integers(2**31))
        with _without_warnings():
            sampler = self._make_sampler(seed)
            params = self._shadow.ask(sampler, takes_categories=self._takes_categories)
        return self.space.route(params)


class _ShadowStudy:
    """One trial for each route of a history, in an Optuna study of its own."""

    def __init__(self, space: SearchSpace, form: Form) -> None:
        self._space = space
        self._form = form
        self._distributions = space.distributions()
        self._searched = {
            name: distribution
            for name, distribution in sorted(self._distributions.items())
            if not distribution.single()
        }
        self._clear()

    def update(self, history: History) -> None:
        """Bring the study up to date with a history."""
        shown = [] if self._form is Form.NOTHING else self._shown(history)
        if any(self._added.get(item.route, item) != item for item in shown):
            # A finished trial cannot be changed, so one that was measured again is shown anew.
            self._clear()
        wanted = {item.route for item in shown}
        if any(route not in wanted for route in self._added):
            self._clear()
        for item in shown:
            if item.route not in self._added:
                self._study.add_trial(self._finished(item))
                self._added[item.route] = item
        self._show_running(history.running)

    def ask(self, sampler: BaseSampler, *, takes_categories: bool) -> dict[str, Any]:
        """Return the parameters that ``sampler`` proposes; nothing is left in the study."""
        self._study.sampler = _OverAll(sampler, self._searched) if takes_categories else sampler
        trial = self._study.ask(self._distributions)
        params = dict(trial.params)
        # Samplers ignore failed trials, so an answered question leaves no trace.
        self._study.tell(trial, state=TrialState.FAIL)
        return params

    def _clear(self) -> None:
        with _quiet():
            self._study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        self._added: dict[str, _Shown] = {}
        self._running: dict[str, int] = {}

    def _shown(self, history: History) -> list[_Shown]:
        observations = [o for o in observations_of(self._space, history.records) if o.built_to_run]
        if self._form is Form.PRUNED:
            return [_as_pruned(item) for item in observations]
        worst = max((o.violation for o in observations if not o.failed), default=0.0)
        failed = math.log1p(max(worst, 0.0)) + 1.0
        return [_as_complete(item, failed=failed) for item in observations]

    def _finished(self, item: _Shown) -> FrozenTrial:
        return create_trial(
            state=item.state,
            params=self._space.params(item.parsed),
            distributions=self._distributions,
            value=item.value if item.state is TrialState.COMPLETE else None,
            constraints={CONSTRAINT: item.constraint},
        )

    def _show_running(self, routes: Sequence[str]) -> None:
        wanted = set() if self._form is Form.NOTHING else set(routes)
        for route in sorted(set(self._running) - wanted):
            self._study.tell(self._running.pop(route), state=TrialState.FAIL)
        for route in sorted(wanted - set(self._running)):
            parsed = Route.parse(route, self._space.database)
            if self._space.contains(parsed):
                self._running[route] = len(self._study.get_trials(deepcopy=False))
                self._study.add_trial(
                    create_trial(
                        state=TrialState.RUNNING,
                        params=self._space.params(parsed),
                        distributions=self._distributions,
                    )
                )


class _OverAll(BaseSampler):
    """Has a sampler's model cover given parameters.

    A sampler finds out by itself which ones it can cover, by going through all trials; made anew
    for each proposal, it would do that each time.
    """

    def __init__(self, sampler: BaseSampler, searched: Mapping[str, BaseDistribution]) -> None:
        self._sampler = sampler
        self._searched = searched

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return dict(self._searched)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a sampler is shown of one route."""

    route: str
    parsed: Route
    state: TrialState
    value: float
    constraint: float


def _as_pruned(item: Observation) -> _Shown:
    if item.log_ratio is not None and item.violation <= 0.0:
        return _Shown(item.text, item.route, TrialState.COMPLETE, item.log_ratio, item.violation)
    violation = WORST_VIOLATION if item.failed else item.violation
    return _Shown(item.text, item.route, TrialState.PRUNED, 0.0, violation)


def _as_complete(item: Observation, *, failed: float) -> _Shown:
    if item.log_ratio is not None and item.violation <= 0.0:
        return _Shown(item.text, item.route, TrialState.COMPLETE, item.log_ratio, item.violation)
    # Violations span powers of ten; a Gaussian process standardizes them.
    constraint = failed if item.failed else math.log1p(max(item.violation, _NO_LOSS))
    return _Shown(item.text, item.route, TrialState.COMPLETE, 0.0, constraint)


_NO_LOSS = -1.0 + 1e-6
"""The least violation that has a logarithm: of a route without any loss."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from announcing the shadow study; other studies are announced as before."""
    logger = logging.getLogger("optuna.storages._in_memory")
    here = threading.get_ident()

    def is_kept(record: logging.LogRecord) -> bool:
        return record.thread != here or record.levelno > logging.INFO

    logger.addFilter(is_kept)
    try:
        yield
    finally:
        logger.removeFilter(is_kept)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep a sampler from warning about trials and options that only the shadow study has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
        yield
