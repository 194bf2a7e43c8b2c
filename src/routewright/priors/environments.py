"""How far apart two environments are: device, library version, thread count, and what else.

A result from elsewhere is not thrown away; the further away, the less sure it makes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from routewright.environment import identifying

FARTHEST = 2.0
"""Environments are never further apart than this."""

_DEVICE = frozenset({"cpu", "device", "machine", "compute_capability"})
_VERSION = frozenset(
    {"onnxruntime", "library_version", "tuner_version", "driver", "cuda_driver", "tensorrt"}
)
_THREADS = frozenset({"default_threads"})
_IGNORED = frozenset(
    {
        "onnxruntime_build",
        "numpy",
        "onnx",
        "cores",
        "memory_bytes",
        "device_uuid",
        "device_memory_mib",
        "build_routes",
    }
)
_OTHER_DEVICE = 0.5
_OTHER_RELEASE = 0.4
_OTHER_PATCH = 0.1
_PER_DOUBLING = 0.25
_OTHER = 0.15


@dataclass(frozen=True, slots=True)
class Distance:
    """How far apart two environments are.

    Attributes:
        total: From 0 (alike) to :data:`FARTHEST`.
        version: The part of it that is due to other versions, which change what knobs do at all.
        reasons: What differs, one line each.
    """

    total: float
    version: float
    reasons: tuple[str, ...]


def environment_distance(there: Mapping[str, Any], here: Mapping[str, Any]) -> Distance:
    """Return how far an earlier environment is from this one; only what both tell is compared."""
    one, other = identifying(there), identifying(here)
    total = version = 0.0
    reasons: list[str] = []
    for name in sorted(one.keys() & other.keys() - _IGNORED):
        a, b = one[name], other[name]
        if a == b or a is None or b is None:
            continue
        step = _step(name, a, b)
        total += step
        version += step if name in _VERSION else 0.0
        reasons.append(f"{name} {a} instead of {b}")
    return Distance(min(total, FARTHEST), min(version, FARTHEST), tuple(reasons))


def _step(name: str, one: Any, other: Any) -> float:
    if name in _DEVICE:
        return _OTHER_DEVICE
    if name in _VERSION:
        return _OTHER_RELEASE if _release(one) != _release(other) else _OTHER_PATCH
    if name in _THREADS and _is_count(one) and _is_count(other):
        return _PER_DOUBLING * abs(math.log2(one / other))
    return _OTHER


def _release(version: Any) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", str(version))[:2])


def _is_count(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and value > 0
