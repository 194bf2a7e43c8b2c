"""Accuracy losses between a reference output and an engine's; 0 is perfect, larger is worse.

All are computed in double precision whatever the outputs' type, block by block, and without
overflow: the loss of finite outputs is a finite number. Elements that are the same NaN or
infinity in both outputs are left out; a loss must not be asked for where they differ in that, see
:func:`non_finite`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routewright.tensors import COMPLEX_DTYPES, FLOAT_DTYPES, Array, as_strings, onnx_dtype

# Small enough for the processor's cache, which makes the losses several times faster.
_BLOCK_ELEMENTS = 1 << 14
_LARGEST = sys.float_info.max


DEFAULT_TOLERANCE = 1e-5
"""What trtexec takes for both tolerances too."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What l0 calls equal: ``|actual - reference| <= atol + rtol * |reference|``."""

    atol: float = DEFAULT_TOLERANCE
    rtol: float = DEFAULT_TOLERANCE


Loss = Callable[[Array, Array, Tolerance], float]


def l0(reference: Array, actual: Array, tolerance: Tolerance) -> float:
    """Share of elements outside ``atol + rtol * |reference|``."""
    outside = 0
    count = 0
    for block in _blocks(reference, actual):
        with np.errstate(over="ignore", under="ignore"):
            allowed = tolerance.atol + tolerance.rtol * np.abs(block.reference)
        outside += int(np.count_nonzero(block.distance() > allowed))
        count += block.reference.size
    return outside / count if count else 0.0


def l1(reference: Array, actual: Array, tolerance: Tolerance) -> float:
    """Mean of the absolute differences."""
    return _mean_power(reference, actual, 1)


def l2(reference: Array, actual: Array, tolerance: Tolerance) -> float:
    """Mean of the squared differences."""
    return _mean_power(reference, actual, 2)


def linf(reference: Array, actual: Array, tolerance: Tolerance) -> float:
    """Largest absolute difference."""
    blocks = _blocks(reference, actual)
    return max((float(block.distance().max()) for block in blocks), default=0.0)


def cos(reference: Array, actual: Array, tolerance: Tolerance) -> float:
    """1 - cosine similarity of the outputs as vectors, from 0 to 2.

    Two zero vectors are equal (0); a zero vector against another is orthogonal (1).
    """
    scales = [0.0, 0.0]
    for block in _blocks(reference, actual):
        for side, values in enumerate(block.vectors()):
            scales[side] = max(scales[side], float(np.abs(values).max()))
    if 0.0 in scales:
        return 0.0 if scales == [0.0, 0.0] else 1.0
    squares: tuple[list[float], list[float]] = ([], [])
    for block in _blocks(reference, actual):
        for side, values in enumerate(block.vectors()):
            squares[side].append(float(np.square(_divided(values, scales[side])).sum()))
    norms = [math.sqrt(math.fsum(parts)) for parts in squares]
    # For unit vectors, 1 - a.b is |a - b|**2 / 2, which keeps its digits where a and b are close.
    differences = []
    for block in _blocks(reference, actual):
        left, right = (
            _divided(values, scales[side]) / norms[side]
            for side, values in enumerate(block.vectors())
        )
        differences.append(float(np.square(left - right).sum()))
    return min(math.fsum(differences) / 2.0, 2.0)


LOSSES: dict[str, Loss] = {"l0": l0, "l1": l1, "l2": l2, "linf": linf, "cos": cos}
"""Losses by the name that users give."""


def unequal_share(reference: Array, actual: Array) -> float:
    """Share of unequal elements; the loss of integer, boolean and string outputs.

    Raises:
        ValueError: An object array holds something other than strings.
    """
    if reference.size == 0:
        return 0.0
    if onnx_dtype(reference.dtype) == "string":
        reference, actual = as_strings(reference), as_strings(actual)
    return int(np.count_nonzero(reference != actual)) / reference.size


def identical(reference: Array, actual: Array) -> bool:
    """Whether two outputs of one shape are equal bit by bit, any NaN being equal to any other.

    An output and a reference of a wider floating-point type are compared in the wider type.
    """
    if not _is_numeric(reference):
        return unequal_share(reference, actual) == 0.0
    for left, right in _raw_blocks(reference, actual):
        parts = (left.view(np.float64), right.view(np.float64))
        same_bits = parts[0].view(np.uint64) == parts[1].view(np.uint64)
        if not np.all(same_bits | (np.isnan(parts[0]) & np.isnan(parts[1]))):
            return False
    return True


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Elements that are NaN or infinite in one output or both.

    Attributes:
        same: How many are the same NaN or infinity in both.
        only_actual: How many are NaN or infinite in the engine's output alone, or differ in which
            of the two they are.
        only_reference: How many are so in the reference alone.
        first: Index of the first element that differs in this, None where none does.
    """

    same: int
    only_actual: int
    only_reference: int
    first: tuple[int, ...] | None


def non_finite(reference: Array, actual: Array) -> NonFinite:
    """Count the elements that are NaN or infinite in two numeric outputs of one shape."""
    same = only_actual = only_reference = 0
    first = None
    position = 0
    for left, right in _raw_blocks(reference, actual):
        # Finite data, the usual case, is done with here.
        if not (np.isfinite(left).all() and np.isfinite(right).all()):
            bad_left, bad_right = ~np.isfinite(left), ~np.isfinite(right)
            agree = _same_non_finite(left, right)
            differ = (bad_left | bad_right) & ~agree
            same += int(np.count_nonzero(agree))
            only_reference += int(np.count_nonzero(differ & ~bad_right))
            only_actual += int(np.count_nonzero(differ & bad_right))
            if first is None and differ.any():
                flat_index = position + int(np.argmax(differ))
                first = tuple(int(i) for i in np.unravel_index(flat_index, reference.shape))
        position += left.size
    return NonFinite(same, only_actual, only_reference, first)


@dataclass(frozen=True, slots=True)
class _Block:
    """The finite elements of a stretch of both outputs, in double precision, flat."""

    reference: Array
    actual: Array

    def distance(self) -> npt.NDArray[np.float64]:
        """Return the absolute differences, no larger than the largest float."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            distance = np.abs(self.actual - self.reference)
        limited: npt.NDArray[np.float64] = np.minimum(distance, _LARGEST)
        return limited

    def vectors(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return both as real vectors; a complex number is two components."""
        return self.reference.view(np.float64), self.actual.view(np.float64)


def _mean_power(reference: Array, actual: Array, power: int) -> float:
    largest = linf(reference, actual, Tolerance())
    if largest == 0.0:
        return 0.0
    sums: list[float] = []
    count = 0
    for block in _blocks(reference, actual):
        share = _divided(block.distance(), largest)
        sums.append(float((share if power == 1 else np.square(share)).sum()))
        count += share.size
    # From small to large, so that no product on the way overflows unless the result does.
    mean = math.fsum(sums) / count
    for _ in range(power):
        mean *= largest
    return min(mean, _LARGEST)


def _divided(values: npt.NDArray[np.float64], scale: float) -> npt.NDArray[np.float64]:
    with np.errstate(under="ignore"):
        divided: npt.NDArray[np.float64] = values / scale
    return divided


def _is_numeric(array: Array) -> bool:
    return onnx_dtype(array.dtype) in FLOAT_DTYPES | COMPLEX_DTYPES


def _blocks(reference: Array, actual: Array) -> Iterator[_Block]:
    for left, right in _raw_blocks(reference, actual):
        if not (np.isfinite(left).all() and np.isfinite(right).all()):
            kept = ~_same_non_finite(left, right)
            left, right = left[kept], right[kept]
        if left.size:
            yield _Block(left, right)


def _raw_blocks(reference: Array, actual: Array) -> Iterator[tuple[Array, Array]]:
    names = {onnx_dtype(reference.dtype), onnx_dtype(actual.dtype)}
    wide: npt.DTypeLike = np.complex128 if names & COMPLEX_DTYPES else np.float64
    left, right = reference.reshape(-1), actual.reshape(-1)
    for start in range(0, left.size, _BLOCK_ELEMENTS):
        stretch = slice(start, start + _BLOCK_ELEMENTS)
        with np.errstate(invalid="ignore"):
            yield left[stretch].astype(wide), right[stretch].astype(wide)


def _same_non_finite(left: Array, right: Array) -> npt.NDArray[np.bool_]:
    both_nan = np.isnan(left) & np.isnan(right)
    same: npt.NDArray[Any] = both_nan | (~np.isfinite(left) & (left == right))
    return same
