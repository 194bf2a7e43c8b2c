"""A local journal of what was measured and is not in the storage yet.

Before a record goes to the storage it is appended here and flushed to the disk. It is struck out
once the storage has it. What is left when a worker ends, however it ends, is handed in by the next
worker of the same output folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routewright.errors import StorageError
from routewright.files import explain_os_error, write_text_atomic
from routewright.records import TrialRecord


@dataclass(frozen=True)
class Entry:
    """A measured trial on its way to the storage.

    Attributes:
        study: Name of the study.
        trial_id: The trial's identity in the storage.
        worker: Who measured it.
        record: What was measured.
    """

    study: str
    trial_id: int
    worker: str
    record: TrialRecord

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "study": self.study,
            "trial_id": self.trial_id,
            "worker": self.worker,
            "number": self.record.number,
            "record": self.record.to_attributes(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Entry:
        """Read it back.

        Raises:
            KeyError: Something is missing.
        """
        record = TrialRecord.from_attributes(int(content["number"]), content["record"])
        return cls(str(content["study"]), int(content["trial_id"]), str(content["worker"]), record)


class Spool:
    """The journal of one output folder.

    Args:
        path: The file; it exists only while something is in it.

    Raises:
        StorageError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        """Lines that a kill or a full disk cut off."""
        self._entries: dict[tuple[str, int], Entry] = {}
        for entry in self._read():
            self._entries[entry.study, entry.trial_id] = entry

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is not in the storage yet, oldest first."""
        return tuple(self._entries.values())

    def add(self, entry: Entry) -> None:
        """Append ``entry`` and flush it to the disk.

        Raises:
            StorageError: The disk is full or the file may not be written.
        """
        self._entries[entry.study, entry.trial_id] = entry
        line = json.dumps(entry.to_json(), allow_nan=False)
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                # The line before may have been cut off.
                stream.write(f"\n{line}")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {explain_os_error(error)}") from error

    def strike(self, entry: Entry) -> None:
        """Take out what the storage has.

        Raises:
            StorageError: The file cannot be written.
        """
        self._entries.pop((entry.study, entry.trial_id), None)
        if not self._entries:
            self.path.unlink(missing_ok=True)
            return
        lines = [json.dumps(kept.to_json()) for kept in self._entries.values()]
        write_text_atomic(self.path, "\n".join(lines) + "\n")

    def _read(self) -> list[Entry]:
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {explain_os_error(error)}") from error
        entries = []
        for line in filter(None, lines):
            try:
                entries.append(Entry.from_json(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError):
                self.damaged += 1
        return entries
