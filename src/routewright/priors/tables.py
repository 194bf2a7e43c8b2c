"""Evidence from recorded tables: every engine of a space, measured."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from routewright.environment import identifying
from routewright.errors import RoutewrightError
from routewright.files import file_sha256
from routewright.intervals import hodges_lehmann
from routewright.priors.evidence import Evidence, Origin, evidence_of
from routewright.priors.features import ModelFeatures, features_of_file
from routewright.records import Outcome, Phase, TrialRecord
from routewright.routes import Route
from routewright.settings import models_folder
from routewright.tables import Entry, Table
from routewright.tables.entries import log_ratios
from routewright.tables.files import is_table, read_card

__all__ = ["evidence_of_table", "features_of_card", "is_table", "replayed"]


def evidence_of_table(table: Table, *, family: str = "") -> Evidence:
    """Return what a table says, all its engines counted once.

    Args:
        table: The table.
        family: Family of the model; empty: what the card says.
    """
    card = table.card
    bound = card["bound"]
    records = list(_records(table))
    origin = Origin(
        name=table.name,
        kind="table",
        backend=str(card["backend"]),
        tuner_version=table.database.tuner_version,
        model=str(card["model"]["file"]),
        model_sha256=str(card["model"]["sha256"]),
        family=family or table.family,
        features=features_of_card(card),
        environment=identifying(card["environment"]),
        loss=str(bound["loss"]),
        threshold=float(bound["threshold"]),
        baseline_ms=records[0].latency_ms if records else None,
        defaults={knob.name: knob.default for knob in table.database},
    )
    live = set(table.live)
    inert = [knob.name for knob in table.database if knob.searchable and knob.name not in live]
    return evidence_of(origin, records, inert_knobs=inert)


def features_of_card(card: Mapping[str, Any]) -> ModelFeatures | None:
    """Return the features in a table's card, or those of the fetched model if it is there."""
    stored = card.get("features")
    if isinstance(stored, Mapping):
        with contextlib.suppress(ValueError):
            return ModelFeatures.from_dict(stored)
    path = models_folder() / Path(str(card["model"]["file"])).name
    with contextlib.suppress(RoutewrightError, OSError):
        if file_sha256(path) == card["model"]["sha256"]:
            return features_of_file(path, card["shapes"])
    return None


def replayed(folder: Path) -> tuple[str, str, ModelFeatures | None]:
    """Return backend and family of a replayed table, and the features of its model.

    Raises:
        TableError: There is no table.
    """
    card = read_card(folder)
    return str(card["backend"]), str(card.get("family", "")), features_of_card(card)


def _records(table: Table) -> Iterator[TrialRecord]:
    """Yield the default's record, then one for each engine and one for each failed route."""
    default = table.default
    yield _record(table, 0, default, Phase.BASELINE)
    for number, entry in enumerate(_told(table), 1):
        yield _record(table, number, entry, Phase.SEARCH)


def _told(table: Table) -> Iterator[Entry]:
    default = table.default.fingerprint
    for entry in table.entries:
        if entry.fingerprint != default:
            yield entry
    # Single changes say most about liveness and failures, whichever engine they share.
    shown = {entry.route for entry in table.entries}
    for route in _single_changes(table):
        if str(route) not in shown:
            yield table.entry(route)


def _single_changes(table: Table) -> Iterator[Route]:
    for route in table.live_space.one_knob_changes():
        if table.live_space.contains(route):
            yield route


def _record(table: Table, number: int, entry: Entry, phase: Phase) -> TrialRecord:
    eligible = table.eligible(entry)
    timed = entry.timed and entry.failure is None
    if entry.failure is not None:
        outcome = Outcome.FAILED
    elif timed and (eligible or phase is Phase.BASELINE):
        outcome = Outcome.TIMED
    else:
        outcome = Outcome.INACCURATE if entry.losses else Outcome.SCREENED
    is_same = phase is not Phase.BASELINE and entry.fingerprint == table.default.fingerprint
    ratio = entry.relative_latency if timed and not is_same else None
    # What breaks the bound was timed all the same, and its time says as much about its settings.
    return TrialRecord(
        number=number,
        route=entry.route,
        phase=phase,
        outcome=Outcome.TIMED if ratio is not None else outcome,
        failure="" if entry.failure is None else entry.failure[0],
        fingerprint=entry.fingerprint,
        build_s=entry.build_s if math.isfinite(entry.build_s) else None,
        latency_ms=_latency_ms(entry) if timed else None,
        relative_latency=1.0 if phase is Phase.BASELINE else ratio,
        ci95=None if ratio is None else _interval(table, entry, ratio),
        losses=dict(entry.losses),
    )


def _latency_ms(entry: Entry) -> float:
    return float(hodges_lehmann([float(x) for x in entry.candidate_ms.mean(axis=1)]))


def _interval(table: Table, entry: Entry, ratio: float) -> tuple[float, float]:
    ratios = log_ratios(entry.baseline_ms, entry.candidate_ms)
    count = max(len(ratios), 1)
    spread = float(ratios.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.05
    half = 1.96 * math.hypot(1.25 * spread, table.instance_sd)
    return ratio * math.exp(-half), ratio * math.exp(half)
