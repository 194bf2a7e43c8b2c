"""Writing to a shared study: in few round trips, and so that a second attempt changes nothing.

Optuna's ask writes a trial parameter by parameter and attribute by attribute, each a transaction;
a worker that is killed in between leaves half of it. Here a trial is started by one call that
creates it whole, and its record is one attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from routewright.fleet.spool import Entry
from routewright.records import LOST, RECORD, TrialRecord
from routewright.study import CONSTRAINT, constraint_of, state_of

OWNER = "owner"
"""Attribute of a trial: the worker that tries it."""

TOKEN = "token"
"""Attribute of a trial: tells the attempts of one start from other starts."""

RETRY_OF = "retry_of"
"""Attribute of a trial: number of the lost trial that it repeats."""

LATE_FOR = "late_for"
"""Attribute of a trial: number of the lost trial whose worker handed its record in after all."""

BUILD_ONLY = "build_only"
"""Attribute of a trial: it is built for its fingerprint and not timed."""

ROLE = "role"
"""Attribute of a trial that is no trial of a route: what its owner does."""


_OF_A_PROPOSAL = ("route", "origin", "phase", BUILD_ONLY)


def finish(storage: BaseStorage, trial_id: int, record: TrialRecord) -> None:
    """Write a record into its running trial and end the trial.

    Raises:
        UpdateFinishedTrialError: The trial has ended already, by whatever hand.
    """
    told = _finished(record)
    storage.set_trial_user_attr(trial_id, RECORD, record.to_attributes())
    for key, value in told.system_attrs.items():
        storage.set_trial_system_attr(trial_id, key, value)
    storage.set_trial_state_values(trial_id, told.state, told.values)


def hand_in(storage: BaseStorage, study: optuna.Study, entry: Entry) -> int:
    """Write a measured trial, exactly once however often this is called.

    Returns:
        The number of the trial that has the record: another one where the trial was given up
        meanwhile, because its worker was not heard of for a lease.
    """
    try:
        finish(storage, entry.trial_id, entry.record)
    except UpdateFinishedTrialError:
        return _hand_in_finished(storage, study, entry)
    return entry.record.number


def _hand_in_finished(storage: BaseStorage, study: optuna.Study, entry: Entry) -> int:
    number = entry.record.number
    trial = storage.get_trial(entry.trial_id)
    if trial.state is not TrialState.FAIL or LOST not in trial.user_attrs:
        # An earlier attempt got through and only its answer was lost.
        return number
    for other in study.get_trials(deepcopy=False):
        if other.user_attrs.get(LATE_FOR) == number:
            return other.number
    attributes = {
        "route": entry.record.route,
        OWNER: entry.worker,
        LATE_FOR: number,
        RECORD: entry.record.to_attributes(),
    }
    late = _finished(entry.record, trial.params, trial.distributions, attributes)
    return storage.get_trial(storage.create_new_trial(study._study_id, late)).number


def take_back(
    storage: BaseStorage,
    trial: FrozenTrial,
    reason: str,
    *,
    by: str,
    record: TrialRecord | None = None,
) -> bool:
    """End a running trial that its worker will not end; return whether it was this call.

    Args:
        storage: The storage.
        trial: The trial.
        reason: Why, in one line.
        by: The worker that takes it.
        record: What is to be known of the route from now on, where it is not tried again.
    """
    told: dict[str, Any] = {"reason": reason, "by": by}
    if record is not None:
        told[RECORD] = record.to_attributes()
    try:
        storage.set_trial_user_attr(trial._trial_id, LOST, told)
        storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
    except UpdateFinishedTrialError:
        return False
    return True


def requeue(storage: BaseStorage, study: optuna.Study, trial: FrozenTrial, retry_of: int) -> None:
    """Have a lost trial's route tried by whoever is free."""
    kept = {k: trial.user_attrs[k] for k in _OF_A_PROPOSAL if k in trial.user_attrs}
    waiting = create_trial(
        state=TrialState.WAITING,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={**kept, RETRY_OF: retry_of},
    )
    storage.create_new_trial(study._study_id, waiting)


def _finished(
    record: TrialRecord,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    state = state_of(record)
    return create_trial(
        state=state,
        value=record.relative_latency if state is TrialState.COMPLETE else None,
        params=dict(params or {}),
        distributions=dict(distributions or {}),
        user_attrs=dict(attributes or {}),
        constraints={CONSTRAINT: constraint_of(record)},
    )
