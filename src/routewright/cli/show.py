"""``routewright show``: a study on one screen, running, finished or broken."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from routewright.report.source import read_study
from routewright.report.story import tell
from routewright.report.terminal import show_story


def show(
    source: Annotated[
        str, typer.Argument(metavar="DIR|STORAGE", help="Output folder, or storage URL.")
    ],
    study: Annotated[
        str | None, typer.Option(help="Study in the storage, where it holds several.")
    ] = None,
) -> int:
    """Print a study: best route, trials, and what each knob does."""
    show_story(Console(highlight=False), tell(read_study(source, study)))
    return 0
