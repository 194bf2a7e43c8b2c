"""The journal of a recording: one JSON line per measurement, on disk before the next one begins.

A recording that was killed goes on where it was: the same steps run again and find in the journal
what they had measured. A last line that was cut off is left out.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from routewright.errors import StorageError
from routewright.files import explain_os_error

JOURNAL_SCHEMA = 1

_DIGITS = 6
"""Significant digits that are kept of a measured number."""


class Journal:
    """Lines of a recording, in the order in which they were measured.

    Args:
        path: The file; made with the first line.

    Raises:
        StorageError: It cannot be read, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: list[dict[str, Any]] = []
        self._read()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._lines)

    def of_kind(self, kind: str) -> Iterator[dict[str, Any]]:
        """Give the lines of one kind."""
        return (line for line in self._lines if line["kind"] == kind)

    def append(self, *lines: Mapping[str, Any]) -> None:
        """Write lines, each with its ``kind``, and flush them to disk together.

        Raises:
            StorageError: They cannot be written.
        """
        rounded = [_rounded(dict(line)) for line in lines]
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in rounded)
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {explain_os_error(error)}") from error
        self._lines += rounded

    def _read(self) -> None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {explain_os_error(error)}") from error
        whole, newline, cut_off = data.rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if newline else (), 1):
            try:
                entry = json.loads(line)
                entry["kind"] = str(entry["kind"])
            except (ValueError, TypeError, KeyError) as error:
                raise StorageError(
                    f"line {number} of {self.path} is not of a recording; move the file away to "
                    "start afresh"
                ) from error
            self._lines.append(entry)
        if cut_off:
            # The next line must not be glued to what was cut off.
            with self.path.open("r+b") as stream:
                stream.truncate(len(whole) + len(newline))


def loss_to_json(losses: Mapping[str, float]) -> dict[str, float | str]:
    """Return losses as JSON values; infinity, which JSON has not, as text."""
    return {name: loss if math.isfinite(loss) else str(loss) for name, loss in losses.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
