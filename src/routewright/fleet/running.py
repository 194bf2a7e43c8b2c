"""Running a worker from what its user says."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from routewright.errors import StorageError
from routewright.fleet.artifacts import open_store
from routewright.fleet.assignment import assignment
from routewright.fleet.joining import Terms
from routewright.fleet.worker import SharedTuner, WorkerOptions, worker_folder
from routewright.outfolder import OutFolder
from routewright.progress import Progress
from routewright.search.registry import check_sampler
from routewright.settings import TuneSettings, relative_to
from routewright.sources import open_source, resolved
from routewright.storage import (
    STORAGE_FAULTS,
    close_storage,
    fault_line,
    open_storage,
    redact,
    storage_url,
)

_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "lustre"})


def run_worker(
    target: str,
    storage: str,
    *,
    progress: Callable[[TuneSettings], AbstractContextManager[Progress]],
    change: Callable[[TuneSettings], TuneSettings] = lambda settings: settings,
    model: str | None = None,
    metric: str | None = None,
    out: str | None = None,
    budget_s: float | None = None,
    machine_budget_s: float | None = None,
    lease_s: float,
    new_environment: bool = False,
    artifacts: str | None = None,
    trust_engines: bool = False,
    started_s: float | None = None,
) -> tuple[Mapping[str, Any], Path]:
    """Join a group and work until its study for this environment ends.

    Args:
        target: A study file, or the name of a group.
        storage: URL of the storage.
        progress: Makes what hears of the work.
        change: Adds to the settings what concerns this machine alone.
        model: The model on this machine.
        metric: The study's own loss, named by this user.
        out: Output folder.
        budget_s: Budget from the start of the first worker; None: the settings'.
        machine_budget_s: Seconds of all workers together.
        lease_s: A worker is lost when it is not heard of for so long.
        new_environment: Whether to open a study beside those of other environments.
        artifacts: Where engines are kept.
        trust_engines: Whether to fetch an engine that another worker built.
        started_s: When the command started, on the monotonic clock.

    Returns:
        The study's verdict, and the output folder.

    Raises:
        RoutewrightError: Something the user can mend; its message says how.
    """
    started_s = time.monotonic() if started_s is None else started_s
    url = storage_url(storage)
    refuse_unfit(url)
    opened = open_storage(url)
    try:
        settings, group, known = assignment(target, opened, model=model, metric=metric)
    except STORAGE_FAULTS as error:
        raise StorageError(f"cannot read {redact(url)}: {fault_line(error)}") from error
    finally:
        close_storage(opened)
    check_sampler(settings.sampler)
    if artifacts is not None:
        open_store(artifacts)
    terms = Terms(group, budget_s or settings.budget_s, machine_budget_s, lease_s)
    if known and budget_s is None:
        terms = replace(terms, budget_s=known[0].terms.budget_s)
    folder, used_before = worker_folder(out, group)
    settings = resolved(relative_to(change(settings), Path.cwd()))
    settings = replace(settings, storage=url, out=str(folder), budget_s=terms.budget_s)
    source = open_source(settings)
    options = WorkerOptions(
        terms=terms,
        new_environment=new_environment,
        artifacts=artifacts,
        trust_engines=trust_engines,
        extend_budget=budget_s is not None,
    )
    with progress(settings) as hears, OutFolder(folder, resume=used_before) as entered:
        tuner = SharedTuner(
            settings, source, entered, used_before, hears, started_s, options=options
        )
        return tuner.work(), entered.path


def refuse_unfit(url: str) -> None:
    """Refuse a storage that several processes would damage.

    Raises:
        StorageError: Saying why, and what to use.
    """
    scheme, _, file = url.partition(":///")
    use = (
        "use PostgreSQL (postgresql://USER@HOST/NAME), or its proxy (grpc://HOST:PORT), for "
        "several machines; sqlite:///FILE does for several workers on one"
    )
    if scheme == "journal":
        raise StorageError(
            "a journal file is no storage for workers: one that is killed while it writes leaves "
            f"half a line, and the next line of another worker is lost with it; {use}"
        )
    if scheme == "sqlite" and _file_system(Path(file)) in _NETWORK_FILE_SYSTEMS:
        raise StorageError(
            f"{file} lies on a network file system, whose locks SQLite cannot trust; {use}"
        )


def _file_system(path: Path) -> str:
    """Return the type of the file system that a path lies on."""
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in path.parents if folder in mounts), "")
