"""The output folder: who may write, and what is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from routewright.errors import StorageError
from routewright.outfolder import OutFolder, fresh_folder


def test_a_folder_made_for_nothing_is_removed_again(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), OutFolder(tmp_path / "a" / "b", resume=False):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_study_stays(tmp_path: Path) -> None:
    with OutFolder(tmp_path / "a", resume=False) as out:
        out.settings.write_text("{}")
        out.keep = True
    assert (tmp_path / "a" / "study.json").exists()
    with pytest.raises(StorageError, match="holds a study already"):
        OutFolder(tmp_path / "a", resume=False).__enter__()
    with OutFolder(tmp_path / "a", resume=True):
        pass


def test_a_folder_of_the_users_stays_with_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(RuntimeError), OutFolder(tmp_path, resume=False):
        raise RuntimeError
    assert (tmp_path / "mine.txt").read_text() == "x"


def test_an_empty_folder_of_the_users_is_empty_again(tmp_path: Path) -> None:
    with OutFolder(tmp_path, resume=False) as out:
        out.settings.write_text("{}")
        out.database.touch()
        (out.work / "builds").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_the_users_is_neither_used_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_bytes(b"mine")
    with pytest.raises(StorageError, match="no tuning of this folder made it"):
        OutFolder(tmp_path, resume=False).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


def test_two_tunings_do_not_share_a_folder(tmp_path: Path) -> None:
    with OutFolder(tmp_path / "a", resume=False) as out:
        out.keep = True
        with pytest.raises(StorageError, match="in use by another tuning"):
            OutFolder(tmp_path / "a", resume=False).__enter__()


def test_what_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (
        tmp_path / "file",
        tmp_path / "file" / "below",
        tmp_path / ("x" * 300),
        Path("/proc/nowhere"),
    ):
        with pytest.raises(StorageError) as caught:
            OutFolder(path, resume=False).__enter__()
        assert "\n" not in str(caught.value)
    with pytest.raises(StorageError, match="nothing to resume"):
        OutFolder(tmp_path / "none", resume=True).__enter__()
    assert not (tmp_path / "none").exists()


def test_too_little_space_is_said_before_a_build(tmp_path: Path) -> None:
    with (
        OutFolder(tmp_path / "a", resume=False) as out,
        pytest.raises(StorageError, match="MiB left"),
    ):
        out.check_space(2**60)


def test_fresh_folders_count_up(tmp_path: Path) -> None:
    assert fresh_folder("m", tmp_path) == tmp_path / "m"
    (tmp_path / "m").mkdir()
    (tmp_path / "m-2").mkdir()
    assert fresh_folder("m", tmp_path) == tmp_path / "m-3"
