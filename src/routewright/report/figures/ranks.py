"""Mean ranks of search methods with their intervals."""

from __future__ import annotations

import plotly.graph_objects as go

from routewright.compare.statistics import Ranking
from routewright.compare.summary import MAIN_TARGET, Summary
from routewright.report.figures.style import label, new_figure, series_style


def ranks_figure(summary: Summary) -> go.Figure:
    """Return the mean ranks by builds to the main target and by regret at the end."""
    samplers = list(summary.by_builds.mean_ranks)
    figure = new_figure(
        "Mean ranks with 95% intervals over seeds",
        "mean rank over works and seeds; 1 is best",
        "",
        height_px=170 + 40 * max(len(samplers), 1),
    )
    for index, (ranking, name) in enumerate(
        (
            (summary.by_builds, f"by builds to within {MAIN_TARGET:.0%}"),
            (summary.by_regret, "by regret at the end"),
        )
    ):
        figure.add_trace(_trace(ranking, samplers, name, index))
    figure.update_yaxes(
        autorange="reversed",
        tickvals=list(range(len(samplers))),
        ticktext=[label(sampler) for sampler in samplers],
    )
    return figure


def _trace(ranking: Ranking, samplers: list[str], name: str, index: int) -> go.Scatter:
    color, symbol, _ = series_style(index)
    found = [ranking.mean_ranks[sampler] for sampler in samplers]
    return go.Scatter(
        x=[interval.estimate for interval in found],
        y=[place + 0.24 * index - 0.12 for place in range(len(samplers))],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [interval.high - interval.estimate for interval in found],
            "arrayminus": [interval.estimate - interval.low for interval in found],
            "color": color,
        },
        mode="markers",
        marker={"color": color, "symbol": symbol, "size": 9},
        name=name,
        customdata=[label(sampler) for sampler in samplers],
        hovertemplate="%{customdata}: %{x:.2f}<extra></extra>",
    )
