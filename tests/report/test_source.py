"""Reading studies from folders and storages, whole and broken."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from routewright.errors import StorageError
from routewright.report.source import read_study
from routewright.report.story import Status, tell
from routewright.storage import open_storage

from studies import finished_view, result, study_in  # isort: skip


def test_a_killed_study_is_read_from_its_folder_and_from_its_storage(tmp_path: Path) -> None:
    url = study_in(tmp_path / "out")
    for source in (tmp_path / "out", url):
        view = read_study(source)
        assert [r.route for r in view.records] == ["-a=off"]
        assert view.settings["model"] == "m.onnx"
        assert tell(view).status is Status.UNFINISHED


def test_a_folder_that_is_being_tuned_in_is_told_by_its_lock(tmp_path: Path) -> None:
    study_in(tmp_path / "out")
    with (tmp_path / "out" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_study(tmp_path / "out").in_use
    assert not read_study(tmp_path / "out").in_use


def test_the_result_is_told_by_the_storage_alone(tmp_path: Path) -> None:
    url = study_in(tmp_path / "out")
    storage = open_storage(url)
    (study,) = storage.get_all_studies()
    storage.set_study_user_attr(study._study_id, "result", result("-a=off"))
    assert tell(read_study(url)).status is Status.FASTER


def test_a_folder_that_was_moved_brings_its_study_along(tmp_path: Path) -> None:
    study_in(tmp_path / "out")
    told = result("-a=off", study={"name": "study", "storage": "sqlite:////gone/study.db"})
    (tmp_path / "out" / "result.json").write_text(json.dumps(told))
    (tmp_path / "out").rename(tmp_path / "moved")
    view = read_study(tmp_path / "moved")
    assert len(view.records) == 1
    assert view.result is not None


@pytest.mark.parametrize("broken", [{"best": {}}, {"best": None}, {"verdict": "nice"}])
def test_a_result_that_no_tuning_wrote_is_refused(
    tmp_path: Path, broken: dict[str, object]
) -> None:
    study_in(tmp_path / "out")
    (tmp_path / "out" / "result.json").write_text(json.dumps(result() | broken))
    with pytest.raises(StorageError, match="not what a tuning wrote"):
        read_study(tmp_path / "out")


def test_a_storage_with_several_studies_wants_a_name(tmp_path: Path) -> None:
    url = study_in(tmp_path / "out", "one")
    study_in(tmp_path / "out", "two")
    with pytest.raises(StorageError, match="one, two; name one with --study"):
        read_study(url)
    assert read_study(url, "two").name == "two"


def test_what_is_no_study_is_refused_in_one_line(tmp_path: Path) -> None:
    for source in (tmp_path / "none", tmp_path, "sqlite:///none.db", "postgresql://u:***@h/db"):
        with pytest.raises(StorageError) as caught:
            read_study(source)
        assert "\n" not in str(caught.value)


def test_a_view_knows_its_baseline_and_census() -> None:
    view = finished_view()
    assert view.baseline is view.records[0]
    assert "-e" in view.census().inert
