"""The figures that every study has, with the words that go with them."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from routewright.report.figures.best_so_far import best_so_far
from routewright.report.figures.knob_effects import (
    COMPACT_SETTINGS,
    MOST_SETTINGS,
    knob_effect_figure,
)
from routewright.report.figures.speed_loss import speed_against_loss
from routewright.report.figures.timing_blocks import timing_blocks
from routewright.report.story import Status, Story

_DASHBOARD_PX = 450
"""Height that Optuna's dashboard gives a figure; what is taller is cut off."""


@dataclass(frozen=True)
class Shown:
    """A figure as a report shows it.

    Attributes:
        key: Name for files and identifiers: letters, digits and hyphens.
        figure: The figure.
        caption: How to read it, in a sentence or two; plain text.
    """

    key: str
    figure: go.Figure
    caption: str


def study_figures(story: Story, *, compact: bool = False) -> list[Shown]:
    """Return the figures of a study, those left out that would be empty.

    Args:
        story: What the study has to say.
        compact: Whether they have to do with the room that Optuna's dashboard gives a figure.
    """
    view, best = story.view, story.best
    bound = view.identity.get("bound") or (view.result or {}).get("bound") or {}
    shown = []
    if any(record.losses for record in view.records):
        route = None if best is None else best.route
        shown.append(
            Shown(
                "speed-loss",
                speed_against_loss(view.records, bound, best_route=route),
                "Every engine that was checked. Left of the dashed line the bound is met; lower "
                "is faster. Bars are 95% intervals.",
            )
        )
    if any(record.relative_latency is not None for record in view.records):
        confirmed = None
        if best is not None and story.status is Status.FASTER and best.ci95 is not None:
            confirmed = (best.relative_latency, *best.ci95)
        shown.append(
            Shown(
                "best-so-far",
                best_so_far(view.records, confirmed=confirmed),
                "Every timed trial where it ended, with its 95% interval. The line is the best "
                "eligible reading so far; what counts is the confirmation.",
            )
        )
    if story.effects or story.census.live:
        shown.append(
            Shown(
                "knob-effects",
                knob_effect_figure(
                    story.effects,
                    story.census,
                    most=COMPACT_SETTINGS if compact else MOST_SETTINGS,
                ),
                "A linear model over all timed trials, with 95% intervals. A setting timed only "
                "a few times keeps a wide interval.",
            )
        )
    if best is not None and any(r.log_ratios for r in view.records):
        shown.append(
            Shown(
                "timing-blocks",
                timing_blocks(view.records, best.route, ci95=best.ci95),
                "One point for each pair of blocks that were timed in turns. The gray points are "
                "two builds of the default route: the scatter of the machine itself.",
            )
        )
    if compact:
        for one in shown:
            one.figure.update_layout(height=_DASHBOARD_PX)
    return shown
