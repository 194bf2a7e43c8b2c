"""The main job: find the fastest eligible route within the budget, and say how sure that is.

One route goes through these steps: the sampler proposes it (:mod:`routewright.search`), a trial
builds, checks and times it (:mod:`routewright.trial`), its record is committed to the study
(:mod:`routewright.study`), the best few are confirmed (:mod:`routewright.confirm`), and the winner
becomes the result (:mod:`routewright.result`).
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage

from routewright.baseline import measure_baseline
from routewright.budget import Budget
from routewright.census import take_census
from routewright.confirm import Confirmed, choose_candidates, confirm, pick
from routewright.errors import (
    BackendError,
    BudgetError,
    RoutewrightError,
    SettingsError,
    StorageError,
)
from routewright.locks import DeviceLock, cpu_lock_names, gpu_lock_name
from routewright.outcome import OutcomeWriter
from routewright.outfolder import OutFolder, fresh_folder
from routewright.preparation import too_short
from routewright.priors.files import write_prior
from routewright.priors.warmstart import WarmStart
from routewright.progress import Progress
from routewright.records import Outcome, Phase, TrialRecord
from routewright.result import RESULT_ATTRIBUTE, TuneResult
from routewright.routes import Route
from routewright.search.base import Proposal
from routewright.search.hints import SearchHints
from routewright.search.registry import check_sampler, make_sampler
from routewright.searching import best_of, expected_s
from routewright.settings import TuneSettings, relative_to
from routewright.simplify import simplify
from routewright.sources import Source, open_source, resolved
from routewright.storage import close_storage, open_storage, redact, sqlite_url, storage_url
from routewright.study import StudyLog, Ticket
from routewright.studyfile import (
    read_study_note,
    refuse_other_identity,
    refuse_other_settings,
    storable,
    write_study_note,
)
from routewright.trial import KnownResults, TrialRules, run_trial
from routewright.warming import (
    Described,
    chosen_prior,
    enqueue_next,
    learned,
    note_features,
    warm_start,
)
from routewright.workbench import TrialFailure

_CONFIRMATION_SHARE = 0.35
"""Most of the budget that is kept for confirming the winner."""

TIMING_SHARE = 0.03
"""Most of the budget that goes into timing one candidate, so that a short one tries several."""

_SIMPLIFY_SHARE = 0.2
"""Most of the confirmation's time that goes into finding the candidates' simplest routes."""

_RESTART_S = 1.5
"""Seconds that a fresh worker process takes to be ready."""

_FINISH_S = 1.0
"""Seconds kept for saving the engine and writing the result."""

_PUBLISH_SHARE, _PUBLISH_S = 0.02, 2.0
"""Share of the budget kept for figures and report, and its most seconds."""

_CONFIRM_AFTER_INTERRUPT_S = 15.0
"""Most seconds that confirming takes once the user wants out."""

_LOCK_WAIT_S = 10.0

NOTHING_LEFT = "every route worth it was tried"
"""Why a search ended that did not use its budget."""


def run(
    settings: TuneSettings,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    started_s: float | None = None,
) -> TuneResult:
    """Tune a model; see :func:`routewright.tune` for the same with keyword options.

    Args:
        settings: What to tune, within what, and how.
        resume: Continue the study in ``settings.out``.
        progress: Hears what happens.
        started_s: When the command started, on the monotonic clock; now, if None.

    Raises:
        RoutewrightError: Something the user can mend; its message says how.
    """
    started_s = time.monotonic() if started_s is None else started_s
    progress = progress or Progress()
    check_sampler(settings.sampler)
    settings = resolved(relative_to(settings, Path.cwd()))
    if settings.storage is not None:
        settings = replace(settings, storage=storage_url(settings.storage))
    if resume:
        if settings.out is None:
            raise SettingsError("to resume, say which folder the study is in (out)")
        refuse_other_settings(Path(settings.out), settings)
    # Whatever is wrong with the inputs is said before anything is written.
    source = open_source(settings)
    path = (
        Path(settings.out)
        if settings.out
        else fresh_folder(source.subject.path.stem, Path("routewright-out"))
    )
    with OutFolder(path, resume=resume) as out:
        return Tuner(settings, source, out, resume, progress, started_s).run()


class Tuner:
    """One run of the main job, alone with its study.

    A worker of a shared study (:mod:`routewright.fleet.worker`) does the same steps with others.

    Args:
        settings: What to tune, within what, and how.
        source: What is tuned.
        out: The output folder, entered.
        resume: Whether the folder holds a study to go on with.
        progress: Hears what happens.
        started_s: When the command started, on the monotonic clock.
    """

    shared = False
    """Whether others work on the study, too."""

    def __init__(
        self,
        settings: TuneSettings,
        source: Source,
        out: OutFolder,
        resume: bool,
        progress: Progress,
        started_s: float,
    ) -> None:
        self.settings = settings
        self.source = source
        self.prior = chosen_prior(settings, resume=resume)
        self.warm: WarmStart | None = None
        self.out = out
        self.resume = resume
        self.progress = progress
        self.budget = Budget(
            settings.budget_s,
            now_s=source.now_s,
            # Where a table is replayed, time passes on its clock only.
            started_s=source.now_s() if source.subject.simulated else started_s,
            used_before_s=float(read_study_note(out.path).get("used_s", 0.0)) if resume else 0.0,
        )
        self.interrupted = False
        self.remarks: list[str] = []
        """What a user should know, for the result."""

    def run(self) -> TuneResult:
        """Tune, and return the result.

        Raises:
            RoutewrightError: Something the user can mend.
        """
        if self.budget.remaining_s <= 0:
            raise BudgetError(
                f"the budget of {self.budget.limit_s:g} s is used up "
                f"({self.budget.used_s:.0f} s); give a larger --budget to go on"
            )
        with self._ready() as storage:
            return self._study(storage)

    @contextlib.contextmanager
    def _ready(self) -> Iterator[BaseStorage]:
        """Open the storage and get everything ready for the baseline."""
        with contextlib.ExitStack() as stack:
            if not self.resume:
                # First of all: whenever the rest is killed, the folder says what it is.
                self._write_study_file()
            storage = open_storage(
                self.settings.storage or sqlite_url(self.out.database), flush=self._flush
            )
            stack.callback(close_storage, storage)
            self.prepared = self.source.prepare(
                self.settings, self.out, self.budget, self.progress
            )
            stack.callback(self.prepared.worker.close)
            if not (self.settings.shared_device or self.source.subject.simulated):
                lock = DeviceLock(_device_names(self.prepared.environment))
                lock.acquire(timeout_s=min(_LOCK_WAIT_S, self.budget.remaining_s / 2))
                stack.enter_context(lock)
            for note in self.prepared.notes:
                self._remark(note)
            self._look_at_device()
            self.rules = TrialRules(
                limits=self.prepared.limits,
                timing=replace(
                    self.settings.timing_limits(),
                    max_s=min(self.settings.max_timing_s, TIMING_SHARE * self.budget.limit_s),
                ),
                seed=self.settings.seed,
            )
            yield storage

    def _study(self, storage: BaseStorage) -> TuneResult:
        begun = self.resume and bool(read_study_note(self.out.path).get("begun"))
        if begun:
            self.log = self._reopened(storage)
        measured = self._measured_baseline()
        if not begun:
            # Only now: a model that cannot be tuned leaves no empty study in anyone's storage.
            self.log = self._created(storage)
        self.log.flush = self._flush
        if not self.source.subject.simulated:
            self.log.end_s = self.budget.end_s
        self.progress.study_opened(self.log, self.out)
        baseline = self._commit_baseline(measured)
        stopped = "interrupted"
        with self._interruptible():
            stopped = self._search(baseline)
        confirmed: list[Confirmed] = []
        winner: Confirmed | None = None
        with self._interruptible():
            confirmed = self._confirm(baseline, self.budget.end_s - self._finish_s())
            winner = pick(confirmed)
        with contextlib.suppress(TrialFailure):
            self._look_at_device()
        outcome = OutcomeWriter(self.settings, self.prepared, self.out, self.budget)
        result = outcome.write(
            baseline,
            self.log.records,
            confirmed,
            winner,
            study=self.log.study.study_name,
            stopped=stopped,
            interrupted=self.interrupted,
            notes=self.remarks,
        )
        with contextlib.suppress(StorageError):
            # The result is on disk; a storage that is gone now takes nothing away from it.
            self.log.note(RESULT_ATTRIBUTE, result.to_content())
        self.progress.result_written(result, self.budget)
        self._update_study_file(trials=len(self.log.records))
        self.out.clear_work()
        if self.settings.learn:
            self.progress.note(learned(self.log, self.settings))
        return result

    @cached_property
    def _described(self) -> Described:
        return Described.of(self.settings, self.prepared)

    def _warm_start(self) -> WarmStart | None:
        """Ask the prior, if there is one, and say what it gave."""
        if self.prior is None:
            return None
        start = warm_start(self.prior, self.settings, self.prepared, self._described)
        for note in start.notes:
            self._remark(note)
        if start.warm is not None:
            write_prior(self.out.prior, start.used.sources)
        return start.warm

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)
            self.progress.note(text)

    def _look_at_device(self) -> None:
        """Say it where the device is throttled or shared."""
        for remark in self.prepared.worker.health().get("remarks", ()):
            self._remark(str(remark))

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """End a part of the work at Ctrl-C and go on with the next; a second one ends it all."""
        if self.interrupted:
            # The user wants out: what is left is confirmation of the best, and that is short.
            self.budget.curtail(_CONFIRM_AFTER_INTERRUPT_S)
        try:
            yield
        except KeyboardInterrupt:
            if self.interrupted:
                raise
            self.interrupted = True
            self.prepared.worker.restart()
            self.log.end_unfinished()
            self.progress.note(
                "interrupted: confirming the best so far; Ctrl-C again ends at once"
            )

    def _reopened(self, storage: BaseStorage) -> StudyLog:
        log = StudyLog.reopen(storage, self._study_name(), pending=self.out.pending)
        refuse_other_identity(log.identity, self.prepared.identity(self.settings))
        return log

    def _created(self, storage: BaseStorage) -> StudyLog:
        if self.resume and self.settings.storage is None:
            # Killed after the study was made and before that was noted.
            with contextlib.suppress(StorageError):
                return self._reopened(storage)
        log = StudyLog.create(
            storage,
            self._study_name(),
            identity=self.prepared.identity(self.settings),
            pending=self.out.pending,
        )
        self.out.keep = True
        log.note("settings", storable(self.settings))
        note_features(log, self.settings, self._described)
        defaults = {knob.name: knob.default for knob in self.prepared.database}
        log.note("knob_defaults", defaults)
        self._update_study_file(begun=True)
        return log

    @property
    def _flush(self) -> bool:
        """Whether to wait for the disk; what is simulated can be simulated again."""
        return not self.source.subject.simulated

    def _study_name(self) -> str:
        if self.resume:
            return str(read_study_note(self.out.path)["study"])
        return self.settings.study or f"{self.source.subject.path.stem}-{self.out.path.name}"

    def _measured_baseline(self) -> TrialRecord:
        self.progress.phase("baseline", "the default route")
        shutil.rmtree(self.out.baseline_engine, ignore_errors=True)
        record, remark = measure_baseline(
            self.prepared.worker,
            self.rules,
            end_s=self.budget.end_s - self._finish_s(),
            engine_folder=self.out.baseline_engine,
            explain=self._no_baseline,
        )
        if remark:
            self._remark(remark)
        return record

    def _commit_baseline(self, measured: TrialRecord) -> TrialRecord:
        proposal = Proposal(
            Route(),
            parameters=tuple(self.prepared.space.variable),
            phase=Phase.BASELINE,
            origin=measured.origin,
        )
        ticket = self.log.begin(proposal, self.prepared.space)
        record = self._committed(ticket, replace(measured, number=ticket.number))
        self.progress.trial_finished(record, record, self.budget)
        return record

    def _no_baseline(self, failure: TrialFailure) -> RoutewrightError:
        return too_short(self.budget, failure, kept_s=self._finish_s()) or BackendError(
            f"the default route cannot be built and run: {failure.message}"
        )

    def _search_end_s(self, baseline: TrialRecord) -> float:
        """Return when searching has to end so that the best found so far can be confirmed.

        Two rounds of every candidate there is, or one round of one that may yet be found; never
        more than a fixed share of the budget.
        """
        candidates = len(choose_candidates(self.log.records))
        one_s = 2 * (baseline.build_s or 0.0) + (baseline.check_s or 0.0)
        one_s += self.rules.timing.max_s
        wanted_s = max(2 * candidates, 1) * one_s + 2 * _RESTART_S
        reserve_s = min(wanted_s, _CONFIRMATION_SHARE * self.budget.limit_s)
        return self.budget.end_s - reserve_s - self._finish_s()

    def _finish_s(self) -> float:
        """Return the seconds kept for the end; writing an engine is like copying the model."""
        publish_s = min(_PUBLISH_SHARE * self.budget.limit_s, _PUBLISH_S)
        return _FINISH_S + publish_s + self.source.subject.size_bytes / 200e6

    def _search(self, baseline: TrialRecord) -> str:
        """Try routes until the search's time is up; return why it ended."""
        bench, space = self.prepared.worker, self.prepared.space
        self.warm = self.warm or self._warm_start()
        sampler = make_sampler(
            self.settings.sampler, space, seed=self._sampler_seed(), hints=self._hints()
        )
        self.progress.phase("search", f"{_count(space.size)} routes, sampler {sampler.name}")
        known = self._known_results()
        best = best_of(self.log.records)
        seen = len(self.log.records)
        out_of_time = False

        def fits(proposal: Proposal) -> bool:
            nonlocal out_of_time
            needed_s = expected_s(self.log.records, baseline, proposal, self.rules)
            out_of_time = bench.now_s() + needed_s > self._search_end_s(baseline)
            return not out_of_time

        while True:
            self._check_space()
            end_s = self._search_end_s(baseline)
            with contextlib.suppress(TrialFailure):
                bench.restore(deadline_s=end_s)
            left_s = end_s - bench.now_s()
            if self.warm is not None:
                enqueue_next(self.warm, self.log, space, fits)
            ticket = self.log.ask(sampler, remaining_s=left_s, fits=fits)
            if ticket is None:
                return "the budget is used" if out_of_time else NOTHING_LEFT
            record = self._tried(ticket, known, baseline, best, end_s)
            best = best_of([*([best] if best else []), *self.log.records[seen:]])
            seen = len(self.log.records)
            self.progress.trial_finished(record, best, self.budget)

    def _hints(self) -> SearchHints:
        known, space = self.prepared.hints, self.prepared.space
        return known if self.warm is None else self.warm.hints(known, space)

    def _tried(
        self,
        ticket: Ticket,
        known: KnownResults,
        baseline: TrialRecord,
        best: TrialRecord | None,
        deadline_s: float,
    ) -> TrialRecord:
        """Try one started trial and commit its record."""
        proposal = ticket.proposal
        self.progress.trial_started(
            ticket.number, str(proposal.route), proposal.origin, self.budget
        )
        try:
            record = run_trial(
                self.prepared.worker,
                ticket.number,
                proposal,
                rules=self.rules,
                known=known,
                deadline_s=deadline_s,
                baseline=baseline,
                incumbent=best,
            )
        except KeyboardInterrupt:
            self._give_up(ticket)
            raise
        record = self._committed(ticket, record)
        known.add(record)
        return record

    def _sampler_seed(self) -> int:
        return self.settings.seed

    def _known_results(self) -> KnownResults:
        """Return what stands for trials that need not be made again."""
        return KnownResults(self.log.records)

    def _give_up(self, ticket: Ticket) -> None:
        """End a trial that the user interrupted."""
        self._committed(ticket, _interrupted(ticket))

    def _simplified(
        self, candidates: Sequence[TrialRecord], baseline: TrialRecord, end_s: float
    ) -> list[TrialRecord]:
        """Take out of the candidates' routes what changes nothing, as far as time allows."""
        known = self._known_results()
        space = self.prepared.space

        def try_build(proposal: Proposal) -> TrialRecord | None:
            now_s = self.prepared.worker.now_s()
            if now_s + expected_s(self.log.records, baseline, proposal, self.rules) > end_s:
                return None
            self._check_space()
            ticket = self.log.begin(proposal, space)
            return self._tried(ticket, known, baseline, None, end_s)

        simple: dict[str, TrialRecord] = {}
        for candidate in candidates:
            inert = take_census(self.log.records, space.variable).inert
            found = simplify(candidate, space, try_build, inert=inert)
            simple.setdefault(found.route, found)
        return list(simple.values())

    def _confirm(self, baseline: TrialRecord, deadline_s: float) -> list[Confirmed]:
        candidates = choose_candidates(self.log.records)
        if not candidates:
            return []
        now_s = self.prepared.worker.now_s()
        candidates = self._simplified(
            candidates, baseline, now_s + _SIMPLIFY_SHARE * (deadline_s - now_s)
        )
        self.progress.phase("confirm", f"{len(candidates)} candidates with fresh builds")
        space, database = self.prepared.space, self.prepared.database

        def proposal(route: str) -> Proposal:
            parsed = Route.parse(route, database)
            return Proposal(
                parsed,
                parameters=tuple(name for name in parsed.changed if name in space.variable),
                phase=Phase.CONFIRMATION,
                origin="confirmation",
            )

        def recorded(proposal: Proposal, measured: Callable[[int], TrialRecord]) -> TrialRecord:
            ticket = self.log.begin(proposal, space)
            try:
                record = measured(ticket.number)
            except KeyboardInterrupt:
                self._give_up(ticket)
                raise
            record = self._committed(ticket, record)
            self.progress.trial_finished(record, best_of(self.log.records), self.budget)
            return record

        return confirm(
            self.prepared.worker,
            candidates,
            rules=self.rules,
            record_trial=recorded,
            route_of=proposal,
            engines=self.out.work,
            deadline_s=deadline_s,
        )

    def _committed(self, ticket: Ticket, record: TrialRecord) -> TrialRecord:
        record = replace(record, elapsed_s=round(self.budget.used_s, 3))
        self.log.commit(ticket, record)
        self._update_study_file(trials=len(self.log.records))
        return record

    def _check_space(self) -> None:
        self.out.check_space(3 * self.source.subject.size_bytes)

    def _write_study_file(self) -> None:
        content = {
            "study": self._study_name(),
            "storage": redact(self.settings.storage or ""),
            "settings": storable(self.settings),
            "shared": self.shared,
        }
        write_study_note(self.out.settings, content, flush=self._flush)

    def _update_study_file(self, **changes: Any) -> None:
        content = (
            read_study_note(self.out.path) | {"used_s": round(self.budget.used_s, 3)} | changes
        )
        write_study_note(self.out.settings, content, flush=self._flush)


def _interrupted(ticket: Ticket) -> TrialRecord:
    return TrialRecord(
        ticket.number,
        str(ticket.proposal.route),
        ticket.proposal.phase,
        Outcome.FAILED,
        origin=ticket.proposal.origin,
        reason="interrupted by the user",
        failure="interrupted",
    )


def _device_names(environment: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lock names of what is timed: the GPU where there is one, else the CPUs."""
    uuid = environment.get("device_uuid")
    return cpu_lock_names() if uuid is None else (gpu_lock_name(str(uuid)),)


def _count(size: int) -> str:
    return f"{size:,}" if size < 10**9 else f"about 10^{len(str(size)) - 1}"
