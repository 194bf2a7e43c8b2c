"""Tuning caches as trtexec and Torch-TensorRT write them, made for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna

from routewright.interop.formats import CacheFormat
from routewright.interop.importing import ImportReport, import_cache
from routewright.interop.trtexec import TRTEXEC
from routewright.records import TrialRecord
from routewright.search.base import history_of
from routewright.storage import open_storage
from routewright.study import load_study

HEADER: dict[str, Any] = {
    "tuner_version": "2.19.45",
    "accuracy_algorithm": "Cosine",
    "accuracy_parameter": {
        "atol": 9.999999747378752e-06,
        "rtol": 9.999999747378752e-06,
        "epsilon": 0.0010000000474974513,
    },
    "searching_algorithm": "fast",
    "command_line": "trtexec --onnx=m.onnx '--tuneBuildRoutes=-a=[on|off] -b=[0|1|2]'",
    "default_build_route": "-a=on -b=1 -c=5",
    "tuning_expr": "-a=[on|off] -b=[0|1|2]",
    "files": {"onnx": "/data/m.onnx", "save_engine": "/data/m.plan"},
    "argv": ["trtexec", "--onnx=/data/m.onnx", "--tuneBuildRoutes=-a=[on|off] -b=[0|1|2]"],
}
ACCURACY_FAILURE = "child exited with status 1"
CRASH = "child killed by signal 11 (Segmentation fault)"
TORCH = {"separators": (", ", ": "), "ensure_ascii": True}


def line(values: Mapping[str, Any], **how: Any) -> str:
    """Return a line as trtexec's JSON library writes it."""
    return json.dumps(values, **{"separators": (",", ":"), "ensure_ascii": False, **how})


def header(**changed: Any) -> str:
    return line({**HEADER, **changed})


def row(
    iteration: int,
    route: str,
    gpu_time: Any = 1.0,
    *,
    losses: Any = None,
    error: str = "",
    crash: bool = False,
    more: Mapping[str, Any] | None = None,
) -> str:
    return line(
        {
            "iter": iteration,
            "build_route": route,
            "crash": crash,
            "error_message": error,
            "accuracy_loss": None if crash else ({"y": 1e-5} if losses is None else losses),
            "gpu_time": None if crash else gpu_time,
            **(more or {}),
        }
    )


def fast_rows() -> list[str]:
    """A whole fast sweep: baseline, a faster route, an inaccurate one, and a crash."""
    return [
        row(0, "-a=on -b=1", 2.0),
        row(1, "-a=on -b=0", 1.5),
        row(2, "-a=on -b=2", 1.0, losses={"y": 0.25}, error=ACCURACY_FAILURE),
        row(3, "-a=off -b=1", crash=True, error=CRASH),
    ]


def write(path: Path, lines: Sequence[str], end: str = "\n") -> Path:
    path.write_bytes("".join(f"{text}{end}" for text in lines).encode())
    return path


def storage_beside(path: Path) -> str:
    """Return the URL of a journal, which is opened much faster than a SQLite file."""
    return f"journal:///{path.with_suffix('.log').absolute()}"


def imported(
    path: Path, cache_format: CacheFormat = TRTEXEC, **options: Any
) -> tuple[ImportReport, list[TrialRecord], optuna.Study]:
    """Import a cache into a journal beside it; return report, records and study."""
    url = storage_beside(path)
    report = import_cache(path, url, cache_format, **options)
    study = load_study(open_storage(url), report.study)
    return report, list(history_of(study).records), study
