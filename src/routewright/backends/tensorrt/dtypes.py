"""Element types: the library's, NumPy's and ONNX's, and the way between them without surprises."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from routewright.backends.base import RunFailed
from routewright.tensors import NUMPY_DTYPES

_BY_LIBRARY_NAME: dict[str, np.dtype[Any]] = {
    "FLOAT": np.dtype(np.float32),
    "HALF": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "INT8": np.dtype(np.int8),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "FP8": np.dtype(ml_dtypes.float8_e4m3fn),
    "E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}


def numpy_dtype(library_dtype: Any) -> np.dtype[Any] | None:
    """Return the NumPy dtype of a library's ``DataType``.

    None where a tensor of it packs several elements into a byte and so has no array form.
    """
    return _BY_LIBRARY_NAME.get(library_dtype.name)


def declared_dtype(onnx_name: str) -> np.dtype[Any] | None:
    """Return the NumPy dtype of an ONNX type as a model declares it, or None if there is none."""
    return NUMPY_DTYPES.get(onnx_name)


def to_engine(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return ``array`` C-contiguous in the engine's dtype.

    Args:
        name: The input, for the message.
        array: What the user gave.
        dtype: What the engine takes, which may be narrower than what the model declares.

    Raises:
        RunFailed: A whole number does not fit, or the kinds of number differ.
    """
    if array.dtype == dtype:
        return np.asarray(array, order="C")
    if _is_whole(array.dtype) and _is_whole(dtype):
        limits = np.iinfo(dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise RunFailed(
                "error",
                f"input {name!r} holds {array.min()} to {array.max()}, but the engine takes "
                f"{dtype}, {limits.min} to {limits.max}",
            )
    elif not (_is_real(array.dtype) and _is_real(dtype)):
        raise RunFailed("error", f"input {name!r} is of type {array.dtype}, not {dtype}")
    return np.asarray(array.astype(dtype), order="C")


def to_declared(array: npt.NDArray[Any], dtype: np.dtype[Any] | None) -> npt.NDArray[Any]:
    """Return an output in the dtype that the model declares.

    An engine may give another, for example int32 for int64 or, in a variant of the model, half
    for single precision; the reference is of the declared type. Kinds of number never change.
    """
    if dtype is None or array.dtype == dtype:
        return array
    if _is_whole(array.dtype) and _is_whole(dtype):
        return array.astype(dtype)
    if _is_real(array.dtype) and _is_real(dtype):
        return array.astype(dtype)
    return array


def _is_whole(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iu"


def _is_real(dtype: np.dtype[Any]) -> bool:
    # ml_dtypes registers its floating types as kind "V".
    return dtype.kind == "f" or (dtype.kind == "V" and dtype in _BY_LIBRARY_NAME.values())
