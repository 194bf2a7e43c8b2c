"""What a search method is: an Optuna sampler that thinks in routes.

A search method implements :meth:`RouteSampler.propose`: given every record so far, which route
next. The base class turns the proposal into Optuna parameters, so that any search method runs in
any Optuna study, storage and dashboard, and a study can be driven by plain ask and tell.

Only the knobs that a proposal names become Optuna parameters (two hundred parameters on a
relational storage cost half a second an ask); a knob that is not named is at its default.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from routewright.records import Outcome, Phase, TrialRecord, record_of
from routewright.routes import Route
from routewright.space import SearchSpace


@dataclass(frozen=True, slots=True)
class Proposal:
    """A route to try next.

    Attributes:
        route: The route.
        parameters: Knobs to record as Optuna parameters; every knob that the route changes is
            recorded in any case.
        phase: What the trial is for.
        time_it: False where only the fingerprint is wanted: the engine is built, and checked and
            timed only if the sampler asks for the route again.
        origin: For people: why this route, for example ``"screening: half of a live group"``.
    """

    route: Route
    parameters: tuple[str, ...] = ()
    phase: Phase = Phase.SEARCH
    time_it: bool = True
    origin: str = ""


@dataclass(frozen=True)
class History:
    """What a study knows: finished trials in the order they ended, and routes being tried.

    Attributes:
        records: Finished trials, baseline first.
        running: Routes that other workers are trying now.
        remaining_s: Seconds of search time that are left, or None where there is no limit.
    """

    records: Sequence[TrialRecord]
    running: Sequence[str] = ()
    remaining_s: float | None = None

    @property
    def baseline(self) -> TrialRecord | None:
        """The baseline's record."""
        return next((r for r in self.records if r.phase is Phase.BASELINE), None)

    def tried(self) -> set[str]:
        """Return every route that was tried or is being tried, build-only trials left out."""
        done = {r.route for r in self.records if r.outcome is not Outcome.SCREENED}
        return done | set(self.running)

    def best(self) -> TrialRecord | None:
        """Return the eligible record with the lowest relative latency."""
        eligible = [r for r in self.records if r.eligible]
        return min(eligible, key=lambda r: r.relative_latency or 1.0, default=None)


class RouteSampler(BaseSampler):
    """Base of every search method.

    Args:
        space: The routes to choose from.
        seed: Seed of every random choice.

    An implementation overrides :meth:`propose`. It must be a function of its arguments and the
    seed alone, so that a resumed study goes on as if it had not been interrupted; it may cache.
    It never returns a route outside the space, and returns None when it has nothing left to try.
    """

    name: str = ""

    def __init__(self, space: SearchSpace, *, seed: int) -> None:
        self.space = space
        self.seed = seed
        self._planned: Proposal | None = None
        self._proposals: dict[int, Proposal | None] = {}

    @abstractmethod
    def propose(self, history: History) -> Proposal | None:
        """Return the route to try next, or None when there is nothing left to try."""

    def plan(self, history: History) -> Proposal | None:
        """Propose from ``history`` now; the study's next ask hands this proposal out.

        A study that keeps its history in memory saves reading it back from the storage, and no
        trial is started when there is nothing left to try.
        """
        self._planned = self.propose(history)
        return self._planned

    def proposal_of(self, number: int) -> Proposal | None:
        """Return, and forget, what was proposed for trial ``number``."""
        return self._proposals.pop(number, None)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Propose a route for ``trial`` and return the distributions of its parameters."""
        proposal = self._planned or self.propose(history_of(study))
        self._planned = None
        self._proposals[trial.number] = proposal
        if proposal is None:
            return {}
        names = dict.fromkeys((*proposal.parameters, *proposal.route.changed))
        return {n: self.space.distribution(n) for n in names if n in self.space.variable}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the proposed route's values."""
        proposal = self._proposals.get(trial.number)
        if proposal is None:
            return {}
        params: Mapping[str, Any] = self.space.params(proposal.route)
        return {name: params[name] for name in search_space}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return the default: a knob outside the proposal stays as the compiler has it."""
        return self.space.params(Route())[param_name]


def history_of(study: Study, *, remaining_s: float | None = None) -> History:
    """Read the history out of a study; trials that are not ours are left out."""
    records: list[TrialRecord] = []
    running: list[str] = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state is TrialState.RUNNING:
            route = trial.user_attrs.get("route")
            if route is not None:
                running.append(route)
        elif (record := record_of(trial)) is not None:
            records.append(record)
    return History(records=records, running=running, remaining_s=remaining_s)
