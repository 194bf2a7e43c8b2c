"""The numbers of a table, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

NOTHING = -1
"""Index that stands for none."""


@dataclass(frozen=True, slots=True, eq=False)
class Measurements:
    """All numbers of a table. R routes, K live knobs, E engines, P pairs, N runs, O outputs.

    Attributes:
        values: Position of each live knob's value in the database, ``[R, K]``.
        engine: The engine of each route, ``[R]``; :data:`NOTHING` where the build failed.
        failure: Index into the card's failures, ``[R]``; :data:`NOTHING` where all went well.
        reason: Index into the card's reasons, ``[R]``; :data:`NOTHING` where outputs compare.
        build_s: Seconds of each route's build, ``[R]``.
        first_check_s: Seconds of checking the first sample, ``[R]``; NaN where not checked.
        check_s: Seconds of checking all samples, ``[R]``.
        first_losses: Losses on the first sample, ``[R, O]``; NaN where not checked.
        losses: Worst losses over all samples, ``[R, O]``.
        fingerprints: Fingerprint of each engine, ``[E]``.
        baseline_ms: Runs of the default engine, ``[E, P, N]``; NaN where not timed.
        candidate_ms: Runs of each engine, ``[E, P, N]``.
        wall_s: Seconds of each pair of blocks, ``[E, P]``.
        candidate_first: Whether the candidate went first, ``[P]``.
        repeated: Engines that were measured again, ``[Q]``.
        repeat_baseline_ms: Their runs of the default engine, ``[Q, P, N]``.
        repeat_candidate_ms: Their own, ``[Q, P, N]``.
        order: When each route was measured, as a count, ``[R]``.
        process: Number of the worker process that built each route, ``[R]``.
    """

    values: npt.NDArray[np.int16]
    engine: npt.NDArray[np.int32]
    failure: npt.NDArray[np.int16]
    reason: npt.NDArray[np.int16]
    build_s: Floats
    first_check_s: Floats
    check_s: Floats
    first_losses: Floats
    losses: Floats
    fingerprints: npt.NDArray[np.str_]
    baseline_ms: Floats
    candidate_ms: Floats
    wall_s: Floats
    candidate_first: npt.NDArray[np.bool_]
    repeated: npt.NDArray[np.int32]
    repeat_baseline_ms: Floats
    repeat_candidate_ms: Floats
    order: npt.NDArray[np.int32]
    process: npt.NDArray[np.int32]
