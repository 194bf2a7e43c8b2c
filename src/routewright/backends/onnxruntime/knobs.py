"""The knob database of the installed ONNX Runtime, for one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from routewright.backends.onnxruntime import hardware
from routewright.backends.onnxruntime.blocks import Block
from routewright.backends.onnxruntime.quantization import QuantizationSettings
from routewright.backends.onnxruntime.settings import OPTIMIZER_PREFIX, SettingKnob
from routewright.backends.onnxruntime.transformers import Catalog
from routewright.knobs import Knob, KnobDatabase

BLOCK_PREFIX = "-quantize:"
_SETTING_PREFIX = "-quantization:"
_PER_CHANNEL = f"{_SETTING_PREFIX}per_channel"
_WEIGHTS = f"{_SETTING_PREFIX}weights"
_ACTIVATIONS = f"{_SETTING_PREFIX}activations"
_SYMMETRIC = f"{_SETTING_PREFIX}symmetric"
_MATMUL = f"{_SETTING_PREFIX}matmul"


def knob_database(
    catalog: Catalog,
    settings: Sequence[SettingKnob],
    blocks: Sequence[Block],
    notes: Sequence[str] = (),
) -> KnobDatabase:
    """Return the database: the level and its optimizers, session settings, int8 blocks.

    Args:
        catalog: What the installed version knows.
        settings: The setting knobs that can matter for the model.
        blocks: The model's blocks; empty where it cannot be quantized.
        notes: What was left out and why, one line each.
    """
    under_level = [knob for knob in settings if knob.name.startswith(OPTIMIZER_PREFIX)]
    level = [knob for knob in settings if knob.name == OPTIMIZER_PREFIX.rstrip(":")]
    others = [knob for knob in settings if knob not in level and knob not in under_level]
    knobs = [
        *map(_of_setting, level),
        *(_of_optimizer(name, rank) for name, rank in catalog.optimizers),
        *map(_of_setting, under_level),
        *map(_of_setting, others),
        *map(_of_block, blocks),
        *_quantization_knobs(blocks),
    ]
    return KnobDatabase(f"onnxruntime-{catalog.version}", tuple(knobs), tuple(notes))


def chosen_blocks(values: Mapping[str, str], blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks that a route quantizes."""
    return [block for block in blocks if values.get(BLOCK_PREFIX + block.name) == "int8"]


def quantization_settings(values: Mapping[str, str]) -> QuantizationSettings:
    """Return how a route quantizes, from the values of knobs that are not at their default."""
    return QuantizationSettings(
        per_channel=values.get(_PER_CHANNEL, "on") == "on",
        weights=_weights(values.get(_WEIGHTS, "auto")),
        activations=values.get(_ACTIVATIONS, "u8"),
        symmetric=values.get(_SYMMETRIC, "off") == "on",
        dynamic_matmul=values.get(_MATMUL, "static") == "dynamic",
    )


def _weights(value: str) -> str:
    """Return how weights are stored.

    x86 CPUs without VNNI add two products of unsigned and signed bytes in 16 bits, which can
    overflow without a word; with one bit less in the weights it cannot.
    """
    if value != "auto":
        return value
    return "s8" if hardware.has_exact_int8_products() else "s7"


def _of_setting(knob: SettingKnob) -> Knob:
    return _closed(knob.name, knob.values, knob.default, knob.help)


def _of_optimizer(name: str, level: int) -> Knob:
    text = f"Graph optimizer, applied at level {level}."
    return _closed(OPTIMIZER_PREFIX + name, ("on", "off"), "on", text)


def _of_block(block: Block) -> Knob:
    return _closed(BLOCK_PREFIX + block.name, ("off", "int8"), "off", f"Quantize {block.help}.")


def _quantization_knobs(blocks: Sequence[Block]) -> list[Knob]:
    """Return how to quantize; nothing of it matters while no block is quantized."""
    kinds = {block.kind for block in blocks}
    if not kinds:
        return []
    knobs = [
        _closed(
            _PER_CHANNEL,
            ("on", "off"),
            "on",
            "One scale per output channel of a weight instead of one for the whole weight.",
        )
    ]
    knobs.append(
        _closed(
            _WEIGHTS,
            ("auto", "s8", "s7", "u8"),
            "auto",
            "Weights: s8 signed; s7 signed with one bit less, and u8 unsigned, neither of which "
            "can overflow on x86 CPUs without VNNI; auto is s7 on these and s8 elsewhere.",
        )
    )
    if kinds == {"lstm"}:
        return knobs
    knobs += [
        _closed(_ACTIVATIONS, ("u8", "s8"), "u8", "Activations: unsigned or signed."),
        _closed(_SYMMETRIC, ("off", "on"), "off", "Activation ranges are symmetric about zero."),
    ]
    if "matmul" in kinds:
        knobs.append(
            _closed(
                _MATMUL,
                ("static", "dynamic"),
                "static",
                "Matrix products: ranges from calibration, or found anew in every run.",
            )
        )
    return knobs


def _closed(name: str, values: Sequence[str], default: str, text: str) -> Knob:
    return Knob.of(name, f"[{'|'.join(values)}]", default, text)
