from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from routewright.backends.tensorrt.plan import (
    MANIFEST_NAME,
    Site,
    add_to_manifest,
    checked_plan,
    mismatch,
    read_manifest,
    write_artifact,
)
from routewright.errors import BackendError

HERE = Site("TensorRT", "11.1.0.106", "NVIDIA H200", "9.0", "580.1")
MANIFEST: dict[str, Any] = {
    "library": {"name": "TensorRT", "version": "11.1.0.106"},
    "device": {"name": "NVIDIA H200", "compute_capability": "9.0", "driver": "580.1"},
    "compatibility": {
        "version_compatible": False,
        "hardware_compatibility": "none",
        "portable": False,
    },
}


def with_(part: str, **changes: Any) -> dict[str, Any]:
    return {**MANIFEST, part: {**MANIFEST[part], **changes}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    plan = tmp_path / "engine.plan"
    plan.write_bytes(b"the plan")
    folder = tmp_path / "saved"
    folder.mkdir()
    written = write_artifact(folder, plan, MANIFEST, kernels=b"kernels")
    assert sorted(path.name for path in written) == [
        "engine.plan",
        "kernels.cache",
        "manifest.json",
    ]
    return folder


def test_a_saved_plan_is_found_again(saved: Path) -> None:
    plan = checked_plan(saved, HERE)
    assert plan.read_bytes() == b"the plan"
    manifest = read_manifest(saved)
    assert manifest["plan"]["bytes"] == 8
    assert manifest["library"] == MANIFEST["library"]


def test_what_is_known_later_is_added(saved: Path) -> None:
    add_to_manifest(saved, {"timing": {"latency_ms": 1.5}, "command": "routewright tune"})
    assert read_manifest(saved)["timing"] == {"latency_ms": 1.5}
    checked_plan(saved, HERE)


def test_a_changed_plan_is_refused(saved: Path) -> None:
    (saved / "engine.plan").write_bytes(b"another")
    with pytest.raises(BackendError, match="not the file that its manifest describes"):
        checked_plan(saved, HERE)


def test_a_missing_plan_is_refused(saved: Path) -> None:
    (saved / "engine.plan").unlink()
    with pytest.raises(BackendError, match="is missing"):
        checked_plan(saved, HERE)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"plan": 1}', b"{"])
def test_a_damaged_manifest_is_refused(saved: Path, content: bytes) -> None:
    (saved / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(BackendError, match="is no manifest"):
        checked_plan(saved, HERE)


def test_a_plan_without_manifest_is_refused(saved: Path) -> None:
    (saved / MANIFEST_NAME).unlink()
    with pytest.raises(BackendError, match="without manifest is not loaded"):
        checked_plan(saved, HERE)


def test_the_manifest_cannot_name_a_file_elsewhere(saved: Path, tmp_path: Path) -> None:
    content = json.loads((saved / MANIFEST_NAME).read_bytes())
    content["plan"]["file"] = "../engine.plan"
    (saved / MANIFEST_NAME).write_text(json.dumps(content))
    assert checked_plan(saved, HERE).parent == saved


@pytest.mark.parametrize(
    ("manifest", "part"),
    [
        (with_("library", name="TensorRT-RTX"), "it is of TensorRT-RTX, not of TensorRT"),
        (with_("library", version="11.4"), "it is of TensorRT 11.4, and this is 11.1.0.106"),
        (with_("device", compute_capability="8.9"), "capability 8.9, this device has 9.0"),
        (with_("device", name="NVIDIA H100"), "it is for NVIDIA H100, this device is NVIDIA H200"),
        ({}, "it is of None"),
    ],
)
def test_what_does_not_run_here_is_said(manifest: dict[str, Any], part: str) -> None:
    assert part in mismatch(manifest, HERE)


def test_what_runs_here() -> None:
    assert mismatch(MANIFEST, HERE) == ""
    later = with_("compatibility", version_compatible=True)
    later["library"] = {"name": "TensorRT", "version": "11.0"}
    assert mismatch(later, HERE) == ""
    same = with_("compatibility", hardware_compatibility="same_compute_capability")
    same["device"] = {"name": "NVIDIA H100", "compute_capability": "9.0"}
    assert mismatch(same, HERE) == ""
    ampere = with_("compatibility", hardware_compatibility="ampere_plus")
    ampere["device"] = {"name": "NVIDIA A100", "compute_capability": "8.0"}
    assert mismatch(ampere, HERE) == ""
    portable = with_("compatibility", portable=True)
    portable["device"] = {"name": "NVIDIA L4", "compute_capability": "8.9"}
    assert mismatch(portable, HERE) == ""


def test_nothing_runs_without_a_device() -> None:
    nowhere = Site("TensorRT", "11.1.0.106", None, None, None)
    assert mismatch(MANIFEST, nowhere) == "there is no CUDA device"


def test_old_devices_do_not_run_what_needs_newer_ones() -> None:
    turing = Site("TensorRT", "11.1.0.106", "NVIDIA T4", "7.5", "580.1")
    ampere = with_("compatibility", hardware_compatibility="ampere_plus")
    assert "8.0 or later, this device has 7.5" in mismatch(ampere, turing)
