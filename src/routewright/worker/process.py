"""The parent's side of one child process: start it, ask it, watch it, end it for certain."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from routewright.workbench import TrialFailure
from routewright.worker.log import WorkerLog
from routewright.worker.memory import format_bytes, oom_kills, used_bytes
from routewright.worker.protocol import ProtocolError, decode, encode, shorten

_LONGEST_ANSWER_BYTES = 64 * 2**20
_LOG_CHECK_S = 1.0
_REAP_S = 5.0
_PIPES_CLOSED_S = 2.0


class WorkerProcess:
    """One child process, from its start to its certain end.

    Not for use by several threads at once.

    Args:
        log_folder: Where its output is kept.
        memory_limit_bytes: It is killed when it and all it started use more.
        grace_s: Seconds between the request to end and the kill.
    """

    def __init__(self, *, log_folder: Path, memory_limit_bytes: int, grace_s: float) -> None:
        self.log = WorkerLog(log_folder)
        self._memory_limit_bytes = memory_limit_bytes
        self._grace_s = grace_s
        self._owner_pid = os.getpid()
        self._number = 0
        self._oom_kills = oom_kills()
        request_end, self._requests = os.pipe()
        self._answers, answer_end = os.pipe()
        try:
            with self.log.open() as output:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-u",
                        "-P",
                        "-m",
                        "routewright.worker.main",
                        *(str(number) for number in (self._owner_pid, request_end, answer_end)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(module_folders())},
                    pass_fds=(request_end, answer_end),
                    start_new_session=True,
                )
        except BaseException:
            self._close_pipes()
            raise
        finally:
            os.close(request_end)
            os.close(answer_end)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)

    @property
    def pid(self) -> int:
        """Process id of the child that everything else descends from; also its session's."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._exit_code() is None

    def used_bytes(self) -> int:
        """Return the memory that it and all it started use now."""
        return used_bytes(process_tree(self.pid))

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        deadline_s: float,
        doing: str,
        watch_s: float,
    ) -> dict[str, Any]:
        """Ask and return the answer.

        Args:
            method: What to do.
            params: With what; JSON values.
            deadline_s: Time on the monotonic clock at which the child is killed.
            doing: The same in words, for messages: "the build".
            watch_s: Seconds between two looks at its memory.

        Raises:
            TrialFailure: It ended, was killed for time or memory, or answered nonsense. It is
                then gone, with all it started.
        """
        self.log.mark()
        self._oom_kills = oom_kills()
        self._number += 1
        begin_s = time.monotonic()
        line = encode(
            {
                "id": self._number,
                "method": method,
                "params": params,
                "remaining_s": deadline_s - begin_s,
            }
        )
        try:
            answer = decode(self._exchange(line, deadline_s, watch_s))
            if answer.get("id") != self._number:
                raise ProtocolError(f"not the answer to request {self._number}: {answer!r:.80}")
            if self._exit_code() not in (None, 0):
                # It died right after: what it wrote is not to be trusted.
                raise _EndedError(b"")
        except _LateError:
            self.kill()
            allowed_s = deadline_s - begin_s
            raise self.failure(
                "timeout", f"{doing} did not end within {allowed_s:.1f} s"
            ) from None
        except _OverfullError as overfull:
            self.kill(grace_s=0)
            raise self.failure(
                "oom",
                f"{doing} used {format_bytes(overfull.used_bytes)} of memory; "
                f"the limit is {format_bytes(self._memory_limit_bytes)}",
            ) from None
        except _EndedError as ended:
            raise self.death(doing, ended.unfinished) from None
        except ProtocolError as error:
            self.kill(grace_s=0)
            raise self.failure("crash", f"{doing} gave a garbled answer, {error}") from None
        except BaseException:
            # Interrupted: the answer is outstanding, so the child's state is unknown.
            self.kill(grace_s=0)
            raise
        return answer

    def death(self, doing: str, unfinished: bytes = b"") -> TrialFailure:
        """Return why a child that ended by itself did so, and make sure that it is gone."""
        self._wait_for_end(_PIPES_CLOSED_S)
        code = self._exit_code()
        self.kill(grace_s=0)
        kind = "crash"
        if code is None:
            how = "closed its pipes and went on"
        elif code < 0:
            how = f"was killed by signal {-code} ({_signal_name(-code)})"
            if code == -signal.SIGKILL and oom_kills() > self._oom_kills:
                kind = "oom"
                how = "was killed by the kernel because memory ran out"
        else:
            how = f"ended with exit status {code}"
        cut = f", in the middle of an answer: {shorten(unfinished)}" if unfinished else ""
        return self.failure(kind, f"the worker {how} during {doing}{cut}", kind == "oom")

    def failure(self, kind: str, message: str, transient: bool = False) -> TrialFailure:
        """Return a failure that carries what was printed during the last request."""
        return TrialFailure(kind, message, log=self.log.tail(), transient=transient)

    def close(self, timeout_s: float) -> None:
        """Let it free what it holds and end; kill it where that takes longer."""
        if os.getpid() == self._owner_pid and self.alive():
            with contextlib.suppress(OSError):
                os.write(
                    self._requests,
                    encode({"id": 0, "method": "close", "params": {}, "remaining_s": timeout_s}),
                )
            self._wait_for_end(timeout_s)
        self.kill(grace_s=0)

    def kill(self, *, grace_s: float | None = None) -> None:
        """End it and every process that it started; allowed at any time.

        Args:
            grace_s: Seconds between asking and killing, if not those given at the start.
        """
        if os.getpid() != self._owner_pid:
            # A copy of this object in a forked process: the child is not ours to end.
            self._close_pipes()
            return
        if self._process.returncode is None:
            grace_s = self._grace_s if grace_s is None else grace_s
            if grace_s > 0:
                self._signal_group(signal.SIGTERM)
                self._wait_for_end(grace_s)
            # The supervisor adopts the orphans among them, so the tree stays whole until it ends.
            deadline_s = time.monotonic() + _REAP_S
            while self._exit_code() is None and time.monotonic() < deadline_s:
                _kill_descendants(self.pid)
                self._wait_for_end(0.02)
            # Its number stays taken until it is reaped: no other group can be meant.
            self._signal_group(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                # A process that hangs in a driver cannot be killed; it must not hang us as well.
                self._process.wait(timeout=_REAP_S)
        self._close_pipes()

    def _exchange(self, line: bytes, deadline_s: float, watch_s: float) -> bytes:
        unsent = memoryview(line)
        answer = bytearray()
        next_look_s = next_log_look_s = time.monotonic()
        poller = select.poll()
        poller.register(self._answers, select.POLLIN)
        poller.register(self._requests, select.POLLOUT)
        while True:
            now_s = time.monotonic()
            if now_s >= next_look_s:
                next_look_s = now_s + watch_s
                self._check_memory()
                # Somebody who inherited the pipe may keep it open after the child's end.
                if self._exit_code() is not None and not poller.poll(0):
                    raise _EndedError(bytes(answer))
            if now_s >= next_log_look_s:
                next_log_look_s = now_s + _LOG_CHECK_S
                self.log.keep_small()
            wait_s = max(0.0, min(deadline_s, next_look_s, next_log_look_s) - now_s)
            events = dict(poller.poll(1000 * wait_s))
            if self._requests in events:
                try:
                    unsent = unsent[os.write(self._requests, unsent) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    unsent = unsent[:0]
                if not unsent:
                    poller.unregister(self._requests)
            if self._answers in events:
                data = os.read(self._answers, 2**16)
                if not data:
                    raise _EndedError(bytes(answer))
                answer += data
                if data.endswith(b"\n"):
                    return bytes(answer)
                if len(answer) > _LONGEST_ANSWER_BYTES:
                    raise ProtocolError(f"longer than {format_bytes(_LONGEST_ANSWER_BYTES)}")
            # Only now: this program may have been stopped while the answer came in time.
            if now_s >= deadline_s:
                raise _LateError

    def _check_memory(self) -> None:
        used = self.used_bytes()
        if used > self._memory_limit_bytes:
            raise _OverfullError(used)

    def _exit_code(self) -> int | None:
        """Return its exit status, the signal below 0, or None while it lives; never reap it.

        Its process number must stay taken while we may signal its group.
        """
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # This program ignores SIGCHLD, so the kernel keeps no exit status.
            return self._process.wait()
        if end is None:
            return None
        return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status

    def _wait_for_end(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        pause_s = 0.001
        while self._exit_code() is None:
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                return
            time.sleep(min(pause_s, remaining_s))
            pause_s = min(2 * pause_s, 0.05)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _close_pipes(self) -> None:
        for name in ("_requests", "_answers"):
            fd = getattr(self, name)
            if fd >= 0:
                setattr(self, name, -1)
                os.close(fd)


class _LateError(Exception):
    pass


class _OverfullError(Exception):
    def __init__(self, used_bytes: int) -> None:
        super().__init__(used_bytes)
        self.used_bytes = used_bytes


class _EndedError(Exception):
    def __init__(self, unfinished: bytes) -> None:
        super().__init__(unfinished)
        self.unfinished = unfinished


def module_folders() -> list[str]:
    """Return where this process finds modules: what it can import, a worker can."""
    return [os.path.abspath(folder) for folder in sys.path]


def process_tree(pid: int) -> list[int]:
    """Return ``pid`` and its living descendants.

    Walked downwards: this runs beside measurements, where psutil's walk over every process of the
    machine would disturb what is measured.
    """
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        with contextlib.suppress(psutil.NoSuchProcess):
            return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    tree = [pid]
    for member in tree:
        tree.extend(_children(member))
    return tree


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                children.extend(int(word) for word in file.read().split())
    return children


def _kill_descendants(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.kill()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unnamed"
