"""Arrays into and out of a session, for every element type that NumPy can hold.

``InferenceSession.run`` takes and gives NumPy's own types and strings. bfloat16, the float8 types
and types below one byte travel as ``OrtValue``: in, because the binding refuses the array; out,
because it has no NumPy type to answer with, so their bytes are copied from where they lie.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from routewright.backends.base import Arrays, RunFailed
from routewright.backends.onnxruntime.library import PROVIDER, load_library
from routewright.tensors import NUMPY_DTYPES, as_strings

Feed = Mapping[str, Any]
"""What a session takes: arrays and ``OrtValue`` objects by name."""

_TENSOR = re.compile(r"tensor\((\w+)\)|optional\(tensor\((\w+)\)\)")
_PACKED_BITS = {"int4": 4, "uint4": 4, "float4e2m1": 4, "int2": 2, "uint2": 2}


def element_type(declared: str) -> str | None:
    """Return the ONNX element type of a session's type string, or None if it is no tensor.

    ONNX Runtime writes ``tensor(float)``, ``seq(tensor(float))``, ``optional(tensor(float))``.
    An optional tensor is fed like a plain one.
    """
    match = _TENSOR.fullmatch(declared)
    return (match[1] or match[2]).lower() if match else None


def is_native(element: str) -> bool:
    """Tell whether the binding itself converts between this type and a NumPy array."""
    dtype = NUMPY_DTYPES.get(element)
    return dtype is not None and (dtype.isbuiltin == 1 and dtype.kind in "biufO")


def feed(session: Any, inputs: Arrays) -> dict[str, Any]:
    """Return what ``session.run`` takes for ``inputs``.

    Inputs that the session does not ask for are left out. Arrays keep their dtype: an input of
    the wrong one is refused by the session itself.
    """
    prepared: dict[str, Any] = {}
    for declared in session.get_inputs():
        if declared.name not in inputs:
            continue
        array = np.asarray(inputs[declared.name])
        element = element_type(declared.type)
        if element == "string":
            prepared[declared.name] = as_strings(array)
        elif element is None or is_native(element) or element not in NUMPY_DTYPES:
            # np.ascontiguousarray would turn a scalar into a vector of one.
            prepared[declared.name] = np.asarray(array, order="C")
        else:
            prepared[declared.name] = to_value(array, element, declared.name)
    return prepared


class OutputReader:
    """Runs a session and returns outputs as arrays; made once per session and choice of outputs.

    Args:
        session: The session.
        names: Outputs to return; all of them by default.

    Raises:
        RunFailed: An input or output is not a tensor, and so cannot be supplied or compared.
    """

    def __init__(self, session: Any, names: Sequence[str] | None = None) -> None:
        declared = {output.name: output.type for output in session.get_outputs()}
        for entry in session.get_inputs():
            if element_type(entry.type) is None:
                raise RunFailed("error", _not_a_tensor("input", entry.name, entry.type))
        self._session = session
        self.names = list(declared) if names is None else list(names)
        self._elements: dict[str, str] = {}
        for name in self.names:
            element = element_type(declared[name])
            if element is None or declared[name].startswith("optional"):
                raise RunFailed("error", _not_a_tensor("output", name, declared[name]))
            self._elements[name] = element
        self.native = all(is_native(element) for element in self._elements.values())

    def run(self, prepared: Feed) -> dict[str, npt.NDArray[Any]]:
        """Run once and return the outputs by name."""
        arrays = (
            self.run_raw(prepared)
            if self.native
            else [
                from_value(value, self._elements[name])
                for name, value in zip(self.names, self.run_raw(prepared), strict=True)
            ]
        )
        return dict(zip(self.names, arrays, strict=True))

    def run_raw(self, prepared: Feed) -> list[Any]:
        """Run once, the way a user's program would, and leave the outputs as they come."""
        if self.native:
            results: list[Any] = self._session.run(self.names, prepared)
        else:
            values: list[Any] = self._session.run_with_ort_values(self.names, prepared)
            results = values
        return results

    def prepare(self, inputs: Arrays) -> dict[str, Any]:
        """Return what :meth:`run` takes for ``inputs``."""
        prepared = feed(self._session, inputs)
        if self.native:
            return prepared
        # Outputs as OrtValue need every input as one.
        elements = {i.name: element_type(i.type) for i in self._session.get_inputs()}
        return {
            name: value
            if hasattr(value, "data_ptr")
            else to_value(value, str(elements[name]), name)
            for name, value in prepared.items()
        }


def _not_a_tensor(what: str, name: str, declared: str) -> str:
    """Return the message about an input or output that is a sequence, a map or optional."""
    return f"{what} {name!r} is of type {declared}; only tensors can be supplied and compared"


def to_value(array: npt.NDArray[Any], element: str, name: str) -> Any:
    """Return an array as an ``OrtValue`` of the given element type.

    Raises:
        RunFailed: The array is of another dtype.
    """
    library = load_library()
    if element == "string":
        return _string_value(array)
    expected = NUMPY_DTYPES[element]
    if array.dtype != expected:
        raise RunFailed(
            "error", f"input {name!r} takes {element} ({expected}), not an array of {array.dtype}"
        )
    code = _onnx_code(element)
    bits = _PACKED_BITS.get(element)
    if bits is None:
        contiguous = np.asarray(array, order="C")
        return library.OrtValue.ortvalue_from_numpy_with_onnx_type(contiguous, code)
    value = library.OrtValue.ortvalue_from_shape_and_type(list(array.shape), code)
    packed = _pack(array, bits)
    if packed:
        ctypes.memmove(value.data_ptr(), packed, len(packed))
    return value


def from_value(value: Any, element: str) -> npt.NDArray[Any]:
    """Return the array in an ``OrtValue``, in the dtype that NumPy holds ``element`` in."""
    if is_native(element):
        array: npt.NDArray[Any] = value.numpy()
        return array
    shape = tuple(value.shape())
    dtype = NUMPY_DTYPES[element]
    count = math.prod(shape)
    bits = _PACKED_BITS.get(element)
    size = count * dtype.itemsize if bits is None else -(-count * bits // 8)
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    if bits is None:
        return np.frombuffer(content, dtype=dtype).reshape(shape).copy()
    return _unpack(content, bits, count, dtype).reshape(shape)


def _onnx_code(element: str) -> int:
    from onnx import TensorProto

    return int(TensorProto.DataType.Value(element.upper()))


def _pack(array: npt.NDArray[Any], bits: int) -> bytes:
    """Pack elements of less than one byte, the first into the lowest bits."""
    per_byte = 8 // bits
    codes = np.asarray(array, order="C").reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    padded = np.zeros(-(-codes.size // per_byte) * per_byte, dtype=np.uint8)
    padded[: codes.size] = codes
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    columns = padded.reshape(-1, per_byte) << shifts
    packed: bytes = np.bitwise_or.reduce(columns, axis=1).astype(np.uint8).tobytes()
    return packed


def _unpack(content: bytes, bits: int, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    codes = (np.frombuffer(content, dtype=np.uint8)[:, None] >> shifts) & ((1 << bits) - 1)
    codes = codes.reshape(-1)[:count].astype(np.uint8)
    if dtype.name.startswith("int"):
        sign = 1 << (bits - 1)
        return ((codes ^ sign).astype(np.int8) - np.int8(sign)).astype(dtype)
    # Floating types are told by their bits, integers by their value; both fit one byte here.
    return codes.view(dtype) if dtype.name.startswith("float") else codes.astype(dtype)


def _string_value(array: npt.NDArray[Any]) -> Any:
    """Return strings as an ``OrtValue``, which the binding cannot make: a session makes it."""
    from onnx import TensorProto, helper

    library = load_library()
    texts = [str(text).encode("utf-8", "surrogateescape") for text in array.reshape(-1)]
    tensor = TensorProto(
        name="texts", data_type=TensorProto.STRING, dims=array.shape, string_data=texts
    )
    output = helper.make_tensor_value_info("y", TensorProto.STRING, array.shape)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["texts"], ["y"])], "strings", [], [output], [tensor]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = library.SessionOptions()
    options.intra_op_num_threads = 1
    session = library.InferenceSession(model.SerializeToString(), options, providers=[PROVIDER])
    return session.run_with_ort_values(["y"], {})[0]
