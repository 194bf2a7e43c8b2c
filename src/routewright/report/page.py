"""A report as one HTML file that needs no network: words, tables, figures.

Everything that comes from models, files and routes passes through :func:`text` on its way in, and
a content security policy keeps the page from loading anything, whatever it holds.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from routewright.report.page_style import CSS, SCRIPT


@dataclass(frozen=True)
class Markup:
    """HTML that is safe to put into a page: made here, or escaped."""

    html: str

    def __add__(self, other: Markup) -> Markup:
        return Markup(self.html + other.html)


def text(content: object) -> Markup:
    """Return plain text as markup; bytes that no text holds are shown as such."""
    printable = str(content).encode("utf-8", "backslashreplace").decode()
    return Markup(html.escape(printable, quote=True))


def element(tag: str, content: Markup | str = "", /, **attributes: str) -> Markup:
    """Return an element; text content and attributes are escaped.

    Args:
        tag: Name of the element.
        content: Markup as it is, or text.
        attributes: Attributes; ``class_`` stands for ``class``, other underscores for hyphens.
    """
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(value).html}"'
        for name, value in attributes.items()
    )
    inner = content if isinstance(content, Markup) else text(content)
    return Markup(f"<{tag}{told}>{inner.html}</{tag}>")


def join(parts: Iterable[Markup]) -> Markup:
    """Return markup one after the other."""
    return Markup("\n".join(part.html for part in parts))


def section(heading: str, *parts: Markup) -> Markup:
    """Return a section with its heading."""
    return element("section", join([element("h2", heading), *parts]))


def table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Markup | str]],
    *,
    numeric: Sequence[int] = (),
) -> Markup:
    """Return a table; ``numeric`` are the columns that are set flush right."""
    head = join(
        element("th", heading, scope="col", class_="number" if index in numeric else "word")
        for index, heading in enumerate(headings)
    )
    body = join(
        element(
            "tr",
            join(
                element("td", cell, class_="number" if index in numeric else "word")
                for index, cell in enumerate(row)
            ),
        )
        for row in rows
    )
    content = [element("caption", caption)] if caption else []
    content += [element("thead", element("tr", head)), element("tbody", body)]
    return element("div", element("table", join(content)), class_="scroll")


def folded(summary: str, *parts: Markup) -> Markup:
    """Return something that is shown on demand."""
    return element("details", join([element("summary", summary), *parts]))


def code(content: str) -> Markup:
    """Return a block of code that one click selects."""
    return element("pre", element("code", content), tabindex="0")


def figure(key: str, drawing: go.Figure, caption: str) -> Markup:
    """Return a figure with its caption.

    Args:
        key: Identifier, different for every figure of a page: letters, digits and hyphens.
        drawing: The figure.
        caption: How to read it.
    """
    # Inside a script element only the end tag has to be kept out.
    data = str(drawing.to_json()).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    title = html.unescape(str(drawing.layout.title.text or key))
    height_px = int(drawing.layout.height or 480)
    plot = element(
        "div",
        "",
        id=f"plot-{key}",
        class_="plot",
        role="img",
        aria_label=f"{title}. {caption}",
        style=f"min-height: {height_px}px",
    )
    script = Markup(
        f'<script type="application/json" class="figure" data-plot="plot-{text(key).html}">'
        f"{data}</script>"
    )
    return element("figure", join([plot, script, element("figcaption", caption)]))


def page(title: str, body: Markup, *, footer: str, paper: bool = False) -> str:
    """Return the whole HTML file.

    Args:
        title: Title of the document.
        body: Its main part.
        footer: A line at its end; plain text.
        paper: Whether it is laid out at the width of a sheet, for printing.
    """
    has_figures = 'class="figure"' in body.html
    scripts = (
        f"<script>{get_plotlyjs()}</script>\n<script>{SCRIPT}</script>" if has_figures else ""
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:">
<meta name="generator" content="Routewright">
<link rel="icon" href="data:,">
<title>{text(title).html}</title>
<style>{CSS}</style>
</head>
<body{' class="paper"' if paper else ""}>
<main>
{body.html}
</main>
<footer>{text(footer).html}</footer>
{scripts}
</body>
</html>
"""
