"""Finding or making the study of a group that belongs to this machine's environment."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning
from optuna.storages import BaseStorage

from routewright.errors import SettingsError, StorageError
from routewright.fleet.identity import differences, is_of_group, study_name
from routewright.records import SCHEMA_VERSION
from routewright.study import MARK, METRIC_NAME

TERMS = "fleet"
"""User attribute of a study: what its workers agreed on, see :class:`Terms`."""

_SETTLE_S = 10.0


@dataclass(frozen=True)
class Terms:
    """What all workers of a study go by.

    Attributes:
        group: The group's name.
        budget_s: Wall-clock seconds from the start of the first worker.
        machine_budget_s: Seconds of all workers together, or None.
        lease_s: A worker is gone when it was not heard of for so long.
    """

    group: str
    budget_s: float
    machine_budget_s: float | None
    lease_s: float

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "group": self.group,
            "budget_s": self.budget_s,
            "machine_budget_s": self.machine_budget_s,
            "lease_s": self.lease_s,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Terms:
        """Read it back.

        Raises:
            KeyError: Something is missing.
        """
        machine_s = content.get("machine_budget_s")
        return cls(
            str(content["group"]),
            float(content["budget_s"]),
            None if machine_s is None else float(machine_s),
            float(content["lease_s"]),
        )


@dataclass(frozen=True)
class Member:
    """One study of a group.

    Attributes:
        name: Its name in the storage.
        identity: What it is valid for.
        terms: What its workers go by.
        settings: What it tunes and how.
        attributes: All user attributes.
    """

    name: str
    identity: Mapping[str, Any]
    terms: Terms
    settings: Mapping[str, Any]
    attributes: Mapping[str, Any]


def members(storage: BaseStorage, group: str) -> list[Member]:
    """Return the studies of a group, in the order in which they were begun.

    Raises:
        StorageError: There is a study of that name that is no group's, or one of another version.
    """
    studies = storage.get_all_studies()
    found = [study for study in studies if is_of_group(study.study_name, group)]
    taken = not found and any(study.study_name == group for study in studies)
    if taken:
        raise StorageError(
            f"the study {group!r} was not made by workers and cannot be joined; begin a shared "
            "one of another name from a study file: routewright worker STUDY.toml"
        )
    whole = [s for s in found if {MARK, TERMS, "settings"} <= s.user_attrs.keys()]
    return [_member(s.study_name, s.user_attrs) for s in sorted(whole, key=lambda s: s._study_id)]


def join(
    storage: BaseStorage,
    *,
    terms: Terms,
    identity: Mapping[str, Any],
    notes: Mapping[str, Any],
    new_environment: bool,
) -> tuple[optuna.Study, bool]:
    """Return the group's study for this environment, and whether this call made it.

    Args:
        storage: The storage.
        terms: What the study is begun with, if this call begins it.
        identity: What this worker can work on, see :func:`shared_identity`.
        notes: Further user attributes of the study, if this call begins it.
        new_environment: Whether a further study may be begun beside those of other environments.

    Raises:
        SettingsError: The group's studies are for other environments, or tune something else;
            naming every difference.
    """
    name = study_name(terms.group, identity)
    known = members(storage, terms.group)
    if all(member.name != name for member in known):
        _refuse_unless_new(known, identity, terms.group, new_environment)
    content = {
        TERMS: terms.to_json(),
        **notes,
        # Last: a study that has it is whole.
        MARK: {"schema_version": SCHEMA_VERSION, **identity},
    }
    if all(member.name != name for member in known):
        with contextlib.suppress(DuplicatedStudyError):
            study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                study.set_metric_names([METRIC_NAME])
            for key, value in content.items():
                study.set_user_attr(key, value)
            return study, True
    study = optuna.load_study(storage=storage, study_name=name)
    give_up_s = time.monotonic() + _SETTLE_S
    while MARK not in study.user_attrs and time.monotonic() < give_up_s:
        time.sleep(0.2)
    if MARK not in study.user_attrs:
        # Whoever began it was killed while it did; what it would have written is known.
        for key, value in content.items():
            study.set_user_attr(key, value)
    return study, False


def _member(name: str, attributes: Mapping[str, Any]) -> Member:
    identity = dict(attributes[MARK])
    version = identity.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise StorageError(
            f"the study {name!r} was written by another version (schema {version}, this one "
            f"reads {SCHEMA_VERSION}); join it with that version"
        )
    terms = Terms.from_json(attributes[TERMS])
    return Member(name, identity, terms, attributes["settings"], attributes)


def _refuse_unless_new(
    known: list[Member], identity: Mapping[str, Any], group: str, new_environment: bool
) -> None:
    if not known:
        return
    compared = [differences(member.identity, identity) for member in known]
    environment, tuned = min(compared, key=lambda pair: (len(pair[1]), len(pair[0])))
    if tuned:
        raise SettingsError(
            f"the group {group!r} tunes something else: {'; '.join(tuned)}; give this one "
            "another name (study in the study file)"
        )
    if not new_environment:
        raise SettingsError(
            f"this machine is another environment than those of the group {group!r}, and times "
            f"do not mix: {'; '.join(environment)}; --new-environment opens a study of its own "
            "in the group"
        )
