"""What a prior believes: each setting's effect on the latency with its interval."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from routewright.priors.explanation import factor_interval
from routewright.priors.learning import Belief, Beliefs
from routewright.report.figures.style import BLUE, GRAY, GREEN, VERMILLION, label, new_figure

_ROW_PX = 24
_FRAME_PX = 170


def prior_figure(beliefs: Beliefs, *, top: int = 25) -> go.Figure:
    """Return a figure of the settings with the largest clear effects, fastest at the top.

    Args:
        beliefs: What is believed.
        top: How many settings to draw.
    """
    timed = [b for b in beliefs.settings.values() if b.effect is not None]
    clearest = sorted(timed, key=_rank)[:top]
    drawn = sorted(clearest, key=lambda b: -factor_interval(b)[1])
    count = len(beliefs.choice.used)
    figure = new_figure(
        f"What {count} {'source says' if count == 1 else 'sources say'} about one more model",
        "factor on the latency where the setting matters, with 95% interval; below 1 is faster",
        "",
        height_px=_FRAME_PX + _ROW_PX * max(len(drawn), 3),
    )
    styles = {
        "faster": (GREEN, "triangle-left"),
        "not clear": (GRAY, "circle"),
        "slower": (VERMILLION, "triangle-right"),
    }
    names = [label(b.setting) for b in drawn]
    for kind, (color, symbol) in styles.items():
        chosen = [b for b in drawn if _kind(b) == kind]
        if not chosen:
            continue
        intervals = [factor_interval(b) for b in chosen]
        figure.add_scatter(
            name=kind,
            mode="markers",
            x=[middle for _, middle, _ in intervals],
            y=[label(b.setting) for b in chosen],
            marker={"color": color, "symbol": symbol, "size": 9},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [high - middle for _, middle, high in intervals],
                "arrayminus": [middle - low for low, middle, _ in intervals],
                "color": color,
                "thickness": 1.5,
            },
            text=[_hover(b) for b in chosen],
            hovertemplate="%{y}: %{x:.3f}<br>%{text}<extra></extra>",
        )
    figure.update_yaxes(categoryorder="array", categoryarray=names)
    figure.update_xaxes(type="log")
    figure.add_vline(x=1.0, line={"color": BLUE, "dash": "dot", "width": 1})
    return figure


def _rank(belief: Belief) -> tuple[bool, float]:
    return _kind(belief) == "not clear", -abs(math.log(factor_interval(belief)[1]))


def _kind(belief: Belief) -> str:
    low, _, high = factor_interval(belief)
    if high < 1:
        return "faster"
    return "slower" if low > 1 else "not clear"


def _hover(belief: Belief) -> str:
    told = ", ".join(share.source for share in belief.shares if share.effect is not None)
    return label(f"live with probability {belief.live:.2f}; timed in {told}", longest=160)
