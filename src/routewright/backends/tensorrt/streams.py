"""CUDA streams, events, memory and recorded graphs.

Every object frees what it holds in ``close``, which may be called twice.
"""

from __future__ import annotations

import contextlib
import ctypes
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from routewright.backends.tensorrt.cuda import CudaError, call, runtime


class _Closing:
    """Closes itself at the end of a ``with`` block."""

    def close(self) -> None:
        raise AssertionError("a subclass frees its own handle")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Stream(_Closing):
    """A CUDA stream that does not wait for the default stream."""

    def __init__(self) -> None:
        self._raw = call("cudaStreamCreateWithFlags", runtime().cudaStreamNonBlocking)

    @property
    def handle(self) -> int:
        """The stream as the engine takes it."""
        return int(self._raw)

    def synchronize(self) -> None:
        """Wait until everything enqueued is done.

        Raises:
            CudaError: Some of it failed.
        """
        call("cudaStreamSynchronize", self._raw)

    def close(self) -> None:
        """Free the stream."""
        if self._raw is not None:
            raw, self._raw = self._raw, None
            _free("cudaStreamDestroy", raw)

    @property
    def raw(self) -> Any:
        """The stream as the CUDA bindings take it."""
        return self._raw


class Event(_Closing):
    """A point in a stream with a time."""

    def __init__(self) -> None:
        self._raw = call("cudaEventCreate")

    def record(self, stream: Stream) -> None:
        """Put the event behind what ``stream`` holds."""
        call("cudaEventRecord", self._raw, stream.raw)

    def ms_since(self, start: Event) -> float:
        """Return the milliseconds from ``start``, both reached, with about 0.5 us resolution."""
        return float(call("cudaEventElapsedTime", start._raw, self._raw))

    def close(self) -> None:
        """Free the event."""
        if self._raw is not None:
            raw, self._raw = self._raw, None
            _free("cudaEventDestroy", raw)


class DeviceBuffer(_Closing):
    """Device memory that grows when asked; never of no bytes, since engines refuse null."""

    def __init__(self) -> None:
        self.address = 0
        self.capacity = 0

    def reserve(self, size: int) -> int:
        """Make room for ``size`` bytes, contents lost if it grows, and return the address."""
        size = max(size, 1)
        if size > self.capacity:
            self.close()
            self.address = int(call("cudaMalloc", size))
            self.capacity = size
        return self.address

    def close(self) -> None:
        """Free the memory."""
        if self.address:
            address, self.address, self.capacity = self.address, 0, 0
            _free("cudaFree", address)


class PinnedBuffer(_Closing):
    """Page-locked host memory that grows when asked, so that copies need no staging."""

    def __init__(self) -> None:
        self.address = 0
        self.capacity = 0

    def reserve(self, size: int) -> int:
        """Make room for ``size`` bytes, contents lost if it grows, and return the address."""
        size = max(size, 1)
        if size > self.capacity:
            self.close()
            self.address = int(call("cudaMallocHost", size))
            self.capacity = size
        return self.address

    def close(self) -> None:
        """Free the memory."""
        if self.address:
            address, self.address, self.capacity = self.address, 0, 0
            _free("cudaFreeHost", address)


class Graph(_Closing):
    """Recorded work of one stream that is enqueued with one call."""

    def __init__(self, executable: Any) -> None:
        self._executable = executable

    def launch(self, stream: Stream) -> None:
        """Enqueue the recorded work."""
        call("cudaGraphLaunch", self._executable, stream.raw)

    def close(self) -> None:
        """Free the graph."""
        if self._executable is not None:
            executable, self._executable = self._executable, None
            _free("cudaGraphExecDestroy", executable)


class Capture:
    """Records what is enqueued into ``stream`` inside a ``with`` block, without running it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._graph: Any = None

    def __enter__(self) -> Self:
        mode = runtime().cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        call("cudaStreamBeginCapture", self._stream.raw, mode)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._graph = call("cudaStreamEndCapture", self._stream.raw)
        except CudaError:
            # Reading the error clears it; the capture is over and the stream usable again.
            runtime().cudaGetLastError()
            if error is None:
                raise

    def instantiate(self) -> Graph:
        """Return the recorded work, ready to launch."""
        graph, self._graph = self._graph, None
        try:
            return Graph(call("cudaGraphInstantiate", graph, 0))
        finally:
            _free("cudaGraphDestroy", graph)


def copy_to_device(address: int, array: npt.NDArray[Any], stream: Stream) -> None:
    """Copy a C-contiguous array to the device; done when ``stream`` is."""
    _copy(address, array.ctypes.data, array.nbytes, "cudaMemcpyHostToDevice", stream)


def copy_to_host(array: npt.NDArray[Any], address: int, stream: Stream) -> None:
    """Copy from the device into a C-contiguous array; done when ``stream`` is."""
    _copy(array.ctypes.data, address, array.nbytes, "cudaMemcpyDeviceToHost", stream)


def copy_bytes(target: int, source: int, size: int, *, to_device: bool, stream: Stream) -> None:
    """Copy ``size`` bytes between page-locked host memory and the device."""
    kind = "cudaMemcpyHostToDevice" if to_device else "cudaMemcpyDeviceToHost"
    _copy(target, source, size, kind, stream)


def host_view(address: int, size: int) -> npt.NDArray[np.uint8]:
    """Return ``size`` bytes of host memory at ``address`` as an array; the owner keeps them."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _free(name: str, handle: Any) -> None:
    # On a lost device nothing can be freed any more; the end of the process does it.
    with contextlib.suppress(CudaError):
        call(name, handle)


def _copy(target: int, source: int, size: int, kind: str, stream: Stream) -> None:
    if size:
        direction = getattr(runtime().cudaMemcpyKind, kind)
        call("cudaMemcpyAsync", target, source, size, direction, stream.raw)
