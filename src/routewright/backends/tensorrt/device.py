"""Readings of the device through NVML: clocks, heat, power, throttling, other processes.

Only reads; no setting of a device is ever changed. NVML is optional: without it, or where it
refuses a reading, that reading is left out.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

# NVML's bits, by what they mean for a measurement; idle and application clocks are left out.
_THROTTLE_REASONS = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "heat",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "heat",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
    "nvmlClocksEventReasonSyncBoost": "sync boost",
}


class DeviceReadings:
    """Reads one device.

    Args:
        uuid: The device, as ``nvidia-smi -L`` gives it.

    Attributes:
        problem: Why nothing can be read, or an empty string.
    """

    def __init__(self, uuid: str) -> None:
        self.problem = ""
        self._nvml: Any = None
        self._handle: Any = None
        self._own_pids = {os.getpid()}
        try:
            nvml = importlib.import_module("pynvml")
        except ModuleNotFoundError:
            self.problem = "nvidia-ml-py is not installed, so clocks and heat are not recorded"
            return
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError as error:
            self.problem = f"NVML does not answer ({error}), so clocks and heat are not recorded"
            return
        self._nvml = nvml

    def driver_version(self) -> str | None:
        """Return the driver's version, for example ``"580.159.04"``."""
        if self._nvml is None:
            return None
        value = self._try(lambda: self._nvml.nvmlSystemGetDriverVersion())
        return value.decode() if isinstance(value, bytes) else value

    def pids(self) -> frozenset[int]:
        """Return the processes that compute on the device, as the driver numbers them."""
        return frozenset(process["pid"] for process in self._processes() or [])

    def recognize_self(self, before: frozenset[int]) -> None:
        """Learn under which number the driver knows this process.

        In a container that is another than the process knows itself by.

        Args:
            before: :meth:`pids` right before this process began to use the device.
        """
        after = self.pids()
        if os.getpid() not in after:
            self._own_pids |= after - before

    def read(self) -> dict[str, Any]:
        """Return the readings, JSON values only; empty where nothing can be read.

        Clocks are in MHz, temperature in degrees Celsius, power in watts, memory in MiB.
        """
        if self._nvml is None:
            return {}
        nvml, handle = self._nvml, self._handle
        found = {
            "sm_clock_mhz": self._try(
                lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
            ),
            "memory_clock_mhz": self._try(
                lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
            ),
            "temperature_c": self._try(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            "power_w": self._try(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            "power_limit_w": self._try(
                lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
            ),
            "gpu_busy_percent": self._try(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "free_memory_mib": self._try(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).free >> 20),
            "throttled_by": self._throttled_by(),
            "other_processes": self._other_processes(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def close(self) -> None:
        """Let NVML go."""
        if self._nvml is not None:
            nvml, self._nvml = self._nvml, None
            self._handle = None
            nvml.nvmlShutdown()

    def _throttled_by(self) -> list[str] | None:
        nvml = self._nvml
        read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        read = read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        bits = self._try(lambda: read(self._handle))
        if bits is None:
            return None
        words = {
            word for name, word in _THROTTLE_REASONS.items() if bits & int(getattr(nvml, name, 0))
        }
        return sorted(words)

    def _other_processes(self) -> list[dict[str, Any]] | None:
        running = self._processes()
        if running is None:
            return None
        return [process for process in running if process["pid"] not in self._own_pids]

    def _processes(self) -> list[dict[str, Any]] | None:
        if self._nvml is None:
            return None
        running = self._try(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        if running is None:
            return None
        found = [
            {"pid": int(process.pid), "memory_mib": (process.usedGpuMemory or 0) >> 20}
            for process in running
        ]
        return sorted(found, key=lambda process: process["pid"])

    def _try(self, reading: Callable[[], Any]) -> Any:
        try:
            return reading()
        except self._nvml.NVMLError:
            return None


def remarks(readings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a reader of a result must know about the device, one line each.

    Args:
        readings: From :meth:`DeviceReadings.read`.
    """
    found: list[str] = []
    reasons = readings.get("throttled_by")
    if reasons:
        found.append(f"the device is throttled by {', '.join(reasons)}: times are not its best")
    others = readings.get("other_processes")
    if others:
        pids = ", ".join(str(process["pid"]) for process in others)
        found.append(f"the device is shared with {len(others)} other processes (pids {pids})")
    return tuple(found)
