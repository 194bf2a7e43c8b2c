"""One started worker: a child process with a backend in it, its build folder and its wear."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from routewright.errors import BackendError, StorageError
from routewright.files import explain_os_error
from routewright.workbench import TrialFailure
from routewright.worker.answers import BackendInfo, read_failure, read_info
from routewright.worker.process import WorkerProcess, module_folders
from routewright.worker.protocol import ProtocolError, user_error_from_json

WATCH_S = 0.05
"""Seconds between two looks at a child's memory."""

_LEAK_SHARE = 0.25
_CLOSE_S = 2.0
_STARTS = 2

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What every child of one worker has in common.

    Attributes:
        start_params: What the child is told first, apart from what is its own.
        work_folder: Folder in which it gets one for its builds.
        log_folder: Folder in which it gets a file for its output.
        memory_limit_bytes: Memory above which it is killed.
        most_builds: Builds after which it is worn.
        grace_s: Seconds between the request to end and the kill.
        start_timeout_s: Seconds that the start may take.
    """

    start_params: Mapping[str, Any]
    work_folder: Path
    log_folder: Path
    memory_limit_bytes: int
    most_builds: int
    grace_s: float
    start_timeout_s: float


class Child:
    """A child that has loaded its backend. Made by :meth:`start`.

    Attributes:
        number: Which of the worker's children it is, from 1.
        info: What its backend is.
        builds: Builds that it was asked for.
    """

    def __init__(self, settings: ChildSettings, number: int) -> None:
        self.number = number
        self.info = BackendInfo("", "", False)
        self.builds = 0
        self._settings = settings
        self._floors: dict[frozenset[str], int] = {}
        self._leaks = False
        self._end: TrialFailure | None = None
        self._build_folder = _new_folder(settings.work_folder)
        try:
            self._process = WorkerProcess(
                log_folder=settings.log_folder,
                memory_limit_bytes=settings.memory_limit_bytes,
                grace_s=settings.grace_s,
            )
        except BaseException:
            shutil.rmtree(self._build_folder, ignore_errors=True)
            raise
        # For an owner that forgets to close it; the process does not know this object.
        self._finalizer = weakref.finalize(self, self._process.kill, grace_s=0.0)

    @classmethod
    def start(cls, settings: ChildSettings, number: int, deadline_s: float) -> Self:
        """Start a child and have it load its backend and the model.

        A start that crashes is tried once more.

        Raises:
            BackendError: The backend cannot be started here, or the user can mend it.
            TrialFailure: It did not start before ``deadline_s``, or memory ran out.
        """
        attempt = 1
        while True:
            child = cls(settings, number)
            limit_s = time.monotonic() + settings.start_timeout_s
            try:
                child._load(min(deadline_s, limit_s))
            except TrialFailure as failure:
                if failure.kind == "crash" and attempt < _STARTS:
                    attempt += 1
                    continue
                if failure.kind == "crash" or (failure.kind == "timeout" and limit_s < deadline_s):
                    printed = f"; see {child.log_path}" if failure.log else ""
                    raise BackendError(
                        f"the backend {settings.start_params['backend']!r} cannot be started: "
                        f"{failure.message}{printed}"
                    ) from failure
                raise
            else:
                return child

    @property
    def log_path(self) -> Path:
        """The file that takes its output."""
        return self._process.log.path

    @property
    def pid(self) -> int:
        """Number of the process that everything of it descends from."""
        return self._process.pid

    @property
    def worn(self) -> bool:
        """Whether it should be replaced when that is convenient."""
        return self._leaks or self.builds >= self._settings.most_builds

    def end(self) -> TrialFailure | None:
        """Return why it is no longer there; None while it lives."""
        if self._end is None and not self._process.alive():
            self._retire(self._process.death("a pause between two requests"))
        return self._end

    def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        read: Callable[[Any], _Result],
        *,
        doing: str,
        deadline_s: float,
        watch_s: float = WATCH_S,
    ) -> _Result:
        """Ask, and return the answer as ``read`` understands it.

        Args:
            method: What to do.
            params: With what; JSON values.
            read: Checks the answer and converts it.
            doing: ``method`` in words, for messages.
            deadline_s: Time on the monotonic clock at which the child is killed.
            watch_s: Seconds between two looks at its memory.

        Raises:
            TrialFailure: It failed; see :meth:`end` for whether the child is still there.
            RoutewrightError: The user can mend it.
        """
        try:
            answer = self._process.request(
                method, params, deadline_s=deadline_s, doing=doing, watch_s=watch_s
            )
        except TrialFailure as failure:
            self._retire(failure)
            raise
        except BaseException:
            self._retire(TrialFailure("error", f"{doing} was interrupted", transient=True))
            raise
        try:
            if "ok" in answer:
                return read(answer["ok"])
            if "user_error" in answer:
                raise user_error_from_json(answer["user_error"])
            reported = read_failure(answer.get("failure"))
        except ProtocolError as error:
            wrong = self._process.failure("error", f"{doing} gave a wrong answer: {error}")
            self._retire(wrong)
            raise wrong from error
        reported.failure.log = self._process.log.tail()
        if reported.retire:
            self._retire(reported.failure)
        raise reported.failure

    def look_for_leak(self, loaded: frozenset[str]) -> None:
        """Note what is in use, to be called with an engine just freed.

        Args:
            loaded: Slots that hold engines; only looks with equal ones are compared.
        """
        used = self._process.used_bytes()
        floor = self._floors.setdefault(loaded, used)
        self._leaks |= used - floor > _LEAK_SHARE * self._settings.memory_limit_bytes

    def close(self) -> None:
        """Let it free what it holds, and end it."""
        self._process.close(_CLOSE_S)
        self._retire(TrialFailure("error", "the worker was replaced", transient=True))

    def _load(self, deadline_s: float) -> None:
        params = {
            **self._settings.start_params,
            "build_folder": str(self._build_folder),
            "module_folders": module_folders(),
            "python_path": os.environ.get("PYTHONPATH"),
        }
        try:
            self.info = self.ask(
                "start", params, read_info, doing="its start", deadline_s=deadline_s
            )
        except BaseException:
            self._retire(TrialFailure("error", "the worker did not start"))
            raise

    def _retire(self, reason: TrialFailure) -> None:
        """End it for good; the first reason stands."""
        if self._end is None:
            self._end = reason
        self._process.kill(grace_s=0.0)
        self._finalizer.detach()
        self._process.log.remove_if_empty()
        shutil.rmtree(self._build_folder, ignore_errors=True)


def _new_folder(parent: Path) -> Path:
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="worker-", dir=parent))
    except OSError as error:
        raise StorageError(f"cannot write in {parent}: {explain_os_error(error)}") from error
