"""What a job may set for these backends, beside shapes and routes.

Every field of :class:`Options` is a key of :attr:`routewright.backends.base.Job.options`. Values
are of the field's type, or text as the command line has it: ``--option workspace_mib=4096``,
``--option refit=all``, ``--option plugins=a.so,b.so``, ``--option variants=fp16:half.onnx``,
``--option 'shape_values={"size": [4, 6]}'``.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from routewright.errors import SettingsError

CACHE_MODES = ("update", "read-only", "off")
HARDWARE_COMPATIBILITY = ("none", "ampere_plus", "same_compute_capability")
REFIT_MODES = ("none", "all", "identical", "individual")

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a deployment that every build of a study shares; they are no knobs.

    Attributes:
        device: Ordinal of the CUDA device.
        workspace_mib: Memory that a tactic may take, in MiB. By default the library's own limit,
            read once and then set for every build alike.
        timing_cache: ``"update"`` (load, use and write back), ``"read-only"`` or ``"off"``.
            Covers the run-time kernel cache of a library that compiles kernels when it runs.
        cache_folder: Where these caches are; by default in the user's cache folder.
        plugins: Plugin libraries to load before the model is parsed.
        plugins_in_plan: Whether the plan carries the plugin libraries.
        version_compatible: Whether plans should load in later versions of the library.
        exclude_lean_runtime: Whether a version-compatible plan leaves out the lean runtime.
        hardware_compatibility: ``"none"``, ``"ampere_plus"`` or ``"same_compute_capability"``.
        refit: ``"none"``, ``"all"``, ``"identical"`` or ``"individual"``.
        strip_plan: Whether refittable weights are left out of the plan.
        compute_capability: Target of a library that can build for other devices, for example
            ``"SM89"``. Without a device nothing can be run, but plans are built for it.
        variants: ONNX files of the same model by name, for the knob ``-model:variant``.
        shape_values: Values of inputs that decide shapes, by input name: ``[v, ...]``, or
            ``{"min": [..], "opt": [..], "max": [..]}``.
        host_transfers: Whether latency covers the copies to and from the device.
        fingerprint_tactics: Whether the names of chosen tactics are part of the fingerprint.
    """

    device: int = 0
    workspace_mib: int | None = None
    timing_cache: str = "update"
    cache_folder: Path | None = None
    plugins: tuple[Path, ...] = ()
    plugins_in_plan: bool = False
    version_compatible: bool = False
    exclude_lean_runtime: bool = False
    hardware_compatibility: str = "none"
    refit: str = "none"
    strip_plan: bool = False
    compute_capability: str | None = None
    variants: Mapping[str, Path] = field(default_factory=dict)
    shape_values: Mapping[str, tuple[Values, Values, Values]] = field(default_factory=dict)
    host_transfers: bool = False
    fingerprint_tactics: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Read the options of a job.

        Raises:
            SettingsError: An option is unknown, of the wrong type or out of range.
        """
        readers = {item.name: _READERS[item.name] for item in fields(cls)}
        values: dict[str, Any] = {}
        for name in sorted(given):
            reader = readers.get(name)
            if reader is None:
                close = difflib.get_close_matches(name, readers, n=1)
                hint = f"did you mean {close[0]}? " if close else ""
                raise SettingsError(
                    f"there is no TensorRT option {name!r}; {hint}known: {', '.join(readers)}"
                )
            values[name] = reader(name, given[name])
        return cls(**values)


def _fail(name: str, wanted: str, value: Any) -> SettingsError:
    return SettingsError(f"the TensorRT option {name} must be {wanted}, not {value!r}")


def _parsed(value: Any) -> Any:
    """Return what a text stands for as JSON, or the value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _flag(name: str, value: Any) -> bool:
    value = {"on": True, "off": False}.get(value, _parsed(value))
    if not isinstance(value, bool):
        raise _fail(name, "true or false", value)
    return value


def _whole(least: int) -> Any:
    def read(name: str, value: Any) -> int:
        value = _parsed(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _fail(name, f"a whole number of at least {least}", value)
        return value

    return read


def _one_of(choices: tuple[str, ...]) -> Any:
    def read(name: str, value: Any) -> str:
        if value not in choices:
            raise _fail(name, f"one of {', '.join(choices)}", value)
        return str(value)

    return read


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _fail(name, "a word", value)
    return value


def _folder(name: str, value: Any) -> Path:
    return Path(_text(name, value)).expanduser()


def _file(name: str, value: Any) -> Path:
    path = Path(_text(name, value)).expanduser()
    if not path.is_file():
        raise SettingsError(f"the TensorRT option {name} names {path}, which is no file")
    return path


def _files(name: str, value: Any) -> tuple[Path, ...]:
    value = _parsed(value)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list | tuple):
        raise _fail(name, "a list of files", value)
    return tuple(_file(name, item) for item in value)


def _variants(name: str, value: Any) -> dict[str, Path]:
    value = _parsed(value)
    if isinstance(value, str) and ":" in value:
        parts = (part.partition(":") for part in value.split(","))
        value = {variant.strip(): path.strip() for variant, _, path in parts}
    if not isinstance(value, Mapping) or not value:
        raise _fail(name, "a table of names and ONNX files", value)
    for variant in value:
        if not isinstance(variant, str) or not variant.replace("_", "").isalnum():
            raise _fail(name, "keyed by names of letters, digits and _", variant)
    return {variant: _file(f"{name}.{variant}", path) for variant, path in sorted(value.items())}


def _shape_values(name: str, value: Any) -> dict[str, tuple[Values, Values, Values]]:
    value = _parsed(value)
    if not isinstance(value, Mapping):
        raise _fail(name, "a table of input names and values", value)
    found: dict[str, tuple[Values, Values, Values]] = {}
    for tensor, given in sorted(value.items()):
        where = f"{name}.{tensor}"
        if isinstance(given, Mapping):
            if set(given) != {"min", "opt", "max"}:
                raise _fail(where, "given as min, opt and max", dict(given))
            low, usual, high = (_integers(where, given[part]) for part in ("min", "opt", "max"))
        else:
            low = usual = high = _integers(where, given)
        ordered = all(a <= b <= c for a, b, c in zip(low, usual, high, strict=False))
        if len({len(low), len(usual), len(high)}) != 1 or not ordered:
            raise _fail(where, "of equal length with min <= opt <= max", given)
        found[tensor] = (low, usual, high)
    return found


def _integers(name: str, value: Any) -> Values:
    items = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, bool) or not isinstance(item, int) for item in items):
        raise _fail(name, "whole numbers", value)
    return tuple(items)


_READERS: dict[str, Any] = {
    "device": _whole(0),
    "workspace_mib": _whole(1),
    "timing_cache": _one_of(CACHE_MODES),
    "cache_folder": _folder,
    "plugins": _files,
    "plugins_in_plan": _flag,
    "version_compatible": _flag,
    "exclude_lean_runtime": _flag,
    "hardware_compatibility": _one_of(HARDWARE_COMPATIBILITY),
    "refit": _one_of(REFIT_MODES),
    "strip_plan": _flag,
    "compute_capability": _text,
    "variants": _variants,
    "shape_values": _shape_values,
    "host_transfers": _flag,
    "fingerprint_tactics": _flag,
}
