from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from trt_double import TimingCacheDouble

from routewright.backends.tensorrt.caches import CacheFile, TimingCache, default_cache_folder


class Config:
    """A builder configuration as far as its timing cache goes."""

    def __init__(self, device: str = "sm90") -> None:
        self.device = device
        self.cache: TimingCacheDouble | None = None

    def create_timing_cache(self, blob: bytes) -> TimingCacheDouble:
        return TimingCacheDouble.read(blob, self.device)

    def set_timing_cache(self, cache: TimingCacheDouble, ignore_mismatch: bool) -> bool:
        if cache.device != self.device:
            return False
        self.cache = cache
        return True

    def get_timing_cache(self) -> TimingCacheDouble | None:
        return self.cache


def entries(file: CacheFile) -> set[str]:
    return set(json.loads(file.path.read_bytes())["entries"])


def build(file: CacheFile, kernel: str, device: str = "sm90") -> TimingCache:
    config = Config(device)
    cache = TimingCache(file, config)
    assert config.cache is not None
    config.cache.entries[kernel] = 1.0
    cache.save()
    return cache


def test_a_cache_grows_from_build_to_build(tmp_path: Path) -> None:
    file = CacheFile(tmp_path / "made", "timing", ("NVIDIA H200", "9.0", "TensorRT 11"), "update")
    assert file.path.name == "NVIDIA_H200-9.0-TensorRT_11.timing"
    assert build(file, "a").notes == ()
    build(file, "b")
    assert entries(file) == {"a", "b"}


def test_what_another_process_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    file = CacheFile(tmp_path, "timing", ("d",), "update")
    config = Config()
    mine = TimingCache(file, config)
    build(file, "theirs")
    assert config.cache is not None
    config.cache.entries["mine"] = 1.0
    mine.save()
    assert entries(file) == {"mine", "theirs"}


def test_many_builders_at_once_lose_nothing(tmp_path: Path) -> None:
    file = CacheFile(tmp_path, "timing", ("d",), "update")
    threads = [
        threading.Thread(target=build, args=(file, f"kernel {number}")) for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entries(file) == {f"kernel {number}" for number in range(16)}


def test_a_cache_of_another_device_is_replaced_and_said(tmp_path: Path) -> None:
    file = CacheFile(tmp_path, "timing", ("d",), "update")
    build(file, "old", device="sm80")
    cache = build(file, "new", device="sm90")
    assert "another device" in cache.notes[0]
    assert entries(file) == {"new"}


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\x00" * 1000])
def test_a_damaged_cache_is_replaced(tmp_path: Path, damage: bytes) -> None:
    file = CacheFile(tmp_path, "timing", ("d",), "update")
    file.path.write_bytes(damage)
    build(file, "new")
    assert entries(file) == {"new"}


def test_a_read_only_cache_is_used_and_not_written(tmp_path: Path) -> None:
    build(CacheFile(tmp_path, "timing", ("d",), "update"), "old")
    file = CacheFile(tmp_path, "timing", ("d",), "read-only")
    assert b"old" in file.load()
    build(file, "new")
    assert entries(file) == {"old"}


def test_a_cache_that_is_off_is_neither_read_nor_written(tmp_path: Path) -> None:
    build(CacheFile(tmp_path, "timing", ("d",), "update"), "old")
    file = CacheFile(tmp_path, "timing", ("d",), "off")
    assert file.load() == b""
    build(file, "new")
    assert entries(file) == {"old"}


def test_the_default_folder_follows_the_users_cache_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "routewright" / "tensorrt"
