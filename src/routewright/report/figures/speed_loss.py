"""Speed against loss: what accuracy each engine costs, and where the bound is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from routewright.records import Outcome, TrialRecord
from routewright.report.figures.selection import (
    MOST_POINTS,
    count_above,
    error_bars,
    fastest,
    hover,
    left_out,
    ratio_range,
    timed,
)
from routewright.report.figures.style import (
    BLUE,
    GRAY,
    GREEN,
    VERMILLION,
    label,
    new_figure,
    shade,
)


def speed_against_loss(
    records: Sequence[TrialRecord], bound: Mapping[str, Any], *, best_route: str | None = None
) -> go.Figure:
    """Draw relative latency against the largest loss of every checked engine.

    Where outputs have bounds of their own, the loss is drawn as a multiple of its bound. Engines
    that broke the bound were not timed: they are drawn as crosses along the upper edge.

    Args:
        records: All trials.
        bound: The accuracy bound as a study stores it.
        best_route: The route to mark, or None.
    """
    limit = _number(bound.get("threshold"))
    relative = bool(bound.get("per_output"))
    if relative:
        limit = 1.0
    name = str(bound.get("metric") or bound.get("loss") or "loss")
    all_timed = [r for r in timed(records) if r.losses]
    drawn = fastest(all_timed)
    broken = [r for r in records if r.outcome is Outcome.INACCURATE and r.losses][:MOST_POINTS]
    losses = {r.number: _loss(r, relative) for r in (*drawn, *broken)}
    positive = [v for v in (*losses.values(), limit) if 0 < v < math.inf]
    top = max(positive, default=1.0)
    # Losses this far below the bound are all the same to everyone.
    least = 1e-8 * limit if 0 < limit < math.inf else 0.0
    clamped = min(positive, default=1e-6) / 10 < least
    floor = max(min(positive, default=1e-6) / 10, least)
    figure = new_figure(
        f"Speed against loss{left_out(len(drawn), len(all_timed))}",
        "largest loss / its bound" if relative else f"largest loss over all outputs ({name})",
        "relative latency (below 1 is faster)",
    )
    x_range = [math.log10(floor) - 0.2, math.log10(top) + 0.5]
    figure.update_xaxes(type="log", range=x_range, exponentformat="power", dtick=1)
    if x_range[1] - x_range[0] > 12:
        figure.update_xaxes(dtick=math.ceil((x_range[1] - x_range[0]) / 12))
    low, high = ratio_range([r.relative_latency or 1.0 for r in drawn])
    figure.update_yaxes(range=[low, high + 0.08 * (high - low)])
    _draw_bound(figure, limit, x_range)
    figure.add_hline(y=1, line={"color": GRAY, "width": 1, "dash": "dot"})

    def place(record: TrialRecord) -> float:
        return min(max(losses[record.number], floor), 10 ** x_range[1])

    groups = (
        ("eligible", [r for r in drawn if r.eligible and r.route != best_route], BLUE, "circle"),
        ("best", [r for r in drawn if r.eligible and r.route == best_route], GREEN, "star"),
    )
    for title, group, color, symbol in groups:
        if group:
            figure.add_scatter(
                x=[place(r) for r in group],
                y=[r.relative_latency for r in group],
                error_y=error_bars(group, shade(color, 0.35)),
                mode="markers",
                name=f"{title} ({len(group):,})",
                marker={"color": color, "symbol": symbol, "size": 14 if title == "best" else 7},
                hovertext=[hover(r) for r in group],
                hoverinfo="text",
            )
    if broken:
        figure.add_scatter(
            x=[place(r) for r in broken],
            y=[high + 0.03 * (high - low)] * len(broken),
            mode="markers",
            name=f"broke the bound, not timed ({len(broken):,})",
            marker={"color": VERMILLION, "symbol": "x", "size": 8},
            hovertext=[hover(r) for r in broken],
            hoverinfo="text",
        )
    lowest = sum(losses[r.number] <= floor for r in (*drawn, *broken))
    if lowest:
        figure.add_annotation(
            x=math.log10(floor),
            y=0.01,
            yref="paper",
            text=f"{lowest:,} at loss 0" + (f" or below {floor:.0e}" if clamped else ""),
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            font={"size": 11, "color": GRAY},
        )
    count_above(figure, [r.relative_latency or 1.0 for r in drawn])
    return figure


def _draw_bound(figure: go.Figure, limit: float, x_range: list[float]) -> None:
    """Shade the eligible side and draw the bound; 0 and infinity lie beyond the axis."""
    end = 10 ** x_range[1] if limit == math.inf else limit
    start = 10 ** x_range[0]
    if limit > 0:
        figure.add_vrect(x0=start, x1=end, fillcolor=GREEN, opacity=0.07, line_width=0)
    where = {
        "xref": "x",
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 12},
    }
    if 0 < limit < math.inf:
        figure.add_vline(x=limit, line={"color": VERMILLION, "width": 2, "dash": "dash"})
        figure.add_annotation(
            x=math.log10(limit), text=label(f"bound {limit:g}"), xanchor="center", **where
        )
    text = "eligible" if limit > 0 else "only loss 0 is eligible"
    figure.add_annotation(x=x_range[0], text=text, xanchor="left", **where)


def _loss(record: TrialRecord, relative: bool) -> float:
    if relative:
        return (record.violation or 0.0) + 1.0
    return max(record.losses.values())


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.inf
