"""The CUDA runtime through cuda-bindings: calls, their errors, and what devices there are.

Errors carry the CUDA error's name, and whether the device is lost for this process.
"""

from __future__ import annotations

import importlib
import uuid
from dataclasses import dataclass
from typing import Any

from routewright.backends.base import RunFailed
from routewright.errors import BackendError

# After one of these, every later call in the process fails as well.
STICKY_ERRORS = frozenset(
    {
        "cudaErrorAssert",
        "cudaErrorContained",
        "cudaErrorContextIsDestroyed",
        "cudaErrorECCUncorrectable",
        "cudaErrorExternalDevice",
        "cudaErrorHardwareStackError",
        "cudaErrorIllegalAddress",
        "cudaErrorIllegalInstruction",
        "cudaErrorInvalidAddressSpace",
        "cudaErrorInvalidPc",
        "cudaErrorLaunchFailure",
        "cudaErrorLaunchTimeout",
        "cudaErrorMisalignedAddress",
        "cudaErrorNvlinkUncorrectable",
        "cudaErrorTensorMemoryLeak",
        "cudaErrorUnknown",
    }
)
OUT_OF_MEMORY_ERROR = "cudaErrorMemoryAllocation"

INSTALL_BINDINGS = "the Python package cuda-bindings is not installed; pip install cuda-bindings"


class CudaError(Exception):
    """A call of the CUDA runtime failed.

    Args:
        name: The error's name, for example ``"cudaErrorMemoryAllocation"``.
        call: The call that reported it; a sticky error may come from earlier work.
        text: What CUDA says about it.
    """

    def __init__(self, name: str, call: str, text: str) -> None:
        super().__init__(f"{call}: {name} ({text})")
        self.name = name

    @property
    def kind(self) -> str:
        """The kind for :class:`routewright.backends.base.RunFailed`."""
        if self.name in STICKY_ERRORS:
            return "sticky"
        return "oom" if self.name == OUT_OF_MEMORY_ERROR else "error"

    def as_run_failure(self) -> RunFailed:
        """Return the failure of a run that this error is."""
        advice = {
            "sticky": "; the device is lost for this process",
            "oom": "; the device is out of memory",
        }
        return RunFailed(self.kind, f"{self}{advice.get(self.kind, '')}")


def runtime() -> Any:
    """Return the module ``cuda.bindings.runtime``.

    Raises:
        BackendError: cuda-bindings is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.runtime")
    except ModuleNotFoundError as error:
        raise BackendError(INSTALL_BINDINGS) from error


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the CUDA runtime and return what it yields besides its error code.

    Raises:
        CudaError: The call failed, or reports that earlier work did.
    """
    module = runtime()
    code, *values = getattr(module, name)(*arguments)
    if int(code) != 0:
        raise CudaError(code.name, name, _error_text(module, code))
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def device_problem(device: int = 0) -> str:
    """Return why CUDA device ``device`` cannot be used, one line, or an empty string."""
    try:
        count = call("cudaGetDeviceCount")
    except BackendError as error:
        return str(error)
    except CudaError as error:
        return _explain_no_device(error)
    if device >= count:
        return f"there is no CUDA device {device}: {count} found"
    return ""


def require_device(device: int) -> None:
    """Make ``device`` current for this thread.

    Raises:
        BackendError: There is none, or its driver is too old.
    """
    problem = device_problem(device)
    if problem:
        raise BackendError(problem)
    try:
        call("cudaSetDevice", device)
    except CudaError as error:
        raise BackendError(f"CUDA device {device} cannot be used: {error}") from error


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What CUDA says about a device.

    Attributes:
        ordinal: Its number among the devices that this process sees.
        name: For example ``"NVIDIA H200"``.
        compute_capability: For example ``"9.0"``.
        memory_mib: Its memory, in MiB.
        l2_bytes: Size of its L2 cache, in bytes.
        uuid: Its identity, as ``nvidia-smi -L`` gives it; the same for every process.
        driver: The CUDA version that the driver supports, for example ``"13.0"``.
    """

    ordinal: int
    name: str
    compute_capability: str
    memory_mib: int
    l2_bytes: int
    uuid: str
    driver: str


def device_facts(device: int) -> DeviceFacts:
    """Ask CUDA about ``device``, which must exist.

    Raises:
        CudaError: The device does not answer.
    """
    properties = call("cudaGetDeviceProperties", device)
    return DeviceFacts(
        ordinal=device,
        name=_decoded(properties.name),
        compute_capability=f"{properties.major}.{properties.minor}",
        memory_mib=int(properties.totalGlobalMem) >> 20,
        l2_bytes=int(properties.l2CacheSize),
        uuid=f"GPU-{uuid.UUID(bytes=bytes(properties.uuid.bytes))}",
        driver=_version(call("cudaDriverGetVersion")),
    )


def free_memory_mib() -> int:
    """Return the free memory of the current device, in MiB."""
    free, _ = call("cudaMemGetInfo")
    return int(free) >> 20


def _explain_no_device(error: CudaError) -> str:
    supported = int(runtime().cudaDriverGetVersion()[1] or 0)
    if supported == 0:
        return "no CUDA device is here: no NVIDIA driver is loaded"
    if error.name == "cudaErrorInsufficientDriver":
        needed = _version(int(runtime().cudaRuntimeGetVersion()[1]))
        return (
            f"the NVIDIA driver is too old: it supports CUDA {_version(supported)}, "
            f"CUDA {needed} is needed; update the driver"
        )
    if error.name == "cudaErrorNoDevice":
        return "no CUDA device is here: none found, or CUDA_VISIBLE_DEVICES hides all"
    return f"no CUDA device can be used: {error}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _error_text(module: Any, code: Any) -> str:
    return _decoded(module.cudaGetErrorString(code)[1])


def _decoded(text: Any) -> str:
    return text.decode("utf-8", "replace").rstrip("\0") if isinstance(text, bytes) else str(text)
