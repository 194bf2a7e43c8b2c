"""A study that several workers write to, as one of them sees it."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from routewright.errors import RouteError, StorageError
from routewright.fleet.lease import Watch
from routewright.fleet.patience import patiently
from routewright.fleet.reaper import Reaper, wants_retry
from routewright.fleet.spool import Entry, Spool
from routewright.fleet.writing import (
    BUILD_ONLY,
    LATE_FOR,
    OWNER,
    RETRY_OF,
    ROLE,
    TOKEN,
    hand_in,
    take_back,
)
from routewright.records import Outcome, Phase, TrialRecord, record_of
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler
from routewright.space import SearchSpace
from routewright.study import StudyLog, Ticket

_LAST_WAIT_S = 60.0
"""Seconds beyond the budget's end for which a storage that is away is waited for."""

_POLL_S = 0.5


class SharedLog(StudyLog):
    """One worker's view of a study that others write to as well.

    Unlike in :class:`StudyLog`, records are in the order in which this worker came to see them.

    Args:
        study: The study.
        identity: What it is valid for.
        storage: Where it is; the object that the study uses, with its cache.
        spool: Keeps what could not be handed in.
        worker: This worker's name.
        watch: Says which workers are gone.
        left_s: Returns the real seconds of the budget that are left.
        pace: Real seconds for each second of the clock that trials are held to.
        tell: Hears what the user should know of hindrances.
    """

    def __init__(
        self,
        study: optuna.Study,
        identity: Mapping[str, Any],
        *,
        storage: BaseStorage,
        spool: Spool,
        worker: str,
        watch: Watch,
        left_s: Callable[[], float],
        tell: Callable[[str], None],
        pace: float = 1.0,
    ) -> None:
        self.worker = worker
        self.watch = watch
        self.spool = spool
        self.bids: list[FrozenTrial] = []
        """Trials that stand for a role, by number; see :mod:`routewright.fleet.election`."""
        self.is_leaving = False
        """Set once this worker wants out: a storage that is away is not waited for then."""
        self._storage = storage
        self._left_s = left_s
        self._pace = pace
        self._tell = tell
        self._reaper = Reaper(storage, study, worker=worker, watch=watch)
        self._unfinished: list[FrozenTrial] = []
        self._settled: set[int] = set()
        self._all_settled_before = 0
        self._kept: set[int] = set()
        self._lost: dict[int, FrozenTrial] = {}
        self._held: dict[int, int] = {}
        super().__init__(study, identity, spool.path)
        self.refresh()

    def _stored_records(self) -> list[TrialRecord]:
        # The first look takes them in.
        return []

    def refresh(self) -> None:
        """Read what others did since the last look.

        Raises:
            StorageError: The storage stayed out of reach until after the budget's end.
        """
        trials = self._retry(lambda: self.study.get_trials(deepcopy=False), "read the study")
        self._unfinished = []
        bids = {bid.number: bid for bid in self.bids}
        # Numbers start at 0 and have no gaps, and most trials have ended long ago.
        for trial in trials[self._all_settled_before :]:
            if ROLE in trial.user_attrs:
                bids[trial.number] = trial
            if not trial.state.is_finished():
                self._unfinished.append(trial)
            elif trial.number not in self._settled:
                self._settle(trial)
        while self._all_settled_before in self._settled:
            self._settled.remove(self._all_settled_before)
            self._all_settled_before += 1
        self.bids = list(bids.values())

    def tend(self) -> None:
        """Read the study anew and take trials from workers that are gone."""
        self.refresh()
        retried = {t.user_attrs.get(RETRY_OF) for t in self._unfinished}
        lost = [trial for number, trial in self._lost.items() if number not in retried]
        ended = self._retry(
            lambda: self._reaper.reap(self._unfinished, lost, held=self._held), "reap"
        )
        if ended:
            self.refresh()

    def elsewhere(self) -> list[FrozenTrial]:
        """Return the running trials of other workers, as of the last look."""
        return [
            trial
            for trial in self._unfinished
            if trial.state is TrialState.RUNNING
            and trial.number not in self._held
            and ROLE not in trial.user_attrs
        ]

    @property
    def has_waiting(self) -> bool:
        """Whether a route is queued, as of the last look."""
        return any(trial.state is TrialState.WAITING for trial in self._unfinished)

    def history(self, *, remaining_s: float | None = None) -> History:
        """Return the history that a sampler proposes from, with what others are trying."""
        running = [
            str(trial.user_attrs["route"])
            for trial in self._unfinished
            if "route" in trial.user_attrs and trial.number not in self._held
        ]
        return History(tuple(self._records), running=running, remaining_s=remaining_s)

    def ask(
        self,
        sampler: RouteSampler,
        *,
        remaining_s: float | None = None,
        fits: Callable[[Proposal], bool] | None = None,
    ) -> Ticket | None:
        """Start a trial that was lost elsewhere, or what the sampler proposes.

        Where the sampler waits for what others are trying, so does this.

        Args:
            sampler: Proposes the route.
            remaining_s: Seconds that are left for searching, for the sampler.
            fits: Whether there is time for a proposal; one that does not fit is not started.

        Returns:
            The started trial, or None if nothing is left to try or it does not fit.

        Raises:
            StorageError: The storage stayed out of reach until after the budget's end.
        """
        asked_s = time.monotonic()
        while True:
            self.tend()
            ticket = self._claim(sampler.space, fits)
            if ticket is not None:
                return ticket
            left_s = None
            if remaining_s is not None:
                # Records tell real seconds, so a sampler hears of real seconds only.
                left_s = remaining_s * self._pace + asked_s - time.monotonic()
            planned = sampler.plan(self.history(remaining_s=left_s))
            if planned is None:
                if not self.elsewhere() or self._left_s() <= 0:
                    return None
                time.sleep(_POLL_S)
                continue
            if fits is not None and not fits(planned):
                return None
            ticket = self.begin(planned, sampler.space)
            rival = self._rival_of(ticket)
            if rival is None:
                return ticket
            self.commit(ticket, _left_to(rival, ticket))

    def begin(self, proposal: Proposal, space: SearchSpace) -> Ticket:
        """Start a trial, in one call to the storage."""
        params: dict[str, Any] = {}
        # The baseline names every knob once, not again for every worker.
        again = proposal.phase is Phase.BASELINE and bool(self._records)
        if not again and space.contains(proposal.route):
            values = space.params(proposal.route)
            names = dict.fromkeys((*proposal.parameters, *proposal.route.changed))
            params = {name: values[name] for name in names if name in space.variable}
        attributes: dict[str, Any] = {
            "route": str(proposal.route),
            "phase": str(proposal.phase),
            "origin": proposal.origin,
        }
        if not proposal.time_it:
            attributes[BUILD_ONLY] = True
        trial = self.start(attributes, params, {name: space.distribution(name) for name in params})
        return Ticket(trial.number, proposal, trial._trial_id)

    def start(
        self,
        attributes: Mapping[str, Any],
        params: Mapping[str, Any] | None = None,
        distributions: Mapping[str, Any] | None = None,
    ) -> FrozenTrial:
        """Create a running trial of this worker's, once, whatever happens to the answer."""
        token = secrets.token_hex(8)
        template = create_trial(
            state=TrialState.RUNNING,
            params=dict(params or {}),
            distributions=dict(distributions or {}),
            user_attrs={**attributes, OWNER: self.worker, TOKEN: token},
        )
        tried = False

        def create() -> None:
            nonlocal tried
            if tried and self._with_token(token) is not None:
                return
            tried = True
            self._storage.create_new_trial(self.study._study_id, template)

        self._retry(create, "start a trial")
        self.refresh()
        trial = next(t for t in self._unfinished if t.user_attrs.get(TOKEN) == token)
        self._held[trial.number] = trial._trial_id
        return trial

    def commit(self, ticket: Ticket, record: TrialRecord) -> None:
        """Keep a finished trial on the disk, then hand it in; wait for a storage that is away.

        Raises:
            StorageError: The storage stayed out of reach until after the budget's end; the
                record is in the spool.
        """
        assert isinstance(ticket.trial, int)
        entry = Entry(self.study.study_name, ticket.trial, self.worker, record)
        try:
            self.spool.add(entry)
        except StorageError as error:
            # The storage may well be there: only both together lose a trial.
            self._tell(f"{error}; trials go to the storage without being kept here first")
        number = self._deliver(entry)
        self._held.pop(ticket.number, None)
        self._kept.add(number)
        self._records.append(replace(record, number=number, log=""))

    def hand_in_spooled(self) -> int:
        """Hand in what an earlier worker of this folder could not; return how many trials."""
        waiting = [e for e in self.spool.entries if e.study == self.study.study_name]
        for entry in waiting:
            self._deliver(entry)
        if waiting:
            self.refresh()
        return len(waiting)

    def enqueue(self, routes: Sequence[Any], space: SearchSpace, *, origin: str) -> None:
        """Have ``routes`` tried before anything that a sampler proposes, each once."""
        self.refresh()
        known = {record.route for record in self._records}
        known |= {str(trial.user_attrs.get("route")) for trial in self._unfinished}
        for route in routes:
            if str(route) in known:
                continue
            values = space.params(route)
            params = {name: values[name] for name in route.changed if name in values}
            waiting = create_trial(
                state=TrialState.WAITING,
                params=params,
                distributions={name: space.distribution(name) for name in params},
                user_attrs={"route": str(route), "origin": origin, "phase": str(Phase.SEARCH)},
            )
            self._retry(
                lambda waiting=waiting: self._storage.create_new_trial(
                    self.study._study_id, waiting
                ),
                "enqueue a route",
            )

    def give_back(self, ticket: Ticket, reason: str) -> None:
        """End a trial that this worker will not finish; others try its route."""
        self._give_back({ticket.number}, reason)

    def end_unfinished(self) -> None:
        """Give back every trial that this worker holds."""
        self._give_back(set(self._held), "its worker was stopped")

    def withdraw(self, trial: FrozenTrial, reason: str) -> None:
        """End one of this worker's trials that stands for a role."""
        self._retry(lambda: take_back(self._storage, trial, reason, by=self.worker), "end a trial")
        self._held.pop(trial.number, None)

    def close(self, trial: FrozenTrial, attributes: Mapping[str, Any]) -> bool:
        """End a trial of this worker's with attributes; False if it had been taken from it."""

        def write() -> bool:
            try:
                for key, value in attributes.items():
                    self._storage.set_trial_user_attr(trial._trial_id, key, value)
                self._storage.set_trial_state_values(trial._trial_id, TrialState.PRUNED)
            except UpdateFinishedTrialError:
                ended = self._storage.get_trial(trial._trial_id)
                return ended.state is TrialState.PRUNED
            return True

        self._held.pop(trial.number, None)
        return bool(self._retry(write, "end a trial"))

    def wind_up(self, within_s: float) -> None:
        """See to it that no trial stays unfinished once the study has its verdict.

        Whoever is last ends what is queued, and what those left running who are gone.
        """
        self._reaper.is_over = True
        end_s = time.monotonic() + within_s
        while True:
            self.tend()
            for trial in self._unfinished:
                if trial.state is TrialState.WAITING:
                    self.withdraw(trial, "the study ended before it was tried again")
            others = [t for t in self._unfinished if t.state is TrialState.RUNNING]
            if not others or time.monotonic() > end_s:
                return
            time.sleep(_POLL_S)

    def _settle(self, trial: FrozenTrial) -> None:
        self._settled.add(trial.number)
        retried = trial.user_attrs.get(RETRY_OF)
        self._lost.pop(retried, None) if retried is not None else None
        late_for = trial.user_attrs.get(LATE_FOR)
        self._lost.pop(late_for, None) if late_for is not None else None
        if trial.number in self._kept:
            self._kept.remove(trial.number)
            return
        record = record_of(trial)
        if record is not None:
            self._records.append(record)
        elif wants_retry(trial):
            self._lost[trial.number] = trial

    def _claim(self, space: SearchSpace, fits: Callable[[Proposal], bool] | None) -> Ticket | None:
        """Take the first queued trial that nobody else takes."""
        for trial in self._unfinished:
            if trial.state is not TrialState.WAITING or "route" not in trial.user_attrs:
                continue
            proposal = _proposal_of(trial, space)
            if proposal is not None and fits is not None and not fits(proposal):
                return None
            if not self._take(trial):
                continue
            if proposal is None:
                self.withdraw(trial, "its route is not in the space that is searched")
                continue
            return Ticket(trial.number, proposal, trial._trial_id)
        return None

    def _take(self, trial: FrozenTrial) -> bool:
        def take() -> bool:
            try:
                if not self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING):
                    return False
                self._storage.set_trial_user_attr(trial._trial_id, OWNER, self.worker)
            except UpdateFinishedTrialError:
                return False
            return True

        if not self._retry(take, "start a queued trial"):
            return False
        self._held[trial.number] = trial._trial_id
        return True

    def _rival_of(self, ticket: Ticket) -> int | None:
        """Return the number of another worker's trial of the same route that came first."""
        route = str(ticket.proposal.route)
        for trial in self._unfinished:
            if trial.number < ticket.number and trial.user_attrs.get("route") == route:
                return trial.number
        return None

    def _with_token(self, token: str) -> FrozenTrial | None:
        trials = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return next((t for t in trials if t.user_attrs.get(TOKEN) == token), None)

    def _deliver(self, entry: Entry) -> int:
        try:
            number: int = self._retry(
                lambda: hand_in(self._storage, self.study, entry), "write a trial"
            )
        except StorageError as error:
            raise StorageError(
                f"{error}; the measured trial is kept in {self.spool.path} and is handed in by "
                f"the next worker with --out {self.spool.path.parent}"
            ) from error
        with contextlib.suppress(StorageError):
            self.spool.strike(entry)
        return number

    def _give_back(self, numbers: Iterable[int], reason: str) -> None:
        numbers = set(numbers)
        self.refresh()
        for trial in self._unfinished:
            if trial.number in numbers:
                self._retry(
                    lambda t=trial: self._reaper.give_back(t, reason),
                    "give a trial back",
                )
        for number in numbers:
            self._held.pop(number, None)

    def _retry(self, action: Any, what: str) -> Any:
        def is_over() -> bool:
            return self.is_leaving or self._left_s() < -_LAST_WAIT_S

        return patiently(action, what, is_over=is_over, tell=self._tell)


def _proposal_of(trial: FrozenTrial, space: SearchSpace) -> Proposal | None:
    try:
        route = Route.parse(str(trial.user_attrs["route"]), space.database)
    except RouteError:
        return None
    if not space.contains(route):
        return None
    return Proposal(
        route,
        parameters=tuple(trial.params),
        phase=Phase(trial.user_attrs.get("phase", Phase.SEARCH)),
        time_it=not trial.user_attrs.get(BUILD_ONLY, False),
        origin=str(trial.user_attrs.get("origin", "")),
    )


def _left_to(rival: int, ticket: Ticket) -> TrialRecord:
    proposal = ticket.proposal
    return TrialRecord(
        ticket.number,
        str(proposal.route),
        proposal.phase,
        Outcome.REUSED,
        origin=proposal.origin,
        reason=f"another worker was trying this route already, as trial {rival}",
        reused_from=rival,
    )
