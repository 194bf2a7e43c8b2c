"""Session settings: which knobs there are for them, and the settings that a route asks for.

A route is read into :class:`SessionSettings`, and the session is made from its document, the same
one that is saved with the engine. So what was measured and what ships cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from routewright.backends.onnxruntime.library import PROVIDER
from routewright.backends.onnxruntime.transformers import Catalog

LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "layout": "ORT_ENABLE_LAYOUT",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disable": "ORT_DISABLE_ALL",
}
"""Value of :data:`LEVEL_KNOB` to the member of ``GraphOptimizationLevel``."""

LEVEL_KNOB = "-optimizer"
OPTIMIZER_PREFIX = f"{LEVEL_KNOB}:"
"""Optimizers nest under the level: with all of them off, no single one can matter."""

SESSION_PREFIX = "-session:"
THREADS_KNOB = f"{SESSION_PREFIX}intra_op_num_threads"
PARALLEL_KNOB = f"{SESSION_PREFIX}parallel"
SPINNING_KNOB = f"{SESSION_PREFIX}spinning"

_ON_OFF = ("on", "off")
_OFF_ON = ("off", "on")
_SWITCH_OFF = {"off": "0"}
_SWITCH_ON = {"on": "1"}
_EVERY_THREAD_COUNT_UP_TO = 16


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What a model has that decides which settings can matter for it.

    Attributes:
        convolutions: It has convolutions.
        quantized: It has, or can be given, quantize and dequantize nodes.
    """

    convolutions: bool
    quantized: bool


@dataclass(frozen=True, slots=True)
class SettingKnob:
    """A knob that stands for one session option or one configuration entry.

    Attributes:
        name: Name of the knob.
        values: Its values, in canonical order.
        default: Value that leaves the library's default alone.
        help: What it does.
        option: Attribute of ``SessionOptions``; empty for a configuration entry.
        config: Key of the configuration entry; empty for an option.
        writes: What each value writes. A configuration entry is not written at all for a value
            that is missing here.
    """

    name: str
    values: tuple[str, ...]
    default: str
    help: str
    option: str = ""
    config: str = ""
    writes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Everything a session is made with.

    Attributes:
        options: Attribute of ``SessionOptions`` to value; enumeration members by name.
        config_entries: Configuration entries by key; only those that are not at their default.
        disabled_optimizers: Names of what is switched off, sorted.
    """

    options: Mapping[str, bool | int | str]
    config_entries: Mapping[str, str]
    disabled_optimizers: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the settings as the JSON object that is saved with an engine."""
        return {
            "session_options": dict(sorted(self.options.items())),
            "config_entries": dict(sorted(self.config_entries.items())),
            "arguments": {
                "providers": [PROVIDER],
                "disabled_optimizers": list(self.disabled_optimizers),
            },
        }

    @property
    def intra_op_threads(self) -> int:
        """Threads within an operator, the caller's included."""
        return int(self.options["intra_op_num_threads"])

    @property
    def parallel(self) -> bool:
        """Whether independent operators run at once."""
        return self.options["execution_mode"] == "ORT_PARALLEL"

    @property
    def spins(self) -> bool:
        """Whether threads of the session go on spinning after a run."""
        if self.config_entries.get("session.force_spinning_stop") == "1":
            return False
        inner = self.config_entries.get("session.intra_op.allow_spinning") != "0"
        outer = self.config_entries.get("session.inter_op.allow_spinning") != "0"
        return (inner and self.intra_op_threads > 1) or (outer and self.parallel)

    def runtime_identity(self, *, nchwc_convolutions: bool) -> dict[str, Any]:
        """Return the settings that the running session differs by, in a normal form.

        Settings whose only effect is on the graph are left out, since the graph itself is part of
        a fingerprint, and so are settings that cannot act beside the others.

        Args:
            nchwc_convolutions: Whether the optimized graph has convolutions in blocked layout.
        """
        threads, entries = self.intra_op_threads, self.config_entries
        identity: dict[str, Any] = {
            "threads": threads,
            "order": self.options["execution_order"],
            # Memory patterns are switched off by the library in parallel mode.
            "mem_pattern": bool(self.options["enable_mem_pattern"]) and not self.parallel,
            "mem_reuse": self.options["enable_mem_reuse"],
            "arena": self.options["enable_cpu_mem_arena"],
            "prepacking": entries.get("session.disable_prepacking", "0"),
            "initializers": entries.get("session.use_device_allocator_for_initializers", "0"),
        }
        if self.parallel:
            identity["inter_op"] = [
                self.options["inter_op_num_threads"],
                entries.get("session.inter_op.allow_spinning", "1"),
            ]
        if threads > 1 and entries.get("session.intra_op.allow_spinning") == "0":
            identity["spinning"] = "off"
        elif threads > 1:
            identity["spinning"] = [
                entries.get("session.intra_op.spin_duration_us", "default"),
                entries.get("session.intra_op.spin_backoff_max", "1"),
            ]
        if threads > 1 or self.parallel:
            identity["block_base"] = entries.get("session.dynamic_block_base", "0")
            identity["spinning_stop"] = self._stops_spinning(threads)
        if nchwc_convolutions:
            key = "mlas.nchwc_pointwise_conv_max_input_channel_batch"
            identity["pointwise_batch"] = entries.get(key, "128")
        key = "mlas.enable_gemm_fastmath_arm64_bfloat16"
        if key in entries:
            identity["bfloat16_gemm"] = entries[key]
        return identity

    def _stops_spinning(self, threads: int) -> bool:
        entries = self.config_entries
        would_spin = (threads > 1 and entries.get("session.intra_op.allow_spinning") != "0") or (
            self.parallel and entries.get("session.inter_op.allow_spinning") != "0"
        )
        return would_spin and entries.get("session.force_spinning_stop") == "1"


def setting_knobs(
    traits: ModelTraits, catalog: Catalog, *, default_threads: int, usable_threads: int
) -> tuple[SettingKnob, ...]:
    """Return the setting knobs that this version knows and that can matter for the model.

    Args:
        traits: What the model has.
        catalog: What the installed version knows.
        default_threads: Thread count of the default route.
        usable_threads: Most threads that can run at once.
    """
    knobs = [
        *_optimizer_settings(traits),
        *_thread_settings(default_threads, usable_threads),
        *_memory_settings(),
        *_kernel_settings(traits),
    ]
    known = (knob for knob in knobs if not knob.config or knob.config in catalog.config_keys)
    return tuple(_with_known_values(knob, catalog) for knob in known)


def read_settings(
    values: Mapping[str, str], knobs: tuple[SettingKnob, ...], optimizers: tuple[str, ...]
) -> SessionSettings:
    """Return the settings that a route asks for.

    Args:
        values: Value by name of the knobs that are not at their default.
        knobs: The setting knobs of the database.
        optimizers: Names of the optimizers that can be switched off.
    """
    options: dict[str, bool | int | str] = {"inter_op_num_threads": 1}
    entries: dict[str, str] = {}
    for knob in knobs:
        value = values.get(knob.name, knob.default)
        if knob.option:
            options[knob.option] = knob.writes[value]
        elif value in knob.writes:
            entries[knob.config] = knob.writes[value]
    if options["execution_mode"] != "ORT_PARALLEL":
        options["inter_op_num_threads"] = 1
        entries.pop("session.inter_op.allow_spinning", None)
    disabled = (name for name in optimizers if values.get(OPTIMIZER_PREFIX + name) == "off")
    return SessionSettings(options, entries, tuple(sorted(disabled)))


def thread_counts(default: int, usable: int) -> tuple[str, ...]:
    """Return the thread counts worth trying, in ascending order.

    All of them on small machines; on large ones the steps grow with the count.
    """
    counts = {default, usable}
    count = 1
    while count <= usable:
        counts.add(count)
        count += 1 if count < _EVERY_THREAD_COUNT_UP_TO else max(1, count // 4)
    return tuple(str(count) for count in sorted(counts))


def _with_known_values(knob: SettingKnob, catalog: Catalog) -> SettingKnob:
    members = catalog.option_values.get(knob.option)
    if members is None:
        return knob
    return replace(
        knob, values=tuple(value for value in knob.values if knob.writes[value] in members)
    )


def _optimizer_settings(traits: ModelTraits) -> list[SettingKnob]:
    def switch(name: str, key: str, text: str) -> SettingKnob:
        return SettingKnob(
            OPTIMIZER_PREFIX + name, _OFF_ON, "off", text, config=key, writes=_SWITCH_ON
        )

    knobs = [
        SettingKnob(
            LEVEL_KNOB,
            tuple(LEVELS),
            "all",
            "Graph optimization level; each level includes the ones after it in this list.",
            option="graph_optimization_level",
            writes=LEVELS,
        ),
        switch(
            "gelu_approximation",
            "optimization.enable_gelu_approximation",
            "Replace Gelu by a faster approximation; changes results slightly.",
        ),
        switch(
            "cast_chain_elimination",
            "optimization.enable_cast_chain_elimination",
            "Remove chains of Cast nodes; can change results.",
        ),
        SettingKnob(
            OPTIMIZER_PREFIX + "loop_level",
            ("0", "1", "2"),
            "1",
            "Whether optimization starts over: 0 never, 1 after a change at level 4, 2 after a "
            "change at level 2 or above.",
            config="session.graph_optimizations_loop_level",
            writes={"0": "0", "2": "2"},
        ),
    ]
    if not traits.quantized:
        return knobs
    return [
        *knobs,
        switch(
            "quant_qdq_cleanup",
            "session.enable_quant_qdq_cleanup",
            "Remove pairs of QuantizeLinear and DequantizeLinear that are left at the end.",
        ),
        SettingKnob(
            OPTIMIZER_PREFIX + "qdq_fusion",
            _ON_OFF,
            "on",
            "Run quantized nodes on integer kernels; off runs them in floating point.",
            config="session.disable_quant_qdq",
            writes={"off": "1"},
        ),
        SettingKnob(
            OPTIMIZER_PREFIX + "qdq_int8_allowed",
            ("default", "off", "on"),
            "default",
            "Whether signed activations stay signed; the default depends on the CPU.",
            config="session.qdqisint8allowed",
            writes={"off": "0", "on": "1"},
        ),
        switch(
            "x64quantprecision",
            "session.x64quantprecision",
            "On x86 CPUs without VNNI, use unsigned weights: no overflow, but slower.",
        ),
        SettingKnob(
            OPTIMIZER_PREFIX + "qdq_matmulnbits_accuracy_level",
            ("0", "1", "2", "3", "4"),
            "4",
            "Least precision in which matrix products of 2- to 8-bit weights are computed: "
            "0 any, 1 float, 2 float16, 3 bfloat16, 4 int8.",
            config="session.qdq_matmulnbits_accuracy_level",
            writes={str(level): str(level) for level in range(4)},
        ),
    ]


def _thread_settings(default_threads: int, usable_threads: int) -> list[SettingKnob]:
    counts = thread_counts(default_threads, usable_threads)
    numbers = {count: int(count) for count in counts}
    default = str(default_threads)
    return [
        SettingKnob(
            PARALLEL_KNOB,
            _OFF_ON,
            "off",
            "Run independent operators at once (execution_mode).",
            option="execution_mode",
            writes={"off": "ORT_SEQUENTIAL", "on": "ORT_PARALLEL"},
        ),
        SettingKnob(
            f"{PARALLEL_KNOB}:inter_op_num_threads",
            counts,
            default,
            "Operators that run at once.",
            option="inter_op_num_threads",
            writes=numbers,
        ),
        SettingKnob(
            f"{PARALLEL_KNOB}:spinning",
            _ON_OFF,
            "on",
            "Whether idle threads between operators spin before they sleep.",
            config="session.inter_op.allow_spinning",
            writes=_SWITCH_OFF,
        ),
        SettingKnob(
            "-session:execution_order",
            ("default", "priority_based", "memory_efficient"),
            "default",
            "Order in which operators run where there is a choice.",
            option="execution_order",
            writes={
                "default": "DEFAULT",
                "priority_based": "PRIORITY_BASED",
                "memory_efficient": "MEMORY_EFFICIENT",
            },
        ),
        SettingKnob(
            THREADS_KNOB,
            counts,
            default,
            "Threads within an operator; the default is one per physical core that may be used.",
            option="intra_op_num_threads",
            writes=numbers,
        ),
        SettingKnob(
            SPINNING_KNOB,
            _ON_OFF,
            "on",
            "Whether idle threads within an operator spin before they sleep.",
            config="session.intra_op.allow_spinning",
            writes=_SWITCH_OFF,
        ),
        SettingKnob(
            f"{SPINNING_KNOB}:duration_us",
            ("default", "100", "1000", "10000"),
            "default",
            "Microseconds of spinning; the default counts iterations, some 50 ms.",
            config="session.intra_op.spin_duration_us",
            writes={"100": "100", "1000": "1000", "10000": "10000"},
        ),
        SettingKnob(
            f"{SPINNING_KNOB}:backoff_max",
            ("1", "4", "16", "64"),
            "1",
            "Largest pause between two looks for work while spinning.",
            config="session.intra_op.spin_backoff_max",
            writes={"4": "4", "16": "16", "64": "64"},
        ),
        SettingKnob(
            f"{SPINNING_KNOB}:force_stop",
            # The library's own default, off, is not offered. An idle engine's threads would spin
            # for some 50 ms on the cores that the one timed next needs; and waiting for that to
            # end measures engines after a rest, which slows one without spinning and flatters the
            # other: seen as a gain of a fifth that a second run did not confirm.
            ("on",),
            "on",
            "Stop spinning as soon as a run ends, so that sessions do not disturb each other.",
            config="session.force_spinning_stop",
            writes=_SWITCH_ON,
        ),
        SettingKnob(
            "-session:dynamic_block_base",
            ("0", "1", "2", "4", "8", "16"),
            "0",
            "Split parallel work into blocks that shrink towards the end; 0 splits it evenly.",
            config="session.dynamic_block_base",
            writes={count: count for count in ("1", "2", "4", "8", "16")},
        ),
    ]


def _memory_settings() -> list[SettingKnob]:
    def option(name: str, text: str) -> SettingKnob:
        return SettingKnob(
            f"-session:{name}",
            _ON_OFF,
            "on",
            text,
            option=f"enable_{name}",
            writes={"on": True, "off": False},
        )

    return [
        option("mem_pattern", "Allocate all activations of a run as one planned block."),
        option("mem_reuse", "Reuse the memory of activations that are no longer needed."),
        option("cpu_mem_arena", "Keep freed memory in an arena of the session's own."),
        SettingKnob(
            "-session:prepacking",
            _ON_OFF,
            "on",
            "Rearrange constant weights for their kernels when the session is made.",
            config="session.disable_prepacking",
            writes={"off": "1"},
        ),
        SettingKnob(
            "-session:device_allocator_for_initializers",
            _OFF_ON,
            "off",
            "Allocate weights outside the arena.",
            config="session.use_device_allocator_for_initializers",
            writes=_SWITCH_ON,
        ),
    ]


def _kernel_settings(traits: ModelTraits) -> list[SettingKnob]:
    knobs = [
        SettingKnob(
            "-mlas:gemm_fastmath_bfloat16",
            _OFF_ON,
            "off",
            "Compute matrix products in bfloat16 on Arm CPUs; changes results.",
            config="mlas.enable_gemm_fastmath_arm64_bfloat16",
            writes=_SWITCH_ON,
        )
    ]
    if traits.convolutions:
        sizes = ("16", "32", "64", "128", "256", "512", "1024")
        knobs.append(
            SettingKnob(
                "-mlas:pointwise_batch",
                sizes,
                "128",
                "Input channels that a 1x1 convolution in blocked layout takes at a time.",
                config="mlas.nchwc_pointwise_conv_max_input_channel_batch",
                writes={size: size for size in sizes if size != "128"},
            )
        )
    return knobs
