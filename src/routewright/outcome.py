"""From a finished search to its result: verdict, files, and the engine that was measured."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from routewright.budget import Budget
from routewright.census import take_census
from routewright.confirm import Confirmed
from routewright.environment import versions
from routewright.errors import StorageError
from routewright.files import file_sha256, write_text_atomic
from routewright.outfolder import OutFolder
from routewright.preparation import Prepared
from routewright.records import Phase, TrialRecord
from routewright.result import (
    Measured,
    TuneResult,
    Verdict,
    count_trials,
    seconds_by_step,
)
from routewright.settings import TuneSettings
from routewright.storage import redact, sqlite_url

MANIFEST_FILE = "manifest.json"
"""What an engine is and where it may run, beside engines that are bound to a machine."""


class OutcomeWriter:
    """Makes the result of a study and writes its files.

    Args:
        settings: What was tuned.
        prepared: What the study worked with.
        out: Where the files go.
        budget: The budget, for its use.
    """

    def __init__(
        self, settings: TuneSettings, prepared: Prepared, out: OutFolder, budget: Budget
    ) -> None:
        self._settings = settings
        self._prepared = prepared
        self._out = out
        self._budget = budget

    def write(
        self,
        baseline: TrialRecord,
        records: Sequence[TrialRecord],
        confirmed: Sequence[Confirmed],
        winner: Confirmed | None,
        *,
        study: str,
        stopped: str,
        interrupted: bool,
        notes: Sequence[str],
    ) -> TuneResult:
        """Save the engine, ``best.route`` and ``result.json``; return the result.

        Raises:
            StorageError: The output folder cannot be written.
        """
        settings, subject = self._settings, self._prepared.subject
        best = self._measured(baseline, winner)
        notes = [*notes, *self._drift(records, best)]
        files = self._ship(winner, best)
        storage = settings.storage or sqlite_url(self._out.database)
        result = TuneResult(
            model={"path": str(subject.path), "sha256": subject.sha256},
            backend=settings.backend,
            metric=self._prepared.metric,
            environment=dict(self._prepared.environment),
            bound=settings.accuracy_bound().to_dict(),
            baseline={
                "route": "",
                "latency_ms": baseline.latency_ms,
                "ci95": list(baseline.ci95 or ()),
                "losses": dict(baseline.losses),
                "fingerprint": baseline.fingerprint,
                "build_s": baseline.build_s,
            },
            best=replace(best, files=files),
            verdict=Verdict.FASTER if winner is not None else Verdict.NO_GAIN,
            reason=_reason(records, confirmed, winner),
            trials=count_trials(records),
            knobs=take_census(records, self._prepared.space.variable),
            budget={
                "limit_s": self._budget.limit_s,
                "used_s": round(self._budget.used_s, 3),
                **seconds_by_step(records),
            },
            seed=settings.seed,
            versions=versions(),
            stopped=stopped,
            notes=tuple(notes),
            study={"name": study, "storage": redact(storage)},
            out=str(self._out.path),
            interrupted=interrupted,
            records=tuple(records),
        )
        write_text_atomic(self._out.route, f"{best.route}\n")
        result.save(self._out.result)
        return result

    def _measured(self, baseline: TrialRecord, winner: Confirmed | None) -> Measured:
        if winner is None or winner.combined is None:
            return Measured(
                route="",
                latency_ms=baseline.latency_ms or math.nan,
                relative_latency=1.0,
                ci95=(1.0, 1.0),
                losses=dict(baseline.losses),
                fingerprint=baseline.fingerprint,
                command=self._command(""),
            )
        return Measured(
            route=winner.record.route,
            latency_ms=winner.combined.latency_ms,
            relative_latency=winner.combined.relative_latency,
            ci95=winner.combined.interval,
            losses=dict(winner.losses),
            fingerprint=winner.fingerprint,
            command=self._command(winner.record.route),
        )

    def _command(self, route: str) -> str:
        """Return the command that measures ``route`` against the default route again."""
        settings = self._settings
        words = ["routewright", "tune", str(self._prepared.subject.path)]
        left_out = {"model", "expr", "expr_file", "sampler", "out", "study", "storage"}
        for item in fields(settings):
            value: Any = getattr(settings, item.name)
            if item.name in left_out or value == item.default:
                continue
            option = "--" + item.name.removesuffix("_s").replace("_", "-")
            if item.name == "max_timing_s":
                option = "--max-timing"
            if isinstance(value, bool):
                words.append(option)
                continue
            for one in value if isinstance(value, tuple) else (value,):
                whole = isinstance(one, float) and one.is_integer()
                words += [option, str(int(one) if whole else one)]
        if route:
            words += ["--expr", route]
        return shlex.join(words)

    def _ship(self, winner: Confirmed | None, best: Measured) -> dict[str, str]:
        """Put the engine that was measured in place and return its files' SHA-256 by name."""
        if self._prepared.subject.simulated:
            return {}
        shipped = winner.engine if winner is not None and winner.engine is not None else None
        _replace_folder(shipped or self._out.baseline_engine, self._out.engine)
        _complete_manifest(self._out.engine / MANIFEST_FILE, best)
        return {
            str(path.relative_to(self._out.engine)): file_sha256(path)
            for path in sorted(self._out.engine.rglob("*"))
            if path.is_file()
        }

    def _drift(self, records: Sequence[TrialRecord], best: Measured) -> list[str]:
        """Say so where the baseline itself drifted by more than the gain that is claimed."""
        readings = [r.baseline_ms for r in records if r.baseline_ms is not None]
        if len(readings) < 2 or best.relative_latency >= 1:
            return []
        drift = max(readings) / min(readings) - 1
        gain = 1 / best.relative_latency - 1
        if drift <= gain:
            return []
        return [
            f"the baseline's own time drifted by {drift:.0%} during the study, more than the gain "
            f"of {gain:.0%}; that is why every candidate is timed in turns with it"
        ]


def _reason(
    records: Sequence[TrialRecord], confirmed: Sequence[Confirmed], winner: Confirmed | None
) -> str:
    if winner is not None and winner.combined is not None:
        low, high = winner.combined.interval
        return (
            f"confirmed in {winner.combined.rounds} rounds of fresh builds: "
            f"{winner.combined.relative_latency:.3f} of the default's time, 95% interval "
            f"{low:.3f} to {high:.3f}"
        )
    if all(record.phase is Phase.BASELINE for record in records):
        return "only the default route was measured: give a larger --budget to try others"
    if not confirmed:
        return "no eligible route was measured faster than the default route"
    if all(candidate.combined is None and not candidate.failure for candidate in confirmed):
        return "the budget ended before a candidate could be confirmed"
    told = [
        candidate.failure
        or (
            "its interval "
            f"{candidate.combined.interval[0]:.3f} to {candidate.combined.interval[1]:.3f} "
            "includes 1"
            if candidate.combined is not None
            else "not measured"
        )
        for candidate in confirmed
    ]
    return f"no candidate was confirmed: {'; '.join(told)}"


def _complete_manifest(path: Path, best: Measured) -> None:
    """Add to a backend's manifest, where it writes one, what only the study knows."""
    if not path.exists():
        return
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["timing"] = {
        "latency_ms": best.latency_ms,
        "relative_latency": best.relative_latency,
        "ci95": list(best.ci95),
    }
    manifest["command"] = best.command
    write_text_atomic(path, json.dumps(manifest, indent=2) + "\n")


def _replace_folder(new: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.old")
    try:
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        new.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror}") from error
