"""All runs of a comparison, in this process or in several, through interrupts and kills."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import connection

from routewright.compare.folder import ComparisonFolder
from routewright.compare.plan import Plan, RunKey
from routewright.compare.run import carry_out
from routewright.compare.work import Work
from routewright.timing import TimingLimits

Opener = Callable[[], Work]
"""Opens a work; goes to other processes, so it is a function of a module or a partial of one."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_opened: dict[str, Work] = {}
"""Works that this process has open, since opening one takes longer than a run."""


def missing_runs(plan: Plan, folder: ComparisonFolder) -> list[RunKey]:
    """Return the runs that are not finished, in their order."""
    return [key for key in plan.runs() if not folder.has(key)]


def carry_out_missing(
    plan: Plan,
    openers: Mapping[str, Opener],
    folder: ComparisonFolder,
    *,
    jobs: int = 1,
    on_run: Callable[[RunKey], None] = lambda key: None,
) -> None:
    """Carry out the runs that are not finished; each is kept in the folder when it ends.

    Args:
        plan: What is compared.
        openers: How to open each work, by its name.
        folder: Where finished runs go.
        jobs: Processes; with one, everything happens in this one.
        on_run: Hears of every finished run, in this process, once it is kept.

    Raises:
        RoutewrightError: A run cannot be carried out.
        KeyboardInterrupt: The user wants out; finished runs are kept.
    """
    keys = missing_runs(plan, folder)
    timing = TimingLimits(target_half_width=plan.half_width, max_s=plan.max_timing_s)
    if jobs == 1:
        for key in keys:
            _one(key, openers[key.work], plan, timing, folder)
            on_run(key)
        return
    with _pool(min(jobs, max(len(keys), 1))) as pool:
        waiting: set[Future[RunKey]] = {
            pool.submit(_one, key, openers[key.work], plan, timing, folder) for key in keys
        }
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for finished in done:
                on_run(finished.result())


def _one(
    key: RunKey, opener: Opener, plan: Plan, timing: TimingLimits, folder: ComparisonFolder
) -> RunKey:
    if key.work not in _opened:
        _opened[key.work] = opener()
    work = _opened[key.work]
    folder.save(carry_out(work, key, plan.extent, timing, shuffle_knobs=plan.shuffle_knobs))
    return key


@contextlib.contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    # Each process has one core's worth of work; threads of its linear algebra would only queue.
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_start_child
    )
    try:
        yield pool
    except BaseException:
        # Runs under way are lost anyway; waiting for them would keep the user waiting.
        children: Sequence[multiprocessing.process.BaseProcess] = list(
            (pool._processes or {}).values()
        )
        pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.terminate()
        raise
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    pool.shutdown()


def _start_child() -> None:
    # Ctrl-C goes to the whole group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent is gone, which a killed parent cannot ask for."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
