"""The output folder of a comparison: one file for each finished run, and what follows from them.

A run's file is written whole, under a temporary name first, when the run has ended. So whatever
happens, a run is there or it is not, and everything else can be made again from the files.
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import gzip
import io
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from routewright.compare.measures import COLUMNS, Row
from routewright.compare.plan import Plan, RunKey, refuse_other_plan
from routewright.compare.run import Run
from routewright.errors import StorageError
from routewright.files import explain_os_error, write_bytes_atomic, write_text_atomic


class ComparisonFolder:
    """Where a comparison lies.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def plan(self) -> Path:
        """What is compared."""
        return self.path / "comparison.json"

    @property
    def runs(self) -> Path:
        """Folder of the finished runs."""
        return self.path / "runs"

    @property
    def results(self) -> Path:
        """The tidy table: one line for each run and trial."""
        return self.path / "results.csv"

    @property
    def database(self) -> Path:
        """The Optuna storage, where no other is given."""
        return self.path / "studies.db"

    @property
    def figures(self) -> Path:
        """Folder of the figures."""
        return self.path / "figures"

    @property
    def artifacts(self) -> Path:
        """Folder of the artifacts that the storage's summary study refers to."""
        return self.path / "artifacts"

    @property
    def name(self) -> str:
        """The comparison's name, which its studies' names begin with."""
        return self.path.name

    def of_run(self, key: RunKey) -> Path:
        """Return the file of a run."""
        return self.runs / _file_name(key.work) / _file_name(key.sampler) / f"{key.seed}.json.gz"

    @contextlib.contextmanager
    def opened(self, plan: Plan, *, resume: bool, note: dict[str, Any]) -> Iterator[None]:
        """Have the folder to oneself.

        Args:
            plan: What is compared.
            resume: Whether a comparison must be there already; otherwise none may be.
            note: What else to keep with the plan.

        Raises:
            StorageError: The folder cannot be used; the message says why.
            SettingsError: The comparison there is another one.
        """
        if resume:
            refuse_other_plan(self.stored(), plan)
        elif self._read_plan() is not None:
            raise StorageError(
                f"{self.path} holds a comparison already; continue it with --resume or choose "
                "another --out"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.runs.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot write to {self.path}: {explain_os_error(error)}"
            ) from error
        with self._locked():
            write_text_atomic(self.plan, json.dumps(plan.to_dict() | note, indent=1) + "\n")
            yield

    def save(self, run: Run) -> None:
        """Keep a finished run; once this returns it survives a kill.

        Raises:
            StorageError: It cannot be written.
        """
        path = self.of_run(run.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(run.to_dict(), separators=(",", ":"))
        # Without a time in it, the same run gives the same file.
        write_bytes_atomic(path, gzip.compress(text.encode(), compresslevel=6, mtime=0))

    def load(self, key: RunKey) -> Run:
        """Read a finished run.

        Raises:
            StorageError: It cannot be read.
        """
        path = self.of_run(key)
        try:
            return Run.from_dict(json.loads(gzip.decompress(path.read_bytes())))
        except (OSError, ValueError, EOFError, StorageError) as error:
            raise StorageError(
                f"cannot read the run {path}: {error}; remove it to have it run again"
            ) from error

    def has(self, key: RunKey) -> bool:
        """Whether a run is finished."""
        return self.of_run(key).exists()

    def write_results(self, rows: Iterable[Row]) -> None:
        """Write ``results.csv``.

        Raises:
            StorageError: It cannot be written.
        """
        stream = io.StringIO()
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _short(value) for name, value in asdict(row).items()})
        write_text_atomic(self.results, stream.getvalue())

    def stored(self) -> dict[str, Any]:
        """Return the plan that is here, and what is noted with it.

        Raises:
            StorageError: There is none.
        """
        stored = self._read_plan()
        if stored is None:
            raise StorageError(
                f"there is nothing to resume in {self.path}: it holds no comparison; leave "
                "--resume out to start one"
            )
        return stored

    def _read_plan(self) -> dict[str, Any] | None:
        if self.path.exists() and not self.path.is_dir():
            raise StorageError(f"{self.path} is a file; give another --out")
        try:
            content = json.loads(self.plan.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageError(
                f"cannot read {self.plan}: {error}; choose another --out"
            ) from error
        if not isinstance(content, dict):
            raise StorageError(f"{self.plan} is no comparison; choose another --out")
        return content

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise StorageError(
                f"{self.path} is in use by another comparison; wait for it or choose another --out"
            ) from error
        try:
            yield
        finally:
            os.close(lock)


def _file_name(name: str) -> str:
    # A class of the user's is named package.module:Class.
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else ""
    return value
