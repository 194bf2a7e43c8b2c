"""The options that the ONNX Runtime backend takes with a job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from routewright.errors import SettingsError
from routewright.samples import InputRange
from routewright.tensors import did_you_mean


@dataclass(frozen=True, slots=True)
class Options:
    """Backend options of a job.

    Attributes:
        threads: Threads that the user deploys with: the default route's, and the most that is
            tried. None leaves both to the machine.
        input_ranges: Smallest and largest value by input name, for calibration samples that are
            made up.
    """

    threads: int | None = None
    input_ranges: Mapping[str, InputRange] = field(default_factory=dict)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Options:
        """Check and return the options in a job.

        Raises:
            SettingsError: An option is unknown or has a wrong value.
        """
        known = [entry.name for entry in fields(cls)]
        for name in sorted(set(given) - set(known)):
            raise SettingsError(
                f"the onnxruntime backend has no option {name!r}; {did_you_mean(name, known)}"
            )
        threads = given.get("threads")
        whole = isinstance(threads, int) and not isinstance(threads, bool) and threads > 0
        if threads is not None and not whole:
            raise SettingsError(
                f"the onnxruntime option threads is {threads!r}; give a whole number above 0"
            )
        ranges = given.get("input_ranges", {})
        if not isinstance(ranges, Mapping):
            raise SettingsError(
                f"the onnxruntime option input_ranges is {ranges!r}; give name: [low, high]"
            )
        return cls(threads, {name: _range(name, pair) for name, pair in ranges.items()})


def _range(name: str, pair: Any) -> InputRange:
    try:
        low, high = pair
        if math.isfinite(low) and math.isfinite(high) and low <= high:
            return low, high
    except (TypeError, ValueError):
        pass
    raise SettingsError(
        f"the range of input {name!r} is {pair!r}; give two numbers, the smaller first"
    )
