"""What a backend is: something that builds, loads and runs engines, inside a worker process.

A backend lives in the worker process only; the process that owns the study talks to it through
:class:`routewright.workbench.Workbench` and never imports the compiler itself.

A new backend implements :class:`Backend` and :class:`Engine`. Public methods check what they are
given; an implementation overrides the methods that are abstract here and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt

from routewright.knobs import KnobDatabase
from routewright.routes import Route
from routewright.tensors import TensorSpec

Arrays = Mapping[str, npt.NDArray[Any]]
"""Tensors by name."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything a backend needs to know about the work; plain data that crosses processes.

    Attributes:
        model: Path of the ONNX file.
        work_folder: A folder of the worker's own; the backend may write there.
        shapes: Concrete shape of every input that the timing uses, by input name.
        profiles: Optimization profiles, each input name to (min, opt, max) shapes. Backends
            without profiles ignore it.
        calibration: Path of a sample file whose inputs may be used for calibration.
        options: Backend-specific options, JSON values only.
        seed: Seed of anything random in the backend.
    """

    model: Path
    work_folder: Path
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    profiles: Sequence[Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]] = ()
    calibration: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


class BuildFailed(Exception):
    """A route could not be built; the trial fails, the study goes on.

    Args:
        kind: ``"unsupported"`` (the compiler refused this route), ``"oom"`` (not enough memory),
            ``"cancelled"`` (the deadline passed) or ``"error"`` (anything else).
        message: One line, naming the knob or node where known.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RunFailed(Exception):
    """An engine was built but could not be run.

    Args:
        kind: ``"oom"``, ``"sticky"`` (the device is lost for this process) or ``"error"``.
        message: One line.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Engine(ABC):
    """A built engine, resident and ready to run.

    Attributes:
        fingerprint: Hash of what the engine is: structure, formats, precisions and the run-time
            settings that it runs with. None where the backend cannot tell.
        notes: What a reader of the trial should know, one line each, for example that a knob had
            no effect. Library warnings of the build belong here too.
    """

    fingerprint: str | None
    notes: tuple[str, ...]

    @abstractmethod
    def run(self, inputs: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Run once and return every output by name.

        Raises:
            RunFailed: The engine could not run these inputs.
        """

    @abstractmethod
    def time_runs(self, inputs: Arrays, runs: int) -> list[float]:
        """Run ``runs`` times back to back and return each run's latency in ms.

        What the latency covers is the backend's :attr:`Backend.metric`.
        """

    def settle(self) -> None:  # noqa: B027 - most engines leave the device by themselves
        """Wait until this engine leaves the device to others; called after its timing block."""

    @abstractmethod
    def save(self, folder: Path) -> list[Path]:
        """Write the engine into ``folder`` (which exists and is empty) and return its files.

        What is written must run without Routewright.
        """

    @abstractmethod
    def close(self) -> None:
        """Free everything; calling it twice is allowed."""


class Backend(ABC):
    """Builds engines of one model; made once per worker process.

    Attributes:
        name: The name users give.
        metric: What one latency covers, for example ``"host end to end"`` or ``"device only"``;
            a job's options may decide it. Studies with different metrics do not mix.
        fingerprints: Whether engines carry a fingerprint.
    """

    name: ClassVar[str]
    metric: str
    fingerprints: ClassVar[bool] = True

    @abstractmethod
    def __init__(self, job: Job) -> None:
        """Check the model and the options.

        Raises:
            routewright.errors.RoutewrightError: The user can mend it.
        """

    @abstractmethod
    def knob_database(self) -> KnobDatabase:
        """Return the knobs of the installed version, for this model."""

    def run_time_knobs(self) -> tuple[str, ...]:
        """Return the knobs that say how an engine is run, not what is built.

        They are part of every fingerprint, so no build is needed to know that they are live.
        """
        return ()

    @abstractmethod
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs that an engine expects from its user."""

    @abstractmethod
    def build(self, route: Route, folder: Path) -> Engine:
        """Build the engine of ``route``; ``folder`` exists, is empty and is the build's own.

        Raises:
            BuildFailed: This route cannot be built.
        """

    @abstractmethod
    def environment(self) -> dict[str, Any]:
        """Return what results depend on: device, driver, library versions, threads. JSON values.

        Keys ending in ``_now`` are readings (clocks, load); the rest identifies the environment.
        """

    def health(self) -> dict[str, Any]:
        """Return readings such as clocks, temperature and foreign load; empty where unknown."""
        return {}

    def close(self) -> None:  # noqa: B027 - most backends hold nothing
        """Free everything the backend holds."""
