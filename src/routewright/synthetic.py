"""Inputs made up from their declarations, for want of real ones."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import psutil

from routewright.errors import SampleError
from routewright.tensors import (
    COMPLEX_DTYPES,
    INTEGER_DTYPES,
    NUMPY_DTYPES,
    Array,
    Shape,
    TensorSpec,
    did_you_mean,
    number_range,
    printable,
)

InputRange = tuple[int, int] | tuple[float, float]
"""Smallest and largest value, both included."""

_CHUNK_ELEMENTS = 1 << 20
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")


def parse_input_range(text: str, specs: Sequence[TensorSpec]) -> tuple[str, InputRange]:
    """Return the input and the range of ``name=lo:hi``; ``lo:hi`` alone means the only input.

    The text is split at its last equals sign. ``lo`` and ``hi`` are whole numbers for integer and
    boolean inputs.

    Raises:
        SampleError: It is malformed, the input is unknown or holds no numbers, lo > hi, or a
            limit is beyond what the input's type can hold.
    """
    name, equals, limits = text.strip().rpartition("=")
    if not equals and len(specs) == 1:
        name = specs[0].name
    elif not equals:
        raise SampleError(f"{text!r} is not an input range; write name=lo:hi")
    spec = next((spec for spec in specs if spec.name == name), None)
    if spec is None:
        raise SampleError(
            f"the model has no input {name!r}; {did_you_mean(name, [s.name for s in specs])}"
        )
    low, colon, high = limits.partition(":")
    if not colon:
        raise SampleError(
            f"{text!r} is not an input range; write {printable(name)}=lo:hi, the same number "
            "twice for a constant"
        )
    return name, _checked_range(spec, _number(low, spec), _number(high, spec))


def generate_inputs(
    specs: Sequence[TensorSpec],
    shapes: Mapping[str, Shape],
    *,
    count: int,
    seed: int,
    ranges: Mapping[str, InputRange],
) -> tuple[tuple[dict[str, Array], ...], tuple[str, ...]]:
    """Return ``count`` samples and what a reader should know about them, one line each.

    An input's values depend on the seed, the sample's number and the input's name alone.
    Floating-point inputs are uniform over [-1, 1), as ``trtexec`` makes them up: on inputs of one
    sign only, detectors answer with next to nothing, and a relative loss then compares rounding
    errors. Inputs with ``mask`` in their name are ones. Integers are 0 or 1, which no embedding
    table is too small for, and a single integer is 1. Booleans are random. ``ranges`` overrides
    all of it.

    Raises:
        SampleError: An input is of a type that cannot be made up, a range does not fit its
            input, or the samples would not fit into memory.
    """
    if count < 1:
        raise SampleError(f"the number of samples is {count}; it must be at least 1")
    if seed < 0:
        raise SampleError(f"the seed is {seed}; it must not be negative")
    known = {spec.name: spec for spec in specs}
    for name in sorted(set(ranges) - set(known)):
        raise SampleError(
            f"there is a range for {name!r}, which is no input; {did_you_mean(name, known)}"
        )
    for spec in specs:
        _check_generatable(spec)
    if not specs:
        return ({},), ()
    checked = {name: _checked_range(known[name], *ranges[name]) for name in ranges}
    _check_memory(specs, shapes, count)
    samples = tuple(
        {
            spec.name: _generate(
                spec, shapes[spec.name], checked.get(spec.name), _generator(seed, index, spec)
            )
            for spec in specs
        }
        for index in range(count)
    )
    notes = [f"inputs are made up at random (seed {seed}), not real data"]
    for spec in specs:
        if spec.name not in checked and spec.dtype in INTEGER_DTYPES and not _is_mask(spec):
            notes.append(_integer_note(spec, shapes[spec.name]))
    return samples, tuple(notes)


def _integer_note(spec: TensorSpec, shape: Shape) -> str:
    if math.prod(shape) == 1:
        return (
            f"input {spec.name!r} is a single integer and was set to 1; if it controls the model "
            f"(a rate, a length), set it with --input-range {printable(spec.name)}=lo:hi"
        )
    return (
        f"input {spec.name!r} holds integers 0 and 1 only; set others with "
        f"--input-range {printable(spec.name)}=lo:hi"
    )


def _check_generatable(spec: TensorSpec) -> None:
    if spec.dtype in NUMPY_DTYPES and spec.dtype != "string":
        return
    raise SampleError(
        f"input {spec.name!r} is of type {spec.dtype}, which cannot be made up; supply data for "
        "it with --samples"
    )


def _check_memory(specs: Sequence[TensorSpec], shapes: Mapping[str, Shape], count: int) -> None:
    free = psutil.virtual_memory().available
    for spec in specs:
        size = math.prod(shapes[spec.name]) * NUMPY_DTYPES[spec.dtype].itemsize * count
        if size > free:
            raise SampleError(
                f"{count} samples of input {spec.name!r} take {size / 2**30:.1f} GiB and "
                f"{free / 2**30:.1f} GiB are free; give a smaller --shape or fewer samples"
            )


def _number(text: str, spec: TensorSpec) -> int | float:
    text = text.strip()
    whole = spec.dtype in INTEGER_DTYPES or spec.dtype == "bool"
    if whole and _INTEGER.fullmatch(text):
        return int(text)
    try:
        if not whole:
            return float(text)
    except ValueError:
        pass
    kind = "a whole number" if whole else "a number"
    raise SampleError(f"the range of input {spec.name!r} has {text!r} where {kind} is needed")


def _checked_range(spec: TensorSpec, low: int | float, high: int | float) -> InputRange:
    if spec.dtype not in NUMPY_DTYPES or spec.dtype == "string":
        raise SampleError(
            f"input {spec.name!r} is of type {spec.dtype}, which has no range; supply data for "
            "it with --samples"
        )
    smallest, largest = (0, 1) if spec.dtype == "bool" else number_range(spec.dtype)
    whole = spec.dtype in INTEGER_DTYPES or spec.dtype == "bool"
    if whole and (int(low) != low or int(high) != high):
        raise SampleError(
            f"the range {low}:{high} of input {spec.name!r} must be whole numbers, as the input "
            f"is of type {spec.dtype}"
        )
    # Written so that a NaN is refused as well.
    if not low <= high:
        raise SampleError(
            f"the range {low}:{high} of input {spec.name!r} is empty; write the smaller first"
        )
    if not (smallest <= low and high <= largest):
        raise SampleError(
            f"the range {low}:{high} of input {spec.name!r} exceeds what {spec.dtype} holds, "
            f"{smallest} to {largest}"
        )
    return (int(low), int(high)) if whole else (float(low), float(high))


def _is_mask(spec: TensorSpec) -> bool:
    return "mask" in spec.name.lower()


def _generator(seed: int, index: int, spec: TensorSpec) -> np.random.Generator:
    name = int.from_bytes(hashlib.sha256(spec.name.encode()).digest()[:8], "big")
    return np.random.default_rng([seed, index, name])


def _generate(
    spec: TensorSpec, shape: Shape, limits: InputRange | None, rng: np.random.Generator
) -> Array:
    dtype = NUMPY_DTYPES[spec.dtype]
    if limits is None and _is_mask(spec):
        return np.ones(shape, dtype=np.float32).astype(dtype)
    array = np.empty(shape, dtype=dtype)
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK_ELEMENTS):
        part = flat[start : start + _CHUNK_ELEMENTS]
        if spec.dtype in INTEGER_DTYPES or spec.dtype == "bool":
            part[:] = _integers(spec, part.size, limits, flat.size == 1, rng).astype(dtype)
        elif spec.dtype in COMPLEX_DTYPES:
            low, high = limits or (-1.0, 1.0)
            real, imaginary = (_uniform(low, high, part.size, rng) for _ in range(2))
            part[:] = (real + 1j * imaginary).astype(dtype)
        else:
            # Some types hold no number below 0, or none below their smallest above it.
            low, high = limits or (max(-1.0, number_range(spec.dtype)[0]), 1.0)
            part[:] = _uniform(low, high, part.size, rng).astype(dtype)
    return array


def _integers(
    spec: TensorSpec,
    size: int,
    limits: InputRange | None,
    single: bool,
    rng: np.random.Generator,
) -> Array:
    wide: type[Any] = np.uint64 if spec.dtype == "uint64" else np.int64
    if limits is not None:
        low, high = int(limits[0]), int(limits[1])
    elif spec.dtype == "bool":
        low, high = 0, 1
    else:
        low, high = (1 if single else 0), 1
    return rng.integers(low, high, size=size, dtype=wide, endpoint=True)


def _uniform(low: float, high: float, size: int, rng: np.random.Generator) -> Array:
    share = rng.random(size)
    # Unlike low + share * (high - low), this cannot overflow.
    return low * (1.0 - share) + high * share
