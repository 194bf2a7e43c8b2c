"""A test double of a full TensorRT *library*; nothing of Routewright is doubled here.

The full TensorRT library cannot be installed where these tests run. This module object wraps the
real ``tensorrt_rtx`` (real builder, parser, networks, builds) and adds what only a full TensorRT
has, with its documented behaviour:

* ``IBuilderConfig.all_build_routes``: 209 knobs as JSON, in every notation that is known of the
  compiler's own table, with realistic names.
* ``IBuilderConfig.build_route``: setting checks every token against that list. A route with an
  unknown knob or value is refused as a whole and an error is logged; the setter raises nothing,
  and reading back gives what was there before. Knobs in ``silent`` are dropped without a word.
* A timing cache that is not a no-op: a header that names the device, entries, ``combine``; a
  cache of another device is refused by ``set_timing_cache``.

What it cannot show: that a build-route knob has any effect. The builds are TensorRT-RTX builds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

KNOB_COUNT = 209
TUNER_VERSION = "2.19.45"

# Notation and default of knobs that stand for one way of writing values each.
NOTED = {
    "-conv_use_long_w": ("[on|off]", "on"),
    "-conv_lowering": ("[on|off]", "off"),
    "-kgen:codegen": ("[on|off]", "on"),
    "-kgen:codegen:cuda_tile": ("[0|1|2|3]", "1"),
    "-kgen:codegen:cuda_tile:attn": ("[0|1|-1]", "-1"),
    "-kgen:codegen:cuda_tile:attn:kv_block_size": ("[1|2|4|...]", "64"),
    "-kgen:tiling": ("[0|1|2]", "1"),
    "-kgen:tiling:max_depth": ("[-1|0|1|2]", "-1"),
    "-kgen:shapes": ("[auto|none|static|dynamic]", "auto"),
    "-match_ragged_mha": ("[on|off]", "on"),
    "-match_ragged_mha:mode": ("[disable|enable|must]", "enable"),
    "-mha:schedule": ("[auto|on|off]", "auto"),
    "-copy_ppg": ("[0,1,2]", "1"),
    "-reshape_ppg": ("[on|off]", "on"),
    "-transpose_ppg": ("[on|off]", "on"),
    "-slice_fusion": ("bool", "true"),
    "-math:tf32": ("{,prefer_tf32,prefer_f32}", ""),
    "-peep:max": ("[0-4]", "4"),
    "-peep:rounds": ("[0-5]", "2"),
    "-sched:lookahead": ("[0 ~ 3]", "1"),
    "-sched:streams": ("[0~2]", "0"),
    "-sched:overlap": ("[0 ~ 1]", "1"),
    "-sched:window": ("[2~]", "8"),
    "-sched:batch": ("[1 ~ ]", "1"),
    "-cask_fusion": ("[on|off]", "on"),
    "-cask_fusion:num_tactics": ("int", "8"),
    "-cask_fusion:candidate": ("[0 ~ num_of_candidates_ktm]", "0"),
    "-l2:residency_bytes": ("[0 ~ l2 cache size]", "0"),
    "-mem:arena": ("int64", "0"),
    "-mem:align": ("int32_t", "256"),
    "-mem:slots": ("[int]", "4"),
    "-fuse:limit": ("[-1|int]", "-1"),
    "-fuse:depth": ("[-1|0|int]", "-1"),
    "-unroll": ("[1|2|...]", "1"),
    "-unroll:inner": ("[0|1|...]", "0"),
    "-unroll:outer": ("[0|1|..]", "0"),
    "-vectorize:width": ("[1|..]", "4"),
    "-split_k": ("[0|1|2...]", "0"),
    "-tile:m": ("[0|1|2...|64|128|256]", "64"),
    "-tile:n": ("[#]", "0"),
    "-debug:tag": ("STRING", ""),
    "-debug:dump": ("[file name]", ""),
    "-debug:folder": ("[path]", ""),
    "-skip_ops": ("op_list", ""),
    "-keep_ops": ("op1,op2,...", ""),
    "-opts": ("[opt1,opt2,opt3]", ""),
    "-targets": ("[sm0,sm1,...]", ""),
    "-passes": ("[@pass1@pass2@pass3...", ""),
}
_SUBJECTS = (
    "concat", "gather", "layernorm", "matmul", "pad", "pooling", "reduce", "resize", "scatter",
    "softmax", "sort", "topk", "where", "deconv", "einsum", "groupnorm", "quantize",
)  # fmt: skip
_ACTIONS = (
    "canonicalize", "fold", "fuse_bias", "fuse_pointwise", "hoist", "horizontal_fusion", "inline",
    "rematerialize", "sink", "vectorize_io",
)  # fmt: skip


def build_routes_json(count: int = KNOB_COUNT) -> str:
    """Return what ``all_build_routes`` gives: ``count`` knobs, every notation among them."""
    noted = {name: NOTED[name] for name in NOTED}
    names = (f"-{subject}_{action}" for subject in _SUBJECTS for action in _ACTIONS)
    for name in names:
        if len(noted) >= count:
            break
        noted[name] = ("[on|off]", "on")
    options = [
        {
            "option": name,
            "allowed_values": f"{name}={notation}",
            "default_value": default,
            "help": f"Pass {name.lstrip('-')}.",
        }
        for name, (notation, default) in noted.items()
    ]
    return json.dumps({"tuner_version": TUNER_VERSION, "tuner_options": options})


class TensorRTDouble:
    """The module object.

    Args:
        real: The module ``tensorrt_rtx``.
        silent: Knobs that are dropped without a word, by name.
        device: What a timing cache is made for.
    """

    __version__ = "11.4.0.106"

    class IRuntimeConfig:
        """Without the run-time cache and the CUDA graphs of TensorRT-RTX."""

    def __init__(self, real: Any, *, silent: Iterable[str] = (), device: str = "sm90") -> None:
        self.real = real
        self.silent = frozenset(silent)
        self.device = device
        self.routes_set: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def Builder(self, logger: Any) -> BuilderDouble:
        """Return a builder, as the class of this name does."""
        return BuilderDouble(self, logger)


class BuilderDouble:
    """A real builder whose configurations have build routes."""

    def __init__(self, library: TensorRTDouble, logger: Any) -> None:
        self._library = library
        self._logger = logger
        self._real = library.real.Builder(logger)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_builder_config(self) -> ConfigDouble:
        return ConfigDouble(self._library, self._logger, self._real.create_builder_config())

    def build_serialized_network(self, network: Any, config: ConfigDouble) -> Any:
        self._library.routes_set.append(config.build_route)
        cache = config.get_timing_cache()
        if cache is not None:
            cache.entries[f"kernel for {config.build_route or 'the default'}"] = 0.1
        return self._real.build_serialized_network(network, config.real)


class ConfigDouble:
    """A real builder configuration with build routes and a timing cache."""

    all_build_routes = build_routes_json()
    _allowed: ClassVar[dict[str, str]] = {
        option["option"]: option["allowed_values"]
        for option in json.loads(all_build_routes)["tuner_options"]
    }

    def __init__(self, library: TensorRTDouble, logger: Any, real: Any) -> None:
        self.__dict__.update(_library=library, _logger=logger, real=real, _route="", _cache=None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "build_route":
            self._set_route(value)
        else:
            setattr(self.real, name, value)

    @property
    def build_route(self) -> str:
        return str(self.__dict__["_route"])

    def create_timing_cache(self, blob: bytes) -> TimingCacheDouble:
        return TimingCacheDouble.read(blob, self._library.device)

    def set_timing_cache(self, cache: TimingCacheDouble, ignore_mismatch: bool) -> bool:
        if cache.device != self._library.device and not ignore_mismatch:
            self._say("ERROR", "the timing cache is of another device")
            return False
        self.__dict__["_cache"] = cache
        return True

    def get_timing_cache(self) -> TimingCacheDouble | None:
        cache: TimingCacheDouble | None = self.__dict__["_cache"]
        return cache

    def _set_route(self, text: str) -> None:
        tokens = [token.partition("=") for token in text.split()]
        for name, _, value in tokens:
            notation = self._allowed.get(name)
            closed = notation is not None and notation.endswith(("[on|off]", "[0|1|2]"))
            listed = notation.partition("=[")[2].rstrip("]").split("|") if closed else ()
            if notation is None or (closed and value not in listed):
                self._say("ERROR", f"IBuilderConfig::setBuildRoute: invalid knob {name}={value}")
                return
        kept = [f"{n}={v}" for n, _, v in tokens if n not in self._library.silent]
        self.__dict__["_route"] = " ".join(kept)

    def _say(self, level: str, text: str) -> None:
        severity = self._library.real.ILogger.Severity
        self._logger.log(getattr(severity, level), text)


class TimingCacheDouble:
    """Entries under a header that names the device."""

    def __init__(self, device: str, entries: dict[str, float]) -> None:
        self.device = device
        self.entries = entries

    @classmethod
    def read(cls, blob: bytes, device: str) -> TimingCacheDouble:
        """Read a serialized cache; what cannot be read gives an empty one, as the library does."""
        try:
            content = json.loads(bytes(blob))
            return cls(content["device"], dict(content["entries"]))
        except (ValueError, KeyError, TypeError):
            return cls(device, {})

    def serialize(self) -> bytes:
        return json.dumps({"device": self.device, "entries": self.entries}).encode()

    def combine(self, other: TimingCacheDouble, ignore_mismatch: bool) -> bool:
        if other.device != self.device and not ignore_mismatch:
            return False
        self.entries = {**other.entries, **self.entries}
        return True
