"""Concrete input shapes: what users write, and what follows from it for a model's inputs."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from routewright.errors import ModelError, SettingsError
from routewright.tensors import (
    Shape,
    TensorSpec,
    describe_shape,
    did_you_mean,
    printable,
    shape_text,
)

Profile = dict[str, tuple[Shape, Shape, Shape]]
"""Smallest, timed and largest shape of every input."""

_DIMS = re.compile(r"[0-9]{1,18}(?:[xX][0-9]{1,18})*")


@dataclass(frozen=True, slots=True)
class ResolvedShapes:
    """A concrete shape for every tensor input.

    Attributes:
        shapes: Shape by input name.
        symbols: The value of every symbol that the inputs declare.
        notes: What was assumed, one line each.
    """

    shapes: dict[str, Shape]
    symbols: dict[str, int]
    notes: tuple[str, ...]


def parse_shape_option(text: str) -> tuple[str, Shape]:
    """Return the name and dimensions of ``name:1x3x320x320``.

    The text is split at its last colon, so a name may hold colons. A scalar is ``name:`` or
    ``name:scalar``. Dimensions alone (``1x3x320x320``) give the name ``""``, which stands for a
    model's only input.

    Raises:
        SettingsError: The text is neither.
    """
    name, colon, dims = text.strip().rpartition(":")
    dims = dims.strip()
    nameless = bool(colon) and not name
    if not nameless and ((colon and not dims) or dims.lower() == "scalar"):
        return name, ()
    if nameless or _DIMS.fullmatch(dims) is None:
        raise SettingsError(
            f"{text!r} is not a shape; write name:1x3x320x320 with a whole number for every "
            "axis, or name:scalar"
        )
    return name, tuple(int(dim) for dim in re.split("[xX]", dims))


def parse_shape_options(texts: Iterable[str]) -> dict[str, Shape]:
    """Return the shapes of several options by input name.

    Raises:
        SettingsError: One of them is malformed, or two give one input different shapes.
    """
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, dims = parse_shape_option(text)
        if shapes.setdefault(name, dims) != dims:
            raise SettingsError(
                f"input {name!r} is given two shapes, {shape_text(shapes[name])} and "
                f"{shape_text(dims)}; keep one"
            )
    return shapes


def resolve_shapes(
    inputs: Sequence[TensorSpec], given: Mapping[str, Sequence[int]]
) -> ResolvedShapes:
    """Return a concrete shape for every tensor input.

    Declared numbers are taken as they are. A symbol has one value in all inputs, so an input all
    of whose axes follow from the others need not be given. A leading axis that is not a number,
    and whose symbol leads wherever it occurs, is the batch: 1 unless given. All else must be
    given.

    Args:
        inputs: The model's inputs.
        given: Shape by input name; the name ``""`` stands for the only input.

    Raises:
        ModelError: A name is unknown, a rank or number contradicts the model, two inputs give
            one symbol two values, or a size is missing.
    """
    return _resolve(inputs, given, option="--shape", fallback=None)


def resolve_profile(
    inputs: Sequence[TensorSpec],
    minimum: Mapping[str, Sequence[int]],
    optimum: Mapping[str, Sequence[int]],
    maximum: Mapping[str, Sequence[int]],
) -> Profile:
    """Return the smallest, timed and largest shape of every tensor input.

    An input without an ``optimum`` takes its ``maximum``, else its ``minimum``. What ``minimum``
    and ``maximum`` leave open follows from the symbols that they set, else from the optimum.

    Raises:
        ModelError: As :func:`resolve_shapes`, or a minimum exceeds its optimum, or an optimum its
            maximum.
    """
    sides = [_named(inputs, side) for side in (minimum, maximum, optimum)]
    timed = _resolve(inputs, sides[0] | sides[1] | sides[2], option="--shape", fallback=None)
    low = _resolve(inputs, sides[0], option="--min-shape", fallback=timed.shapes)
    high = _resolve(inputs, sides[1], option="--max-shape", fallback=timed.shapes)
    profile: Profile = {}
    for name, shape in timed.shapes.items():
        _check_order(name, low.shapes[name], shape, "--min-shape", "the timed shape")
        _check_order(name, shape, high.shapes[name], "the timed shape", "--max-shape")
        profile[name] = (low.shapes[name], shape, high.shapes[name])
    return profile


def _check_order(name: str, small: Shape, large: Shape, small_is: str, large_is: str) -> None:
    fits = len(small) == len(large) and all(a <= b for a, b in zip(small, large, strict=True))
    if not fits:
        raise ModelError(
            f"input {name!r}: {small_is} {shape_text(small)} does not fit within {large_is} "
            f"{shape_text(large)}; minimum <= timed <= maximum must hold on every axis"
        )


def _named(inputs: Sequence[TensorSpec], given: Mapping[str, Sequence[int]]) -> dict[str, Shape]:
    """Return ``given`` with the nameless entry named, all names and dimensions checked."""
    tensors = [spec.name for spec in inputs if spec.is_tensor]
    named: dict[str, Shape] = {}
    for name, dims in given.items():
        shape = _whole_numbers(name, dims)
        if not name and "" not in tensors:
            if len(tensors) != 1:
                raise ModelError(
                    f"the shape {shape_text(shape)} names no input and the model has "
                    f"{len(tensors)}; write --shape NAME:{shape_text(shape)}, "
                    f"{did_you_mean('', tensors)}"
                )
            name = tensors[0]
        if name not in tensors:
            raise ModelError(_unknown_input(name, inputs))
        if named.setdefault(name, shape) != shape:
            raise ModelError(f"input {name!r} is given two shapes; keep one")
    return named


def _whole_numbers(name: str, dims: Sequence[int]) -> Shape:
    try:
        shape = tuple(operator.index(dim) for dim in dims)
    except TypeError:
        shape = (-1,)
    if any(dim < 0 for dim in shape):
        raise ModelError(
            f"input {name!r}: the shape {dims!r} is not a list of whole numbers from 0 on"
        )
    return shape


def _unknown_input(name: str, inputs: Sequence[TensorSpec]) -> str:
    for spec in inputs:
        if spec.name == name:
            return f"input {name!r} is of type {spec.dtype}, which has no shape; leave it out"
    hint = did_you_mean(name, [spec.name for spec in inputs if spec.is_tensor])
    if "," in name:
        hint += "; several inputs take one --shape each"
    return f"the model has no input {name!r}; {hint}"


class _Bindings:
    """The values of symbols, and where each came from."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self._sources: dict[str, str] = {}

    def bind(self, symbol: str, value: int, source: str) -> None:
        known = self.values.setdefault(symbol, value)
        origin = self._sources.setdefault(symbol, source)
        if known != value:
            raise ModelError(
                f"{origin} and {source} share the size {symbol!r} but are given as {known} and "
                f"{value}; give one value"
            )


def _resolve(
    inputs: Sequence[TensorSpec],
    given: Mapping[str, Sequence[int]],
    *,
    option: str,
    fallback: Mapping[str, Shape] | None,
) -> ResolvedShapes:
    named = _named(inputs, given)
    bindings = _Bindings()
    for spec in inputs:
        if spec.name in named:
            _bind_given(spec, named[spec.name], option, bindings)
    batch_symbols = _leading_only(inputs)
    shapes: dict[str, Shape] = {}
    notes: list[str] = []
    missing: list[str] = []
    for spec in inputs:
        if not spec.is_tensor:
            continue
        if spec.name in named:
            shapes[spec.name] = named[spec.name]
            continue
        if spec.shape is None:
            if fallback is None:
                missing.append(
                    f"input {spec.name!r} of unknown rank: {option} {printable(spec.name)}:DIMS"
                )
            else:
                shapes[spec.name] = fallback[spec.name]
            continue
        dims: list[int | str | None] = []
        for axis, dim in enumerate(spec.shape):
            where = f"input {spec.name!r} axis {axis}"
            if isinstance(dim, int):
                dims.append(dim)
            elif dim in bindings.values:
                dims.append(bindings.values[dim])
            elif fallback is not None or (axis == 0 and (dim is None or dim in batch_symbols)):
                value = 1 if fallback is None else fallback[spec.name][axis]
                if dim is not None:
                    bindings.bind(dim, value, where)
                if fallback is None:
                    axis_name = f" {dim!r}" if dim is not None else ""
                    notes.append(f"{where}: the batch size{axis_name} was not given, 1 is used")
                dims.append(value)
            else:
                dims.append(dim)
        known = tuple(dim for dim in dims if isinstance(dim, int))
        if len(known) == len(dims):
            shapes[spec.name] = known
        else:
            numbers = [dim if isinstance(dim, int) else None for dim in dims]
            missing.append(
                f"input {spec.name!r} {describe_shape(spec.shape)}: "
                f"{option} {printable(spec.name)}:{shape_text(numbers)}"
            )
    if missing:
        raise ModelError(
            "some input sizes are open; give these shapes with a number for every '?': "
            f"{'; '.join(missing)}"
        )
    return ResolvedShapes(shapes, bindings.values, tuple(notes))


def _bind_given(spec: TensorSpec, shape: Shape, option: str, bindings: _Bindings) -> None:
    if spec.shape is None:
        return
    if len(shape) != len(spec.shape):
        raise ModelError(
            f"input {spec.name!r} has {len(spec.shape)} axes, {describe_shape(spec.shape)}, but "
            f"{option} {shape_text(shape)} gives {len(shape)}"
        )
    for axis, (declared, size) in enumerate(zip(spec.shape, shape, strict=True)):
        where = f"input {spec.name!r} axis {axis}"
        if isinstance(declared, str):
            bindings.bind(declared, size, where)
        elif declared is not None and declared != size:
            raise ModelError(
                f"{where} is fixed at {declared} in the model, but {option} "
                f"{shape_text(shape)} gives {size}; the model is {describe_shape(spec.shape)}"
            )


def _leading_only(inputs: Sequence[TensorSpec]) -> set[str]:
    """Return the symbols that are the first axis wherever they occur."""
    shapes = [spec.shape for spec in inputs if spec.shape]
    inner = {dim for shape in shapes for dim in shape[1:] if isinstance(dim, str)}
    return {shape[0] for shape in shapes if isinstance(shape[0], str)} - inner
