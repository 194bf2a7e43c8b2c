"""Routes and route expressions as text, where there is no knob database to check them against."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Setting = tuple[str, str | tuple[str, ...]]
"""A knob and its value, or its values where an expression varies it."""

_TOKEN = re.compile(r"([^\s=]+)=(\[[^\]]*\]|\S*)|\S+")


def route_settings(text: str) -> dict[str, str]:
    """Return the values in a route by knob name, in the order written.

    A token without ``=`` is a name with an empty value; of a repeated knob the last value counts,
    as compilers have it.
    """
    settings: dict[str, str] = {}
    for token in text.split():
        name, _, value = token.partition("=")
        settings[name] = value
    return settings


def expression_settings(text: str) -> list[Setting]:
    """Return the knobs of a route expression in the order written, values listed as tuples."""
    settings: list[Setting] = []
    for match in _TOKEN.finditer(text):
        name, value = match.group(1) or match.group(0), match.group(2) or ""
        if value.startswith("["):
            listed = (part.strip() for part in value.strip("[]").split("|"))
            settings.append((name, tuple(part for part in listed if part)))
        else:
            settings.append((name, value))
    return settings


class RouteReader:
    """Writes routes as this project does: knobs at their default left out, in one order.

    Args:
        defaults: Default by knob, in the compiler's order; knobs that it does not name come last.
    """

    def __init__(self, defaults: Mapping[str, str]) -> None:
        self.defaults = defaults
        self._positions = {name: position for position, name in enumerate(defaults)}

    def canonical(self, settings: Mapping[str, str]) -> str:
        """Return the route of these settings; empty for the default route."""
        last = len(self._positions)
        changed = [name for name in settings if self.defaults.get(name) != settings[name]]
        changed.sort(key=lambda name: self._positions.get(name, last))
        return " ".join(f"{name}={settings[name]}" for name in changed)


def full_route(
    settings: Mapping[str, str], knobs: Sequence[str], defaults: Mapping[str, str]
) -> str:
    """Return a route as trtexec writes it: every knob of ``knobs`` with its value, in that order.

    A knob that is set and not among ``knobs`` comes last; one of which neither value nor default
    is known is left out.
    """
    values = {name: settings.get(name, defaults.get(name)) for name in knobs}
    values |= {name: value for name, value in settings.items() if name not in values}
    return " ".join(f"{name}={value}" for name, value in values.items() if value is not None)
