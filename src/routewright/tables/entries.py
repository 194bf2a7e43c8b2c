"""What a table says of one engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from routewright.errors import RoutewrightError
from routewright.intervals import hodges_lehmann
from routewright.tables.measurements import Floats


class TableError(RoutewrightError):
    """A table cannot be read, or is asked for what was not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One engine as it was measured, reached by one route.

    Attributes:
        route: The route; the one that changes least where none was asked for.
        fingerprint: The engine's fingerprint; None where no engine was built.
        losses: Worst loss over all samples, by output name; empty where it was not checked.
        first_losses: The same for the first sample alone.
        reasons: Why outputs could not be compared, by output name.
        failure: Kind and message of what went wrong, or None.
        failed_step: ``"build"``, ``"check"`` or ``"timing"`` where it did; else empty.
        build_s: Seconds of this route's build.
        check_s: Seconds of checking all samples.
        first_check_s: Seconds of checking the first sample.
        baseline_ms: Latency of the default engine's runs, ``[pairs, runs]``, in ms.
        candidate_ms: Latency of this engine's runs in the same pairs of blocks.
        wall_s: Seconds that each pair took.
        candidate_first: Whether this engine went first in each pair.
        relative_latency: Candidate time / default time from all blocks; NaN where not timed.
    """

    route: str
    fingerprint: str | None
    losses: Mapping[str, float]
    first_losses: Mapping[str, float]
    reasons: Mapping[str, str]
    failure: tuple[str, str] | None
    failed_step: str
    build_s: float
    check_s: float
    first_check_s: float
    baseline_ms: Floats = field(repr=False)
    candidate_ms: Floats = field(repr=False)
    wall_s: Floats = field(repr=False)
    candidate_first: npt.NDArray[np.bool_] = field(repr=False)
    relative_latency: float

    @property
    def timed(self) -> bool:
        """Whether there is a relative latency."""
        return math.isfinite(self.relative_latency)


def log_ratios(
    baseline_ms: npt.NDArray[np.floating[Any]], candidate_ms: npt.NDArray[np.floating[Any]]
) -> npt.NDArray[np.float64]:
    """Return one log(candidate / baseline) for each pair of blocks, from the blocks' medians."""
    ratios: npt.NDArray[np.float64] = np.log(np.median(candidate_ms.astype(np.float64), axis=1))
    return ratios - np.log(np.median(baseline_ms.astype(np.float64), axis=1))


def true_log_ratio(baseline_ms: Floats, candidate_ms: Floats) -> float:
    """Return the log relative latency that all blocks together give.

    Which engine goes first alternates, and every pair in which one did is averaged with every pair
    in which the other did; of these it is the Hodges-Lehmann estimate. That is what timing with
    blocks drawn at random (:mod:`routewright.replay`) comes to in the long run.
    """
    ratios = log_ratios(baseline_ms, candidate_ms)
    if not len(ratios) or not np.isfinite(ratios).all():
        return math.nan
    couples = np.add.outer(ratios[0::2], ratios[1::2]).ravel() / 2
    return float(hodges_lehmann(couples.tolist() or ratios.tolist()))
