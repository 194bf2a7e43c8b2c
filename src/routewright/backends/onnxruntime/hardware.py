"""The CPU that this process may use: cores of its affinity mask, control-group quota, features."""

from __future__ import annotations

import math
import os
import platform
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@cache
def cpu_model() -> str:
    """Return the CPU's name, or the machine type where the system does not tell."""
    return _cpuinfo_field("model name") or platform.processor() or platform.machine()


@cache
def cpu_features() -> frozenset[str]:
    """Return the CPU's feature flags as the system spells them; empty where it does not tell."""
    return frozenset((_cpuinfo_field("flags") or _cpuinfo_field("Features") or "").split())


def has_exact_int8_products() -> bool:
    """Tell whether int8 matrix products of this CPU cannot overflow on the way."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return True
    return bool(cpu_features() & {"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8"})


def affinity_cores() -> tuple[int, ...]:
    """Return the logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """Return how many physical cores lie behind the affinity mask."""
    cores = set()
    for core in affinity_cores():
        try:
            siblings = Path(_TOPOLOGY.format(core)).read_text(encoding="ascii").strip()
        except OSError:
            siblings = str(core)
        cores.add(siblings)
    return max(1, len(cores))


def quota_cores(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> float | None:
    """Return the control group's CPU quota in cores, the tightest on the way up; None if unset.

    Both generations of control groups are read. A container usually sees its own group as the
    root, so the root is looked at too.
    """
    quotas: list[float] = []
    for group in _groups(membership):
        for folder in (group, *group.parents):
            for base in (root, root / "cpu", root / "cpu,cpuacct"):
                quotas += _quota_of(base / folder)
    return min(quotas) if quotas else None


def usable_threads(limit: int | None = None) -> int:
    """Return how many threads can run at once: affinity, bounded by the quota and ``limit``."""
    return _bounded(len(affinity_cores()), limit)


def default_threads(limit: int | None = None) -> int:
    """Return the thread count that ONNX Runtime's own default stands for on this machine.

    That is one thread per physical core, here of the cores that the process may really use.
    """
    return _bounded(physical_cores(), limit)


def _bounded(cores: int, limit: int | None) -> int:
    quota = quota_cores()
    if quota is not None:
        cores = min(cores, math.ceil(quota))
    if limit is not None:
        cores = min(cores, limit)
    return max(1, cores)


def _groups(membership: Path) -> list[Path]:
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    groups = {Path()}
    for line in lines:
        # hierarchy-ID:controllers:path; the unified hierarchy has no controllers named.
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers or "cpu" in controllers.split(","):
            groups.add(Path(path.lstrip("/")))
    return sorted(groups)


def _quota_of(folder: Path) -> list[float]:
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return []
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        # "max": no quota.
        return []
    return [cores] if cores > 0 else []


def _cpuinfo_field(name: str) -> str | None:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None
