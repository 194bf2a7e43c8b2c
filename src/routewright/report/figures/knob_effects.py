"""What each knob setting does to the latency, with intervals; live and inert."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from routewright.report.effects import Effect
from routewright.report.figures.style import BLUE, GRAY, VERMILLION, label, new_figure
from routewright.result import KnobCensus

MOST_SETTINGS = 24
"""Settings that are drawn; the rest are counted."""

COMPACT_SETTINGS = 9
"""Settings that are drawn where there is little room."""

_ROW_PX = 24


def knob_effect_figure(
    effects: Sequence[Effect], census: KnobCensus, *, most: int = MOST_SETTINGS
) -> go.Figure:
    """Draw the factor that each timed setting has on the latency.

    Clear effects come first, then the largest of the others. The last rows count what is not
    drawn: further settings, inert knobs, and knobs that were not settled.

    Args:
        effects: As :func:`routewright.report.effects.knob_effects` returns them.
        census: Live, inert and unknown knobs.
        most: Most settings that are drawn.
    """
    ranked = sorted(effects, key=lambda e: (not e.clear, -abs(math.log(e.ratio)), e.setting))
    drawn = sorted(ranked[:most], key=lambda e: (e.ratio, e.setting))
    counts = [
        (len(effects) - len(drawn), "more settings with smaller or less clear effects"),
        (len(census.inert), "inert knobs: the engine stays the same"),
        (len(census.unknown), "knobs not settled"),
    ]
    footer = [f"{count} {what}" for count, what in counts if count]
    rows = len(drawn) + len(footer)
    figure = new_figure(
        "Effect of each knob setting",
        "factor on the latency (below 1 is faster)",
        "",
        height_px=190 + _ROW_PX * max(rows, 3),
    )
    figure.add_vline(x=1, line={"color": GRAY, "width": 1, "dash": "dot"})
    groups = (
        ("clearly faster", [e for e in drawn if e.clear and e.ratio < 1], BLUE, "circle"),
        ("clearly slower", [e for e in drawn if e.clear and e.ratio >= 1], VERMILLION, "diamond"),
        ("not clear", [e for e in drawn if not e.clear], GRAY, "circle-open"),
    )
    for title, group, color, symbol in groups:
        if group:
            figure.add_scatter(
                x=[e.ratio for e in group],
                y=[label(e.setting) for e in group],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [e.ci95[1] - e.ratio for e in group],
                    "arrayminus": [e.ratio - e.ci95[0] for e in group],
                    "color": color,
                    "thickness": 1.5,
                    "width": 3,
                },
                mode="markers",
                name=title,
                marker={"color": color, "symbol": symbol, "size": 8},
                hovertext=[_hover(e) for e in group],
                hoverinfo="text",
            )
    if footer:
        figure.add_scatter(
            x=[1.0] * len(footer),
            y=footer,
            mode="markers",
            name="counted",
            marker={"color": GRAY, "symbol": "line-ns-open", "size": 8},
            hoverinfo="skip",
            showlegend=False,
        )
    order = [label(e.setting) for e in drawn] + footer
    figure.update_yaxes(
        categoryorder="array",
        categoryarray=order[::-1],
        type="category",
        range=[-0.7, len(order) - 0.3],
        tickfont={"size": 12},
    )
    if drawn:
        # Wide intervals of settings that were timed once would press the rest together.
        low = min(min(e.ratio for e in drawn), 1.0)
        high = max(max(e.ratio for e in drawn), 1.0)
        margin = max(0.25 * (high - low), 0.05)
        figure.update_xaxes(range=[low - margin, high + margin])
    return figure


def _hover(effect: Effect) -> str:
    return (
        f"{label(effect.setting, longest=120)}<br>factor {effect.ratio:.3f} "
        f"({effect.ci95[0]:.3f} to {effect.ci95[1]:.3f})<br>{effect.trials} timed trials"
    )
