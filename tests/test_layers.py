from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

CHECK = """\
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True, no_logo=True))
"""


def check_layers(root: Path) -> subprocess.CompletedProcess[str]:
    # A process of its own, since the checker imports what it checks.
    return subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_module_imports_one_of_a_higher_layer() -> None:
    done = check_layers(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_an_import_upwards_and_a_module_without_a_place_are_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "src/routewright/errors.py").open("a") as stream:
        stream.write("\nimport routewright.cli\n")
    (tmp_path / "src/routewright/elsewhere.py").write_text("")
    done = check_layers(tmp_path)
    assert done.returncode == 1
    assert "routewright.errors -> routewright.cli" in done.stdout
    assert "elsewhere" in done.stdout
