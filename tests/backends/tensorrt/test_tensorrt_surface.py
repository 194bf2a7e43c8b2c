"""Everything that the backend uses of TensorRT, held against the real binding modules.

TensorRT 11 itself is not installable here; its binding module is, with every class, property,
method and enum value, once tiny stand-ins for its libraries exist.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from trt_support import BINDINGS, REAL_LIBRARY, build_stand_ins, require, surface

import routewright.backends.tensorrt as package

READ, WRITE = "read", "write"

# Property -> how it is used; method -> its argument names; tuple -> enum values.
USED: dict[str, dict[str, Any]] = {
    "Builder": {
        "__init__": ("logger",),
        "build_serialized_network": ("network", "config"),
        "create_builder_config": (),
        "create_network": ("flags",),
        "create_optimization_profile": (),
    },
    "IBuilderConfig": {
        "add_optimization_profile": ("profile",),
        "all_build_routes": READ,
        "avg_timing_iterations": WRITE,
        "build_route": WRITE,
        "builder_optimization_level": WRITE,
        "clear_flag": ("flag",),
        "create_timing_cache": ("serialized_timing_cache",),
        "get_flag": ("flag",),
        "get_memory_pool_limit": ("pool",),
        "get_preview_feature": ("feature",),
        "get_tactic_sources": (),
        "get_timing_cache": (),
        "hardware_compatibility_level": WRITE,
        "l2_limit_for_tiling": WRITE,
        "max_aux_streams": WRITE,
        "max_num_tactics": WRITE,
        "plugins_to_serialize": WRITE,
        "profiling_verbosity": WRITE,
        "progress_monitor": WRITE,
        "set_flag": ("flag",),
        "set_memory_pool_limit": ("pool", "pool_size"),
        "set_preview_feature": ("feature", "enable"),
        "set_tactic_sources": ("tactic_sources",),
        "set_timing_cache": ("cache", "ignore_mismatch"),
        "tiling_optimization_level": WRITE,
    },
    "INetworkDefinition": {
        "get_input": ("index",),
        "get_output": ("index",),
        "num_inputs": READ,
        "num_outputs": READ,
    },
    "ITensor": {"name": READ, "dtype": READ, "shape": READ, "is_shape_tensor": READ},
    "IOptimizationProfile": {
        "set_shape": ("input", "min", "opt", "max"),
        "set_shape_input": ("input", "min", "opt", "max"),
    },
    "ITimingCache": {"combine": ("input_cache", "ignore_mismatch"), "serialize": ()},
    "OnnxParser": {
        "__init__": ("network", "logger"),
        "get_error": ("index",),
        "num_errors": READ,
        "parse_from_file": ("model",),
    },
    "ParserError": {
        "code": (),
        "desc": (),
        "file": (),
        "func": (),
        "node": (),
        "node_name": (),
        "node_operator": (),
    },
    "IProgressMonitor": {
        "__init__": (),
        "phase_start": ("phase_name", "parent_phase", "num_steps"),
        "step_complete": ("phase_name", "step"),
        "phase_finish": ("phase_name",),
    },
    "ILogger": {"__init__": (), "log": ("severity", "msg")},
    "Runtime": {
        "__init__": ("logger",),
        "deserialize_cuda_engine": ("serialized_engine",),
        "engine_host_code_allowed": WRITE,
    },
    "ICudaEngine": {
        "create_engine_inspector": (),
        "create_execution_context": ("runtime_config",),
        "create_runtime_config": (),
        "device_memory_size_v2": READ,
        "get_tensor_dtype": ("name",),
        "get_tensor_location": ("name",),
        "get_tensor_mode": ("name",),
        "get_tensor_name": ("index",),
        "get_tensor_profile_shape": ("name", "profile_index"),
        "get_tensor_shape": ("name",),
        "num_io_tensors": READ,
        "num_optimization_profiles": READ,
    },
    "IExecutionContext": {
        "active_optimization_profile": READ,
        "execute_async_v3": ("stream_handle",),
        "get_tensor_address": ("name",),
        "get_tensor_shape": ("name",),
        "infer_shapes": (),
        "set_input_shape": ("name", "shape"),
        "set_optimization_profile_async": ("profile_index", "stream_handle"),
        "set_output_allocator": ("name", "output_allocator"),
        "set_tensor_address": ("name", "memory"),
    },
    "IRuntimeConfig": {},
    "IOutputAllocator": {"__init__": ()},
    "EngineInspector": {"execution_context": WRITE, "get_engine_information": ("format",)},
    "IPluginRegistry": {"load_library": ("plugin_path",)},
    "IHostMemory": {"nbytes": READ},
}

VALUES: dict[str, tuple[str, ...]] = {
    "BuilderFlag": (
        "DISABLE_TIMING_CACHE",
        "EXCLUDE_LEAN_RUNTIME",
        "REFIT",
        "REFIT_IDENTICAL",
        "REFIT_INDIVIDUAL",
        "SPARSE_WEIGHTS",
        "STRIP_PLAN",
        "TF32",
        "VERSION_COMPATIBLE",
    ),
    "DataType": (
        "BF16",
        "BOOL",
        "E8M0",
        "FLOAT",
        "FP8",
        "HALF",
        "INT32",
        "INT64",
        "INT8",
        "UINT8",
    ),
    "HardwareCompatibilityLevel": ("NONE", "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"),
    "LayerInformationFormat": ("JSON",),
    "MemoryPoolType": ("WORKSPACE",),
    "NetworkDefinitionCreationFlag": ("STRONGLY_TYPED",),
    "PreviewFeature": (),
    "ProfilingVerbosity": ("DETAILED",),
    "Severity": ("INTERNAL_ERROR", "ERROR", "WARNING", "INFO"),
    "TacticSource": (),
    "TensorIOMode": ("INPUT",),
    "TensorLocation": ("HOST",),
    "TilingOptimizationLevel": ("NONE", "FAST", "MODERATE", "FULL"),
}

FUNCTIONS = ("get_plugin_registry",)

# What only a library that compiles kernels at run time has; asked for before use.
RTX_ONLY: dict[str, dict[str, Any]] = {
    "IBuilderConfig": {
        "num_compute_capabilities": WRITE,
        "set_compute_capability": ("compute_capability", "index"),
    },
    "IRuntimeConfig": {
        "create_runtime_cache": (),
        "cuda_graph_strategy": WRITE,
        "dynamic_shapes_kernel_specialization_strategy": WRITE,
        "set_runtime_cache": ("cache",),
    },
    "IRuntimeCache": {"deserialize": ("blob",), "reset": (), "serialize": ()},
    "Runtime": {"get_engine_validity": ("buffer",)},
}
RTX_VALUES = {
    "CudaGraphStrategy": ("WHOLE_GRAPH_CAPTURE",),
    "DynamicShapesKernelSpecializationStrategy": ("LAZY", "EAGER", "NONE"),
    "EngineValidity": ("INVALID",),
    "EngineInvalidityDiagnostics": ("VERSION_MISMATCH", "UNSUPPORTED_CC", "OLD_CUDA_DRIVER"),
    "ComputeCapability": ("SM80", "SM86", "SM89"),
}


@pytest.fixture(scope="session")
def tensorrt_11(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    require(BINDINGS)
    folder = tmp_path_factory.mktemp("stand-ins")
    build_stand_ins(folder)
    return surface(BINDINGS, folder)


@pytest.fixture(scope="session")
def tensorrt_rtx() -> dict[str, Any]:
    require(REAL_LIBRARY)
    return surface(REAL_LIBRARY)


def argument_names(doc: str) -> list[list[str]]:
    """Return the argument names of every overload in a pybind11 docstring, self left out."""
    found = []
    for line in doc.splitlines():
        match = re.match(r"(?:\d+\. )?\w+\((.*)\) -> ", line.strip())
        if not match:
            continue
        names, depth, start, text = [], 0, 0, match[1]
        for index, char in enumerate(f"{text},"):
            depth += (char in "[(<") - (char in "])>")
            if char == "," and depth == 0:
                names.append(text[start:index].partition(":")[0].strip())
                start = index + 1
        found.append([name for name in names if name and name != "self"])
    return found


def fits(usage: Any, member: dict[str, Any]) -> bool:
    if usage == READ:
        return bool(member["kind"] == "property")
    if usage == WRITE:
        return bool(member["kind"] == "property" and member["settable"])
    if member["kind"] != "method":
        return False
    return any(
        names[: len(usage)] == list(usage) or not usage for names in argument_names(member["doc"])
    )


def misfits(api: dict[str, Any], used: dict[str, dict[str, Any]]) -> list[str]:
    found = []
    for cls, members in used.items():
        known = api["classes"].get(cls)
        if known is None:
            found.append(cls)
            continue
        for name, usage in members.items():
            member = known["members"].get(name)
            if member is None or not fits(usage, member):
                found.append(f"{cls}.{name} as {usage}: {member}")
    return found


def missing_values(api: dict[str, Any], values: dict[str, tuple[str, ...]]) -> list[str]:
    found = []
    for enum, names in values.items():
        known = api["classes"].get(enum, {}).get("values", [])
        if enum == "Severity":
            known = [
                name
                for name, member in api["classes"]["ILogger"]["members"].items()
                if member["kind"] == "value"
            ]
        found += [f"{enum}.{name}" for name in names if name not in known]
        if enum not in api["classes"] and enum != "Severity":
            found.append(enum)
    return found


def test_tensorrt_11_has_everything_that_the_backend_uses(tensorrt_11: dict[str, Any]) -> None:
    assert tensorrt_11["version"].startswith("11.")
    assert misfits(tensorrt_11, USED) == []
    assert missing_values(tensorrt_11, VALUES) == []
    assert [name for name in FUNCTIONS if name not in tensorrt_11["functions"]] == []


def test_tensorrt_rtx_has_everything_that_the_backend_uses(tensorrt_rtx: dict[str, Any]) -> None:
    # Older ones lack the two properties, which the backend asks for before it uses them.
    routes = ("all_build_routes", "build_route")
    config = {name: use for name, use in USED["IBuilderConfig"].items() if name not in routes}
    assert misfits(tensorrt_rtx, {**USED, "IBuilderConfig": config}) == []
    assert misfits(tensorrt_rtx, RTX_ONLY) == []
    assert missing_values(tensorrt_rtx, {**VALUES, **RTX_VALUES}) == []


def test_the_context_takes_a_runtime_configuration(tensorrt_11: dict[str, Any]) -> None:
    doc = tensorrt_11["classes"]["ICudaEngine"]["members"]["create_execution_context"]["doc"]
    assert ["runtime_config"] in argument_names(doc)


def test_the_output_allocator_has_the_callbacks_that_we_define(
    tensorrt_11: dict[str, Any],
) -> None:
    doc = tensorrt_11["classes"]["IOutputAllocator"]["doc"]
    for callback in (
        "reallocate_output(self, tensor_name, memory, size, alignment)",
        "reallocate_output_async(self, tensor_name, memory, size, alignment, stream)",
        "notify_shape(self, tensor_name, shape)",
    ):
        assert callback in doc


def test_a_builder_of_the_stand_ins_is_refused_with_a_type_error(
    tensorrt_11: dict[str, Any],
) -> None:
    assert "nullptr" in tensorrt_11["builder"]


def test_flags_of_weakly_typed_networks_are_gone_in_tensorrt_11(
    tensorrt_11: dict[str, Any],
) -> None:
    assert "FP16" not in tensorrt_11["classes"]["BuilderFlag"]["values"]


def used_names() -> set[str]:
    """Return every attribute and identifier-like string in the backend's source."""
    found: set[str] = set()
    for path in sorted(Path(package.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


# Names of library members that our source uses for things of its own.
OURS = {"Severity", "builder", "close", "get_plugin_registry", "logger", "parse", "update"}


def test_nothing_is_used_that_is_not_checked_here(tensorrt_11: dict[str, Any]) -> None:
    """Catch a use of the library that was added without adding it to the tables above."""
    listed = {name for table in (USED, RTX_ONLY) for members in table.values() for name in members}
    members = {
        name
        for cls in USED
        for name, member in tensorrt_11["classes"][cls]["members"].items()
        if member["kind"] != "value" and name != "__init__"
    }
    assert (used_names() & members) - listed - OURS == set()
