"""From another tuner's cache to a study of ours.

Every row becomes one finished trial, in the file's order. A route that was tried twice, as in the
second phase of a mixed run, is two trials: both were measured, and whoever reads records pools
them by route. Which row is the baseline, and what is changed in a route, is read from the route's
text and the header's defaults, never from the iteration's number.

A foreign number never wins here: the study carries the mark :data:`IMPORTED` in what it is valid
for, so that no tuning goes on with it, and nothing is ever added to a study that was measured.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from routewright.bounds import Limits
from routewright.bulk import add_finished_trials
from routewright.errors import SettingsError, StorageError
from routewright.interop.cache_file import CacheFile, CacheRow, read_cache
from routewright.interop.formats import CacheFormat
from routewright.interop.route_text import RouteReader, expression_settings, route_settings
from routewright.losses import DEFAULT_TOLERANCE
from routewright.model import OnnxModel
from routewright.records import SCHEMA_VERSION, WORST_VIOLATION, Outcome, Phase, TrialRecord
from routewright.storage import STORAGE_FAULTS, fault_line, open_storage, storage_url
from routewright.study import CONSTRAINT, MARK, METRIC_NAME

IMPORTED = "imported"
"""Key of the mark in a study's identity, and study attribute that keeps the cache's header."""

ROW = "row"
"""Trial attribute that keeps a row as it was written, whatever else it holds."""

_LEAST_VIOLATION = 1e-9
_MOST_NAME = 500

_STATES = {
    Outcome.TIMED: TrialState.COMPLETE,
    Outcome.SCREENED: TrialState.PRUNED,
    Outcome.INACCURATE: TrialState.PRUNED,
    Outcome.FAILED: TrialState.FAIL,
}


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did.

    Attributes:
        study: Name of the study.
        rows: How many rows became trials.
        outcomes: How many trials ended how.
        notes: What was skipped, mended or could not be known, one line each.
    """

    study: str
    rows: int
    outcomes: Mapping[Outcome, int]
    notes: tuple[str, ...]


def import_cache(
    path: Path,
    storage: str,
    cache_format: CacheFormat,
    *,
    study: str | None = None,
    model: Path | None = None,
    device: str | None = None,
) -> ImportReport:
    """Read a tuning cache into a new study.

    Args:
        path: The cache.
        storage: URL of the storage that the study goes to; opened once the cache was read.
        cache_format: Whose cache it is.
        study: Name of the study; None: after the cache.
        model: The model that was tuned, for its digest.
        device: What it was tuned on, in words; no cache says it.

    Raises:
        RoutewrightError: The cache or the model cannot be read, a study of that name exists, or
            the storage cannot be written; nothing is left behind then.
    """
    url = storage_url(storage)
    cache = read_cache(path)
    run = ForeignRun.read(cache, cache_format)
    name = _study_name(study, path, cache_format)
    identity = _identity(cache, cache_format, run, model, device)
    records = run.records()
    notes = (*cache.notes, *run.notes)
    trials = [_trial(record, row) for record, row in zip(records, cache.rows, strict=True)]
    _write_study(open_storage(url), name, identity, _kept(cache), trials)
    return ImportReport(
        name, len(trials), Counter(record.outcome for record in records), tuple(notes)
    )


@dataclass(frozen=True)
class ForeignRun:
    """A cache, understood: what its rows mean.

    Attributes:
        cache: The cache.
        title: The tuner's name.
        reader: Writes its routes as ours.
        routes: Route of every row, as this project writes it.
        baseline: Index of the row of the default route, or None.
        loss: Name of the loss, as this project has it; empty if unknown.
        threshold: Largest loss allowed; None where there is no bound.
        notes: What could not be known, one line each.
    """

    cache: CacheFile
    title: str
    reader: RouteReader
    routes: Sequence[str]
    baseline: int | None
    loss: str
    threshold: float | None
    notes: tuple[str, ...]

    @classmethod
    def read(cls, cache: CacheFile, cache_format: CacheFormat) -> ForeignRun:
        """Find out what the rows of ``cache`` mean."""
        header = cache.header
        expression = expression_settings(_text(header, "tuning_expr"))
        defaults = route_settings(_text(header, "default_build_route"))
        first = cache.rows[0]
        starts_with_default = (
            first.iteration == 0 and _text(header, "searching_algorithm") != "full"
        )
        if starts_with_default:
            # Sweeps other than the full one begin with every varied knob at its default, so a
            # default that the header does not know is found there.
            settings = route_settings(first.route)
            varied = {name for name, to in expression if not isinstance(to, str)}
            if not expression and not defaults:
                varied = set(settings)
            defaults |= {k: v for k, v in settings.items() if k in varied and k not in defaults}
        reader = RouteReader(defaults)
        routes = [reader.canonical(route_settings(row.route)) for row in cache.rows]
        pinned = {name: to for name, to in expression if isinstance(to, str)}
        wanted = reader.canonical(pinned)
        baseline = next((i for i, route in enumerate(routes) if route == wanted), None)
        if baseline is None and not expression and starts_with_default:
            baseline = 0
        return cls(
            cache,
            cache_format.title,
            reader,
            routes,
            baseline,
            cache_format.our_loss(header.get("accuracy_algorithm")),
            _threshold(header, cache_format),
            tuple(_baseline_notes(cache, baseline)),
        )

    def records(self) -> list[TrialRecord]:
        """Return one record for every row, in order."""
        base_ms = None if self.baseline is None else self.cache.rows[self.baseline].gpu_time_ms
        if self.baseline is not None and self.cache.rows[self.baseline].crashed:
            base_ms = None
        return [
            self._record(number, row, route, base_ms)
            for number, (row, route) in enumerate(zip(self.cache.rows, self.routes, strict=True))
        ]

    def _record(
        self, number: int, row: CacheRow, route: str, base_ms: float | None
    ) -> TrialRecord:
        is_baseline = number == self.baseline
        violation = self._limits(row).violation(row.losses) if row.losses else None
        outcome, failure, reason = self._verdict(row, base_ms, violation)
        if outcome is Outcome.INACCURATE:
            # Not eligible, whatever the amount: trtexec also refuses what equals its threshold.
            violation = max(violation or 0.0, _LEAST_VIOLATION)
        ratio = None
        if outcome is Outcome.TIMED and row.gpu_time_ms is not None and base_ms is not None:
            ratio = 1.0 if is_baseline else row.gpu_time_ms / base_ms
        return TrialRecord(
            number=number,
            route=route,
            phase=Phase.BASELINE if is_baseline else Phase.SEARCH,
            outcome=outcome,
            reason=reason,
            failure=failure,
            latency_ms=None if outcome is Outcome.FAILED else row.gpu_time_ms,
            relative_latency=ratio,
            losses=dict(row.losses),
            violation=None if outcome is Outcome.FAILED else violation,
        )

    def _verdict(
        self, row: CacheRow, base_ms: float | None, violation: float | None
    ) -> tuple[Outcome, str, str]:
        """Return how the trial ended, the kind of failure and the reason."""
        if row.crashed:
            return Outcome.FAILED, "crash", row.error or "crashed"
        if row.error and not row.losses:
            return Outcome.FAILED, "error", row.error
        if row.error:
            return Outcome.INACCURATE, "", row.error
        if violation is not None and violation > 0:
            return Outcome.INACCURATE, "", self._limits(row).judge(row.losses).broken[0]
        if row.gpu_time_ms is None:
            return Outcome.FAILED, "error", f"{self.title} noted no time for it"
        if base_ms is None:
            reason = f"took {row.gpu_time_ms:.6g} ms, but there is no baseline to compare it with"
            return Outcome.SCREENED, "", reason
        return Outcome.TIMED, "", ""

    def _limits(self, row: CacheRow) -> Limits:
        limit = math.inf if self.threshold is None else self.threshold
        return Limits(self.loss, dict.fromkeys(row.losses, limit))


def _baseline_notes(cache: CacheFile, baseline: int | None) -> list[str]:
    notes = []
    if cache.header_text is None:
        notes.append("there is no header: tuner version, bound and defaults are not known")
    if baseline is None:
        notes.append("no row is of the default route, so there are no relative latencies")
        return notes
    row = cache.rows[baseline]
    if row.crashed or row.gpu_time_ms is None:
        what = "crashed" if row.crashed else "was not timed"
        notes.append(
            f"line {row.line}: the default route {what}, so there are no relative latencies"
        )
    elif row.error:
        notes.append(
            f"line {row.line}: the default route itself was refused ({row.error}); relative "
            "latencies are to its time nevertheless"
        )
    return notes


def _identity(
    cache: CacheFile,
    cache_format: CacheFormat,
    run: ForeignRun,
    model: Path | None,
    device: str | None,
) -> dict[str, Any]:
    """Return what the study is valid for, as far as the cache and the user say it."""
    header = cache.header
    parameters = header.get("accuracy_parameter")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    files = header.get("files")
    named = files.get("onnx") if isinstance(files, Mapping) else None
    opened = None if model is None else OnnxModel.open(model)
    return {
        IMPORTED: {
            "source": cache_format.name,
            "cache": cache.path.name,
            "model": str(model) if model is not None else named,
            "device": device,
        },
        "model_sha256": None if opened is None else opened.sha256,
        "backend": "tensorrt",
        "latency": cache_format.latency,
        "bound": {
            "loss": run.loss,
            "threshold": "inf" if run.threshold is None else run.threshold,
            "per_output": {},
            "atol": _finite(parameters.get("atol"), DEFAULT_TOLERANCE),
            "rtol": _finite(parameters.get("rtol"), DEFAULT_TOLERANCE),
            "metric": None,
        },
        "environment": {} if device is None else {"device": device},
        "knobs": {"tuner_version": _text(header, "tuner_version") or "unknown"},
    }


def _study_name(given: str | None, path: Path, cache_format: CacheFormat) -> str:
    if given is None:
        return f"{cache_format.name}-{path.name.partition('.')[0]}"[:_MOST_NAME]
    if not 0 < len(given) <= _MOST_NAME:
        raise SettingsError(f"the name of a study must have 1 to {_MOST_NAME} characters")
    return given


def _kept(cache: CacheFile) -> dict[str, Any]:
    """Return what is kept of the cache beside its rows."""
    return {
        "header_line": cache.header_text,
        "header": _storable(cache.header),
        "skipped": [note for note in cache.notes if ": skipped: " in note],
    }


def _trial(record: TrialRecord, row: CacheRow) -> FrozenTrial:
    violation = record.violation
    if violation is None:
        violation = WORST_VIOLATION if record.outcome is Outcome.FAILED else 0.0
    state = _STATES[record.outcome]
    return create_trial(
        state=state,
        value=record.relative_latency if state is TrialState.COMPLETE else None,
        user_attrs={**record.to_attributes(), ROW: row.text},
        constraints={CONSTRAINT: violation},
    )


def _write_study(
    storage: BaseStorage,
    name: str,
    identity: Mapping[str, Any],
    kept: Mapping[str, Any],
    trials: Sequence[FrozenTrial],
) -> None:
    """Create the study with its trials, or leave nothing behind."""
    try:
        study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
    except optuna.exceptions.DuplicatedStudyError as error:
        raise StorageError(
            f"the storage already holds a study named {name!r}; name another with --study"
        ) from error
    except STORAGE_FAULTS as error:
        raise StorageError(f"cannot create the study {name!r}: {fault_line(error)}") from error
    is_complete = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            study.set_metric_names([METRIC_NAME])
        study.set_user_attr(MARK, {"schema_version": SCHEMA_VERSION, **identity})
        study.set_user_attr(IMPORTED, dict(kept))
        add_finished_trials(study, storage, trials)
        is_complete = True
    except STORAGE_FAULTS as error:
        raise StorageError(f"cannot import into {name!r}: {fault_line(error)}") from error
    finally:
        if not is_complete:
            _delete(storage, name)


def _delete(storage: BaseStorage, name: str) -> None:
    try:
        optuna.delete_study(study_name=name, storage=storage)
    except STORAGE_FAULTS:
        # The storage is what failed in the first place, and that is being reported.
        return


def _text(header: Mapping[str, Any], key: str) -> str:
    value = header.get(key)
    return value if isinstance(value, str) else ""


def _threshold(header: Mapping[str, Any], cache_format: CacheFormat) -> float | None:
    """Return the header's accuracy threshold, or None where the tuner checked nothing."""
    parameters = header.get("accuracy_parameter")
    value = parameters.get("epsilon") if isinstance(parameters, Mapping) else None
    number = _finite(value, -1.0)
    is_bound = number > 0 or (number == 0 and cache_format.zero_is_a_bound)
    return number if is_bound else None


def _finite(value: Any, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return otherwise
    try:
        number = float(value)
    except OverflowError:
        return otherwise
    return number if math.isfinite(number) else otherwise


def _storable(value: Any) -> Any:
    """Return JSON values without infinities and NaN, which not every storage takes."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value
