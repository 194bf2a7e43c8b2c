"""``routewright report``: a study as HTML, Markdown or PDF."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from routewright.errors import SettingsError
from routewright.files import write_text_atomic
from routewright.report.source import read_study
from routewright.report.story import tell

_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".pdf": "pdf"}


def report(
    source: Annotated[
        str, typer.Argument(metavar="DIR|STORAGE", help="Output folder, or storage URL.")
    ],
    study: Annotated[
        str | None, typer.Option(help="Study in the storage, where it holds several.")
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="One HTML file (default).")] = False,
    md: Annotated[
        bool, typer.Option("--md", help="Markdown, for a pull request; printed without --out.")
    ] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="PDF; needs Chrome or Chromium.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; by default report.html or .pdf in the output folder."),
    ] = None,
) -> int:
    """Write a report of a study: finished, running, killed or imported.

    It answers: how much faster, how sure, at what accuracy, which knobs did it, how to rebuild it.
    """
    form = _form(html=html, md=md, pdf=pdf, out=out)
    view = read_study(source, study)
    story = tell(view)
    if form == "md":
        # Only what is written needs Plotly, which takes a while to load.
        from routewright.report.markdown import study_markdown

        content = study_markdown(story)
        if out is None:
            sys.stdout.write(content)
            return 0
        write_text_atomic(out, content)
    else:
        from routewright.report.html import study_html

        if out is None:
            out = (view.folder or Path()) / f"{_default_stem(view.name, view.folder)}.{form}"
        if form == "pdf":
            from routewright.report.pdf import write_pdf

            write_pdf(study_html(story, paper=True), out)
        else:
            write_text_atomic(out, study_html(story))
    print(f"written to {out}")
    return 0


def _form(*, html: bool, md: bool, pdf: bool, out: Path | None) -> str:
    given = [name for name, chosen in (("html", html), ("md", md), ("pdf", pdf)) if chosen]
    if len(given) > 1:
        raise SettingsError(
            f"--{given[0]} and --{given[1]} do not go together: one file holds one of them"
        )
    suffix = None if out is None else _SUFFIXES.get(out.suffix.lower())
    if given:
        return given[0]
    if out is not None and suffix is None:
        raise SettingsError(
            f"{out}: what to write is not said; let the name end in .html, .md or .pdf, or give "
            "--html, --md or --pdf"
        )
    return suffix or "html"


def _default_stem(study: str, folder: Path | None) -> str:
    if folder is not None:
        return "report"
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in study).strip("-.")
    return f"report-{kept[:80] or 'study'}"
