"""A whole comparison on works whose truth is known: run what is missing, then put it together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routewright.compare.folder import ComparisonFolder
from routewright.compare.markdown import markdown
from routewright.compare.measures import Row, Trace, rows_of, trace_of
from routewright.compare.plan import Plan, RunKey
from routewright.compare.runner import Opener, carry_out_missing, missing_runs
from routewright.compare.statistics import Interval
from routewright.compare.studies import ComparedStudies
from routewright.compare.summary import Summary, summarize
from routewright.compare.work import Work
from routewright.environment import versions
from routewright.errors import SettingsError
from routewright.files import write_text_atomic
from routewright.storage import close_storage, open_storage, sqlite_url

IDENTITIES = "identities"
"""Key of ``comparison.json`` that tells by digest what each work was."""

Drawer = Callable[[Summary, Path], list[Path]]
"""Draws the figures of a summary into a folder; returns the images to show beside it."""


@dataclass(frozen=True)
class Compared:
    """What a comparison came to.

    Attributes:
        summary: It in numbers; None if no run is finished.
        missing: Runs that are not finished.
        interrupted: Whether the user ended it.
        study: Name of the study that carries the summary.
    """

    summary: Summary | None
    missing: int
    interrupted: bool
    study: str = ""


def compare(
    plan: Plan,
    openers: Mapping[str, Opener],
    folder: ComparisonFolder,
    *,
    storage: str | None = None,
    jobs: int = 1,
    resume: bool = False,
    note: Mapping[str, Any] | None = None,
    on_run: Callable[[RunKey, int], None] = lambda key, left: None,
    draw: Drawer = lambda summary, folder: [],
) -> Compared:
    """Compare search methods.

    Args:
        plan: What to compare.
        openers: How to open each work, by its name.
        folder: Where it goes.
        storage: Optuna storage of the studies; None: a file in the folder.
        jobs: Processes.
        resume: Go on with the comparison in the folder.
        note: What else to keep with the plan.
        on_run: Hears of every finished run and how many are left.
        draw: Draws the figures.

    Raises:
        RoutewrightError: Something the user can mend.
    """
    works = {name: opener() for name, opener in openers.items()}
    identities = {name: _digest(work) for name, work in works.items()}
    if resume:
        _refuse_other_works(folder.stored().get(IDENTITIES) or {}, identities)
    kept = {"versions": versions(), IDENTITIES: identities, **(note or {})}
    with folder.opened(plan, resume=resume, note=kept):
        opened = open_storage(storage or sqlite_url(folder.database))
        try:
            studies = ComparedStudies(opened, folder.name)
            if not resume:
                studies.refuse_others()
            return _Job(plan, openers, works, folder, studies, on_run, draw).run(jobs)
        finally:
            close_storage(opened)


@dataclass(frozen=True)
class _Job:
    plan: Plan
    openers: Mapping[str, Opener]
    works: Mapping[str, Work]
    folder: ComparisonFolder
    studies: ComparedStudies
    on_run: Callable[[RunKey, int], None]
    draw: Drawer

    def run(self, jobs: int) -> Compared:
        left = len(missing_runs(self.plan, self.folder))

        def finished(key: RunKey) -> None:
            nonlocal left
            left -= 1
            self._write_study(key)
            self.on_run(key, left)

        interrupted = False
        try:
            carry_out_missing(self.plan, self.openers, self.folder, jobs=jobs, on_run=finished)
            for key in self._finished():
                # A kill may have come between a run's file and its study.
                self._write_study(key)
        except KeyboardInterrupt:
            interrupted = True
        summary = self._put_together()
        if summary is None:
            return Compared(None, left, interrupted)
        text = markdown(summary)
        write_text_atomic(self.folder.path / "summary.md", text)
        write_text_atomic(self.folder.path / "summary.csv", summary.to_csv())
        write_text_atomic(self.folder.path / "summary.json", summary.to_json())
        images = self.draw(summary, self.folder.figures)
        ranks = {
            "mean rank by regret": _means(summary.by_regret.mean_ranks),
            "mean rank by builds": _means(summary.by_builds.mean_ranks),
        }
        study = self.studies.write_summary(text, ranks, images, self.folder.artifacts)
        return Compared(summary, len(missing_runs(self.plan, self.folder)), interrupted, study)

    def _finished(self) -> Iterator[RunKey]:
        return (key for key in self.plan.runs() if self.folder.has(key))

    def _write_study(self, key: RunKey) -> None:
        work = self.works[key.work]
        run = self.folder.load(key)
        self.studies.write(run, work.space, live=work.live, identity=work.identity)

    def _put_together(self) -> Summary | None:
        traces: list[Trace] = []

        def rows() -> Iterator[Row]:
            for key in self._finished():
                work, run = self.works[key.work], self.folder.load(key)
                found = rows_of(run, work.truth, work.best)
                traces.append(trace_of(run, found, work.best))
                yield from found

        self.folder.write_results(rows())
        if not traces:
            return None
        best = {name: work.best for name, work in self.works.items()}
        return summarize(self.plan, traces, best, versions=versions())


def _digest(work: Work) -> str:
    text = json.dumps(work.identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _refuse_other_works(stored: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse to add runs on a work that has changed since the comparison began."""
    changed = [name for name in found if stored.get(name, found[name]) != found[name]]
    if changed:
        raise SettingsError(
            f"{', '.join(changed)} is not what the comparison began with: a table was recorded "
            "anew; choose another --out"
        )


def _means(ranks: Mapping[str, Interval]) -> dict[str, float]:
    return {name: round(interval.estimate, 4) for name, interval in ranks.items()}
