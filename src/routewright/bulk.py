"""Writing much to a study at once: many finished trials, or all that there is to say of one.

``Study.add_trials`` takes a transaction for each trial and, on a relational storage, counts the
trials before it every time: tens of milliseconds a trial, growing with their number. Here all
trials go in together, which also means that either all of them are in the study or none is.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial

_ROWS_AT_ONCE = 5_000
_ROWS_ONE_BY_ONE = 2
"""Up to this many trials, Optuna's own way is quick enough."""

_COLUMNS = {
    "studies": {"study_id", "study_name"},
    "study_user_attributes": {"study_user_attribute_id", "study_id", "key", "value_json"},
    "trials": {"trial_id", "number", "study_id", "state", "datetime_start", "datetime_complete"},
    "trial_values": {"trial_value_id", "trial_id", "objective", "value", "value_type"},
    "trial_params": {"param_id", "trial_id", "param_name", "param_value", "distribution_json"},
    "trial_user_attributes": {"trial_user_attribute_id", "trial_id", "key", "value_json"},
    "trial_system_attributes": {"trial_system_attribute_id", "trial_id", "key", "value_json"},
}
"""The part of Optuna's relational schema that is written here; with another one, it is not."""


def add_finished_trials(
    study: optuna.Study,
    storage: BaseStorage,
    trials: Sequence[FrozenTrial],
    *,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Add finished trials to a study that has no trials yet; intermediate values are left out.

    Args:
        study: The study.
        storage: The storage that it is in, as it was opened.
        trials: What :func:`optuna.trial.create_trial` made, in the order of their numbers.
        attributes: New user attributes of the study, which it gets together with the trials.

    Raises:
        OptunaError: Or another of :data:`routewright.storage.STORAGE_FAULTS`: the storage cannot
            be written.
    """
    attributes = attributes or {}
    is_many = len(trials) > _ROWS_ONE_BY_ONE
    if is_many and isinstance(storage, JournalStorage):
        _add_to_journal(study, storage, trials, attributes)
        return
    if is_many and isinstance(storage, RDBStorage):
        tables = _known_tables(storage)
        if tables is not None:
            _add_to_tables(study, storage, tables, trials, attributes)
            return
    _add_one_by_one(study, trials, attributes)


def set_attributes(trial: optuna.Trial, attributes: Mapping[str, Any]) -> None:
    """Set user attributes of a running trial in one transaction where the storage allows it.

    Optuna takes a transaction for each, and a disk can take 50 ms for each of those.

    Raises:
        OptunaError: Or another of :data:`routewright.storage.STORAGE_FAULTS`: the storage cannot
            be written.
    """
    storage = getattr(trial.storage, "_backend", trial.storage)
    if isinstance(storage, RDBStorage) and (tables := _tables_of(storage)) is not None:
        # Set before, by a try of which only the answer was lost: Optuna's own way replaces them.
        with contextlib.suppress(sqlalchemy.exc.IntegrityError):
            rows = ((trial._trial_id, key, json.dumps(value)) for key, value in attributes.items())
            with storage.engine.begin() as link:
                _insert(
                    link,
                    tables["trial_user_attributes"],
                    ("trial_id", "key", "value_json"),
                    rows,
                )
            return
    for key, value in attributes.items():
        trial.set_user_attr(key, value)


_TABLES: weakref.WeakKeyDictionary[RDBStorage, dict[str, sqlalchemy.Table] | None] = (
    weakref.WeakKeyDictionary()
)


def _tables_of(storage: RDBStorage) -> dict[str, sqlalchemy.Table] | None:
    """Return the tables of a storage, looked up once."""
    if storage not in _TABLES:
        _TABLES[storage] = _known_tables(storage)
    return _TABLES[storage]


def _add_one_by_one(
    study: optuna.Study, trials: Sequence[FrozenTrial], attributes: Mapping[str, Any]
) -> None:
    study.add_trials(trials)
    for name, value in attributes.items():
        study.set_user_attr(name, value)


class _Pending(BaseJournalBackend):
    """A journal whose new entries are held back until they are handed on all at once."""

    def __init__(self, target: BaseJournalBackend) -> None:
        self._target = target
        self._entries = list(target.read_logs(0))
        self._new: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        return self._entries[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._entries += logs
        self._new += logs

    def hand_on(self) -> None:
        self._target.append_logs(self._new)


def _add_to_journal(
    study: optuna.Study,
    storage: JournalStorage,
    trials: Sequence[FrozenTrial],
    attributes: Mapping[str, Any],
) -> None:
    pending = _Pending(storage._backend)
    same = optuna.load_study(study_name=study.study_name, storage=JournalStorage(pending))
    _add_one_by_one(same, trials, attributes)
    pending.hand_on()


def _known_tables(storage: RDBStorage) -> dict[str, sqlalchemy.Table] | None:
    """Return the tables to write to, or None where the schema is not the one known here."""
    metadata = sqlalchemy.MetaData()
    with contextlib.suppress(sqlalchemy.exc.InvalidRequestError):
        metadata.reflect(bind=storage.engine, only=list(_COLUMNS))
    for name, columns in _COLUMNS.items():
        if name not in metadata.tables:
            return None
        found = metadata.tables[name].columns
        needed = {c.name for c in found if not c.nullable and c.server_default is None}
        if not columns <= set(found.keys()) or not needed <= columns:
            return None
    return dict(metadata.tables)


def _add_to_tables(
    study: optuna.Study,
    storage: RDBStorage,
    tables: dict[str, sqlalchemy.Table],
    trials: Sequence[FrozenTrial],
    attributes: Mapping[str, Any],
) -> None:
    studies, table = tables["studies"], tables["trials"]
    with storage.engine.begin() as link:
        study_id = link.execute(
            sqlalchemy.select(studies.c.study_id).where(studies.c.study_name == study.study_name)
        ).scalar_one()
        _insert(
            link,
            tables["study_user_attributes"],
            ("study_id", "key", "value_json"),
            ((study_id, name, json.dumps(value)) for name, value in attributes.items()),
        )
        created = [
            {
                "number": number,
                "study_id": study_id,
                "state": trial.state.name,
                "datetime_start": trial.datetime_start,
                "datetime_complete": trial.datetime_complete,
            }
            for number, trial in enumerate(trials)
        ]
        for begin in range(0, len(created), _ROWS_AT_ONCE):
            link.execute(sqlalchemy.insert(table), created[begin : begin + _ROWS_AT_ONCE])
        found = link.execute(
            sqlalchemy.select(table.c.number, table.c.trial_id).where(table.c.study_id == study_id)
        )
        ids = {row[0]: row[1] for row in found}
        _insert(
            link,
            tables["trial_values"],
            ("trial_id", "objective", "value", "value_type"),
            (
                (ids[number], 0, trial.value, "FINITE")
                for number, trial in enumerate(trials)
                if trial.value is not None
            ),
        )
        _insert(
            link,
            tables["trial_params"],
            ("trial_id", "param_name", "param_value", "distribution_json"),
            (
                (
                    ids[number],
                    name,
                    distribution.to_internal_repr(trial.params[name]),
                    _as_json(distribution),
                )
                for number, trial in enumerate(trials)
                for name, distribution in trial.distributions.items()
            ),
        )
        for name, field in (
            ("trial_user_attributes", "user_attrs"),
            ("trial_system_attributes", "system_attrs"),
        ):
            _insert(
                link,
                tables[name],
                ("trial_id", "key", "value_json"),
                (
                    (ids[number], key, json.dumps(value))
                    for number, trial in enumerate(trials)
                    for key, value in getattr(trial, field).items()
                ),
            )


@functools.lru_cache(maxsize=1024)
def _as_json(distribution: BaseDistribution) -> str:
    """Return what Optuna stores; a study has few distributions and many parameters."""
    return distribution_to_json(distribution)


def _insert(
    link: sqlalchemy.Connection,
    table: sqlalchemy.Table,
    names: tuple[str, ...],
    rows: Iterable[tuple[Any, ...]],
) -> None:
    """Insert plain numbers and texts through the driver, which is twice as fast."""
    statement = sqlalchemy.insert(table).compile(dialect=link.dialect, column_keys=list(names))
    order = statement.positiontup
    remaining = iter(rows)
    while block := list(itertools.islice(remaining, _ROWS_AT_ONCE)):
        if order == list(names):
            link.exec_driver_sql(str(statement), block)
        else:
            # Drivers that take parameters by name.
            named = [dict(zip(names, row, strict=True)) for row in block]
            link.execute(sqlalchemy.insert(table), named)
