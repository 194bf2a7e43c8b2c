"""``routewright report`` and ``show``: every form, from every source."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from running import Run  # isort: skip
from studies import study_in  # isort: skip

pytest_plugins = ("running",)


def test_html_goes_into_the_output_folder(run: Run, tmp_path: Path) -> None:
    study_in(tmp_path / "out")
    ran = run("report", "out")
    assert ran.code == 0, ran.err
    assert "<!DOCTYPE html>" in (tmp_path / "out" / "report.html").read_text()


def test_markdown_is_printed_or_written(run: Run, tmp_path: Path) -> None:
    url = study_in(tmp_path / "out")
    printed = run("report", url, "--md").out
    assert "| How sure? |" in printed
    assert run("report", url, "--out", "pr.md").code == 0
    assert (tmp_path / "pr.md").read_text() == printed


def test_a_storage_is_reported_into_a_file_after_the_study(run: Run, tmp_path: Path) -> None:
    url = study_in(tmp_path / "out", "a/b c")
    assert run("report", url).code == 0
    assert (tmp_path / "report-a-b-c.html").exists()


def test_a_form_that_is_not_said_is_asked_for(run: Run, tmp_path: Path) -> None:
    study_in(tmp_path / "out")
    assert "let the name end in" in run("report", "out", "--out", "report.doc").error
    assert "do not go together" in run("report", "out", "--md", "--pdf").error
    assert run("report", "out", "--out", "none/r.html").code == 2


def test_show_tells_the_same_story(run: Run, tmp_path: Path) -> None:
    study_in(tmp_path / "out")
    shown = run("show", "out").out
    assert "How sure?" in shown
    assert "-a=off" in shown


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_pdf_is_printed_by_the_browser(run: Run, tmp_path: Path) -> None:
    study_in(tmp_path / "out")
    ran = run("report", "out", "--pdf")
    assert ran.code == 0, ran.err
    assert (tmp_path / "out" / "report.pdf").read_bytes().startswith(b"%PDF-")


def test_a_missing_browser_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_in(tmp_path / "out")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "none"))
    assert "BROWSER_PATH" in run("report", "out", "--pdf").error
