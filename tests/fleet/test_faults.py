"""A fleet on a real PostgreSQL, broken in every way at hand; see ``scripts/fault_test``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
_NO_SERVER = 77


@pytest.mark.slow
def test_a_fleet_loses_nothing_whatever_is_done_to_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(SCRIPTS / "fault_test"), "--short", "--keep", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    print(ran.stdout)
    if ran.returncode == _NO_SERVER:
        pytest.skip(ran.stdout.splitlines()[-1])
    assert ran.returncode == 0, ran.stdout + ran.stderr
