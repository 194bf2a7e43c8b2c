"""The user's own accuracy metric: found, called, and its answer checked."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import SupportsFloat

import numpy as np

from routewright.errors import SettingsError
from routewright.tensors import Array

Metric = Callable[[dict[str, Array], dict[str, Array]], object]
"""Gets reference and actual outputs by name, read-only; returns one loss, 0 for perfect."""


@lru_cache(maxsize=32)
def load_metric(target: str) -> Metric:
    """Return the function that ``package.module:function`` names.

    The current directory is searched first.

    Raises:
        SettingsError: The text is malformed, the module cannot be imported, or it has no such
            function.
    """
    module_name, colon, attribute = target.partition(":")
    parts = (*module_name.split("."), *attribute.split("."))
    if not colon or not all(part.isidentifier() for part in parts):
        raise SettingsError(
            f"{target!r} is not a metric; write package.module:function, for example "
            "my_metrics:top1_loss"
        )
    found: object = _import(module_name, target)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise SettingsError(f"the metric {target} cannot be used: {module_name} has no {part}")
        found = getattr(found, part)
    if not callable(found):
        raise SettingsError(f"the metric {target} cannot be used: it is not a function")
    return found


def call_metric(
    target: str, reference: Mapping[str, Array], actual: Mapping[str, Array]
) -> tuple[float, str | None]:
    """Return the metric's loss, or infinity and the reason why there is none.

    There is none where the metric fails or returns anything but a finite number from 0 on.

    Raises:
        SettingsError: There is no such metric.
    """
    metric = load_metric(target)
    try:
        value = metric(_read_only(reference), _read_only(actual))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
        return math.inf, f"the metric {target} raised {_describe(error)}"
    loss = _as_number(value)
    if loss is None:
        kind = type(value).__name__
        return math.inf, f"the metric {target} returned {kind}, which is not a number"
    if not (math.isfinite(loss) and loss >= 0):
        return math.inf, f"the metric {target} returned {loss}, which is not a loss from 0 on"
    return loss, None


def _import(module_name: str, target: str) -> object:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise SettingsError(
            f"the metric {target} cannot be imported: {_describe(error)}"
        ) from error
    finally:
        # Last from here on: found by what the metric imports later, hiding nothing.
        if folder in sys.path:
            sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)


def _as_number(value: object) -> float | None:
    if isinstance(value, np.ndarray):
        value = value[()] if value.ndim == 0 else None
    # A boolean most likely says "good", of which 1 is the opposite of a loss.
    if isinstance(value, bool | np.bool_ | str | bytes) or not isinstance(value, SupportsFloat):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _read_only(outputs: Mapping[str, Array]) -> dict[str, Array]:
    views = {name: array.view() for name, array in outputs.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


def _describe(error: BaseException) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
