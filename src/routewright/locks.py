"""One tuner at a time on a device: locks between processes that end with their holder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import stat
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from routewright.errors import BackendError, StorageError
from routewright.files import explain_os_error

_POLL_S = 0.1
_COMMAND_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock.

    Attributes:
        pid: Its process, as that process knows itself.
        command: Its command line, shortened.
    """

    pid: int
    command: str


class DeviceLock:
    """The right to time on a device, held by at most one object on this machine and user.

    The kernel frees it when the holder ends, however it ends. Two objects in one process exclude
    each other too. Several names are taken all or not at all.

    Args:
        names: The device, or all devices that one measurement uses; see :func:`cpu_lock_names`
            and :func:`gpu_lock_name`.
        folder: Where the lock files lie: an existing folder, the same for everybody who shares
            the device. :func:`default_lock_folder`, made when missing, if None.
    """

    def __init__(self, names: str | Sequence[str], *, folder: Path | None = None) -> None:
        # Sorted, so that two tuners never wait for each other's second lock.
        self.names = (names,) if isinstance(names, str) else tuple(sorted(set(names)))
        self.folder = folder
        self._held: dict[str, int] = {}

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return bool(self._held)

    def acquire(self, *, timeout_s: float = 0.0) -> None:
        """Take the lock; wait for it up to ``timeout_s``.

        Raises:
            BackendError: Another tuner holds it; the message names that tuner.
            StorageError: The lock files cannot be written.
            RuntimeError: This object holds it already.
        """
        if self._held:
            raise RuntimeError(f"the lock on {', '.join(self.names)} is already held")
        folder = _own_folder() if self.folder is None else self.folder
        deadline_s = time.monotonic() + timeout_s
        try:
            for name in self.names:
                self._held[name] = _open_locked(name, folder, deadline_s)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back; allowed when it is not held."""
        for fd in self._held.values():
            # The file stays: unlinking it would let two tuners lock two files of one name.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)
        self._held.clear()

    def __enter__(self) -> Self:
        if not self._held:
            self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def cpu_lock_names(cpus: Sequence[int] | None = None) -> tuple[str, ...]:
    """Return the lock names of a set of CPUs, one for each, so that overlapping sets collide.

    Args:
        cpus: Numbers of the CPUs; those that this process may run on if None.
    """
    numbers = os.sched_getaffinity(0) if cpus is None else set(cpus)
    return tuple(f"cpu-{number:04d}" for number in sorted(numbers))


def gpu_lock_name(uuid: str) -> str:
    """Return the lock name of the GPU (or MIG slice) with this UUID."""
    return f"gpu-{uuid.strip().lower()}"


def default_lock_folder() -> Path:
    """Return the folder of this user's locks on this machine.

    Not ``$XDG_RUNTIME_DIR``: it is unset in jobs and removed at logout, so that two tuners of one
    user could look at two folders. Nor the temporary folder, which ``$TMPDIR`` moves.
    """
    return Path(f"/tmp/routewright-{os.getuid()}")


def _open_locked(name: str, folder: Path, deadline_s: float) -> int:
    path = _lock_path(name, folder)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {explain_os_error(error)}") from error
    try:
        while not _try_lock(fd):
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                raise BackendError(_busy_message(name, _read_holder(fd)))
            time.sleep(min(_POLL_S, remaining_s))
        _write_holder(fd)
    except OSError as error:
        os.close(fd)
        raise StorageError(f"cannot lock {path}: {explain_os_error(error)}") from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _write_holder(fd: int) -> None:
    command = shlex.join([Path(sys.argv[0] or "python").name, *sys.argv[1:]])
    record = {"pid": os.getpid(), "command": command[:_COMMAND_CHARACTERS]}
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(record).encode(), 0)


def _read_holder(fd: int) -> Holder | None:
    try:
        record = json.loads(os.pread(fd, 16 * _COMMAND_CHARACTERS, 0))
        return Holder(int(record["pid"]), str(record["command"]))
    except (ValueError, KeyError, TypeError, OSError):
        # The holder is just writing it.
        return None


def _busy_message(name: str, holder: Holder | None) -> str:
    if holder is None:
        who = "another tuner"
    elif holder.pid == os.getpid():
        who = "another study of this process"
    else:
        who = f"another tuner (pid {holder.pid}: {holder.command})"
    return (
        f"{who} is timing on {name}, and two at a time would spoil each other's measurement; "
        "wait until it has ended, or use another device"
    )


def _lock_path(name: str, folder: Path) -> Path:
    return folder / f"{quote(name, safe='')}.lock"


def _own_folder() -> Path:
    folder = default_lock_folder()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise StorageError(f"cannot use {folder}: {explain_os_error(error)}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise StorageError(
            f"cannot use {folder} for locks: it is not a folder of this user; remove it"
        )
    return folder
