"""The Optuna side of a study: records in, records out, nothing lost in between.

A finished record is first written to a small file beside the results (the *pending* file), then
to the storage, then the file is removed. A storage that cannot be written for a while therefore
loses nothing: the record is handed in when the study is opened again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import psutil
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from routewright.bulk import set_attributes
from routewright.errors import RouteError, StorageError
from routewright.files import write_text_atomic
from routewright.records import SCHEMA_VERSION, WORST_VIOLATION, Outcome, TrialRecord
from routewright.search.base import History, Proposal, RouteSampler, history_of
from routewright.space import SearchSpace
from routewright.storage import STORAGE_FAULTS, fault_line

MARK = "routewright"
"""User attribute that tells our studies from others' and holds what the study is valid for."""

METRIC_NAME = "relative latency"
CONSTRAINT = "accuracy"

_STATES = {
    Outcome.TIMED: TrialState.COMPLETE,
    Outcome.SLOW: TrialState.PRUNED,
    Outcome.SCREENED: TrialState.PRUNED,
    Outcome.INACCURATE: TrialState.PRUNED,
    Outcome.FAILED: TrialState.FAIL,
}

_RETRY_S = 60.0

_SHOWN_BLOCKS = 8
"""Intermediate values of a trial; each costs a storage a round trip."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A trial that was started and not yet finished.

    Attributes:
        number: The Optuna trial's number.
        proposal: What to try.
        trial: The Optuna trial; in a shared study its identity in the storage.
    """

    number: int
    proposal: Proposal
    trial: Trial | int


class StudyLog:
    """One study in an Optuna storage, as the process that owns it sees it.

    Use :meth:`create` or :meth:`reopen`. Records are also held in memory, so that proposing a
    route reads nothing back from the storage.

    Attributes:
        study: The Optuna study.
        identity: What the study is valid for (see :mod:`routewright.preparation`), as stored
            with it.
        end_s: Time on the monotonic clock from which a storage that fails is given up at once.
        flush: Whether a committed trial is to survive the end of the machine, not only that of
            the process. What a simulation yields need not.
        before_finish: Called with a trial and its record before the trial is finished, after
            which Optuna takes nothing more for it.
    """

    def __init__(self, study: optuna.Study, identity: Mapping[str, Any], pending: Path) -> None:
        self.study = study
        self.identity = dict(identity)
        self.end_s = math.inf
        self.flush = True
        self.before_finish: Callable[[Trial, TrialRecord], None] | None = None
        self._pending = pending
        self._records: list[TrialRecord] = self._stored_records()

    @classmethod
    def create(
        cls, storage: BaseStorage, name: str, *, identity: Mapping[str, Any], pending: Path
    ) -> StudyLog:
        """Create the study.

        Raises:
            StorageError: A study of that name exists, or the storage cannot be written.
        """
        try:
            study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                study.set_metric_names([METRIC_NAME])
            study.set_user_attr(MARK, {"schema_version": SCHEMA_VERSION, **identity})
        except optuna.exceptions.DuplicatedStudyError as error:
            raise StorageError(
                f"the storage already holds a study named {name!r}; continue it with --resume or "
                "give another --study"
            ) from error
        except STORAGE_FAULTS as error:
            raise StorageError(f"cannot create the study {name!r}: {fault_line(error)}") from error
        return cls(study, identity, pending)

    @classmethod
    def reopen(cls, storage: BaseStorage, name: str, *, pending: Path) -> StudyLog:
        """Open a study, hand in what an earlier run could not, and end what it left running.

        Raises:
            StorageError: There is no such study, or it is not one of ours.
        """
        study = load_study(storage, name)
        identity = dict(study.user_attrs[MARK])
        if "imported" in identity:
            raise StorageError(
                f"the study {name!r} was imported from another tuner; it can be shown and "
                "exported, not resumed: its times do not mix with ours"
            )
        version = identity.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise StorageError(
                f"the study {name!r} was written by another version (schema {version}, this one "
                f"reads {SCHEMA_VERSION}); resume it with that version"
            )
        _hand_in_pending(study, pending)
        _end_orphans(study)
        return cls(study, identity, pending)

    def _stored_records(self) -> list[TrialRecord]:
        return list(history_of(self.study).records)

    @property
    def records(self) -> Sequence[TrialRecord]:
        """Finished trials in the order of their numbers."""
        return self._records

    def history(self, *, remaining_s: float | None = None) -> History:
        """Return the history that a sampler proposes from."""
        return History(records=tuple(self._records), remaining_s=remaining_s)

    def ask(
        self,
        sampler: RouteSampler,
        *,
        remaining_s: float | None = None,
        fits: Callable[[Proposal], bool] | None = None,
    ) -> Ticket | None:
        """Start the trial that the sampler proposes, or the next one that was enqueued.

        Args:
            sampler: Proposes the route.
            remaining_s: Seconds that are left for searching, for the sampler.
            fits: Whether there is time for a proposal; one that does not fit is not started.

        Returns:
            The started trial, or None if the sampler has nothing left to try or it does not fit.

        Raises:
            StorageError: The storage cannot be written.
        """
        self.study.sampler = sampler
        for _ in self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            ticket = self._ask_enqueued(sampler.space)
            if ticket is not None:
                return ticket
        planned = sampler.plan(self.history(remaining_s=remaining_s))
        if planned is None or (fits is not None and not fits(planned)):
            return None
        trial = self._retry(self.study.ask, "start a trial")
        names = dict(trial.relative_params)
        proposal = sampler.proposal_of(trial.number)
        assert proposal is not None, "a planned proposal is handed out once"
        self._retry(lambda: _suggest(trial, sampler.space, names), "start a trial")
        return self._start(trial, proposal)

    def begin(self, proposal: Proposal, space: SearchSpace) -> Ticket:
        """Start a trial of a route that no sampler proposed: the baseline, a confirmation.

        Raises:
            StorageError: The storage cannot be written.
        """
        fixed: dict[str, Any] = {}
        # The default route need not be in a restricted space; it has no parameters then.
        if proposal.parameters and space.contains(proposal.route):
            params = space.params(proposal.route)
            fixed = {name: params[name] for name in proposal.parameters}
        self.study.sampler = _Given(fixed, space)
        trial = self._retry(self.study.ask, "start a trial")
        self._retry(lambda: _suggest(trial, space, fixed), "start a trial")
        return self._start(trial, proposal)

    def commit(self, ticket: Ticket, record: TrialRecord) -> None:
        """Write a finished trial; once this returns it survives a kill.

        Raises:
            StorageError: The storage stayed out of reach; the record waits in the pending file.
        """
        assert isinstance(ticket.trial, Trial)
        trial = ticket.trial
        attributes = record.to_attributes()
        write_text_atomic(
            self._pending,
            json.dumps({"study": self.study.study_name, "trial": record.number, **attributes}),
            flush=self.flush,
        )
        self._records.append(replace(record, log=""))
        if self.before_finish is not None:
            self.before_finish(trial, record)
        try:
            try:
                self._retry(lambda: _finish(self.study, trial, record), "write a trial")
            except KeyboardInterrupt:
                # What was measured is written first; the user's wish waits for it.
                self._retry(lambda: _finish(self.study, trial, record), "write a trial")
                self._pending.unlink(missing_ok=True)
                raise
        except StorageError as error:
            raise StorageError(
                f"{error}; the measured trial is kept in {self._pending} and is handed in by "
                "--resume"
            ) from error
        self._pending.unlink(missing_ok=True)

    def enqueue(self, routes: Sequence[Any], space: SearchSpace, *, origin: str) -> None:
        """Have ``routes`` tried before anything that the sampler proposes."""
        for route in routes:
            params = space.params(route)
            changed = {name: params[name] for name in route.changed if name in params}
            self.study.enqueue_trial(changed, user_attrs={"origin": origin})

    @property
    def has_waiting(self) -> bool:
        """Whether an enqueued trial has not been started yet."""
        return bool(self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def end_unfinished(self) -> None:
        """End trials that this process started and was interrupted in before they had a route."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def note(self, key: str, value: Any) -> None:
        """Keep a JSON value with the study."""
        self._retry(lambda: self.study.set_user_attr(key, value), "write to the study")

    def _ask_enqueued(self, space: SearchSpace) -> Ticket | None:
        trial = self._retry(self.study.ask, "start a trial")
        fixed = dict(
            trial.storage.get_trial_system_attrs(trial._trial_id).get("fixed_params") or {}
        )
        unknown = sorted(set(fixed) - set(space.variable))
        try:
            if unknown:
                raise RouteError(f"{', '.join(unknown)} is not searched in this study")
            route = space.route({name: str(value) for name, value in fixed.items()})
            self._retry(lambda: _suggest(trial, space, fixed), "start a trial")
        except (RouteError, ValueError) as error:
            trial.set_user_attr("reason", f"the enqueued trial was left out: {error}")
            self.study.tell(trial, state=TrialState.FAIL)
            return None
        origin = trial.user_attrs.get("origin", "enqueued")
        return self._start(trial, Proposal(route, parameters=tuple(fixed), origin=origin))

    def _start(self, trial: Trial, proposal: Proposal) -> Ticket:
        def write() -> None:
            trial.set_user_attr("route", str(proposal.route))
            trial.set_user_attr("owner", _owner())
            if proposal.origin:
                trial.set_user_attr("origin", proposal.origin)

        self._retry(write, "start a trial")
        return Ticket(trial.number, proposal, trial)

    def _retry(self, action: Any, what: str) -> Any:
        # A locked or restarting storage comes back; a trial that was measured must not be lost
        # to a few seconds of that.
        give_up_s = min(time.monotonic() + _RETRY_S, self.end_s)
        wait_s = 0.1
        while True:
            try:
                return action()
            except STORAGE_FAULTS as error:
                if time.monotonic() + wait_s > give_up_s or _is_final(error):
                    raise StorageError(f"cannot {what}: {fault_line(error)}") from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 5.0)


class _Given(BaseSampler):
    """Hands out one set of values that was decided elsewhere."""

    def __init__(self, params: Mapping[str, Any], space: SearchSpace) -> None:
        self._params = dict(params)
        self._space = space

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {name: self._space.distribution(name) for name in self._params}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self._params)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._params[param_name]


def load_study(storage: BaseStorage, name: str) -> optuna.Study:
    """Open one of our studies for reading.

    Raises:
        StorageError: There is no study of that name, or it is not one of ours.
    """
    try:
        study = optuna.load_study(study_name=name, storage=storage)
        ours = MARK in study.user_attrs
    except KeyError as error:
        known = ", ".join(optuna.get_all_study_names(storage)) or "none"
        raise StorageError(
            f"the storage holds no study named {name!r}; it holds: {known}"
        ) from error
    except STORAGE_FAULTS as error:
        raise StorageError(f"cannot read the study {name!r}: {fault_line(error)}") from error
    if not ours:
        raise StorageError(
            f"the study {name!r} was not made by Routewright and is left alone; "
            "give another --study"
        )
    return study


def our_studies(storage: BaseStorage) -> list[str]:
    """Return the names of our studies in a storage, in the order in which they were made."""
    return [s.study_name for s in storage.get_all_studies() if MARK in s.user_attrs]


def _suggest(trial: Trial, space: SearchSpace, params: Mapping[str, Any]) -> None:
    for name in params:
        distribution = space.distribution(name)
        if isinstance(distribution, CategoricalDistribution):
            trial.suggest_categorical(name, distribution.choices)
        elif isinstance(distribution, IntDistribution):
            trial.suggest_int(name, distribution.low, distribution.high)


def _finish(study: optuna.Study, trial: Trial, record: TrialRecord) -> None:
    # A second try after one of which only the answer was lost finds the trial finished.
    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
        _write(study, trial, record)


def _write(study: optuna.Study, trial: Trial, record: TrialRecord) -> None:
    set_attributes(trial, record.to_attributes())
    if CONSTRAINT not in trial.constraints:
        trial.set_constraint(CONSTRAINT, constraint_of(record))
    state = state_of(record)
    for step, ratio in enumerate(_shown_ratios(record, state)):
        trial.report(ratio, step)
    value = record.relative_latency if state is TrialState.COMPLETE else None
    study.tell(trial, value, state=state, skip_if_finished=True)


def _shown_ratios(record: TrialRecord, state: TrialState) -> list[float]:
    """Return the candidate's time over the baseline's, block by block, as a dashboard draws it.

    A few medians of successive pairs are enough to see a drift; every pair is in the attributes.
    Optuna takes the last value of a pruned trial for its result, so that one is the estimate.
    """
    if not record.log_ratios:
        return []
    parts = np.array_split(record.log_ratios, min(_SHOWN_BLOCKS, len(record.log_ratios)))
    shown = [math.exp(float(np.median(part))) for part in parts]
    if state is TrialState.PRUNED and record.relative_latency is not None:
        shown.append(record.relative_latency)
    return shown


def constraint_of(record: TrialRecord) -> float:
    """Return the amount by which a trial breaks the bound, as Optuna is told it."""
    if record.violation is not None:
        return record.violation
    return WORST_VIOLATION if record.outcome is Outcome.FAILED else 0.0


def state_of(record: TrialRecord) -> TrialState:
    """Return the state of the Optuna trial that a record ends."""
    if record.outcome is not Outcome.REUSED:
        return _STATES[record.outcome]
    if record.violation is not None and record.violation > 0:
        return TrialState.PRUNED
    return TrialState.PRUNED if record.relative_latency is None else TrialState.COMPLETE


def _owner() -> dict[str, Any]:
    process = psutil.Process()
    return {"host": socket.gethostname(), "pid": process.pid, "started": process.create_time()}


def _end_orphans(study: optuna.Study) -> None:
    """End trials that a process of this host, now dead, left running."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if _owner_is_dead(trial):
            live = Trial(study, trial._trial_id)
            live.set_user_attr("reason", "interrupted: the process that tried it is gone")
            study.tell(live, state=TrialState.FAIL, skip_if_finished=True)


def _owner_is_dead(trial: FrozenTrial) -> bool:
    owner = trial.user_attrs.get("owner")
    if not isinstance(owner, dict):
        return True
    if owner.get("host") != socket.gethostname():
        return False
    try:
        process = psutil.Process(int(owner["pid"]))
        return bool(abs(process.create_time() - float(owner["started"])) > 1.0)
    except (psutil.NoSuchProcess, KeyError, ValueError):
        return True


def _hand_in_pending(study: optuna.Study, pending: Path) -> None:
    try:
        content = json.loads(pending.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {pending}: {error}; remove it to go on") from error
    if content.get("study") != study.study_name:
        raise StorageError(
            f"{pending} holds a trial of the study {content.get('study')!r}, not of "
            f"{study.study_name!r}; resume that study first"
        )
    record = TrialRecord.from_attributes(content["trial"], content)
    for trial in study.get_trials(deepcopy=False):
        if trial.number == record.number and not trial.state.is_finished():
            _finish(study, Trial(study, trial._trial_id), record)
    os.unlink(pending)


def _is_final(error: BaseException) -> bool:
    """Whether waiting cannot help: the disk is full or the file may not be written."""
    text = str(getattr(error, "orig", None) or error.__cause__ or error).lower()
    return any(sign in text for sign in ("disk is full", "readonly", "no such table", "malformed"))
