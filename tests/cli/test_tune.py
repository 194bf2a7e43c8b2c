"""``tune`` on real models, in a real worker, to its result and its files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from running import Run

from models import conv_net, mlp_static, save
from routewright import tune
from routewright.errors import SettingsError
from routewright.model import OnnxModel
from routewright.samples import SampleSet

pytest_plugins = ("running",)

SMALL = "-session:intra_op_num_threads=[1|2] -optimizer:MatMulAddFusion=[on|off]"


def tune_process(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "routewright", "tune", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    give_up_s = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def trials_in(out: Path) -> int:
    path = out / "study.json"
    try:
        return int(json.loads(path.read_text()).get("trials", 0))
    except (OSError, ValueError):
        return 0


def test_a_real_model_is_tuned_to_its_result(run: Run, tmp_path: Path) -> None:
    model = save(conv_net(), tmp_path / "m.onnx")
    out = tmp_path / "out"
    ran = run("tune", model, "--budget", "20s", "--out", out, "--json", "--shared-device")
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert result == json.loads((out / "result.json").read_text())
    assert result["schema_version"] == 1
    assert result["verdict"] in ("faster", "no gain")
    low, high = result["best"]["ci95"]
    assert (result["verdict"] == "faster") == (high < 1)
    assert low <= result["best"]["relative_latency"] <= high
    assert (out / "best.route").read_text().strip() == result["best"]["route"]
    assert result["trials"]["total"] > 1
    assert (out / "engine" / "settings.json").exists()
    assert not (out / "work").exists()
    knobs = result["knobs"]
    assert knobs["live"] + knobs["inert"] + knobs["unknown"] == knobs["searchable"]
    shown = run("show", out)
    assert shown.code == 0
    assert result["verdict"] in shown.out


def test_a_default_that_breaks_the_bound_ends_with_3_and_a_suggestion(
    run: Run, tmp_path: Path
) -> None:
    model = save(mlp_static(), tmp_path / "m.onnx")
    opened = OnnxModel.open(model)
    samples = SampleSet.generate(opened.inputs, opened.resolve_shapes({}), count=1)
    wrong = [{"y": np.zeros((2, 4), dtype=np.float32)}]
    samples.with_references(wrong).save(tmp_path / "s.npz")
    out = tmp_path / "out"
    ran = run("tune", model, "--samples", tmp_path / "s.npz", "--out", out, "--shared-device")
    assert ran.code == 3, ran.err
    assert "output 'y'" in ran.error
    assert "the tightest bound it meets is about 1" in ran.error
    assert not out.exists()


def test_the_engine_runs_without_routewright(run: Run, tmp_path: Path) -> None:
    model = save(mlp_static(), tmp_path / "m.onnx")
    out = tmp_path / "out"
    ran = run("tune", model, "--budget", "12s", "--out", out, "--expr", SMALL, "--shared-device")
    assert ran.code == 0, ran.err
    assert {path.name for path in (out / "engine").iterdir()} >= {"model.onnx", "settings.json"}


def test_an_output_folder_with_a_study_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    model = save(mlp_static(), tmp_path / "m.onnx")
    out = tmp_path / "out"
    arguments = ("tune", model, "--budget", "12s", "--out", out, "--expr", SMALL)
    assert run(*arguments, "--shared-device").code == 0
    before = (out / "result.json").read_bytes()
    again = run(*arguments)
    assert again.code == 2
    assert "holds a study already" in again.error
    assert (out / "result.json").read_bytes() == before
    changed = run("tune", model, "--resume", "--out", out, "--loss", "l1", "--bound", "1")
    assert changed.code == 2
    assert "loss was None and is now 'l1'" in changed.error
    used = run("tune", "--resume", "--out", out, "--budget", "1s")
    assert used.code == 2
    assert "used up" in used.error
    save(mlp_static(), model)
    model.write_bytes(model.read_bytes() + b"\x22\x01x")
    other = run("tune", "--resume", "--out", out, "--budget", "60s", "--shared-device")
    assert other.code == 2
    assert "model_sha256" in other.error


def test_a_killed_tuning_goes_on_where_it_was(tmp_path: Path) -> None:
    model = save(conv_net(), tmp_path / "m.onnx")
    out = tmp_path / "out"
    process = tune_process(model, "--budget", "60s", "--out", out, "--shared-device")
    wait_for(lambda: trials_in(out) >= 6, process)
    process.kill()
    process.communicate()
    finished = trials_in(out)
    resumed = tune_process("--resume", "--out", out, "--json", "--shared-device")
    output, errors = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, errors
    result = json.loads(output)
    assert result["trials"]["total"] > finished
    assert result["budget"]["used_s"] <= 60 * 1.05 + 2


def test_a_tuning_killed_before_its_first_trial_can_be_resumed_and_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(conv_net(), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    process = tune_process("m.onnx", "--budget", "60s", "--out", "out", "--shared-device")
    wait_for(lambda: (out / "work" / "samples.npz").exists(), process)
    process.kill()
    process.communicate()
    assert trials_in(out) == 0
    shown = run("show", out)
    assert shown.code == 0
    assert "no trial yet" in shown.out
    again = run("tune", "m.onnx", "--out", out)
    assert again.code == 2
    assert "--resume" in again.error
    # From another folder: what was given by a relative path is found all the same.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = run("tune", "--resume", "--out", out, "--budget", "20s", "--shared-device")
    assert resumed.code == 0, resumed.err
    assert (out / "result.json").exists()
    assert {path.name for path in out.iterdir()}.isdisjoint({"study.db-wal", "study.db-shm"})


def test_the_python_interface_refuses_to_resume_with_other_settings(tmp_path: Path) -> None:
    model = save(mlp_static(), tmp_path / "m.onnx")
    out = tmp_path / "out"
    tune(model, budget=12, out=out, expr=SMALL, shared_device=True)
    with pytest.raises(SettingsError, match="seed was 0 and is now 1"):
        tune(model, budget=60, out=out, expr=SMALL, seed=1, resume=True)
    with pytest.raises(SettingsError, match="which folder"):
        tune(model, resume=True)


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "routewright", "routes", "--search", "full"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert process.stderr.read() == ""


def test_ctrl_c_confirms_the_best_and_ends_with_130(tmp_path: Path) -> None:
    model = save(conv_net(), tmp_path / "m.onnx")
    out = tmp_path / "out"
    process = tune_process(model, "--budget", "5m", "--out", out, "--json", "--shared-device")
    wait_for(lambda: trials_in(out) >= 6, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert json.loads(output)["interrupted"] is True
    assert json.loads(output)["budget"]["used_s"] < 200
    assert json.loads(output)["stopped"] == "interrupted"
    assert os.path.exists(out / "engine" / "model.onnx")
