"""Rows of other tuners as trials of a study."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import optuna
import pytest
from interop_caches import (
    ACCURACY_FAILURE,
    CRASH,
    TORCH,
    fast_rows,
    header,
    imported,
    line,
    row,
    storage_beside,
    write,
)
from optuna.trial import TrialState

from routewright.cli.main import main
from routewright.errors import ModelError, SettingsError, StorageError
from routewright.interop.importing import IMPORTED, ROW, import_cache
from routewright.interop.torch_tensorrt import TORCH_TENSORRT
from routewright.interop.trtexec import TRTEXEC
from routewright.records import WORST_VIOLATION, Outcome, Phase
from routewright.search.base import History
from routewright.storage import open_storage, sqlite_url
from routewright.study import CONSTRAINT, MARK, StudyLog


def test_rows_become_finished_trials(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    report, records, study = imported(path)
    assert report.rows == 4
    assert report.notes == ()
    assert report.outcomes == {Outcome.TIMED: 2, Outcome.INACCURATE: 1, Outcome.FAILED: 1}
    assert [(r.route, r.phase, r.outcome) for r in records] == [
        ("", Phase.BASELINE, Outcome.TIMED),
        ("-b=0", Phase.SEARCH, Outcome.TIMED),
        ("-b=2", Phase.SEARCH, Outcome.INACCURATE),
        ("-a=off", Phase.SEARCH, Outcome.FAILED),
    ]
    assert [r.relative_latency for r in records] == [1.0, 0.75, None, None]
    assert [r.latency_ms for r in records] == [2.0, 1.5, 1.0, None]
    assert [r.losses for r in records] == [{"y": 1e-5}, {"y": 1e-5}, {"y": 0.25}, {}]
    assert [t.state for t in study.trials] == [
        TrialState.COMPLETE,
        TrialState.COMPLETE,
        TrialState.PRUNED,
        TrialState.FAIL,
    ]
    assert [t.value for t in study.trials] == [1.0, 0.75, None, None]


def test_constraints_are_signed_amounts(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    _, records, study = imported(path)
    amounts = [trial.constraints[CONSTRAINT] for trial in study.trials]
    assert amounts[0] == pytest.approx(-0.99)
    assert amounts[2] == pytest.approx(249)
    assert amounts[3] == WORST_VIOLATION
    assert [r.eligible for r in records] == [True, True, False, False]


def test_reasons_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    _, records, _ = imported(path)
    assert records[2].reason == ACCURACY_FAILURE
    assert (records[3].failure, records[3].reason) == ("crash", CRASH)


def test_the_study_says_what_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    report, _, study = imported(path, device="NVIDIA H100")
    assert report.study == "trtexec-cache"
    mark = study.user_attrs[MARK]
    assert mark[IMPORTED] == {
        "source": "trtexec",
        "cache": "cache.json",
        "model": "/data/m.onnx",
        "device": "NVIDIA H100",
    }
    assert mark["backend"] == "tensorrt"
    assert mark["latency"] == "mean GPU time of trtexec"
    assert mark["environment"] == {"device": "NVIDIA H100"}
    assert mark["knobs"] == {"tuner_version": "2.19.45"}
    assert (mark["bound"]["loss"], mark["bound"]["threshold"]) == ("cos", 0.0010000000474974513)
    assert study.user_attrs[IMPORTED]["header"] == json.loads(header())
    assert study.user_attrs[IMPORTED]["header_line"] == header()


def test_an_imported_study_is_never_resumed(tmp_path: Path) -> None:
    """What it is valid for can agree with no measured study's."""
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    report, _, study = imported(path)
    identity = study.user_attrs[MARK]
    assert identity[IMPORTED]["source"] == "trtexec"
    assert identity["model_sha256"] is None
    storage = open_storage(storage_beside(path))
    with pytest.raises(StorageError, match="imported from another tuner"):
        StudyLog.reopen(storage, report.study, pending=tmp_path / "pending.json")
    with pytest.raises(StorageError, match="already holds a study"):
        StudyLog.create(storage, report.study, identity={}, pending=tmp_path / "pending.json")


def test_a_model_gives_its_digest(tmp_path: Path) -> None:
    from models import conv_net, save

    model = save(conv_net(), tmp_path / "m.onnx")
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    _, _, study = imported(path, model=model)
    assert len(study.user_attrs[MARK]["model_sha256"]) == 64
    assert study.user_attrs[MARK][IMPORTED]["model"] == str(model)
    with pytest.raises(ModelError):
        imported(path, model=tmp_path / "none.onnx", study="other")


def test_show_reads_an_imported_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    imported(path)
    assert main(["show", storage_beside(path)]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 timed trials" in shown
    assert "-b=0" in shown
    assert CRASH in shown


def test_show_reads_a_study_without_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()[1:]])
    imported(path)
    assert main(["show", storage_beside(path)]) == 0
    assert "0 of 0 timed trials" in capsys.readouterr().out


def test_a_mixed_run_is_read_by_route_not_by_number(tmp_path: Path) -> None:
    rows = [
        *fast_rows(),
        row(0, "-a=on -b=0", 1.6),
        row(1, "-a=on -b=1", 2.2),
        row(2, "-a=off -b=0", 1.2),
    ]
    path = write(tmp_path / "cache.json", [header(searching_algorithm="mixed"), *rows])
    report, records, _ = imported(path)
    assert report.notes == ()
    assert [r.phase for r in records].count(Phase.BASELINE) == 1
    assert [r.route for r in records[4:]] == ["-b=0", "", "-a=off -b=0"]
    # Both measurements of a route stand, each against the one baseline.
    assert [r.relative_latency for r in records[4:]] == [0.8, 1.1, 0.6]
    best = History(records).best()
    assert best is not None
    assert best.route == "-a=off -b=0"


def test_the_baseline_of_a_full_sweep_is_where_the_defaults_are(tmp_path: Path) -> None:
    rows = [row(0, "-a=off -b=0", 3.0), row(1, "-a=off -b=1", 2.5), row(2, "-a=on -b=1", 2.0)]
    path = write(tmp_path / "cache.json", [header(searching_algorithm="full"), *rows])
    _, records, _ = imported(path)
    assert [r.phase for r in records] == [Phase.SEARCH, Phase.SEARCH, Phase.BASELINE]
    assert [r.relative_latency for r in records] == [1.5, 1.25, 1.0]


def test_pinned_knobs_are_pinned_in_the_baseline(tmp_path: Path) -> None:
    head = header(tuning_expr="-c=7 -b=[0|1|2]")
    path = write(tmp_path / "cache.json", [head, row(0, "-c=7 -b=1", 2.0), row(1, "-c=7 -b=0")])
    _, records, _ = imported(path)
    # In the compiler's order, which is that of the default route.
    assert [r.route for r in records] == ["-c=7", "-b=0 -c=7"]
    assert [r.phase for r in records] == [Phase.BASELINE, Phase.SEARCH]
    assert records[1].relative_latency == 0.5


@pytest.mark.parametrize(
    ("head", "routes"),
    [
        ({"default_build_route": ""}, ["", "-b=0"]),
        ({"default_build_route": "-c=5"}, ["", "-b=0"]),
        ({"tuning_expr": ""}, ["", "-b=0"]),
        ({"default_build_route": None, "tuning_expr": 3}, ["", "-b=0"]),
    ],
)
def test_a_sweep_tells_defaults_that_its_header_lacks(
    tmp_path: Path, head: dict[str, object], routes: list[str]
) -> None:
    path = write(tmp_path / "cache.json", [header(**head), *fast_rows()[:2]])
    _, records, _ = imported(path)
    assert [r.route for r in records] == routes
    assert [r.relative_latency for r in records] == [1.0, 0.75]


def test_without_a_baseline_there_is_no_relative_latency(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()[1:]])
    report, records, study = imported(path)
    assert report.notes == ("no row is of the default route, so there are no relative latencies",)
    assert records[0].outcome is Outcome.SCREENED
    assert records[0].relative_latency is None
    assert records[0].latency_ms == 1.5
    assert "no baseline to compare it with" in records[0].reason
    assert study.trials[0].state is TrialState.PRUNED
    assert not any(r.eligible for r in records)


def test_after_a_crash_of_the_baseline_there_is_no_relative_latency(tmp_path: Path) -> None:
    rows = [row(0, "-a=on -b=1", crash=True, error=CRASH), *fast_rows()[1:]]
    path = write(tmp_path / "cache.json", [header(), *rows])
    report, records, _ = imported(path)
    assert report.notes == (
        "line 2: the default route crashed, so there are no relative latencies",
    )
    assert records[0].phase is Phase.BASELINE
    assert records[0].outcome is Outcome.FAILED
    assert [r.relative_latency for r in records] == [None] * 4


def test_an_inaccurate_baseline_is_said_and_compared_with(tmp_path: Path) -> None:
    rows = [row(0, "-a=on -b=1", 2.0, losses={"y": 1.0}, error=ACCURACY_FAILURE), fast_rows()[1]]
    path = write(tmp_path / "cache.json", [header(), *rows])
    report, records, _ = imported(path)
    assert "the default route itself was refused" in report.notes[0]
    assert records[0].outcome is Outcome.INACCURATE
    assert records[1].relative_latency == 0.75


def test_a_loss_beyond_the_threshold_is_judged_again(tmp_path: Path) -> None:
    """A row that the other tuner let pass does not win here."""
    rows = [
        fast_rows()[0],
        row(1, "-b=0", 0.1, losses={"y": 0.5, "z": 0.0}),
        row(2, "-b=2", 0.1, losses={"y": None}),
        # trtexec refuses a loss that equals its threshold and says so.
        row(3, "-a=off", 0.1, losses={"y": 0.0010000000474974513}, error=ACCURACY_FAILURE),
    ]
    path = write(tmp_path / "cache.json", [header(), *rows])
    _, records, _ = imported(path)
    assert [r.outcome for r in records[1:]] == [Outcome.INACCURATE] * 3
    assert not any(r.eligible for r in records[1:])
    assert "cos 0.5 is above 0.001" in records[1].reason
    assert records[2].losses == {"y": math.inf}
    assert 0 < (records[3].violation or 0) < 1e-6


def test_without_a_threshold_no_finite_loss_breaks_it(tmp_path: Path) -> None:
    head = header(accuracy_parameter={"atol": 1e-5, "rtol": 1e-5, "epsilon": 0.0})
    rows = [fast_rows()[0], row(1, "-b=0", losses={"y": 9.0}), row(2, "-b=2", losses={"y": None})]
    path = write(tmp_path / "cache.json", [head, *rows])
    _, records, study = imported(path)
    assert [r.eligible for r in records] == [True, True, False]
    assert study.user_attrs[MARK]["bound"]["threshold"] == "inf"


def test_a_row_without_time_cannot_win(tmp_path: Path) -> None:
    rows = [fast_rows()[0], row(1, "-b=0", 0.0), row(2, "-b=2", None)]
    path = write(tmp_path / "cache.json", [header(), *rows])
    report, records, study = imported(path)
    assert [r.outcome for r in records[1:]] == [Outcome.FAILED] * 2
    assert records[1].reason == "trtexec noted no time for it"
    assert "gpu_time is 0" in report.notes[0]
    assert study.best_value == 1.0


def test_an_error_without_losses_is_a_failure(tmp_path: Path) -> None:
    rows = [fast_rows()[0], row(1, "-b=0", 1.0, losses={}, error="child exited with status 1")]
    path = write(tmp_path / "cache.json", [header(), *rows])
    _, records, _ = imported(path)
    assert (records[1].outcome, records[1].failure) == (Outcome.FAILED, "error")


@pytest.mark.parametrize(
    "head",
    [
        {"accuracy_parameter": None},
        {"accuracy_parameter": {"epsilon": "tight"}},
        {"accuracy_parameter": {"epsilon": True}},
        {"accuracy_algorithm": 7},
        {"files": []},
        {"files": {"onnx": 3}},
        {"tuner_version": None},
        {"searching_algorithm": {}},
        {"tuning_expr": "-a=[on|off -b"},
        {"default_build_route": "nonsense === = -"},
    ],
)
def test_a_header_of_other_types_is_read_as_far_as_it_goes(
    tmp_path: Path, head: dict[str, object]
) -> None:
    path = write(tmp_path / "cache.json", [header(**head), *fast_rows()])
    report, records, _ = imported(path)
    assert report.rows == len(records) == 4


def test_numbers_that_json_has_not_reach_no_storage(tmp_path: Path) -> None:
    text = header().replace('"epsilon":0.0010000000474974513', '"epsilon":NaN')
    path = write(tmp_path / "cache.json", [text, *fast_rows()])
    _, _, study = imported(path)
    json.dumps(study.user_attrs, allow_nan=False)
    for trial in study.trials:
        json.dumps(trial.user_attrs, allow_nan=False)


def torch_lines() -> list[str]:
    head = {
        "tuner_version": "2.19.45",
        "accuracy_algorithm": "l0",
        "accuracy_parameter": {"atol": 1e-05, "rtol": 1e-05, "epsilon": 0.01},
        "searching_algorithm": "fast",
        "tuning_expr": "-a=[on|off]",
        "default_build_route": "-a=on -b=1",
        "partition_key": "0123456789abcdef",
    }
    rows = [
        {"iter": 0, "build_route": "-a=on", "crash": False, "error_message": "",
         "accuracy_loss": {"output": 0.0}, "gpu_time": 0.5},
        {"iter": 1, "build_route": "-a=off", "crash": False,
         "error_message": "accuracy threshold exceeded: {'output': 0.5}",
         "accuracy_loss": {"output": 0.5}, "gpu_time": None},
        {"iter": 2, "build_route": "-a=off", "crash": True,
         "error_message": "child process terminated by signal 6", "accuracy_loss": None,
         "gpu_time": None},
    ]  # fmt: skip
    return [line(values, **TORCH) for values in (head, *rows)]


def test_a_torch_tensorrt_cache_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "tune.0123456789abcdef.jsonl", torch_lines())
    report, records, study = imported(path, TORCH_TENSORRT)
    assert report.study == "torch-tensorrt-tune"
    assert [r.outcome for r in records] == [Outcome.TIMED, Outcome.INACCURATE, Outcome.FAILED]
    assert records[1].latency_ms is None
    assert study.user_attrs[MARK]["latency"] == "median GPU time of Torch-TensorRT"
    assert study.user_attrs[MARK]["bound"]["loss"] == "l0"


@pytest.mark.parametrize("epsilon", [None, 0])
def test_torch_tensorrt_takes_a_threshold_of_0_for_a_bound(
    tmp_path: Path, epsilon: float | None
) -> None:
    lines = torch_lines()
    head = {**json.loads(lines[0]), "accuracy_parameter": {"epsilon": epsilon}}
    lines[2] = lines[2].replace("accuracy threshold exceeded: {'output': 0.5}", "")
    lines[2] = lines[2].replace('"gpu_time": null', '"gpu_time": 1.0')
    path = write(tmp_path / "tune.jsonl", [line(head, **TORCH), *lines[1:]])
    _, records, _ = imported(path, TORCH_TENSORRT)
    assert records[0].eligible
    assert records[1].eligible == (epsilon is None)


def test_a_study_of_that_name_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    url = storage_beside(path)
    storage = open_storage(url)
    optuna.create_study(storage=storage, study_name="trtexec-cache")
    with pytest.raises(StorageError, match="already holds a study named 'trtexec-cache'"):
        import_cache(path, url, TRTEXEC)
    assert optuna.load_study(study_name="trtexec-cache", storage=storage).trials == []
    report = import_cache(path, url, TRTEXEC, study="mine / ünïcode")
    assert report.study == "mine / ünïcode"


@pytest.mark.parametrize("name", ["", "x" * 501])
def test_a_name_that_no_storage_takes_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    with pytest.raises(SettingsError, match="1 to 500 characters"):
        imported(path, study=name)


def test_a_storage_that_cannot_be_written_keeps_no_half_study(tmp_path: Path) -> None:
    path = write(tmp_path / "cache.json", [header(), *fast_rows()])
    url = sqlite_url(tmp_path / "full.db")
    storage = open_storage(url)
    with storage.engine.begin() as link:  # type: ignore[attr-defined]
        link.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON trial_user_attributes "
            "BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
        )
    with pytest.raises(StorageError, match="cannot import into 'trtexec-cache'"):
        import_cache(path, url, TRTEXEC)
    assert optuna.get_all_study_names(open_storage(url)) == []


def test_hundreds_of_thousands_of_rows_take_one_transaction(tmp_path: Path) -> None:
    """Many rows give the same trials as few, in order, whatever the storage."""
    rows = [row(0, "-a=on -b=1", 2.0)]
    rows += [row(i, f"-a=on -b=0 -d={i}", 1.0 + i / 1000) for i in range(1, 2000)]
    path = write(tmp_path / "cache.json", [header(), *rows])
    for url in (sqlite_url(tmp_path / "many.db"), f"journal:///{tmp_path / 'many.log'}"):
        report = import_cache(path, url, TRTEXEC)
        assert report.rows == 2000
        study = optuna.load_study(study_name=report.study, storage=open_storage(url))
        trials = study.get_trials(deepcopy=False)
        assert [t.number for t in trials] == list(range(2000))
        assert [t.user_attrs[ROW] for t in trials] == rows
        assert trials[1999].value == pytest.approx(2.999 / 2.0)
        assert {t.state for t in trials} == {TrialState.COMPLETE}
        assert trials[7].constraints[CONSTRAINT] == pytest.approx(-0.99)


def test_routes_keep_one_spelling_across_processes(tmp_path: Path) -> None:
    assert sys.flags.hash_randomization == 1
    head = header(tuning_expr="", default_build_route="-z=1 -a=1 -m=1")
    path = write(tmp_path / "cache.json", [head, row(0, "-a=1 -z=1"), row(1, "-q=1 -a=2 -z=2")])
    _, records, _ = imported(path)
    assert records[1].route == "-z=2 -a=2 -q=1"
