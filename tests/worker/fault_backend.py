"""A backend that misbehaves on demand: a real one, loaded by a real worker.

Each knob is a phase, its value is what goes wrong in it. The engine doubles its input ``x``.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from routewright.backends.base import Arrays, Backend, BuildFailed, Engine, Job, RunFailed
from routewright.errors import KnobError, ModelError
from routewright.knobs import KnobDatabase
from routewright.routes import Route
from routewright.tensors import TensorSpec

MIB = 2**20
PHASES = ("build", "first", "run", "time", "save", "close")
HELD: list[bytearray] = []


class ForeignUserError(KnobError):
    """A user error that only this module knows."""


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def note(job: Job, name: str, text: str) -> None:
    """Leave a word for the test."""
    with (job.model.parent / name).open("a") as stream:
        stream.write(text + "\n")


def sleep(job: Job) -> None:
    while True:
        time.sleep(1)


def pause(job: Job) -> None:
    note(job, "pausing", "")
    time.sleep(0.7)


def deaf(job: Job) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    note(job, "deaf", str(os.getpid()))
    sleep(job)


def holding_the_interpreter(job: Job) -> None:
    """Sleep in native code without giving Python's lock back."""
    ctypes.PyDLL(None).sleep(1000)


def start_grandchildren(job: Job) -> None:
    """Start one grandchild in our group, one in its own session, and one that was orphaned."""
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if sys.argv[2] == 'orphan' and os.fork(): os._exit(0)\n"
        "if sys.argv[2] != 'group': os.setsid()\n"
        "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
        "time.sleep(1000)\n"
    )
    target = job.model.parent / "grandchildren"
    for kind in ("group", "session", "orphan"):
        subprocess.Popen([sys.executable, "-S", "-c", code, str(target), kind])
    while not target.exists() or len(target.read_text().splitlines()) < 3:
        time.sleep(0.01)


def grandchildren_then_deaf(job: Job) -> None:
    start_grandchildren(job)
    deaf(job)


def grandchildren_then_killed(job: Job) -> None:
    start_grandchildren(job)
    os.kill(os.getpid(), signal.SIGKILL)


def forked_holder_then_killed(job: Job) -> None:
    """Die while a forked process still holds our pipes."""
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
    note(job, "grandchildren", str(pid))
    os.kill(os.getpid(), signal.SIGKILL)


def killed(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segmentation_fault(job: Job) -> None:
    ctypes.string_at(0)


def supervisor_killed(job: Job) -> None:
    start_grandchildren(job)
    os.kill(os.getppid(), signal.SIGKILL)
    sleep(job)


def hog(job: Job) -> None:
    """Take memory without end."""
    while True:
        block = bytearray(8 * MIB)
        block[::4096] = b"x" * len(block[::4096])
        HELD.append(block)
        time.sleep(0.001)


def hog_in_grandchild(job: Job) -> None:
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import time\nheld = []\n"
            "while True:\n    held.append(b'x' * 8000000)\n    time.sleep(.001)",
        ],
        check=True,
    )


def leak(job: Job) -> None:
    HELD.append(bytearray(b"x" * (48 * MIB)))


def answer_fd() -> int:
    return int(sys.argv[3])


def torn_answer(job: Job) -> None:
    os.write(answer_fd(), b'{"id": 1, "ok": {"build_s": 0.')
    os._exit(0)


def garbage_answer(job: Job) -> None:
    os.write(answer_fd(), b"Segmentation fault (core dumped)\n")
    sleep(job)


def list_answer(job: Job) -> None:
    os.write(answer_fd(), b"[1, 2]\n")
    sleep(job)


def stale_answer(job: Job) -> None:
    os.write(answer_fd(), b'{"id": 1, "ok": {}}\n')
    sleep(job)


def endless_answer(job: Job) -> None:
    while True:
        os.write(answer_fd(), b'{"ok": "' + b"x" * MIB)


def empty_answer(job: Job) -> None:
    os.write(answer_fd(), json.dumps({"id": current_request()}).encode() + b"\n")
    sleep(job)


def success_then_exit_3(job: Job) -> None:
    answer = {"id": current_request(), "ok": {"build_s": 0.1, "fingerprint": "x", "notes": []}}
    os.write(answer_fd(), json.dumps(answer).encode() + b"\n")
    os._exit(3)


def closed_pipes(job: Job) -> None:
    os.close(answer_fd())
    sleep(job)


def current_request() -> int:
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_answer":
            return int(frame.f_locals["request"]["id"])
        frame = frame.f_back
    raise AssertionError("not inside a request")


def chatter(job: Job) -> None:
    """Print some 40 MB on both streams, past Python's own, as a library does."""
    line = b"E " + b"\xff" * 1000 + b"\n"
    for _ in range(20_000):
        os.write(1, line)
        os.write(2, line)
    os.write(2, b"the last line\n")


def raising(error: Callable[[], BaseException]) -> Callable[[Job], None]:
    def fault(job: Job) -> None:
        raise error()

    return fault


def exit_with(status: int) -> Callable[[Job], None]:
    def fault(job: Job) -> None:
        os._exit(status)

    return fault


def memory_error(job: Job) -> None:
    bytearray(2**62)


def reserve(job: Job) -> None:
    """Take memory that RLIMIT_DATA forbids."""
    HELD.append(bytearray(512 * MIB))


def oom_once(job: Job) -> None:
    marker = job.model.parent / "oom-once"
    if not marker.exists():
        marker.touch()
        raise BuildFailed("error", "CUDA error: out of memory")


FAULTS: dict[str, Callable[[Job], None]] = {
    "none": lambda job: None,
    "sleep": sleep,
    "pause": pause,
    "deaf": deaf,
    "gil": holding_the_interpreter,
    "grandchildren": start_grandchildren,
    "grandchildren_deaf": grandchildren_then_deaf,
    "grandchildren_killed": grandchildren_then_killed,
    "forked_killed": forked_holder_then_killed,
    "killed": killed,
    "segfault": segmentation_fault,
    "supervisor_killed": supervisor_killed,
    "terminated": lambda job: os.kill(os.getpid(), signal.SIGTERM),
    "hog": hog,
    "hog_grandchild": hog_in_grandchild,
    "leak": leak,
    "torn": torn_answer,
    "garbage": garbage_answer,
    "list": list_answer,
    "stale": stale_answer,
    "endless": endless_answer,
    "empty": empty_answer,
    "success_exit_3": success_then_exit_3,
    "closed_pipes": closed_pipes,
    "chatter": chatter,
    "exit_0": exit_with(0),
    "exit_3": exit_with(3),
    "unsupported": raising(lambda: BuildFailed("unsupported", "node 3: no such kernel")),
    "cancelled": raising(lambda: BuildFailed("cancelled", "the deadline passed")),
    "oom": raising(lambda: BuildFailed("oom", "4 GiB wanted")),
    "oom_once": oom_once,
    "bad_alloc": raising(lambda: RuntimeError("std::bad_alloc")),
    "memory_error": memory_error,
    "reserve": reserve,
    "sticky": raising(lambda: RunFailed("sticky", "an illegal memory access was encountered")),
    "run_failed": raising(lambda: RunFailed("error", "cannot run")),
    "odd_kind": raising(lambda: BuildFailed("banana", "odd")),
    "value_error": raising(lambda: ValueError("line one\nline two \udcff")),
    "unprintable": raising(UnprintableError),
    "base_exception": raising(lambda: BaseException("not even an Exception")),
    "system_exit": raising(lambda: SystemExit(5)),
    "interrupt": raising(KeyboardInterrupt),
    "recursion": raising(lambda: RecursionError("deep")),
    "user": raising(lambda: ModelError("the model is odd; use another")),
    "foreign_user": raising(lambda: ForeignUserError("only known there")),
    "disk_full": raising(lambda: OSError(28, "No space left on device", "/somewhere/engine")),
}

TIMES: dict[str, Callable[[int], list[Any]]] = {
    "nan": lambda runs: [math.nan] * runs,
    "negative": lambda runs: [-1.0] * runs,
    "zero": lambda runs: [0.0] * runs,
    "infinite": lambda runs: [math.inf] * runs,
    "too_few": lambda runs: [1.0] * (runs - 1),
    "text": lambda runs: ["fast"] * runs,
}
OUTPUTS: dict[str, Callable[[npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]] = {
    "nan": lambda y: {"y": np.full_like(y, np.nan)},
    "shape": lambda y: {"y": y[:1]},
    "missing": lambda y: {},
    "off_by_one": lambda y: {"y": y + 1},
    "not_arrays": lambda y: {"y": "text"},  # type: ignore[dict-item]
}
FINGERPRINTS: dict[str, Any] = {"none": None, "number": 7, "list": ["x"], "nan": math.nan}


class FaultEngine(Engine):
    def __init__(self, job: Job, route: Route, folder: Path) -> None:
        self.fingerprint = FINGERPRINTS.get(route.values.get("-fingerprint", ""), f"<{route}>")
        self.notes = ("made by\nfault",)
        self._job = job
        self._values = route.values
        self._runs = 0
        self._file = folder / "engine.txt"
        self._file.write_text(f"{route} by {os.getpid()}")

    def run(self, inputs: Arrays) -> dict[str, npt.NDArray[Any]]:
        self._runs += 1
        self._fault("first" if self._runs == 1 else "run")
        y = np.asarray(inputs["x"] * 2)
        return OUTPUTS.get(self._values.get("-outputs", ""), lambda y: {"y": y})(y)

    def time_runs(self, inputs: Arrays, runs: int) -> list[float]:
        self._fault("time")
        note(self._job, "timed", f"{self._values.get('-outputs', 'right')} {runs}")
        return TIMES.get(self._values.get("-times", ""), lambda runs: [1.5] * runs)(runs)

    def settle(self) -> None:
        note(self._job, "timed", f"{self._values.get('-outputs', 'right')} settled")

    def save(self, folder: Path) -> list[Path]:
        self._fault("save")
        saved = folder / "engine.txt"
        saved.write_bytes(self._file.read_bytes())
        return [saved]

    def close(self) -> None:
        self._fault("close")

    def _fault(self, phase: str) -> None:
        FAULTS[self._values.get(f"-{phase}", "none")](self._job)


class FaultBackend(Backend):
    name = "fault"
    metric = "imagined"
    fingerprints: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        self._job = job
        self.deadline_s: float | None = None
        note(job, "starts", str(os.getpid()))
        starts = len((job.model.parent / "starts").read_text().splitlines())
        wanted = job.options.get("start", {})
        FAULTS[wanted.get(str(starts), wanted.get("always", "none"))](job)

    def knob_database(self) -> KnobDatabase:
        values = {
            **{phase: list(FAULTS) for phase in PHASES},
            "times": ["right", *TIMES],
            "outputs": ["right", *OUTPUTS],
            "fingerprint": ["right", *FINGERPRINTS],
        }
        options = [
            {
                "option": f"-{name}",
                "allowed_values": f"-{name}=[{'|'.join(words)}]",
                "default_value": words[0],
                "help": "what goes wrong",
            }
            for name, words in values.items()
        ]
        text = json.dumps({"tuner_version": "1", "tuner_options": options})
        return KnobDatabase.from_json(text, source="the fault backend")

    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec("x", "float", ("n",)),)

    def build(self, route: Route, folder: Path) -> Engine:
        if list(folder.iterdir()):
            raise AssertionError(f"{folder} is not empty")
        if self.deadline_s is not None:
            left_s = self.deadline_s - time.monotonic()
            note(self._job, "deadlines", str(left_s))
        note(self._job, "builds", str(route))
        FAULTS[route.values.get("-build", "none")](self._job)
        return FaultEngine(self._job, route, folder)

    def environment(self) -> dict[str, Any]:
        named = self._job.options.get("environment")
        if named == "unserializable":
            return {"device": object()}
        return {
            "pid": os.getpid(),
            "supervisor": os.getppid(),
            "numpy": np.float32(1.5),
            "infinite": math.inf,
            "path": sys.path,
            "python_path": os.environ.get("PYTHONPATH"),
            "core_limit": resource.getrlimit(resource.RLIMIT_CORE)[0],
            "job": {
                "model": str(self._job.model),
                "shapes": {name: list(shape) for name, shape in self._job.shapes.items()},
                "profiles": repr(self._job.profiles),
                "options": dict(self._job.options),
                "calibration": str(self._job.calibration),
                "seed": self._job.seed,
            },
        }

    def health(self) -> dict[str, Any]:
        return {"clock_mhz_now": 1000}

    def close(self) -> None:
        note(self._job, "closed", str(os.getpid()))


class CancellableFaultBackend(FaultBackend):
    def set_build_deadline(self, deadline_s: float | None) -> None:
        self.deadline_s = deadline_s


class NotABackend:
    pass
