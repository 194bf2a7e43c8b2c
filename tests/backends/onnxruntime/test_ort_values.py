from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from ort_support import Bench

import models
from routewright.backends.base import RunFailed
from routewright.backends.onnxruntime.values import (
    OutputReader,
    element_type,
    from_value,
    is_native,
    to_value,
)
from routewright.errors import BackendError
from routewright.tensors import NUMPY_DTYPES

# What the library's Identity takes; the rest of NUMPY_DTYPES has no kernel there.
PLAIN = sorted(
    set(NUMPY_DTYPES)
    - {"complex64", "complex128", "int2", "uint2", "int4", "uint4", "float4e2m1"}
    - {"float6e2m3", "float6e3m2", "float8e8m0"}
)
PACKED = ["int4", "uint4", "int2", "uint2", "float4e2m1"]


def session_of(model: ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def some(element: str, *shape: int) -> np.ndarray[Any, Any]:
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2
    if element == "string":
        return np.array([f"é{n}" for n in numbers.ravel()], dtype=object).reshape(shape)
    return numbers.astype(NUMPY_DTYPES[element])


@pytest.mark.parametrize("element", PLAIN)
@pytest.mark.parametrize("rows", [3, 0])
def test_every_type_goes_in_and_comes_out(element: str, rows: int) -> None:
    opset = 23
    value = models.value("x", TensorProto.DataType.Value(element.upper()), ["n", 4])
    output = models.value("y", TensorProto.DataType.Value(element.upper()), ["n", 4])
    node = helper.make_node("Identity", ["x"], ["y"])
    reader = OutputReader(
        session_of(models.build([node], [value], [output], opset=opset, ir_version=11))
    )
    x = some(element, rows, 4)
    result = reader.run(reader.prepare({"x": x}))["y"]
    assert result.dtype == NUMPY_DTYPES[element]
    assert result.shape == x.shape
    assert np.array_equal(result, x)


@pytest.mark.parametrize("element", PACKED)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (0,), ()])
def test_types_below_a_byte_survive_packing(element: str, shape: tuple[int, ...]) -> None:
    dtype = NUMPY_DTYPES[element]
    codes = np.random.default_rng(0).integers(-8, 8, shape)
    x = codes.astype(np.float32).astype(dtype) if "float" in element else codes.astype(dtype)
    value = to_value(np.asarray(x), element, "x")
    assert tuple(value.shape()) == shape
    assert np.array_equal(from_value(value, element).astype(np.float32), x.astype(np.float32))


def test_int4_means_to_the_library_what_it_means_to_us() -> None:
    inputs = [models.value("x", TensorProto.INT4, ["n"]), models.value("s", dims=[])]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "s", "z"], ["y"]),
    ]
    zero = TensorProto(name="z", data_type=TensorProto.INT4, dims=[], int32_data=[0])
    outputs = [models.value("f", dims=["n"]), models.value("y", TensorProto.INT4, ["n"])]
    model = models.build(nodes, inputs, outputs, [zero], opset=21, ir_version=10, check=False)
    reader = OutputReader(session_of(model))
    x = np.array([1, -3, 7, -8, 0], dtype=ml_dtypes.int4)
    result = reader.run(reader.prepare({"x": x, "s": np.array(2, dtype=np.float32)}))
    assert result["f"].tolist() == [2, -6, 14, -16, 0]
    assert np.array_equal(result["y"], x)


def test_strings_travel_beside_types_that_numpy_lacks() -> None:
    inputs = [
        models.value("t", TensorProto.STRING, ["n"]),
        models.value("b", TensorProto.BFLOAT16, ["n"]),
    ]
    outputs = [
        models.value("u", TensorProto.STRING, ["n"]),
        models.value("c", TensorProto.BFLOAT16, ["n"]),
    ]
    nodes = [
        helper.make_node("Identity", ["t"], ["u"]),
        helper.make_node("Identity", ["b"], ["c"]),
    ]
    reader = OutputReader(session_of(models.build(nodes, inputs, outputs)))
    texts = np.array(["a", "é", ""], dtype=object)
    numbers = np.array([1, 2, 3], dtype=ml_dtypes.bfloat16)
    result = reader.run(reader.prepare({"t": texts, "b": numbers}))
    assert result["u"].tolist() == ["a", "é", ""]
    assert np.array_equal(result["c"], numbers)
    # Fixed-width NumPy strings are taken as well.
    result = reader.run(reader.prepare({"t": texts.astype(str), "b": numbers}))
    assert result["u"].tolist() == ["a", "é", ""]


def test_a_wrong_dtype_is_one_line() -> None:
    reader = OutputReader(session_of(models.bf16_cast()))
    with pytest.raises(RunFailed, match="input 'x' takes bfloat16"):
        reader.prepare({"x": np.zeros((2, 4), np.float32)})


def test_arrays_that_are_not_contiguous_and_scalars_are_taken() -> None:
    reader = OutputReader(session_of(models.identity(TensorProto.FLOAT)))
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::-1].T[:, :4]
    assert not x.flags["C_CONTIGUOUS"]
    assert np.array_equal(reader.run(reader.prepare({"x": x}))["y"], x)
    half = OutputReader(session_of(models.bf16_cast()))
    y = np.ones((4, 2), dtype=ml_dtypes.bfloat16).T
    assert np.array_equal(half.run(half.prepare({"x": y}))["y"].shape, y.shape)


def test_type_strings_are_read() -> None:
    assert element_type("tensor(float8e4m3fn)") == "float8e4m3fn"
    assert element_type("optional(tensor(float))") == "float"
    assert element_type("seq(tensor(float))") is None
    assert is_native("double")
    assert is_native("string")
    assert not is_native("bfloat16")
    assert not is_native("complex64")


def test_inputs_and_outputs_that_are_no_tensors_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"input 'parts' is of type seq\(tensor\(float\)\)"):
        Bench(models.sequence_input(), tmp_path)
    node = helper.make_node("SequenceConstruct", ["x"], ["s"])
    output = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model = models.build([node], [models.value("x", dims=[2])], [output])
    with pytest.raises(BackendError, match="output 's' is of type seq"):
        Bench(model, tmp_path)
