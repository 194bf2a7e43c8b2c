"""What a knob stands for in any model, where its name counts parts of one model.

A backend may number the parts of a model that can be set apart: ``-a:part1`` to ``-a:part4`` in
one model, ``-a:part1`` alone in another. Number 3 here is no relative of number 3 there; what
they share is the *role* ``-a:part#`` and, as far as parts are numbered from a model's entry to
its exit, their position. A knob whose name ends in no number has a role of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_NUMBERED = re.compile(r"^(.*\D)(\d+)$")


@dataclass(frozen=True, slots=True)
class Role:
    """What a knob stands for.

    Attributes:
        name: The knob's name, its trailing number written as ``#``.
        position: Where among the knobs of its role it stands by its number, from 0 (first) to 1
            (last); the middle where it is the only one.
    """

    name: str
    position: float


def roles_of(knobs: Iterable[str]) -> dict[str, Role]:
    """Return the role of each knob of one model."""
    numbered: dict[str, list[tuple[int, str]]] = {}
    roles: dict[str, Role] = {}
    for knob in knobs:
        match = _NUMBERED.match(knob)
        if match is None:
            roles[knob] = Role(knob, 0.5)
        else:
            numbered.setdefault(f"{match[1]}#", []).append((int(match[2]), knob))
    for name, members in numbered.items():
        # Some may be missing: a restricted space need not list all of them.
        count = max(number for number, _ in members)
        for number, knob in members:
            roles[knob] = Role(name, round(max(number - 0.5, 0.0) / max(count, 1), 6))
    return roles
