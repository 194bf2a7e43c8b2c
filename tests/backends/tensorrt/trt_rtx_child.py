"""Child process: build with the real TensorRT-RTX on the CPU and print what came of it as JSON.

Usage: ``python trt_rtx_child.py SCENARIO FOLDER``. Loading an engine without a device ends the
interpreter by a segmentation fault, so nothing of this runs in the tests' own process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorrt_rtx
import trt_models
from trt_double import TensorRTDouble

from routewright.backends.base import BuildFailed, Job
from routewright.backends.tensorrt.backend import TensorRTBackend, TensorRTRTXBackend
from routewright.backends.tensorrt.build_route import set_build_route
from routewright.backends.tensorrt.engine import plan_refusal
from routewright.backends.tensorrt.library import Library, load_library
from routewright.backends.tensorrt.network import add_profiles, parse_network
from routewright.backends.tensorrt.progress import BuildWatch, make_monitor
from routewright.errors import RoutewrightError
from routewright.routes import Route

TARGET = "SM89"
SHAPES = {"x": (2, 16)}


def backend(
    folder: Path,
    model: Path,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    profiles: Any = (),
    library: Library | None = None,
    **options: Any,
) -> TensorRTBackend:
    """Return a backend that builds for a device that is not here."""
    given = {"compute_capability": TARGET, "cache_folder": str(folder / "cache"), **options}
    job = Job(
        model=model,
        work_folder=folder,
        shapes=SHAPES if shapes is None else shapes,
        profiles=profiles,
        options=given,
    )
    kind = TensorRTRTXBackend if library is None else TensorRTBackend
    return kind(job, library=library)


def built(made: TensorRTBackend, route: str, folder: Path) -> dict[str, Any]:
    """Build the plan of a route; return its size and notes, or why it failed."""
    try:
        plan = made.build_plan(Route.parse(route, made.knob_database()), folder)
    except BuildFailed as error:
        return {"kind": error.kind, "message": str(error)}
    return {"size": plan.size, "notes": list(plan.notes), "file": plan.path.stat().st_size}


def refused(make: Callable[[], Any]) -> dict[str, str]:
    """Return the error that ``make`` raises."""
    try:
        make()
    except RoutewrightError as error:
        return {"type": type(error).__name__, "message": str(error)}
    return {"type": "", "message": "nothing was raised"}


def config_knobs(folder: Path) -> Any:
    """Build with every value of every builder-configuration knob."""
    made = backend(folder, trt_models.mlp(folder / "m.onnx"))
    database = made.knob_database()
    results = {
        f"{knob.name}={value}": built(made, f"{knob.name}={value}", folder)
        for knob in database
        if knob.name.startswith("-config:")
        for value in knob.values
    }
    return {
        "knobs": {knob.name: [list(knob.values), knob.default] for knob in database},
        "skipped": list(database.skipped),
        "results": results,
        "environment": made.environment(),
        "left": sorted(path.name for path in folder.iterdir()),
    }


def parsing(folder: Path) -> Any:
    """Try models that the library does not take."""
    (folder / "junk.onnx").write_bytes(b"no model" * 50)
    return {
        "two bad nodes": refused(
            lambda: backend(folder, trt_models.two_bad_nodes(folder / "b.onnx"), shapes={})
        ),
        "junk": refused(lambda: backend(folder, folder / "junk.onnx", shapes={})),
        "missing": refused(lambda: backend(folder, folder / "absent.onnx", shapes={})),
        "strings": refused(
            lambda: backend(folder, trt_models.strings(folder / "s.onnx"), shapes={})
        ),
        "unknown target": refused(
            lambda: backend(folder, trt_models.mlp(folder / "m.onnx"), compute_capability="SM999")
        ),
        "missing plugin": refused(
            lambda: backend(
                folder, trt_models.mlp(folder / "m.onnx"), plugins=[str(folder / "junk.onnx")]
            )
        ),
    }


def shapes(folder: Path) -> Any:
    """Build with open shapes, several profiles, values that decide shapes, outside weights."""
    mlp = trt_models.mlp(folder / "m.onnx")
    (folder / "outside").mkdir()
    outside = trt_models.mlp(folder / "outside" / "m.onnx", external=True)
    small = {"x": ((1, 16), (2, 16), (4, 16))}
    large = {"x": ((5, 16), (8, 16), (64, 16))}
    reshape = trt_models.reshape_by_values(folder / "r.onnx")
    values = {"shape": {"min": [1, 1], "opt": [4, 6], "max": [24, 24]}}
    return {
        "one profile": built(backend(folder, mlp, profiles=(small,)), "", folder),
        "two profiles": built(backend(folder, mlp, profiles=(small, large)), "", folder),
        "exact": built(backend(folder, mlp), "", folder),
        "outside weights": built(backend(folder, outside), "", folder),
        "values": built(backend(folder, reshape, shapes={}, shape_values=values), "", folder),
        "no values": refused(lambda: backend(folder, reshape, shapes={})),
        "no shape": refused(lambda: backend(folder, mlp, shapes={})),
        "outside": refused(lambda: backend(folder, mlp, shapes={"x": (9, 16)}, profiles=(small,))),
        "half": built(backend(folder, trt_models.mlp(folder / "h.onnx", half=True)), "", folder),
    }


def deadlines(folder: Path) -> Any:
    """Cancel builds: before they begin, in their midst, and not at all."""
    made = backend(folder, trt_models.mlp(folder / "m.onnx"))
    made.set_build_deadline(time.monotonic() - 1)
    passed = built(made, "", folder)
    left = sorted(path.name for path in folder.glob("*.plan"))
    made.set_build_deadline(time.monotonic() + 600)
    ample = built(made, "", folder)
    made.set_build_deadline(None)
    return {
        "passed": passed,
        "left": left,
        "ample": ample,
        "none": built(made, "", folder),
        "in the midst": stopped_after(20, folder / "m.onnx"),
    }


def stopped_after(steps: int, model: Path) -> dict[str, Any]:
    """Build with a watch whose time is up after ``steps`` steps, not by any clock."""

    class CountingWatch(BuildWatch):
        def may_go_on(self) -> bool:
            if self.steps >= steps:
                self.deadline_s = time.monotonic()
            return super().may_go_on()

    library = load_library("tensorrt-rtx")
    parsed = parse_network(library, library.ask_capabilities(library.new_builder()), model)
    config = parsed.builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(tensorrt_rtx.ComputeCapability.SM89, 0)
    profile = {"x": ((2, 16), (2, 16), (2, 16))}
    add_profiles(library, parsed, config, [profile])
    watch = CountingWatch(None)
    monitor = make_monitor(tensorrt_rtx, watch)
    config.progress_monitor = monitor
    serialized = parsed.builder.build_serialized_network(parsed.network, config)
    return {"built": serialized is not None, "steps": watch.steps, "stopped": watch.stopped}


def variants(folder: Path) -> Any:
    """Build a variant of the model, and refuse one that is another model."""
    original = trt_models.mlp(folder / "m.onnx")
    half = trt_models.mlp(folder / "half.onnx", half=True)
    other = trt_models.int64_sum(folder / "other.onnx")
    made = backend(folder, original, variants={"fp16": str(half)})
    return {
        "knob": list(made.knob_database()["-model:variant"].values),
        "original": built(made, "", folder),
        "fp16": built(made, "-model:variant=fp16", folder),
        "other model": refused(lambda: backend(folder, original, variants={"x": str(other)})),
    }


def no_device(folder: Path) -> Any:
    """Ask for what needs a device where there is none."""
    mlp = trt_models.mlp(folder / "m.onnx")
    made = backend(folder, mlp)
    try:
        made.build(Route(), folder)
        message = "built"
    except BuildFailed as error:
        message = str(error)
    job = Job(model=mlp, work_folder=folder, shapes=SHAPES)
    return {
        "build": message,
        "backend": refused(lambda: TensorRTRTXBackend(job)),
        "full": refused(lambda: TensorRTBackend(job)),
        "health": made.health(),
    }


def refit(folder: Path) -> Any:
    """Build refittable plans; of the three modes, two need a device to build."""
    mlp = trt_models.mlp(folder / "m.onnx")
    return {
        mode: built(backend(folder, mlp, refit=mode), "", folder)
        for mode in ("none", "individual")
    }


def damaged_plan(folder: Path) -> Any:
    """Ask the library about a plan before it is loaded."""
    library = Library(tensorrt_rtx, "TensorRT-RTX")
    runtime = tensorrt_rtx.Runtime(library.logger)
    return {"damaged": plan_refusal(library, runtime, b"no plan" * 100)}


def build_routes(folder: Path) -> Any:
    """Build routes, on the double of a full TensorRT library."""
    module = TensorRTDouble(tensorrt_rtx, silent={"-reshape_ppg"})
    library = Library(module, "TensorRT")
    mlp = trt_models.mlp(folder / "m.onnx")
    half = trt_models.mlp(folder / "half.onnx", half=True)
    made = backend(folder, mlp, library=library, variants={"fp16": str(half)})
    database = made.knob_database()
    mixed = (
        "-conv_lowering=on -kgen:tiling=2 -config:builder_optimization_level=5 "
        "-runtime:cuda_graph=on -model:variant=fp16"
    )
    results = {
        "default": built(made, "", folder),
        "mixed": built(made, mixed, folder),
        "silent": built(made, "-kgen:tiling=0 -reshape_ppg=off", folder),
    }
    # A database of another version lets a route through that this library does not know.
    foreign = Route((("-from_another_version", "1"), ("-kgen:tiling", "2")))
    try:
        made.build_plan(foreign, folder)
    except BuildFailed as error:
        results["foreign"] = {"kind": error.kind, "message": str(error)}
    builder = library.new_builder()
    try:
        set_build_route(
            library, builder.create_builder_config(), {"-kgen:tiling": "2", "-gone": "1"}
        )
    except BuildFailed as error:
        results["refused aloud"] = {"kind": error.kind, "message": str(error)}
    return {
        "results": results,
        "routes": module.routes_set,
        "kinds": [[knob.name, str(knob.kind)] for knob in database],
        "listed": len(json.loads(made.capabilities.build_routes)["tuner_options"]),
        "tuner_version": made.environment()["tuner_version"],
        "times_tactics": made.capabilities.times_tactics,
        "caches": sorted(path.name for path in (folder / "cache").iterdir()),
        "cache": next((folder / "cache").glob("*.timing")).read_text(),
    }


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        build_routes,
        config_knobs,
        damaged_plan,
        deadlines,
        no_device,
        parsing,
        refit,
        shapes,
        variants,
    )
}

if __name__ == "__main__":
    answer = SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(answer), flush=True)
