"""Trials as a pandas frame with tidy columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from routewright.records import TrialRecord

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "trial",
    "phase",
    "outcome",
    "eligible",
    "route",
    "relative_latency",
    "ci95_low",
    "ci95_high",
    "latency_ms",
    "baseline_ms",
    "loss",
    "violation",
    "build_s",
    "check_s",
    "time_s",
    "elapsed_s",
    "pairs",
    "fingerprint",
    "reused_from",
    "origin",
    "failure",
    "reason",
)
"""Columns of :func:`trials_frame` in their order."""


def trials_frame(records: Sequence[TrialRecord]) -> pd.DataFrame:
    """Return one row a trial, in the order of the trials' numbers.

    Columns are :data:`COLUMNS`; units are in their names. ``loss`` is the largest loss over the
    outputs, ``violation`` the signed amount by which the bound is exceeded, ``pairs`` how often
    candidate and baseline were timed in turns. What was not measured is missing (NaN, or
    ``pandas.NA`` where the column holds no numbers).
    """
    # Only here: importing pandas takes a while, and tuning needs none of it.
    import pandas as pd

    frame = pd.DataFrame([_row(record) for record in records], columns=list(COLUMNS))
    numbers = {
        name: "float64"
        for name in COLUMNS
        if name.endswith(("_s", "_ms", "_low", "_high"))
        or name in ("relative_latency", "loss", "violation")
    }
    texts = dict.fromkeys(
        ("phase", "outcome", "route", "fingerprint", "origin", "failure", "reason"), "string"
    )
    whole = {"trial": "int64", "pairs": "int64", "eligible": "bool", "reused_from": "Int64"}
    return frame.astype({**numbers, **texts, **whole})


def _row(record: TrialRecord) -> dict[str, Any]:
    low, high = record.ci95 or (math.nan, math.nan)
    return {
        "trial": record.number,
        "phase": str(record.phase),
        "outcome": str(record.outcome),
        "eligible": record.eligible,
        "route": record.route,
        "relative_latency": record.relative_latency,
        "ci95_low": low,
        "ci95_high": high,
        "latency_ms": record.latency_ms,
        "baseline_ms": record.baseline_ms,
        "loss": max(record.losses.values(), default=None),
        "violation": record.violation,
        "build_s": record.build_s,
        "check_s": record.check_s,
        "time_s": record.time_s,
        "elapsed_s": record.elapsed_s,
        "pairs": len(record.log_ratios),
        "fingerprint": record.fingerprint,
        "reused_from": record.reused_from,
        "origin": record.origin,
        "failure": record.failure,
        "reason": record.reason,
    }
