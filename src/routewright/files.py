"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from pathlib import Path

from routewright.errors import StorageError


def write_bytes_atomic(path: Path, data: bytes, *, flush: bool = True) -> None:
    """Write ``data`` to a temporary name beside ``path``, flush it to disk and rename it.

    Args:
        path: The file.
        data: Its content.
        flush: Whether to wait for the disk. A file that is not flushed survives the end of this
            process, however it comes, and not that of the machine.

    Raises:
        StorageError: The folder is missing, not writable, or full; nothing is left behind.
    """
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
        ) as stream:
            temporary = Path(stream.name)
            stream.write(data)
            stream.flush()
            if flush:
                os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise StorageError(f"cannot write {path}: {explain_os_error(error)}") from error


def write_text_atomic(path: Path, text: str, *, flush: bool = True) -> None:
    """Write ``text`` as UTF-8; see :func:`write_bytes_atomic`."""
    write_bytes_atomic(path, text.encode("utf-8"), flush=flush)


def replace_atomic(source: Path, target: Path) -> None:
    """Rename a finished file or folder onto ``target`` within one file system.

    Raises:
        StorageError: The rename is not possible.
    """
    try:
        os.replace(source, target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {explain_os_error(error)}") from error


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def explain_os_error(error: OSError) -> str:
    """Return the reason of ``error`` with the way out where there is a usual one."""
    reason = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        return f"{reason}; free some space or choose another folder"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{reason}; choose a folder you may write to"
    if error.errno == errno.ENOENT:
        return f"{reason}; create the folder first or choose another"
    return reason


def _umask() -> int:
    # The mask can only be read by setting it; restored at once.
    mask = os.umask(0)
    os.umask(mask)
    return mask
