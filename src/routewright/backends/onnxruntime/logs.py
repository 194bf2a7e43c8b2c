"""What the library warns about while a session is made, caught for the notes of a build."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from routewright.backends.onnxruntime.library import load_library, one_line

_MOST_WARNINGS = 5
# Warns that a saved optimized graph is bound to the machine; it is only hashed here.
_EXPECTED = ("Serializing optimized model with Graph Optimization level",)


@contextlib.contextmanager
def caught_warnings() -> Iterator[list[str]]:
    """Collect the library's warnings of the block, one line each, without repetition.

    A library too old to hand out its log writes it to standard error as ever.
    """
    load_library()
    from onnxruntime.capi import onnxruntime_pybind11_state as binding

    caught: list[str] = []

    def take(severity: int, category: str, logid: str, place: str, message: str) -> None:
        line = one_line(message)
        known = line in caught or line.startswith(_EXPECTED)
        if not known and len(caught) < _MOST_WARNINGS:
            caught.append(line)

    register = getattr(binding, "set_default_logger_callback", None)
    if register is None:
        yield caught
        return
    register(take, 2)
    try:
        yield caught
    finally:
        register(None)
