"""Storages that cannot be opened, in one line each."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import optuna
import pytest

from routewright.errors import StorageError
from routewright.storage import close_storage, open_storage, redact, sqlite_url, storage_url


def refused(url: str) -> str:
    with pytest.raises(StorageError) as caught:
        open_storage(url)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_password_is_never_shown() -> None:
    assert redact("postgresql://me:secret@db/x") == "postgresql://me:***@db/x"
    assert redact("postgresql://me:sec/ret@db/x") == "postgresql://me:***@db/x"
    assert redact("postgresql://db/x?password=secret&a=b") == "postgresql://db/x?password=***&a=b"
    assert redact("sqlite:////tmp/a:b@c.db") == "sqlite:////tmp/a:b@c.db"
    assert "secret" not in refused("postgresql://me:secret@127.0.0.1:1/x")


def test_what_is_no_storage(tmp_path: Path) -> None:
    assert "no storage" in refused("somewhere")
    assert "no folder" in refused(sqlite_url(tmp_path / "missing" / "study.db"))
    assert "a folder" in refused(sqlite_url(tmp_path))
    for url in ("sqlite://", "sqlite:///", "sqlite:///:memory:", "journal://"):
        assert "in memory" in refused(url)
    assert "a folder" in refused(f"journal:///{tmp_path}")
    assert "too long" in refused(f"{'x' * 300}.db")
    refused("nosuchdialect://host/name")
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"this is no database, whatever its name says")
    assert "no SQLite file" in refused(str(garbage))


def test_an_empty_file_becomes_a_storage(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    open_storage(str(path))
    assert path.stat().st_size > 0


def test_a_missing_driver_is_named() -> None:
    assert "'MySQLdb'" in refused("mysql://127.0.0.1/x")


def test_urls_are_the_same_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage_url("s.db") == f"sqlite:///{tmp_path}/s.db"
    assert storage_url("sqlite:///s.db") == f"sqlite:///{tmp_path}/s.db"
    assert storage_url("s.log") == f"journal:///{tmp_path}/s.log"
    assert storage_url("journal:////a/s") == "journal:////a/s"
    assert storage_url("postgresql://db/x") == "postgresql://db/x"


def test_looking_at_a_database_of_another_program_does_not_change_it(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("create table mine (x)")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="holds no Optuna studies"):
        open_storage(str(path), existing=True)
    assert path.read_bytes() == before
    for name in ("none.db", "none.log"):
        with pytest.raises(StorageError, match="no file"):
            open_storage(str(tmp_path / name), existing=True)
        assert not (tmp_path / name).exists()


def test_a_closed_sqlite_storage_is_one_file(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "s.db"))
    optuna.create_study(storage=storage, study_name="s")
    assert (tmp_path / "s.db-wal").exists()
    close_storage(storage)
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_a_journal_with_a_broken_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    optuna.create_study(storage=open_storage(str(path)), study_name="s")
    whole = path.read_bytes()
    for broken in (b"garbage\n", b"\n", b"[]\n", b"\xff\n"):
        path.write_bytes(whole + broken + whole)
        line = whole.count(b"\n") + 1
        assert f"line {line} of" in refused(str(path))


def test_a_journal_whose_last_line_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    optuna.create_study(storage=open_storage(str(path)), study_name="s")
    open_storage(str(path))
    path.write_bytes(path.read_bytes()[:-5])
    assert "cut off" in refused(str(path))
