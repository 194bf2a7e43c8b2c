from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trt_support import require

from routewright.backends.tensorrt.device import DeviceReadings, remarks
from routewright.backends.tensorrt.engine import launch_note


def test_without_an_answer_nothing_is_read_and_the_reason_is_kept() -> None:
    readings = DeviceReadings("GPU-00000000-0000-0000-0000-000000000000")
    assert readings.read() == {}
    assert readings.driver_version() is None
    assert "not recorded" in readings.problem
    readings.recognize_self(readings.pids())
    readings.close()


def test_everything_that_is_read_exists_in_nvml() -> None:
    require("pynvml")
    import pynvml

    for name in (
        "NVMLError",
        "NVML_CLOCK_MEM",
        "NVML_CLOCK_SM",
        "NVML_TEMPERATURE_GPU",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetUtilizationRates",
        "nvmlInit",
        "nvmlShutdown",
        "nvmlSystemGetDriverVersion",
        "nvmlClocksEventReasonSwPowerCap",
        "nvmlClocksEventReasonSwThermalSlowdown",
        "nvmlClocksThrottleReasonHwSlowdown",
        "nvmlClocksThrottleReasonHwThermalSlowdown",
        "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    ):
        assert hasattr(pynvml, name), name


class _Processes(DeviceReadings):
    """Readings of a device whose processes the test decides."""

    def __init__(self) -> None:
        super().__init__("none")
        self.running: list[Any] = []

    def _processes(self) -> list[dict[str, Any]]:
        return [{"pid": process.pid, "memory_mib": 1} for process in self.running]


def test_in_a_container_the_own_process_is_known_by_when_it_came() -> None:
    readings = _Processes()
    readings.running = [SimpleNamespace(pid=10**8)]
    before = readings.pids()
    readings.running.append(SimpleNamespace(pid=10**8 + 1))
    readings.recognize_self(before)
    assert [process["pid"] for process in readings._other_processes() or []] == [10**8]


def test_a_throttled_or_shared_device_is_said() -> None:
    assert remarks({}) == ()
    assert remarks({"throttled_by": [], "other_processes": []}) == ()
    said = remarks(
        {"throttled_by": ["heat", "power cap"], "other_processes": [{"pid": 7}, {"pid": 9}]}
    )
    assert "throttled by heat, power cap" in said[0]
    assert "2 other processes (pids 7, 9)" in said[1]


def test_launch_bound_engines_are_said() -> None:
    assert launch_note(0.1, 1.0) == ()
    (note,) = launch_note(0.95, 1.0)
    assert "launch-bound" in note
    assert "-runtime:cuda_graph=on" in note
