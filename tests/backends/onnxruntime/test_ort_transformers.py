from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

import models
from routewright.backends.onnxruntime import transformers
from routewright.backends.onnxruntime.transformers import installed_catalog
from routewright.errors import BackendError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("catalogs")


def test_the_catalog_names_what_this_version_knows(cache: Path) -> None:
    catalog = installed_catalog(cache)
    names = dict(catalog.optimizers)
    assert catalog.version == onnxruntime.__version__
    assert catalog.rules_complete
    assert len(names) == len(catalog.optimizers) > 50
    # Rules and transformers of every level, and names that their class names do not tell.
    assert names["ConvBNFusion"] == 1
    assert names["ConstantFolding"] == 1
    assert names["MatMul_BatchNormalization_Fusion"] == 1
    assert names["GeluFusionL1"] == 1
    assert names["GeluFusionL2"] == 2
    assert names["ConvAddActivationFusion"] == 3
    # Needed by the library itself, applied even when disabled.
    assert "EnsureUniqueDQForNodeUnit" not in names
    assert not any("RuleBasedTransformer" in name for name in names)


def test_levels_come_in_order(cache: Path) -> None:
    levels = [level for _, level in installed_catalog(cache).optimizers]
    assert levels == sorted(levels)


def test_every_name_is_really_switched_off(cache: Path, tmp_path: Path) -> None:
    catalog = installed_catalog(cache)
    transformers_only = [name for name, _ in catalog.transformers]
    assert not set(_applied(tmp_path, transformers_only)) & set(transformers_only)
    everything = [name for name, _ in catalog.optimizers]
    assert not any("RuleBased" in name for name in _applied(tmp_path, everything))
    for left in ("ConvBNFusion", "Pad_Fusion"):
        without = [name for name in everything if name != left]
        assert "Level1_RuleBasedTransformer" in _applied(tmp_path, without)


def test_a_made_up_name_changes_nothing(tmp_path: Path) -> None:
    assert _applied(tmp_path, ["NoSuchFusion", "PadFusion"]) == _applied(tmp_path, [])


def test_only_values_that_a_session_takes_are_known(cache: Path) -> None:
    values = installed_catalog(cache).option_values
    assert values["execution_mode"] == ("ORT_SEQUENTIAL", "ORT_PARALLEL")
    assert {"ORT_DISABLE_ALL", "ORT_ENABLE_ALL"} <= set(values["graph_optimization_level"])
    for option, members in transformers.OPTION_VALUES.items():
        for member in members:
            assert (member in values[option]) == _session_takes(option, member)


def test_a_key_that_the_library_does_not_hold_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = ("session.disable_prepacking", "session.no_such_entry")
    monkeypatch.setattr(transformers, "CONFIG_KEYS", keys)
    assert installed_catalog(tmp_path).config_keys == {"session.disable_prepacking"}


def test_the_second_question_is_answered_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = installed_catalog(tmp_path)
    (kept,) = tmp_path.iterdir()
    document = json.loads(kept.read_text())
    document["rules"] = [["Remembered", 1]]
    kept.write_text(json.dumps(document))
    assert installed_catalog(tmp_path).rules == (("Remembered", 1),)
    kept.write_text("{")
    assert installed_catalog(tmp_path) == first


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert installed_catalog(tmp_path / "sub").rules


def test_a_cache_whose_place_is_taken_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert installed_catalog(tmp_path / "file").rules


def test_a_library_that_cannot_be_probed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transformers, "_tiny_model", lambda: b"no model")
    with pytest.raises(BackendError, match="could not list its optimizers") as caught:
        installed_catalog(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_rules_that_nobody_hinted_at_are_found_in_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    forgotten = {"NotWhereFusion", "Pad_Fusion"}
    hints = tuple(name for name in transformers.RULE_HINTS if name not in forgotten)
    monkeypatch.setattr(transformers, "RULE_HINTS", (*hints, "NoSuchFusion"))
    assert installed_catalog(tmp_path) == installed_catalog(cache)


def _applied(folder: Path, disabled: list[str]) -> list[str]:
    """Return which transformers a session applies, read from its log in a process of its own."""
    model = models.save(models.mlp_static(), folder / "m.onnx")
    code = (
        "import json, sys, onnxruntime as o\n"
        "s = o.SessionOptions(); s.log_severity_level = 0; s.intra_op_num_threads = 1\n"
        "o.InferenceSession(sys.argv[1], s, providers=['CPUExecutionProvider'],\n"
        "                   disabled_optimizers=json.loads(sys.argv[2]))\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, str(model), json.dumps(disabled)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in finished.stderr.splitlines() if "GraphTransformer " in line]
    return [line.split("GraphTransformer ")[1].split(" modified")[0] for line in lines]


def _session_takes(option: str, member: str) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    kind = type(getattr(options, option))
    if member not in kind.__members__:
        return False
    setattr(options, option, getattr(kind, member))
    model = models.mlp_static().SerializeToString()
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - the binding's exceptions share no base
        return False
    return True
