"""Device locks, between real processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from routewright import locks
from routewright.errors import BackendError, StorageError
from routewright.locks import (
    DeviceLock,
    cpu_lock_names,
    default_lock_folder,
    gpu_lock_name,
)

HOLD = """
import sys
from pathlib import Path
from routewright.locks import DeviceLock
lock = DeviceLock(sys.argv[3:], folder=Path(sys.argv[2]))
lock.acquire(timeout_s=float(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""

Hold = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Return a function that starts a process which holds a lock until its input ends."""
    started: list[subprocess.Popen[str]] = []
    program = tmp_path / "other tuner.py"
    program.write_text(HOLD)

    def start(*names: str, timeout_s: float = 0.0, wait: bool = True) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(program), str(timeout_s), str(tmp_path), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        started.append(process)
        if wait:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_second_tuner_is_told_who_the_first_is(hold: Hold, tmp_path: Path) -> None:
    holder = hold("gpu-a")
    with pytest.raises(BackendError) as caught:
        DeviceLock("gpu-a", folder=tmp_path).acquire(timeout_s=0.2)
    message = str(caught.value)
    assert "\n" not in message
    assert f"pid {holder.pid}" in message
    assert "'other tuner.py'" in message
    assert "gpu-a" in message
    with DeviceLock("gpu-b", folder=tmp_path) as other:
        assert other.held
    assert not other.held


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_ends_with_its_holder(hold: Hold, tmp_path: Path, number: int) -> None:
    holder = hold("gpu-a")
    lock = DeviceLock("gpu-a", folder=tmp_path)
    with pytest.raises(BackendError):
        lock.acquire()
    holder.send_signal(number)
    lock.acquire(timeout_s=30)
    assert lock.held
    lock.release()
    lock.release()


def test_waiting_until_it_is_free(hold: Hold, tmp_path: Path) -> None:
    lock = DeviceLock("gpu-a", folder=tmp_path)
    lock.acquire()
    waiting = hold("gpu-a", timeout_s=60, wait=False)
    time.sleep(0.5)
    lock.release()
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "held\n"


def test_two_studies_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    with (
        DeviceLock("gpu-a", folder=tmp_path),
        pytest.raises(BackendError, match="another study of this process"),
    ):
        DeviceLock("gpu-a", folder=tmp_path).acquire()
    with DeviceLock("gpu-a", folder=tmp_path) as lock, pytest.raises(RuntimeError, match="held"):
        lock.acquire()


def test_several_names_are_taken_all_or_not_at_all(hold: Hold, tmp_path: Path) -> None:
    holder = hold("cpu-0001", "cpu-0002")
    with pytest.raises(BackendError, match="cpu-0001"):
        DeviceLock(["cpu-0001", "cpu-0000"], folder=tmp_path).acquire()
    # What was taken before the refusal is free again, and so are sets that do not overlap.
    with DeviceLock(["cpu-0003", "cpu-0000", "cpu-0000"], folder=tmp_path) as lock:
        assert lock.names == ("cpu-0000", "cpu-0003")
    holder.kill()
    DeviceLock(["cpu-0001", "cpu-0000"], folder=tmp_path).acquire(timeout_s=30)


def test_only_one_of_many_gets_it(tmp_path: Path) -> None:
    inside = 0
    most_inside = 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most_inside
        for _ in range(5):
            lock = DeviceLock(["cpu-0001", "cpu-0002"], folder=tmp_path)
            lock.acquire(timeout_s=60)
            with guard:
                inside += 1
                most_inside = max(most_inside, inside)
            time.sleep(0.001)
            with guard:
                inside -= 1
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most_inside == 1


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[]", b'{"pid": "x", "command": 1}', b"\xff" * 5000]
)
def test_a_holder_that_left_no_readable_note(tmp_path: Path, content: bytes) -> None:
    with DeviceLock("gpu-a", folder=tmp_path):
        (tmp_path / "gpu-a.lock").write_bytes(content)
        with pytest.raises(BackendError, match="another tuner is timing on gpu-a"):
            DeviceLock("gpu-a", folder=tmp_path).acquire()


def test_a_note_that_stayed_behind_locks_nothing(hold: Hold, tmp_path: Path) -> None:
    holder = hold("gpu-a")
    holder.kill()
    holder.wait()
    assert (tmp_path / "gpu-a.lock").read_text() != ""
    with DeviceLock("gpu-a", folder=tmp_path):
        pass
    assert (tmp_path / "gpu-a.lock").read_text() == ""


def test_a_program_started_by_the_holder_does_not_keep_it(tmp_path: Path) -> None:
    with DeviceLock("gpu-a", folder=tmp_path):
        child = subprocess.Popen(["sleep", "1000"], close_fds=False)
    try:
        DeviceLock("gpu-a", folder=tmp_path).acquire()
    finally:
        child.kill()
        child.wait()


def test_names_of_any_characters(tmp_path: Path) -> None:
    with DeviceLock("../GPU 0/ü", folder=tmp_path):
        (entry,) = tmp_path.iterdir()
        assert entry.name.endswith(".lock")


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        DeviceLock("gpu-a", folder=tmp_path / "missing").acquire()
    (tmp_path / "gpu-a.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"gpu-a\.lock"):
        DeviceLock("gpu-a", folder=tmp_path).acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_the_default_folder_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(os.getuid()) in default_lock_folder().name
    monkeypatch.setattr(locks, "default_lock_folder", lambda: tmp_path / "own")
    with DeviceLock("gpu-a"):
        assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    for planted in ("file", "link"):
        path = tmp_path / planted
        path.touch() if planted == "file" else path.symlink_to(tmp_path / "own")
        monkeypatch.setattr(locks, "default_lock_folder", lambda path=path: path)
        with pytest.raises(StorageError, match=planted):
            DeviceLock("gpu-a").acquire()


def test_names_of_devices() -> None:
    assert cpu_lock_names([3, 0]) == ("cpu-0000", "cpu-0003")
    assert len(cpu_lock_names()) == len(os.sched_getaffinity(0))
    assert gpu_lock_name(" GPU-AB12 ") == "gpu-gpu-ab12"
