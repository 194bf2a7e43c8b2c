"""What one study, cache or table says about each knob value.

Evidence is numbers of its own study only; nothing of other studies is in it. So a source can be
taken out of a prior again, and what is learned does not depend on the order in which it came.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from routewright.priors.features import ModelFeatures
from routewright.priors.liveness import live_settings
from routewright.priors.losses import loss_levels
from routewright.priors.regression import Trial, estimate_effects
from routewright.priors.roles import roles_of
from routewright.records import Outcome, Phase, TrialRecord
from routewright.search.observations import log_sd

if TYPE_CHECKING:
    import pandas as pd

SETTING_COLUMNS = (
    "knob",
    "value",
    "role",
    "position",
    "live",
    "builds",
    "failures",
    "timed",
    "effect",
    "effect_se",
    "checked",
    "loss_log10",
    "loss_se",
    "build_effect",
    "build_se",
)
"""Columns of :attr:`Evidence.settings`."""

PAIR_COLUMNS = ("first", "second", "timed", "effect", "effect_se")
"""Columns of :attr:`Evidence.pairs`."""

_TEXTS = frozenset({"knob", "value", "role", "first", "second"})
_DIGITS = 6
_BUILD_SD = 0.1
_SLOW_FROM = 0.05
_SLOW_SD = 0.5


@dataclass(frozen=True)
class Origin:
    """Where evidence comes from and what it is valid for.

    Attributes:
        name: Name of the study, cache or table.
        kind: ``"study"``, ``"cache"`` or ``"table"``.
        backend: What built the engines.
        tuner_version: Version of the knobs, as the backend states it.
        model: Name of the model's file.
        model_sha256: Digest of the model, or None.
        family: Family that the user named, or an empty string.
        features: Features of the model, or None where they are not known.
        environment: What times depend on, as the study has it.
        loss: Name of the loss.
        threshold: Largest loss allowed; infinite where there was no bound.
        baseline_ms: Latency of the default route, or None.
        defaults: Default of every knob that the backend listed, in its order.
    """

    name: str
    kind: str
    backend: str
    tuner_version: str = "unknown"
    model: str = ""
    model_sha256: str | None = None
    family: str = ""
    features: ModelFeatures | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    loss: str = ""
    threshold: float = math.inf
    baseline_ms: float | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """What one source says.

    Attributes:
        origin: Where it comes from.
        settings: One row for each knob value that was tried, columns :data:`SETTING_COLUMNS`:
            the knob's role and position; whether setting it alone changes the engine (``live``, 1
            or 0, NaN if not known); in how many builds it took part and how many failed through
            it; its effect on log relative latency with standard error; the base-10 logarithm of
            the loss that it brings about, with standard error; its effect on log build seconds.
        pairs: Clear interactions, columns :data:`PAIR_COLUMNS`.
        trials: How many trials there were.
    """

    origin: Origin
    settings: pd.DataFrame
    pairs: pd.DataFrame
    trials: int

    @property
    def key(self) -> str:
        """Identifies the source; learning from it again replaces what was learned."""
        origin = self.origin
        text = json.dumps([origin.kind, origin.name, origin.backend, origin.model_sha256])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def evidence_of(
    origin: Origin, records: Iterable[TrialRecord], *, inert_knobs: Iterable[str] = ()
) -> Evidence:
    """Return what the trials of one source say.

    Args:
        origin: Where they come from.
        records: All its trials.
        inert_knobs: Knobs that are known to change nothing for this model, apart from trials.
    """
    kept = [r for r in records if r.failure != "interrupted"]
    effects = estimate_effects(_timed(kept))
    builds = estimate_effects(_build_times(kept), most_pairs=0).single
    losses = loss_levels(kept)
    live = live_settings(kept)
    taken_part, failures = _build_counts(kept)
    names = {*taken_part, *live, *effects.single}
    told = (name.partition("=")[0] for name in sorted(names))
    roles = roles_of(dict.fromkeys([*origin.defaults, *told]))
    rows: list[dict[str, Any]] = []
    for setting in sorted(names):
        knob, _, value = setting.partition("=")
        effect, build = effects.single.get(setting), builds.get(setting)
        loss = losses.get(setting)
        rows.append(
            {
                "knob": knob,
                "value": value,
                "role": roles[knob].name,
                "position": roles[knob].position,
                "live": live.get(setting),
                "builds": taken_part.get(setting, 0),
                "failures": failures.get(setting, 0.0),
                "timed": 0 if effect is None else effect.trials,
                "effect": None if effect is None else effect.value,
                "effect_se": None if effect is None else effect.se,
                "checked": 0 if loss is None else loss.trials,
                "loss_log10": None if loss is None else loss.log10,
                "loss_se": None if loss is None else loss.se,
                "build_effect": None if build is None else build.value,
                "build_se": None if build is None else build.se,
            }
        )
    rows += _inert_rows(origin, inert_knobs, {row["knob"] for row in rows})
    pairs = [
        {
            "first": first,
            "second": second,
            "timed": effect.trials,
            "effect": effect.value,
            "effect_se": effect.se,
        }
        for (first, second), effect in sorted(effects.pairs.items())
    ]
    return Evidence(origin, settings_frame(rows), pairs_frame(pairs), len(kept))


def settings_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as :attr:`Evidence.settings`."""
    return _frame(rows, SETTING_COLUMNS)


def pairs_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as :attr:`Evidence.pairs`."""
    return _frame(rows, PAIR_COLUMNS)


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    # Half a second of importing that only evidence needs.
    import pandas as pd

    # Six digits are more than was measured, and few enough that every machine agrees on them.
    content = {
        name: [str(row[name]) for row in rows]
        if name in _TEXTS
        else np.array([_rounded(row[name]) for row in rows], dtype=float)
        for name in columns
    }
    return pd.DataFrame(content, columns=list(columns))


def _rounded(value: float | None) -> float:
    return math.nan if value is None else float(f"{value:.{_DIGITS}g}")


def _settings(record: TrialRecord) -> tuple[str, ...]:
    return tuple(record.route.split())


def _timed(records: Sequence[TrialRecord]) -> list[Trial]:
    """Return the trials that were timed themselves; the baseline is 1 by definition."""
    return [
        Trial(_settings(r), r.log_relative_latency, _worth_sd(r.log_relative_latency, log_sd(r)))
        for r in records
        if r.outcome in (Outcome.TIMED, Outcome.SLOW)
        and r.log_relative_latency is not None
        and r.route
    ]


def _worth_sd(value: float, sd: float) -> float:
    """Return a standard error that lets slow routes say less.

    What a setting does beside one that makes everything slow says little about what it does in a
    route that anyone would use, and a sum of effects is right near the default at best.
    """
    return math.hypot(sd, _SLOW_SD * max(value - _SLOW_FROM, 0.0))


def _build_times(records: Sequence[TrialRecord]) -> list[Trial]:
    baseline_s = next(
        (r.build_s for r in records if r.phase is Phase.BASELINE and r.build_s), None
    )
    if baseline_s is None:
        return []
    return [
        Trial(_settings(r), math.log(r.build_s / baseline_s), _BUILD_SD)
        for r in records
        if r.build_s and r.route
    ]


def _build_counts(
    records: Sequence[TrialRecord],
) -> tuple[dict[str, int], dict[str, float]]:
    """Return in how many builds each setting took part, and how many failed through it.

    A failure is blamed on the settings that are in no build that worked, in equal shares; on all
    of them where each is.
    """
    built: dict[str, int] = {}
    failures: dict[str, float] = {}
    proven: set[str] = set()
    for record in records:
        failed = record.outcome is Outcome.FAILED
        if not failed and record.build_s is None and record.reused_from is not None:
            continue
        for setting in _settings(record):
            built[setting] = built.get(setting, 0) + 1
            if not failed:
                proven.add(setting)
    for record in records:
        if record.outcome is Outcome.FAILED and record.reused_from is None:
            settings = _settings(record)
            blamed = [s for s in settings if s not in proven] or list(settings)
            for setting in blamed:
                failures[setting] = failures.get(setting, 0.0) + 1.0 / len(blamed)
    return built, failures


def _inert_rows(
    origin: Origin, inert_knobs: Iterable[str], told: set[str]
) -> list[dict[str, Any]]:
    """Return a row for each knob that is known to be inert and was never set."""
    roles = roles_of(origin.defaults)
    return [
        dict.fromkeys(SETTING_COLUMNS)
        | {
            "knob": knob,
            "value": "*",
            "role": roles[knob].name,
            "position": roles[knob].position,
            "live": 0.0,
            "builds": 0,
            "failures": 0.0,
            "timed": 0,
            "checked": 0,
        }
        for knob in inert_knobs
        if knob not in told and knob in roles
    ]
