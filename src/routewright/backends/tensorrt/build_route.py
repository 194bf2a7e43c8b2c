"""Giving a library its build route, and making sure that it took it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routewright.backends.base import BuildFailed
from routewright.backends.tensorrt.library import Library


def set_build_route(library: Library, config: Any, values: Mapping[str, str]) -> None:
    """Give ``config`` the build route and read it back.

    The property's setter ignores the library's own verdict, so that a refused route would leave
    a default build behind with nobody the wiser.

    Raises:
        BuildFailed: The library did not take it; the message names the knob.
    """
    if not values:
        return
    mark = library.log.mark()
    config.build_route = " ".join(f"{name}={value}" for name, value in values.items())
    taken = route_tokens(config.build_route)
    missing = {name: value for name, value in values.items() if taken.get(name) != value}
    if not missing:
        return
    said = "; ".join((*library.log.errors(mark), *library.log.warnings(mark)))
    culprits = _culprits(config, values) or missing
    named = ", ".join(f"{name}={value}" for name, value in culprits.items())
    raise BuildFailed(
        "unsupported",
        f"{library.label} did not take {named}" + (f": {said}" if said else ""),
    )


def route_tokens(text: str) -> dict[str, str]:
    """Return the values in a build route that was read back, by knob name."""
    return dict(token.split("=", 1) for token in text.split() if "=" in token)


def _culprits(config: Any, values: Mapping[str, str]) -> dict[str, str]:
    refused: dict[str, str] = {}
    for name, value in values.items():
        config.build_route = ""
        config.build_route = f"{name}={value}"
        if route_tokens(config.build_route).get(name) != value:
            refused[name] = value
    config.build_route = ""
    return refused
