"""Fingerprints, on inspector JSON in the form that TensorRT's documentation shows, and recorded.

The recordings are what TensorRT-RTX 1.4.0.76 said on an H200 about the transformer of
`scripts/gpu/make_models` and its half-precision variant, white space taken out.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from routewright.backends.tensorrt.inspector import fingerprint, read_layers, summary


def tensor(name: str, text: str = "Float", dims: tuple[int, ...] = (1, 64, 56, 56)) -> Any:
    return {"Name": name, "Location": "Device", "Dimensions": list(dims), "Format/Datatype": text}


ENGINE: dict[str, Any] = {
    "Layers": [
        {
            "Name": "Reformatting CopyNode for Input Tensor 0 to conv1",
            "LayerType": "Reformat",
            "Inputs": [tensor("x", "Row major linear FP32")],
            "Outputs": [tensor("reformatted x", "Channel major FP16 where channel % 8 == 0")],
            "ParameterType": "Reformat",
            "Origin": "REFORMAT",
            "TacticValue": "0x00000000000003ea",
            "StreamId": 0,
            "Metadata": "",
        },
        {
            "Name": "conv1 + relu1",
            "LayerType": "CaskConvolution",
            "Inputs": [tensor("reformatted x", "Half")],
            "Outputs": [tensor("act1", "Half")],
            "ParameterType": "Convolution",
            "Kernel": [3, 3],
            "Stride": [1, 1],
            "Weights": {"Type": "Half", "Count": 36864},
            "Activation": "RELU",
            "TacticName": "sm80_xmma_fprop_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128",
            "TacticValue": "0x11bde0e1d9f2f35d",
            "StreamId": 0,
            "Metadata": "[ONNX Layer: conv1]",
        },
        {
            "Name": "__myl_AddMulSum_myl0_3",
            "LayerType": "kgen",
            "Inputs": [tensor("act1", "Half")],
            "Outputs": [tensor("y")],
            "TacticName": "__myl_AddMulSum_0x1f3b7e22aa",
            "StreamId": 0,
            "Metadata": "[ONNX Layer: add][ONNX Layer: sum]",
        },
    ],
    "Bindings": ["x", "y"],
}


RECORDINGS = Path(__file__).parent / "recordings"


def recorded(name: str) -> Any:
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def of(engine: Any, **settings: Any) -> str | None:
    given: dict[str, Any] = {"model_digest": "d", "settings": {}, **settings}
    return fingerprint(json.dumps(engine), **given)


def changed(**changes: Any) -> Any:
    """Return the engine with fields of its convolution changed."""
    engine = copy.deepcopy(ENGINE)
    engine["Layers"][1].update(changes)
    return engine


def renamed() -> Any:
    text = json.dumps(ENGINE)
    for old, new in (("act1", "t17"), ("reformatted x", "other"), ("conv1 + relu1", "fused 3")):
        text = text.replace(old, new)
    return json.loads(text)


def test_a_fingerprint_is_the_same_for_the_same_engine() -> None:
    assert of(ENGINE) == of(copy.deepcopy(ENGINE))
    assert len(of(ENGINE) or "") == 64


def test_names_do_not_count() -> None:
    assert of(renamed()) == of(ENGINE)


@pytest.mark.parametrize(
    "changes",
    [
        {"TacticValue": "0xffff"},
        {"TacticName": "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64"},
        {"Metadata": "[ONNX Layer: renamed]"},
        {"Name": "another"},
    ],
)
def test_tactics_and_origins_do_not_count(changes: dict[str, Any]) -> None:
    assert of(changed(**changes)) == of(ENGINE)


@pytest.mark.parametrize(
    "changes",
    [
        {"LayerType": "Convolution"},
        {"Kernel": [1, 1]},
        {"Activation": "NONE"},
        {"Weights": {"Type": "Int8", "Count": 36864}},
        {"Inputs": [tensor("reformatted x", "Int8")]},
        {"Inputs": [tensor("reformatted x", "Half", (1, 64, 28, 28))]},
        {"Inputs": [tensor("x", "Half")]},
        {"Outputs": [tensor("act1", "Channel major FP16 where channel % 8 == 0")]},
        {"StreamId": 1},
        {"TacticName": "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc"},
    ],
)
def test_structure_formats_and_precisions_count(changes: dict[str, Any]) -> None:
    assert of(changed(**changes)) != of(ENGINE)


def test_the_code_of_a_generated_kernel_counts() -> None:
    engine = copy.deepcopy(ENGINE)
    engine["Layers"][2]["TacticName"] = "__myl_AddMulSum_0x9999999999"
    assert of(engine) != of(ENGINE)


def test_order_and_number_of_layers_count() -> None:
    fewer = {**ENGINE, "Layers": ENGINE["Layers"][:2]}
    turned = {**ENGINE, "Layers": ENGINE["Layers"][::-1]}
    assert len({of(ENGINE), of(fewer), of(turned)}) == 3


def test_model_and_settings_count() -> None:
    graph = {"-runtime:cuda_graph": "on"}
    prints = {of(ENGINE), of(ENGINE, model_digest="e"), of(ENGINE, settings=graph)}
    assert len(prints) == 3


def test_tactics_count_where_asked_for() -> None:
    other = changed(TacticName="sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_other")
    assert of(ENGINE, with_tactics=True) != of(other, with_tactics=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON",
        "[]",
        "{}",
        '{"Layers": []}',
        '{"Layers": ["conv1", "relu1"]}',
        '{"Layers": [{"Name": "no type"}]}',
        '{"Layers": [{"Name": "{ForeignNode[a...b]}", "LayerType": "Myelin"}]}',
    ],
)
def test_no_fingerprint_where_the_inspector_does_not_tell(text: str) -> None:
    assert fingerprint(text, model_digest="d", settings={}) is None
    assert read_layers(text) is None
    assert summary(text) == {}


def test_summary() -> None:
    assert summary(json.dumps(ENGINE)) == {"CaskConvolution": 1, "Reformat": 1, "kgen": 1}


def test_a_recorded_engine_has_a_fingerprint_and_a_summary() -> None:
    assert summary(json.dumps(recorded("transformer"))) == {
        "gemm": 29,
        "kgen": 49,
        "runtime_fusion": 7,
    }
    assert len(of(recorded("transformer")) or "") == 64
    assert of(recorded("transformer")) != of(recorded("transformer-fp16"))


def test_names_in_a_recording_do_not_count() -> None:
    text = json.dumps(recorded("transformer"))
    numbered = re.sub(r"__mye(\d+)", lambda found: f"__mye{int(found[1]) + 5}", text)
    assert numbered != text
    assert of(json.loads(numbered)) == of(recorded("transformer"))


def test_generated_kernels_and_precisions_of_a_recording_count() -> None:
    text = json.dumps(recorded("transformer"))
    original = of(recorded("transformer"))
    kernel = next(
        layer["TacticName"] for layer in recorded("transformer")["Layers"] if layer["TacticName"]
    )
    other_code = f"{kernel[:-1]}{'0' if kernel[-1] != '0' else '1'}"
    assert of(json.loads(text.replace(kernel, other_code))) != original
    assert of(json.loads(text.replace('"Float"', '"Half"', 1))) != original
