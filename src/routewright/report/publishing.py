"""What a tuning leaves for Optuna's dashboard: a note, figures and files, while it runs and after.

Publishing costs time of the budget, so it is kept to a small share of it, and it never ends a
tuning: where the storage or the disk refuses, the study goes on without.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from optuna.exceptions import OptunaError
from optuna.trial import Trial

from routewright.budget import Budget
from routewright.errors import StorageError
from routewright.files import write_text_atomic
from routewright.outfolder import OutFolder
from routewright.progress import Forwarding, Progress
from routewright.records import TrialRecord
from routewright.report.artifacts import (
    ARTIFACTS_ATTRIBUTE,
    FOLDER,
    LinkingStore,
    attach,
    attach_text,
)
from routewright.report.markdown import study_note
from routewright.report.source import StudyView, view_of, view_of_result
from routewright.report.story import Story, tell
from routewright.result import TuneResult
from routewright.storage import STORAGE_FAULTS, fault_line
from routewright.study import StudyLog

REPORT_FILE = "report.html"

_FAULTS = (*STORAGE_FAULTS, OptunaError, StorageError)

_NOTE_EVERY_S = 5.0
"""Least seconds between two versions of the note."""

_NOTE_SHARE = 0.01
"""Most of the time that goes into keeping the note current."""

_FIGURES_S = 1.5
"""Seconds that figures and report need; with less left they are not made."""


class Publisher(Forwarding):
    """Publishes a study while it is tuned; everything is forwarded to another progress.

    Args:
        inner: Hears everything, too.
    """

    def __init__(self, inner: Progress) -> None:
        super().__init__(inner)
        self._log: StudyLog | None = None
        self._out: OutFolder | None = None
        self._store: LinkingStore | None = None
        self._first: StudyView | None = None
        self._next_note_s = 0.0
        self._complained = False

    def study_opened(self, log: StudyLog, out: OutFolder) -> None:
        """Begin: the study exists now."""
        super().study_opened(log, out)
        self._log, self._out = log, out
        self._store = LinkingStore(out.path / FOLDER)
        log.before_finish = self._attach_log
        self._try(lambda: log.note(ARTIFACTS_ATTRIBUTE, str(out.path / FOLDER)))

    def trial_finished(
        self, record: TrialRecord, best: TrialRecord | None, budget: Budget
    ) -> None:
        """Bring the note up to date where that is due."""
        super().trial_finished(record, best, budget)
        started_s = time.monotonic()
        log, out = self._log, self._out
        if log is None or out is None or started_s < self._next_note_s:
            return
        self._try(lambda: self._write_note(log, self._story(log, out, budget.used_s)))
        now_s = time.monotonic()
        self._next_note_s = now_s + max(_NOTE_EVERY_S, (now_s - started_s) / _NOTE_SHARE)

    def result_written(self, result: TuneResult, budget: Budget) -> None:
        """Publish the result: note, files, and figures where there is time for them."""
        super().result_written(result, budget)
        log, out, store = self._log, self._out, self._store
        if log is None or out is None or store is None:
            return
        story = tell(view_of_result(result, log))
        self._try(lambda: self._write_note(log, story))
        self._try(lambda: self._attach_results(log, out, store))
        if budget.end_s - budget.now_s() >= _FIGURES_S:
            self._try(lambda: _write_figures(log, out, store, story))

    def _story(self, log: StudyLog, out: OutFolder, used_s: float) -> Story:
        if self._first is None:
            # What does not change is read once, the records are at hand.
            self._first = view_of(log.study, folder=out.path, in_use=True)
        view = replace(self._first, records=tuple(log.records), used_s=used_s, result=None)
        return tell(view, with_effects=False)

    def _write_note(self, log: StudyLog, story: Story) -> None:
        # Imported here, since it takes a second that no other command should wait for.
        from optuna_dashboard import save_note

        save_note(log.study, study_note(story, updated=time.strftime("%Y-%m-%d %H:%M:%S %z")))

    def _attach_log(self, trial: Trial, record: TrialRecord) -> None:
        store = self._store
        if store is not None and record.log:
            text = f"{record.failure}: {record.reason}\n\nroute: {record.route}\n\n{record.log}"
            self._try(lambda: attach_text(store, trial, text, f"trial-{record.number}.log"))

    def _attach_results(self, log: StudyLog, out: OutFolder, store: LinkingStore) -> None:
        for path in (out.result, out.route):
            attach(store, log.study, path)
        for path in sorted(p for p in out.engine.rglob("*") if p.is_file()):
            name = "-".join(("engine", *path.relative_to(out.engine).parts))
            attach(store, log.study, path, name)

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except _FAULTS as error:
            if not self._complained:
                self._complained = True
                self.note(
                    f"the dashboard's note and files are not up to date: {fault_line(error)}"
                )


def _write_figures(log: StudyLog, out: OutFolder, store: LinkingStore, story: Story) -> None:
    # Only now: Plotly takes a while to load, and a search should not wait for it.
    from optuna_dashboard import save_plotly_graph_object

    from routewright.report.figures.study import study_figures
    from routewright.report.html import study_html

    figures = study_figures(story)
    path = out.path / REPORT_FILE
    write_text_atomic(path, study_html(story, figures=figures))
    attach(store, log.study, path)
    for shown in study_figures(story, compact=True):
        save_plotly_graph_object(log.study, shown.figure, graph_object_id=shown.key)
