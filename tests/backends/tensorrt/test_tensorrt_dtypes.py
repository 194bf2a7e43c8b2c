from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from routewright.backends.base import RunFailed
from routewright.backends.tensorrt.dtypes import declared_dtype, to_declared, to_engine


def test_int64_is_narrowed_where_it_fits() -> None:
    narrowed = to_engine("ids", np.array([0, 2**31 - 1]), np.dtype(np.int32))
    assert narrowed.dtype == np.int32
    assert narrowed.tolist() == [0, 2**31 - 1]


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**62])
def test_int64_that_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(RunFailed, match="input 'ids' holds"):
        to_engine("ids", np.array([value]), np.dtype(np.int32))


def test_scalars_stay_scalars_and_empty_arrays_empty() -> None:
    assert to_engine("s", np.array(3.5), np.dtype(np.float32)).shape == ()
    assert to_engine("s", np.float32(3.5).reshape(()), np.dtype(np.float32)).shape == ()
    assert to_engine("e", np.zeros((0, 3), np.int64), np.dtype(np.int32)).shape == (0, 3)


def test_arrays_are_laid_out_in_c_order() -> None:
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert not turned.flags["C_CONTIGUOUS"]
    assert to_engine("x", turned, np.dtype(np.float32)).flags["C_CONTIGUOUS"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_floats_convert_to_narrower_floats(dtype: type) -> None:
    given = np.array([0.5, -1.0, 2.0], np.float32)
    assert to_engine("x", given, np.dtype(dtype)).astype(np.float32).tolist() == given.tolist()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.zeros(2, np.float32), np.int32),
        (np.zeros(2, np.int32), np.float32),
        (np.zeros(2, np.bool_), np.int32),
        (np.array(["a"]), np.float32),
    ],
)
def test_another_kind_of_number_is_refused(given: np.ndarray, wanted: type) -> None:
    with pytest.raises(RunFailed, match="input 'x' is of type"):
        to_engine("x", given, np.dtype(wanted))


def test_outputs_come_back_in_the_type_that_the_model_declares() -> None:
    half = np.array([0.5], np.float16)
    assert to_declared(half, np.dtype(np.float32)).dtype == np.float32
    assert to_declared(np.array([1], np.int32), np.dtype(np.int64)).dtype == np.int64
    assert to_declared(half, None).dtype == np.float16
    assert to_declared(np.array([1], np.int32), np.dtype(np.float32)).dtype == np.int32


def test_declared_types() -> None:
    assert declared_dtype("bfloat16") == ml_dtypes.bfloat16
    assert declared_dtype("nonsense") is None
