"""Fingerprints: what an engine is, from what its inspector says.

What counts: the layers in the order in which they run, their types and parameters, how tensors
connect them, dimensions, formats, precisions (of the chosen tactic's name only the words that name
an arithmetic), the stream that each runs on, the code of generated kernels (a generated kernel's
name ends with a hash of it), the model, and the settings that are given beside.

What does not count: names of layers and tensors, the origin of a layer in the model, and which
of several tactics was chosen: timing decides that, and it differs between builds of one route.

An engine whose inspector hides what is inside a compiled region has no fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_LEFT_OUT = frozenset({"Name", "TacticName", "TacticValue", "Tactic", "Metadata", "Origin"})
_TENSOR_LISTS = ("Inputs", "Outputs")

_PRECISION_WORD = re.compile(
    r"(?:tf32|bf16|f16|f32|f64|fp4|fp8|fp16|fp32|e2m1|e4m3|e5m2|ue8m0|i4|i8|i32|s4|s8|s32|u8)+"
)
_GENERATED_KERNEL = re.compile(r"_*myl_\w*_0x[0-9a-fA-F]+")
_HIDDEN_REGION = re.compile(r"\{ForeignNode\[")


def fingerprint(
    information: str,
    *,
    model_digest: str,
    settings: Mapping[str, str],
    with_tactics: bool = False,
) -> str | None:
    """Return the fingerprint of an engine, or None where the inspector does not tell enough.

    Args:
        information: The inspector's JSON for the whole engine.
        model_digest: Digest of the ONNX file that it was built from.
        settings: Values that belong to what the engine is but do not show in the information:
            run-time settings, and build settings that act through the choice of tactics.
        with_tactics: Whether chosen tactics count too.
    """
    layers = read_layers(information)
    if layers is None:
        return None
    numbers: dict[str, int] = {}
    described = [_layer(layer, numbers, with_tactics) for layer in layers]
    content = {"model": model_digest, "layers": described, "settings": dict(settings)}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_layers(information: str) -> list[dict[str, Any]] | None:
    """Return the layers in an inspector's JSON, or None where they are missing or without detail.

    An inspector gives bare names if the engine was built without detailed verbosity.
    """
    try:
        parsed = json.loads(information)
    except ValueError:
        return None
    layers = parsed.get("Layers") if isinstance(parsed, dict) else None
    if not isinstance(layers, list) or not layers:
        return None
    if not all(isinstance(layer, dict) and "LayerType" in layer for layer in layers):
        return None
    if any(_HIDDEN_REGION.search(str(layer.get("Name", ""))) for layer in layers):
        return None
    return layers


def summary(information: str) -> dict[str, int]:
    """Return how many layers of each type an engine has; empty where the inspector is silent."""
    layers = read_layers(information) or []
    names = sorted(str(layer["LayerType"]) for layer in layers)
    return {name: names.count(name) for name in dict.fromkeys(names)}


def _layer(layer: Mapping[str, Any], numbers: dict[str, int], with_tactics: bool) -> Any:
    described = {
        key: value
        for key, value in layer.items()
        if key not in _LEFT_OUT and key not in _TENSOR_LISTS
    }
    for key in _TENSOR_LISTS:
        tensors = layer.get(key)
        listed = tensors if isinstance(tensors, list) else []
        described[key] = [_tensor(tensor, numbers) for tensor in listed]
    tactic = str(layer.get("TacticName", ""))
    described["precisions"] = _precisions(tactic)
    described["generated"] = tactic if _GENERATED_KERNEL.fullmatch(tactic) else ""
    if with_tactics:
        described["tactic"] = tactic or str(layer.get("TacticValue", ""))
    return described


def _tensor(tensor: Any, numbers: dict[str, int]) -> Any:
    if not isinstance(tensor, Mapping):
        return tensor
    name = str(tensor.get("Name", ""))
    number = numbers.setdefault(name, len(numbers))
    return {"number": number, **{key: value for key, value in tensor.items() if key != "Name"}}


def _precisions(tactic: str) -> list[str]:
    return [word for word in _words(tactic) if _PRECISION_WORD.fullmatch(word)]


def _words(tactic: str) -> Iterable[str]:
    return tactic.lower().split("_")
