"""What an exception inside a worker means for the trial."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from routewright.backends.base import BuildFailed, RunFailed
from routewright.errors import RoutewrightError, StorageError
from routewright.files import explain_os_error
from routewright.worker.memory import is_scarce
from routewright.worker.protocol import one_line

_OUT_OF_MEMORY = (
    "bad_alloc",
    "cannot allocate memory",
    "cudaerrormemoryallocation",
    "failed to allocate memory",
    "out of memory",
    "outofmemory",
)
_DEVICE_LOST = (
    "device-side assert",
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
)
_NO_ROOM_OR_NO_KERNEL = "could not find any implementation"

_KINDS = {
    "unsupported": "unsupported",
    "oom": "oom",
    "cancelled": "timeout",
    "sticky": "sticky",
    "error": "error",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed trial as the worker reports it.

    Attributes:
        kind: See :class:`routewright.workbench.TrialFailure`.
        message: One line.
        transient: Whether trying once more is reasonable.
        retire: Whether this process can no longer be trusted.
    """

    kind: str
    message: str
    transient: bool
    retire: bool


def failure_of(error: Exception) -> Failure:
    """Return what ``error`` means for the trial during which it was raised.

    Compilers report much by text only: that memory ran out reads like a missing kernel, and a lost
    device like any other error.
    """
    message = describe(error)
    kind = "error"
    if isinstance(error, BuildFailed | RunFailed):
        kind = _KINDS.get(error.kind, "error")
    if kind in ("error", "unsupported"):
        kind = _kind_in_text(message.lower()) or kind
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        kind = "oom"
    return Failure(
        kind=kind,
        message=message,
        transient=kind == "oom",
        # What an allocation left behind when it failed is not worth reasoning about.
        retire=kind in ("oom", "sticky"),
    )


def user_error_of(error: Exception) -> RoutewrightError | None:
    """Return ``error`` as something that the user can mend, or None if it is not."""
    if isinstance(error, RoutewrightError):
        return error
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        where = error.filename or "what the build needs to write"
        return StorageError(f"cannot write {where}: {explain_os_error(error)}")
    return None


def describe(error: BaseException) -> str:
    """Return ``error`` on one line; the type is named unless the class is made for messages."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 - the text of a foreign exception may itself raise
        text = f"its text raised {type(second).__name__}"
    if isinstance(error, BuildFailed | RunFailed | RoutewrightError) and text:
        return one_line(text)
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _kind_in_text(text: str) -> str | None:
    if any(words in text for words in _DEVICE_LOST):
        return "sticky"
    if any(words in text for words in _OUT_OF_MEMORY):
        return "oom"
    if _NO_ROOM_OR_NO_KERNEL in text and is_scarce():
        return "oom"
    return None
