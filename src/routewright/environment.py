"""What a result is valid for: the machine and the versions it was measured with."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

PACKAGES = ("routewright", "optuna", "numpy", "onnx", "onnxruntime")
"""Packages whose versions every result names."""


def versions() -> dict[str, str]:
    """Return Python's version and those of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def identifying(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an environment that does not change from minute to minute."""
    return {name: value for name, value in sorted(environment.items()) if not _is_reading(name)}


def environment_digest(environment: Mapping[str, Any]) -> str:
    """Return a short hash of what identifies an environment; times of two do not mix."""
    text = json.dumps(identifying(environment), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def environment_differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return one line for every identifying entry that differs."""
    old, new = identifying(was), identifying(now)
    return [
        f"{name} was {old.get(name)!r} and is {new.get(name)!r}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def _is_reading(name: str) -> bool:
    return name.endswith("_now")
