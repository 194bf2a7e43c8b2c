"""The outcome of a tuning, and the files that carry it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routewright.errors import StorageError
from routewright.files import write_text_atomic
from routewright.frames import trials_frame
from routewright.records import Outcome, Phase, TrialRecord

if TYPE_CHECKING:
    import pandas as pd

RESULT_SCHEMA_VERSION = 1

RESULT_ATTRIBUTE = "result"
"""Study attribute that holds the result, so that the storage alone tells it."""


class Verdict(StrEnum):
    """What a tuning found."""

    FASTER = "faster"
    NO_GAIN = "no gain"


@dataclass(frozen=True)
class Measured:
    """A route as it was confirmed.

    Attributes:
        route: The route, as the compiler takes it; empty for the default route.
        latency_ms: Median latency.
        relative_latency: Latency / baseline latency.
        ci95: 95% interval of the relative latency, corrected for having picked the best.
        losses: Worst loss by output name.
        fingerprint: The engine's fingerprint.
        command: A command that measures this route again.
        files: SHA-256 of the engine's files by name.
    """

    route: str
    latency_ms: float
    relative_latency: float
    ci95: tuple[float, float]
    losses: Mapping[str, float]
    fingerprint: str | None
    command: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KnobCensus:
    """What is known of the knobs of this model.

    Attributes:
        searchable: How many are searched.
        live: Names of those that change the engine.
        inert: Names of those that do not.
        unknown: Names of those that were not tried.
    """

    searchable: int
    live: tuple[str, ...]
    inert: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class TuneResult:
    """What a tuning found, with all that is needed to judge and to repeat it.

    Attributes:
        model: Path and digest.
        backend: Name of the backend.
        metric: What one latency covers.
        environment: What the result is valid for.
        bound: The accuracy bound.
        baseline: The default route: route, latency, noise of two identical engines.
        best: The winner; the default route where there is no gain.
        verdict: Whether the winner is faster.
        reason: Why the verdict is what it is, in one line.
        trials: Counts by outcome.
        knobs: What is known of the knobs.
        budget: Limit, use, and where the time went.
        seed: Seed of every random choice.
        versions: Of Python and packages.
        stopped: Why the search ended.
        notes: What a reader should know.
        study: Name and storage of the study.
        out: The output folder.
        interrupted: Whether the user ended it early.
        records: Every finished trial; not part of ``result.json``, the study has them.
    """

    model: Mapping[str, str]
    backend: str
    metric: str
    environment: Mapping[str, Any]
    bound: Mapping[str, Any]
    baseline: Mapping[str, Any]
    best: Measured
    verdict: Verdict
    reason: str
    trials: Mapping[str, int]
    knobs: KnobCensus
    budget: Mapping[str, Any]
    seed: int
    versions: Mapping[str, str]
    stopped: str
    notes: tuple[str, ...]
    study: Mapping[str, str]
    out: str
    interrupted: bool = False
    records: tuple[TrialRecord, ...] = field(default=(), repr=False, compare=False)

    def trials_dataframe(self) -> pd.DataFrame:
        """Return one row a trial; see :func:`routewright.frames.trials_frame`."""
        return trials_frame(self.records)

    def to_content(self) -> dict[str, Any]:
        """Return what ``result.json`` holds, as plain JSON values."""
        content: dict[str, Any] = {
            "schema_version": RESULT_SCHEMA_VERSION,
            **asdict(replace(self, records=())),
        }
        del content["records"]
        content["knobs"] = {
            "searchable": self.knobs.searchable,
            "live": len(self.knobs.live),
            "inert": len(self.knobs.inert),
            "unknown": len(self.knobs.unknown),
            "live_names": list(self.knobs.live),
        }
        return dict(_plain(content))

    def to_json(self) -> str:
        """Return the result as JSON text."""
        return result_text(self.to_content())

    def save(self, path: Path) -> None:
        """Write ``result.json``, atomically."""
        write_text_atomic(path, self.to_json())


def result_text(content: Mapping[str, Any]) -> str:
    """Return the text of ``result.json`` for a result's JSON values."""
    return json.dumps(content, indent=2) + "\n"


def read_result(path: Path) -> dict[str, Any]:
    """Read a ``result.json`` as plain data.

    Raises:
        StorageError: It cannot be read or is of another schema.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read the result {path}: {error}") from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != RESULT_SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema version {version!r}, this version reads {RESULT_SCHEMA_VERSION}"
        )
    return dict(content)


def count_trials(records: Sequence[TrialRecord]) -> dict[str, int]:
    """Return how many trials ended how.

    ``built`` counts builds that succeeded, ``timed`` those that were timed to an interval,
    ``eligible`` timed ones within the bound; ``screened`` were built for their fingerprint only.
    """
    outcomes = Counter(record.outcome for record in records)
    return {
        "total": len(records),
        "built": sum(record.build_s is not None for record in records),
        "timed": outcomes[Outcome.TIMED] + outcomes[Outcome.SLOW],
        "eligible": sum(
            record.eligible and record.outcome is not Outcome.REUSED for record in records
        ),
        "pruned_accuracy": outcomes[Outcome.INACCURATE],
        "pruned_slow": outcomes[Outcome.SLOW],
        "failed": outcomes[Outcome.FAILED],
        "reused": outcomes[Outcome.REUSED],
        "screened": outcomes[Outcome.SCREENED],
    }


def seconds_by_step(records: Sequence[TrialRecord]) -> dict[str, float]:
    """Return where the seconds of the trials went.

    ``saved_s`` were not spent: candidates that were clearly no contenders were given up early.
    """
    return {
        "build_s": round(sum(record.build_s or 0.0 for record in records), 3),
        "check_s": round(sum(record.check_s or 0.0 for record in records), 3),
        "time_s": round(sum(record.time_s or 0.0 for record in records), 3),
        "saved_s": round(sum(record.saved_s or 0.0 for record in records), 3),
        "confirmation_s": round(
            sum(r.cost_s for r in records if r.phase is Phase.CONFIRMATION), 3
        ),
    }


def _plain(value: Any) -> Any:
    """Return ``value`` with infinities as text, since JSON has none, and tuples as lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value
