"""The best so far against the budget's seconds, with the interval of each trial."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from routewright.records import Phase, TrialRecord
from routewright.report.figures.selection import (
    count_above,
    error_bars,
    fastest,
    hover,
    left_out,
    ratio_range,
    timed,
)
from routewright.report.figures.style import (
    BLACK,
    BLUE,
    GRAY,
    ORANGE,
    PURPLE,
    new_figure,
    shade,
)


def best_so_far(
    records: Sequence[TrialRecord], *, confirmed: tuple[float, float, float] | None = None
) -> go.Figure:
    """Draw every timed trial where it ended, and the best eligible one up to then.

    The best of many noisy readings looks better than it is; that is why confirmations, which
    are built anew, have a mark of their own, and what they agreed on a band of its own.

    Args:
        records: All trials.
        confirmed: Relative latency of the confirmed route with its interval: estimate, low, high.
    """
    everything = timed(records)
    drawn = fastest(everything)
    figure = new_figure(
        f"Best so far{left_out(len(drawn), len(everything))}",
        "used of the budget (s)",
        "relative latency (below 1 is faster)",
    )
    low, high = ratio_range([r.relative_latency or 1.0 for r in drawn])
    if confirmed is not None:
        low = min(low, confirmed[1])
        figure.add_hrect(
            y0=confirmed[1],
            y1=confirmed[2],
            fillcolor=PURPLE,
            opacity=0.15,
            line_width=0,
            annotation={"text": "confirmed", "font": {"size": 11}},
            annotation_position="top left",
        )
    figure.update_yaxes(range=[low, high])
    figure.add_hline(y=1, line={"color": GRAY, "width": 1, "dash": "dot"})
    groups = (
        ("timed", _search(drawn), BLUE, "circle"),
        ("broke the bound", [r for r in drawn if not r.eligible], ORANGE, "x"),
        ("confirmation", _confirmations(drawn), PURPLE, "diamond"),
    )
    for title, group, color, symbol in groups:
        if group:
            figure.add_scatter(
                x=[r.elapsed_s for r in group],
                y=[r.relative_latency for r in group],
                error_y=error_bars(group, shade(color, 0.3)),
                mode="markers",
                name=f"{title} ({len(group):,})",
                marker={"color": color, "symbol": symbol, "size": 7},
                hovertext=[hover(r) for r in group],
                hoverinfo="text",
            )
    steps = _steps(everything)
    if steps:
        figure.add_scatter(
            x=[x for x, _ in steps],
            y=[y for _, y in steps],
            mode="lines",
            line={"shape": "hv", "color": BLACK, "width": 2},
            name="best eligible reading so far",
            hoverinfo="skip",
        )
    count_above(figure, [r.relative_latency or 1.0 for r in drawn])
    return figure


def _search(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [r for r in records if r.eligible and r.phase is not Phase.CONFIRMATION]


def _confirmations(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [r for r in records if r.eligible and r.phase is Phase.CONFIRMATION]


def _steps(records: Sequence[TrialRecord]) -> list[tuple[float, float]]:
    """Return where the best so far changed, and the end of the search."""
    steps: list[tuple[float, float]] = []
    best = math.inf
    candidates = sorted(_search(records), key=lambda r: (r.elapsed_s, r.number))
    for record in candidates:
        value = record.relative_latency
        if value is not None and value < best:
            best = value
            steps.append((record.elapsed_s, value))
    if steps:
        steps.append((max(r.elapsed_s for r in records), best))
    return steps
