"""What a tuning leaves in the study: note, artifacts, figures; and that it never ends a tuning."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, download_artifact, get_all_artifact_meta
from optuna.trial import TrialState
from optuna_dashboard import get_note
from optuna_dashboard._custom_plot_data import get_plotly_graph_objects

from routewright.budget import Budget
from routewright.outfolder import OutFolder
from routewright.progress import Progress
from routewright.records import Outcome, Phase, TrialRecord
from routewright.report.publishing import Publisher
from routewright.result import KnobCensus, Measured, TuneResult, Verdict
from routewright.routes import Route
from routewright.search.base import Proposal
from routewright.space import SearchSpace
from routewright.storage import open_storage, sqlite_url
from routewright.study import StudyLog

from studies import IDENTITY, baseline, record, result  # isort: skip
from test_trial import DATABASE  # isort: skip

SPACE = SearchSpace.whole(DATABASE)


class Heard(Progress):
    """Keeps the notes that it hears."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Tuning:
    """A tuning without a workbench: records are committed as a tuner commits them."""

    def __init__(self, folder: Path, *, budget_s: float = 60.0) -> None:
        self.out = OutFolder(folder, resume=False)
        self.heard = Heard()
        self.publisher = Publisher(self.heard)
        self.budget = Budget(budget_s, now_s=lambda: 0.0, started_s=0.0)

    def __enter__(self) -> Tuning:
        self.out.__enter__()
        self.out.keep = True
        self.log = StudyLog.create(
            open_storage(sqlite_url(self.out.database)),
            "study",
            identity=IDENTITY,
            pending=self.out.pending,
        )
        self.log.note("settings", {"model": "m.onnx", "budget_s": 60.0})
        self.publisher.study_opened(self.log, self.out)
        return self

    def __exit__(self, *error: object) -> None:
        self.out.__exit__(None, None, None)

    def commit(self, record: TrialRecord) -> None:
        route = Route.parse(record.route, DATABASE)
        ticket = self.log.begin(Proposal(route, phase=record.phase), SPACE)
        self.log.commit(ticket, record)
        self.publisher.trial_finished(record, None, self.budget)

    def finish(self) -> TuneResult:
        self.out.engine.mkdir(exist_ok=True)
        (self.out.engine / "model.onnx").write_bytes(b"engine\0" * 1000)
        self.out.route.write_text("-a=off\n")
        told = result("-a=off")
        best = Measured(**{**told["best"], "ci95": (0.88, 0.92)})
        tuned = TuneResult(
            model=told["model"],
            backend="onnxruntime",
            metric="host end to end",
            environment=told["environment"],
            bound=told["bound"],
            baseline={"latency_ms": 10.0},
            best=best,
            verdict=Verdict.FASTER,
            reason="confirmed",
            trials={},
            knobs=KnobCensus(1, ("-a",), (), ()),
            budget=told["budget"],
            seed=0,
            versions={},
            stopped="the budget is used",
            notes=(),
            study={"name": "study", "storage": ""},
            out=str(self.out.path),
            records=tuple(self.log.records),
        )
        tuned.save(self.out.result)
        self.publisher.result_written(tuned, self.budget)
        return tuned

    @property
    def study(self) -> optuna.Study:
        storage = open_storage(sqlite_url(self.out.database), existing=True)
        return optuna.load_study(study_name="study", storage=storage)


def test_a_running_study_has_a_note_from_its_first_trial_on(tmp_path: Path) -> None:
    with Tuning(tmp_path / "out") as tuning:
        tuning.commit(baseline())
        note = get_note(tuning.study)
        assert "running" in note
        assert "m.onnx" in note
        tuning.commit(record(1, "-a=off"))
        # Not each trial: the note would cost more than it is worth.
        assert get_note(tuning.study) == note


def test_a_result_is_published_whole(tmp_path: Path) -> None:
    with Tuning(tmp_path / "out") as tuning:
        tuning.commit(baseline())
        tuning.commit(record(1, "-a=off"))
        tuned = tuning.finish()
        study = tuning.study
        assert "-a=off" in get_note(study)
        assert tuned.best.command in get_note(study)
        figures = get_plotly_graph_objects(study._storage.get_study_system_attrs(study._study_id))
        assert figures.keys() == {"speed-loss", "best-so-far", "knob-effects", "timing-blocks"}
        assert all(json.loads(figure)["data"] for figure in figures.values())
        store = FileSystemArtifactStore(tuning.out.path / "artifacts")
        stored = {meta.filename: meta.artifact_id for meta in get_all_artifact_meta(study)}
        for name, path in (
            ("engine-model.onnx", tuning.out.engine / "model.onnx"),
            ("result.json", tuning.out.result),
            ("best.route", tuning.out.route),
            ("report.html", tuning.out.path / "report.html"),
        ):
            copy = tmp_path / "copy"
            download_artifact(artifact_store=store, artifact_id=stored[name], file_path=str(copy))
            assert copy.read_bytes() == path.read_bytes()
            copy.unlink()


def test_publishing_anew_replaces_what_was_there(tmp_path: Path) -> None:
    with Tuning(tmp_path / "out") as tuning:
        tuning.commit(baseline())
        tuning.finish()
        before = {meta.filename for meta in get_all_artifact_meta(tuning.study)}
        tuning.finish()
        after = [meta.filename for meta in get_all_artifact_meta(tuning.study)]
        assert sorted(after) == sorted(before)
        assert len(list((tuning.out.path / "artifacts").iterdir())) == len(after)


def test_a_failed_trial_keeps_its_build_log_as_a_file(tmp_path: Path) -> None:
    failed = TrialRecord(
        1,
        "-a=off",
        Phase.SEARCH,
        Outcome.FAILED,
        reason="build: died",
        failure="crash",
        log="line 1\nSegmentation fault\n",
    )
    with Tuning(tmp_path / "out") as tuning:
        tuning.commit(baseline())
        tuning.commit(failed)
        trial = tuning.study.trials[1]
        assert trial.state is TrialState.FAIL
        assert "log" not in trial.user_attrs
        (meta,) = get_all_artifact_meta(trial, storage=tuning.study._storage)
        assert meta.filename == "trial-1.log"
        content = (tuning.out.path / "artifacts" / meta.artifact_id).read_text()
        assert "Segmentation fault" in content
        assert "-a=off" in content
        assert tuning.log.records[1].log == ""


def test_without_time_there_are_no_figures_but_the_rest(tmp_path: Path) -> None:
    with Tuning(tmp_path / "out", budget_s=1.0) as tuning:
        tuning.commit(baseline())
        tuning.finish()
        assert not (tuning.out.path / "report.html").exists()
        names = {meta.filename for meta in get_all_artifact_meta(tuning.study)}
        assert "result.json" in names


def test_a_disk_that_refuses_ends_no_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Tuning(tmp_path / "out") as tuning:
        (tuning.out.path / "artifacts").write_text("a file where the folder should be")
        tuning.commit(baseline())
        tuning.finish()
        assert len(tuning.heard.notes) == 1
        assert "not up to date" in tuning.heard.notes[0]


def test_the_dashboard_sees_ratios_and_the_estimate_of_a_slow_trial(tmp_path: Path) -> None:
    slow = record(1, "-a=off", outcome=Outcome.SLOW, relative_latency=1.3, log_ratios=(0.3,) * 40)
    with Tuning(tmp_path / "out") as tuning:
        tuning.commit(baseline())
        tuning.commit(slow)
        trial = tuning.study.trials[1]
        assert trial.state is TrialState.PRUNED
        values = list(trial.intermediate_values.values())
        assert values[:-1] == pytest.approx([2.718281828**0.3] * 8)
        assert trial.value == values[-1] == 1.3
        assert trial.constraints == {"accuracy": pytest.approx(-0.99)}
