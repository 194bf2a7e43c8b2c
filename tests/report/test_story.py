"""The five answers, for every state that a study can be in."""

from __future__ import annotations

from dataclasses import replace

from routewright.records import Phase
from routewright.report.source import StudyView
from routewright.report.story import Status, tell

from studies import IDENTITY, baseline, finished_view, record, result  # isort: skip


def answers(view: StudyView) -> dict[str, str]:
    return dict(tell(view).answers)


def test_a_confirmed_gain_answers_all_five_questions() -> None:
    story = tell(finished_view())
    told = dict(story.answers)
    assert story.status is Status.FASTER
    assert story.headline == "1.11 times as fast as the default route"
    assert "0.900 (95% interval 0.880 to 0.920)" in told["How much faster?"]
    assert "10.000 ms" in told["How much faster?"]
    assert "2 rounds of fresh builds" in told["How sure?"]
    assert "cos at most 0.01" in told["At what accuracy?"]
    assert "y 0.0001" in told["At what accuracy?"]
    assert "1 trial broke the bound" in told["At what accuracy?"]
    assert "-a=on (factor 0.9" in told["Which knobs did it?"]
    assert "1 file" in told["How to rebuild it?"]
    assert story.command.endswith("--expr -a=on")
    assert story.failures == {"crash": 1}


def test_no_gain_says_to_keep_the_default() -> None:
    told = result("", "no gain")
    told["best"] |= {"relative_latency": 1.0, "ci95": [1.0, 1.0]}
    story = tell(finished_view(result=told))
    assert story.status is Status.NO_GAIN
    assert "keep the default route" in story.headline
    assert "Not at all" in dict(story.answers)["How much faster?"]


def test_an_unfinished_study_tells_its_best_and_that_nothing_confirmed_it() -> None:
    view = finished_view(result=None)
    view = replace(view, records=view.records[:6])
    story = tell(view)
    assert story.status is Status.UNFINISHED
    assert story.headline.endswith("so far, not confirmed")
    assert "routewright tune --resume --out /results" in story.reason
    assert "Not yet" in dict(story.answers)["How sure?"]
    assert story.command == "routewright tune /models/m.onnx --budget 120.0 --expr -a=on"


def test_a_confirmation_counts_more_than_the_reading_that_led_to_it() -> None:
    records = (
        baseline(),
        record(1, "-a=on", relative_latency=0.5),
        record(2, "-a=on", phase=Phase.CONFIRMATION, relative_latency=0.97),
    )
    story = tell(finished_view(result=None, records=records))
    assert story.best is not None
    assert story.best.relative_latency == 0.97


def test_a_running_study_says_so_by_its_lock_or_its_running_trials() -> None:
    assert tell(finished_view(result=None, in_use=True)).status is Status.RUNNING
    by_trials = finished_view(result=None, in_use=None, running=("-a=on",))
    assert tell(by_trials).status is Status.RUNNING
    assert tell(replace(by_trials, in_use=False)).status is Status.UNFINISHED


def test_an_imported_study_claims_nothing_of_its_own() -> None:
    identity = {**IDENTITY, "imported": {"source": "trtexec", "model": "m.onnx"}}
    records = (baseline(ci95=None, log_ratios=()), record(1, "-a=on", ci95=None, log_ratios=()))
    story = tell(StudyView("imported", records, identity=identity))
    assert story.status is Status.IMPORTED
    assert "as the other tuner measured" in story.headline
    assert "interval not known" in dict(story.answers)["How much faster?"]
    assert story.command == ""


def test_a_run_of_a_comparison_is_no_broken_study() -> None:
    identity = {**IDENTITY, "compared": {"sampler": "random", "seed": 1}}
    story = tell(finished_view(identity=identity, result=None, folder=None))
    assert story.status is Status.COMPARED
    assert "comparison" in story.reason
    assert "not confirmed" in story.headline


def test_an_empty_study_is_told_without_numbers() -> None:
    story = tell(StudyView("empty"))
    assert story.best is None
    assert "Nothing eligible" in story.headline
    assert all(answer for _, answer in story.answers)
