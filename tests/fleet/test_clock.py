"""A budget that workers with unlike clocks share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routewright.fleet.clock import SharedBudget, StudyClock
from routewright.fleet.lease import Beat, Watch, beats_in
from routewright.fleet.pacing import RealTimeReplay
from routewright.replay import ReplayBench
from routewright.tables import Table
from routewright.workbench import TrialFailure

ROOT = Path(__file__).resolve().parent.parent.parent

SECONDS = st.floats(0.0, 1e6)


class Time:
    """A monotonic clock that the test moves."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@given(starts=st.lists(SECONDS, min_size=2, max_size=5), joins=st.lists(SECONDS, max_size=4))
def test_workers_agree_on_the_seconds_whatever_their_clocks_show(
    starts: list[float], joins: list[float]
) -> None:
    times = [Time(start) for start in starts]
    clocks: list[StudyClock] = []
    passed_s = 0.0
    for time, wait_s in zip(times, [0.0, *joins], strict=False):
        passed_s += wait_s
        for other in times:
            other.now_s += wait_s
        joined = StudyClock(time(), now_s=time)
        told_s = max((clock.elapsed_s for clock in clocks), default=0.0)
        joined.hear(told_s, sum(clock.machine_s for clock in clocks))
        clocks.append(joined)
    for clock in clocks:
        assert abs(clock.elapsed_s - passed_s) < 1e-6 * max(1.0, passed_s)


def test_a_count_never_goes_back() -> None:
    time = Time(5.0)
    clock = StudyClock(time(), now_s=time)
    time.now_s = 15.0
    clock.hear(3.0, 0.0)
    assert clock.elapsed_s == 10.0
    clock.hear(30.0, 0.0)
    time.now_s = 16.0
    assert clock.elapsed_s == 31.0
    assert clock.machine_s == 11.0


def test_machine_seconds_are_shared_by_who_is_there() -> None:
    time = Time(0.0)
    clock = StudyClock(0.0, now_s=time)
    budget = SharedBudget(100.0, clock=clock, machine_limit_s=60.0, bench_now_s=time)
    budget.workers = 2
    time.now_s = 10.0
    clock.hear(10.0, 10.0)
    assert budget.wall_left_s == (60.0 - 20.0) / 2
    budget.refresh()
    assert budget.end_s == 30.0
    budget.machine_limit_s = None
    assert budget.remaining_s == 90.0


def test_a_slow_motion_of_a_recorded_table_keeps_the_wall_clock_budget() -> None:
    real, simulated = Time(0.0), Time(500.0)
    clock = StudyClock(0.0, now_s=real)
    budget = SharedBudget(60.0, clock=clock, bench_now_s=simulated, pace=0.1)
    assert budget.end_s == 500.0 + 600.0
    real.now_s, simulated.now_s = 30.0, 700.0
    budget.refresh()
    assert budget.end_s == 700.0 + 300.0


def test_an_outage_or_a_stop_of_the_watcher_condemns_nobody() -> None:
    time = Time(0.0)
    watch = Watch(60.0, now_s=time)
    beats = {"one": Beat(1, 0.0, 0.0)}
    watch.look(beats)
    for _ in range(3):
        time.now_s += 3600.0
        watch.look(beats)
    # Three looks an hour apart are three beats, not three hours.
    assert not watch.is_gone("one")
    time.now_s += 1.0
    watch.look({"one": Beat(2, 0.0, 0.0)})
    for _ in range(6):
        time.now_s += 10.0
        watch.look({"one": Beat(2, 0.0, 0.0)})
    assert watch.is_gone("one")
    watch.look({"one": Beat(3, 0.0, 0.0)})
    assert not watch.is_gone("one")


def test_a_worker_that_said_goodbye_is_gone_at_once() -> None:
    watch = Watch(60.0, now_s=Time(0.0))
    watch.look({"one": Beat(4, 0.0, 0.0, left=True)})
    assert watch.is_gone("one")


def test_a_worker_that_never_beat_is_gone_after_a_lease() -> None:
    time = Time(0.0)
    watch = Watch(60.0, now_s=time)
    assert not watch.is_gone("ghost")
    for _ in range(8):
        time.now_s += 10.0
        watch.look({})
    assert watch.is_gone("ghost")


def test_what_is_no_lease_is_left_alone() -> None:
    found = beats_in({"worker:a": {"count": 2, "elapsed_s": -5}, "worker:b": 3, "fleet": {}})
    assert found == {"a": Beat(2, 0.0, 0.0)}


def test_a_replay_in_real_time_counts_what_is_not_recorded() -> None:
    real = Time(100.0)
    table = Table.load(ROOT / "studies" / "tables" / "ppocr-v4-det")
    bench = RealTimeReplay(ReplayBench(table, seed=0), 0.1, now_s=real)
    assert bench.now_s() == 0.0
    report = bench.build("baseline", "", deadline_s=60.0)
    real.now_s += 0.1 * report.build_s
    assert abs(bench.now_s() - report.build_s) < 1e-9
    # The storage takes five real seconds: fifty of the replay's.
    real.now_s += 5.0
    with pytest.raises(TrialFailure, match="did not end in time"):
        bench.build("candidate", "", deadline_s=50.0)
