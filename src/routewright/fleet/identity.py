"""Which machines may share a study: those of one environment, whichever unit of it they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from routewright.environment import environment_differences, identifying

_OF_THE_UNIT = frozenset({"device_uuid", "memory_bytes"})
"""Entries of an environment that differ between two machines of one kind."""

_SEPARATOR = "@"

ENVIRONMENT_DEPENDENT = frozenset({"environment", "knobs", "latency"})
"""Entries of an identity that another environment may change."""


def comparable(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be equal on two machines for their times to mix.

    Which device of a kind it is does not count, nor which of the cores, only how many.
    """
    kept = {k: v for k, v in identifying(environment).items() if k not in _OF_THE_UNIT}
    if isinstance(kept.get("cores"), list):
        kept["cores"] = len(kept["cores"])
    return kept


def shared_identity(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every worker of a study must agree on, from a study's identity."""
    kept = {name: value for name, value in identity.items() if name != "versions"}
    return {**kept, "environment": comparable(identity["environment"])}


def study_name(group: str, identity: Mapping[str, Any]) -> str:
    """Return the name of the group's study for a shared identity."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return f"{group}{_SEPARATOR}{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def is_of_group(name: str, group: str) -> bool:
    """Whether a study of this name belongs to the group."""
    return name.rpartition(_SEPARATOR)[0] == group


def is_group_name(name: str) -> bool:
    """Whether a group may be called that."""
    return 0 < len(name) <= 400 and _SEPARATOR not in name


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return how two identities differ: in their environments, and in what is tuned."""
    environment = environment_differences(was.get("environment", {}), now["environment"])
    told = {
        name: f"{name} was {was.get(name)!r} and is {now.get(name)!r}"
        for name in sorted({*was, *now} - {"environment"})
        if was.get(name) != now.get(name)
    }
    if "knobs" in told and was.get("knobs", {}).keys() == now.get("knobs", {}).keys():
        told["knobs"] = "the knobs that can be searched differ"
    environment += [told[name] for name in told if name in ENVIRONMENT_DEPENDENT]
    return environment, [told[name] for name in told if name not in ENVIRONMENT_DEPENDENT]


def describe(environment: Mapping[str, Any]) -> str:
    """Return an environment in a few words: the device and the library."""
    device = environment.get("device") or environment.get("cpu") or environment.get("machine")
    cores = environment.get("cores")
    library = environment.get("library_version") or environment.get("onnxruntime")
    where = str(device) if environment.get("device") or cores is None else f"{device} x {cores}"
    return f"{where}, {environment.get('library', 'onnxruntime')} {library}"
