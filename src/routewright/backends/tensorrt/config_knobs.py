"""Builder-configuration knobs: those that a library really takes, found by setting them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routewright.backends.base import BuildFailed
from routewright.backends.tensorrt.library import Library

CONFIG_PREFIX = "-config:"
AUTO = "auto"

_SPEED_FLAGS = {
    "TF32": "Let single-precision products round their inputs to 10 bits.",
    "SPARSE_WEIGHTS": "Let sparse kernels be used where the weights allow it.",
}
ARITHMETIC_KNOBS = frozenset(f"{CONFIG_PREFIX}{name.lower()}" for name in _SPEED_FLAGS)
"""Knobs that decide which arithmetic is permitted."""

# Preview features that change what a network may do, not how fast it runs.
_PREVIEWS_WITHOUT_SPEED = ("ALIASED_PLUGIN_IO", "MULTIDEVICE")


@dataclass(frozen=True, slots=True)
class ConfigKnob:
    """One builder-configuration knob.

    Attributes:
        name: Its name with the prefix.
        default: The value that a fresh configuration has.
        values: Every value that the library took, the default among them.
        help: What it does.
        set: Sets a value on a configuration; never called with ``"auto"``.
    """

    name: str
    default: str
    values: tuple[str, ...]
    help: str
    set: Callable[[Any, str], None]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A knob that a library may have: how to read, set and spell its values."""

    name: str
    help: str
    values: tuple[str, ...]
    read: Callable[[Any], str]
    set: Callable[[Any, str], None]


def probe_config_knobs(
    library: Library, builder: Any, *, l2_bytes: int | None
) -> tuple[ConfigKnob, ...]:
    """Return the builder-configuration knobs that the library supports here.

    Every value is set on a fresh configuration and read back; what does not stick, raises or
    makes the library say "unsupported" is left out, and so is a knob of which nothing but the
    default is left.

    Args:
        library: The library.
        builder: A builder of it.
        l2_bytes: Size of the device's L2 cache, or None where no device is present.
    """
    found: list[ConfigKnob] = []
    for candidate in _candidates(library, builder.create_builder_config(), l2_bytes):
        default = candidate.read(builder.create_builder_config())
        values = tuple(
            value
            for value in candidate.values
            if value == default or _sticks(library, builder, candidate, value)
        )
        if default not in values:
            values = (default, *values)
        if len(values) > 1:
            found.append(
                ConfigKnob(candidate.name, default, values, candidate.help, candidate.set)
            )
    return tuple(found)


def apply_config(config: Any, knobs: Sequence[ConfigKnob], values: Mapping[str, str]) -> None:
    """Set builder-configuration values that differ from the defaults.

    Raises:
        BuildFailed: A knob is not known here, or a value is refused.
    """
    by_name = {knob.name: knob for knob in knobs}
    for name, value in values.items():
        knob = by_name.get(name)
        if knob is None or value not in knob.values:
            raise BuildFailed("unsupported", f"this library does not take {name}={value} here")
        if value != knob.default:
            knob.set(config, value)


def _sticks(library: Library, builder: Any, candidate: _Candidate, value: str) -> bool:
    if value == AUTO:
        # Only a fresh configuration has it; it cannot be set.
        return False
    config = builder.create_builder_config()
    mark = library.log.mark()
    try:
        candidate.set(config, value)
        kept = candidate.read(config) == value
    except (TypeError, ValueError, RuntimeError):
        return False
    said = (*library.log.warnings(mark), *library.log.errors(mark))
    return kept and not any("unsupported" in text.lower() for text in said)


def _candidates(library: Library, config: Any, l2_bytes: int | None) -> list[_Candidate]:
    module = library.module
    attributes = [
        _number(
            "builder_optimization_level",
            ("0", "1", "2", "3", "4", "5"),
            "How long the builder searches; higher takes longer.",
        ),
        _level(
            "tiling_optimization_level",
            getattr(module, "TilingOptimizationLevel", None),
            "How hard the builder searches for tilings that keep data in the L2 cache.",
        ),
        _number(
            "max_aux_streams",
            (AUTO, "0", "1", "2", "4"),
            "Streams that the engine may use beside its own.",
            automatic=-1,
        ),
        _number(
            "avg_timing_iterations",
            ("1", "2", "4", "8"),
            "Timings that are averaged when tactics are compared.",
        ),
        _number(
            "max_num_tactics",
            (AUTO, "1", "4", "16", "64"),
            "Tactics that are timed where there is a choice.",
            automatic=-1,
        ),
    ]
    if l2_bytes:
        attributes.append(_l2_limit(l2_bytes))
    present = [item for item in attributes if hasattr(config, _short(item.name))]
    flags = [
        _flag(getattr(module.BuilderFlag, name), help_text)
        for name, help_text in _SPEED_FLAGS.items()
        if hasattr(module.BuilderFlag, name)
    ]
    previews = [
        _preview(feature)
        for name, feature in module.PreviewFeature.__members__.items()
        if not name.startswith(_PREVIEWS_WITHOUT_SPEED)
    ]
    sources = [_tactic_source(source) for source in module.TacticSource.__members__.values()]
    return [*present, *flags, *previews, *sources]


def _short(name: str) -> str:
    return name.removeprefix(CONFIG_PREFIX)


def _number(
    attribute: str, values: tuple[str, ...], help_text: str, automatic: int | None = None
) -> _Candidate:
    def read(config: Any) -> str:
        value = int(getattr(config, attribute))
        return AUTO if value == automatic else str(value)

    def put(config: Any, value: str) -> None:
        setattr(config, attribute, int(value))

    return _Candidate(CONFIG_PREFIX + attribute, help_text, values, read, put)


def _level(attribute: str, levels: Any, help_text: str) -> _Candidate:
    members = {} if levels is None else levels.__members__

    def read(config: Any) -> str:
        return str(getattr(config, attribute).name).lower()

    def put(config: Any, value: str) -> None:
        setattr(config, attribute, members[value.upper()])

    values = tuple(name.lower() for name in members)
    return _Candidate(CONFIG_PREFIX + attribute, help_text, values, read, put)


def _l2_limit(l2_bytes: int) -> _Candidate:
    # Shares of the cache, not bytes: they mean the same on another device.
    shares = {"quarter": l2_bytes // 4, "half": l2_bytes // 2, "all": l2_bytes}
    names = {size: name for name, size in shares.items()}

    def read(config: Any) -> str:
        return names.get(int(config.l2_limit_for_tiling), AUTO)

    def put(config: Any, value: str) -> None:
        config.l2_limit_for_tiling = shares[value]

    return _Candidate(
        CONFIG_PREFIX + "l2_limit_for_tiling",
        "Share of the L2 cache that tilings aim at.",
        (AUTO, *shares),
        read,
        put,
    )


def _flag(flag: Any, help_text: str) -> _Candidate:
    def read(config: Any) -> str:
        return _on_off(config.get_flag(flag))

    def put(config: Any, value: str) -> None:
        (config.set_flag if value == "on" else config.clear_flag)(flag)

    name = CONFIG_PREFIX + flag.name.lower()
    return _Candidate(name, help_text, ("on", "off"), read, put)


def _preview(feature: Any) -> _Candidate:
    def read(config: Any) -> str:
        return _on_off(config.get_preview_feature(feature))

    def put(config: Any, value: str) -> None:
        config.set_preview_feature(feature, value == "on")

    name = f"{CONFIG_PREFIX}preview_{feature.name.lower()}"
    return _Candidate(name, "A preview feature of the library.", ("on", "off"), read, put)


def _tactic_source(source: Any) -> _Candidate:
    bit = 1 << int(source)

    def read(config: Any) -> str:
        return _on_off(config.get_tactic_sources() & bit)

    def put(config: Any, value: str) -> None:
        sources = config.get_tactic_sources()
        config.set_tactic_sources(sources | bit if value == "on" else sources & ~bit)

    name = f"{CONFIG_PREFIX}tactic_source_{source.name.lower()}"
    return _Candidate(name, "Whether tactics may come from there.", ("on", "off"), read, put)


def _on_off(value: Any) -> str:
    return "on" if value else "off"
