"""The tensors of one execution context: memory for them, and copies in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routewright.backends.base import Arrays, BuildFailed, RunFailed
from routewright.backends.tensorrt import cuda, dtypes, streams
from routewright.backends.tensorrt.library import Library
from routewright.tensors import shape_text

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output of an engine.

    Attributes:
        name: Its name.
        dtype: What the engine takes or gives.
        is_input: Whether it is an input.
        on_host: Whether the engine reads or writes it in host memory (values that decide shapes).
    """

    name: str
    dtype: np.dtype[Any]
    is_input: bool
    on_host: bool


def engine_tensors(module: Any, engine: Any) -> tuple[Tensor, ...]:
    """Return the inputs and outputs of an engine.

    Raises:
        BuildFailed: One of them is of a type that has no array form.
    """
    tensors: list[Tensor] = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        library_dtype = engine.get_tensor_dtype(name)
        dtype = dtypes.numpy_dtype(library_dtype)
        is_input = engine.get_tensor_mode(name) == module.TensorIOMode.INPUT
        if dtype is None:
            kind = "input" if is_input else "output"
            raise BuildFailed(
                "unsupported",
                f"{kind} {name!r} of type {library_dtype.name} packs several values "
                "into a byte, which cannot be given or read as an array",
            )
        on_host = engine.get_tensor_location(name) == module.TensorLocation.HOST
        tensors.append(Tensor(name, dtype, is_input, on_host))
    return tuple(tensors)


class Bindings:
    """Memory of an execution context's inputs and outputs.

    Outputs whose size follows from the data are allocated by the engine through an allocator
    while it runs; they are known after the run.

    Args:
        library: The library.
        engine: The engine.
        context: Its execution context.
        stream: Where copies are enqueued.
    """

    def __init__(
        self, library: Library, engine: Any, context: Any, stream: streams.Stream
    ) -> None:
        self.tensors = engine_tensors(library.module, engine)
        self.inputs = tuple(t for t in self.tensors if t.is_input)
        self.outputs = tuple(t for t in self.tensors if not t.is_input)
        self._module = library.module
        self._log = library.log
        self._context = context
        self._stream = stream
        self._device = {t.name: streams.DeviceBuffer() for t in self.tensors if not t.on_host}
        self._pinned: dict[str, streams.PinnedBuffer] = {}
        self._host: dict[str, Array] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._allocators: dict[str, Any] = {}
        self._bound: dict[str, Array] = {}

    @property
    def data_dependent(self) -> tuple[str, ...]:
        """Outputs whose shapes follow from the data."""
        return tuple(sorted(self._allocators))

    def signature(self) -> tuple[Any, ...]:
        """Return what recorded work depends on: shapes, addresses, values that decide shapes."""
        addresses = tuple(self._context.get_tensor_address(t.name) for t in self.tensors)
        values = tuple(self._host[t.name].tobytes() for t in self.inputs if t.on_host)
        return (*self._shapes.items(), addresses, values)

    def bind(self, inputs: Arrays, profiles: ProfileChoice) -> None:
        """Set shapes, make room and copy the inputs to the device.

        Raises:
            RunFailed: An input is missing, outside the profile, or of a wrong type.
            CudaError: Memory ran out, or the device is lost.
        """
        self._bound = {}
        arrays = {t.name: self._array(t, inputs) for t in self.inputs}
        profiles.choose({name: array.shape for name, array in arrays.items()})
        for tensor in self.inputs:
            self._set_input(tensor, arrays[tensor.name])
        mark = self._log.mark()
        try:
            missing = self._context.infer_shapes()
        except RuntimeError as error:
            said = "; ".join(self._log.errors(mark)) or str(error)
            raise RunFailed("error", f"these inputs do not fit together: {said}") from error
        if missing:
            raise RunFailed("error", f"the engine also needs {', '.join(map(repr, missing))}")
        for tensor in self.outputs:
            self._set_output(tensor)
        self._bound = dict(inputs)

    def is_bound_to(self, inputs: Arrays) -> bool:
        """Whether the device holds exactly these arrays, by identity."""
        return self._bound.keys() == inputs.keys() and all(
            self._bound[name] is array for name, array in inputs.items()
        )

    def read(self) -> dict[str, Array]:
        """Return all outputs of the last run, which must be over.

        Raises:
            CudaError: The device is lost.
        """
        arrays: dict[str, Array] = {}
        for tensor in self.outputs:
            shape = self._output_shape(tensor)
            if tensor.on_host:
                arrays[tensor.name] = self._host[tensor.name].copy()
                continue
            array = np.empty(shape, tensor.dtype)
            streams.copy_to_host(array, self._device[tensor.name].address, self._stream)
            arrays[tensor.name] = array
        self._stream.synchronize()
        return arrays

    def enqueue_inputs(self) -> None:
        """Enqueue copies of all inputs from page-locked memory to the device."""
        for tensor in self.inputs:
            if not tensor.on_host:
                self._enqueue_copy(tensor, self._shapes[tensor.name])

    def enqueue_outputs(self) -> None:
        """Enqueue copies of all outputs from the device to page-locked memory."""
        if self._allocators:
            # How much there is to copy is known only then.
            self._stream.synchronize()
        for tensor in self.outputs:
            if not tensor.on_host:
                self._enqueue_copy(tensor, self._output_shape(tensor))

    def close(self) -> None:
        """Free all memory."""
        for buffer in (*self._device.values(), *self._pinned.values()):
            buffer.close()

    def _array(self, tensor: Tensor, inputs: Arrays) -> Array:
        if tensor.name not in inputs:
            raise RunFailed("error", f"the engine needs an input {tensor.name!r}")
        return dtypes.to_engine(tensor.name, inputs[tensor.name], tensor.dtype)

    def _set_input(self, tensor: Tensor, array: Array) -> None:
        if self._shapes.get(tensor.name) != array.shape:
            if not self._context.set_input_shape(tensor.name, array.shape):
                shape = shape_text(array.shape)
                raise RunFailed("error", f"the engine refused input {tensor.name!r} of {shape}")
            self._shapes[tensor.name] = array.shape
        if tensor.on_host:
            # The engine reads it while it runs, so the array must stay.
            self._host[tensor.name] = array
            self._set_address(tensor.name, array.ctypes.data)
            return
        buffer = self._device[tensor.name]
        self._set_address(tensor.name, buffer.reserve(array.nbytes))
        streams.copy_to_device(buffer.address, array, self._stream)
        # Pageable memory may still be read when the call returns.
        self._stream.synchronize()

    def stage(self, inputs: Arrays) -> None:
        """Put copies of the inputs into page-locked memory, for :meth:`enqueue_inputs`."""
        for tensor in self.inputs:
            if not tensor.on_host:
                self._stage(tensor, self._array(tensor, inputs))

    def _stage(self, tensor: Tensor, array: Array) -> None:
        pinned = self._pinned.setdefault(tensor.name, streams.PinnedBuffer())
        address = pinned.reserve(array.nbytes)
        if array.nbytes:
            flat = array.reshape(-1).view(np.uint8)
            streams.host_view(address, array.nbytes)[:] = flat

    def _set_output(self, tensor: Tensor) -> None:
        shape = tuple(self._context.get_tensor_shape(tensor.name))
        self._shapes[tensor.name] = shape
        if -1 in shape:
            if tensor.name not in self._allocators:
                allocator = _make_allocator(self._module, self._device[tensor.name])
                self._allocators[tensor.name] = allocator
                if not self._context.set_output_allocator(tensor.name, allocator):
                    raise RunFailed(
                        "error",
                        f"output {tensor.name!r} has a size that follows from the data, "
                        "and the library takes no allocator for it",
                    )
            return
        size = int(np.prod(shape, dtype=np.int64)) * tensor.dtype.itemsize
        if tensor.on_host:
            if tensor.name not in self._host or self._host[tensor.name].shape != shape:
                self._host[tensor.name] = np.zeros(shape, tensor.dtype)
            self._set_address(tensor.name, self._host[tensor.name].ctypes.data)
            return
        self._set_address(tensor.name, self._device[tensor.name].reserve(size))

    def _set_address(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise RunFailed("error", f"the engine refused the memory of {name!r}")

    def _output_shape(self, tensor: Tensor) -> tuple[int, ...]:
        allocator = self._allocators.get(tensor.name)
        if allocator is None:
            return self._shapes[tensor.name]
        if allocator.failure is not None:
            raise allocator.failure
        shape: tuple[int, ...] = allocator.shape
        return shape

    def _enqueue_copy(self, tensor: Tensor, shape: tuple[int, ...]) -> None:
        size = int(np.prod(shape, dtype=np.int64)) * tensor.dtype.itemsize
        pinned = self._pinned.setdefault(tensor.name, streams.PinnedBuffer())
        host, device = pinned.reserve(size), self._device[tensor.name].address
        target, source = (device, host) if tensor.is_input else (host, device)
        streams.copy_bytes(target, source, size, to_device=tensor.is_input, stream=self._stream)


class ProfileChoice:
    """Switches an execution context to the first profile that takes the given shapes.

    Args:
        engine: The engine.
        context: Its execution context.
        stream: Where the switch is enqueued.
    """

    def __init__(self, engine: Any, context: Any, stream: streams.Stream) -> None:
        self._engine = engine
        self._context = context
        self._stream = stream

    def choose(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Switch if the active profile does not take ``shapes`` and another does.

        Raises:
            RunFailed: No profile takes them, or the engine refuses the switch.
        """
        active = self._context.active_optimization_profile
        misfits: dict[int, str] = {}
        # The active one first: a switch costs time, and profiles may overlap.
        order = sorted(range(self._engine.num_optimization_profiles), key=lambda i: i != active)
        for index in order:
            misfits[index] = self._misfit(index, shapes)
            if not misfits[index]:
                if index != active:
                    self._switch(index)
                return
        if misfits:
            raise RunFailed("error", " and ".join(misfits[index] for index in sorted(misfits)))

    def _switch(self, index: int) -> None:
        refusal = f"the engine refused its optimization profile {index}"
        try:
            taken = self._context.set_optimization_profile_async(index, self._stream.handle)
        except RuntimeError as error:
            raise RunFailed("error", f"{refusal}: {error}") from error
        if not taken:
            raise RunFailed("error", refusal)
        self._stream.synchronize()

    def _misfit(self, index: int, shapes: Mapping[str, tuple[int, ...]]) -> str:
        """Return which of ``shapes`` profile ``index`` does not take, or an empty string."""
        for name, shape in shapes.items():
            declared = tuple(self._engine.get_tensor_shape(name))
            if -1 not in declared or len(declared) != len(shape):
                # What is fixed is in no profile; setting the shape refuses what differs.
                continue
            low, _, high = map(tuple, self._engine.get_tensor_profile_shape(name, index))
            if not all(a <= size <= b for a, size, b in zip(low, shape, high, strict=True)):
                return (
                    f"input {name!r} of {shape_text(shape)} is outside the engine's profile "
                    f"{shape_text(low)} to {shape_text(high)}"
                )
        return ""


def _make_allocator(module: Any, buffer: streams.DeviceBuffer) -> Any:
    base: Any = module.IOutputAllocator

    class OutputAllocator(base):  # type: ignore[misc]
        """Grows the output's buffer while the engine runs, and keeps the output's shape."""

        def __init__(self) -> None:
            base.__init__(self)
            self.shape: tuple[int, ...] = ()
            self.failure: cuda.CudaError | None = None

        def reallocate_output(
            self, tensor_name: str, memory: int, size: int, alignment: int
        ) -> int:
            # An exception must not travel through the library; no memory is address 0.
            try:
                return buffer.reserve(size)
            except cuda.CudaError as error:
                self.failure = error
                return 0

        def reallocate_output_async(
            self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(shape)

    return OutputAllocator()
