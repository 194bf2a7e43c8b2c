"""One look for every figure: on screen, in print, and for colour-blind readers.

Colors are those of Okabe and Ito, "Color Universal Design" (2008), which stay apart for every
common kind of colour blindness. Since print may be gray, no figure tells things apart by color
alone: :data:`SYMBOLS` and :data:`DASHES` go with the colors, in the same order.
"""

from __future__ import annotations

import html

import plotly.graph_objects as go

BLUE = "#0072B2"
VERMILLION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
ORANGE = "#E69F00"
SKY = "#56B4E9"
BLACK = "#222222"
GRAY = "#777777"
LIGHT_GRAY = "#E3E3E3"

SERIES_COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""Colors of series in the order of their use."""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "star")
"""Marker symbols that go with :data:`SERIES_COLORS`."""

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px 2px")
"""Line patterns that go with :data:`SERIES_COLORS`."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif"

WIDTH_PX = 900
HEIGHT_PX = 480

_LONGEST_LABEL = 48


def new_figure(title: str, x_title: str, y_title: str, *, height_px: int = HEIGHT_PX) -> go.Figure:
    """Return an empty figure in the project's style.

    Args:
        title: What the figure says, in a few words; plain text.
        x_title: What the horizontal axis is, with its unit; plain text.
        y_title: What the vertical axis is, with its unit; plain text.
        height_px: Height; the width follows the page.
    """
    figure = go.Figure()
    figure.update_layout(
        template=TEMPLATE,
        title_text=label(title, longest=120),
        xaxis_title_text=label(x_title, longest=120),
        yaxis_title_text=label(y_title, longest=120),
        height=height_px,
    )
    return figure


def series_style(index: int) -> tuple[str, str, str]:
    """Return color, symbol and dash of the series at ``index``; they repeat together."""
    place = index % len(SERIES_COLORS)
    return SERIES_COLORS[place], SYMBOLS[place], DASHES[place]


def shade(color: str, opacity: float) -> str:
    """Return a color of this module as ``rgba(...)``, for bands behind lines."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:g})"


def label(text: str, *, longest: int = _LONGEST_LABEL) -> str:
    """Return ``text`` as Plotly shows it literally, cut in the middle where it is too long.

    Plotly reads a part of HTML and LaTeX in its texts; names from models and routes are neither.
    """
    text = " ".join(text.split())
    if len(text) > longest:
        head = (longest - 1) // 2
        text = f"{text[:head]}…{text[head + 1 - longest :]}"
    # A text between dollar signs would be set as a formula.
    return html.escape(text, quote=False).replace("$", "&#36;")


def _template() -> go.layout.Template:
    axis = {
        "showgrid": True,
        "gridcolor": LIGHT_GRAY,
        "zeroline": False,
        "linecolor": GRAY,
        "showline": True,
        "ticks": "outside",
        "tickcolor": GRAY,
        "ticklen": 4,
        "automargin": True,
        "title": {"standoff": 12},
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 13, "color": BLACK},
            "title": {
                "font": {"size": 17},
                "x": 0.015,
                "xref": "container",
                "xanchor": "left",
                "y": 1,
                "yref": "container",
                "yanchor": "top",
                "pad": {"t": 18},
            },
            "colorway": list(SERIES_COLORS),
            "paper_bgcolor": "white",
            "plot_bgcolor": "white",
            "xaxis": axis,
            "yaxis": axis,
            "legend": {
                "orientation": "h",
                "yref": "container",
                "yanchor": "bottom",
                "y": 0,
                "xref": "container",
                "xanchor": "left",
                "x": 0.01,
                "bgcolor": "rgba(255, 255, 255, 0.8)",
            },
            "margin": {"l": 70, "r": 30, "t": 60, "b": 60},
            "hoverlabel": {"align": "left", "bgcolor": "white", "font": {"color": BLACK}},
            "separators": ". ",
        }
    )


TEMPLATE = _template()
