"""CUDA errors as they really are in cuda-bindings; no device is needed for these."""

from __future__ import annotations

import pytest
from trt_support import require

from routewright.backends.tensorrt import cuda

NO_DEVICE = "no CUDA device"


@pytest.fixture(autouse=True)
def _bindings() -> None:
    require("cuda")


def test_every_error_that_is_named_exists() -> None:
    names = set(cuda.runtime().cudaError_t.__members__)
    assert names >= cuda.STICKY_ERRORS | {cuda.OUT_OF_MEMORY_ERROR}


@pytest.mark.parametrize(
    ("name", "kind", "part"),
    [
        ("cudaErrorIllegalAddress", "sticky", "the device is lost for this process"),
        ("cudaErrorMemoryAllocation", "oom", "the device is out of memory"),
        ("cudaErrorInvalidValue", "error", "cudaErrorInvalidValue"),
    ],
)
def test_errors_are_failures_of_their_kind(name: str, kind: str, part: str) -> None:
    failure = cuda.CudaError(name, "cudaMalloc", "some text").as_run_failure()
    assert failure.kind == kind
    assert part in str(failure)
    assert "cudaMalloc" in str(failure)


def test_every_call_of_the_runtime_exists() -> None:
    module = cuda.runtime()
    for name in (
        "cudaDriverGetVersion",
        "cudaEventCreate",
        "cudaEventDestroy",
        "cudaEventElapsedTime",
        "cudaEventRecord",
        "cudaFree",
        "cudaFreeHost",
        "cudaGetDeviceCount",
        "cudaGetDeviceProperties",
        "cudaGetErrorString",
        "cudaGetLastError",
        "cudaGraphDestroy",
        "cudaGraphExecDestroy",
        "cudaGraphInstantiate",
        "cudaGraphLaunch",
        "cudaMalloc",
        "cudaMallocHost",
        "cudaMemGetInfo",
        "cudaMemcpyAsync",
        "cudaRuntimeGetVersion",
        "cudaSetDevice",
        "cudaStreamBeginCapture",
        "cudaStreamCreateWithFlags",
        "cudaStreamDestroy",
        "cudaStreamEndCapture",
        "cudaStreamSynchronize",
    ):
        assert callable(getattr(module, name))
    properties = module.cudaDeviceProp()
    for name in ("name", "major", "minor", "totalGlobalMem", "l2CacheSize", "uuid"):
        assert hasattr(properties, name)
    assert module.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal is not None
    assert module.cudaMemcpyKind.cudaMemcpyHostToDevice is not None
    assert module.cudaMemcpyKind.cudaMemcpyDeviceToHost is not None


def test_a_device_that_is_not_there_is_said_in_one_line() -> None:
    problem = cuda.device_problem(999)
    assert problem
    assert "\n" not in problem
    assert NO_DEVICE in problem or "there is no CUDA device 999" in problem or "too old" in problem


class Runtime:
    """The few calls of the CUDA runtime that tell why there is no device, answered at will."""

    def __init__(self, error: str, *, driver: int, count: int = 0) -> None:
        real = cuda.runtime()
        self._error = getattr(real.cudaError_t, error)
        self._success = real.cudaError_t.cudaSuccess
        self._driver, self._count = driver, count
        self.cudaGetErrorString = real.cudaGetErrorString

    def cudaGetDeviceCount(self) -> tuple[object, int]:
        return self._error, self._count

    def cudaDriverGetVersion(self) -> tuple[object, int]:
        return self._success, self._driver

    def cudaRuntimeGetVersion(self) -> tuple[object, int]:
        return self._success, 13050


@pytest.mark.parametrize(
    ("error", "driver", "count", "message"),
    [
        ("cudaErrorInsufficientDriver", 0, 0, "no NVIDIA driver is loaded"),
        (
            "cudaErrorInsufficientDriver",
            12040,
            0,
            "driver is too old: it supports CUDA 12.4, CUDA 13.5 is needed",
        ),
        ("cudaErrorNoDevice", 13000, 0, "CUDA_VISIBLE_DEVICES hides all"),
        ("cudaErrorSystemNotReady", 13000, 0, "cudaErrorSystemNotReady"),
        ("cudaSuccess", 13000, 2, "there is no CUDA device 2: 2 found"),
        ("cudaSuccess", 13000, 3, ""),
    ],
)
def test_why_there_is_no_device(
    monkeypatch: pytest.MonkeyPatch, error: str, driver: int, count: int, message: str
) -> None:
    double = Runtime(error, driver=driver, count=count)
    monkeypatch.setattr(cuda, "runtime", lambda: double)
    problem = cuda.device_problem(2)
    assert message in problem
    assert bool(message) == bool(problem)
