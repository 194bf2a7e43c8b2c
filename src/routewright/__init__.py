"""Routewright: finds the fastest build route of an inference engine within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routewright.api import tune
    from routewright.errors import RoutewrightError
    from routewright.report.source import StudyView, read_study
    from routewright.result import TuneResult

__all__ = ["RoutewrightError", "StudyView", "TuneResult", "read_study", "tune"]

_HOMES = {
    "RoutewrightError": "routewright.errors",
    "StudyView": "routewright.report.source",
    "TuneResult": "routewright.result",
    "read_study": "routewright.report.source",
    "tune": "routewright.api",
}


def __getattr__(name: str) -> Any:
    # Worker processes import this package too and must not pay for Optuna.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
