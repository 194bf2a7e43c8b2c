"""The small process between a tuner and its worker: nothing that a worker starts outlives either.

A worker may die with grandchildren left, the tuner may be killed by signal 9, and native code may
hold Python's lock for minutes, so neither of the two can be trusted to clean up. The supervisor
can: it loads nothing, runs no threads, and adopts every orphan of the worker. It ends

* when the worker ends, with the worker's own exit status or signal, or
* when the tuner is gone,

in both cases only after every process that descends from the worker has been killed and reaped.

The parent-death signal alone would not do: it fires when the *thread* that started the worker
ends, and it would leave the worker's own children behind. Between worker and supervisor, which has
one thread only, it is right and is used.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import time
from collections.abc import Iterator, Sequence
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_DEFERRED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_POLL_S = 0.1
_OOM_SCORE_ADJ = b"800"


def supervise(owner_pid: int, private_fds: Sequence[int]) -> None:
    """Fork: return in the worker; the calling process becomes its supervisor and never returns.

    Call it before anything starts a thread.

    Args:
        owner_pid: Process whose end means that the worker must end.
        private_fds: File descriptors that only the worker may hold.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _DEFERRED:
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.getpid()
    worker = os.fork()
    if worker == 0:
        _become_worker(supervisor, private_fds)
        return
    for fd in private_fds:
        os.close(fd)
    _watch(worker, owner_pid)


def _become_worker(supervisor: int, private_fds: Sequence[int]) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    for number in _DEFERRED:
        signal.signal(number, signal.SIG_DFL)
    for fd in private_fds:
        os.set_inheritable(fd, False)
    # The kernel then takes the worker before the tuner that owns the study.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(_OOM_SCORE_ADJ)
    # The orphans that a worker's helpers leave belong to the worker while it lives, so that its
    # memory is counted in full.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _watch(worker: int, owner_pid: int) -> NoReturn:
    _wait_for_an_end(worker, owner_pid)
    os.kill(worker, signal.SIGKILL)
    status = os.waitpid(worker, 0)[1]
    _end_descendants()
    _end_like(status)


def _wait_for_an_end(worker: int, owner_pid: int) -> None:
    """Wait until the worker or the owner has ended; neither is reaped."""
    poller = select.poll()
    timeout_ms: float | None = None
    for pid in (worker, owner_pid):
        try:
            poller.register(os.pidfd_open(pid), select.POLLIN)
        except (AttributeError, OSError):
            # An old kernel, a Python made for one, a sandbox, or an owner that is gone already.
            timeout_ms = 1000 * _POLL_S
    while os.getppid() == owner_pid:
        if poller.poll(timeout_ms):
            return
        if os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return


def _end_descendants() -> None:
    pause_s = 0.001
    while True:
        for pid in _own_children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            # Killing a child hands its children to this process: go on until none is left.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_S)


def _own_children() -> Iterator[int]:
    own = os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                # The command name, in brackets, may itself hold spaces and brackets.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == own:
            yield int(entry)


def _end_like(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    unused = ctypes.c_ulong(0)
    if libc.prctl(option, ctypes.c_ulong(value), unused, unused, unused) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")
