"""The timing of the best route, block by block, against the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from routewright.records import Phase, TrialRecord
from routewright.report.figures.style import GRAY, label, new_figure, series_style, shade

MOST_ROUNDS = 5
"""Trials of the best route that are drawn, the last ones."""


def timing_blocks(
    records: Sequence[TrialRecord], route: str, *, ci95: tuple[float, float] | None = None
) -> go.Figure:
    """Draw the ratio of each pair of blocks: the best route's and, in gray, the baseline's own.

    The baseline against itself shows how much of the scatter is the machine's.

    Args:
        records: All trials.
        route: The best route.
        ci95: Interval of its relative latency, drawn as a band.
    """
    figure = new_figure(
        "Timing blocks of the best route",
        "pair of blocks in the order of measuring",
        "candidate / default",
    )
    baseline = next((r for r in records if r.phase is Phase.BASELINE and r.log_ratios), None)
    measured = [
        r for r in records if r.route == route and r.log_ratios and r.phase is not Phase.BASELINE
    ]
    confirmations = [r for r in measured if r.phase is Phase.CONFIRMATION]
    chosen = (confirmations or measured)[-MOST_ROUNDS:]
    if ci95 is not None and route:
        figure.add_hrect(
            y0=ci95[0],
            y1=ci95[1],
            fillcolor=shade(series_style(0)[0], 0.12),
            line_width=0,
            annotation={"text": "95% interval", "font": {"size": 11}},
            annotation_position="top left",
        )
    figure.add_hline(y=1, line={"color": GRAY, "width": 1, "dash": "dot"})
    if baseline is not None:
        _draw(figure, baseline, "default itself", (GRAY, "circle-open", "dot"))
    for index, record in enumerate(chosen):
        name = f"build {index + 1}" if confirmations else f"trial {record.number}"
        _draw(figure, record, name, series_style(index))
    shown = [*_middle(chosen, 0.03), *_middle([] if baseline is None else [baseline], 0.15)]
    if shown:
        low, high = min(*shown, 1.0), max(*shown, 1.0)
        margin = max(0.15 * (high - low), 0.01)
        figure.update_yaxes(range=[low - margin, high + margin])
    return figure


def _middle(records: Sequence[TrialRecord], cut: float) -> list[float]:
    """Return the ends of the ratios without the share ``cut`` on either side."""
    ordered = sorted(math.exp(value) for record in records for value in record.log_ratios)
    if not ordered:
        return []
    last = len(ordered) - 1
    return [ordered[int(cut * last)], ordered[math.ceil((1 - cut) * last)]]


def _draw(figure: go.Figure, record: TrialRecord, name: str, style: tuple[str, str, str]) -> None:
    color, symbol, _ = style
    ratios = [math.exp(value) for value in record.log_ratios]
    figure.add_scatter(
        x=list(range(1, len(ratios) + 1)),
        y=ratios,
        mode="markers",
        name=label(f"{name} ({len(ratios)})"),
        marker={"color": color, "symbol": symbol, "size": 6, "opacity": 0.6},
    )
