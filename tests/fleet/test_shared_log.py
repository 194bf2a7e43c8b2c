"""Several workers on one study: who tries what, what the dead leave behind, who confirms."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.storages import BaseStorage, get_storage
from optuna.trial import TrialState

import routewright.fleet.reaper as reaper_module
from routewright.errors import StorageError
from routewright.fleet.election import Election
from routewright.fleet.lease import Beat, Watch
from routewright.fleet.log import SharedLog
from routewright.fleet.spool import Entry, Spool
from routewright.fleet.writing import RETRY_OF
from routewright.knobs import KnobDatabase
from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.search.base import History, Proposal, RouteSampler, history_of
from routewright.space import SearchSpace
from routewright.storage import open_storage, sqlite_url
from routewright.study import Ticket

DATABASE = KnobDatabase.from_json(
    """{"tuner_version": "1", "tuner_options": [
    {"option": "-a", "allowed_values": "-a=[on|off]", "default_value": "on", "help": ""},
    {"option": "-b", "allowed_values": "-b=[1|2|3]", "default_value": "1", "help": ""}]}""",
    source="test",
)
SPACE = SearchSpace.whole(DATABASE)
ROUTES = ("-a=off", "-b=2", "-a=off -b=2")


class Listed(RouteSampler):
    """Proposes a list of routes in turn."""

    name = "listed"

    def __init__(self, *routes: str) -> None:
        super().__init__(SPACE, seed=0)
        self._routes = [Route.parse(route, DATABASE) for route in routes]

    def propose(self, history: History) -> Proposal | None:
        tried = history.tried()
        return next((Proposal(r) for r in self._routes if str(r) not in tried), None)


def record(ticket: Ticket, **changes: object) -> TrialRecord:
    made = TrialRecord(
        ticket.number,
        str(ticket.proposal.route),
        Phase.SEARCH,
        Outcome.TIMED,
        fingerprint=f"f{ticket.number}",
        build_s=0.5,
        relative_latency=0.9,
        ci95=(0.88, 0.92),
        losses={"y": float("inf")},
        violation=-0.9,
        log_ratios=(-0.1, -0.11),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


class Fleet:
    """Workers by name, each with a storage object of its own, as separate processes have."""

    def __init__(self, folder: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.folder = folder
        self.now_s = 0.0
        self.told: list[str] = []
        self.left_s = 100.0
        self.watches: dict[str, Watch] = {}
        self.beats: dict[str, int] = {}
        optuna.create_study(storage=self.storage(), study_name="g@1", direction="minimize")

    def storage(self) -> BaseStorage:
        return get_storage(open_storage(sqlite_url(self.folder / "f.db")))

    def worker(self, name: str, storage: BaseStorage | None = None) -> SharedLog:
        storage = storage or self.storage()
        watch = self.watches[name] = Watch(60.0, now_s=lambda: self.now_s)
        self.beats.setdefault(name, 0)
        return SharedLog(
            optuna.load_study(study_name="g@1", storage=storage),
            {},
            storage=storage,
            spool=Spool(self.folder / f"{name}.jsonl"),
            worker=name,
            watch=watch,
            left_s=lambda: self.left_s,
            tell=self.told.append,
        )

    def pass_time(self, seconds: int, *, silent: tuple[str, ...] = ()) -> None:
        for _ in range(seconds // 10):
            self.now_s += 10.0
            for name in self.beats:
                self.beats[name] += name not in silent
            beats = {name: Beat(count, 0.0, 0.0) for name, count in self.beats.items()}
            for watch in self.watches.values():
                watch.look(beats)

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        return optuna.load_study(study_name="g@1", storage=self.storage()).trials


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def asked(log: SharedLog, *routes: str) -> Ticket:
    ticket = log.ask(Listed(*(routes or ROUTES)))
    assert ticket is not None
    return ticket


def test_workers_try_different_routes_and_see_each_others_records(fleet: Fleet) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    first, second = asked(one), asked(two)
    assert (str(first.proposal.route), str(second.proposal.route)) == ROUTES[:2]
    two.commit(second, record(second))
    one.commit(first, record(first))
    third = asked(two)
    assert str(third.proposal.route) == ROUTES[2]
    assert {r.number for r in two.records} == {first.number, second.number}
    assert two.records[0] == record(second)
    (trial,) = [t for t in fleet.trials() if t.number == second.number]
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 0.9)
    assert trial.params == {"-b": "2"}
    assert list(trial.constraints.values()) == [-0.9]
    assert history_of(one.study).running == [ROUTES[2]]


def test_a_sampler_that_waits_for_others_is_waited_with(fleet: Fleet) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    ticket = asked(one, "-a=off")
    fleet.left_s = 0.0
    assert two.ask(Listed("-a=off")) is None
    fleet.left_s = 100.0
    one.commit(ticket, record(ticket))
    assert two.ask(Listed("-a=off")) is None
    assert len(fleet.trials()) == 1


def test_a_route_that_two_start_at_once_is_tried_by_the_first(fleet: Fleet) -> None:
    one = fleet.worker("one")
    blind = fleet.worker("two")
    ticket = one.begin(Proposal(Route.parse("-a=off", DATABASE)), SPACE)
    tend, blind.tend = blind.tend, lambda: None  # type: ignore[method-assign]
    other = blind.ask(Listed("-a=off", "-b=2"))
    blind.tend = tend  # type: ignore[method-assign]
    assert other is not None
    assert str(other.proposal.route) == "-b=2"
    assert [r.outcome for r in blind.records] == [Outcome.REUSED]
    assert blind.records[0].reused_from == ticket.number


def test_a_killed_workers_trial_is_retried_once_then_failed(fleet: Fleet) -> None:
    dead, other, witness = fleet.worker("dead"), fleet.worker("other"), fleet.worker("witness")
    lost = asked(dead, "-a=off")
    witness.tend()
    fleet.pass_time(50, silent=("dead",))
    witness.tend()
    assert fleet.trials()[lost.number].state is TrialState.RUNNING
    fleet.pass_time(30, silent=("dead",))
    witness.tend()
    other.tend()
    assert fleet.trials()[lost.number].state is TrialState.FAIL
    assert [t.state for t in fleet.trials()] == [TrialState.FAIL, TrialState.WAITING]
    retry = asked(other, "-b=2")
    assert str(retry.proposal.route) == "-a=off"
    assert fleet.trials()[retry.number].user_attrs[RETRY_OF] == lost.number
    assert list(witness.records) == []
    witness.tend()
    fleet.pass_time(80, silent=("dead", "other"))
    witness.tend()
    assert [t.state for t in fleet.trials()] == [TrialState.FAIL, TrialState.FAIL]
    witness.refresh()
    (failed,) = witness.records
    assert (failed.outcome, failed.failure) == (Outcome.FAILED, "lost")
    assert "two workers were lost" in failed.reason
    assert witness.ask(Listed("-a=off")) is None


def test_a_retry_that_this_worker_made_is_not_queued_again(fleet: Fleet) -> None:
    dead, other = fleet.worker("dead"), fleet.worker("other")
    asked(dead, "-a=off")
    other.tend()
    fleet.pass_time(80, silent=("dead",))
    ticket = asked(other, "-b=2")
    other.commit(ticket, record(ticket))
    now_s = 0.0
    other._reaper._now_s = lambda: now_s
    for _ in range(3):
        other.tend()
        now_s += 100.0
    assert [t.state for t in fleet.trials()] == [TrialState.FAIL, TrialState.COMPLETE]
    assert list(other.records) == [record(ticket)]


def test_the_last_worker_leaves_no_trial_unfinished(fleet: Fleet) -> None:
    dead, last = fleet.worker("dead"), fleet.worker("last")
    asked(dead, "-a=off")
    last.enqueue([Route.parse("-b=3", DATABASE)], SPACE, origin="a prior")
    last.tend()
    fleet.pass_time(80, silent=("dead",))
    last.wind_up(0.0)
    assert [t.state for t in fleet.trials()] == [TrialState.FAIL, TrialState.FAIL]
    last.wind_up(0.0)
    assert len(fleet.trials()) == 2


def test_what_a_dead_worker_measured_and_did_not_end_counts(fleet: Fleet) -> None:
    dead, other = fleet.worker("dead"), fleet.worker("other")
    ticket = asked(dead, "-a=off")
    trial = fleet.trials()[ticket.number]
    fleet.storage().set_trial_user_attr(trial._trial_id, "record", record(ticket).to_attributes())
    other.tend()
    fleet.pass_time(80, silent=("dead",))
    other.tend()
    assert [t.state for t in fleet.trials()] == [TrialState.COMPLETE]
    assert list(other.records) == [record(ticket)]


def test_a_retry_that_a_killed_reaper_did_not_queue_is_queued_by_another(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, killed = fleet.worker("dead"), fleet.worker("killed")
    other = fleet.worker("other")
    asked(dead, "-a=off")
    other.refresh()
    fleet.pass_time(80, silent=("dead",))

    def kill(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reaper_module, "requeue", kill)
        with pytest.raises(KeyboardInterrupt):
            killed.tend()
    assert [t.state for t in fleet.trials()] == [TrialState.FAIL]
    now_s = 0.0
    other._reaper._now_s = lambda: now_s
    other.tend()
    assert len(fleet.trials()) == 1
    now_s = 61.0
    other.tend()
    other.tend()
    assert [t.state for t in fleet.trials()] == [TrialState.FAIL, TrialState.WAITING]


def test_a_worker_that_was_given_up_hands_its_trial_in_once(fleet: Fleet) -> None:
    asleep, other = fleet.worker("asleep"), fleet.worker("other")
    ticket = asked(asleep, "-a=off")
    other.tend()
    fleet.pass_time(80, silent=("asleep",))
    other.tend()
    asleep.commit(ticket, record(ticket))
    # As after a commit whose answer was lost: the entry is still in the spool.
    trial = fleet.trials()[ticket.number]
    asleep.spool.add(Entry("g@1", trial._trial_id, "asleep", record(ticket)))
    again = fleet.worker("again")
    again.spool = Spool(fleet.folder / "asleep.jsonl")
    assert again.hand_in_spooled() == 1
    measured = [t for t in fleet.trials() if t.state is TrialState.COMPLETE]
    assert len(measured) == 1
    assert measured[0].user_attrs["late_for"] == ticket.number
    assert [r.number for r in again.records] == [measured[0].number]
    # The queued retry is not measured again: its route is known by now.
    assert not (fleet.folder / "asleep.jsonl").exists()


def test_records_wait_in_the_spool_for_a_storage_that_is_away(fleet: Fleet) -> None:
    storage = fleet.storage()
    log = fleet.worker("one", storage)
    ticket = asked(log, "-a=off")
    with pytest.MonkeyPatch.context() as patch:

        def away(*arguments: object) -> None:
            raise OSError("connection refused")

        patch.setattr(storage, "set_trial_user_attr", away)
        fleet.left_s = -1000.0
        with pytest.raises(StorageError, match=r"kept in .*one\.jsonl"):
            log.commit(ticket, record(ticket))
    fleet.left_s = 100.0
    (entry,) = Spool(fleet.folder / "one.jsonl").entries
    assert entry.record == record(ticket)
    later = fleet.worker("later")
    later.spool = Spool(fleet.folder / "one.jsonl")
    assert later.hand_in_spooled() == 1
    assert list(later.records) == [record(ticket)]
    assert later.hand_in_spooled() == 0
    assert [t.state for t in fleet.trials()] == [TrialState.COMPLETE]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_start_whose_answer_is_lost_makes_one_trial(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    storage = fleet.storage()
    log = fleet.worker("one", storage)
    create: Callable[..., int] = storage.create_new_trial
    faults = [OSError("connection reset")]

    def flaky(*arguments: object) -> int:
        if when == "before" and faults:
            raise faults.pop()
        made = create(*arguments)
        if faults:
            raise faults.pop()
        return made

    monkeypatch.setattr(storage, "create_new_trial", flaky)
    asked(log, "-a=off")
    assert len(fleet.trials()) == 1


def test_a_worker_that_is_stopped_gives_its_trial_to_others(fleet: Fleet) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    asked(one, "-a=off")
    one.end_unfinished()
    ticket = asked(two, "-b=2")
    assert str(ticket.proposal.route) == "-a=off"
    assert [t.state for t in fleet.trials()] == [TrialState.FAIL, TrialState.RUNNING]


def test_queued_routes_are_queued_once_and_tried_first(fleet: Fleet) -> None:
    one, two = fleet.worker("one"), fleet.worker("two")
    routes = [Route.parse(text, DATABASE) for text in ("-b=3", "-a=off")]
    one.enqueue(routes, SPACE, origin="a prior")
    two.enqueue(routes, SPACE, origin="a prior")
    tickets = [asked(log, "-b=2") for log in (one, two, one)]
    assert [str(t.proposal.route) for t in tickets] == ["-b=3", "-a=off", "-b=2"]
    assert tickets[0].proposal.origin == "a prior"


def test_one_worker_is_elected_and_replaced_when_it_is_gone(fleet: Fleet) -> None:
    asleep, next_one = fleet.worker("asleep"), fleet.worker("next")
    first, second = Election(asleep), Election(next_one)
    bid = first.stand()
    assert bid is not None
    next_one.tend()
    assert second.leader == "asleep"
    assert second.stand() is None
    fleet.pass_time(80, silent=("asleep",))
    next_one.tend()
    assert second.leader is None
    taken = second.stand()
    assert taken is not None
    assert not first.close(bid, {"by": "asleep"})
    assert second.close(taken, {"by": "next"})
    asleep.tend()
    assert first.verdict == {"by": "next"}
    assert all(t.state.is_finished() for t in fleet.trials())


def test_a_cut_off_line_in_the_spool_loses_that_entry_alone(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    ticket = Ticket(3, Proposal(Route.parse("-a=off", DATABASE)), 7)
    entry = Entry("g@1", 7, "w", record(ticket))
    whole = json.dumps(entry.to_json())
    path.write_text(f"\n{whole[: len(whole) // 2]}")
    spool = Spool(path)
    assert (spool.entries, spool.damaged) == ((), 1)
    spool.add(entry)
    assert Spool(path).entries == (entry,)
    spool.strike(entry)
    assert not path.exists()
