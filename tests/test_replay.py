"""Replaying tables: the workbench, its clock, and whole tunings."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import routewright
from routewright.errors import RoutewrightError, SettingsError
from routewright.replay import RESTART_S, ReplayBench
from routewright.result import TuneResult, Verdict
from routewright.studyfile import read_study_note
from routewright.tables import Table, TableError
from routewright.tables.made_up import Truth, equalized, made_up_table
from routewright.timing import TimingLimits
from routewright.trial import time_candidate
from routewright.workbench import TrialFailure

TRUTH = Truth(
    knobs={"-a": ("off", "on"), "-b": ("1", "2", "4"), "-q": ("off", "int8")},
    inert=12,
    effects={("-a=on",): -0.12, ("-b=2",): 0.05, ("-a=on", "-b=4"): -0.2, ("-q=int8",): -0.4},
    losses={("-q=int8",): 0.05},
    failures=[("-b=4", "-q=int8")],
)


@pytest.fixture(scope="module")
def table() -> Table:
    return made_up_table(TRUTH)


@pytest.fixture(scope="module")
def folder(table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "made-up"
    table.save(path)
    return path


def both_built(bench: ReplayBench, route: str) -> None:
    bench.build("baseline", "", deadline_s=math.inf)
    bench.build("candidate", route, deadline_s=math.inf)


def tuned(folder: Path, out: Path, **options: Any) -> TuneResult:
    return routewright.tune(folder, backend="replay", out=out, **options)


def test_the_clock_advances_by_what_was_recorded(table: Table) -> None:
    bench = ReplayBench(table, seed=0)
    bench.build("candidate", "-a=on", deadline_s=math.inf)
    assert bench.now_s() == pytest.approx(TRUTH.build_s)
    report = bench.check("candidate", samples=[0], deadline_s=math.inf)
    assert report.losses == {"y": 0.0}
    assert bench.now_s() == pytest.approx(TRUTH.build_s + 0.01)
    before_s = bench.now_s()
    bench.restart()
    assert bench.now_s() == pytest.approx(before_s + RESTART_S)


def test_timing_takes_the_recorded_time_and_finds_the_truth(table: Table) -> None:
    bench = ReplayBench(table, seed=0)
    both_built(bench, "-a=on")
    before_s = bench.now_s()
    timing = time_candidate(bench, TimingLimits(), deadline_s=math.inf)
    assert timing.wall_s == pytest.approx(bench.now_s() - before_s, rel=1e-6)
    low, high = timing.ci95
    assert low < math.exp(-0.12) < high
    assert high / low < 1.04


def test_fresh_builds_differ_as_much_as_the_table_tells() -> None:
    wide = made_up_table(Truth({"-a": ("off", "on")}, noise_sd=1e-6, instance_sd=0.02))
    bench = ReplayBench(wide, seed=3)
    ratios = []
    for _ in range(300):
        both_built(bench, "")
        block = bench.time_pair(runs=1, warmup_runs=0, candidate_first=False, deadline_s=math.inf)
        ratios.append(math.log(block.candidate_ms[0] / block.baseline_ms[0]))
    assert np.std(ratios) == pytest.approx(0.02, rel=0.15)
    assert np.mean(ratios) == pytest.approx(0.0, abs=0.004)


def test_the_same_seed_gives_the_same_answers_and_another_does_not(table: Table) -> None:
    def block(seed: int) -> tuple[float, ...]:
        bench = ReplayBench(table, seed=seed)
        both_built(bench, "-b=2")
        return bench.time_pair(
            runs=3, warmup_runs=1, candidate_first=True, deadline_s=math.inf
        ).candidate_ms

    assert block(1) == block(1)
    assert block(1) != block(2)


def test_what_does_not_end_in_time_is_killed_at_its_deadline(table: Table) -> None:
    bench = ReplayBench(table, seed=0)
    with pytest.raises(TrialFailure) as caught:
        bench.build("candidate", "-a=on", deadline_s=0.1)
    assert caught.value.kind == "timeout"
    assert bench.now_s() == pytest.approx(0.1)
    with pytest.raises(TrialFailure, match="no engine"):
        bench.check("candidate", samples=None, deadline_s=math.inf)


def test_a_route_that_could_not_be_built_fails_again_after_its_time(table: Table) -> None:
    bench = ReplayBench(table, seed=0)
    with pytest.raises(TrialFailure, match="made not to build") as caught:
        bench.build("candidate", "-b=4 -q=int8", deadline_s=math.inf)
    assert caught.value.kind == "unsupported"
    assert bench.now_s() == pytest.approx(TRUTH.build_s)


def test_a_route_outside_is_refused(table: Table) -> None:
    bench = ReplayBench(table, seed=0)
    with pytest.raises(TableError, match="not in the table made-up"):
        bench.build("candidate", "-zz=on", deadline_s=math.inf)


def test_nothing_is_timed_against_another_baseline(table: Table) -> None:
    bench = ReplayBench(table, seed=0)
    bench.build("baseline", "-a=on", deadline_s=math.inf)
    bench.build("candidate", "-b=2", deadline_s=math.inf)
    with pytest.raises(TableError, match="default route only"):
        bench.time_pair(runs=1, warmup_runs=0, candidate_first=False, deadline_s=math.inf)


def test_pace_sleeps_for_simulated_time(table: Table) -> None:
    begun_s = time.monotonic()
    bench = ReplayBench(table, seed=0, pace=0.1)
    bench.build("candidate", "", deadline_s=math.inf)
    assert time.monotonic() - begun_s >= 0.1 * TRUTH.build_s


def test_tune_finds_the_best_eligible_route_on_simulated_time(
    folder: Path, tmp_path: Path
) -> None:
    result = tuned(folder, tmp_path / "out", budget="2m", seed=1)
    assert result.verdict == Verdict.FASTER
    assert result.best.route == "-a=on -b=4"
    low, high = result.best.ci95
    assert low < math.exp(-0.32) < high
    assert 1 < result.budget["used_s"] <= 120
    assert result.budget["saved_s"] > 0
    assert result.bound["threshold"] == 0.01
    assert not (tmp_path / "out" / "engine").exists()
    assert dict(result.best.files) == {}
    assert any("no engine is saved" in note for note in result.notes)


def test_tune_is_repeatable(folder: Path, tmp_path: Path) -> None:
    one = tuned(folder, tmp_path / "one", budget="30s", seed=5)
    other = tuned(folder, tmp_path / "other", budget="30s", seed=5)
    assert one.best.relative_latency == other.best.relative_latency
    assert one.trials == other.trials
    assert one.budget == other.budget


def test_an_expression_restricts_the_routes_tried(folder: Path, tmp_path: Path) -> None:
    result = tuned(folder, tmp_path / "out", budget="1m", expr="-b=[1|2|4]")
    assert result.verdict == Verdict.NO_GAIN
    assert result.knobs.searchable == 1


def test_tune_keeps_to_its_budget(folder: Path, tmp_path: Path) -> None:
    for budget_s in (8, 20):
        result = tuned(folder, tmp_path / str(budget_s), budget=budget_s)
        assert result.budget["used_s"] <= budget_s


def test_nothing_is_won_on_an_aa_table(table: Table, tmp_path: Path) -> None:
    equalized(table).save(tmp_path / "aa")
    verdicts = [
        tuned(tmp_path / "aa", tmp_path / str(seed), budget="20s", seed=seed).verdict
        for seed in range(4)
    ]
    assert verdicts.count(Verdict.NO_GAIN) >= 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"shape": "x:1x3"}, "shape does not go with"),
        ({"samples": "x.npz"}, "samples does not go with"),
        ({"loss": "linf", "bound": 1e-2}, "holds cos losses"),
        ({"option": "pace=fast"}, "pace is 'fast'"),
        ({"option": "speed=2"}, "no option 'speed'"),
        ({"expr": "-zz=[on|off]"}, "-zz"),
    ],
)
def test_what_the_table_fixes_cannot_be_set(
    folder: Path, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RoutewrightError, match=reason):
        tuned(folder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_table_is_not_taken_for_a_model(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--backend replay"):
        routewright.tune(folder, out=tmp_path / "out")
    with pytest.raises(TableError, match="there is no"):
        tuned(tmp_path / "nowhere", tmp_path / "out")


def test_another_bound_is_judged_from_the_recorded_losses(folder: Path, tmp_path: Path) -> None:
    result = tuned(folder, tmp_path / "out", budget="2m", loss="cos", bound=0.1)
    assert result.best.route == "-a=on -q=int8"


def test_a_killed_replay_goes_on_where_its_clock_was(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        *(sys.executable, "-m", "routewright", "tune", str(folder), "--backend", "replay"),
        *("--budget", "60s", "--option", "pace=0.05", "--out", str(out)),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    note = out / "study.json"
    while process.poll() is None and not (note.exists() and '"trials": 5' in note.read_text()):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    used_s = float(read_study_note(out)["used_s"])
    assert used_s > 0
    result = tuned(folder, out, budget="60s", resume=True, option="pace=0.05")
    assert used_s < result.budget["used_s"] <= 60
    assert result.best.route == "-a=on -b=4"
