"""Figures as files: HTML that needs nothing else, and PNG."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import plotly.graph_objects as go

from routewright.errors import BackendError, SettingsError
from routewright.files import write_bytes_atomic, write_text_atomic
from routewright.report.figures.style import HEIGHT_PX, WIDTH_PX

BROWSER_VARIABLE = "BROWSER_PATH"
"""Environment variable that names the browser, as Kaleido reads it."""

_BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)

_TIMEOUT_S = 90

_INSTALL = (
    "install one (Debian: apt install chromium) or name it in the environment variable "
    f"{BROWSER_VARIABLE}"
)


def write_html(figure: go.Figure, path: Path) -> None:
    """Write a figure as one HTML file that needs no network.

    Raises:
        StorageError: The file cannot be written.
    """
    page = figure.to_html(
        include_plotlyjs=True,
        include_mathjax=False,
        full_html=True,
        config={"displaylogo": False, "responsive": True},
    )
    write_text_atomic(path, page)


def write_png(
    figure: go.Figure, path: Path, *, width_px: int = WIDTH_PX, scale: float = 2.0
) -> None:
    """Write a figure as PNG; see :func:`write_pngs` for several."""
    write_pngs([(figure, path)], width_px=width_px, scale=scale)


def write_pngs(
    figures: Sequence[tuple[go.Figure, Path]], *, width_px: int = WIDTH_PX, scale: float = 2.0
) -> None:
    """Write figures as PNG files through one headless browser.

    Args:
        figures: The figures and where they go.
        width_px: Width before scaling; the height is the figure's own.
        scale: Image pixels for each pixel of width and height.

    Raises:
        BackendError: Kaleido or a browser is missing, or the browser failed.
        SettingsError: A path does not end in ``.png``.
        StorageError: A file cannot be written.
    """
    for _, path in figures:
        if path.suffix.lower() != ".png":
            raise SettingsError(f"{path}: images are written as PNG; let the name end in .png")
    try:
        from kaleido.errors import KaleidoError
    except ImportError as error:
        raise BackendError(
            "cannot draw images: the package kaleido is not installed; run: "
            "pip install 'routewright[images]', or write HTML instead"
        ) from error
    browser = find_browser()
    # A thread of its own, since a notebook has an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        drawing = thread.submit(
            lambda: asyncio.run(_drawn(browser, [f for f, _ in figures], width_px, scale))
        )
        try:
            images = drawing.result()
        except (RuntimeError, OSError, ValueError, KaleidoError) as error:
            raise BackendError(
                f"the browser {browser} did not draw the figure: {error or type(error).__name__}; "
                f"write HTML instead, or {_INSTALL}"
            ) from error
    for (_, path), image in zip(figures, images, strict=True):
        write_bytes_atomic(path, image)


async def _drawn(
    browser: Path, figures: Sequence[go.Figure], width_px: int, scale: float
) -> list[bytes]:
    import kaleido

    options = {"format": "png", "width": width_px, "scale": scale}
    # Without a math library: it would be fetched from the network. No sandbox is Kaleido's own
    # default, and what lets a browser start as root.
    async with kaleido.Kaleido(path=str(browser), mathjax=False, timeout=_TIMEOUT_S) as drawer:
        return [
            await drawer.calc_fig(
                figure, opts={**options, "height": figure.layout.height or HEIGHT_PX}
            )
            for figure in figures
        ]


def find_browser() -> Path:
    """Return the Chrome or Chromium of this machine.

    Raises:
        BackendError: There is none.
    """
    named = os.environ.get(BROWSER_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise BackendError(
                f"{BROWSER_VARIABLE} names {named}, which is no program; name a Chrome or "
                "Chromium, or unset it"
            )
        return Path(found)
    for name in _BROWSERS:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise BackendError(f"there is no Chrome or Chromium on this machine: {_INSTALL}")
