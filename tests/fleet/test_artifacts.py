"""Engines in an artifact store: whole, or refused."""

from __future__ import annotations

import os
from pathlib import Path

import optuna
import pytest
from optuna.storages import InMemoryStorage

from routewright.errors import StorageError
from routewright.fleet.artifacts import fetch_engine, inside, open_store, upload_engine


@pytest.fixture
def uploaded(tmp_path: Path) -> dict[str, dict[str, str]]:
    engine = tmp_path / "engine"
    (engine / "parts").mkdir(parents=True)
    (engine / "model.onnx").write_bytes(b"model")
    (engine / "parts" / "weights.bin").write_bytes(b"\0" * 1000)
    storage = InMemoryStorage()
    study = optuna.create_study(storage=storage)
    study.ask()
    store = open_store(str(tmp_path / "store"))
    return upload_engine(store, engine, study.trials[0], storage)


def test_an_engine_comes_back_as_it_was(
    tmp_path: Path, uploaded: dict[str, dict[str, str]]
) -> None:
    assert set(uploaded) == {"model.onnx", "parts/weights.bin"}
    mask = os.umask(0o027)
    try:
        fetch_engine(open_store(str(tmp_path / "store")), uploaded, tmp_path / "copy")
    finally:
        os.umask(mask)
    assert (tmp_path / "copy" / "model.onnx").read_bytes() == b"model"
    assert (tmp_path / "copy" / "parts" / "weights.bin").read_bytes() == b"\0" * 1000
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "copy" / "model.onnx").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_damaged_engine_is_refused_and_nothing_of_it_is_left(
    tmp_path: Path, uploaded: dict[str, dict[str, str]], damage: str
) -> None:
    file = tmp_path / "store" / uploaded["parts/weights.bin"]["artifact"]
    file.unlink() if damage == "removed" else file.write_bytes(b"\1" * 1000)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StorageError, match="damaged" if damage == "changed" else "cannot fetch"):
        fetch_engine(open_store(str(tmp_path / "store")), uploaded, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\\..\\x", "."])
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(StorageError, match="leaves its folder"):
        inside(name)


def test_a_store_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("s3://", "s3://bucket/path", str(tmp_path / "file" / "store")):
        with pytest.raises(StorageError):
            open_store(place)
