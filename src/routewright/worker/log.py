"""What a worker and the libraries in it print: a file of bearable size, and its tail."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO

from routewright.errors import StorageError
from routewright.files import explain_os_error

TAIL_BYTES = 4096
_MOST_BYTES = 16 * 2**20
_KEPT_BYTES = 64 * 2**10


class WorkerLog:
    """The file that takes a worker's standard output and standard error.

    Args:
        folder: Where it lies; made when missing.

    Raises:
        StorageError: It cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = _create(folder)
        except OSError as error:
            raise StorageError(f"cannot write in {folder}: {explain_os_error(error)}") from error
        self._marked = 0

    def open(self) -> IO[bytes]:
        """Return a stream that appends; the worker inherits it."""
        return self.path.open("ab", buffering=0)

    def mark(self) -> None:
        """Begin the part that :meth:`tail` reports: what is printed from now on."""
        self._marked = self._size()

    def tail(self) -> str:
        """Return the end of what was printed since :meth:`mark`."""
        size = self._size()
        # A log that was cut meanwhile is shorter than the mark.
        start = self._marked if self._marked <= size else 0
        tail = self._read(max(start, size - TAIL_BYTES)).decode("utf-8", "replace")
        # Not every storage takes it.
        return tail.replace("\0", "")

    def keep_small(self) -> None:
        """Drop the older part of a log that grew large; what is printed meanwhile may be lost."""
        size = self._size()
        if size <= _MOST_BYTES:
            return
        kept = self._read(size - _KEPT_BYTES)
        with contextlib.suppress(OSError), self.open() as stream:
            # The worker appends too, so that it goes on at the new end.
            stream.truncate(0)
            stream.write(b"[older output dropped]\n" + kept)

    def remove_if_empty(self) -> None:
        """Remove a log that says nothing."""
        if self._size() == 0:
            self.path.unlink(missing_ok=True)

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def _read(self, start: int) -> bytes:
        try:
            with self.path.open("rb") as stream:
                stream.seek(start)
                return stream.read(max(TAIL_BYTES, _KEPT_BYTES))
        except OSError:
            return b""


def _create(folder: Path) -> Path:
    number = 1
    while True:
        path = folder / f"worker-{number:04d}.log"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            number += 1
        else:
            return path
