"""The commands that build a winner again."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from routewright.errors import SettingsError
from routewright.interop.commands import rebuild_commands
from routewright.interop.trtexec_options import parse_trtexec


def result(
    route: str = "-a=on -kgen:tiling=2",
    *,
    backend: str = "tensorrt",
    options: str = "",
    model: str = "/data/my model.onnx",
) -> dict[str, Any]:
    return {
        "model": {"path": model, "sha256": "ab" * 32},
        "backend": backend,
        "best": {
            "route": route,
            "relative_latency": 0.812,
            "ci95": [0.8, 0.83],
            "command": f"routewright tune {shlex.quote(model)} {options} --expr {route!r}",
        },
    }


def trtexec_words(printed: str) -> list[str]:
    (line,) = [line for line in printed.splitlines() if line.startswith("trtexec ")]
    return shlex.split(line)


def python_part(printed: str) -> str:
    """Return the part between its heading and the next one."""
    lines = printed.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("# Python"))
    rest = range(begin + 1, len(lines))
    ends = ("# Torch-TensorRT", "# trtexec and")
    end = next((i for i in rest if lines[i].startswith(ends)), len(lines))
    return "\n".join(lines[begin:end])


def test_the_winner_of_tensorrt_in_three_ways(tmp_path: Path) -> None:
    printed = rebuild_commands(result(), tmp_path)
    assert trtexec_words(printed) == [
        "trtexec",
        "--onnx=/data/my model.onnx",
        "--setBuildRoute=-a=on -kgen:tiling=2",
        "--saveEngine=my model.plan",
    ]
    assert "config.build_route = route\n" in printed
    assert "set(route.split()) - set(config.build_route.split())" in printed
    assert "    build_route='-a=on -kgen:tiling=2',\n" in printed
    assert "# 0.812 of the default route's time (95% interval 0.800 to 0.830)" in printed


CONFIG = {
    "-config:builder_optimization_level=5": (
        "--builderOptimizationLevel=5",
        "config.builder_optimization_level = 5",
        "optimization_level=5",
    ),
    "-config:tiling_optimization_level=full": (
        "--tilingOptimizationLevel=3",
        "config.tiling_optimization_level = trt.TilingOptimizationLevel.FULL",
        'tiling_optimization_level="full"',
    ),
    "-config:max_aux_streams=0": (
        "--maxAuxStreams=0",
        "config.max_aux_streams = 0",
        "max_aux_streams=0",
    ),
    "-config:avg_timing_iterations=4": (
        "--avgTiming=4",
        "config.avg_timing_iterations = 4",
        "num_avg_timing_iters=4",
    ),
    "-config:max_num_tactics=16": ("--maxTactics=16", "config.max_num_tactics = 16", ""),
    "-config:tf32=off": (
        "--noTF32",
        "config.clear_flag(trt.BuilderFlag.TF32)",
        "disable_tf32=True",
    ),
    "-config:sparse_weights=on": (
        "--sparsity=enable",
        "config.set_flag(trt.BuilderFlag.SPARSE_WEIGHTS)",
        "sparse_weights=True",
    ),
    "-config:preview_runtime_activation_resize_10_10=on": (
        "--preview=+runtimeActivationResize",
        "config.set_preview_feature(trt.PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10, True)",
        "",
    ),
    "-config:tactic_source_jit_convolutions=off": (
        "--tacticSources=-JIT_CONVOLUTIONS",
        "config.set_tactic_sources(config.get_tactic_sources() & "
        "~(1 << int(trt.TacticSource.JIT_CONVOLUTIONS)))",
        "",
    ),
    "-runtime:cuda_graph=on": ("--useCudaGraph", "", ""),
}


@pytest.mark.parametrize("knob", sorted(CONFIG))
def test_other_knobs_are_options_of_their_own(tmp_path: Path, knob: str) -> None:
    printed = rebuild_commands(result(f"-a=on {knob}"), tmp_path)
    words = trtexec_words(printed)
    option, statement, keyword = CONFIG[knob]
    assert "--setBuildRoute=-a=on" in words
    assert option in words
    assert statement in python_part(printed)
    assert keyword in printed
    if not keyword:
        assert f"# note: {knob}" in printed
    # And it means the same to the one who reads it.
    read = parse_trtexec([*words[1:], "--tuningTimeOut=1"]).settings
    assert read is not None
    assert read.expr == f"-a=on {knob}"


def test_several_signed_options_are_one(tmp_path: Path) -> None:
    route = (
        "-config:tactic_source_jit_convolutions=off "
        "-config:tactic_source_edge_mask_convolutions=on"
    )
    words = trtexec_words(rebuild_commands(result(route), tmp_path))
    assert "--tacticSources=-JIT_CONVOLUTIONS,+EDGE_MASK_CONVOLUTIONS" in words
    assert not any(word.startswith("--setBuildRoute") for word in words)


@pytest.mark.parametrize(
    "knob",
    [
        "-config:l2_limit_for_tiling=half",
        "-config:preview_something_new=on",
        "-config:something_new=7",
        "-runtime:something_new=on",
    ],
)
def test_what_has_no_counterpart_is_said(tmp_path: Path, knob: str) -> None:
    printed = rebuild_commands(result(f"-a=on {knob}"), tmp_path)
    assert any(line.startswith(f"# note: {knob}") for line in printed.splitlines())
    assert knob not in " ".join(trtexec_words(printed))


def test_a_variant_is_the_file_that_is_built(tmp_path: Path) -> None:
    options = "--option 'variants=fp16:/data/half.onnx, int8:/data/int8.onnx'"
    printed = rebuild_commands(result("-model:variant=fp16", options=options), tmp_path)
    words = trtexec_words(printed)
    assert words == ["trtexec", "--onnx=/data/half.onnx", "--saveEngine=half.plan"]
    assert "config.build_route" not in printed


def test_no_gain_is_the_default_route(tmp_path: Path) -> None:
    printed = rebuild_commands(result(""), tmp_path)
    assert printed.startswith("# no gain was found: this is the default route\n")
    assert "BuildRoute" not in printed


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--shape x:1x3x8 --shape n:", ["--shapes=x:1x3x8,n:scalar"]),
        ("--shape 1x3x8", ["--shapes=INPUT:1x3x8"]),
        (
            "--min-shape x:1x8 --shape x:4x8 --max-shape x:8x8",
            ["--minShapes=x:1x8", "--optShapes=x:4x8", "--maxShapes=x:8x8"],
        ),
        (
            "--min-shape x:1x8 --max-shape x:8x8",
            ["--minShapes=x:1x8", "--optShapes=x:8x8", "--maxShapes=x:8x8"],
        ),
    ],
)
def test_shapes_are_those_of_the_study(tmp_path: Path, options: str, expected: list[str]) -> None:
    words = trtexec_words(rebuild_commands(result(options=options), tmp_path))
    assert words[3:-1] == expected


def test_profiles_are_set_in_python(tmp_path: Path) -> None:
    options = "--min-shape x:1x8 --shape x:4x8 --max-shape x:8x8"
    part = python_part(rebuild_commands(result(options=options), tmp_path))
    assert "profile.set_shape('x', (1, 8), (4, 8), (8, 8))\n" in part
    assert part.rstrip().endswith("config.add_optimization_profile(profile)")


def test_what_concerned_every_build_is_asked_for_again(tmp_path: Path) -> None:
    options = (
        "--option workspace_mib=1024 --option version_compatible=on --option refit=all "
        "--option hardware_compatibility=ampere_plus --option plugins=a.so,b.so --option device=1 "
        "--option strip_plan=on --option timing_cache=off --option 'shape_values={\"n\": [1]}'"
    )
    printed = rebuild_commands(result(options=options), tmp_path)
    words = trtexec_words(printed)
    assert words[3:-1] == [
        "--versionCompatible",
        "--device=1",
        "--hardwareCompatibilityLevel=ampere+",
        "--staticPlugins=a.so",
        "--staticPlugins=b.so",
        "--refit",
        "--stripWeights",
        "--memPoolSize=workspace:1024",
    ]
    part = python_part(printed)
    assert "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1024 << 20)" in part
    assert "trt.HardwareCompatibilityLevel.AMPERE_PLUS" in part
    assert '# note: the option shape_values={"n": [1]} of the study: set it yourself' in printed


def test_python_parts_are_python(tmp_path: Path) -> None:
    route = " ".join(["-a=on", *CONFIG])
    options = "--min-shape x:1x8 --shape x:4x8 --max-shape x:8x8 --option refit=identical"
    for backend in ("tensorrt", "tensorrt-rtx"):
        printed = rebuild_commands(result(route, backend=backend, options=options), tmp_path)
        compile(python_part(printed), "printed", "exec")
        if backend == "tensorrt":
            compile(printed[printed.index("# Torch-TensorRT:") :], "printed", "exec")


def test_tensorrt_rtx_has_no_trtexec(tmp_path: Path) -> None:
    route = "-config:tf32=off -runtime:cuda_graph=on -runtime:dynamic_shapes_kernels=eager"
    printed = rebuild_commands(result(route, backend="tensorrt-rtx"), tmp_path)
    part = python_part(printed)
    assert "import tensorrt_rtx as trt" in part
    assert "cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE" in part
    assert "trt.DynamicShapesKernelSpecializationStrategy.EAGER" in part
    assert not any(line.startswith("trtexec ") for line in printed.splitlines())
    assert "torch_tensorrt" not in printed


def test_the_library_takes_what_is_printed(tmp_path: Path) -> None:
    """The real library of the same API family, on the CPU, in a process of its own."""
    pytest.importorskip("tensorrt_rtx")
    route = " ".join(knob for knob in CONFIG if not knob.startswith("-runtime"))
    options = (
        "--min-shape x:1x8 --shape x:4x8 --max-shape x:8x8 --option workspace_mib=64 "
        "--option version_compatible=on --option refit=individual --option strip_plan=on "
        "--option exclude_lean_runtime=on --option hardware_compatibility=ampere_plus"
    )
    printed = rebuild_commands(result(route, backend="tensorrt-rtx", options=options), tmp_path)
    program = (
        "import tensorrt_rtx as trt\n"
        "builder = trt.Builder(trt.Logger(trt.Logger.ERROR))\n"
        "network = builder.create_network(0)\n"
        "network.add_input('x', trt.float32, (-1, 8))\n"
        f"{python_part(printed)}\n"
        "assert config.builder_optimization_level == 5\n"
        "assert not config.get_flag(trt.BuilderFlag.TF32)\n"
        "assert config.get_flag(trt.BuilderFlag.REFIT_INDIVIDUAL)\n"
        "assert config.num_optimization_profiles == 1\n"
        "print('taken')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.endswith("taken\n"), ran.stderr
    assert "API Usage Error" not in ran.stdout


def test_an_engine_of_onnxruntime_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    printed = rebuild_commands(result("-optimizer=basic", backend="onnxruntime"), tmp_path)
    assert f"python - {tmp_path / 'engine'} inputs.npz <<'END'" in printed
    assert "trtexec and Torch-TensorRT cannot build it" in printed
    assert "which is not there now" not in printed
    assert "which is not there now" in rebuild_commands(
        result("-optimizer=basic", backend="onnxruntime"), tmp_path / "moved"
    )


def test_another_backend_is_refused_with_its_route(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"the backend 'mine:Own'.*its route is: -a=on"):
        rebuild_commands(result("-a=on", backend="mine:Own"), tmp_path)


def test_a_command_that_cannot_be_read_costs_the_options_only(tmp_path: Path) -> None:
    broken = result()
    broken["best"]["command"] = "routewright tune 'unclosed"
    assert "--setBuildRoute=-a=on -kgen:tiling=2" in trtexec_words(
        rebuild_commands(broken, tmp_path)
    )
