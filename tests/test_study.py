"""Records in, records out: what the storage keeps, and what a killed or locked one loses."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

import routewright.study as study_module
from routewright.errors import StorageError
from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler, history_of
from routewright.space import SearchSpace
from routewright.storage import open_storage, sqlite_url
from routewright.study import MARK, StudyLog, load_study

from test_trial import DATABASE  # isort: skip

SPACE = SearchSpace.whole(DATABASE)


class Listed(RouteSampler):
    """Proposes a list of routes in turn."""

    name = "listed"

    def __init__(self, *routes: str) -> None:
        super().__init__(SPACE, seed=0)
        self._routes = [Route.parse(route, DATABASE) for route in routes]

    def propose(self, history: History) -> Proposal | None:
        tried = history.tried()
        return next((Proposal(r) for r in self._routes if str(r) not in tried), None)


def record(number: int, route: str, **changes: object) -> TrialRecord:
    values: dict[str, object] = {
        "fingerprint": f"f{number}",
        "build_s": 0.5,
        "relative_latency": 0.9,
        "ci95": (0.88, 0.92),
        "losses": {"y": 1e-4},
        "violation": -0.9,
        "log_ratios": (-0.1, -0.11),
    }
    return TrialRecord(number, route, Phase.SEARCH, Outcome.TIMED, **(values | changes))  # type: ignore[arg-type]


def create(folder: Path, name: str = "study") -> StudyLog:
    storage = open_storage(sqlite_url(folder / "study.db"))
    return StudyLog.create(storage, name, identity={"model": "m"}, pending=folder / "pending.json")


def reopen(folder: Path, name: str = "study") -> StudyLog:
    storage = open_storage(sqlite_url(folder / "study.db"))
    return StudyLog.reopen(storage, name, pending=folder / "pending.json")


def test_a_commit_that_is_interrupted_is_finished_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = create(tmp_path)
    ticket = log.ask(Listed("-a=off"))
    assert ticket is not None
    finish, interruptions = study_module._finish, [KeyboardInterrupt()]

    def interrupted(*arguments: object) -> None:
        if interruptions:
            finish(*arguments)  # type: ignore[arg-type]
            raise interruptions.pop()
        finish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(study_module, "_finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.commit(ticket, record(ticket.number, "-a=off"))
    assert log.study.trials[ticket.number].state is TrialState.COMPLETE
    assert not (tmp_path / "pending.json").exists()


def test_a_trial_that_was_begun_only_is_ended(tmp_path: Path) -> None:
    log = create(tmp_path)
    log.study.ask()
    log.end_unfinished()
    assert [trial.state for trial in log.study.trials] == [TrialState.FAIL]
    assert list(log.records) == []


def test_a_storage_that_fails_is_not_waited_for_beyond_the_budget(tmp_path: Path) -> None:
    log = create(tmp_path)
    log.end_s = time.monotonic()
    tries = []

    def locked() -> None:
        tries.append(1)
        raise OSError("locked")

    with pytest.raises(StorageError, match="locked"):
        log._retry(locked, "write")
    assert len(tries) == 1


@pytest.mark.parametrize(
    ("outcome", "changes", "state"),
    [
        (Outcome.TIMED, {}, TrialState.COMPLETE),
        (Outcome.SLOW, {}, TrialState.PRUNED),
        (Outcome.REUSED, {"reused_from": 0}, TrialState.COMPLETE),
        (Outcome.REUSED, {"violation": 2.0, "relative_latency": None}, TrialState.PRUNED),
        (Outcome.SCREENED, {"relative_latency": None, "ci95": None}, TrialState.PRUNED),
        (Outcome.INACCURATE, {"violation": 3.0, "relative_latency": None}, TrialState.PRUNED),
        (Outcome.FAILED, {"failure": "crash", "relative_latency": None}, TrialState.FAIL),
    ],
)
def test_every_outcome_survives_the_storage(
    tmp_path: Path, outcome: Outcome, changes: dict[str, object], state: TrialState
) -> None:
    from dataclasses import replace

    log = create(tmp_path)
    ticket = log.ask(Listed("-a=off"))
    assert ticket is not None
    written = replace(record(ticket.number, "-a=off"), outcome=outcome, **changes)  # type: ignore[arg-type]
    log.commit(ticket, written)
    again = reopen(tmp_path)
    assert list(again.records) == [written]
    (trial,) = again.study.trials
    assert trial.state is state
    assert trial.params == {"-a": "off"}
    (amount,) = trial.constraints.values()
    assert amount == (written.violation if written.violation is not None else amount)
    assert not (tmp_path / "pending.json").exists()


def test_an_infinite_loss_survives_the_storage(tmp_path: Path) -> None:
    log = create(tmp_path)
    ticket = log.ask(Listed("-a=off"))
    assert ticket is not None
    log.commit(ticket, record(ticket.number, "-a=off", losses={"y": float("inf")}))
    assert reopen(tmp_path).records[0].losses == {"y": float("inf")}


def test_nothing_left_to_try_starts_no_trial(tmp_path: Path) -> None:
    log = create(tmp_path)
    assert log.ask(Listed()) is None
    assert log.ask(Listed("-a=off"), fits=lambda proposal: False) is None
    assert log.study.trials == []


def test_an_enqueued_route_goes_first_and_a_wrong_one_is_left_out(tmp_path: Path) -> None:
    log = create(tmp_path)
    log.study.enqueue_trial({"-zzz": "off"})
    log.study.enqueue_trial({"-b": "sideways"})
    log.enqueue([Route.parse("-b=off", DATABASE)], SPACE, origin="prior")
    ticket = log.ask(Listed("-a=off"))
    assert ticket is not None
    assert str(ticket.proposal.route) == "-b=off"
    assert ticket.proposal.origin == "prior"
    failed = [t for t in log.study.trials if t.state is TrialState.FAIL]
    assert len(failed) == 2
    assert "-zzz is not searched" in failed[0].user_attrs["reason"]


def test_a_trial_left_running_by_a_dead_process_is_ended_on_reopening(tmp_path: Path) -> None:
    log = create(tmp_path)
    ticket = log.ask(Listed("-a=off"))
    assert ticket is not None
    ticket.trial.set_user_attr("owner", {"host": "elsewhere", "pid": 1, "started": 0.0})
    other = log.ask(Listed("-b=off"))
    assert other is not None
    import socket

    other.trial.set_user_attr(
        "owner", {"host": socket.gethostname(), "pid": 2**22 + 1, "started": 0.0}
    )
    states = [trial.state for trial in reopen(tmp_path).study.trials]
    # Of another host's process nobody here can tell, so its trial is left alone.
    assert states == [TrialState.RUNNING, TrialState.FAIL]


def test_a_storage_that_stays_locked_loses_no_finished_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routewright.storage.SQLITE_BUSY_S", 0.2)
    monkeypatch.setattr(study_module, "_RETRY_S", 0.5)
    log = create(tmp_path)
    ticket = log.ask(Listed("-a=off"))
    assert ticket is not None
    locker = sqlite3.connect(tmp_path / "study.db", isolation_level=None)
    locker.execute("BEGIN EXCLUSIVE")
    written = record(ticket.number, "-a=off")
    with pytest.raises(StorageError, match=r"locked.*pending"):
        log.commit(ticket, written)
    locker.execute("ROLLBACK")
    locker.close()
    assert list(reopen(tmp_path).records) == [written]
    assert not (tmp_path / "pending.json").exists()


def test_a_storage_that_is_locked_for_a_while_is_waited_for(tmp_path: Path) -> None:
    log = create(tmp_path)
    ticket = log.ask(Listed("-a=off"))
    assert ticket is not None
    locker = sqlite3.connect(tmp_path / "study.db", isolation_level=None, check_same_thread=False)
    locker.execute("BEGIN EXCLUSIVE")

    def release() -> None:
        time.sleep(1.0)
        locker.execute("ROLLBACK")

    thread = threading.Thread(target=release)
    thread.start()
    log.commit(ticket, record(ticket.number, "-a=off"))
    thread.join()
    assert len(reopen(tmp_path).records) == 1


def test_another_tools_study_is_left_alone(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "study.db")
    optuna.create_study(storage=url, study_name="study").set_user_attr("mine", 1)
    with pytest.raises(StorageError, match="already holds a study"):
        create(tmp_path)
    with pytest.raises(StorageError, match="was not made by Routewright"):
        reopen(tmp_path)
    study = optuna.load_study(storage=url, study_name="study")
    assert study.user_attrs == {"mine": 1}


def test_an_unknown_study_is_named_with_those_there_are(tmp_path: Path) -> None:
    create(tmp_path, "one")
    storage = open_storage(sqlite_url(tmp_path / "study.db"))
    with pytest.raises(StorageError, match="no study named 'two'; it holds: one"):
        load_study(storage, "two")


@pytest.mark.parametrize("name", ["a/b c", "ünï", "x" * 500])
def test_odd_study_names_work(tmp_path: Path, name: str) -> None:
    create(tmp_path, name)
    assert MARK in load_study(open_storage(sqlite_url(tmp_path / "study.db")), name).user_attrs


def test_a_pending_trial_of_another_study_is_not_handed_in(tmp_path: Path) -> None:
    create(tmp_path)
    (tmp_path / "pending.json").write_text(json.dumps({"study": "other", "trial": 0}))
    with pytest.raises(StorageError, match="'other'"):
        reopen(tmp_path)


def test_a_sampler_runs_in_a_plain_optuna_study_too() -> None:
    study = optuna.create_study(sampler=Listed("-a=off", "-b=off"))
    trial = study.ask()
    assert trial.relative_params == {"-a": "off"}
    assert history_of(study).records == []
