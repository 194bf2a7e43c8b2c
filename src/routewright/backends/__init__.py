"""Backends by name; nothing of a backend is imported before it is asked for."""

from __future__ import annotations

import difflib
import importlib

from routewright.backends.base import Backend
from routewright.errors import BackendError

BACKENDS = {
    "onnxruntime": "routewright.backends.onnxruntime.backend:OnnxRuntimeBackend",
    "tensorrt": "routewright.backends.tensorrt.backend:TensorRTBackend",
    "tensorrt-rtx": "routewright.backends.tensorrt.backend:TensorRTRTXBackend",
}
"""Name to ``package.module:Class``."""


def load_backend(name: str) -> type[Backend]:
    """Return the backend class called ``name``, or ``package.module:Class`` for one's own.

    Raises:
        BackendError: There is no such backend, or it cannot be imported.
    """
    target = BACKENDS.get(name, name)
    if ":" not in target:
        close = difflib.get_close_matches(name, BACKENDS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise BackendError(
            f"there is no backend {name!r}; {hint}known: {', '.join(BACKENDS)}, "
            "or your own as package.module:Class"
        )
    module_name, _, class_name = target.partition(":")
    try:
        backend = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise BackendError(f"cannot load the backend {name!r}: {error}") from error
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        raise BackendError(f"{target} is not a backend: it does not derive from Backend")
    return backend
