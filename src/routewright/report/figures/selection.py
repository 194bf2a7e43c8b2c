"""Which trials a figure draws, so that thousands stay readable and small."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from routewright.records import Outcome, TrialRecord
from routewright.report.figures.style import GRAY, label

MOST_POINTS = 1500
"""Most trials that one figure draws; a browser stays quick, and more would only overlap."""

_LONGEST_ROUTE = 160


def timed(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that were timed themselves, in their order."""
    return [
        r
        for r in records
        if r.outcome in (Outcome.TIMED, Outcome.SLOW) and r.relative_latency is not None
    ]


def fastest(records: Sequence[TrialRecord], most: int = MOST_POINTS) -> list[TrialRecord]:
    """Return at most ``most`` records, the fastest ones, in their original order."""
    if len(records) <= most:
        return list(records)
    kept = sorted(records, key=lambda r: (r.relative_latency or math.inf, r.number))[:most]
    return sorted(kept, key=lambda r: r.number)


def left_out(drawn: int, total: int, what: str = "trials") -> str:
    """Return what a title adds where not everything is drawn."""
    return "" if drawn >= total else f" (fastest {drawn:,} of {total:,} {what})"


def hover(record: TrialRecord) -> str:
    """Return what is shown over a trial's point."""
    lines = [f"trial {record.number}, {record.phase}, {record.outcome}"]
    if record.relative_latency is not None:
        told = f"relative latency {record.relative_latency:.3f}"
        if record.ci95 is not None:
            told += f" ({record.ci95[0]:.3f} to {record.ci95[1]:.3f})"
        lines.append(told)
    if record.latency_ms is not None:
        lines.append(f"{record.latency_ms:.3f} ms")
    if record.losses:
        name, loss = max(record.losses.items(), key=lambda item: item[1])
        lines.append(f"largest loss {loss:.3g} at {name}")
    lines.append(record.route or "(default route)")
    return "<br>".join(label(line, longest=_LONGEST_ROUTE) for line in lines)


def error_bars(records: Sequence[TrialRecord], color: str) -> dict[str, object]:
    """Return the 95% intervals as Plotly takes them; an unknown one has no length."""
    above, below = [], []
    for record in records:
        value = record.relative_latency or 0.0
        low, high = record.ci95 or (value, value)
        above.append(high - value)
        below.append(value - low)
    return {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "color": color,
        "thickness": 1,
        "width": 2,
    }


def ratio_range(values: Sequence[float]) -> tuple[float, float]:
    """Return an axis range in which the fast half of relative latencies can be told apart.

    A few routes are many times slower, and early intervals can be very wide; both would press
    everything of interest into a line.
    """
    if not values:
        return 0.8, 1.2
    ordered = sorted(values)
    typical = ordered[int(0.9 * (len(ordered) - 1))]
    top = max(1.15, min(typical, 2.0))
    low = min(ordered[0], 1.0)
    margin = 0.12 * (top - low)
    return max(low - margin, 0.0), top + margin


def count_above(figure: go.Figure, values: Sequence[float]) -> None:
    """Say how many relative latencies lie above the vertical axis, where any do."""
    top = figure.layout.yaxis.range[1]
    above = sum(value > top for value in values)
    if above:
        figure.add_annotation(
            x=0.995,
            y=0.99,
            xref="paper",
            yref="paper",
            xanchor="right",
            yanchor="top",
            text=f"{above:,} slower above",
            showarrow=False,
            font={"size": 11, "color": GRAY},
        )
