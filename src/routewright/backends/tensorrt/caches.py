"""Caches that make builds faster and steadier, one file per device, driver and library version.

Two kinds use the same files: the timing cache of a library that times tactics, and the kernel
cache of one that compiles kernels at run time. A file is read and replaced under a lock; what is
no longer valid is replaced by a new cache, never an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from routewright.errors import StorageError
from routewright.files import explain_os_error, write_bytes_atomic


def default_cache_folder() -> Path:
    """Return the user's folder for these caches."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "routewright" / "tensorrt"


class CacheFile:
    """One cache on disk, shared by all processes of this user.

    Args:
        folder: Where it lies; made when missing.
        kind: ``"timing"`` or ``"kernels"``.
        parts: What it is valid for, for example device, driver and library version.
        mode: ``"update"``, ``"read-only"`` or ``"off"``.
    """

    def __init__(self, folder: Path, kind: str, parts: tuple[str, ...], mode: str) -> None:
        name = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", part).strip("_") for part in parts)
        self.path = folder / f"{name}.{kind}"
        self.mode = mode

    def load(self) -> bytes:
        """Return what is cached; empty where nothing is, or the mode is ``"off"``."""
        if self.mode == "off":
            return b""
        try:
            return self.path.read_bytes()
        except OSError:
            return b""

    def update(self, merge: Callable[[bytes], bytes]) -> None:
        """Replace the cache by ``merge(what is there now)``, in mode ``"update"`` only.

        Raises:
            StorageError: The folder cannot be written.
        """
        if self.mode != "update":
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                present = self.load()
                merged = merge(present)
                if merged != present:
                    write_bytes_atomic(self.path, merged)
        except OSError as error:
            raise StorageError(
                f"cannot write the cache {self.path}: {explain_os_error(error)}"
            ) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.path.with_suffix(self.path.suffix + ".lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Closing the file gives the lock back.
            yield


class TimingCache:
    """The timing cache of one build.

    Args:
        file: Where it is kept.
        config: The builder configuration that uses it.

    Attributes:
        notes: Remarks, one line each.
    """

    def __init__(self, file: CacheFile, config: Any) -> None:
        self.notes: tuple[str, ...] = ()
        self._file = file
        self._config = config
        self._loaded = file.load()
        with _quiet():
            cache = config.create_timing_cache(self._loaded)
            if cache is None or not config.set_timing_cache(cache, False):
                self.notes = (
                    "the timing cache was of another device or version: a new one began",
                )
                cache = config.create_timing_cache(b"")
                config.set_timing_cache(cache, False)
        # The configuration does not own it.
        self._cache = cache

    def save(self) -> None:
        """Write back what the build added, together with what others wrote meanwhile.

        Raises:
            StorageError: The folder cannot be written.
        """
        with _quiet():
            self._file.update(self._merged)

    def _merged(self, present: bytes) -> bytes:
        mine = self._config.get_timing_cache()
        if present and present != self._loaded:
            theirs = self._config.create_timing_cache(present)
            # A cache that does not fit is left out; ours alone is valid.
            if theirs is not None:
                mine.combine(theirs, False)
        return bytes(mine.serialize())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
