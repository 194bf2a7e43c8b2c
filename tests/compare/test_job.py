"""Whole comparisons on made-up works: files, studies, seeds, interrupts and kills."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psutil
import pytest
from made_up import openers

from routewright.compare.folder import ComparisonFolder
from routewright.compare.job import Compared, compare
from routewright.compare.plan import Extent, Plan, RunKey
from routewright.compare.run import Run
from routewright.errors import SettingsError, StorageError
from routewright.report.artifacts import ARTIFACTS_ATTRIBUTE

PLAN = Plan(("tpe", "mixed-trtexec", "fast"), ("a", "b"), 2, Extent(trials=12))
WORKS = openers(a=1, b=2)


def runs_in(folder: ComparisonFolder, plan: Plan = PLAN) -> list[Run]:
    return [folder.load(key) for key in plan.runs()]


def comparable(run: Run) -> dict[str, object]:
    content = run.to_dict()
    for trial in content["trials"]:
        del trial["proposal_s"]
    return content


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[ComparisonFolder, Compared]:
    folder = ComparisonFolder(tmp_path_factory.mktemp("compare") / "first")
    return folder, compare(PLAN, WORKS, folder)


Done = tuple[ComparisonFolder, Compared]


def test_there_is_a_row_for_every_run_and_trial(done: Done) -> None:
    folder, compared = done
    with folder.results.open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == sum(len(run.records) for run in runs_in(folder))
    assert {(row["work"], row["sampler"], int(row["seed"])) for row in rows} == {
        (key.work, key.sampler, key.seed) for key in PLAN.runs()
    }
    assert compared.missing == 0
    assert all(float(row["regret"]) >= -1e-9 for row in rows)


def test_every_sampler_meets_the_same_baseline(done: Done) -> None:
    folder, _ = done
    for work in PLAN.works:
        for seed in PLAN.seeds:
            baselines = [folder.load(RunKey(work, s, seed)).records[0] for s in PLAN.samplers]
            assert baselines == baselines[:1] * 3


def test_the_summary_is_strict_json_and_tells_everything(done: Done) -> None:
    folder, _ = done
    content = json.loads(
        (folder.path / "summary.json").read_text(), parse_constant=lambda text: pytest.fail(text)
    )
    assert len(content["standings"]) == 6
    assert content["runs"] == content["planned_runs"] == 12
    text = (folder.path / "summary.md").read_text()
    assert all(f"`{sampler}`" in text for sampler in PLAN.samplers)
    lines = (folder.path / "summary.csv").read_text().splitlines()
    assert len(lines) == 7


def test_the_runs_are_studies_of_one_storage(done: Done) -> None:
    folder, compared = done
    storage = f"sqlite:///{folder.database}"
    names = optuna.get_all_study_names(storage)
    assert set(names) == {f"first/{key.name}" for key in PLAN.runs()} | {compared.study}
    for key in PLAN.runs():
        study = optuna.load_study(study_name=f"first/{key.name}", storage=storage)
        run = folder.load(key)
        assert study.user_attrs["sampler"] == key.sampler
        assert len(study.trials) == len(run.records)
        eligible = [r.relative_latency for r in run.records if r.eligible]
        assert study.best_value == min(filter(None, eligible))
        assert [t.user_attrs["route"] for t in study.trials] == [r.route for r in run.records]


def test_the_summary_study_carries_the_ranking(done: Done) -> None:
    folder, compared = done
    study = optuna.load_study(study_name=compared.study, storage=f"sqlite:///{folder.database}")
    assert set(study.user_attrs["mean rank by regret"]) == set(PLAN.samplers)
    assert study.user_attrs[ARTIFACTS_ATTRIBUTE] == str(folder.artifacts)
    attributes = study._storage.get_study_system_attrs(study._study_id)
    notes = [value for name, value in attributes.items() if name.startswith("dashboard:note")]
    assert any("Comparison of search methods" in str(note) for note in notes)


def test_a_seed_gives_the_same_runs_whatever_the_number_of_jobs(
    done: Done, tmp_path: Path
) -> None:
    folder = ComparisonFolder(tmp_path / "again")
    compare(PLAN, WORKS, folder, jobs=2)
    first, again = runs_in(done[0]), runs_in(folder)
    assert [comparable(run) for run in first] == [comparable(run) for run in again]


def test_other_seeds_give_other_runs(done: Done) -> None:
    folder, _ = done
    one, other = (folder.load(RunKey("a", "tpe", seed)) for seed in PLAN.seeds)
    assert [r.route for r in one.records] != [r.route for r in other.records]


def test_an_interrupt_keeps_what_is_finished_and_resume_goes_on(
    done: Done, tmp_path: Path
) -> None:
    folder = ComparisonFolder(tmp_path / "stopped")

    def stop(key: RunKey, left: int) -> None:
        if left == 7:
            raise KeyboardInterrupt

    stopped = compare(PLAN, WORKS, folder, on_run=stop)
    assert stopped.interrupted
    assert stopped.missing == 7
    assert stopped.summary is not None
    assert stopped.summary.runs == 5
    finished = {path: path.stat().st_mtime_ns for path in folder.runs.rglob("*.gz")}
    resumed = compare(PLAN, WORKS, folder, resume=True)
    assert not resumed.interrupted
    assert resumed.missing == 0
    assert all(path.stat().st_mtime_ns == at for path, at in finished.items())
    assert list(map(comparable, runs_in(folder))) == list(map(comparable, runs_in(done[0])))


def test_a_study_that_was_cut_off_is_written_anew(tmp_path: Path) -> None:
    plan = Plan(("fast",), ("a",), 1, Extent(trials=3))
    folder = ComparisonFolder(tmp_path / "cut")
    compare(plan, WORKS, folder)
    storage = f"sqlite:///{folder.database}"
    name = "cut/a/fast/seed-0"
    optuna.delete_study(study_name=name, storage=storage)
    optuna.create_study(study_name=name, storage=storage)
    compare(plan, WORKS, folder, resume=True)
    assert len(optuna.load_study(study_name=name, storage=storage).trials) == 4


def test_what_cannot_be_resumed_or_begun(done: Done, tmp_path: Path) -> None:
    folder, _ = done
    with pytest.raises(StorageError, match="--resume"):
        compare(PLAN, WORKS, folder)
    with pytest.raises(StorageError, match="nothing to resume"):
        compare(PLAN, WORKS, ComparisonFolder(tmp_path / "none"), resume=True)
    other = Plan(PLAN.samplers, PLAN.works, 2, Extent(trials=13))
    with pytest.raises(SettingsError, match="extent was"):
        compare(other, WORKS, folder, resume=True)
    with pytest.raises(StorageError, match="already holds studies"):
        compare(
            PLAN,
            WORKS,
            ComparisonFolder(tmp_path / "first"),
            storage=f"sqlite:///{folder.database}",
        )


def test_a_work_that_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    plan = Plan(("fast",), ("a",), 1, Extent(trials=3))
    folder = ComparisonFolder(tmp_path / "changed")
    compare(plan, WORKS, folder)
    content = json.loads(folder.plan.read_text())
    content["identities"]["a"] = "another"
    folder.plan.write_text(json.dumps(content))
    with pytest.raises(SettingsError, match="a is not what the comparison began with"):
        compare(plan, WORKS, folder, resume=True)


def test_a_budget_on_the_works_clock_is_kept(tmp_path: Path) -> None:
    plan = Plan(("random",), ("a",), 2, Extent(budget_s=20.0))
    folder = ComparisonFolder(tmp_path / "budget")
    compare(plan, WORKS, folder)
    for run in runs_in(folder, plan):
        assert run.records[-1].elapsed_s <= 20.0
        assert run.stopped in ("the budget is used", "every route worth it was tried")


def test_a_run_can_end_once_it_is_near_the_best_route(tmp_path: Path) -> None:
    plan = Plan(("random",), ("a",), 3, Extent(trials=60, until=0.05))
    folder = ComparisonFolder(tmp_path / "until")
    compare(plan, WORKS, folder)
    with folder.results.open() as stream:
        rows = list(csv.DictReader(stream))
    for seed in map(str, plan.seeds):
        regrets = [float(row["regret"]) for row in rows if row["seed"] == seed]
        assert all(regret > 0.05 for regret in regrets[:-1])
        assert regrets[-1] <= 0.05 or len(regrets) == 61


def test_each_seed_can_have_its_own_order_of_knobs(tmp_path: Path) -> None:
    plan = Plan(("fast", "mixed"), ("a",), 2, Extent(trials=9), shuffle_knobs=True)
    folder = ComparisonFolder(tmp_path / "shuffled")
    compare(plan, WORKS, folder)
    tried = [[r.route for r in run.records] for run in runs_in(folder, plan)]
    assert tried[0][:9] == tried[1][:9]
    assert tried[0] != tried[2]
    assert sorted(tried[0]) == sorted(tried[2])


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from test_job import PLAN, WORKS
from routewright.compare.folder import ComparisonFolder
from routewright.compare.job import compare
from pathlib import Path
if __name__ == "__main__":
    compare(PLAN, WORKS, ComparisonFolder(Path({out!r})), jobs=2)
"""


@pytest.mark.slow
def test_a_kill_loses_no_finished_run_and_leaves_no_process(done: Done, tmp_path: Path) -> None:
    folder = ComparisonFolder(tmp_path / "killed")
    script = tmp_path / "job.py"
    script.write_text(KILLED.format(tests=str(Path(__file__).parent), out=str(folder.path)))
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
    try:
        while len(list(folder.runs.rglob("*.gz"))) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    compare(PLAN, WORKS, folder, resume=True)
    assert list(map(comparable, runs_in(folder))) == list(map(comparable, runs_in(done[0])))
    names = optuna.get_all_study_names(f"sqlite:///{folder.database}")
    assert len(names) == 13
