"""Taking trials from workers that are gone: tried once more elsewhere, then failed.

Several workers may reap at the same time. A trial is ended by a change of its state, which the
storage lets happen once, and only the worker whose change it was has the route tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from routewright.fleet.lease import Watch
from routewright.fleet.writing import OWNER, RETRY_OF, ROLE, finish, requeue, take_back
from routewright.records import LOST, RECORD, Outcome, Phase, TrialRecord


class Reaper:
    """Ends the running trials of workers that are gone.

    Args:
        storage: The storage.
        study: The study.
        worker: This worker.
        watch: Says who is gone.
        now_s: A monotonic clock.
    """

    def __init__(
        self,
        storage: BaseStorage,
        study: optuna.Study,
        *,
        worker: str,
        watch: Watch,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._study = study
        self._worker = worker
        self._watch = watch
        self._now_s = now_s
        self._lost_since_s: dict[int, float] = {}
        self.is_over = False
        """Set once the study has its verdict: nothing is tried again then."""

    def reap(
        self,
        unfinished: Iterable[FrozenTrial],
        lost: Collection[FrozenTrial],
        *,
        held: Collection[int],
    ) -> int:
        """End what the gone left running; return how many trials that were.

        Args:
            unfinished: The study's running and waiting trials.
            lost: Trials that were taken back and are to be tried again.
            held: Numbers of this worker's own trials.
        """
        ended = 0
        for trial in unfinished:
            if trial.state is not TrialState.RUNNING or trial.number in held:
                continue
            owner = str(trial.user_attrs.get(OWNER, f"trial {trial.number}"))
            if owner == self._worker:
                # A start whose answer was lost and that was repeated.
                ended += take_back(self._storage, trial, "started twice", by=self._worker)
            elif self._watch.is_gone(owner):
                ended += self._end(trial, owner)
        if not self.is_over:
            self._requeue_forgotten(lost)
        return ended

    def give_back(self, trial: FrozenTrial, reason: str) -> None:
        """End a trial of this worker's own that it will not finish; others try the route."""
        if take_back(self._storage, trial, reason, by=self._worker) and _is_search(trial):
            requeue(self._storage, self._study, trial, retry_of=trial.number)

    def _end(self, trial: FrozenTrial, owner: str) -> bool:
        written = trial.user_attrs.get(RECORD)
        if written is not None:
            # It was measured; only its end is missing.
            try:
                measured = TrialRecord.from_attributes(trial.number, written)
                finish(self._storage, trial._trial_id, measured)
            except UpdateFinishedTrialError:
                return False
            return True
        reason = f"its worker {owner} was lost"
        is_retry = RETRY_OF in trial.user_attrs
        was_tried = OWNER in trial.user_attrs
        record = None
        if is_retry and was_tried and _is_search(trial):
            reason = f"two workers were lost while trying this route, the last one {owner}"
            record = TrialRecord(
                trial.number,
                str(trial.user_attrs["route"]),
                _phase_of(trial),
                Outcome.FAILED,
                origin=str(trial.user_attrs.get("origin", "")),
                reason=reason,
                failure="lost",
            )
        if not take_back(self._storage, trial, reason, by=self._worker, record=record):
            return False
        if record is None and _is_search(trial) and not self.is_over:
            requeue(self._storage, self._study, trial, retry_of=trial.number)
        return True

    def _requeue_forgotten(self, lost: Collection[FrozenTrial]) -> None:
        """Requeue what a reaper ended, and was killed before it could requeue."""
        now_s = self._now_s()
        for trial in lost:
            since_s = self._lost_since_s.setdefault(trial.number, now_s)
            if now_s - since_s > self._watch.lease_s:
                self._lost_since_s[trial.number] = now_s
                requeue(self._storage, self._study, trial, retry_of=trial.number)


def wants_retry(trial: FrozenTrial) -> bool:
    """Whether a finished trial was lost and its route is to be tried again."""
    lost = trial.user_attrs.get(LOST)
    return (
        trial.state is TrialState.FAIL
        and isinstance(lost, dict)
        and RECORD not in lost
        and lost.get("reason") != "started twice"
        and _is_search(trial)
    )


def _is_search(trial: FrozenTrial) -> bool:
    """Whether somebody else can try the trial: not a baseline, a confirmation or a role."""
    if ROLE in trial.user_attrs or "route" not in trial.user_attrs:
        return False
    return _phase_of(trial) in (Phase.SEARCH, Phase.SCREENING)


def _phase_of(trial: FrozenTrial) -> Phase:
    return Phase(trial.user_attrs.get("phase", Phase.SEARCH))
