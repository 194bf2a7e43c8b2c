"""A session, made from settings that are saved as they are, run, timed and settled."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from routewright.backends.base import Arrays, BuildFailed, Engine, RunFailed
from routewright.backends.onnxruntime.library import (
    is_out_of_memory,
    library_errors,
    load_library,
    one_line,
)
from routewright.backends.onnxruntime.settings import SessionSettings
from routewright.backends.onnxruntime.values import OutputReader
from routewright.errors import BackendError, StorageError
from routewright.external_data import ExternalFile
from routewright.files import explain_os_error, replace_atomic, write_text_atomic

MODEL_FILE = "model.onnx"
SETTINGS_FILE = "settings.json"

RUN_SCRIPT = """\
import json, sys, numpy, onnxruntime
folder, options = sys.argv[1], onnxruntime.SessionOptions()
saved = json.load(open(f"{folder}/settings.json"))
for name, value in saved["session_options"].items():
    kind = type(getattr(options, name))  # members of enumerations are saved by name
    setattr(options, name, getattr(kind, value) if isinstance(value, str) else value)
for key, value in saved["config_entries"].items():
    options.add_session_config_entry(key, value)
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, **saved["arguments"])
print(session.run(None, dict(numpy.load(sys.argv[2]))))
"""
"""Runs a saved engine without Routewright: arguments are its folder and an ``.npz`` of inputs."""

_QUIET_SHARE = 0.1
_WINDOW_S = 0.008
_LONGEST_SETTLING_S = 0.25


def make_session(
    path: Path, settings: Mapping[str, Any], *, optimized: Path | None = None, severity: int = 2
) -> Any:
    """Create a session on the CPU provider.

    Saving the optimized graph changes nothing of what the session runs: kernels and outputs are
    the same, bit for bit.

    Args:
        path: The model.
        settings: What :meth:`SessionSettings.document` returns.
        optimized: Where to write the optimized graph, with large weights in a file beside it.
        severity: Least severity of what the library logs: 2 warnings, 3 errors, 4 nothing.

    Raises:
        Exception: One of :func:`library_errors`.
        BuildFailed: The session does not run on the provider that was asked for.
    """
    library = load_library()
    options = library.SessionOptions()
    options.log_severity_level = severity
    for name, value in settings["session_options"].items():
        kind = type(getattr(options, name))
        setattr(options, name, getattr(kind, value) if isinstance(value, str) else value)
    for key, value in settings["config_entries"].items():
        options.add_session_config_entry(key, value)
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
        prefix = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{prefix}_file_name", f"{optimized.name}.data")
        options.add_session_config_entry(f"{prefix}_min_size_in_bytes", "65536")
    session = library.InferenceSession(
        str(path),
        options,
        **settings["arguments"],
    )
    # A provider that is missing is replaced with no more than a warning.
    asked, got = list(settings["arguments"]["providers"]), list(session.get_providers())
    if got != asked:
        raise BuildFailed(
            "unsupported", f"the session runs on {', '.join(got)} instead of {', '.join(asked)}"
        )
    return session


class OnnxRuntimeEngine(Engine):
    """A session of one model with one set of settings.

    Args:
        session: The session.
        settings: What it was made with.
        route: The route as text, saved for the reader.
        model: The model file that it was made from.
        external_files: The data files that ``model`` refers to.
        version: Version of ONNX Runtime.
        fingerprint: See :mod:`.fingerprint`; None if it could not be had.
        notes: What a reader should know.
    """

    def __init__(
        self,
        session: Any,
        settings: SessionSettings,
        *,
        route: str,
        model: Path,
        external_files: tuple[ExternalFile, ...],
        version: str,
        fingerprint: str | None,
        notes: tuple[str, ...],
    ) -> None:
        self.fingerprint = fingerprint
        self.notes = notes
        self._settings = settings
        self._route = route
        self._model = model
        self._external_files = external_files
        self._version = version
        self._reader: OutputReader | None = OutputReader(session)
        self._stamps = [_stamp(path) for path in self._sources()]
        self._errors = library_errors()

    def run(self, inputs: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Run once and return every output by name.

        Raises:
            RunFailed: The session refused the inputs or failed.
        """
        reader = self._open_reader()
        try:
            return reader.run(reader.prepare(inputs))
        except self._errors as error:
            raise _run_failed(error) from error

    def time_runs(self, inputs: Arrays, runs: int) -> list[float]:
        """Run ``runs`` times back to back and return each run's latency in ms.

        Each covers one call of ``InferenceSession.run`` with NumPy arrays and all declared
        outputs, the way users' programs call it: host end to end.

        Raises:
            RunFailed: The session refused the inputs or failed.
        """
        reader = self._open_reader()
        latencies_ms: list[float] = []
        try:
            prepared = reader.prepare(inputs)
            for _ in range(runs):
                begin_s = time.perf_counter()
                reader.run_raw(prepared)
                latencies_ms.append((time.perf_counter() - begin_s) * 1e3)
        except self._errors as error:
            raise _run_failed(error) from error
        return latencies_ms

    def settle(self) -> None:
        """Wait until this process uses next to no CPU time, a quarter of a second at most.

        By default the threads of a session go on spinning for some 50 ms after a run, on the
        cores that the next engine needs. Windows shorter than a few milliseconds are not
        accounted reliably. The bound keeps threads that never rest from hanging the study.
        """
        if not self._settings.spins:
            return
        deadline_s = time.monotonic() + _LONGEST_SETTLING_S
        while time.monotonic() < deadline_s:
            begin_s, used_s = time.monotonic(), time.process_time()
            time.sleep(_WINDOW_S)
            window_s = time.monotonic() - begin_s
            if time.process_time() - used_s < _QUIET_SHARE * window_s:
                return

    def save(self, folder: Path) -> list[Path]:
        """Write the model, its data files and ``settings.json``; :data:`RUN_SCRIPT` runs them.

        The model is the original or the quantized one, not the optimized graph: that is bound to
        this machine.

        Raises:
            BackendError: A file is not the one any more that the session was made from.
            StorageError: The folder cannot be written.
        """
        for path, stamp in zip(self._sources(), self._stamps, strict=True):
            if _stamp(path) != stamp:
                raise BackendError(
                    f"{path} was changed after the engine was built, so it cannot be saved; "
                    "tune the changed model anew"
                )
        written = [_copy(self._model, folder / MODEL_FILE)]
        for file in self._external_files:
            written.append(_copy(file.path, folder / file.location))
        document = {
            "onnxruntime": self._version,
            "route": self._route,
            **self._settings.document(),
        }
        settings = folder / SETTINGS_FILE
        write_text_atomic(settings, json.dumps(document, indent=2) + "\n")
        return [*written, settings]

    def close(self) -> None:
        """Free the session; calling it twice is allowed."""
        self._reader = None

    def _sources(self) -> list[Path]:
        return [self._model, *(file.path for file in self._external_files)]

    def _open_reader(self) -> OutputReader:
        if self._reader is None:
            raise ValueError("the engine is closed")
        return self._reader


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from a later version of it; None if it is gone."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _run_failed(error: Exception) -> RunFailed:
    return RunFailed("oom" if is_out_of_memory(error) else "error", one_line(error))


def _copy(source: Path, target: Path) -> Path:
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, part)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageError(f"cannot write {target}: {explain_os_error(error)}") from error
    replace_atomic(part, target)
    return target
