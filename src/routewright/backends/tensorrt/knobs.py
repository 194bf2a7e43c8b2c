"""The four kinds of knobs, in one database.

1. Build-route knobs, as the library lists them (``all_build_routes``).
2. Builder-configuration knobs, ``-config:NAME``: only values that the library takes here. Each was
   set on a real configuration and read back.
3. Run-time knobs, ``-runtime:NAME``: how a built engine is run.
4. ``-model:variant``: which of several ONNX files of one model is built.

Kinds 2 to 4 never reach the library's ``build_route``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from routewright.backends.tensorrt.config_knobs import (
    ARITHMETIC_KNOBS,
    CONFIG_PREFIX,
    ConfigKnob,
)
from routewright.backends.tensorrt.library import Capabilities, Library
from routewright.knobs import KnobDatabase

RUNTIME_PREFIX = "-runtime:"
VARIANT_KNOB = "-model:variant"
ORIGINAL = "original"

CUDA_GRAPH_KNOB = RUNTIME_PREFIX + "cuda_graph"
SPECIALIZATION_KNOB = RUNTIME_PREFIX + "dynamic_shapes_kernels"


@dataclass(frozen=True, slots=True)
class SplitRoute:
    """A route's values by kind, only those that differ from the defaults.

    Attributes:
        build_route: What the library's ``build_route`` takes, by knob name.
        config: Builder-configuration values by knob name.
        runtime: Run-time values by knob name.
        variant: Name of the ONNX file to build.
    """

    build_route: Mapping[str, str]
    config: Mapping[str, str]
    runtime: Mapping[str, str]
    variant: str

    @property
    def build_route_text(self) -> str:
        """The text for the library's ``build_route``; empty for its default."""
        return " ".join(f"{name}={value}" for name, value in self.build_route.items())


def split_route(values: Mapping[str, str]) -> SplitRoute:
    """Sort a route's values by kind, in the order in which they come."""
    parts: dict[str, dict[str, str]] = {"build": {}, "config": {}, "runtime": {}}
    variant = ORIGINAL
    for name, value in values.items():
        if name == VARIANT_KNOB:
            variant = value
        elif name.startswith(CONFIG_PREFIX):
            parts["config"][name] = value
        elif name.startswith(RUNTIME_PREFIX):
            parts["runtime"][name] = value
        else:
            parts["build"][name] = value
    return SplitRoute(parts["build"], parts["config"], parts["runtime"], variant)


def hidden_settings(route: SplitRoute, capabilities: Capabilities) -> dict[str, str]:
    """Return the values of a route that make an engine another one without showing in its layers.

    Run-time values always do, and what arithmetic is permitted. Where the library times tactics,
    so do all builder-configuration values and the build-route knobs about tactics: they act
    through which tactics are tried and chosen.
    """
    hidden = dict(route.runtime)
    for name, value in route.config.items():
        if capabilities.times_tactics or name in ARITHMETIC_KNOBS:
            hidden[name] = value
    if capabilities.times_tactics:
        hidden.update({k: v for k, v in route.build_route.items() if "tactic" in k})
    return hidden


def knob_database(
    capabilities: Capabilities,
    config_knobs: Sequence[ConfigKnob],
    *,
    source: str,
    variants: Sequence[str],
    dynamic_shapes: bool,
    specializations: Sequence[str],
) -> KnobDatabase:
    """Return all knobs of this library for this model, build-route knobs first.

    Args:
        capabilities: What the library said.
        config_knobs: From :func:`probe_config_knobs`.
        source: The library, for messages about its knob list.
        variants: Names of further ONNX files of the model.
        dynamic_shapes: Whether the model has open shapes.
        specializations: Strategies of the library for kernels of open shapes.
    """
    own = [_entry(knob.name, knob.values, knob.default, knob.help) for knob in config_knobs]
    own.append(
        _entry(
            CUDA_GRAPH_KNOB,
            ("off", "on"),
            "off",
            "Enqueue a recorded CUDA graph instead of kernel after kernel.",
        )
    )
    if dynamic_shapes and specializations:
        own.append(
            _entry(
                SPECIALIZATION_KNOB,
                tuple(name.lower() for name in specializations),
                specializations[0].lower(),
                "When kernels are compiled for the shapes of a run.",
            )
        )
    if variants:
        own.append(
            _entry(
                VARIANT_KNOB,
                (ORIGINAL, *sorted(variants)),
                ORIGINAL,
                "Which ONNX file of the model is built; accuracy is judged against the original.",
            )
        )
    ours = KnobDatabase.from_json(
        json.dumps({"tuner_version": "", "tuner_options": own}), source="routewright"
    )
    if not capabilities.build_routes:
        return ours
    listed = KnobDatabase.from_json(capabilities.build_routes, source=source)
    return listed.merged(ours)


def specializations(library: Library) -> tuple[str, ...]:
    """Return the library's strategies for kernels of open shapes, its default first."""
    found = getattr(library.module, "DynamicShapesKernelSpecializationStrategy", None)
    return () if found is None else tuple(found.__members__)


def _entry(name: str, values: Sequence[str], default: str, help_text: str) -> dict[str, str]:
    return {
        "option": name,
        "allowed_values": f"{name}=[{'|'.join(values)}]",
        "default_value": default,
        "help": help_text,
    }
