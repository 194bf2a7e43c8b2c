"""Studies to report on, made of records: no engine is built for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from routewright.records import Outcome, Phase, TrialRecord
from routewright.report.source import StudyView
from routewright.routes import Route
from routewright.search.base import Proposal
from routewright.space import SearchSpace
from routewright.storage import open_storage, sqlite_url
from routewright.study import StudyLog
from routewright.studyfile import write_study_note

from test_trial import DATABASE  # isort: skip

BOUND = {"loss": "cos", "threshold": 0.01, "per_output": {}, "metric": None}
IDENTITY = {
    "backend": "onnxruntime",
    "latency": "host end to end",
    "bound": BOUND,
    "environment": {"cpu": "a processor", "onnxruntime": "1.0"},
    "model_sha256": "0" * 64,
}


def record(number: int, route: str, **changes: Any) -> TrialRecord:
    """Return a timed record."""
    values: dict[str, Any] = {
        "phase": Phase.SEARCH,
        "outcome": Outcome.TIMED,
        "fingerprint": f"f{number}",
        "build_s": 0.5,
        "check_s": 0.1,
        "time_s": 1.0,
        "latency_ms": 9.0,
        "baseline_ms": 10.0,
        "relative_latency": 0.9,
        "ci95": (0.88, 0.92),
        "losses": {"y": 1e-4},
        "violation": -0.99,
        "log_ratios": (-0.1, -0.11, -0.09, -0.12),
        "elapsed_s": 2.0 * number + 2,
    }
    return TrialRecord(number, route, **(values | changes))


def baseline(**changes: Any) -> TrialRecord:
    """Return the record of the default route."""
    values = {
        "phase": Phase.BASELINE,
        "relative_latency": 1.0,
        "ci95": (0.98, 1.02),
        "latency_ms": 10.0,
        "fingerprint": "default",
        "losses": {"y": 0.0},
        "log_ratios": (0.01, -0.01),
    }
    return record(0, "", **(values | changes))


def result(route: str = "-a=on", verdict: str = "faster", **changes: Any) -> dict[str, Any]:
    """Return the content of a ``result.json``."""
    best = {
        "route": route,
        "latency_ms": 9.0,
        "relative_latency": 0.9,
        "ci95": [0.88, 0.92],
        "losses": {"y": 1e-4},
        "fingerprint": "f1",
        "command": f"routewright tune m.onnx --expr {route}",
        "files": {"model.onnx": "1" * 64},
    }
    return {
        "schema_version": 1,
        "model": {"path": "/models/m.onnx", "sha256": "0" * 64},
        "bound": BOUND,
        "environment": IDENTITY["environment"],
        "best": best,
        "verdict": verdict,
        "reason": "confirmed in 2 rounds",
        "budget": {"limit_s": 120.0, "used_s": 100.0, "build_s": 10.0},
        "notes": ["inputs are made up"],
        "versions": {"python": "3.11"},
        "seed": 0,
        "study": {"name": "study", "storage": ""},
        **changes,
    }


def finished_view(**changes: Any) -> StudyView:
    """Return a study in which ``-a=on`` was confirmed faster, with one trial of every kind."""
    records = (
        baseline(),
        record(1, "-a=on"),
        record(2, "-b=2", relative_latency=1.2, ci95=(1.1, 1.3), outcome=Outcome.SLOW),
        record(
            3,
            "-c=int8",
            outcome=Outcome.INACCURATE,
            relative_latency=None,
            ci95=None,
            latency_ms=None,
            losses={"y": 0.5},
            violation=49.0,
            log_ratios=(),
            reason="output 'y': cos 0.5 is above 0.01",
        ),
        TrialRecord(
            4, "-d=on", Phase.SEARCH, Outcome.FAILED, reason="the worker died", failure="crash"
        ),
        record(5, "-e=on", outcome=Outcome.REUSED, fingerprint="default", reused_from=0),
        record(6, "-a=on", phase=Phase.CONFIRMATION),
        record(7, "-a=on", phase=Phase.CONFIRMATION),
    )
    known: dict[str, Any] = {
        "name": "study",
        "records": records,
        "searched": ("-a", "-b", "-c", "-d", "-e"),
        "identity": IDENTITY,
        "settings": {"model": "/models/m.onnx", "budget_s": 120.0},
        "result": result(),
        "folder": Path("/results"),
        "in_use": False,
    }
    return StudyView(**(known | changes))


def wide_records(trials: int, knobs: int, *, seed: int = 0) -> list[TrialRecord]:
    """Return records of a wide study: random routes, latencies by a linear model, and noise."""
    chosen = random.Random(seed)
    effects = {f"-knob{index}": chosen.gauss(0, 0.03) for index in range(knobs)}
    records = [baseline()]
    for number in range(1, trials):
        changed = chosen.sample(sorted(effects), chosen.randint(1, min(12, knobs)))
        ratio = 1.0
        for knob in changed:
            ratio *= 1 + effects[knob]
        ratio *= 1 + chosen.gauss(0, 0.01)
        route = " ".join(f"{knob}=on" for knob in sorted(changed))
        loss = 10 ** chosen.uniform(-9, -1.5)
        if loss > BOUND["threshold"]:
            records.append(
                record(
                    number,
                    route,
                    outcome=Outcome.INACCURATE,
                    relative_latency=None,
                    ci95=None,
                    log_ratios=(),
                    losses={"y": loss},
                    violation=loss / 0.01 - 1,
                )
            )
            continue
        records.append(
            record(
                number,
                route,
                relative_latency=ratio,
                ci95=(0.98 * ratio, 1.02 * ratio),
                losses={"y": loss},
                violation=loss / 0.01 - 1,
                outcome=Outcome.TIMED if ratio < 1.05 else Outcome.SLOW,
            )
        )
    return records


def study_in(folder: Path, name: str = "study", *, records: Sequence[TrialRecord] = ()) -> str:
    """Make an output folder with a killed study; return its storage.

    Args:
        folder: The folder.
        name: Name of the study.
        records: Its trials; by default one of the route ``-a=off``.
    """
    folder.mkdir(exist_ok=True)
    url = sqlite_url(folder / "study.db")
    log = StudyLog.create(
        open_storage(url), name, identity=IDENTITY, pending=folder / "pending.json"
    )
    log.note("settings", {"model": "m.onnx"})
    space = SearchSpace.whole(DATABASE)
    for one in records or [record(0, "-a=off")]:
        route = Route() if records else Route.parse(one.route, DATABASE)
        log.commit(log.begin(Proposal(route, phase=one.phase), space), one)
    note = {"study": name, "settings": {}, "storage": "", "begun": True, "used_s": 12.0}
    write_study_note(folder / "study.json", note)
    return url
