"""``routewright dashboard``: what it serves, where it listens, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

import routewright.report.dashboard as dashboard_module
from routewright.cli.dashboard import find_storage
from routewright.errors import SettingsError
from routewright.report.dashboard import Dashboard
from routewright.storage import open_storage

from running import Run  # isort: skip
from studies import study_in, wide_records  # isort: skip

pytest_plugins = ("running",)


def started(*arguments: object) -> tuple[subprocess.Popen[str], str]:
    """Start the command in an own process and return it with the line that it prints."""
    code = "import sys; from routewright.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "dashboard", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_asked_to_end(tmp_path: Path, number: signal.Signals) -> None:
    study_in(tmp_path / "out")
    process, line = started(tmp_path / "out", "--port", 0)
    try:
        address = re.match(r"(http://127\.0\.0\.1:\d+/)dashboard/ shows sqlite:", line)
        assert address, line
        with urllib.request.urlopen(f"{address[1]}api/studies") as answer:
            (study,) = json.load(answer)["study_summaries"]
        assert study["study_name"] == "study"
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert said == "ended\n"


def test_going_wider_warns(tmp_path: Path) -> None:
    study_in(tmp_path / "out")
    process, _ = started(tmp_path / "out", "--port", 0, "--host", "0.0.0.0")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert "no authentication" in said


def test_a_taken_port_is_passed_over_unless_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(study_in(tmp_path / "out"))
    with Dashboard(storage, port=0) as first:
        taken = int(first.address.split(":")[2].partition("/")[0])
        with pytest.raises(SettingsError, match="leave --port out"):
            Dashboard(storage, port=taken)
        monkeypatch.setattr(dashboard_module, "DEFAULT_PORT", taken)
        with Dashboard(storage) as second:
            assert first.address != second.address


def test_the_newest_study_of_the_usual_place_is_the_default(run: Run, tmp_path: Path) -> None:
    assert "name an output folder" in run("dashboard").error
    for age, name in ((100, "older"), (0, "newer")):
        folder = tmp_path / "routewright-out" / name
        folder.parent.mkdir(exist_ok=True)
        study_in(folder, name)
        when = folder.stat().st_mtime - age
        os.utime(folder / "study.json", (when, when))
    process, line = started("--port", 0)
    process.terminate()
    process.communicate(timeout=30)
    assert "routewright-out/newer/study.db" in line


def test_what_cannot_be_served_is_told(run: Run, tmp_path: Path) -> None:
    study_in(tmp_path / "out")
    for arguments in (
        ("none",),
        (tmp_path,),
        ("sqlite:///none.db",),
        ("out", "--port", 70000),
        ("out", "--host", "198.51.100.1"),
    ):
        ran = run("dashboard", *arguments)
        assert ran.code == 2, arguments
        assert ran.error


def test_artifacts_are_looked_for_beside_a_storage_that_is_a_file(tmp_path: Path) -> None:
    url = study_in(tmp_path / "out")
    assert find_storage(url) == (url, tmp_path / "out")
    assert find_storage(str(tmp_path / "out" / "study.db"))[1] == tmp_path / "out"
    assert find_storage("postgresql://user@localhost/none")[1] is None


def test_passwords_are_not_printed(run: Run) -> None:
    ran = run("dashboard", "postgresql://user:sesame@localhost:1/none")
    assert ran.code == 2
    assert "sesame" not in ran.out + ran.err


def test_trials_are_served_with_attributes_in_order_and_figures(tmp_path: Path) -> None:
    url = study_in(tmp_path / "out", records=wide_records(8, 5))
    storage = open_storage(url)
    with Dashboard(storage, port=0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            api = server.address.removesuffix("dashboard/") + "api/studies/1"
            with urllib.request.urlopen(api) as answer:
                study = json.load(answer)
        finally:
            server.stop()
            thread.join()
    assert len(study["trials"]) == 8
    first = {item["key"]: item["value"] for item in study["trials"][-1]["user_attrs"]}
    keys = list(first)
    assert keys[:4] == ["eligible", "outcome", "phase", "route"]
    assert "owner" not in first
    assert study["plotly_graph_objects"]
