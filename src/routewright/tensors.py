"""Tensors as models declare them and as NumPy holds them: element types, shapes, strings."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A graph input or output as an engine or model declares it.

    Attributes:
        name: Tensor name.
        dtype: ONNX element type in lower case, for example ``"float"``, ``"int64"``,
            ``"bfloat16"``, ``"string"``. What is not a tensor is spelled out, for example
            ``"sequence(float)"``; ``"undefined"`` where nothing is declared.
        shape: One entry per axis: an int, a symbol, or None where nothing is declared.
            None instead of a tuple where even the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    @property
    def is_tensor(self) -> bool:
        """Whether this is a dense tensor, and not a sequence, map, optional or sparse one."""
        return "(" not in self.dtype


NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(scalar)
    for name, scalar in {
        "bool": np.bool_,
        "int2": ml_dtypes.int2,
        "uint2": ml_dtypes.uint2,
        "int4": ml_dtypes.int4,
        "uint4": ml_dtypes.uint4,
        "int8": np.int8,
        "uint8": np.uint8,
        "int16": np.int16,
        "uint16": np.uint16,
        "int32": np.int32,
        "uint32": np.uint32,
        "int64": np.int64,
        "uint64": np.uint64,
        "float4e2m1": ml_dtypes.float4_e2m1fn,
        "float6e2m3": ml_dtypes.float6_e2m3fn,
        "float6e3m2": ml_dtypes.float6_e3m2fn,
        "float8e8m0": ml_dtypes.float8_e8m0fnu,
        "float8e4m3fn": ml_dtypes.float8_e4m3fn,
        "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "float8e5m2": ml_dtypes.float8_e5m2,
        "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
        "float16": np.float16,
        "bfloat16": ml_dtypes.bfloat16,
        "float": np.float32,
        "double": np.float64,
        "complex64": np.complex64,
        "complex128": np.complex128,
        "string": np.object_,
    }.items()
}
"""ONNX element type to the NumPy dtype that holds it in memory.

Types below one byte take one byte per element; strings are ``str`` objects.
"""

_ONNX_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}

INTEGER_DTYPES = frozenset(name for name in NUMPY_DTYPES if name.startswith(("int", "uint")))
EXACT_DTYPES = INTEGER_DTYPES | {"bool", "string"}
"""Types of which two values are equal or not, with no distance that an accuracy loss can use."""

FLOAT_DTYPES = frozenset(name for name in NUMPY_DTYPES if name.startswith("float")) | {
    "bfloat16",
    "double",
}
_PARTS = {"complex64": "float", "complex128": "double"}
COMPLEX_DTYPES = frozenset(_PARTS)


def onnx_dtype(dtype: np.dtype[Any]) -> str:
    """Return the ONNX name of a NumPy dtype, or the dtype's own name where ONNX has none."""
    if dtype.kind in "USTO":
        return "string"
    return _ONNX_NAMES.get(dtype.newbyteorder("="), str(dtype))


def number_range(dtype: str) -> tuple[int, int] | tuple[float, float]:
    """Return the smallest and largest finite number of an ONNX integer or floating type.

    Of a complex type it is the range of the real and the imaginary part.
    """
    held = NUMPY_DTYPES[_PARTS.get(dtype, dtype)]
    if dtype in INTEGER_DTYPES:
        integers = ml_dtypes.iinfo(held)  # type: ignore[no-untyped-call]
        return int(integers.min), int(integers.max)
    floats = ml_dtypes.finfo(held)  # type: ignore[no-untyped-call]
    return float(floats.min), float(floats.max)


def is_wider_float(wide: str, narrow: str) -> bool:
    """Whether the first ONNX type holds every number of the second, both floating-point."""
    if not {wide, narrow} <= FLOAT_DTYPES:
        return False
    sizes = NUMPY_DTYPES[wide].itemsize, NUMPY_DTYPES[narrow].itemsize
    return sizes[0] > sizes[1] and number_range(wide)[1] >= number_range(narrow)[1]


def as_strings(array: Array) -> Array:
    """Return ``array`` as an object array of ``str``; bytes are taken as UTF-8.

    Raises:
        ValueError: An element is neither text nor bytes.
    """
    strings = np.empty(array.shape, dtype=object)
    flat = strings.reshape(-1)
    for index, item in enumerate(array.reshape(-1).tolist()):
        if isinstance(item, bytes):
            # Bytes that are no UTF-8 come back unchanged when encoded the same way.
            flat[index] = item.decode("utf-8", "surrogateescape")
        elif isinstance(item, str):
            flat[index] = str(item)
        else:
            raise ValueError(f"element {index} is of type {type(item).__name__}, not a string")
    return strings


def raw_bytes(array: Array) -> memoryview:
    """Return the C-order bytes of an array of fixed-size elements, without a copy if it can."""
    flat = np.asarray(array, order="C").reshape(-1)
    return flat.view(np.uint8).data


def describe_shape(shape: Sequence[int | str | None] | None) -> str:
    """Return a shape as a reader knows it, for example ``[N, 3, ?, 640]``."""
    if shape is None:
        return "of unknown rank"
    return "[" + ", ".join("?" if dim is None else printable(str(dim)) for dim in shape) + "]"


def shape_text(shape: Iterable[int | str | None]) -> str:
    """Return a shape as the command line writes it, for example ``1x3x?x640``."""
    return "x".join("?" if dim is None else printable(str(dim)) for dim in shape) or "scalar"


def printable(name: str) -> str:
    """Return ``name`` as it can stand in a command: quoted where a shell or a reader needs it."""
    return shlex.quote(name) if name.isprintable() else repr(name)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the hint that ends a message about the unknown ``name``, or all known names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if not names:
        return "there are none"
    shown = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
    return f"known: {shown}"
