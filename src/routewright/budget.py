"""The wall-clock budget of a study: what is used, what is left, what still fits."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from routewright.errors import BudgetError

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)")


class Budget:
    """A promise on wall-clock time, kept on a monotonic clock.

    Time in suspension counts on no machine's monotonic clock, so a suspended laptop does not use
    up its budget. A resumed study starts from what earlier runs used.

    Args:
        limit_s: Seconds for everything, confirmation included; above 0.
        now_s: The clock.
        started_s: Reading of the clock at which the command started.
        used_before_s: Seconds that earlier runs of the study used.
    """

    def __init__(
        self,
        limit_s: float,
        *,
        now_s: Callable[[], float],
        started_s: float,
        used_before_s: float = 0.0,
    ) -> None:
        if not 0 < limit_s < float("inf"):
            raise BudgetError(f"the budget must be a time above 0, not {limit_s:g} s")
        self.limit_s = limit_s
        self.now_s = now_s
        self.end_s = started_s + limit_s - used_before_s
        """Reading of the clock at which the work has to end."""
        self._counted_from_s = started_s - used_before_s

    @property
    def used_s(self) -> float:
        """Seconds used so far, earlier runs included."""
        return self.now_s() - self._counted_from_s

    @property
    def remaining_s(self) -> float:
        """Seconds left; below 0 once it is overrun."""
        return self.end_s - self.now_s()

    def curtail(self, within_s: float) -> None:
        """End the work within so many seconds; what it did not use stays for a later run."""
        self.end_s = min(self.end_s, self.now_s() + within_s)


def parse_duration_s(text: str, what: str = "the budget") -> float:
    """Return the seconds that ``text`` says, for example ``90``, ``90s``, ``2m``, ``1h30m``.

    Args:
        text: The duration.
        what: What it is of, for messages.

    Raises:
        BudgetError: It is no duration, or not above 0.

    Example:
        >>> parse_duration_s("1m30s")
        90.0
    """
    compact = text.strip().lower()
    total_s, position = 0.0, 0
    for match in _PART.finditer(compact):
        number, unit = match.groups()
        if compact[position : match.start()].strip() or unit not in _UNITS_S:
            break
        total_s += float(number) * _UNITS_S[unit]
        position = match.end()
    if not compact or compact[position:].strip():
        raise BudgetError(
            f"{what} is {text!r}, which is no duration; write for example 90s, 2m or 1h30m"
        )
    if total_s <= 0:
        raise BudgetError(f"{what} must be above 0, not {text!r}")
    return total_s


def process_started_s() -> float:
    """Return when this process started, on :func:`time.monotonic`.

    A budget covers the whole command, so the interpreter's own start counts too. Where the
    system does not tell, it is now.
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])
        since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        age_s = since_boot_s - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic()
    return time.monotonic() - max(age_s, 0.0)
