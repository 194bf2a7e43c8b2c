"""The journal of a recording survives being cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from routewright.errors import StorageError
from routewright.recording.journal import Journal, loss_to_json


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).append({"kind": "build", "route": "-a=on"}, {"kind": "timing", "ms": [1.5]})
    journal = Journal(path)
    assert [line["kind"] for line in journal] == ["build", "timing"]
    assert list(journal.of_kind("timing")) == [{"kind": "timing", "ms": [1.5]}]


def test_a_line_that_was_cut_off_is_left_out_and_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).append({"kind": "a"}, {"kind": "b"})
    path.write_bytes(path.read_bytes()[:-4])
    journal = Journal(path)
    assert [line["kind"] for line in journal] == ["a"]
    journal.append({"kind": "c"})
    assert [line["kind"] for line in Journal(path)] == ["a", "c"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("not a journal\nnor this\n")
    with pytest.raises(StorageError, match="line 1"):
        Journal(path)


def test_infinite_losses_are_texts() -> None:
    assert loss_to_json({"y": float("inf"), "z": 0.5}) == {"y": "inf", "z": 0.5}
