"""Bad input gives one clear line and exit code 2, and leaves nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from running import Run

from models import mlp_dynamic, mlp_static, random_normal, save, string_identity

pytest_plugins = ("running",)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(mlp_static(), tmp_path / "m.onnx")


def refused(run: Run, tmp_path: Path, *arguments: object) -> str:
    before = sorted(path.name for path in tmp_path.iterdir())
    ran = run("tune", *arguments)
    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert ran.err.count("error: ") == 1
    assert "Traceback" not in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    return ran.error


def test_a_missing_file(run: Run, tmp_path: Path) -> None:
    assert "none.onnx" in refused(run, tmp_path, "none.onnx")


def test_a_missing_argument(run: Run, tmp_path: Path) -> None:
    assert "MODEL is missing" in refused(run, tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07\x12", b"PK\x03\x04" * 100])
def test_what_is_no_onnx_file(run: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert "m.onnx" in refused(run, tmp_path, "m.onnx")


def test_a_truncated_file(run: Run, tmp_path: Path, model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-40])
    assert "m.onnx" in refused(run, tmp_path, model)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--budget", "-5"), "duration"),
        (("--budget", "0"), "above 0"),
        (("--loss", "l9", "--bound", "1"), "no loss 'l9'"),
        (("--loss", "cos"), "without bound"),
        (("--loss", "cos", "--bound", "nan"), "from 0 on"),
        (("--loss", "cos", "--bound", "-1"), "from 0 on"),
        (("--metric", "no.such:thing", "--bound", "1"), "no.such"),
        (("--metric", "m:f", "--loss", "l1", "--bound", "1"), "exclude each other"),
        (("--half-width", "0.001"), "half_width must lie"),
        (("--max-timing", "0"), "--max-timing must be above 0"),
        (("--storage", "sqlite://"), "in memory"),
        (("--storage", "journal:////"), "a folder"),
        (("--out", "x" * 300), "too long"),
        (("--shape", "zz:1x2"), "zz"),
        (("--sampler", "autoo"), "did you mean auto"),
        (("--backend", "onnx"), "no backend 'onnx'"),
        (("--storage", "nowhere"), "no storage"),
        (("--storage", "sqlite:////no/such/folder/s.db"), "no folder"),
        (("--samples", "none.npz"), "none.npz"),
        (("--expr", "-optimizer:NoSuch=[on|off]"), "-optimizer:NoSuch"),
        (("--expr", "-optimizer:ConstantFolding=[on|on]"), "on"),
        (("--expr", ""), "empty"),
        (("--expr-file", "none.expr"), "none.expr"),
        (("--out", "/proc/nowhere"), "/proc/nowhere"),
        (("--resume",), "--out"),
        (("--resume", "--out", "none"), "none"),
        (("--seed", "x"), "--seed"),
        (("--bogus",), "--bogus"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_that_are_wrong(
    run: Run, tmp_path: Path, model: Path, options: tuple[str, ...], told: str
) -> None:
    assert told in refused(run, tmp_path, model, *options)


def test_a_rank_mismatch_names_input_and_shapes(run: Run, tmp_path: Path) -> None:
    model = save(mlp_dynamic(), tmp_path / "m.onnx")
    message = refused(run, tmp_path, model, "--shape", "x:1x2x3x4")
    assert "'x'" in message


def test_samples_of_a_wrong_type_say_expected_and_given(
    run: Run, tmp_path: Path, model: Path
) -> None:
    np.savez(tmp_path / "s.npz", x=np.zeros((4, 16), dtype=np.float64))
    message = refused(run, tmp_path, model, "--samples", tmp_path / "s.npz")
    assert "float64" in message or "double" in message


def test_an_input_that_cannot_be_made_up_is_named(run: Run, tmp_path: Path) -> None:
    model = save(string_identity(), tmp_path / "m.onnx")
    assert "string" in refused(run, tmp_path, model)


def test_a_model_that_is_not_deterministic_is_refused(run: Run, tmp_path: Path) -> None:
    model = save(random_normal(), tmp_path / "m.onnx")
    assert "not deterministic" in refused(run, tmp_path, model, "--out", tmp_path / "out")


def test_a_budget_too_short_for_the_baseline(run: Run, tmp_path: Path, model: Path) -> None:
    message = refused(run, tmp_path, model, "--budget", "0.01s", "--out", tmp_path / "out")
    assert "budget" in message


def test_early_errors_are_all_that_is_said(run: Run, tmp_path: Path, model: Path) -> None:
    for options in (("none.onnx",), (model, "--shape", "zz:1"), (model, "--sampler", "x")):
        ran = run("tune", *options)
        assert ran.err == f"error: {ran.error.removeprefix('error: ')}\n"


def test_a_folder_of_the_users_is_as_it_was_after_an_error(
    run: Run, tmp_path: Path, model: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for _ in range(2):
        refused(run, tmp_path, model, "--out", out, "--expr", "-no:such=[on|off]")
        assert list(out.iterdir()) == []


def test_a_metric_that_gives_no_number_is_blamed_itself(
    run: Run, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nan_metric.py").write_text(
        "def loss(reference, actual):\n    return float('nan')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--metric", "nan_metric:loss", "--bound", "1", "--shared-device")
    assert "the metric gives no loss" in refused(run, tmp_path, model, *options)


def test_what_a_metric_raises_is_passed_on(
    run: Run, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_metric.py").write_text(
        "def loss(reference, actual):\n    raise KeyError('no box was found')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = ("--metric", "raising_metric:loss", "--bound", "1", "--shared-device")
    assert "no box was found" in refused(run, tmp_path, model, *options)


@pytest.mark.parametrize(
    "command", [("routes", "--expr", "-x=[on|off]"), ("knobs", "--knob", "x")]
)
def test_other_commands_refuse_unknown_knobs_alike(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command)
    assert ran.code == 2
    assert "-x" in ran.error or "'x'" in ran.error


def test_show_of_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    (tmp_path / "result").mkdir()
    (tmp_path / "result" / "result.json").write_text('{"schema_version": 1}')
    long = "x" * 300
    for source in ("none", "sqlite:///none.db", tmp_path, "empty.db", "result", long, "no.log"):
        ran = run("show", source)
        assert ran.code == 2
        assert ran.error
