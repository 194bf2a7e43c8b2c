"""The figures of a comparison as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from routewright.compare.summary import Summary
from routewright.errors import BackendError
from routewright.report.figures.image import write_html, write_pngs
from routewright.report.figures.ranks import ranks_figure
from routewright.report.figures.regret import regret_figure
from routewright.report.figures.targets import targets_figure


def draw_comparison(
    summary: Summary, folder: Path, *, note: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Write every figure of a comparison as HTML and as PNG.

    Args:
        summary: The comparison.
        folder: Where to; made if missing.
        note: Hears why there are no PNG files, where there are none.

    Returns:
        The PNG files.

    Raises:
        StorageError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "regret-builds": regret_figure(summary),
        "regret-seconds": regret_figure(summary, over="seconds"),
        "targets": targets_figure(summary),
        "ranks": ranks_figure(summary),
    }
    for name, figure in figures.items():
        write_html(figure, folder / f"{name}.html")
    images = {folder / f"{name}.png": figure for name, figure in figures.items()}
    try:
        write_pngs([(figure, path) for path, figure in images.items()])
    except BackendError as error:
        note(str(error))
        return []
    return list(images)
