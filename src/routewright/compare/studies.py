"""The runs of a comparison as Optuna studies, side by side in one storage.

Each run is a study named ``COMPARISON/WORK/SAMPLER/seed-N``. Its trials carry what trials of
``tune`` carry, and the live knobs as parameters: the others change nothing, and would make the
storage five times as large. A study is written in one go when its run has ended; one that was cut
off by a kill is written anew.
"""

from __future__ import annotations

import datetime
import math
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import optuna
import optuna_dashboard
from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from routewright.bulk import add_finished_trials
from routewright.compare.run import Run
from routewright.errors import StorageError
from routewright.records import SCHEMA_VERSION, TrialRecord
from routewright.search.candidates import parsed
from routewright.space import SearchSpace
from routewright.storage import STORAGE_FAULTS, fault_line
from routewright.study import CONSTRAINT, MARK, METRIC_NAME, constraint_of, state_of

COMPARED = "compared"
"""User attribute that tells which run of which comparison a study is."""

FINISHED = "finished"
"""User attribute of a study that is there as a whole."""

ARTIFACTS = "artifacts"
"""Study attribute that tells ``routewright dashboard`` in which folder its artifacts lie."""

SUMMARY = "summary"
"""Last part of the name of the study that carries the comparison's summary."""

_LEFT_OUT = frozenset({"log_ratios", "notes"})
"""Attributes of a trial that no report reads and that would double the storage."""


class ComparedStudies:
    """The studies of one comparison in a storage.

    Args:
        storage: The storage.
        comparison: Name of the comparison.
    """

    def __init__(self, storage: BaseStorage, comparison: str) -> None:
        self._storage = storage
        self._comparison = comparison
        try:
            names = optuna.get_all_study_names(storage)
        except STORAGE_FAULTS as error:
            raise StorageError(f"cannot read the storage: {fault_line(error)}") from error
        self._names = {name for name in names if name.startswith(f"{comparison}/")}

    def refuse_others(self) -> None:
        """Check that a new comparison meets no studies of its name.

        Raises:
            StorageError: There are some.
        """
        if self._names:
            raise StorageError(
                f"the storage already holds studies of a comparison named {self._comparison!r}; "
                "continue it with --resume, or give --out another name"
            )

    def write(
        self,
        run: Run,
        space: SearchSpace,
        *,
        live: Collection[str] = (),
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a run, unless it is there as a whole.

        Args:
            run: The run.
            space: The routes that it searched.
            live: Knobs that every trial has as parameters; where none are known, each trial has
                those that it changes.
            identity: What its results are valid for.

        Raises:
            StorageError: The storage cannot be written.
        """
        name = f"{self._comparison}/{run.key.name}"
        try:
            if name in self._names:
                if (
                    FINISHED
                    in optuna.load_study(study_name=name, storage=self._storage).user_attrs
                ):
                    return
                optuna.delete_study(study_name=name, storage=self._storage)
            study = self._created(name)
            about = {
                "comparison": self._comparison,
                "work": run.key.work,
                "sampler": run.key.sampler,
                "seed": run.key.seed,
            }
            mark = {"schema_version": SCHEMA_VERSION, **(identity or {}), "seed": run.key.seed}
            began = datetime.datetime.now().replace(microsecond=0)
            add_finished_trials(
                study,
                self._storage,
                [_trial(record, space, live, began) for record in run.records],
                attributes={
                    MARK: mark | {COMPARED: about},
                    **about,
                    "stopped": run.stopped,
                    FINISHED: True,
                },
            )
        except STORAGE_FAULTS as error:
            raise StorageError(f"cannot write the study {name!r}: {fault_line(error)}") from error
        self._names.add(name)

    def write_summary(
        self, markdown: str, summary: Mapping[str, Any], images: Iterable[Path], artifacts: Path
    ) -> str:
        """Write the study that carries the comparison's summary, and return its name.

        Its note is the summary, with the images in it; its attributes hold the ranking.

        Args:
            markdown: The summary.
            summary: What its attributes say.
            images: PNG files to show.
            artifacts: Folder of the artifact store.

        Raises:
            StorageError: The storage or the folder cannot be written.
        """
        name = f"{self._comparison}/{SUMMARY}"
        try:
            if name in optuna.get_all_study_names(self._storage):
                optuna.delete_study(study_name=name, storage=self._storage)
            study = self._created(name)
            study.set_user_attr(MARK, {"schema_version": SCHEMA_VERSION, COMPARED: True})
            for key, value in summary.items():
                study.set_user_attr(key, value)
            artifacts.mkdir(parents=True, exist_ok=True)
            study.set_user_attr(ARTIFACTS, str(artifacts))
            store = FileSystemArtifactStore(base_path=str(artifacts))
            shown = []
            for image in images:
                artifact = upload_artifact(
                    artifact_store=store, file_path=str(image), study_or_trial=study
                )
                address = f"/artifacts/{study._study_id}/{artifact}"
                shown.append(f"![{image.stem}]({address})")
            optuna_dashboard.save_note(study, "\n\n".join([markdown, *shown]))
        except STORAGE_FAULTS as error:
            raise StorageError(f"cannot write the study {name!r}: {fault_line(error)}") from error
        return name

    def _created(self, name: str) -> optuna.Study:
        study = optuna.create_study(storage=self._storage, study_name=name, direction="minimize")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names([METRIC_NAME])
        return study


def _trial(
    record: TrialRecord,
    space: SearchSpace,
    live: Collection[str],
    began: datetime.datetime,
) -> FrozenTrial:
    route = parsed(space, record.route)
    params: dict[str, Any] = {}
    if route is not None and space.contains(route):
        values = space.params(route)
        wanted = live or route.changed
        params = {name: value for name, value in values.items() if name in wanted}
    state = state_of(record)
    trial = create_trial(
        state=state,
        value=record.relative_latency if state is TrialState.COMPLETE else None,
        params=params,
        distributions={name: space.distribution(name) for name in params},
        user_attrs={k: v for k, v in record.to_attributes().items() if k not in _LEFT_OUT},
        constraints={CONSTRAINT: constraint_of(record)},
    )
    # The timeline is that of the work's clock.
    ended = began + datetime.timedelta(seconds=record.elapsed_s)
    trial.datetime_complete = ended
    trial.datetime_start = ended - datetime.timedelta(seconds=_seconds(record))
    return trial


def _seconds(record: TrialRecord) -> float:
    return record.cost_s if math.isfinite(record.cost_s) else 0.0
