"""Settings and study files: what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from routewright.errors import BudgetError, RoutewrightError, SettingsError
from routewright.settings import (
    TuneSettings,
    differences,
    read_study_file,
    relative_to,
    resolve_model,
)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"loss": "l1"}, "loss is given without bound"),
        ({"bound": 1e-3}, "bound is given without loss"),
        ({"loss": "l3", "bound": 1.0}, "there is no loss 'l3'"),
        ({"loss": "l1", "bound": float("nan")}, "must be a number from 0 on"),
        ({"loss": "l1", "bound": -1.0}, "must be a number from 0 on"),
        ({"metric": "m:f"}, "metric needs a bound"),
        ({"expr": "-a=on", "expr_file": "f"}, "exclude each other"),
        ({"num_samples": 0}, "at least 1"),
        ({"seed": -1}, "seed"),
        ({"half_width": 0.0}, "^half_width must lie"),
        ({"half_width": 0.001}, "^half_width must lie"),
        ({"max_timing_s": 0.0}, "^max_timing_s must be above 0"),
        ({"metric": "m:f", "loss": "l1", "bound": 1.0}, "metric and loss exclude each other"),
        ({"option": ("x",)}, "name=value"),
        ({"study": ""}, "500 characters"),
        ({"output_bound": ("y",)}, "name=1e-3"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(
    given: dict[str, object], told: str
) -> None:
    with pytest.raises(SettingsError, match=told) as caught:
        TuneSettings(model="m.onnx", **given)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("budget_s", [0.0, -3.0, float("inf"), float("nan")])
def test_a_budget_is_a_time_above_0(budget_s: float) -> None:
    with pytest.raises(BudgetError):
        TuneSettings(model="m.onnx", budget_s=budget_s)


def test_settings_survive_being_stored() -> None:
    settings = TuneSettings(
        model="m.onnx", loss="linf", bound=float("inf"), shape=("x:1x3",), budget_s=33.0
    )
    assert TuneSettings.from_dict(settings.to_dict()) == settings


def write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_a_study_file_says_what_the_options_say(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        'model = "sub/m.onnx"\nbudget = "3m"\nshape = "x:1x3"\nloss = "cos"\nbound = 1e-2\n'
        'samples = ["x:x.bin", "s.npz"]\n',
    )
    settings = read_study_file(path)
    assert settings.model == str(tmp_path / "sub/m.onnx")
    assert settings.budget_s == 180.0
    assert settings.shape == ("x:1x3",)
    assert settings.samples == (f"x:{tmp_path / 'x.bin'}", str(tmp_path / "s.npz"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('model = "m"\nbudgett = "3m"', "did you mean 'budget'"),
        ('model = "m"\nseed = "x"', "whole number"),
        ('model = "m"\nseed = true', "whole number"),
        ('model = "m"\nshape = 3', "a text or a list of texts"),
        ('model = "m"\nshared_device = 1', "true or false"),
        ('model = "m"\nhalf_width = "x"', "must be a number"),
        ("model = 3", "must be a text"),
        ('budget = "3m"', "'model' is missing"),
        ('model = "m"\nbudget = "soon"', "no duration"),
        ('model = "/etc/m.onnx"', "leaves the folder"),
        ('model = "models:../m.onnx"', "leaves the folder"),
        ('model = "m"\nout = "../../out"', "leaves the folder"),
        ('model = "m"\nout = "~/out"', "leaves the folder"),
        ('model = "m"\nsamples = ["x:/etc/x.bin"]', "leaves the folder"),
        ('model = "m"\nsamples = ["x:~/x.bin"]', "leaves the folder"),
        ('model = "m"\nsamples = ["a.npz", "b/../../c.npz"]', "leaves the folder"),
        ("model = ", "not a TOML file"),
        ('[section]\nmodel = "m"', "no setting 'section'"),
    ],
)
def test_a_wrong_study_file_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RoutewrightError, match=told) as caught:
        read_study_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_study_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no study file"):
        read_study_file(tmp_path / "none.toml")


def test_fetched_models_have_a_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTEWRIGHT_MODELS", "/models")
    assert resolve_model("models:a.onnx") == Path("/models/a.onnx")


def test_differences_name_what_was_and_what_is() -> None:
    was = TuneSettings(model="m.onnx", seed=1)
    now = TuneSettings(model="moved.onnx", seed=2, budget_s=3.0, out="elsewhere")
    assert differences(was, now) == ["seed was 1 and is now 2"]


def test_relative_paths_are_joined_and_others_kept() -> None:
    settings = TuneSettings(
        model="m.onnx", samples=("x:x.bin", "/data/s.npz"), expr_file="e", out="models:"
    )
    moved = relative_to(settings, Path("/here"))
    assert moved.model == "/here/m.onnx"
    assert moved.samples == ("x:/here/x.bin", "/data/s.npz")
    assert moved.expr_file == "/here/e"
    assert relative_to(TuneSettings(model="models:m"), Path("/here")).model == "models:m"


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent.parent / "studies").glob("*.toml")), ids=lambda p: p.name
)
def test_the_study_files_that_ship_are_valid(path: Path) -> None:
    assert read_study_file(path).model.startswith("models:")
