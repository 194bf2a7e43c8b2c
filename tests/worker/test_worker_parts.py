"""The worker's parts that need no child: protocol, checked answers, memory readings, failures."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from routewright import errors
from routewright.backends.base import BuildFailed, Job, RunFailed
from routewright.tensors import TensorSpec
from routewright.worker import failures as worker_failures
from routewright.worker.answers import (
    read_block,
    read_build,
    read_check,
    read_digests,
    read_failure,
    read_info,
    read_losses,
    read_specs,
)
from routewright.worker.failures import failure_of, user_error_of
from routewright.worker.log import TAIL_BYTES, WorkerLog
from routewright.worker.memory import (
    available_bytes,
    default_limit_bytes,
    format_bytes,
    is_scarce,
    oom_kills,
    used_bytes,
)
from routewright.worker.process import process_tree
from routewright.worker.protocol import (
    ProtocolError,
    decode,
    encode,
    job_from_json,
    job_to_json,
    one_line,
    spec_from_json,
    spec_to_json,
    user_error_from_json,
    user_error_to_json,
)

GIB = 2**30


# Protocol


def test_messages_keep_what_json_has_no_form_for() -> None:
    message = {"inf": [math.inf, -math.inf], "text": "ü\n\udcff", "numpy": np.int64(2**60)}
    line = encode({**message, "nan": math.nan, "flag": np.bool_(True)})
    assert line.count(b"\n") == 1
    back = decode(line)
    assert math.isnan(back.pop("nan"))
    assert back == {**message, "flag": True}
    with pytest.raises(TypeError, match="ndarray"):
        encode({"array": np.zeros(3)})


@pytest.mark.parametrize("line", [b"", b"{", b'{"id": 1, "o', b"[]", b"3", b"\xff\xfe", b"{}{}"])
def test_what_is_no_message(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


def test_jobs_and_specifications_come_back_equal(tmp_path: Path) -> None:
    job = Job(
        tmp_path / "model.onnx",
        tmp_path,
        shapes={"x": (1, 2)},
        profiles=({"x": ((1,), (2,), (3,))},),
        options={"list": [1, None]},
    )
    assert job_from_json(decode(encode(job_to_json(job)))) == job
    for shape in (None, (), (1, "n", None)):
        spec = TensorSpec("x", "float", shape)
        assert spec_from_json(decode(encode(spec_to_json(spec)))) == spec


def test_relative_paths_are_of_the_parents_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    data = job_to_json(Job(Path("model.onnx"), Path("work"), calibration=Path("c.npz")))
    assert data["model"] == os.path.join(os.getcwd(), "model.onnx")


def test_every_user_error_crosses_by_name() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RoutewrightError)
    ]
    assert len(kinds) > 5
    for kind in kinds:
        back = user_error_from_json(user_error_to_json(kind("what, why, way out")))
        assert type(back) is kind
        assert str(back) == "what, why, way out"


@pytest.mark.parametrize("name", ["Exception", "difflib", "__name__", "", None])
def test_other_names_are_no_user_errors(name: str | None) -> None:
    with pytest.raises(ProtocolError):
        user_error_from_json({"error": name, "message": "x"})


def test_long_messages_are_cut() -> None:
    assert one_line(" a \n b\0\x1b[1m\udcff ") == "a b [1m"
    assert len(one_line("x" * 10_000)) <= 600


# Answers


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"build_s": -1.0, "fingerprint": None, "notes": []},
        {"build_s": math.nan, "fingerprint": None, "notes": []},
        {"build_s": True, "fingerprint": None, "notes": []},
        {"build_s": 1.0, "fingerprint": 3, "notes": []},
        {"build_s": 1.0, "fingerprint": None, "notes": "text"},
        {"build_s": 1.0, "fingerprint": None, "notes": [1]},
    ],
)
def test_builds_of_wrong_types(answer: Any) -> None:
    with pytest.raises(ProtocolError):
        read_build(answer)


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ([1.0, 1.0], [1.0]),
        ([], []),
        ([1.0, 0.0], [1.0, 1.0]),
        ([1.0, 1.0], [1.0, -1.0]),
        ([1.0, math.inf], [1.0, 1.0]),
        ([1.0, math.nan], [1.0, 1.0]),
        ([1.0, "1"], [1.0, 1.0]),
        ([1.0, None], [1.0, 1.0]),
        (None, [1.0, 1.0]),
    ],
)
def test_blocks_of_wrong_values(baseline: Any, candidate: Any) -> None:
    with pytest.raises(ProtocolError):
        read_block({"baseline": baseline, "candidate": candidate}, 2, 1.0)


def test_blocks_of_right_values() -> None:
    block = read_block({"baseline": [1, 2.5], "candidate": [3.0, 4.0]}, 2, 1.0)
    assert (block.baseline_ms, block.candidate_ms) == ((1.0, 2.5), (3.0, 4.0))


def test_losses_are_never_nan_and_never_none() -> None:
    assert read_losses({"y": math.nan, "z": 1}) == {"y": math.inf, "z": 1.0}
    for answer in ({}, None, {"y": "0"}, {"y": None}, {"y": False}):
        with pytest.raises(ProtocolError):
            read_losses(answer)
    with pytest.raises(ProtocolError):
        read_check({"losses": {"y": 0.0}, "reasons": {"y": 3}}, 1.0)


def test_other_answers_of_wrong_types() -> None:
    for read, answer in (
        (read_digests, {}),
        (read_digests, {"file": 3}),
        (read_info, {"name": "x", "metric": "y", "fingerprints": "yes"}),
        (read_specs, [{"name": "x"}]),
        (read_specs, [3]),
        (read_failure, None),
        (read_failure, {"kind": "oom", "message": "x", "transient": 1, "retire": False}),
    ):
        with pytest.raises(ProtocolError):
            read(answer)  # type: ignore[operator]


# Failures


@pytest.mark.parametrize(
    ("error", "scarce", "kind"),
    [
        (BuildFailed("unsupported", "no kernel"), False, "unsupported"),
        (BuildFailed("cancelled", "late"), False, "timeout"),
        (BuildFailed("error", "CUDA_ERROR_OUT_OF_MEMORY: out of memory"), False, "oom"),
        (BuildFailed("error", "Could not find any implementation for node X"), False, "error"),
        (BuildFailed("error", "Could not find any implementation for node X"), True, "oom"),
        (BuildFailed("unsupported", "could not find any implementation"), True, "oom"),
        (RunFailed("error", "an illegal memory access was encountered"), False, "sticky"),
        (RunFailed("sticky", "lost"), False, "sticky"),
        (RunFailed("oom", "no room"), False, "oom"),
        (MemoryError(), False, "oom"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), False, "oom"),
        (RuntimeError("std::bad_alloc"), False, "oom"),
        (KeyError("x"), False, "error"),
    ],
)
def test_kinds_of_failures(
    monkeypatch: pytest.MonkeyPatch, error: Exception, scarce: bool, kind: str
) -> None:
    monkeypatch.setattr(worker_failures, "is_scarce", lambda: scarce)
    failure = failure_of(error)
    assert failure.kind == kind
    assert failure.transient == (kind == "oom")
    assert failure.retire == (kind in ("oom", "sticky"))
    assert failure.message


def test_full_disks_are_the_users_affair() -> None:
    full = user_error_of(OSError(errno.ENOSPC, "No space left on device", "/x/engine"))
    assert isinstance(full, errors.StorageError)
    assert "/x/engine" in str(full)
    assert isinstance(user_error_of(OSError(errno.EDQUOT, "Quota")), errors.StorageError)
    assert user_error_of(OSError(errno.ENOENT, "No such file")) is None
    assert user_error_of(ValueError("x")) is None


# Memory


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n"


def test_memory_of_a_machine_without_control_groups(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/meminfo": MEMINFO, "proc/vmstat": "pgfault 1\noom_kill 7\n"})
    assert available_bytes(root) == 16 * GIB
    assert default_limit_bytes(root) == int(0.8 * 16 * GIB)
    assert oom_kills(root) == 7
    assert not is_scarce(root)


def test_the_tightest_control_group_decides(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/outer"
    root = write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/outer/inner\n",
            f"{group}/memory.max": f"{4 * GIB}\n",
            f"{group}/memory.current": f"{3 * GIB}\n",
            f"{group}/memory.stat": f"anon 1\ninactive_file {GIB}\n",
            f"{group}/inner/memory.max": "max\n",
            f"{group}/inner/memory.current": "5\n",
            f"{group}/inner/memory.events": "low 0\noom 2\noom_kill 3\noom_group_kill 0\n",
            f"{group}/memory.events": "oom_kill 9\n",
        },
    )
    assert available_bytes(root) == 2 * GIB
    assert oom_kills(root) == 3


def test_a_container_whose_group_is_its_mount(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/../../docker/abc\n",
            "sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/memory.events": "oom_kill 1\n",
        },
    )
    assert available_bytes(root) == GIB
    assert oom_kills(root) == 1


def test_control_groups_of_the_first_version(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/docker/abc"
    root = write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu,cpuacct:/\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
            f"{group}/memory.limit_in_bytes": f"{GIB}\n",
            f"{group}/memory.usage_in_bytes": f"{GIB}\n",
            f"{group}/memory.stat": "cache 0\ntotal_inactive_file 0\n",
            f"{group}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
        },
    )
    assert available_bytes(root) == 0
    assert is_scarce(root)
    assert default_limit_bytes(root) > 0
    assert oom_kills(root) == 5


def test_readings_of_this_machine() -> None:
    assert available_bytes() > 0
    assert oom_kills() >= 0
    own = os.getpid()
    assert own in process_tree(own)
    assert used_bytes([own]) > 2**20
    held = b"x" * (64 * 2**20)
    assert used_bytes([own]) > len(held)
    assert used_bytes([2**30]) == 0
    assert process_tree(2**30) == [2**30]


def test_sizes_for_people() -> None:
    assert [format_bytes(size) for size in (1024, 3 * 2**20, 3 * 2**29)] == [
        "1 KiB",
        "3 MiB",
        "1.50 GiB",
    ]


# The log


def test_a_tail_is_of_what_came_after_the_mark(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "logs")
    with log.open() as stream:
        stream.write(b"before\n")
        log.mark()
        assert log.tail() == ""
        stream.write(b"aft\0er \xff\n")
        assert log.tail() == "after \N{REPLACEMENT CHARACTER}\n"
        stream.write(b"x" * 10_000 + b"end")
        assert len(log.tail()) == TAIL_BYTES
        assert log.tail().endswith("end")


def test_a_log_that_grows_is_cut_while_it_is_written(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path)
    with log.open() as stream:
        stream.write(b"x" * (17 * 2**20) + b"last words\n")
        log.mark()
        log.keep_small()
        assert log.path.stat().st_size < 2**20
        stream.write(b"more\n")
        assert log.tail().endswith("last words\nmore\n")
        assert b"\0" not in log.path.read_bytes()
    log.path.unlink()
    log.keep_small()
    log.remove_if_empty()
    assert log.tail() == ""
