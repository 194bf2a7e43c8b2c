"""What tells one tuner's cache from another's, and what a cache of a study is made from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_OTHER_SPELLINGS = {"cosine": "cos", "linfinity": "linf"}


@dataclass(frozen=True)
class StudyFacts:
    """What a cache's header says of a study.

    Attributes:
        tuner_version: Version of the compiler's knob list.
        loss: Name of the loss as this project has it.
        threshold: Largest loss allowed.
        atol: Absolute tolerance of l0.
        rtol: Relative tolerance of l0.
        search: Name of the search method.
        command: The command that made the study, word by word.
        default_route: Every knob at its default, as far as known.
        expression: The route expression that was searched.
        onnx: Path of the model; empty if unknown.
        inputs: Path of the input file by input, where such were given.
        references: Path of the reference file by output, where such were given.
        more: What no other tuner writes.
    """

    tuner_version: str
    loss: str
    threshold: float
    atol: float
    rtol: float
    search: str
    command: Sequence[str]
    default_route: str
    expression: str
    onnx: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CacheFormat:
    """How one tuner writes its cache.

    Attributes:
        name: Name on the command line.
        title: Name in messages.
        latency: What one time in the cache covers.
        loss_names: How it calls each loss.
        separators: Of items and of keys and values in a line.
        ascii_only: Whether other characters are escaped.
        zero_is_a_bound: Whether a threshold of 0 asks for identical outputs, not for no check.
        header: Makes the header, keys in the tuner's order.
        inaccurate: The error message of a route that broke the accuracy bound, from its losses.
    """

    name: str
    title: str
    latency: str
    loss_names: Mapping[str, str]
    separators: tuple[str, str]
    ascii_only: bool
    zero_is_a_bound: bool
    header: Callable[[StudyFacts], dict[str, Any]]
    inaccurate: Callable[[Mapping[str, float]], str]

    def line(self, values: Mapping[str, Any]) -> str:
        """Return a line as the tuner writes it; a number that is none becomes null."""
        return json.dumps(
            _finite(values), ensure_ascii=self.ascii_only, separators=self.separators
        )

    def our_loss(self, name: Any) -> str:
        """Return this project's name of a loss; empty where the header names none."""
        if not isinstance(name, str):
            return ""
        return _OTHER_SPELLINGS.get(name.lower(), name.lower())


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
