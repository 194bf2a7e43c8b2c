from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import models
from models import value
from routewright.errors import ModelError, RoutewrightError, SettingsError
from routewright.model import OnnxModel, TensorSpec
from routewright.shapes import (
    ResolvedShapes,
    parse_shape_option,
    parse_shape_options,
    resolve_profile,
    resolve_shapes,
)

VALID = models.conv_net().SerializeToString()


def spec(name: str, *dims: int | str | None, dtype: str = "float") -> TensorSpec:
    return TensorSpec(name, dtype, dims)


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


def outcome(action: Callable[[], object]) -> object:
    """Return what ``action`` returns, or the user error that it raises."""
    try:
        return action()
    except RoutewrightError as error:
        return error


def open_bytes(folder: Path, data: bytes) -> OnnxModel:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return OnnxModel.open(path)


# What a model says about itself


def test_open_tells_inputs_outputs_opset_operators(tmp_path: Path) -> None:
    model = OnnxModel.open(models.save(models.conv_net(), tmp_path / "m.onnx"))
    assert model.inputs == (spec("x", "batch", 3, 16, 16),)
    assert model.outputs == (spec("y", "batch", 10),)
    assert model.opset == 17
    assert model.opsets == {"": 17}
    assert model.symbols == ("batch",)
    assert model.op_types["Conv"] == 2
    assert list(model.op_types) == sorted(model.op_types)
    assert model.external_files == ()
    assert pickle.loads(pickle.dumps(model)) == model


def test_sha256_of_a_single_file_is_the_files_own(tmp_path: Path) -> None:
    path = models.save(models.mlp_static(), tmp_path / "m.onnx")
    assert OnnxModel.open(str(path)).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_every_test_model_opens(name: str, tmp_path: Path) -> None:
    model = OnnxModel.open(models.save(models.MODELS[name](), tmp_path / "m.onnx"))
    assert model.outputs
    assert sum(model.op_types.values()) > 0


def test_initializers_are_not_asked_for(tmp_path: Path) -> None:
    model = OnnxModel.open(models.save(models.initializer_as_input(), tmp_path / "m.onnx"))
    assert [item.name for item in model.inputs] == ["x"]


def test_operators_in_branches_and_bodies_are_counted(tmp_path: Path) -> None:
    branches = OnnxModel.open(models.save(models.if_matmul(), tmp_path / "i.onnx"))
    assert branches.op_types == {"If": 1, "MatMul": 2}
    loop = OnnxModel.open(models.save(models.loop_scan(), tmp_path / "l.onnx"))
    assert loop.op_types == {"Add": 1, "Identity": 2, "Loop": 1}


def test_other_domains_and_functions_are_counted(tmp_path: Path) -> None:
    body = helper.make_function(
        "own", "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("twice", ["x"], ["y"], domain="own")],
        "g",
        [value("x", dims=(2,))],
        [value("y", dims=(2,))],
    )
    opsets = [helper.make_opsetid("ai.onnx", 17), helper.make_opsetid("own", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, functions=[body], ir_version=8)
    model = OnnxModel.open(models.save(proto, tmp_path / "m.onnx"))
    assert model.op_types == {"Add": 1, "own::twice": 1}
    assert model.opsets == {"": 17, "own": 1}


def test_types_that_are_no_tensors_are_spelled_out(tmp_path: Path) -> None:
    model = OnnxModel.open(models.save(models.sequence_input(), tmp_path / "m.onnx"))
    assert model.inputs == (
        TensorSpec("parts", "sequence(float)", None),
        TensorSpec("extra", "optional(float)", None),
    )
    assert not model.inputs[0].is_tensor
    assert model.resolve_shapes({}) == {}
    with pytest.raises(ModelError, match=r"'parts' is of type sequence\(float\)"):
        model.resolve_shapes({"parts": (1,)})


@pytest.mark.parametrize(
    "code", [code for code in TensorProto.DataType.values() if code != TensorProto.UNDEFINED]
)
def test_every_element_type_has_a_name(code: int, tmp_path: Path) -> None:
    model = OnnxModel.open(models.save(models.identity(code), tmp_path / "m.onnx"))
    assert model.inputs[0].dtype == TensorProto.DataType.Name(code).lower()


def test_unknown_rank_and_undeclared_axes(tmp_path: Path) -> None:
    proto = models.build(
        [helper.make_node("Identity", ["a"], ["y"]), helper.make_node("Identity", ["b"], ["z"])],
        [value("a", dims=None), value("b", dims=(None, 3, "?", "h"))],
        [value("y", dims=None), value("z", dims=None)],
        check=False,
    )
    # What older exporters write for an open axis.
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_value = -1
    model = OnnxModel.open(models.save(proto, tmp_path / "m.onnx"))
    assert model.inputs[0].shape is None
    assert model.inputs[1].shape == (None, None, None, "h")


def test_an_output_without_a_type_is_undefined(tmp_path: Path) -> None:
    proto = models.mlp_static()
    proto.graph.output[0].ClearField("type")
    model = OnnxModel.open(models.save(proto, tmp_path / "m.onnx"))
    assert model.outputs == (TensorSpec("y", "undefined", None),)


def test_an_element_type_of_the_future_is_an_error(tmp_path: Path) -> None:
    proto = models.mlp_static()
    proto.graph.input[0].type.tensor_type.elem_type = 999
    with pytest.raises(ModelError, match="element type 999"):
        open_bytes(tmp_path, proto.SerializeToString())


# What is no model


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"hello, this is not a model\n", "not an ONNX model"),
        (b"\x00" * 100, "not an ONNX model"),
        (b"PK\x03\x04" + bytes(64), "not an ONNX model"),
        (b"version https://git-lfs.example/spec/v1\noid sha256:0\n", "git lfs pull"),
        (VALID[: len(VALID) // 2], "not an ONNX model, or is damaged"),
        (VALID[:3], "not an ONNX model, or is damaged"),
        (onnx.ModelProto().SerializeToString() + b"\x08\x08", "holds no graph"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(data: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        open_bytes(tmp_path, data)
    assert reason in one_line(error)
    assert "model.onnx" in one_line(error)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    no_outputs, no_opset = models.mlp_static(), models.mlp_static()
    del no_outputs.graph.output[:]
    del no_opset.opset_import[:]
    with pytest.raises(ModelError, match="no outputs"):
        open_bytes(tmp_path, no_outputs.SerializeToString())
    with pytest.raises(ModelError, match="no operator set"):
        open_bytes(tmp_path, no_opset.SerializeToString())


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        OnnxModel.open(tmp_path / "absent.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        OnnxModel.open(tmp_path)
    with pytest.raises(ModelError, match="does not exist"):
        OnnxModel.open("nul\0byte.onnx")
    with pytest.raises(ModelError, match="not a regular file"):
        OnnxModel.open(os.devnull)
    with pytest.raises(ModelError, match=r"cannot read|does not exist"):
        OnnxModel.open("n" * 5000)
    link = tmp_path / "link.onnx"
    link.symlink_to(tmp_path / "gone.onnx")
    with pytest.raises(ModelError, match="does not exist"):
        OnnxModel.open(link)


def test_a_file_above_the_protobuf_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    with path.open("wb") as stream:
        stream.truncate(2**31)
    with pytest.raises(ModelError, match="larger than 2 GiB"):
        OnnxModel.open(path)


def only_model_errors(folder: Path, data: bytes) -> None:
    opened = outcome(lambda: open_bytes(folder, data))
    if isinstance(opened, OnnxModel):
        opened = outcome(lambda: opened.resolve({}))
    if isinstance(opened, Exception):
        assert isinstance(opened, ModelError)
        assert len(str(opened).splitlines()) == 1


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_give_a_model_error(tmp_path: Path, data: bytes) -> None:
    only_model_errors(tmp_path, data)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    st.sampled_from(["mlp_static", "if_matmul", "shared_symbol", "loop_scan"]),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_damaged_models_give_a_model_error_or_open(
    tmp_path: Path, name: str, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(models.MODELS[name]().SerializeToString())
    for position, byte in changes:
        data[position % len(data)] = byte
    only_model_errors(tmp_path, bytes(data[: len(data) - cut]))


# External data


def test_digest_covers_external_data_but_not_the_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    path = models.save_external(models.mlp_dynamic(), first / "m.onnx", "weights.bin")
    model = OnnxModel.open(path)
    assert [item.location for item in model.external_files] == ["weights.bin"]
    assert model.sha256 != hashlib.sha256(path.read_bytes()).hexdigest()

    shutil.copytree(first, second)
    (second / "m.onnx").rename(second / "renamed.onnx")
    assert OnnxModel.open(second / "renamed.onnx").sha256 == model.sha256

    data = bytearray((second / "weights.bin").read_bytes())
    data[-1] ^= 1
    (second / "weights.bin").write_bytes(data)
    assert OnnxModel.open(second / "renamed.onnx").sha256 != model.sha256


def test_digest_is_bound_to_names_and_ranges(tmp_path: Path) -> None:
    (tmp_path / "one.bin").write_bytes(bytes(128))
    (tmp_path / "two.bin").write_bytes(bytes(128))
    variants = [("one.bin", 0), ("two.bin", 0), ("one.bin", 64)]
    digests = set()
    for location, offset in variants:
        proto = models.external_reference(location, offset=offset, length=64)
        digests.add(OnnxModel.open(models.save(proto, tmp_path / "m.onnx")).sha256)
    assert len(digests) == len(variants)


def test_external_data_in_branches_constants_and_subfolders_is_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    names = ["sub/w.bin", "c.bin"]
    for name in names:
        (tmp_path / name).write_bytes(bytes(64))
    proto = models.if_matmul()
    branch = proto.graph.node[0].attribute[0].g
    branch.initializer[0].CopyFrom(models.external_reference(names[0]).graph.initializer[0])
    branch.initializer[0].name = branch.node[0].input[1]
    constant = models.external_reference(names[1]).graph.initializer[0]
    branch.node.add(op_type="Constant", output=["unused"]).attribute.add(
        name="value", type=onnx.AttributeProto.TENSOR, t=constant
    )
    model = OnnxModel.open(models.save(proto, tmp_path / "m.onnx"))
    assert [item.location for item in model.external_files] == sorted(names)


@pytest.mark.parametrize(
    ("location", "length", "offset", "reason"),
    [
        ("gone.bin", None, None, "'gone.bin' is missing"),
        ("short.bin", None, None, "'short.bin' is truncated"),
        ("full.bin", 64, 32, "'full.bin' is truncated"),
        ("full.bin", 32, None, "takes 64 bytes but gives 32"),
        ("full.bin", "x", None, "not a number of bytes"),
        ("full.bin", None, -4, "not a number of bytes"),
        ("", None, None, "names none"),
        ("sub", None, None, "'sub' is not a file"),
        ("../outside.bin", None, None, "outside the model's folder"),
        ("sub/../../outside.bin", None, None, "outside the model's folder"),
        ("/etc/hostname", None, None, "outside the model's folder"),
        ("leads_out.bin", None, None, "outside the model's folder"),
        ("loop.bin", None, None, "loop.bin"),
        ("n" * 5000, None, None, "cannot read"),
    ],
)
def test_external_data_that_cannot_be_used(
    location: str, length: object, offset: object, reason: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "full.bin").write_bytes(bytes(64))
    (folder / "short.bin").write_bytes(bytes(63))
    (tmp_path / "outside.bin").write_bytes(bytes(64))
    (folder / "leads_out.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "loop.bin").symlink_to(folder / "loop.bin")
    proto = models.external_reference(location, length=length, offset=offset)  # type: ignore[arg-type]
    with pytest.raises(ModelError) as error:
        OnnxModel.open(models.save(proto, folder / "m.onnx"))
    assert reason in one_line(error)


def test_paths_that_stay_inside_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(64))
    for location in ("w.bin", "./w.bin", "sub/../w.bin"):
        OnnxModel.open(models.save(models.external_reference(location), tmp_path / "m.onnx"))


def test_a_download_cache_of_links_is_allowed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    models.save(models.external_reference("w.bin"), blobs / "abc")
    (blobs / "def").write_bytes(bytes(64))
    (snapshot / "m.onnx").symlink_to(blobs / "abc")
    (snapshot / "w.bin").symlink_to(blobs / "def")
    assert len(OnnxModel.open(snapshot / "m.onnx").external_files) == 1


def test_packed_types_need_half_a_byte(tmp_path: Path) -> None:
    proto = models.external_reference("w.bin")
    proto.graph.initializer[0].data_type = TensorProto.INT4
    (tmp_path / "w.bin").write_bytes(bytes(8))
    OnnxModel.open(models.save(proto, tmp_path / "m.onnx"))
    (tmp_path / "w.bin").write_bytes(bytes(7))
    with pytest.raises(ModelError, match="truncated"):
        OnnxModel.open(tmp_path / "m.onnx")


@pytest.mark.slow
def test_more_than_two_gib_by_path(tmp_path: Path) -> None:
    model = OnnxModel.open(models.save_big(tmp_path))
    assert (tmp_path / "big.data").stat().st_size > 2**31
    assert model.resolve_shapes({}) == {"x": (1, 8)}


# Shape options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:1x3x320x320", ("x", (1, 3, 320, 320))),
        ("1x3x320x320", ("", (1, 3, 320, 320))),
        ("7", ("", (7,))),
        ("x:7", ("x", (7,))),
        ("x:0x4", ("x", (0, 4))),
        ("x:", ("x", ())),
        ("x:scalar", ("x", ())),
        ("scalar", ("", ())),
        ("import/input:0:1x3", ("import/input:0", (1, 3))),
        ("a:0:", ("a:0", ())),
        (" x:1X2 ", ("x", (1, 2))),
    ],
)
def test_shape_options(text: str, expected: tuple[str, tuple[int, ...]]) -> None:
    assert parse_shape_option(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", ":", ":1x2", "x:1x", "x:x1", "x:1xx2", "x:-1x3", "x:1.5", "x:1x?", "x:n", "x:1,2",
     "x:" + "9" * 30, "x:١x٢"],
)  # fmt: skip
def test_malformed_shape_options(text: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse_shape_option(text)
    one_line(error)


def test_several_shape_options() -> None:
    assert parse_shape_options(["a:1", "b:2x3", "a:1"]) == {"a": (1,), "b": (2, 3)}
    with pytest.raises(SettingsError, match="'a' is given two shapes, 1 and 2"):
        parse_shape_options(["a:1", "a:2"])


@settings(deadline=None)
@given(
    st.text(min_size=1).filter(lambda name: name.strip() == name),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=6),
)
def test_any_name_survives_a_shape_option(name: str, dims: list[int]) -> None:
    text = f"{name}:{'x'.join(map(str, dims))}"
    assert parse_shape_option(text) == (name, tuple(dims))


@settings(deadline=None)
@given(st.text())
def test_arbitrary_text_gives_a_shape_or_an_error(text: str) -> None:
    parsed = outcome(lambda: parse_shape_option(text))
    if isinstance(parsed, tuple):
        assert all(dim >= 0 for dim in parsed[1])
    else:
        assert isinstance(parsed, SettingsError)
        assert len(str(parsed).splitlines()) == 1


# Resolving shapes


def test_static_shapes_need_nothing() -> None:
    assert resolve_shapes([spec("x", 2, 8)], {}).shapes == {"x": (2, 8)}
    assert resolve_shapes([spec("x")], {}).shapes == {"x": ()}
    assert resolve_shapes([], {}).shapes == {}
    assert resolve_shapes([spec("x", 2, 8)], {"x": (2, 8)}).shapes == {"x": (2, 8)}


def test_the_only_input_need_not_be_named() -> None:
    assert resolve_shapes([spec("x", "n", 3)], {"": (4, 3)}).shapes == {"x": (4, 3)}
    with pytest.raises(ModelError, match="names no input and the model has 2"):
        resolve_shapes([spec("a", "n"), spec("b", "n")], {"": (4,)})


@pytest.mark.parametrize("batch", ["N", None])
def test_a_batch_axis_defaults_to_one_with_a_note(batch: str | None) -> None:
    resolved = resolve_shapes([spec("x", batch, 3)], {})
    assert resolved.shapes == {"x": (1, 3)}
    assert len(resolved.notes) == 1
    assert "'x' axis 0" in resolved.notes[0]


def test_a_symbol_has_one_value() -> None:
    inputs = [spec("a", "n", 4), spec("b", 3, "n")]
    assert resolve_shapes(inputs, {"a": (2, 4)}).shapes == {"a": (2, 4), "b": (3, 2)}
    assert resolve_shapes(inputs, {"a": (2, 4)}).symbols == {"n": 2}
    with pytest.raises(ModelError) as error:
        resolve_shapes(inputs, {"a": (2, 4), "b": (3, 1)})
    text = one_line(error)
    assert "'a' axis 0" in text
    assert "'b' axis 1" in text
    with pytest.raises(ModelError, match="share the size 'k'"):
        resolve_shapes([spec("sq", "k", "k")], {"sq": (2, 3)})


def test_a_symbol_that_also_stands_inside_is_no_batch() -> None:
    with pytest.raises(ModelError, match=r"--shape a:1x\?"):
        resolve_shapes([spec("a", "m", "k"), spec("b", "k", 5)], {})


def test_missing_sizes_are_all_told_with_the_way_out() -> None:
    inputs = [spec("x", "N", 3, "H", None), TensorSpec("free", "float", None)]
    with pytest.raises(ModelError) as error:
        resolve_shapes(inputs, {})
    text = one_line(error)
    assert "'x' [N, 3, H, ?]: --shape x:1x3x?x?" in text
    assert "--shape free:DIMS" in text


def test_odd_names_stay_on_one_line() -> None:
    with pytest.raises(ModelError) as error:
        resolve_shapes([spec("a b", "N", "H"), spec("c\nd", 1, "W\n")], {})
    text = one_line(error)
    assert "--shape 'a b':1x?" in text


def test_an_unknown_rank_takes_any_shape() -> None:
    free = TensorSpec("free", "float", None)
    assert resolve_shapes([free], {"free": (2, 3)}).shapes == {"free": (2, 3)}
    assert resolve_shapes([free], {"free": ()}).shapes == {"free": ()}


@pytest.mark.parametrize(
    ("given_shapes", "reason"),
    [
        ({"imagse": (1, 3)}, "did you mean 'images'?"),
        ({"images:1x3,other": (1, 3)}, "one --shape each"),
        ({"images": (1, 3, 5)}, "has 2 axes, [n, 3], but --shape 1x3x5 gives 3"),
        ({"images": ()}, "but --shape scalar gives 0"),
        ({"images": (1, 4)}, "axis 1 is fixed at 3"),
        ({"images": (-1, 3)}, "not a list of whole numbers"),
        ({"images": (1.5, 3)}, "not a list of whole numbers"),
        ({"": (1, 3), "images": (2, 3)}, "two shapes"),
    ],
)
def test_shapes_that_do_not_fit(given_shapes: dict[str, tuple[int, ...]], reason: str) -> None:
    with pytest.raises(ModelError) as error:
        resolve_shapes([spec("images", "n", 3)], given_shapes)
    assert reason in one_line(error)


SYMBOLS = st.sampled_from(["a", "b", "c", None, 1, 2, 3])


@settings(deadline=None)
@given(st.lists(st.lists(SYMBOLS, max_size=4), max_size=4), st.integers(0, 9))
def test_resolved_shapes_fit_what_is_declared(
    declared: list[list[int | str | None]], size: int
) -> None:
    inputs = [spec(f"x{index}", *dims) for index, dims in enumerate(declared)]
    sizes = {"a": size, "b": size + 1, "c": size + 2, None: 5}
    full = {
        item.name: tuple(d if isinstance(d, int) else sizes[d] for d in item.shape or ())
        for item in inputs
    }
    assert resolve_shapes(inputs, full).shapes == full
    resolved = outcome(lambda: resolve_shapes(inputs, {}))
    if not isinstance(resolved, ResolvedShapes):
        assert isinstance(resolved, ModelError)
        return
    for item in inputs:
        for dim, got in zip(item.shape or (), resolved.shapes[item.name], strict=True):
            assert got == (dim if isinstance(dim, int) else 1)


# Profiles


def test_a_profile_of_one_shape() -> None:
    inputs = [spec("x", "n", 3), spec("y", 2)]
    assert resolve_profile(inputs, {}, {"x": (4, 3)}, {}) == {
        "x": ((4, 3), (4, 3), (4, 3)),
        "y": ((2,), (2,), (2,)),
    }


def test_symbols_carry_a_profile_to_other_inputs() -> None:
    inputs = [spec("a", "n", 4), spec("b", "n", "m")]
    profile = resolve_profile(inputs, {"a": (1, 4)}, {"a": (2, 4), "b": (2, 7)}, {"b": (8, 9)})
    assert profile == {
        "a": ((1, 4), (2, 4), (8, 4)),
        "b": ((1, 7), (2, 7), (8, 9)),
    }


def test_a_missing_optimum_is_the_maximum() -> None:
    profile = resolve_profile([spec("x", "n", "w")], {"": (1, 8)}, {}, {"x": (4, 64)})
    assert profile == {"x": ((1, 8), (4, 64), (4, 64))}


@pytest.mark.parametrize(
    ("low", "timed", "high", "reason"),
    [
        ((3, 4), (2, 4), (8, 4), "--min-shape 3x4"),
        ((1, 4), (9, 4), (8, 4), "--max-shape 8x4"),
        ((1, 4), (2, 4), (8, 5), "fixed at 4"),
        ((1,), (2, 4), (8, 4), "--min-shape 1 gives 1"),
    ],
)
def test_profiles_that_do_not_fit(
    low: tuple[int, ...], timed: tuple[int, ...], high: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(ModelError) as error:
        resolve_profile([spec("x", "n", 4)], {"x": low}, {"x": timed}, {"x": high})
    assert reason in one_line(error)


def test_ranks_of_a_profile_agree() -> None:
    with pytest.raises(ModelError, match="must hold on every axis"):
        resolve_profile(
            [TensorSpec("x", "float", None)], {"x": (1,)}, {"x": (1, 2)}, {"x": (3, 2)}
        )
