"""The notebook of the examples runs from its first cell to its last, and shows what it says."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "examples" / "tuning.ipynb"


def read() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.mark.slow
def test_the_notebook_runs() -> None:
    if shutil.which("chromium") is None:
        if os.environ.get("ROUTEWRIGHT_BROWSER_TESTS") == "required":
            pytest.fail("needs chromium")
        pytest.skip("needs chromium (Debian: apt install chromium)")
    notebook = read()
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=600, resources=resources).execute()
    pictures = [o for o in outputs(notebook) if "image/png" in o.get("data", {})]
    assert len(pictures) == 3
    printed = "".join(o.text for o in outputs(notebook) if o.output_type == "stream")
    assert re.search(r"^(faster|no gain) - ", printed, re.MULTILINE)
    assert "with a prior: " in printed


def test_the_notebook_was_executed_as_it_is_and_names_no_machine() -> None:
    notebook = read()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [o for o in outputs(notebook) if o.output_type == "error"]
    for place in ("/root", "/home"):
        assert place not in NOTEBOOK.read_text(encoding="utf-8")
