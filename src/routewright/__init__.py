"""Routewright: finds the fastest build route of an inference engine within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routewright.api import tune
    from routewright.errors import RoutewrightError
    from routewright.result import TuneResult

__all__ = ["RoutewrightError", "TuneResult", "tune"]

_HOMES = {
    "RoutewrightError": "routewright.errors",
    "TuneResult": "routewright.result",
    "tune": "routewright.api",
}


def __getattr__(name: str) -> Any:
    # Worker processes import this package too and must not pay for Optuna.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
