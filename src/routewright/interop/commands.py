"""The commands that build a winner again, outside this project."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from routewright.errors import RoutewrightError, SettingsError
from routewright.interop.rebuild import Rebuild, model_of, rebuild_of
from routewright.interop.route_text import route_settings
from routewright.model import OnnxModel
from routewright.shapes import parse_shape_option
from routewright.tensors import Shape, shape_text

_MODULES = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}


def rebuild_commands(result: Mapping[str, Any], folder: Path) -> str:
    """Return the commands that build the winner of a result again.

    Everything that is no command is a comment, so each part can be pasted as it is: into a shell,
    or into a Python program.

    Args:
        result: A result, as :func:`routewright.result.read_result` gives it.
        folder: The output folder that it lies in.

    Raises:
        SettingsError: The backend of the result is none whose engines are known here.
    """
    lines = list(_summary(result))
    backend = str(result["backend"])
    if backend == "onnxruntime":
        lines += _onnxruntime(folder)
    elif backend in _MODULES:
        lines += _tensorrt(result, backend)
    else:
        raise SettingsError(
            f"the result is of the backend {backend!r}, and how its engines are built is known to "
            f"it alone; its route is: {result['best']['route'] or '(the default route)'}"
        )
    return "\n".join(lines) + "\n"


def _summary(result: Mapping[str, Any]) -> Sequence[str]:
    best = result["best"]
    if not best["route"]:
        return ["# no gain was found: this is the default route"]
    low, high = best["ci95"]
    return [
        f"# {' '.join(best['route'].split())}",
        f"# {best['relative_latency']:.3f} of the default route's time "
        f"(95% interval {low:.3f} to {high:.3f})",
        "# A rebuilt engine may differ from the one that was measured: measure it again, or ship "
        "the engine of the study.",
    ]


def _onnxruntime(folder: Path) -> list[str]:
    from routewright.backends.onnxruntime.engine import RUN_SCRIPT

    engine = folder / "engine"
    missing = "" if engine.is_dir() else " (which is not there now)"
    return [
        "",
        f"# ONNX Runtime: the engine is the folder {engine}{missing}, a model with its",
        "# settings; trtexec and Torch-TensorRT cannot build it. This runs it on the arrays of",
        "# inputs.npz, by input name:",
        f"python - {shlex.quote(str(engine))} inputs.npz <<'END'",
        *RUN_SCRIPT.rstrip("\n").splitlines(),
        "END",
    ]


def _tensorrt(result: Mapping[str, Any], backend: str) -> list[str]:
    route = route_settings(str(result["best"]["route"]))
    given = _given_options(str(result["best"].get("command", "")))
    options = dict(_pair(text) for text in given.get("option", ()))
    model = model_of(route, str(result["model"]["path"]), options)
    rebuild = rebuild_of(route, options)
    profile = _profile(given, str(result["model"]["path"]))
    remarks = [*rebuild.remarks, *(rebuild.elsewhere if backend == "tensorrt" else ())]
    lines = [f"# note: {remark}" for remark in remarks]
    if backend == "tensorrt":
        lines += ["", "# trtexec", _trtexec(model, rebuild, profile)]
    lines += ["", *_python(backend, rebuild, profile)]
    if backend == "tensorrt":
        lines += ["", *_torch(rebuild)]
    else:
        lines += ["", "# trtexec and Torch-TensorRT build with TensorRT, not with TensorRT-RTX."]
    return lines


_Profile = Mapping[str, tuple[Shape | None, Shape | None, Shape | None]]


def _trtexec(model: str, rebuild: Rebuild, profile: _Profile) -> str:
    words = ["trtexec", f"--onnx={model}"]
    if rebuild.build_route:
        words.append(f"--setBuildRoute={rebuild.build_route}")
    words += rebuild.trtexec
    if not _is_dynamic(profile):
        sides = {"--shapes": {name: opt for name, (_, opt, _) in profile.items()}}
    else:
        sides = {
            "--minShapes": {name: low or opt for name, (low, opt, _) in profile.items()},
            "--optShapes": {
                name: opt or high or low for name, (low, opt, high) in profile.items()
            },
            "--maxShapes": {name: high or opt for name, (_, opt, high) in profile.items()},
        }
    for option, shapes in sides.items():
        listed = [
            f"{name}:{shape_text(shape) or 'scalar'}"
            for name, shape in shapes.items()
            if shape is not None
        ]
        if listed:
            words.append(f"{option}={','.join(listed)}")
    return shlex.join([*words, f"--saveEngine={Path(model).stem}.plan"])


def _is_dynamic(profile: _Profile) -> bool:
    return any(low is not None or high is not None for low, _, high in profile.values())


def _python(backend: str, rebuild: Rebuild, profile: _Profile) -> list[str]:
    lines = [
        "# Python: after builder and network are made, before build_serialized_network",
        f"import {_MODULES[backend]} as trt",
        "",
        "config = builder.create_builder_config()",
    ]
    if rebuild.build_route:
        lines += [
            f"route = {rebuild.build_route!r}",
            "config.build_route = route",
            "# The setter says nothing when the library refuses a knob, so read it back.",
            "refused = set(route.split()) - set(config.build_route.split())",
            "if refused:",
            '    raise RuntimeError(f"TensorRT did not take {sorted(refused)}")',
        ]
    lines += rebuild.python
    if _is_dynamic(profile):
        lines.append("profile = builder.create_optimization_profile()")
        for name, (low, opt, high) in profile.items():
            lines.append(
                f"profile.set_shape({name!r}, {low or opt}, {opt or high or low}, {high or opt})"
            )
        lines.append("config.add_optimization_profile(profile)")
    if rebuild.runtime and backend == "tensorrt-rtx":
        lines += ["# when the engine is loaded", "runtime_config = engine.create_runtime_config()"]
        lines += rebuild.runtime
        lines.append("context = engine.create_execution_context(runtime_config)")
    return lines


def _torch(rebuild: Rebuild) -> list[str]:
    keywords = [f"build_route={rebuild.build_route!r}"] if rebuild.build_route else []
    keywords += rebuild.torch
    return [
        "# Torch-TensorRT: exported is the torch.export of the model, inputs are its examples",
        "import torch_tensorrt",
        "",
        "compiled = torch_tensorrt.dynamo.compile(",
        "    exported,",
        "    arg_inputs=inputs,",
        *(f"    {keyword}," for keyword in keywords),
        ")",
    ]


def _given_options(command: str) -> dict[str, list[str]]:
    """Return the values of each option in the command that a result names."""
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    given: dict[str, list[str]] = {}
    for option, value in itertools.pairwise(words):
        if option.startswith("--"):
            given.setdefault(option.removeprefix("--"), []).append(value)
    return given


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(), value.strip()


def _profile(given: Mapping[str, Sequence[str]], model: str) -> _Profile:
    """Return smallest, timed and largest shape by input, as far as they were given."""
    sides: list[dict[str, Shape]] = []
    for options in (("min-shape",), ("shape", "opt-shape"), ("max-shape",)):
        texts = [text for option in options for text in given.get(option, ())]
        sides.append(dict(_named_shape(text, model) for text in texts))
    names = dict.fromkeys(name for side in sides for name in side)
    return {name: (sides[0].get(name), sides[1].get(name), sides[2].get(name)) for name in names}


def _named_shape(text: str, model: str) -> tuple[str, Shape]:
    name, shape = parse_shape_option(text)
    if name:
        return name, shape
    try:
        return OnnxModel.open(Path(model)).inputs[0].name, shape
    except (RoutewrightError, IndexError):
        return "INPUT", shape
