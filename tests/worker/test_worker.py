"""The worker, with real child processes and real faults in them; see fault_backend."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from routewright.backends.base import Job
from routewright.bounds import AccuracyBound
from routewright.errors import (
    BackendError,
    KnobError,
    ModelError,
    RouteError,
    SampleError,
    StorageError,
)
from routewright.samples import SampleSet
from routewright.workbench import Block, TrialFailure
from routewright.worker.client import Worker

FAULT = "fault_backend:FaultBackend"
CANCELLABLE = "fault_backend:CancellableFaultBackend"
MIB = 2**20
LONG_S = 60.0
"""A deadline that no test means to reach."""

MakeWorker = Callable[..., Worker]


@pytest.fixture
def make_worker(tmp_path: Path) -> Iterator[MakeWorker]:
    """Return a function that makes workers of the fault backend, closed at the end."""
    workers: list[Worker] = []
    write_samples(tmp_path)

    def make(
        *, backend: str = FAULT, options: dict[str, Any] | None = None, **settings: Any
    ) -> Worker:
        settings.setdefault("grace_s", 0.2)
        worker = Worker(
            Job(tmp_path / "model.onnx", tmp_path / "work", options=options or {}),
            backend=backend,
            samples=tmp_path / "samples.npz",
            references=tmp_path / "samples.npz",
            bound=AccuracyBound("linf", 0.1),
            log_folder=tmp_path / "logs",
            **settings,
        )
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.close()


@pytest.fixture
def worker(make_worker: MakeWorker) -> Worker:
    """Return a worker of the fault backend."""
    return make_worker()


def write_samples(folder: Path) -> None:
    inputs = [{"x": np.array([1, 2, 3 + index], np.float32)} for index in range(3)]
    references = [{"y": 2 * sample["x"]} for sample in inputs]
    SampleSet(tuple(inputs)).with_references(references).save(folder / "samples.npz")


def in_s(seconds: float = LONG_S) -> float:
    return time.monotonic() + seconds


def build(worker: Worker, route: str = "", slot: str = "candidate", within_s: float = LONG_S):
    return worker.build(slot, route, deadline_s=in_s(within_s))


def check(worker: Worker, slot: str = "candidate", within_s: float = LONG_S):
    return worker.check(slot, samples=None, deadline_s=in_s(within_s))


def time_pair(worker: Worker, within_s: float = LONG_S, runs: int = 2) -> Block:
    return worker.time_pair(
        runs=runs, warmup_runs=1, candidate_first=False, deadline_s=in_s(within_s)
    )


def failing(action: Callable[[], Any]) -> TrialFailure:
    with pytest.raises(TrialFailure) as caught:
        action()
    assert "\n" not in caught.value.message
    return caught.value


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = in_s(30)
    while not condition():
        assert time.monotonic() < deadline_s, f"waited in vain until {what}"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def noted(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def noted_pids(folder: Path, name: str) -> list[int]:
    return [int(line) for line in noted(folder, name)]


def assert_nothing_runs(folder: Path, *, grandchildren: int = 0) -> None:
    """Check that every process that the backend told of is gone."""
    assert len(noted(folder, "grandchildren")) == grandchildren
    for name in ("starts", "deaf", "grandchildren"):
        for pid in noted_pids(folder, name):
            wait_until(lambda pid=pid: not is_running(pid), f"{name} {pid} has ended")


# What works


def test_one_child_builds_checks_times_and_saves(worker: Worker, tmp_path: Path) -> None:
    baseline = build(worker, slot="baseline")
    assert baseline.fingerprint == "<>"
    assert baseline.notes == ("made by fault",)
    assert baseline.build_s >= 0
    assert build(worker, "-outputs=off_by_one").fingerprint == "<-outputs=off_by_one>"

    report = check(worker)
    assert report.losses == {"y": 1.0}
    assert report.reasons == {}
    assert check(worker, "baseline").losses == {"y": 0.0}

    block = time_pair(worker, runs=3)
    assert block.baseline_ms == block.candidate_ms == (1.5, 1.5, 1.5)
    assert block.wall_s > 0

    digests = worker.save("candidate", tmp_path / "best" / "engine")
    assert list(digests) == ["engine.txt"]
    assert len(digests["engine.txt"]) == 64
    assert (tmp_path / "best" / "engine" / "engine.txt").read_text().startswith("-outputs")
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["engine"]

    assert worker.generation == 1
    assert len(noted(tmp_path, "starts")) == 1
    worker.close()
    assert_nothing_runs(tmp_path)
    assert len(noted(tmp_path, "closed")) == 1
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("candidate_first", [False, True])
def test_the_order_of_a_pair(worker: Worker, tmp_path: Path, candidate_first: bool) -> None:
    build(worker, slot="baseline")
    build(worker, "-outputs=off_by_one")
    worker.time_pair(runs=5, warmup_runs=2, candidate_first=candidate_first, deadline_s=in_s())
    first, second = ("off_by_one", "right") if candidate_first else ("right", "off_by_one")
    assert noted(tmp_path, "timed") == [
        f"{second} settled",
        f"{first} 2",
        f"{first} 5",
        f"{first} settled",
        f"{second} 2",
        f"{second} 5",
        f"{second} settled",
    ]


def test_only_the_samples_asked_for_are_checked(worker: Worker) -> None:
    # The first run belongs to the build, the first sample is the second run.
    build(worker, "-run=run_failed")
    assert failing(lambda: check(worker)).kind == "error"
    build(worker)
    report = worker.check("candidate", samples=[0], deadline_s=in_s())
    assert report.losses == {"y": 0.0}


@pytest.mark.parametrize(
    ("outputs", "words"),
    [("nan", "NaN"), ("shape", "shape"), ("missing", "did not return")],
)
def test_outputs_that_cannot_be_compared(worker: Worker, outputs: str, words: str) -> None:
    build(worker, f"-outputs={outputs}")
    report = check(worker)
    assert report.losses == {"y": math.inf}
    assert report.reasons["y"].startswith("sample 0: ")
    assert words in report.reasons["y"]


def test_what_the_backend_says(worker: Worker, tmp_path: Path) -> None:
    environment = worker.environment()
    assert environment["numpy"] == 1.5
    assert environment["infinite"] == math.inf
    assert environment["core_limit"] == 0
    assert worker.health() == {"clock_mhz_now": 1000}
    assert [(spec.name, spec.dtype, spec.shape) for spec in worker.inputs()] == [
        ("x", "float", ("n",))
    ]
    database = worker.knob_database()
    assert database["build"].default == "none"
    info = worker.backend_info()
    assert (info.name, info.metric, info.fingerprints) == ("fault", "imagined", True)


def test_the_child_imports_what_we_can(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = ["", *sys.path, "/a folder/with:a colon"]
    monkeypatch.setattr(sys, "path", folders)
    monkeypatch.setenv("PYTHONPATH", "/only/for/children")
    environment = make_worker().environment()
    assert environment["path"] == [os.path.abspath(folder) for folder in folders]
    assert environment["python_path"] == "/only/for/children"


def test_a_job_arrives_as_it_was(tmp_path: Path) -> None:
    write_samples(tmp_path)
    job = Job(
        model=tmp_path / "modèle \udcff.onnx",
        work_folder=tmp_path / "work",
        shapes={"x": (1, 3), "": ()},
        profiles=({"x": ((1,), (2,), (3,))},),
        calibration=tmp_path / "calibration.npz",
        options={"a": [1, {"b": None}], "start": {}},
        seed=7,
    )
    with Worker(
        job,
        backend=FAULT,
        samples=tmp_path / "samples.npz",
        references=tmp_path / "samples.npz",
        bound=AccuracyBound("cos", math.inf),
        log_folder=tmp_path / "logs",
    ) as worker:
        assert worker.environment()["job"] == {
            "model": str(job.model),
            "shapes": {"x": [1, 3], "": []},
            "profiles": repr(job.profiles),
            "options": job.options,
            "calibration": str(job.calibration),
            "seed": 7,
        }


def test_starting_is_lazy_and_ending_is_final(worker: Worker, tmp_path: Path) -> None:
    assert worker.generation == 0
    assert worker.child_pid is None
    worker.drop("candidate")
    assert worker.child_pid is None
    worker.close()
    worker.close()
    with pytest.raises(ValueError, match="closed"):
        worker.environment()
    assert noted(tmp_path, "starts") == []


def test_an_empty_slot_is_our_mistake(worker: Worker) -> None:
    for action in (
        lambda: check(worker),
        lambda: time_pair(worker),
        lambda: worker.save("candidate", Path("nowhere")),
    ):
        with pytest.raises(ValueError, match="empty"):
            action()


# What fails, and as what

BUILD_FAULTS = [
    # fault, kind, words in the message, transient, the same child goes on
    ("unsupported", "unsupported", "no such kernel", False, True),
    ("cancelled", "timeout", "deadline", False, True),
    ("oom", "oom", "4 GiB", True, False),
    ("bad_alloc", "oom", "RuntimeError: std::bad_alloc", True, False),
    ("memory_error", "oom", "MemoryError", True, False),
    ("sticky", "sticky", "illegal memory access", False, False),
    ("run_failed", "error", "cannot run", False, True),
    ("odd_kind", "error", "odd", False, True),
    ("value_error", "error", "ValueError: line one line two", False, True),
    ("unprintable", "error", "UnprintableError", False, True),
    ("recursion", "error", "RecursionError", False, True),
    ("base_exception", "crash", "exit status 1", False, False),
    ("system_exit", "crash", "exit status 5", False, False),
    ("interrupt", "crash", "worker", False, False),
    ("killed", "crash", "signal 9 (SIGKILL)", False, False),
    ("terminated", "crash", "signal 15 (SIGTERM)", False, False),
    ("segfault", "crash", "signal 11 (SIGSEGV)", False, False),
    ("exit_0", "crash", "exit status 0", False, False),
    ("exit_3", "crash", "exit status 3", False, False),
    ("torn", "crash", '"build_s": 0.', False, False),
    ("garbage", "crash", "garbled", False, False),
    ("list", "crash", "garbled", False, False),
    ("stale", "crash", "garbled", False, False),
    ("endless", "crash", "longer than", False, False),
    ("empty", "error", "wrong answer", False, False),
    ("closed_pipes", "crash", "closed its pipes", False, False),
]


@pytest.mark.parametrize(
    ("fault", "kind", "words", "transient", "survives"),
    BUILD_FAULTS,
    ids=[fault[0] for fault in BUILD_FAULTS],
)
def test_a_build_that_fails(
    worker: Worker,
    tmp_path: Path,
    fault: str,
    kind: str,
    words: str,
    transient: bool,
    survives: bool,
) -> None:
    build(worker, slot="baseline")
    failure = failing(lambda: build(worker, f"-build={fault}"))
    assert (failure.kind, failure.transient) == (kind, transient)
    assert words in failure.message
    with pytest.raises(ValueError, match="empty"):
        check(worker)

    # The next trial is not to blame, and finds the baseline as it was.
    assert build(worker, "-outputs=off_by_one").fingerprint == "<-outputs=off_by_one>"
    assert time_pair(worker).baseline_ms == (1.5, 1.5)
    assert worker.generation == (1 if survives else 2)
    assert [rebuild.slot for rebuild in worker.rebuilds] == ([] if survives else ["baseline"])
    if not survives:
        assert not is_running(noted_pids(tmp_path, "starts")[0])
    # Nothing but the two resident engines' folders is left of the builds.
    (folder,) = (tmp_path / "work").iterdir()
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("phase", ["first", "run", "time", "save"])
@pytest.mark.parametrize(
    ("fault", "kind"), [("killed", "crash"), ("sleep", "timeout"), ("value_error", "error")]
)
def test_every_phase_is_contained(
    make_worker: MakeWorker, tmp_path: Path, phase: str, fault: str, kind: str
) -> None:
    worker = make_worker(save_timeout_s=1.0)
    build(worker, slot="baseline")

    def trial() -> None:
        within_s = 1.0 if fault == "sleep" else LONG_S
        build(worker, f"-{phase}={fault}", within_s=within_s)
        check(worker, within_s=within_s)
        time_pair(worker, within_s=within_s)
        worker.save("candidate", tmp_path / "engine")

    assert failing(trial).kind == kind
    assert not (tmp_path / "engine").exists()
    assert not list(tmp_path.glob(".engine*"))
    build(worker)
    time_pair(worker)


def test_a_crash_in_timing_names_phase_and_keeps_the_traceback(worker: Worker) -> None:
    build(worker, slot="baseline")
    build(worker, "-time=segfault")
    failure = failing(lambda: time_pair(worker))
    assert "SIGSEGV" in failure.message
    assert "during the timing" in failure.message
    assert "segmentation_fault" in failure.log


def test_an_exception_leaves_its_traceback_in_the_log(worker: Worker) -> None:
    failure = failing(lambda: build(worker, "-build=value_error"))
    assert "Traceback" in failure.log
    assert "line two" in failure.log
    assert "Traceback" not in failing(lambda: build(worker, "-build=sleep", within_s=0.5)).log


@pytest.mark.parametrize("times", ["nan", "negative", "zero", "infinite", "too_few", "text"])
def test_impossible_latencies_fail(worker: Worker, times: str) -> None:
    build(worker, slot="baseline")
    build(worker, f"-times={times}")
    assert failing(lambda: time_pair(worker)).kind == "error"
    build(worker)
    time_pair(worker)


@pytest.mark.parametrize("fingerprint", ["number", "list", "nan"])
def test_answers_of_wrong_types_fail(worker: Worker, fingerprint: str) -> None:
    failure = failing(lambda: build(worker, f"-fingerprint={fingerprint}"))
    assert failure.kind == "error"
    assert "wrong answer" in failure.message
    build(worker)


def test_outputs_that_are_no_arrays_fail(worker: Worker) -> None:
    build(worker, "-outputs=not_arrays")
    assert failing(lambda: check(worker)).kind == "error"


def test_an_environment_that_json_cannot_hold_fails(make_worker: MakeWorker) -> None:
    worker = make_worker(options={"environment": "unserializable"})
    failure = failing(worker.environment)
    assert failure.kind == "error"
    assert "no form in JSON" in failure.message
    build(worker)


def test_a_success_followed_by_a_bad_end_is_a_crash(worker: Worker) -> None:
    # Whether the end is seen with the answer or with the next request is a race.
    def build_and_check() -> None:
        build(worker, "-build=success_exit_3")
        check(worker)

    failure = failing(build_and_check)
    assert failure.kind == "crash"
    assert "exit status 3" in failure.message


def test_a_transient_failure_can_be_tried_again(worker: Worker) -> None:
    failure = failing(lambda: build(worker, "-build=oom_once"))
    assert (failure.kind, failure.transient) == ("oom", True)
    build(worker, "-build=oom_once")


# Time


@pytest.mark.parametrize("fault", ["sleep", "deaf", "gil", "grandchildren_deaf"])
def test_a_hang_ends_with_all_it_started(worker: Worker, tmp_path: Path, fault: str) -> None:
    worker.environment()
    within_s = 5.0 if fault.startswith("grandchildren") else 0.7
    begin_s = time.monotonic()
    failure = failing(lambda: build(worker, f"-build={fault}", within_s=within_s))
    used_s = time.monotonic() - begin_s
    assert failure.kind == "timeout"
    assert f"{within_s:.1f} s" in failure.message
    assert used_s >= within_s
    assert used_s < within_s + 20
    assert_nothing_runs(tmp_path, grandchildren=3 if fault.startswith("grandchildren") else 0)
    build(worker)


def test_an_engine_that_hangs_when_freed_keeps_the_deadline(worker: Worker) -> None:
    build(worker, "-close=sleep")
    begin_s = time.monotonic()
    failure = failing(lambda: build(worker, within_s=0.5))
    assert failure.kind == "timeout"
    assert time.monotonic() < begin_s + 15
    build(worker)


def test_an_answer_that_came_while_we_were_stopped_counts(tmp_path: Path) -> None:
    write_samples(tmp_path)
    script = run_script(
        tmp_path,
        """
        worker = make()
        worker.environment()
        print("ready", flush=True)
        report = worker.build("baseline", "-first=pause", deadline_s=time.monotonic() + 3)
        print(report.fingerprint)
        """,
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "ready\n"
    wait_until(lambda: len(noted(tmp_path, "pausing")) == 1, "the build pauses")
    script.send_signal(signal.SIGSTOP)
    time.sleep(3.5)
    script.send_signal(signal.SIGCONT)
    assert script.communicate()[0] == "<-first=pause>\n"


def test_no_time_left_costs_nothing(worker: Worker) -> None:
    build(worker, slot="baseline")
    build(worker)
    for action in (
        lambda: build(worker, within_s=0),
        lambda: check(worker, "baseline", within_s=-5),
        lambda: time_pair(worker, within_s=0),
    ):
        assert failing(action).kind == "timeout"
    assert worker.generation == 1
    with pytest.raises(ValueError, match="number"):
        build(worker, within_s=math.nan)


def test_a_deadline_may_be_infinite(worker: Worker) -> None:
    assert worker.build("candidate", "", deadline_s=math.inf).fingerprint == "<>"


@pytest.mark.parametrize("backend", [FAULT, CANCELLABLE])
def test_a_backend_that_can_cancel_learns_its_deadline(
    make_worker: MakeWorker, tmp_path: Path, backend: str
) -> None:
    worker = make_worker(backend=backend)
    build(worker, within_s=100.0)
    worker.build("candidate", "", deadline_s=math.inf)
    told = [float(text) for text in noted(tmp_path, "deadlines")]
    if backend == FAULT:
        assert told == []
    else:
        (left_s,) = told
        assert 0 < left_s < 100.0


def test_a_start_that_hangs(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker(options={"start": {"always": "sleep"}}, start_timeout_s=1.5)
    with pytest.raises(BackendError, match=r"cannot be started.*1\.5 s"):
        worker.environment()
    assert_nothing_runs(tmp_path)
    # A deadline of the trial's own is the trial's affair.
    failure = failing(lambda: build(worker, within_s=0.7))
    assert failure.kind == "timeout"
    assert_nothing_runs(tmp_path)


# Memory


@pytest.mark.parametrize("fault", ["hog", "hog_grandchild"])
def test_memory_without_end_is_stopped(
    make_worker: MakeWorker, tmp_path: Path, fault: str
) -> None:
    worker = make_worker(memory_limit_bytes=400 * MIB)
    build(worker, slot="baseline")
    failure = failing(lambda: build(worker, f"-build={fault}"))
    assert failure.kind == "oom"
    assert "400 MiB" in failure.message
    assert not failure.transient
    assert_nothing_runs(tmp_path)
    build(worker)
    time_pair(worker)


def test_reserving_can_be_limited_too(make_worker: MakeWorker) -> None:
    worker = make_worker(data_limit_bytes=400 * MIB)
    failure = failing(lambda: build(worker, "-build=reserve"))
    assert failure.kind == "oom"
    assert "MemoryError" in failure.message


def test_a_leaking_child_is_replaced(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker(memory_limit_bytes=480 * MIB)
    build(worker, slot="baseline")
    for _ in range(8):
        build(worker, "-build=leak")
        time_pair(worker)
    assert 1 < worker.generation < 6
    assert all(rebuild.same_engine for rebuild in worker.rebuilds)


def test_a_child_is_replaced_after_many_builds(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker(recycle_after_builds=3)
    build(worker, slot="baseline")
    for _ in range(3):
        build(worker)
        time_pair(worker)
    assert worker.generation == 2
    assert [(rebuild.slot, rebuild.generation) for rebuild in worker.rebuilds] == [("baseline", 2)]
    # A candidate cannot be had again, so a worn child is kept as long as it holds one.
    worker.build("baseline", "", deadline_s=in_s())
    assert worker.generation == 2
    time_pair(worker)
    assert len(noted(tmp_path, "closed")) == 1


# Engines that are lost with their child


def kill_child(worker: Worker, tmp_path: Path) -> None:
    os.kill(noted_pids(tmp_path, "starts")[-1], signal.SIGKILL)
    pid = worker.child_pid
    assert pid is not None
    wait_until(lambda: not is_running(pid), "the supervisor has ended")


def test_a_child_that_dies_between_requests(worker: Worker, tmp_path: Path) -> None:
    build(worker, slot="baseline")
    build(worker)
    kill_child(worker, tmp_path)
    for action in (
        lambda: time_pair(worker),
        lambda: check(worker),
        lambda: worker.save("candidate", tmp_path / "engine"),
    ):
        failure = failing(action)
        assert failure.kind == "crash"
        assert "'candidate' is lost" in failure.message
        assert "signal 9" in failure.message
    assert check(worker, "baseline").losses == {"y": 0.0}
    build(worker)
    time_pair(worker)
    assert worker.generation == 2


def test_a_lost_engine_is_not_rebuilt_to_be_saved(worker: Worker, tmp_path: Path) -> None:
    build(worker, slot="baseline")
    kill_child(worker, tmp_path)
    failure = failing(lambda: worker.save("baseline", tmp_path / "engine"))
    assert "'baseline' is lost" in failure.message
    worker.restore(deadline_s=in_s())
    assert worker.save("baseline", tmp_path / "engine")


def test_kept_engines_are_restored_on_request(worker: Worker, tmp_path: Path) -> None:
    worker.restore(deadline_s=in_s())
    build(worker, "-outputs=off_by_one", slot="baseline")
    build(worker)
    kill_child(worker, tmp_path)
    worker.restore(deadline_s=in_s())
    (rebuild,) = worker.rebuilds
    assert (rebuild.slot, rebuild.generation, rebuild.same_engine) == ("baseline", 2, True)
    assert noted(tmp_path, "builds")[-1] == "-outputs=off_by_one"
    worker.restore(deadline_s=in_s())
    assert len(worker.rebuilds) == 1


def test_a_rebuild_that_fails_blames_no_trial_and_is_tried_again(
    worker: Worker, tmp_path: Path
) -> None:
    (tmp_path / "oom-once").touch()
    build(worker, "-build=oom_once", slot="baseline")
    build(worker)
    kill_child(worker, tmp_path)
    build(worker)
    (tmp_path / "oom-once").unlink()
    failure = failing(lambda: time_pair(worker))
    assert failure.transient
    assert failure.message.startswith("baseline could not be built again")
    build(worker)
    time_pair(worker)


def test_a_restart_leaves_nothing_behind(worker: Worker, tmp_path: Path) -> None:
    worker.restart()
    build(worker, slot="baseline")
    build(worker)
    worker.restart()
    assert_nothing_runs(tmp_path)
    assert len(noted(tmp_path, "closed")) == 1
    with pytest.raises(ValueError, match="empty"):
        check(worker, "baseline")
    build(worker, slot="baseline")
    build(worker)
    time_pair(worker)
    assert worker.generation == 2
    assert worker.rebuilds == []


def test_an_engine_that_cannot_be_freed_costs_the_child_only(worker: Worker) -> None:
    for fault in ("killed", "value_error"):
        build(worker, f"-close={fault}")
        worker.drop("candidate")
        worker.drop("candidate")
        build(worker)
    assert worker.generation == 3


# What the user can mend


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("user", ModelError, "use another"),
        ("foreign_user", KnobError, "only known there"),
        ("disk_full", StorageError, "/somewhere/engine: No space left on device"),
    ],
)
def test_user_errors_arrive_as_such(
    worker: Worker, fault: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        build(worker, f"-build={fault}")
    assert type(caught.value) is kind
    build(worker)
    assert worker.generation == 1


def test_a_route_that_does_not_exist(worker: Worker) -> None:
    with pytest.raises(RouteError, match="-biuld"):
        build(worker, "-biuld=none")


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("onnxrutnime", "onnxruntime"),
        ("no_such_module:Backend", "no_such_module"),
        ("fault_backend:Missing", "Missing"),
        ("fault_backend:NotABackend", "not a backend"),
    ],
)
def test_a_backend_that_does_not_exist(make_worker: MakeWorker, backend: str, words: str) -> None:
    with pytest.raises(BackendError, match=words):
        make_worker(backend=backend).environment()


@pytest.mark.parametrize("fault", ["killed", "exit_3"])
def test_a_backend_that_crashes_when_it_is_loaded(
    make_worker: MakeWorker, tmp_path: Path, fault: str
) -> None:
    worker = make_worker(options={"start": {"always": fault}})
    with pytest.raises(BackendError, match="cannot be started"):
        worker.environment()
    assert len(noted(tmp_path, "starts")) == 2
    assert_nothing_runs(tmp_path)
    assert list((tmp_path / "work").iterdir()) == []


def test_a_start_that_crashes_once_is_tried_again(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker(options={"start": {"1": "killed"}})
    build(worker)
    assert len(noted(tmp_path, "starts")) == 2


def test_a_start_that_raises(make_worker: MakeWorker, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="use another"):
        make_worker(options={"start": {"1": "user"}}).environment()
    failure = failing(make_worker(options={"start": {"2": "value_error"}}).environment)
    assert (failure.kind, "ValueError" in failure.message) == ("error", True)
    assert_nothing_runs(tmp_path)


def test_samples_that_do_not_fit(make_worker: MakeWorker, tmp_path: Path) -> None:
    SampleSet(({"wrong": np.zeros(3, np.float32)},)).save(tmp_path / "samples.npz")
    with pytest.raises(SampleError, match="wrong"):
        build(make_worker())


def test_references_of_other_inputs(make_worker: MakeWorker, tmp_path: Path) -> None:
    worker = make_worker()
    build(worker)
    SampleSet(({"x": np.zeros(3, np.float32)},)).save(tmp_path / "samples.npz")
    with pytest.raises(SampleError, match="other inputs"):
        check(worker)


def test_references_that_are_missing(make_worker: MakeWorker, tmp_path: Path) -> None:
    SampleSet(({"x": np.zeros(3, np.float32)},)).save(tmp_path / "samples.npz")
    worker = make_worker()
    build(worker)
    with pytest.raises(SampleError, match="no reference outputs"):
        check(worker)


def test_saving_where_something_is(worker: Worker, tmp_path: Path) -> None:
    build(worker)
    (tmp_path / "engine").mkdir()
    assert worker.save("candidate", tmp_path / "engine")
    before = (tmp_path / "engine" / "engine.txt").read_bytes()
    with pytest.raises(StorageError, match="engine"):
        worker.save("candidate", tmp_path / "engine")
    assert (tmp_path / "engine" / "engine.txt").read_bytes() == before
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        worker.save("candidate", tmp_path / "file" / "engine")
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("folder", ["logs", "work"])
def test_folders_that_cannot_be_used(make_worker: MakeWorker, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).touch()
    with pytest.raises(StorageError, match=folder):
        make_worker().environment()


# What is printed


def test_output_of_any_amount_is_kept_small(worker: Worker, tmp_path: Path) -> None:
    report = build(worker, "-build=chatter")
    assert report.fingerprint == "<-build=chatter>"
    failure = failing(lambda: build(worker, "-build=chatter -first=value_error"))
    assert len(failure.log) <= 4096
    assert "ValueError: line one" in failure.log
    worker.close()
    (log,) = (tmp_path / "logs").iterdir()
    assert log.stat().st_size < 100 * MIB


def test_a_log_that_says_nothing_is_removed(worker: Worker, tmp_path: Path) -> None:
    build(worker)
    path = worker.log_path
    assert path is not None
    assert path.parent == tmp_path / "logs"
    worker.close()
    assert worker.log_path is None
    assert list((tmp_path / "logs").iterdir()) == []


def test_logs_of_earlier_runs_stay(make_worker: MakeWorker, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker-0001.log").write_text("from before")
    failing(lambda: build(make_worker(), "-build=value_error"))
    assert (tmp_path / "logs" / "worker-0001.log").read_text() == "from before"
    assert "Traceback" in (tmp_path / "logs" / "worker-0002.log").read_text()


# Processes


@pytest.mark.parametrize("fault", ["grandchildren_killed", "forked_killed", "supervisor_killed"])
def test_a_crash_leaves_no_grandchildren(worker: Worker, tmp_path: Path, fault: str) -> None:
    failure = failing(lambda: build(worker, f"-build={fault}"))
    assert failure.kind == "crash"
    assert "signal 9" in failure.message
    if fault == "supervisor_killed":
        # Killed behind our back with the one that watches: what left its group is out of reach.
        for pid in noted_pids(tmp_path, "grandchildren"):
            if is_running(pid) and os.getpgid(pid) == pid:
                os.kill(pid, signal.SIGKILL)
    assert_nothing_runs(tmp_path, grandchildren=1 if fault == "forked_killed" else 3)


def test_a_child_ends_with_its_supervisor(worker: Worker) -> None:
    pid = worker.environment()["pid"]
    assert worker.child_pid is not None
    os.kill(worker.child_pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), "the child has ended")
    build(worker)


def test_a_python_without_process_descriptors(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\ndel os.pidfd_open\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert failing(lambda: build(worker, "-build=grandchildren_killed")).kind == "crash"
    script = run_script(
        tmp_path,
        """
        worker = make()
        worker.build("baseline", "-build=deaf", deadline_s=time.monotonic() + 600)
        """,
    )
    wait_until(lambda: len(noted(tmp_path, "deaf")) == 1, "the worker hangs")
    script.kill()
    script.wait()
    assert_nothing_runs(tmp_path, grandchildren=3)


def test_grandchildren_end_with_a_healthy_child(worker: Worker, tmp_path: Path) -> None:
    build(worker, "-build=grandchildren")
    assert all(is_running(pid) for pid in noted_pids(tmp_path, "grandchildren"))
    worker.close()
    assert_nothing_runs(tmp_path, grandchildren=3)


def test_the_child_is_out_of_reach_of_the_terminal(worker: Worker) -> None:
    environment = worker.environment()
    assert os.getsid(environment["pid"]) == environment["supervisor"] == worker.child_pid
    assert os.getsid(0) != worker.child_pid


def test_the_supervisor_stays_small(worker: Worker) -> None:
    worker.environment()
    assert worker.child_pid is not None
    supervisor = psutil.Process(worker.child_pid)
    # A package that imports numerical libraries when it is itself imported would start threads
    # here, before the fork.
    assert supervisor.num_threads() == 1
    assert supervisor.num_fds() <= 8


def test_neither_side_imports_the_compiler_for_the_other() -> None:
    code = (
        "import sys, routewright.worker.client\n"
        "heavy = {'onnxruntime', 'optuna', 'tensorrt', 'torch', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=child_environment())
    code = code.replace("worker\n", "worker_service\n")
    subprocess.run([sys.executable, "-c", code], check=True, env=child_environment())


def test_threads_take_turns(worker: Worker) -> None:
    build(worker, slot="baseline")
    build(worker)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(5):
                assert time_pair(worker).candidate_ms == (1.5, 1.5)
                assert check(worker).losses == {"y": 0.0}
        except BaseException as error:  # noqa: BLE001 - carried to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_child_outlives_the_thread_that_started_it(worker: Worker, tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: build(worker, slot="baseline"))
    thread.start()
    thread.join()
    build(worker)
    time_pair(worker)
    assert worker.generation == 1


def test_a_worker_that_is_forgotten_ends(make_worker: MakeWorker, tmp_path: Path) -> None:
    script = run_script(
        tmp_path,
        """
        worker = make()
        worker.build("baseline", "", deadline_s=time.monotonic() + 60)
        del worker
        gc.collect()
        print("forgotten", flush=True)
        sys.stdin.read()
        """,
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "forgotten\n"
    assert_nothing_runs(tmp_path)
    script.communicate("")


# Parents that end


PRELUDE = """
import gc, os, signal, sys, threading, time
from pathlib import Path
from routewright.bounds import AccuracyBound
from routewright.backends.base import Job
from routewright.workbench import TrialFailure
from routewright.worker.client import Worker
folder = Path(sys.argv[1])

def make():
    return Worker(
        Job(folder / "model.onnx", folder / "work"),
        backend="fault_backend:FaultBackend",
        samples=folder / "samples.npz",
        references=folder / "samples.npz",
        bound=AccuracyBound("linf", 0.1),
        log_folder=folder / "logs",
    )

"""


def child_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def run_script(folder: Path, body: str) -> subprocess.Popen[str]:
    """Start a program that owns a worker; like users' programs, it has no main guard."""
    path = folder / "program.py"
    path.write_text(PRELUDE + textwrap.dedent(body))
    return subprocess.Popen(
        [sys.executable, str(path), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=child_environment(),
        start_new_session=True,
    )


@pytest.mark.parametrize("phase", ["start", "build", "first", "run", "time", "idle"])
def test_no_orphan_survives_a_killed_parent(tmp_path: Path, phase: str) -> None:
    write_samples(tmp_path)
    fault = f"-{phase}=grandchildren_deaf" if phase in ("first", "run", "time") else ""
    if phase == "build":
        fault = "-build=grandchildren_deaf"
    elif phase == "idle":
        fault = "-build=grandchildren"
    script = run_script(
        tmp_path,
        f"""
        worker = make()
        deadline_s = time.monotonic() + 600
        if {phase == "start"}:
            worker.environment()
            os.kill(os.getpid(), signal.SIGKILL)
        worker.build("baseline", "", deadline_s=deadline_s)
        worker.build("candidate", "{fault}", deadline_s=deadline_s)
        worker.check("candidate", samples=None, deadline_s=deadline_s) if {phase == "run"} else 0
        worker.time_pair(
            runs=1, warmup_runs=0, candidate_first=False, deadline_s=deadline_s
        ) if {phase == "time"} else 0
        sys.stdin.read()
        """,
    )
    if phase != "start":
        wait_until(lambda: len(noted(tmp_path, "grandchildren")) == 3, "grandchildren run")
        if phase != "idle":
            wait_until(lambda: len(noted(tmp_path, "deaf")) == 1, "the worker hangs")
        script.kill()
    script.wait()
    assert_nothing_runs(tmp_path, grandchildren=0 if phase == "start" else 3)


def test_a_parent_killed_with_a_forked_sibling_alive(tmp_path: Path) -> None:
    """A forked process holds the parent's pipes open; the worker must end all the same."""
    write_samples(tmp_path)
    script = run_script(
        tmp_path,
        """
        worker = make()
        worker.build("baseline", "", deadline_s=time.monotonic() + 600)
        sibling = os.fork()
        if sibling == 0:
            time.sleep(1000)
        print(sibling, flush=True)
        worker.build("candidate", "-build=deaf", deadline_s=time.monotonic() + 600)
        """,
    )
    assert script.stdout is not None
    sibling = int(script.stdout.readline())
    wait_until(lambda: len(noted(tmp_path, "deaf")) == 1, "the worker hangs")
    script.kill()
    script.wait()
    try:
        assert_nothing_runs(tmp_path)
        assert is_running(sibling)
    finally:
        os.kill(sibling, signal.SIGKILL)


def test_a_forked_copy_does_not_end_the_child(tmp_path: Path) -> None:
    write_samples(tmp_path)
    script = run_script(
        tmp_path,
        """
        worker = make()
        worker.build("baseline", "", deadline_s=time.monotonic() + 600)
        sibling = os.fork()
        if sibling == 0:
            worker.close()
            sys.exit(0)
        os.waitpid(sibling, 0)
        worker.check("baseline", samples=None, deadline_s=time.monotonic() + 600)
        print(worker.generation)
        """,
    )
    assert script.communicate()[0] == "1\n"
    assert_nothing_runs(tmp_path)


def test_an_interrupt_ends_the_request_and_the_owner_goes_on(tmp_path: Path) -> None:
    write_samples(tmp_path)
    script = run_script(
        tmp_path,
        """
        worker = make()
        deadline_s = time.monotonic() + 600
        worker.build("baseline", "", deadline_s=deadline_s)
        try:
            worker.build("candidate", "-build=grandchildren_deaf", deadline_s=deadline_s)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        worker.build("candidate", "", deadline_s=deadline_s)
        worker.time_pair(runs=1, warmup_runs=0, candidate_first=True, deadline_s=deadline_s)
        worker.close()
        print(worker.generation, flush=True)
        """,
    )
    wait_until(lambda: len(noted(tmp_path, "deaf")) == 1, "the worker hangs")
    os.killpg(script.pid, signal.SIGINT)
    assert script.communicate()[0] == "interrupted\n2\n"
    assert_nothing_runs(tmp_path, grandchildren=3)


def test_a_program_that_ignores_its_children(tmp_path: Path) -> None:
    write_samples(tmp_path)
    script = run_script(
        tmp_path,
        """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
        worker = make()
        deadline_s = time.monotonic() + 600
        for fault in ("killed", "none"):
            try:
                worker.build("baseline", f"-build={fault}", deadline_s=deadline_s)
            except TrialFailure as failure:
                print(failure.kind)
        try:
            worker.build("baseline", "-build=grandchildren_deaf", deadline_s=time.monotonic() + 3)
        except TrialFailure as failure:
            print(failure.kind)
        worker.close()
        """,
    )
    assert script.communicate()[0] == "crash\ntimeout\n"
    assert_nothing_runs(tmp_path, grandchildren=3)


def test_a_program_that_does_not_close(tmp_path: Path) -> None:
    write_samples(tmp_path)
    script = run_script(
        tmp_path,
        """
        worker = make()
        worker.build("baseline", "-build=grandchildren", deadline_s=time.monotonic() + 600)
        """,
    )
    assert script.communicate()[0] == ""
    assert script.returncode == 0
    assert_nothing_runs(tmp_path, grandchildren=3)


def test_a_child_prints_nothing_into_our_streams(tmp_path: Path) -> None:
    write_samples(tmp_path)
    script = run_script(
        tmp_path,
        """
        with make() as worker:
            worker.build("baseline", "-build=chatter", deadline_s=time.monotonic() + 600)
        """,
    )
    assert script.communicate()[0] == ""


# Settings


@pytest.mark.parametrize(
    "settings",
    [{"memory_limit_bytes": 0}, {"recycle_after_builds": 0}, {"grace_s": -1}],
)
def test_settings_out_of_range(make_worker: MakeWorker, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        make_worker(**settings)


def test_options_must_be_json(make_worker: MakeWorker) -> None:
    with pytest.raises(TypeError, match="JSON"):
        make_worker(options={"x": object()}).environment()


@pytest.mark.parametrize(("runs", "warmup_runs"), [(0, 1), (1, -1)])
def test_numbers_of_runs_out_of_range(worker: Worker, runs: int, warmup_runs: int) -> None:
    with pytest.raises(ValueError, match="cannot time"):
        worker.time_pair(
            runs=runs, warmup_runs=warmup_runs, candidate_first=False, deadline_s=in_s()
        )
