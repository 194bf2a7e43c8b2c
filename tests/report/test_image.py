"""Figures as files, drawn by the real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from routewright.errors import BackendError, SettingsError, StorageError
from routewright.report.figures.image import BROWSER_VARIABLE, find_browser, write_html, write_png
from routewright.report.figures.style import label, new_figure, series_style

PNG = b"\x89PNG\r\n\x1a\n"


def test_html_holds_the_figure_and_its_library(tmp_path: Path) -> None:
    figure = new_figure("Speed", "time (s)", "relative latency")
    figure.add_scatter(x=[1, 2], y=[0.5, 0.25], name="a series")
    write_html(figure, tmp_path / "figure.html")
    page = (tmp_path / "figure.html").read_text(encoding="utf-8")
    assert "a series" in page
    assert "<script src=" not in page


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="create the folder first"):
        write_html(new_figure("t", "x", "y"), tmp_path / "missing" / "figure.html")


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"let the name end in \.png"):
        write_png(new_figure("t", "x", "y"), tmp_path / "figure.jpg")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_png_has_the_size_asked_for(tmp_path: Path) -> None:
    figure = new_figure("Speed", "time (s)", "relative latency", height_px=300)
    figure.add_scatter(x=[1, 2], y=[0.5, 0.25])
    write_png(figure, tmp_path / "figure.png", width_px=400, scale=1.5)
    data = (tmp_path / "figure.png").read_bytes()
    assert data.startswith(PNG)
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (600, 450)


def test_a_browser_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(BROWSER_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(BackendError, match="which is no program"):
        find_browser()
    monkeypatch.setenv(BROWSER_VARIABLE, "/bin/false")
    with pytest.raises(BackendError, match=r"did not draw the figure.*write HTML instead"):
        write_png(new_figure("t", "x", "y"), tmp_path / "figure.png")


def test_without_any_browser_the_way_out_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(BROWSER_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="apt install chromium"):
        find_browser()


def test_texts_are_shown_literally_and_cut_in_the_middle() -> None:
    assert label("<b>&") == "&lt;b&gt;&amp;"
    assert "$" not in label("a $x$ b")
    cut = label("-start" + "x" * 100 + "end=on")
    assert len(cut) == 48
    assert cut.startswith("-start")
    assert cut.endswith("end=on")


def test_series_are_told_apart_without_color() -> None:
    styles = [series_style(index) for index in range(7)]
    assert len({symbol for _, symbol, _ in styles}) == 7
    assert len({dash for _, _, dash in styles}) == 7
    assert series_style(7) == series_style(0)
