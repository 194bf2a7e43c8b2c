"""The output folder of a study: what lies where, and who may write there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from routewright.errors import StorageError
from routewright.files import explain_os_error

LEAST_FREE_BYTES = 64 * 2**20
"""Free space below which no build is started."""

PRIOR_FILE = "used.prior.json"
"""The prior that a study started from, in its output folder."""

_LOCK = ".lock"


class OutFolder:
    """An output folder that this process has to itself; use it as a context manager.

    Where an error ends the command before there is anything worth keeping, all that was written
    is removed again, and so is the folder if it was made here.

    Args:
        path: The folder; its parent must exist or be creatable.
        resume: Whether it must hold a study already; otherwise it must not.

    Raises:
        StorageError: On entering: the folder cannot be used; the message says why.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path.absolute()
        self.resume = resume
        self.keep = False
        """Set once the folder holds something worth keeping."""
        self._made: list[Path] = []
        self._found: frozenset[str] = frozenset()
        self._lock: int | None = None

    @property
    def database(self) -> Path:
        """The study's SQLite file, where no other storage is given."""
        return self.path / "study.db"

    @property
    def result(self) -> Path:
        """The result."""
        return self.path / "result.json"

    @property
    def route(self) -> Path:
        """The best route, as the compiler takes it."""
        return self.path / "best.route"

    @property
    def engine(self) -> Path:
        """Folder of the best engine."""
        return self.path / "engine"

    @property
    def logs(self) -> Path:
        """Folder of the workers' output."""
        return self.path / "logs"

    @property
    def work(self) -> Path:
        """Folder of samples, references and builds; removed when the study is done."""
        return self.path / "work"

    @property
    def baseline_engine(self) -> Path:
        """Folder of the default route's engine, until it is known what ships."""
        return self.work / "baseline-engine"

    @property
    def pending(self) -> Path:
        """A trial that was measured and is not in the storage yet."""
        return self.path / "pending.json"

    @property
    def settings(self) -> Path:
        """What the study was started with."""
        return self.path / "study.json"

    @property
    def prior(self) -> Path:
        """The prior that the study started from."""
        return self.path / PRIOR_FILE

    def __enter__(self) -> Self:
        try:
            self._check_purpose()
            self._make(self.path)
            self._found = frozenset(os.listdir(self.path))
            self._take()
            self.keep = self.resume
            for folder in (self.logs, self.work):
                folder.mkdir(exist_ok=True)
            self._check_writable()
            self.check_space()
        except BaseException as error:
            self.__exit__(None, None, None)
            if isinstance(error, OSError):
                raise StorageError(
                    f"cannot write to {self.path}: {explain_os_error(error)}"
                ) from error
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            if not self.keep:
                self._remove_what_was_written()
            os.close(self._lock)
            self._lock = None
        if not self.keep:
            for folder in reversed(self._made):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _remove_what_was_written(self) -> None:
        database = [f"{self.database.name}{end}" for end in ("", "-wal", "-shm", "-journal")]
        own = (self.settings.name, self.pending.name, self.prior.name, _LOCK)
        for name in {*database, *own} - self._found:
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.logs, self.work):
            if folder.name not in self._found:
                shutil.rmtree(folder, ignore_errors=True)

    def check_space(self, needed_bytes: int = 0) -> None:
        """Raise where the disk has not the space for one more build.

        Raises:
            StorageError: Less than ``needed_bytes`` and a reserve are free.
        """
        free = shutil.disk_usage(self.path).free
        if free < needed_bytes + LEAST_FREE_BYTES:
            way_out = "and go on with --resume" if self.keep else "or choose another --out"
            raise StorageError(
                f"the disk of {self.path} has {free / 2**20:.0f} MiB left and one build "
                f"needs about {(needed_bytes + LEAST_FREE_BYTES) / 2**20:.0f} MiB; free some "
                f"space {way_out}"
            )

    def clear_work(self) -> None:
        """Remove what only a running study needs."""
        shutil.rmtree(self.work, ignore_errors=True)

    def _check_purpose(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise StorageError(f"{self.path} is a file; give another --out")
        if self.resume and not self.settings.exists():
            raise StorageError(
                f"there is nothing to resume in {self.path}: it holds no study; leave --resume "
                "out to start one, or name the folder of the study with --out"
            )
        if self.resume:
            return
        if self.settings.exists() or self.result.exists():
            raise StorageError(
                f"{self.path} holds a study already; continue it with --resume or choose another "
                "--out"
            )
        if self.database.exists():
            raise StorageError(
                f"{self.database} is there already, and no tuning of this folder made it; choose "
                "another --out"
            )

    def _make(self, path: Path) -> None:
        missing = [path, *path.parents]
        missing = [folder for folder in missing if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            self._made.append(folder)

    def _take(self) -> None:
        lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 200, 0).decode("utf-8", "replace").strip()
            os.close(lock)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StorageError(
                f"{self.path} is in use by another tuning ({holder or 'unknown'}); wait for it or "
                "choose another --out"
            ) from error
        self._lock = lock
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"pid {os.getpid()}\n".encode(), 0)

    def _check_writable(self) -> None:
        # A full disk lets a file be created and refuses its content.
        probe = self.path / ".probe"
        try:
            probe.write_bytes(b"\0" * 65536)
        finally:
            probe.unlink(missing_ok=True)


def fresh_folder(stem: str, parent: Path) -> Path:
    """Return ``parent/stem``, or with ``-2``, ``-3`` ... behind it where that is taken."""
    folder = parent / stem
    number = 2
    while folder.exists():
        folder = parent / f"{stem}-{number}"
        number += 1
    return folder
