"""Builds that search methods need to come near the best route, as bars by work."""

from __future__ import annotations

import plotly.graph_objects as go

from routewright.compare.summary import MAIN_TARGET, Summary
from routewright.report.figures.regret import sampler_style
from routewright.report.figures.style import label, new_figure, shade


def targets_figure(summary: Summary, *, target: float = MAIN_TARGET) -> go.Figure:
    """Return the median builds to within a target; hatched bars are lower bounds.

    Args:
        summary: The comparison.
        target: Share above the best relative latency; one of those of the summary.
    """
    figure = new_figure(
        f"Builds until half of the runs are within {target:.0%} of the best route",
        "",
        "builds after the baseline's",
    )
    works = [work for work in summary.plan.works if summary.of(work)]
    for index, sampler in enumerate(summary.plan.samplers):
        color, _ = sampler_style(index)
        found = {s.work: s for s in summary.standings if s.sampler == sampler}
        times = [found[work].builds_to[target] if work in found else None for work in works]
        figure.add_bar(
            x=[label(work) for work in works],
            y=[None if time is None else time.value for time in times],
            name=label(sampler),
            marker={
                "color": [
                    shade(color, 0.35) if time is not None and time.is_bound else color
                    for time in times
                ],
                "line": {"color": color, "width": 1},
                "pattern": {
                    "shape": ["/" if time is not None and time.is_bound else "" for time in times],
                    "fgcolor": color,
                },
            },
            text=["" if time is None else str(time) for time in times],
            textposition="outside",
            textfont={"size": 10},
            cliponaxis=False,
            hovertemplate=f"{label(sampler)} on %{{x}}: %{{text}}<extra></extra>",
        )
    figure.update_layout(barmode="group", bargap=0.2)
    figure.update_yaxes(rangemode="tozero")
    return figure
