"""Optimization profiles: which shapes an engine must take, from what a user gave.

The builder needs (min, opt, max) of the shape of every input whose shape is not fixed, and of the
values of every input that decides shapes by its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routewright.errors import ModelError
from routewright.tensors import describe_shape, did_you_mean, shape_text

Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Profile = Mapping[str, Range]


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """An input as the library sees it.

    Attributes:
        name: Its name.
        dtype: The library's ``DataType``.
        shape: One entry per axis, -1 where the size is open.
        decides_shapes: Whether its values, not only its shape, decide shapes.
    """

    name: str
    dtype: Any
    shape: tuple[int, ...]
    decides_shapes: bool

    @property
    def needs_profile(self) -> bool:
        """Whether a profile must name it."""
        return self.decides_shapes or -1 in self.shape


@dataclass(frozen=True, slots=True)
class ProfilePlan:
    """What the builder is given.

    Attributes:
        profiles: One range for each input that needs one; empty where none does.
        shapes: The shape that timing uses, for every input.
    """

    profiles: tuple[Profile, ...]
    shapes: Mapping[str, tuple[int, ...]]


def plan_profiles(
    inputs: Sequence[NetworkInput],
    *,
    shapes: Mapping[str, Sequence[int]],
    profiles: Sequence[Profile],
    shape_values: Mapping[str, Range],
) -> ProfilePlan:
    """Complete and check the profiles of a job.

    Without profiles there is one, exactly at ``shapes``.

    Args:
        inputs: The network's inputs.
        shapes: Shapes that timing uses.
        profiles: (min, opt, max) by input name.
        shape_values: (min, opt, max) of values, for inputs that decide shapes.

    Raises:
        ModelError: A name is unknown, a range contradicts the network or itself, an open input
            has no shape, or the timed shapes lie outside every profile.
    """
    by_name = {item.name: item for item in inputs}
    for name in sorted({*shapes, *shape_values, *(n for p in profiles for n in p)}):
        if name not in by_name:
            raise ModelError(f"the model has no input {name!r}; {did_you_mean(name, by_name)}")
    completed = tuple(
        {
            item.name: _range_of(item, profile, shapes, shape_values)
            for item in inputs
            if item.needs_profile
        }
        for profile in (profiles or ({},))
    )
    timed = {item.name: _timed_shape(item, shapes, completed[0]) for item in inputs}
    if not any(item.needs_profile for item in inputs):
        return ProfilePlan((), timed)
    if all(misfit(profile, timed, inputs) for profile in completed):
        raise ModelError(
            f"{misfit(completed[0], timed, inputs)}; widen the profile or time inside"
        )
    return ProfilePlan(completed, timed)


def misfit(
    profile: Profile, shapes: Mapping[str, Sequence[int]], inputs: Sequence[NetworkInput]
) -> str:
    """Return why ``shapes`` lie outside ``profile``, one line, or an empty string."""
    for item in inputs:
        if item.decides_shapes or item.name not in profile:
            continue
        low, _, high = profile[item.name]
        shape = tuple(shapes[item.name])
        if not _within(low, shape, high):
            return (
                f"input {item.name!r} of {shape_text(shape)} is outside the profile "
                f"{shape_text(low)} to {shape_text(high)}"
            )
    return ""


def _range_of(
    item: NetworkInput,
    profile: Profile,
    shapes: Mapping[str, Sequence[int]],
    shape_values: Mapping[str, Range],
) -> Range:
    given = profile.get(item.name)
    if item.decides_shapes:
        return _values_of(item, shape_values.get(item.name))
    if given is None:
        if item.name not in shapes:
            raise ModelError(
                f"input {item.name!r} is {describe_shape(_open(item))} and no shape is given; "
                f"write --shape {item.name}:{shape_text(_open(item))} with numbers for '?'"
            )
        exact = tuple(shapes[item.name])
        given = (exact, exact, exact)
    for shape in given:
        _check_fits(item, tuple(shape))
    low, usual, high = (tuple(shape) for shape in given)
    if not (_within(low, usual, high) and _within(low, high, high)):
        raise ModelError(
            f"the profile of input {item.name!r} is {shape_text(low)}, {shape_text(usual)}, "
            f"{shape_text(high)}; min <= opt <= max must hold on every axis"
        )
    return low, usual, high


def _values_of(item: NetworkInput, given: Range | None) -> Range:
    size = 1
    for axis in item.shape:
        size *= axis
    if given is None:
        raise ModelError(
            f"the values of input {item.name!r} decide shapes, so the build needs them; give "
            f"{size} of them in the option shape_values, or samples"
        )
    low, usual, high = (tuple(values) for values in given)
    if any(len(values) != size for values in (low, usual, high)):
        raise ModelError(f"input {item.name!r} decides shapes by {size} values, not {len(usual)}")
    return low, usual, high


def _timed_shape(
    item: NetworkInput, shapes: Mapping[str, Sequence[int]], profile: Profile
) -> tuple[int, ...]:
    if item.name in shapes:
        shape = tuple(shapes[item.name])
        _check_fits(item, shape)
        return shape
    if -1 not in item.shape:
        return item.shape
    return profile[item.name][1]


def _check_fits(item: NetworkInput, shape: tuple[int, ...]) -> None:
    if len(shape) != len(item.shape):
        raise ModelError(
            f"input {item.name!r} is {describe_shape(_open(item))}, but {shape_text(shape)} has "
            f"{len(shape)} axes"
        )
    for axis, (declared, size) in enumerate(zip(item.shape, shape, strict=True)):
        if declared not in (-1, size):
            raise ModelError(
                f"input {item.name!r} axis {axis} is fixed at {declared}, but "
                f"{shape_text(shape)} gives {size}"
            )


def _open(item: NetworkInput) -> tuple[int | None, ...]:
    return tuple(None if size == -1 else size for size in item.shape)


def _within(low: Sequence[int], middle: Sequence[int], high: Sequence[int]) -> bool:
    if not len(low) == len(middle) == len(high):
        return False
    return all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True))
