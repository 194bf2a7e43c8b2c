from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from routewright.backends.tensorrt.options import Options
from routewright.errors import SettingsError


def test_defaults() -> None:
    options = Options.parse({})
    assert options.timing_cache == "update"
    assert options.device == 0
    assert options.workspace_mib is None
    assert not options.host_transfers


def test_everything_that_can_be_given(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    options = Options.parse(
        {
            "device": 1,
            "workspace_mib": 1024,
            "timing_cache": "read-only",
            "cache_folder": str(tmp_path),
            "plugins": [str(file)],
            "plugins_in_plan": True,
            "version_compatible": True,
            "exclude_lean_runtime": True,
            "hardware_compatibility": "ampere_plus",
            "refit": "individual",
            "strip_plan": True,
            "compute_capability": "SM89",
            "variants": {"fp16": str(file)},
            "shape_values": {"s": {"min": [1], "opt": [2], "max": [3]}, "t": [4, 5], "u": 6},
            "host_transfers": True,
            "fingerprint_tactics": True,
        }
    )
    assert options.plugins == (file,)
    assert options.shape_values == {
        "s": ((1,), (2,), (3,)),
        "t": ((4, 5), (4, 5), (4, 5)),
        "u": ((6,), (6,), (6,)),
    }
    assert options.variants == {"fp16": file}


def test_the_same_as_text_from_the_command_line(tmp_path: Path) -> None:
    for name in ("a.so", "b.so", "half.onnx"):
        (tmp_path / name).touch()
    options = Options.parse(
        {
            "workspace_mib": "1024",
            "refit": "all",
            "host_transfers": "true",
            "strip_plan": "on",
            "version_compatible": "off",
            "plugins": f"{tmp_path}/a.so, {tmp_path}/b.so",
            "variants": f"fp16:{tmp_path}/half.onnx",
            "shape_values": '{"size": [4, 6]}',
            "timing_cache": "off",
        }
    )
    assert options.workspace_mib == 1024
    assert options.host_transfers
    assert options.strip_plan
    assert not options.version_compatible
    assert [path.name for path in options.plugins] == ["a.so", "b.so"]
    assert options.variants["fp16"].name == "half.onnx"
    assert options.shape_values == {"size": ((4, 6), (4, 6), (4, 6))}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"workspce_mib": 1}, "did you mean workspace_mib"),
        ({"nonsense": 1}, "known: device"),
        ({"workspace_mib": 0}, "at least 1"),
        ({"workspace_mib": True}, "whole number"),
        ({"workspace_mib": "1.5"}, "whole number"),
        ({"workspace_mib": "much"}, "whole number"),
        ({"device": -1}, "at least 0"),
        ({"timing_cache": "on"}, "update, read-only, off"),
        ({"refit": "yes"}, "one of none"),
        ({"hardware_compatibility": "all"}, "ampere_plus"),
        ({"plugins": 3}, "a list of files"),
        ({"plugins": ["/no/such/file"]}, "which is no file"),
        ({"variants": {}}, "a table of names"),
        ({"variants": {"a b": "x"}}, "letters, digits and _"),
        ({"variants": {"fp16": "/no/such/file"}}, "variants.fp16 names"),
        ({"shape_values": [1]}, "a table of input names"),
        ({"shape_values": {"s": [1.5]}}, "whole numbers"),
        ({"shape_values": {"s": {"min": [1]}}}, "min, opt and max"),
        ({"shape_values": {"s": {"min": [3], "opt": [2], "max": [4]}}}, "min <= opt <= max"),
        ({"shape_values": {"s": {"min": [1], "opt": [1, 2], "max": [4]}}}, "equal length"),
        ({"host_transfers": 1}, "true or false"),
        ({"compute_capability": ""}, "a word"),
    ],
)
def test_what_is_refused(given: dict[str, Any], part: str) -> None:
    with pytest.raises(SettingsError, match=r"TensorRT option") as caught:
        Options.parse(given)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
