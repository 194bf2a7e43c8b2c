"""Regret of search methods against builds or seconds, one panel for each work."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from routewright.compare.summary import Curve, Standing, Summary
from routewright.report.figures.style import (
    DASHES,
    GRAY,
    SERIES_COLORS,
    TEMPLATE,
    label,
    shade,
)

PANEL_HEIGHT_PX = 300

_COLUMNS = 2
_LEAST_PERCENT = 0.1
"""Regret from which on the axis is drawn; below that is as good as the best route."""

_TICKS_PERCENT = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)

_BAND_OPACITY = 0.13


def regret_figure(summary: Summary, *, over: str = "builds") -> go.Figure:
    """Return the median regret with its quartile band, by sampler.

    Args:
        summary: The comparison.
        over: ``"builds"`` or ``"seconds"``: the horizontal axis.
    """
    works = [work for work in summary.plan.works if summary.of(work)]
    columns = min(_COLUMNS, len(works))
    rows = math.ceil(len(works) / columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[label(work) for work in works],
        horizontal_spacing=0.1,
        vertical_spacing=0.4 / rows,
    )
    top = _LEAST_PERCENT
    for place, work in enumerate(works):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        for standing in summary.of(work):
            curve = standing.by_builds if over == "builds" else standing.by_seconds
            index = summary.plan.samplers.index(standing.sampler)
            for trace in _traces(standing, curve, index, shows_name=place == 0):
                figure.add_trace(trace, **at)
            top = max(top, *(100 * value for value in curve.high))
    axis = "builds after the baseline's" if over == "builds" else "seconds on the work's clock"
    figure.update_layout(
        template=TEMPLATE,
        title_text=f"Regret over {over}: median and quartiles",
        height=130 + PANEL_HEIGHT_PX * rows,
        margin={"t": 90, "b": 110},
    )
    figure.update_xaxes(title_text=axis, rangemode="tozero")
    figure.update_yaxes(
        type="log",
        range=[math.log10(_LEAST_PERCENT), math.log10(top * 1.2)],
        tickvals=_TICKS_PERCENT,
        ticktext=[
            f"≤ {tick:g}%" if tick == _LEAST_PERCENT else f"{tick:g}%" for tick in _TICKS_PERCENT
        ],
    )
    figure.update_yaxes(title_text="regret", col=1)
    figure.update_annotations(font_size=14, font_color=GRAY)
    return figure


def sampler_style(index: int) -> tuple[str, str]:
    """Return color and dash of a sampler; where colors repeat, the dashes do not."""
    count = len(SERIES_COLORS)
    return SERIES_COLORS[index % count], DASHES[(index + index // count) % len(DASHES)]


def _traces(
    standing: Standing, curve: Curve, index: int, *, shows_name: bool
) -> tuple[go.Scatter, go.Scatter]:
    color, dash = sampler_style(index)
    along, high = _steps(curve.at, curve.high)
    _, low = _steps(curve.at, curve.low)
    shared = {"legendgroup": standing.sampler, "mode": "lines"}
    return (
        go.Scatter(
            x=[*along, *reversed(along)],
            y=[_percent(value) for value in (*high, *reversed(low))],
            fill="toself",
            fillcolor=shade(color, _BAND_OPACITY),
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
            **shared,
        ),
        go.Scatter(
            x=curve.at,
            y=[_percent(value) for value in curve.middle],
            name=label(standing.sampler),
            line={"color": color, "dash": dash, "width": 2.2, "shape": "hv"},
            showlegend=shows_name,
            hovertemplate=f"{label(standing.sampler)}: %{{y:.2f}}% at %{{x:.0f}}<extra></extra>",
            **shared,
        ),
    )


def _steps(at: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the corners of a line that holds each value until the next point."""
    along = [x for point in at for x in (point, point)][1:]
    return along, [value for value in values for _ in range(2)][:-1]


def _percent(share: float) -> float:
    # A logarithmic axis has no 0; what lies below its end is drawn on it.
    return max(100 * share, _LEAST_PERCENT)
