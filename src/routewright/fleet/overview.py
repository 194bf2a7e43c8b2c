"""A group on one screen: what each of its environments has come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.storages import BaseStorage

from routewright.errors import StorageError
from routewright.fleet.election import verdict_among
from routewright.fleet.joining import Member, members
from routewright.fleet.lease import Beat, beats_in
from routewright.records import TrialRecord, record_of
from routewright.search.base import history_of
from routewright.searching import best_of
from routewright.storage import STORAGE_FAULTS, fault_line


@dataclass(frozen=True)
class Standing:
    """What one study of a group has come to.

    Attributes:
        member: The study.
        workers: Its workers' leases by name, those that left included.
        trials: How many records it has.
        running: Routes that are being tried.
        best: The best of the search, not confirmed; None before the first.
        verdict: What the worker that confirmed wrote, or None.
    """

    member: Member
    workers: Mapping[str, Beat]
    trials: int
    running: tuple[str, ...]
    best: TrialRecord | None
    verdict: Mapping[str, Any] | None

    @property
    def used_s(self) -> float:
        """Seconds of the budget that are used, as the last beat told."""
        return max((beat.elapsed_s for beat in self.workers.values()), default=0.0)

    @property
    def machine_s(self) -> float:
        """Seconds of all workers together."""
        return sum(beat.machine_s for beat in self.workers.values())

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        best = None
        if self.best is not None:
            best = {
                "route": self.best.route,
                "relative_latency": self.best.relative_latency,
                "ci95": list(self.best.ci95 or ()),
            }
        return {
            "study": self.member.name,
            "environment": dict(self.member.identity["environment"]),
            "budget_s": self.member.terms.budget_s,
            "used_s": self.used_s,
            "machine_s": round(self.machine_s, 3),
            "workers": len(self.workers),
            "workers_left": sum(beat.left for beat in self.workers.values()),
            "trials": self.trials,
            "running": list(self.running),
            "best_of_search": best,
            "result": None if self.verdict is None else self.verdict["result"],
        }


def overview(storage: BaseStorage, group: str) -> list[Standing]:
    """Return the standings of a group's studies, in the order in which they were begun.

    Raises:
        StorageError: There is no such group, or the storage cannot be read.
    """
    try:
        found = [_standing(storage, member) for member in members(storage, group)]
    except STORAGE_FAULTS as error:
        raise StorageError(f"cannot read the group {group!r}: {fault_line(error)}") from error
    if not found:
        raise StorageError(f"the storage holds no group {group!r}")
    return found


def _standing(storage: BaseStorage, member: Member) -> Standing:
    study = optuna.load_study(storage=storage, study_name=member.name)
    trials = study.get_trials(deepcopy=False)
    records = [record for trial in trials if (record := record_of(trial)) is not None]
    return Standing(
        member=member,
        workers=beats_in(member.attributes),
        trials=len(records),
        running=tuple(history_of(study).running),
        best=best_of(records),
        verdict=verdict_among(trials),
    )
