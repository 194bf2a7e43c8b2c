"""The installed ONNX Runtime: importing it, its limits, and its errors in one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from routewright.errors import BackendError

PROVIDER = "CPUExecutionProvider"
"""The execution provider that every session of this backend asks for."""

_PREFIX = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE_SIGNATURE = re.compile(
    r"/onnxruntime_src/\S+:\d+ .*?\)(?: const)?(?: \[with [^\]]*\])? (?=\S)", re.DOTALL
)
_SOURCE_PLACE = re.compile(r"\b[\w/]+\.(?:cc|h):\d+ \w+ ")
_OUT_OF_MEMORY = re.compile(r"bad_alloc|[Ff]ailed to allocate memory|[Oo]ut of memory")
_LONGEST_LINE = 400


def load_library() -> Any:
    """Import and return ``onnxruntime``.

    Raises:
        BackendError: It is not installed, or its import fails.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name == "onnxruntime":
            raise BackendError("onnxruntime is not installed: pip install onnxruntime") from error
        raise BackendError(f"onnxruntime cannot be imported: {one_line(error)}") from error
    except (ImportError, OSError) as error:
        raise BackendError(
            f"onnxruntime cannot be imported: {one_line(error)}; reinstall it"
        ) from error
    if PROVIDER not in onnxruntime.get_available_providers():
        raise BackendError(
            f"this onnxruntime {onnxruntime.__version__} has no {PROVIDER}, only "
            f"{', '.join(onnxruntime.get_available_providers())}; install the CPU package"
        )
    return onnxruntime


def library_file(library: Any) -> Path:
    """Return the shared library behind ``onnxruntime``."""
    from onnxruntime.capi import onnxruntime_pybind11_state as binding

    return Path(binding.__file__ or library.__file__)


def library_errors() -> tuple[type[Exception], ...]:
    """Return what a call into the library raises when the library itself refuses it.

    The binding's exception classes share no base but ``Exception``, so they are collected.
    ``ValueError`` and ``RuntimeError`` come from its thin Python wrapper and from pybind11.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as binding

    own = [
        value
        for _, value in sorted(vars(binding).items())
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    return (*own, RuntimeError, ValueError, MemoryError)


def one_line(error: BaseException | str) -> str:
    """Return the message of a library error as one line, without codes and source positions."""
    text = str(error).strip() or type(error).__name__
    text = _PREFIX.sub("", text)
    text = _SOURCE_SIGNATURE.sub("", text)
    text = _SOURCE_PLACE.sub("", text)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - 3] + "..."


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether a library error means that there was not enough memory."""
    return isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)) is not None
