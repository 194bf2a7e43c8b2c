"""What a TensorRT route means in trtexec's, TensorRT's Python and Torch-TensorRT's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from routewright.backends.tensorrt.config_knobs import CONFIG_PREFIX
from routewright.backends.tensorrt.knobs import (
    CUDA_GRAPH_KNOB,
    SPECIALIZATION_KNOB,
    VARIANT_KNOB,
    split_route,
)

_TILING_LEVELS = ("none", "fast", "moderate", "full")
_PREVIEWS = {
    "aliased_plugin_io_10_03": "aliasedPluginIO1003",
    "runtime_activation_resize_10_10": "runtimeActivationResize",
}
_HARDWARE = {"ampere_plus": "ampere+", "same_compute_capability": "sameComputeCapability"}


@dataclass
class Rebuild:
    """How to build a route again.

    Attributes:
        build_route: The text for ``build_route``; empty for the default route.
        trtexec: Options of trtexec, beside the model and the build route.
        python: Statements on ``config``, after the build route is set.
        runtime: Statements on the run-time configuration.
        torch: Keyword arguments of ``torch_tensorrt.dynamo.compile``.
        remarks: What has no counterpart anywhere, one line each.
        elsewhere: What trtexec or Torch-TensorRT has no counterpart for, one line each.
    """

    build_route: str = ""
    trtexec: list[str] = field(default_factory=list)
    python: list[str] = field(default_factory=list)
    runtime: list[str] = field(default_factory=list)
    torch: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)


def rebuild_of(route: Mapping[str, str], options: Mapping[str, str]) -> Rebuild:
    """Return how to build a TensorRT route again.

    Args:
        route: Value by knob, of the knobs that are not at their default.
        options: The backend's options that the study was made with.
    """
    split = split_route(route)
    rebuild = Rebuild(build_route=split.build_route_text)
    signed: dict[str, list[str]] = {"--preview": [], "--tacticSources": []}
    for knob, value in split.config.items():
        _add_config(rebuild, signed, knob, value)
    rebuild.trtexec += [
        f"{option}={','.join(listed)}" for option, listed in signed.items() if listed
    ]
    for knob, value in split.runtime.items():
        _add_runtime(rebuild, knob, value)
    # The library takes the flag that leaves the lean runtime out after this one only.
    for option in sorted(options, key=lambda option: (option != "version_compatible", option)):
        _add_option(rebuild, option, options[option])
    return rebuild


def model_of(route: Mapping[str, str], model: str, options: Mapping[str, str]) -> str:
    """Return the ONNX file that a route builds: the model, or the variant that it names."""
    variant = route.get(VARIANT_KNOB)
    if variant is None:
        return model
    for part in options.get("variants", "").split(","):
        name, _, path = part.partition(":")
        if name.strip() == variant and path.strip():
            return path.strip()
    return f"{variant}.onnx"


def _add_config(rebuild: Rebuild, signed: dict[str, list[str]], knob: str, value: str) -> None:
    name = knob.removeprefix(CONFIG_PREFIX)
    sign = "+" if value == "on" else "-"
    if name in _NUMBERS:
        option, keyword = _NUMBERS[name]
        rebuild.trtexec.append(f"{option}={value}")
        rebuild.python.append(f"config.{name} = {value}")
        if keyword:
            rebuild.torch.append(f"{keyword}={value}")
        else:
            rebuild.elsewhere.append(f"{knob}={value}: Torch-TensorRT has no setting for it")
    elif name == "tiling_optimization_level" and value in _TILING_LEVELS:
        level = _TILING_LEVELS.index(value)
        rebuild.trtexec.append(f"--tilingOptimizationLevel={level}")
        rebuild.python.append(f"config.{name} = trt.TilingOptimizationLevel.{value.upper()}")
        rebuild.torch.append(f'tiling_optimization_level="{value}"')
    elif name == "tf32":
        rebuild.trtexec += ["--noTF32"] if value == "off" else []
        rebuild.python.append(_flag("TF32", value))
        rebuild.torch.append(f"disable_tf32={value == 'off'}")
    elif name == "sparse_weights":
        rebuild.trtexec.append(f"--sparsity={'enable' if value == 'on' else 'disable'}")
        rebuild.python.append(_flag("SPARSE_WEIGHTS", value))
        rebuild.torch.append(f"sparse_weights={value == 'on'}")
    elif name.startswith("preview_"):
        feature = name.removeprefix("preview_")
        rebuild.python.append(
            f"config.set_preview_feature(trt.PreviewFeature.{feature.upper()}, {value == 'on'})"
        )
        if feature in _PREVIEWS:
            signed["--preview"].append(sign + _PREVIEWS[feature])
        else:
            rebuild.elsewhere.append(f"{knob}={value}: trtexec has no option for it")
        rebuild.elsewhere.append(f"{knob}={value}: Torch-TensorRT has no setting for it")
    elif name.startswith("tactic_source_"):
        source = name.removeprefix("tactic_source_").upper()
        bit = f"(1 << int(trt.TacticSource.{source}))"
        change = f"| {bit}" if value == "on" else f"& ~{bit}"
        rebuild.python.append(f"config.set_tactic_sources(config.get_tactic_sources() {change})")
        signed["--tacticSources"].append(sign + source)
        rebuild.elsewhere.append(f"{knob}={value}: Torch-TensorRT has no setting for it")
    elif name == "l2_limit_for_tiling":
        rebuild.remarks.append(
            f"{knob}={value}: this share of the device's L2 cache, in bytes, goes to "
            "--l2LimitForTiling, config.l2_limit_for_tiling and l2_limit_for_tiling="
        )
    else:
        rebuild.remarks.append(f"{knob}={value}: there is no counterpart; set it yourself")


_NUMBERS = {
    "builder_optimization_level": ("--builderOptimizationLevel", "optimization_level"),
    "max_aux_streams": ("--maxAuxStreams", "max_aux_streams"),
    "avg_timing_iterations": ("--avgTiming", "num_avg_timing_iters"),
    "max_num_tactics": ("--maxTactics", ""),
}
"""Option of trtexec and keyword of Torch-TensorRT, by attribute of ``config``."""


def _flag(name: str, value: str) -> str:
    return f"config.{'set' if value == 'on' else 'clear'}_flag(trt.BuilderFlag.{name})"


def _add_runtime(rebuild: Rebuild, knob: str, value: str) -> None:
    if knob == CUDA_GRAPH_KNOB and value == "on":
        rebuild.trtexec.append("--useCudaGraph")
        rebuild.runtime.append(
            "runtime_config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE"
        )
        rebuild.elsewhere.append(
            f"{knob}={value} is about running: in TensorRT capture execute_async_v3 in a CUDA "
            "graph, in Torch-TensorRT use torch_tensorrt.runtime.enable_cudagraphs"
        )
    elif knob == SPECIALIZATION_KNOB:
        rebuild.runtime.append(
            "runtime_config.dynamic_shapes_kernel_specialization_strategy = "
            f"trt.DynamicShapesKernelSpecializationStrategy.{value.upper()}"
        )
        rebuild.elsewhere.append(f"{knob}={value} is about running, and TensorRT-RTX only has it")
    else:
        rebuild.remarks.append(f"{knob}={value}: there is no counterpart; set it yourself")


def _add_option(rebuild: Rebuild, option: str, value: str) -> None:
    """Add what the user asked of every build of the study."""
    is_on = value.lower() in ("on", "true")
    if option == "variants":
        return
    if option in _FLAGS:
        trtexec_option, flag = _FLAGS[option]
        if is_on:
            rebuild.trtexec.append(trtexec_option)
            rebuild.python.append(_flag(flag, "on"))
    elif option in _VALUES:
        said = _VALUES[option](value)
        rebuild.trtexec += said[0]
        rebuild.python += said[1]
    elif option not in _WITHOUT_EFFECT:
        rebuild.remarks.append(f"the option {option}={value} of the study: set it yourself")


_FLAGS = {
    "version_compatible": ("--versionCompatible", "VERSION_COMPATIBLE"),
    "exclude_lean_runtime": ("--excludeLeanRuntime", "EXCLUDE_LEAN_RUNTIME"),
    "strip_plan": ("--stripWeights", "STRIP_PLAN"),
}
_WITHOUT_EFFECT = ("cache_folder", "host_transfers", "fingerprint_tactics", "timing_cache")
_REFIT = {"all": "REFIT", "identical": "REFIT_IDENTICAL", "individual": "REFIT_INDIVIDUAL"}


def _workspace(value: str) -> tuple[list[str], list[str]]:
    limit = f"config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, {value} << 20)"
    return [f"--memPoolSize=workspace:{value}"], [limit]


def _hardware(value: str) -> tuple[list[str], list[str]]:
    if value not in _HARDWARE:
        return [], []
    level = f"trt.HardwareCompatibilityLevel.{value.upper()}"
    return (
        [f"--hardwareCompatibilityLevel={_HARDWARE[value]}"],
        [f"config.hardware_compatibility_level = {level}"],
    )


def _refit(value: str) -> tuple[list[str], list[str]]:
    if value not in _REFIT:
        return [], []
    # trtexec has an option for one of the three kinds.
    return ["--refit"] if value == "all" else [], [_flag(_REFIT[value], "on")]


def _plugins(value: str) -> tuple[list[str], list[str]]:
    paths = [path.strip() for path in value.split(",") if path.strip()]
    return [f"--staticPlugins={path}" for path in paths], [
        f"builder.get_plugin_registry().load_library({path!r})" for path in paths
    ]


_VALUES: Mapping[str, Callable[[str], tuple[list[str], list[str]]]] = {
    "workspace_mib": _workspace,
    "hardware_compatibility": _hardware,
    "refit": _refit,
    "plugins": _plugins,
    "device": lambda value: ([f"--device={value}"], []),
}
