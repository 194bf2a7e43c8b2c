"""From a network and a route to a plan on disk. Needs no device where the library needs none."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routewright.backends.base import BuildFailed
from routewright.backends.tensorrt.build_route import set_build_route
from routewright.backends.tensorrt.caches import CacheFile, TimingCache
from routewright.backends.tensorrt.config_knobs import ConfigKnob, apply_config
from routewright.backends.tensorrt.knobs import SplitRoute
from routewright.backends.tensorrt.library import Capabilities, Library
from routewright.backends.tensorrt.log import failure_kind, one_line, skipped_tactics
from routewright.backends.tensorrt.network import ParsedNetwork, add_profiles
from routewright.backends.tensorrt.options import Options
from routewright.backends.tensorrt.profiles import Profile
from routewright.backends.tensorrt.progress import BuildWatch, make_monitor
from routewright.errors import BackendError, StorageError
from routewright.files import explain_os_error, replace_atomic

PLAN_NAME = "engine.plan"

_SHOWN_NOTES = 20
# Below this share of free memory, "no implementation" means "no memory".
_SHORT_OF_MEMORY = 0.1


@dataclass(frozen=True, slots=True)
class BuiltPlan:
    """A serialized engine.

    Attributes:
        path: The plan file.
        size: Its size, in bytes.
        build_s: Seconds that the library took.
        notes: What the library warned about, and what else a reader should know.
    """

    path: Path
    size: int
    build_s: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What all builds of a study share.

    Attributes:
        capabilities: What the library can do.
        options: Settings of the deployment.
        config_knobs: The builder-configuration knobs that it supports here.
        profiles: Optimization profiles; empty where no shape is open.
        workspace_bytes: The workspace limit of every build.
        timing_cache: The timing cache, or None where the library times no tactics.
        memory_mib: The device's memory in MiB, or None where there is no device.
        free_memory_mib: Returns the free device memory, or None where there is no device.
    """

    capabilities: Capabilities
    options: Options
    config_knobs: Sequence[ConfigKnob]
    profiles: Sequence[Profile]
    workspace_bytes: int
    timing_cache: CacheFile | None
    memory_mib: int | None
    free_memory_mib: Callable[[], int | None]


def build_plan(
    library: Library,
    parsed: ParsedNetwork,
    route: SplitRoute,
    settings: BuildSettings,
    folder: Path,
    *,
    deadline_s: float | None,
) -> BuiltPlan:
    """Build ``route`` and write its plan into ``folder``.

    Args:
        library: The library.
        parsed: The network, of the route's variant.
        route: The route by kinds of knobs.
        settings: What all builds share.
        folder: Where the plan goes.
        deadline_s: Time on ``time.monotonic`` at which the build is cancelled, or None.

    Raises:
        BuildFailed: The library refused the route, failed, or was cancelled.
    """
    mark = library.log.mark()
    free_before = settings.free_memory_mib()
    config = _configure(library, parsed, route, settings)
    cache = None if settings.timing_cache is None else TimingCache(settings.timing_cache, config)
    watch = BuildWatch(deadline_s)
    monitor = make_monitor(library.module, watch)
    config.progress_monitor = monitor
    begin_s = time.monotonic()
    serialized = parsed.builder.build_serialized_network(parsed.network, config)
    build_s = time.monotonic() - begin_s
    if serialized is None:
        raise _failure(library, mark, watch, settings)
    path = folder / PLAN_NAME
    size = _write(path, serialized)
    notes = [*_warnings(library, mark, free_before), *(cache.notes if cache else ())]
    if cache is not None:
        try:
            cache.save()
        except StorageError as error:
            notes.append(f"the timing cache was not kept: {error}")
    return BuiltPlan(path, size, build_s, tuple(notes))


def workspace_limit(library: Library, builder: Any, options: Options) -> int:
    """Return the workspace limit of every build, in bytes.

    The library's own default is read once, since it may follow the memory that is free.
    """
    if options.workspace_mib is not None:
        return options.workspace_mib << 20
    pool = library.module.MemoryPoolType.WORKSPACE
    return int(builder.create_builder_config().get_memory_pool_limit(pool))


def _configure(
    library: Library, parsed: ParsedNetwork, route: SplitRoute, settings: BuildSettings
) -> Any:
    module = library.module
    config = parsed.builder.create_builder_config()
    config.profiling_verbosity = module.ProfilingVerbosity.DETAILED
    config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, settings.workspace_bytes)
    _apply_options(library, config, settings)
    apply_config(config, settings.config_knobs, route.config)
    set_build_route(library, config, route.build_route)
    try:
        add_profiles(library, parsed, config, settings.profiles)
    except BackendError as error:
        raise BuildFailed("error", str(error)) from error
    return config


def _apply_options(library: Library, config: Any, settings: BuildSettings) -> None:
    module, options = library.module, settings.options
    wanted = {
        "VERSION_COMPATIBLE": options.version_compatible,
        "EXCLUDE_LEAN_RUNTIME": options.exclude_lean_runtime,
        "STRIP_PLAN": options.strip_plan,
        "REFIT": options.refit == "all",
        "REFIT_IDENTICAL": options.refit == "identical",
        "REFIT_INDIVIDUAL": options.refit == "individual",
        "DISABLE_TIMING_CACHE": (
            options.timing_cache == "off" and settings.capabilities.times_tactics
        ),
    }
    for name, on in wanted.items():
        if on:
            _set_flag(library, config, name)
    if options.hardware_compatibility != "none":
        level = options.hardware_compatibility.upper()
        config.hardware_compatibility_level = module.HardwareCompatibilityLevel.__members__[level]
    if options.plugins_in_plan:
        config.plugins_to_serialize = [str(path) for path in options.plugins]
    if options.compute_capability is not None:
        _set_target(library, config, options.compute_capability)


def _set_flag(library: Library, config: Any, name: str) -> None:
    flag = library.module.BuilderFlag.__members__.get(name)
    if flag is None:
        raise BuildFailed("unsupported", f"{library.label} has no builder flag {name}")
    mark = library.log.mark()
    config.set_flag(flag)
    if not config.get_flag(flag):
        said = "; ".join(library.log.errors(mark)) or "it gave no reason"
        raise BuildFailed(
            "unsupported", f"{library.label} refused the builder flag {name}: {said}"
        )


def _set_target(library: Library, config: Any, target: str) -> None:
    mark = library.log.mark()
    config.num_compute_capabilities = 1
    member = library.module.ComputeCapability.__members__[target]
    if not config.set_compute_capability(member, 0):
        said = "; ".join(library.log.errors(mark)) or "it gave no reason"
        raise BuildFailed("unsupported", f"{library.label} refused the target {target}: {said}")


def _failure(
    library: Library, mark: int, watch: BuildWatch, settings: BuildSettings
) -> BuildFailed:
    if watch.stopped:
        at = f" in {watch.phase!r}" if watch.phase else ""
        return BuildFailed("cancelled", f"the build was stopped at its deadline{at}")
    messages = library.log.since(mark)
    free_mib, all_mib = settings.free_memory_mib(), settings.memory_mib
    short = free_mib is not None and all_mib is not None and free_mib < _SHORT_OF_MEMORY * all_mib
    kind = failure_kind(messages, memory_short=short)
    said = "; ".join(library.log.errors(mark)) or "it gave no reason"
    memory = f" ({free_mib} MiB of {all_mib} MiB were free)" if kind == "oom" and all_mib else ""
    return BuildFailed(kind, one_line(f"{library.label} could not build this: {said}{memory}"))


def _warnings(library: Library, mark: int, free_before: int | None) -> list[str]:
    warnings = list(library.log.warnings(mark))
    notes = warnings[:_SHOWN_NOTES]
    if len(warnings) > _SHOWN_NOTES:
        notes.append(f"{len(warnings) - _SHOWN_NOTES} more warnings of the library")
    skipped = skipped_tactics(library.log.since(mark))
    if skipped:
        free = "" if free_before is None else f", {free_before} MiB were free"
        notes.append(f"tactics were skipped for lack of memory ({skipped} messages{free})")
    return notes


def _write(path: Path, serialized: Any) -> int:
    # A plan can be as large as memory allows, so its bytes are written from where they are.
    data = memoryview(serialized)
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
        ) as stream:
            temporary = Path(stream.name)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise BuildFailed(
            "error", f"cannot write the plan into {path.parent}: {explain_os_error(error)}"
        ) from error
    replace_atomic(temporary, path)
    return data.nbytes
