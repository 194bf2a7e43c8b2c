"""What the TensorRT tests share: stand-in libraries, child processes, when to skip."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
REAL_LIBRARY = "tensorrt_rtx"
BINDINGS = "tensorrt_bindings"

# The nine C functions that the binding module of TensorRT 11 needs, by library.
STAND_INS = {
    "libnvinfer.so.11": (
        "createInferBuilder_INTERNAL",
        "createInferRefitter_INTERNAL",
        "createInferRuntime_INTERNAL",
        "getBuilderPluginRegistry",
        "getPluginRegistry",
    ),
    "libnvinfer_plugin.so.11": ("initLibNvInferPlugins",),
    "libnvonnxparser.so.11": (
        "createNvOnnxParserRefitter_INTERNAL",
        "createNvOnnxParser_INTERNAL",
        "getNvOnnxParserVersion",
    ),
}


def in_ci() -> bool:
    """Whether nothing may be skipped."""
    return os.environ.get("CI") == "true"


def require(module: str) -> None:
    """Skip the test where ``module`` is not installed; fail in CI."""
    if importlib.util.find_spec(module) is None:
        _missing(f"{module} is not installed")


def require_compiler() -> str:
    """Return the C compiler; skip the test where there is none, fail in CI."""
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return found
    _missing("there is no C compiler")
    raise AssertionError


def build_stand_ins(folder: Path) -> None:
    """Compile libraries with the nine functions, each of which returns a null pointer."""
    compiler = require_compiler()
    for library, functions in STAND_INS.items():
        source = folder / f"{library}.c"
        source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in functions))
        subprocess.run(
            [
                compiler,
                "-shared",
                "-fPIC",
                f"-Wl,-soname,{library}",
                "-o",
                folder / library,
                source,
            ],
            check=True,
        )


def run_child(
    script: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    may_crash_at_exit: bool = False,
    timeout_s: float = 300,
) -> Any:
    """Run ``script`` beside this file in a child process and return the JSON on its last line.

    Args:
        script: File name.
        arguments: Its arguments.
        environment: Variables to add.
        may_crash_at_exit: Whether the child may die after it has written its answer. Loading an
            engine where there is no device does that to the interpreter.
        timeout_s: Seconds after which it is killed.
    """
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines, f"{script} said nothing: {done.stderr[-2000:]}"
    assert may_crash_at_exit or done.returncode == 0, done.stderr[-2000:]
    return json.loads(lines[-1])


@functools.cache
def surface(module: str, library_folder: Path | None = None) -> dict[str, Any]:
    """Return classes, members and enum values of a binding module; see ``surface_child.py``."""
    variables = {} if library_folder is None else {"LD_LIBRARY_PATH": str(library_folder)}
    found: dict[str, Any] = run_child("trt_surface_child.py", module, environment=variables)
    return found


def _missing(reason: str) -> None:
    if in_ci():
        pytest.fail(f"{reason}, and in CI nothing is skipped", pytrace=False)
    pytest.skip(reason)
