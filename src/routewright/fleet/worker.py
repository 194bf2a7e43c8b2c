"""A worker: the steps of ``tune``, with others on one study.

Every worker measures its own baseline, so that all that is compared was measured on one machine
within a minute; what it shares are ratios. The search ends for all when the study's budget does,
and one of them confirms the winner.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, get_storage
from optuna.trial import FrozenTrial

from routewright.confirm import pick
from routewright.errors import BudgetError, StorageError
from routewright.files import write_text_atomic
from routewright.fleet.artifacts import fetch_engine, open_store, upload_engine
from routewright.fleet.clock import SharedBudget, StudyClock
from routewright.fleet.election import Election
from routewright.fleet.identity import shared_identity
from routewright.fleet.joining import TERMS, Terms, join
from routewright.fleet.lease import Lease, Watch, beats_in, new_worker_name
from routewright.fleet.log import SharedLog
from routewright.fleet.pacing import RealTimeReplay
from routewright.fleet.patience import patiently
from routewright.fleet.spool import Spool
from routewright.outcome import OutcomeWriter
from routewright.outfolder import OutFolder, fresh_folder
from routewright.progress import Progress
from routewright.records import TrialRecord
from routewright.replay import ReplayBench, replay_pace
from routewright.result import RESULT_ATTRIBUTE, result_text
from routewright.settings import TuneSettings
from routewright.sources import Source
from routewright.study import Ticket
from routewright.studyfile import storable
from routewright.trial import KnownResults
from routewright.tuning import NOTHING_LEFT, Tuner
from routewright.warming import note_features

_JOIN_WAIT_S = 60.0
_POLL_S = 1.0
_LATE_S = 2.0
"""Seconds after the search's end for which trials of others are waited for."""

_ELECTION_S, _ELECTION_SHARE = 5.0, 0.1
"""Seconds kept for agreeing on who confirms, and their largest share of the budget."""

_STORE_S = 2.0
"""Seconds kept for storing engine and verdict."""

T = TypeVar("T")

_LEAST_PACE = 1e-6


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What a worker is told beside the study's settings.

    Attributes:
        terms: What the study is begun with, if this worker begins it.
        new_environment: Whether it may begin a study beside those of other environments.
        artifacts: Where engines are kept, or None.
        trust_engines: Whether to fetch an engine that another worker built.
        extend_budget: Whether the terms' budget replaces a smaller one of the study.
    """

    terms: Terms
    new_environment: bool = False
    artifacts: str | None = None
    trust_engines: bool = False
    extend_budget: bool = False


class SharedTuner(Tuner):
    """One worker of a shared study."""

    shared = True
    log: SharedLog
    budget: SharedBudget

    def __init__(
        self,
        settings: TuneSettings,
        source: Source,
        out: OutFolder,
        resume: bool,
        progress: Progress,
        started_s: float,
        *,
        options: WorkerOptions,
    ) -> None:
        super().__init__(settings, source, out, False, progress, started_s)
        self.resume = resume
        self.options = options
        self.name = new_worker_name()
        self._clock = StudyClock(started_s)
        self._pace = 1.0

    def work(self) -> Mapping[str, Any]:
        """Work until the study ends; return its verdict.

        Raises:
            RoutewrightError: Something the user can mend.
        """
        with self._ready() as opened:
            storage = get_storage(opened)
            study = self._joined(storage)
            self.out.keep = True
            with self._member(study, storage):
                return self._worked(Election(self.log), storage)

    def _joined(self, storage: BaseStorage) -> optuna.Study:
        identity = shared_identity(self.prepared.identity(self.settings))
        defaults = {knob.name: knob.default for knob in self.prepared.database}
        study, is_new = self._patiently(
            lambda: join(
                storage,
                terms=self.options.terms,
                identity=identity,
                notes={"settings": storable(self.settings), "knob_defaults": defaults},
                new_environment=self.options.new_environment,
            )
        )
        self._identity, self._is_new = identity, is_new
        self.progress.note(
            f"{'began' if is_new else 'joined'} the study {study.study_name} as {self.name}"
        )
        return study

    @contextlib.contextmanager
    def _member(self, study: optuna.Study, storage: BaseStorage) -> Iterator[None]:
        """Be one of the study's workers: hold a lease, and give back what is not finished."""
        terms = self._patiently(lambda: self._agreed(study))
        watch = Watch(terms.lease_s)
        self._pace = self._in_real_time()
        self._lease = Lease(
            study, self.name, watch=watch, clock=self._clock, hear=self._hear_attributes
        )
        self.budget = SharedBudget(
            terms.budget_s,
            clock=self._clock,
            machine_limit_s=terms.machine_budget_s,
            bench_now_s=self.prepared.worker.now_s,
            pace=self._pace,
        )
        self._patiently(self._lease.start)
        try:
            self.log = SharedLog(
                study,
                self._identity,
                storage=storage,
                spool=Spool(self.out.path / "spool.jsonl"),
                worker=self.name,
                watch=watch,
                left_s=lambda: self.budget.wall_left_s,
                pace=self._pace,
                tell=self._remark,
            )
            if self._is_new:
                note_features(self.log, self.settings, self._described)
            yield
        finally:
            if hasattr(self, "log"):
                self.log.is_leaving = True
                # What cannot be given back now is taken back when the lease has ended.
                with contextlib.suppress(StorageError):
                    self.log.hand_in_spooled()
                    self.log.end_unfinished()
            self._lease.end()

    def _agreed(self, study: optuna.Study) -> Terms:
        """Return what the study's workers go by, with this one's longer budget if it has one."""
        terms = Terms.from_json(study.user_attrs[TERMS])
        if self.options.extend_budget and self.options.terms.budget_s > terms.budget_s:
            terms = replace(terms, budget_s=self.options.terms.budget_s)
            study.set_user_attr(TERMS, terms.to_json())
        return terms

    def _patiently(self, action: Callable[[], T]) -> T:
        """Do something that joining takes, for a while also against a storage that is away."""
        end_s = time.monotonic() + _JOIN_WAIT_S
        return patiently(
            action,
            "join the study",
            is_over=lambda: time.monotonic() > end_s,
            tell=self._remark,
        )

    def _in_real_time(self) -> float:
        """Put a replay onto real time; return the real seconds for each of the bench's."""
        bench = self.prepared.worker
        if not isinstance(bench, ReplayBench):
            return 1.0
        pace = max(replay_pace(self.settings.backend_options()), _LEAST_PACE)
        self.prepared = replace(self.prepared, worker=RealTimeReplay(bench, pace))
        return pace

    def _hear_attributes(self, attributes: Mapping[str, Any]) -> None:
        terms = Terms.from_json(attributes[TERMS])
        self.budget.limit_s = terms.budget_s
        self.budget.machine_limit_s = terms.machine_budget_s
        others = {k: v for k, v in beats_in(attributes).items() if k != self.name and not v.left}
        self.budget.workers = 1 + sum(not self._lease.watch.is_gone(name) for name in others)

    def _worked(self, election: Election, storage: BaseStorage) -> Mapping[str, Any]:
        damaged = self.log.spool.damaged
        if damaged:
            self._remark(f"{damaged} cut-off lines of {self.log.spool.path} were left out")
        handed_in = self.log.hand_in_spooled()
        if handed_in:
            self._remark(f"handed in {handed_in} trials that an earlier worker here had measured")
        if election.verdict is not None:
            return self._adopted(election.verdict)
        self.budget.refresh()
        if self.budget.wall_left_s <= 0:
            raise BudgetError(
                f"the study's budget of {self.budget.limit_s:g} s is used up; a larger --budget "
                "extends it"
            )
        baseline = self._commit_baseline(self._measured_baseline())
        while True:
            stopped = self._search(baseline)
            verdict = self._concluded(election, storage, baseline, stopped)
            if verdict is not None:
                return verdict

    def _concluded(
        self, election: Election, storage: BaseStorage, baseline: TrialRecord, stopped: str
    ) -> Mapping[str, Any] | None:
        """Wait for the verdict, or confirm; None where there is something to try again."""
        self.progress.phase("end", f"{stopped}; one of the workers confirms the best")
        while True:
            self.log.tend()
            if election.verdict is not None:
                return self._adopted(election.verdict)
            over_s = self.prepared.worker.now_s() - self._search_end_s(baseline)
            late = over_s * self._pace > _LATE_S
            if stopped == NOTHING_LEFT and self.log.has_waiting and not late:
                return None
            if election.leader is None and (late or not self.log.elsewhere()):
                bid = election.stand()
                if bid is not None and self._confirmed(election, storage, bid, baseline, stopped):
                    continue
            if self.budget.wall_left_s < -2 * self.log.watch.lease_s:
                raise BudgetError(
                    "the budget ended before the winner was confirmed; a larger --budget "
                    "goes on with the study"
                )
            time.sleep(_POLL_S)

    def _confirmed(
        self,
        election: Election,
        storage: BaseStorage,
        bid: FrozenTrial,
        baseline: TrialRecord,
        stopped: str,
    ) -> bool:
        """Confirm the winner and write the verdict; False if another worker took over."""
        self.budget.refresh()
        # No look at the device after this: it may take a fresh process, and time is up.
        confirmed = self._confirm(baseline, self.budget.end_s - self._finish_s())
        self.log.tend()
        result = OutcomeWriter(self.settings, self.prepared, self.out, self.budget).write(
            baseline,
            self.log.records,
            confirmed,
            pick(confirmed),
            study=self.log.study.study_name,
            stopped=stopped,
            interrupted=False,
            notes=[*self.remarks, f"confirmed by {self.name}"],
        )
        engine: dict[str, Any] = {}
        if self.options.artifacts is not None:
            store = open_store(self.options.artifacts)
            try:
                engine = patiently(
                    lambda: upload_engine(store, self.out.engine, bid, storage),
                    "upload the engine",
                    is_over=lambda: self.budget.wall_left_s < -self.log.watch.lease_s,
                    tell=self._remark,
                )
            except UpdateFinishedTrialError:
                return False
        verdict = {"worker": self.name, "result": result.to_content(), "engine": engine}
        if not election.close(bid, verdict):
            return False
        # For reports, which look there; the verdict is what counts.
        self.log.note(RESULT_ATTRIBUTE, verdict["result"])
        return True

    def _adopted(self, verdict: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the study's result into this worker's folder, and leave no trial unfinished."""
        if verdict["worker"] != self.name:
            write_result(
                verdict, self.out, self.options.artifacts if self.options.trust_engines else None
            )
        self.out.clear_work()
        self.log.wind_up(2 * self.log.watch.lease_s)
        return verdict

    def _study_name(self) -> str:
        return self.options.terms.group

    def _sampler_seed(self) -> int:
        # Workers that draw the same numbers would try the same routes.
        return self.settings.seed + zlib.crc32(self.name.encode())

    def _search_end_s(self, baseline: TrialRecord) -> float:
        self.budget.refresh()
        election_s = min(_ELECTION_S, _ELECTION_SHARE * self.budget.limit_s)
        return super()._search_end_s(baseline) - election_s / self._pace

    def _finish_s(self) -> float:
        return (
            super()._finish_s() + min(_STORE_S, _ELECTION_SHARE * self.budget.limit_s) / self._pace
        )

    def _known_results(self) -> KnownResults:
        return _SharedResults(self.log)

    def _give_up(self, ticket: Ticket) -> None:
        self.log.is_leaving = True
        with contextlib.suppress(StorageError):
            self.log.give_back(ticket, "its worker was stopped")


class _SharedResults(KnownResults):
    """What all workers' trials say, as the log comes to see them."""

    def __init__(self, log: SharedLog) -> None:
        super().__init__()
        self._log = log
        self._seen = 0

    def of_route(self, route: str) -> TrialRecord | None:
        self._take_in()
        return super().of_route(route)

    def of_fingerprint(self, fingerprint: str | None) -> TrialRecord | None:
        self._take_in()
        return super().of_fingerprint(fingerprint)

    def _take_in(self) -> None:
        for record in self._log.records[self._seen :]:
            self.add(record)
        self._seen = len(self._log.records)


def write_result(verdict: Mapping[str, Any], out: OutFolder, artifacts: str | None) -> None:
    """Write a study's result into a folder, with its engine if a store is given.

    The engine was built by another worker. Loading some kinds of engines runs code that is in
    them, so it is fetched only where the user trusts whoever built it.
    """
    shutil.rmtree(out.engine, ignore_errors=True)
    if artifacts is not None and verdict["engine"]:
        fetch_engine(open_store(artifacts), verdict["engine"], out.engine)
    write_text_atomic(out.route, f"{verdict['result']['best']['route']}\n")
    write_text_atomic(out.result, result_text(verdict["result"]))


def worker_folder(path: str | None, group: str) -> tuple[Path, bool]:
    """Return a worker's output folder, and whether an earlier worker left something in it."""
    folder = Path(path) if path else fresh_folder(f"{group}-worker", Path("routewright-out"))
    return folder, (folder / "study.json").exists()
