"""How much memory a worker uses, how much it may use, and whether the kernel ran out of it.

Read straight from ``/proc`` and the control groups.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_SHARE = 0.8
"""Share of the memory at hand that a worker may use where the user gives no limit."""

_LEAST_LIMIT_BYTES = 256 * 2**20
_ROOT = Path("/")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def used_bytes(pids: list[int]) -> int:
    """Return the memory of these processes that cannot simply be given back, in bytes.

    Anonymous and shared memory count; pages of mapped files do not, because the kernel drops them
    when it needs room (large weights are often mapped). A process that is gone counts as 0.
    """
    return sum(_used_by(pid) for pid in pids)


def available_bytes(root: Path = _ROOT) -> int:
    """Return the memory that could be used now without swapping: machine and control groups."""
    rooms = [_control_group_room(folder) for folder in _control_group_folders(root)]
    return max(0, min([_machine_available(root), *(room for room in rooms if room is not None)]))


def default_limit_bytes(root: Path = _ROOT) -> int:
    """Return the limit of a worker for which the user gave none, in bytes."""
    return max(_LEAST_LIMIT_BYTES, int(DEFAULT_SHARE * available_bytes(root)))


def is_scarce(root: Path = _ROOT) -> bool:
    """Tell whether so little memory is left that a compiler may have skipped what it wanted."""
    return available_bytes(root) < max(0.05 * _meminfo(root, "MemTotal"), 256 * 2**20)


def oom_kills(root: Path = _ROOT) -> int:
    """Return how many processes the kernel has killed for memory, as near to us as it counts.

    Only a rise between two readings means something.
    """
    for folder in _control_group_folders(root):
        for name in ("memory.events", "memory.oom_control"):
            count = _keyed_value(folder / name, "oom_kill")
            if count is not None:
                return count
    return _keyed_value(root / "proc/vmstat", "oom_kill") or 0


def format_bytes(size: int) -> str:
    """Return ``size`` for people, for example ``"1.50 GiB"``."""
    if size < 2**20:
        return f"{size / 2**10:.0f} KiB"
    return f"{size / 2**20:.0f} MiB" if size < 2**30 else f"{size / 2**30:.2f} GiB"


def _used_by(pid: int) -> int:
    status = _read(Path(f"/proc/{pid}/status"))
    if status is None:
        return 0
    sizes = [
        int(line.split()[1]) * 1024
        for line in status.splitlines()
        if line.startswith(("RssAnon:", "RssShmem:"))
    ]
    if sizes:
        return sum(sizes)
    pages = _read(Path(f"/proc/{pid}/statm"))
    return int(pages.split()[1]) * _PAGE_BYTES if pages else 0


def _machine_available(root: Path) -> int:
    return _meminfo(root, "MemAvailable")


def _meminfo(root: Path, key: str) -> int:
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        if name == key:
            return int(rest.split()[0]) * 1024
    return 0


@dataclass(frozen=True, slots=True)
class _Names:
    limit: str
    usage: str
    reclaimable: str


_VERSION_2 = _Names("memory.max", "memory.current", "inactive_file")
_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _control_group_room(folder: Path) -> int | None:
    for names in (_VERSION_2, _VERSION_1):
        limit = _read(folder / names.limit)
        usage = _read(folder / names.usage)
        if limit is None or usage is None or not limit.strip().isdigit():
            continue
        reclaimable = _keyed_value(folder / "memory.stat", names.reclaimable) or 0
        return int(limit) - int(usage) + reclaimable
    return None


def _control_group_folders(root: Path) -> list[Path]:
    """Return the folders of this process's memory control group and its ancestors, nearest first.

    Inside a container the path that the kernel names may not be visible; the mount point then
    shows the container's own group.
    """
    folders: list[Path] = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif "memory" in controllers.split(","):
            mounts = [root / "sys/fs/cgroup/memory"]
        else:
            continue
        for mount in mounts:
            folder = mount / path.strip("/")
            while folder != mount and mount in folder.parents:
                folders.append(folder)
                folder = folder.parent
            folders.append(mount)
    return [folder for folder in folders if folder.is_dir()]


def _keyed_value(path: Path, key: str) -> int | None:
    for line in (_read(path) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == key and words[1].isdigit():
            return int(words[1])
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
