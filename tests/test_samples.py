from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import models
from routewright.errors import RoutewrightError, SampleError, StorageError
from routewright.model import OnnxModel
from routewright.samples import SampleSet, parse_input_range
from routewright.tensors import EXACT_DTYPES, NUMPY_DTYPES, TensorSpec, number_range

FIXTURE_HEALTH = [HealthCheck.function_scoped_fixture]
NUMERIC = sorted(set(NUMPY_DTYPES) - {"string"})


def spec(name: str, *dims: int | str | None, dtype: str = "float") -> TensorSpec:
    return TensorSpec(name, dtype, dims)


X = spec("x", "n", 4)
IDS = spec("ids", "n", dtype="int64")
Y = spec("y", "n", 2)


def strings(*items: str) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def same(left: Mapping[str, Any], right: Mapping[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype, name
        assert array.shape == right[name].shape, name
        assert array.tobytes() == right[name].tobytes() or array.dtype.hasobject, name
        assert array.tolist() == right[name].tolist() or not array.dtype.hasobject, name


def fails(reason: str, action: Callable[[], object]) -> str:
    with pytest.raises(SampleError) as error:
        action()
    text = str(error.value)
    assert reason in text
    assert len(text.splitlines()) == 1
    return text


# Own files


@pytest.mark.parametrize("dtype", NUMERIC)
def test_every_element_type_survives_a_file(dtype: str, tmp_path: Path) -> None:
    held = NUMPY_DTYPES[dtype]
    rng = np.random.default_rng(3)
    raw = rng.integers(0, 2, size=24 * held.itemsize, dtype=np.uint8)
    array = raw.view(held).reshape(6, 4)
    scalar = array[0, 0].reshape(())
    empty = array[:0]
    original = SampleSet(({"a": array, "b": scalar, "c": empty},), ({"y": array},))
    original.save(tmp_path / "s.npz")
    inputs = [spec("a", 6, 4, dtype=dtype), spec("b", dtype=dtype), spec("c", 0, 4, dtype=dtype)]
    loaded = SampleSet.load(tmp_path / "s.npz", inputs=inputs, outputs=[spec("y", dtype=dtype)])
    same(loaded.inputs[0], original.inputs[0])
    assert loaded.references is not None
    same(loaded.references[0], {"y": array})
    assert loaded.digest == original.digest


@pytest.mark.parametrize(
    "items",
    [
        ("plain", "grüße", ""),
        ("ends in nul\0", "\0", "in\0side"),
        ("emoji \N{ROCKET}", "line\nbreak", "x" * 1000),
        (),
    ],
)
def test_strings_survive_a_file(items: tuple[str, ...], tmp_path: Path) -> None:
    original = SampleSet(({"text": strings(*items)},), synthetic=False)
    original.save(tmp_path / "s.npz")
    loaded = SampleSet.load(tmp_path / "s.npz", inputs=[spec("text", None, dtype="string")])
    same(loaded.inputs[0], original.inputs[0])
    assert all(type(item) is str for item in loaded.inputs[0]["text"])
    assert loaded.digest == original.digest


def test_several_samples_notes_and_references_survive(tmp_path: Path) -> None:
    inputs = [X, IDS]
    made = SampleSet.generate(inputs, {"x": (3, 4), "ids": (3,)}, count=12, seed=5)
    made = made.with_references(
        {"y": np.full((3, 2), index, np.float32)} for index in range(len(made))
    )
    made.save(tmp_path / "s.npz")
    loaded = SampleSet.load(tmp_path / "s.npz", inputs=inputs, outputs=[Y])
    assert loaded.synthetic
    assert loaded.notes == made.notes
    assert len(loaded) == 12
    for index in range(12):
        same(loaded.inputs[index], made.inputs[index])
    assert loaded.references is not None
    assert [reference["y"][0, 0] for reference in loaded.references] == list(range(12))
    assert loaded.digest == made.digest
    assert loaded.inputs_digest == made.inputs_digest
    assert loaded.digest != loaded.inputs_digest


def test_models_without_inputs(tmp_path: Path) -> None:
    made = SampleSet.generate([], {}, count=4)
    assert made.inputs == ({},)
    assert not made.synthetic
    made.with_references([{"y": np.ones(3, np.float32)}]).save(tmp_path / "s.npz")
    loaded = SampleSet.load(tmp_path / "s.npz", inputs=[], outputs=[spec("y", 3)])
    assert loaded.inputs == ({},)
    assert loaded.references is not None
    np.savez(tmp_path / "r.npz", y=np.ones(3, np.float32))
    given_apart = SampleSet.load(
        [], inputs=[], outputs=[spec("y", 3)], references=tmp_path / "r.npz"
    )
    assert given_apart.digest == loaded.digest


AWKWARD = [
    "x",
    "sample0/x",
    "reference/x",
    "sample1/reference/x",
    "a:0",
    "a/b",
    "../up",
    "/abs",
    "x.npy",
    "__routewright__",
    " ",
    "name with spaces",
    "ü",
    "x\0y",
    "~",
    "x~",
]


@pytest.mark.parametrize("count", [1, 2])
def test_awkward_names_do_not_clash(count: int, tmp_path: Path) -> None:
    tensors = [
        {name: np.float32([index, sample]) for index, name in enumerate(AWKWARD)}
        for sample in range(count)
    ]
    original = SampleSet(tuple(tensors), tuple(tensors))
    original.save(tmp_path / "s.npz")
    specs = [spec(name, 2) for name in AWKWARD]
    loaded = SampleSet.load(tmp_path / "s.npz", inputs=specs, outputs=specs)
    assert loaded.digest == original.digest
    assert list(tmp_path.iterdir()) == [tmp_path / "s.npz"]


def test_equal_samples_give_equal_files(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        SampleSet.generate([X], {"x": (2, 4)}, count=2, seed=1).save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    made = SampleSet.generate([X], {"x": (2, 4)})
    with pytest.raises(StorageError, match="cannot write"):
        made.save(tmp_path / "absent" / "s.npz")
    broken = np.empty(1, dtype=object)
    broken[0] = 3
    with pytest.raises(SampleError, match="not a string"):
        SampleSet(({"x": broken},)).save(tmp_path / "s.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", __routewright__=np.array('{"schema_version": 99}'))
    fails("sample format 99", lambda: SampleSet.load(tmp_path / "s.npz", inputs=[X]))


def metadata(**changes: object) -> str:
    sound: dict[str, object] = {
        "schema_version": 1,
        "samples": 1,
        "references": False,
        "members": [["x", 0, "input", "x"]],
        "dtypes": {},
        "ended_strings": [],
        "synthetic": False,
        "notes": [],
    }
    return json.dumps(sound | changes)


DAMAGED_METADATA = [
    "",
    "[]",
    "null",
    "{}",
    metadata(samples=1e30),
    metadata(samples=-1),
    metadata(samples="many"),
    metadata(members=[["x", 7, "input", "x"]]),
    metadata(members=[["gone", 0, "input", "x"]]),
    metadata(members=[["x", 0, "weird", "x"]]),
    metadata(members=3),
    metadata(dtypes={"x": "string"}),
    metadata(dtypes={"x": "float99"}),
    metadata(notes=3),
    "[" * 100_000,
]


def test_sound_metadata(tmp_path: Path) -> None:
    array = np.zeros((1, 4), np.float32)
    np.savez(tmp_path / "s.npz", x=array, __routewright__=np.array(metadata()))
    assert len(SampleSet.load(tmp_path / "s.npz", inputs=[X])) == 1


@pytest.mark.parametrize("text", DAMAGED_METADATA)
def test_damaged_metadata(text: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.zeros(4, np.float32), __routewright__=np.array(text))
    with pytest.raises(SampleError):
        SampleSet.load(tmp_path / "s.npz", inputs=[X])


# Files of others


def test_a_plain_npz_is_one_sample(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "s.npz", x=np.ones((2, 4), np.float32), ids=np.array([1, 2]))
    loaded = SampleSet.load(str(tmp_path / "s.npz"), inputs=[X, IDS])
    assert len(loaded) == 1
    assert loaded.references is None
    assert not loaded.synthetic
    assert loaded.input_shapes == {"x": (2, 4), "ids": (2,)}


def test_prefixes_give_several_samples_in_number_order(tmp_path: Path) -> None:
    arrays = {}
    for index in (10, 2, 1):
        arrays[f"sample{index}/x"] = np.full((1, 4), index, np.float32)
        arrays[f"sample{index}/reference/y"] = np.full((1, 2), -index, np.float32)
    np.savez(tmp_path / "s.npz", **arrays)
    loaded = SampleSet.load(tmp_path / "s.npz", inputs=[X], outputs=[Y])
    assert [sample["x"][0, 0] for sample in loaded.inputs] == [1, 2, 10]
    assert loaded.references is not None
    assert [sample["y"][0, 0] for sample in loaded.references] == [-1, -2, -10]


def test_references_of_their_own(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.ones((1, 4), np.float32))
    np.savez(tmp_path / "bare.npz", y=np.ones((1, 2), np.float32))
    np.savez(tmp_path / "marked.npz", **{"reference/y": np.ones((1, 2), np.float32)})
    digests = {
        SampleSet.load(
            tmp_path / "s.npz", inputs=[X], outputs=[Y], references=tmp_path / name
        ).digest
        for name in ("bare.npz", "marked.npz")
    }
    assert len(digests) == 1
    np.savez(tmp_path / "two.npz", **{f"sample{i}/y": np.ones((1, 2), np.float32) for i in (0, 1)})
    fails(
        "1 samples but 2 sets of reference outputs",
        lambda: SampleSet.load(
            tmp_path / "s.npz", inputs=[X], outputs=[Y], references=tmp_path / "two.npz"
        ),
    )


def test_a_name_of_the_model_goes_before_a_prefix(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", **{"sample0/x": np.ones(2, np.float32)})
    loaded = SampleSet.load(tmp_path / "s.npz", inputs=[spec("sample0/x", 2)])
    assert len(loaded) == 1


def test_mixed_prefixes_are_refused(tmp_path: Path) -> None:
    one = np.ones((1, 4), np.float32)
    np.savez(tmp_path / "a.npz", **{"x": one, "sample0/x": one})
    fails("under sampleN/ or none", lambda: SampleSet.load(tmp_path / "a.npz", inputs=[X]))
    np.savez(tmp_path / "b.npz", **{"sample0/x": one, "sample1/reference/y": one})
    fails("every sample needs both", lambda: SampleSet.load(tmp_path / "b.npz", inputs=[X]))


def test_several_files_are_several_samples(tmp_path: Path) -> None:
    for index in range(3):
        np.savez(tmp_path / f"{index}.npz", x=np.full((1, 4), index, np.float32))
    loaded = SampleSet.load([tmp_path / f"{index}.npz" for index in (2, 0)], inputs=[X])
    assert [sample["x"][0, 0] for sample in loaded.inputs] == [2, 0]


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("pickle-ran",))


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("object.npz", x=np.array([Evil()], dtype=object))
    np.savez("strings.npz", x=np.array(["a"], dtype=object))
    for name in ("object.npz", "strings.npz"):
        fails("unpickling runs code", lambda name=name: SampleSet.load(name, inputs=[X]))
    Path("plain.pkl").write_bytes(pickle.dumps(Evil()))
    fails("neither an .npz", lambda: SampleSet.load("plain.pkl", inputs=[X]))
    payload = io.BytesIO()
    np.save(payload, np.array([Evil()], dtype=object))
    encoded = {"array": base64.b64encode(payload.getvalue()).decode()}
    Path("in.json").write_text(json.dumps([{"x": encoded}]))
    fails("unpickling runs code", lambda: SampleSet.load("in.json", inputs=[X]))
    Path("torch.json").write_text(
        json.dumps([{"x": {"tensor": "AAAA", "polygraphy_class": "Tensor"}}])
    )
    fails("PyTorch tensor", lambda: SampleSet.load("torch.json", inputs=[X]))
    assert not Path("pickle-ran").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "neither an .npz"),
        (b"nonsense", "neither an .npz"),
        (b"PK\x03\x04 cut short", "not a valid .npz"),
        (b"{not json", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[1, 2]", "not an object of arrays"),
        (b'[{"x": 3}]', "not an array as Polygraphy"),
        (b'[{"x": {"array": "####"}}]', "not a valid array"),
        (b'[{"x": {"array": ""}}]', "not a valid array"),
        (b'{"x": {"values": {"values": {"values": {"values": {"values": 1}}}}}}', "not an array"),
        (b'{"polygraphy_class": "RunResults"}', "not laid out so"),
        (b'{"polygraphy_class": "RunResults", "lst": []}', "outputs of 0 runners"),
        (b'{"polygraphy_class": "RunResults", "lst": [["r", [3]]]}', "not an object of arrays"),
        (b"\x93NUMPY\x01\x00", "one array without a name"),
        (b"[]", "there are no inputs"),
    ],
)
def test_what_is_no_sample_file(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "s.bin"
    path.write_bytes(content)
    fails(reason, lambda: SampleSet.load(path, inputs=[X]))


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    fails("does not exist", lambda: SampleSet.load(tmp_path / "absent.npz", inputs=[X]))
    fails("does not exist", lambda: SampleSet.load("absent.npz", inputs=[X]))
    fails("does not exist", lambda: SampleSet.load("nul\0.npz", inputs=[X]))
    fails("cannot read", lambda: SampleSet.load("n" * 5000, inputs=[X]))
    fails("holds no .json", lambda: SampleSet.load(tmp_path, inputs=[X]))
    fails("there are no inputs", lambda: SampleSet.load([], inputs=[X]))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hi")
    fails(
        "'readme.txt', which is not an array",
        lambda: SampleSet.load(tmp_path / "other.zip", inputs=[X]),
    )


def a_valid_file() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, x=np.ones((2, 4), np.float32))
    return stream.getvalue()


VALID_NPZ = a_valid_file()


@settings(max_examples=200, suppress_health_check=FIXTURE_HEALTH, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, len(VALID_NPZ)),
    st.binary(max_size=20),
)
def test_damaged_files_give_a_sample_error_or_load(
    tmp_path: Path, changes: list[tuple[int, int]], keep: int, tail: bytes
) -> None:
    data = bytearray(VALID_NPZ)
    for position, byte in changes:
        data[position % len(data)] = byte
    path = tmp_path / "s.npz"
    path.write_bytes(bytes(data[:keep]) + tail if keep < len(data) - 20 else bytes(data))
    with contextlib.suppress(SampleError):
        SampleSet.load(path, inputs=[X])


@settings(max_examples=200, suppress_health_check=FIXTURE_HEALTH, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: b"[" + text.encode()))
def test_arbitrary_bytes_give_a_sample_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "s"
    path.write_bytes(data)
    with pytest.raises(SampleError):
        SampleSet.load(path, inputs=[X])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["x", "array", "values", "outputs", "lst", "polygraphy_class", "tensor"]
            ),
            inner | st.sampled_from(["RunResults", "Tensor", "ndarray", "AAAA", "k05VTVBZAQA="]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, suppress_health_check=FIXTURE_HEALTH, deadline=None)
@given(st.lists(JSON_VALUES, max_size=3) | JSON_VALUES.map(lambda value: {"lst": value}))
def test_arbitrary_json_gives_a_sample_error(tmp_path: Path, content: object) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SampleError):
        SampleSet.load(path, inputs=[X])


# Polygraphy. The arrays below were written by polygraphy 0.53.6.


SAVED_X = {
    "array": "k05VTVBZAQB2AHsnZGVzY3InOiAnPGY0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEs"
    "IDQpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAAA"
    "AACAPwAAAEAAAEBA",
    "polygraphy_class": "ndarray",
}
SAVED_IDS = {
    "array": "k05VTVBZAQB2AHsnZGVzY3InOiAnPGk4JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEs"
    "IDEpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAAA"
    "AAAAAA==",
    "polygraphy_class": "ndarray",
}
SAVED_Y = {
    "array": "k05VTVBZAQB2AHsnZGVzY3InOiAnPGY0JywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEs"
    "IDIpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAA/"
    "AAAAPw==",
    "polygraphy_class": "ndarray",
}
SAVED_BFLOAT16 = {
    "array": "k05VTVBZAQB2AHsnZGVzY3InOiAnPFYyJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDEs"
    "IDIpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAqAP4A/",
    "polygraphy_class": "ndarray",
}


def run_results(*runners: str, iterations: int = 1) -> dict[str, Any]:
    iteration = {
        "outputs": {"y": {"values": SAVED_Y, "polygraphy_class": "LazyArray"}},
        "runtime": None,
        "runner_name": "r",
        "polygraphy_class": "IterationResult",
    }
    runs = [[runner, [iteration] * iterations] for runner in runners]
    return {"lst": runs, "polygraphy_class": "RunResults"}


POLYGRAPHY_INPUTS = [spec("x", 1, 4), spec("ids", 1, 1, dtype="int64")]


def test_polygraphy_inputs_and_outputs(tmp_path: Path) -> None:
    saved = [{"x": SAVED_X, "ids": SAVED_IDS}] * 2
    (tmp_path / "in.json").write_text(json.dumps(saved, indent=4))
    (tmp_path / "out.json").write_text(json.dumps(run_results("onnxrt-runner-N0", iterations=2)))
    loaded = SampleSet.load(
        tmp_path / "in.json",
        inputs=POLYGRAPHY_INPUTS,
        outputs=[spec("y", 1, 2)],
        references=tmp_path / "out.json",
    )
    assert len(loaded) == 2
    assert loaded.inputs[1]["x"].tolist() == [[0, 1, 2, 3]]
    assert loaded.inputs[0]["ids"].dtype == np.int64
    assert loaded.references is not None
    assert loaded.references[1]["y"].tolist() == [[0.5, 0.5]]


def test_a_polygraphy_folder_holds_one_iteration_a_file(tmp_path: Path) -> None:
    for index in range(3):
        (tmp_path / f"{index:010d}.json").write_text(json.dumps({"x": SAVED_X, "ids": SAVED_IDS}))
    assert len(SampleSet.load(tmp_path, inputs=POLYGRAPHY_INPUTS)) == 3


def test_old_polygraphy_files(tmp_path: Path) -> None:
    archive = io.BytesIO()
    np.savez(archive, np.ones((1, 4), np.float32))
    marker = {"__polygraphy_encoded_ndarray": "polygraphy_serialized_json_type"}
    for name, text in {
        "base64.json": base64.b64encode(archive.getvalue()).decode(),
        "latin.json": archive.getvalue().decode("latin-1"),
    }.items():
        (tmp_path / name).write_text(json.dumps([{"x": {"array": text, **marker}}]))
        loaded = SampleSet.load(tmp_path / name, inputs=[X])
        assert loaded.inputs[0]["x"].tolist() == [[1, 1, 1, 1]]


def test_polygraphy_bfloat16_is_told_by_the_model(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps([{"x": SAVED_BFLOAT16}]))
    loaded = SampleSet.load(tmp_path / "in.json", inputs=[spec("x", 1, 2, dtype="bfloat16")])
    assert loaded.inputs[0]["x"].dtype == ml_dtypes.bfloat16
    assert loaded.inputs[0]["x"].astype(float).tolist() == [[1, 1]]
    fails(
        "must be float16",
        lambda: SampleSet.load(tmp_path / "in.json", inputs=[spec("x", 1, 2, dtype="float16")]),
    )


def test_results_of_two_runners_are_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(json.dumps([{"x": SAVED_X}]))
    (tmp_path / "out.json").write_text(json.dumps(run_results("ort", "trt")))
    fails(
        "2 runners ('ort', 'trt')",
        lambda: SampleSet.load(
            tmp_path / "in.json", inputs=[X], outputs=[Y], references=tmp_path / "out.json"
        ),
    )


# Raw files


@pytest.mark.parametrize("dtype", NUMERIC)
def test_raw_files_of_every_type(dtype: str, tmp_path: Path) -> None:
    held = NUMPY_DTYPES[dtype]
    array = np.zeros((2, 4), dtype=np.float32).astype(held)
    array.tofile(tmp_path / "x.bin")
    loaded = SampleSet.load(f"x:{tmp_path / 'x.bin'}", inputs=[spec("x", 2, 4, dtype=dtype)])
    same(loaded.inputs[0], {"x": array})


def test_raw_files_by_name_with_colons(tmp_path: Path) -> None:
    names = ["in/put:0", "in/put:0:1", "b"]
    sources = []
    for index, name in enumerate(names):
        path = tmp_path / f"{index}.bin"
        np.full(4, index, np.float32).tofile(path)
        sources.append(f"{name}:{path}")
    inputs = [spec(name, 4) for name in names]
    loaded = SampleSet.load(sources, inputs=inputs)
    assert [loaded.inputs[0][name][0] for name in names] == [0, 1, 2]


def test_the_second_raw_file_of_an_input_is_the_second_sample(tmp_path: Path) -> None:
    sources = []
    for index in range(2):
        for name in ("x", "z"):
            path = tmp_path / f"{name}{index}.bin"
            np.full((1, 4), index, np.float32).tofile(path)
            sources.append(f"{name}:{path}")
    inputs = [spec("x", "n", 4), spec("z", "n", 4)]
    loaded = SampleSet.load(sources, inputs=inputs)
    assert [sample["z"][0, 0] for sample in loaded.inputs] == [0, 1]
    fails("'x' 2, 'z' 1", lambda: SampleSet.load(sources[:3], inputs=inputs))


def test_raw_shapes_follow_from_given_shapes_symbols_or_size(tmp_path: Path) -> None:
    np.zeros((3, 5), np.float32).tofile(tmp_path / "x.bin")
    np.zeros((3, 7), np.float32).tofile(tmp_path / "y.bin")
    source = f"x:{tmp_path / 'x.bin'}"
    inputs = [spec("x", "n", "w")]
    loaded = SampleSet.load(
        source,
        inputs=inputs,
        outputs=[spec("y", "n", "other")],
        shapes={"x": (3, 5)},
        references=f"y:{tmp_path / 'y.bin'}",
    )
    assert loaded.inputs[0]["x"].shape == (3, 5)
    assert loaded.references is not None
    assert loaded.references[0]["y"].shape == (3, 7)
    fails("which a raw file needs", lambda: SampleSet.load(source, inputs=inputs))
    free = [TensorSpec("x", "float", None)]
    fails("which a raw file needs", lambda: SampleSet.load(source, inputs=free))
    assert SampleSet.load(source, inputs=free, shapes={"x": (15,)}).input_shapes == {"x": (15,)}


@pytest.mark.parametrize("extra", [-1, 1, 4])
def test_raw_files_of_the_wrong_size(extra: int, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(32 + extra))
    text = fails(
        "takes 32 bytes",
        lambda: SampleSet.load(f"x:{tmp_path / 'x.bin'}", inputs=[spec("x", 2, 4)]),
    )
    assert f"the file has {32 + extra}" in text


def test_raw_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(16))
    source = f"x:{tmp_path / 'x.bin'}"
    fails("no input 'y'", lambda: SampleSet.load(f"y:{tmp_path / 'x.bin'}", inputs=[X]))
    fails("is not a file", lambda: SampleSet.load(f"x:{tmp_path}", inputs=[X]))
    fails("does not exist", lambda: SampleSet.load("x:absent.bin", inputs=[X]))
    fails(
        "raw file cannot hold",
        lambda: SampleSet.load(source, inputs=[spec("x", 2, dtype="string")]),
    )
    fails(
        "no output 'x'", lambda: SampleSet.load(source, inputs=[X], outputs=[Y], references=source)
    )


# Checks against the model


def checked(array: np.ndarray[Any, Any], declared: TensorSpec) -> np.ndarray[Any, Any]:
    return SampleSet(({declared.name: array},)).check_against([declared]).inputs[0][declared.name]


def test_names_must_be_the_models() -> None:
    sample = SampleSet(({"x": np.ones((1, 4), np.float32), "idz": np.ones(1, np.int64)},))
    fails("'idz' is not in the model; did you mean 'ids'?", lambda: sample.check_against([X, IDS]))
    fails(
        "input 'ids' is missing; given: 'x'",
        lambda: SampleSet(({"x": np.ones((1, 4), np.float32)},)).check_against([X, IDS]),
    )
    both = SampleSet(({"x": np.ones((1, 4), np.float32), "y": np.ones((1, 2), np.float32)},))
    fails("name the array reference/y", lambda: both.check_against([X], [Y]))
    second = SampleSet(({"x": np.ones((1, 4), np.float32)}, {}))
    fails("sample 1: input 'x' is missing; given: nothing", lambda: second.check_against([X]))


@pytest.mark.parametrize(
    ("array", "dtype", "reason"),
    [
        (np.ones(2), "float", "must be float32 and is float64"),
        (np.ones(2, np.float32), "float16", "must be float16 and is float32"),
        (np.ones(2, np.int32), "int64", "must be int64 and is int32"),
        (np.ones(2, np.int64), "uint8", "must be uint8 and is int64"),
        (np.array([1, 2**31]), "int32", "values beyond int32, 1 to 2147483648"),
        (np.array([-(2**31) - 1, 0]), "int32", "values beyond int32"),
        (np.ones(2, np.uint8), "bool", "must be bool and is uint8"),
        (np.array(["1", "2"]), "float", "must be float32 and is string"),
        (np.ones(2, np.float32), "string", "must be string and is float32"),
        (np.ones(2, ml_dtypes.bfloat16), "float16", "must be float16 and is bfloat16"),
        (np.array([1, "a"], dtype=object), "string", "element 0 is of type int"),
        (np.zeros(2, "V4"), "bfloat16", "must be bfloat16"),
        (np.zeros(2, [("a", "u2")]), "bfloat16", "must be bfloat16"),
        (np.zeros(2, "M8[s]"), "int64", "must be int64 and is datetime64"),
        (np.ones(2, np.float32), "sequence(float)", "which sample sets cannot hold"),
    ],
)
def test_types_that_do_not_fit(array: np.ndarray[Any, Any], dtype: str, reason: str) -> None:
    fails(reason, lambda: checked(array, spec("x", 2, dtype=dtype)))


def test_types_that_are_taken() -> None:
    limits = np.array([-(2**31), 2**31 - 1])
    narrowed = checked(limits, spec("x", 2, dtype="int32"))
    assert narrowed.dtype == np.int32
    assert narrowed.tolist() == limits.tolist()
    assert checked(np.zeros(0, np.int64), spec("x", 0, dtype="int32")).dtype == np.int32

    swapped = checked(np.array([1, 2], ">f4"), spec("x", 2))
    assert swapped.dtype == np.dtype(np.float32)
    assert swapped.dtype.isnative
    assert swapped.tolist() == [1, 2]

    words = ml_dtypes.bfloat16(1.5)
    void = np.array([words, words]).view("V2")
    assert checked(void, spec("x", 2, dtype="bfloat16")).astype(float).tolist() == [1.5, 1.5]

    for array in (np.array([b"a", "ü".encode()]), np.array(["a", "ü"])):
        assert checked(array, spec("x", 2, dtype="string")).tolist() == ["a", "ü"]
    assert checked(np.ones(2, np.float32), spec("x", 2, dtype="optional(float)")).size == 2
    assert checked(np.ones(2, np.float32), spec("x", 2, dtype="undefined")).size == 2


def test_arrays_come_out_in_c_order_and_scalars_stay_scalars() -> None:
    fortran = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert checked(fortran, spec("x", 2, 3)).flags.c_contiguous
    strided = np.arange(8, dtype=np.float32)[::2]
    assert checked(strided, spec("x", 4)).flags.c_contiguous
    assert checked(np.array(1.0, np.float32), spec("x")).shape == ()


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((4,), "must have 2 axes, [n, 4], and has 1, [4]"),
        ((1, 1, 4), "must have 2 axes"),
        ((1, 5), "must have shape [n, 4] and has [1, 5]"),
        ((), "must have 2 axes"),
    ],
)
def test_shapes_that_do_not_fit(shape: tuple[int, ...], reason: str) -> None:
    fails(reason, lambda: checked(np.zeros(shape, np.float32), X))


def test_symbols_agree_within_a_sample_only() -> None:
    good = [{"x": np.zeros((n, 4), np.float32), "ids": np.zeros(n, np.int64)} for n in (1, 2, 0)]
    assert len(SampleSet(tuple(good)).check_against([X, IDS])) == 3
    bad = {"x": np.zeros((2, 4), np.float32), "ids": np.zeros(1, np.int64)}
    text = fails("share the size 'n'", lambda: SampleSet((bad,)).check_against([X, IDS]))
    assert "'x' axis 0" in text
    assert "'ids' axis 0" in text


def test_references_may_be_wider_and_of_another_shape() -> None:
    sample = SampleSet(({"x": np.zeros((1, 4), np.float32)},))
    half = spec("y", 1, 2, dtype="float16")
    for dtype in (np.float64, np.float32, np.float16):
        given_set = sample.with_references([{"y": np.ones((3, 2), dtype)}])
        assert given_set.check_against([X], [half]).references is not None
    for dtype in (ml_dtypes.bfloat16, np.int32, ml_dtypes.float8_e5m2):
        given_set = sample.with_references([{"y": np.ones((1, 2), dtype)}])
        fails("must be float16", lambda given_set=given_set: given_set.check_against([X], [half]))


def test_a_sample_set_is_not_empty_and_pairs_up() -> None:
    fails("is empty", lambda: SampleSet(()))
    fails("1 samples but 0 sets", lambda: SampleSet(({},), ()))


# Digests


def test_inputs_without_a_finite_number_are_remarked_once() -> None:
    spec = [TensorSpec("x", "float", (2,)), TensorSpec("n", "int64", (2,))]
    good = {"x": np.array([1, np.nan], np.float32), "n": np.zeros(2, np.int64)}
    bad = {"x": np.array([np.inf, np.nan], np.float32), "n": np.zeros(2, np.int64)}
    samples = SampleSet((good, bad)).check_against(spec).check_against(spec)
    assert [note for note in samples.notes if "no finite" in note] == list(samples.notes)
    assert len(samples.notes) == 1
    assert "sample 1: input 'x'" in samples.notes[0]


def test_digests_tell_samples_apart() -> None:
    base = {"x": np.zeros((2, 4), np.float32)}
    variants: Sequence[Mapping[str, Any]] = [
        base,
        {"y": base["x"]},
        {"x": base["x"].reshape(4, 2)},
        {"x": base["x"].view(np.int32)},
        {"x": np.negative(base["x"])},
        {"x": base["x"], "y": base["x"]},
        {"x": strings("ab", "c")},
        {"x": strings("a", "bc")},
        {"x": base["x"][:0]},
        {},
    ]
    digests = {SampleSet((dict(tensors),)).digest for tensors in variants}
    digests |= {SampleSet((base, base)).digest, SampleSet((base,), (base,)).digest}
    assert len(digests) == len(variants) + 2


def test_digests_do_not_depend_on_layout_order_or_origin() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    first = SampleSet(({"a": a, "b": a},), notes=("from here",))
    second = SampleSet(({"b": np.asfortranarray(a), "a": a.astype(">f4")},), synthetic=True)
    assert first.digest == second.digest


# Made-up inputs


@pytest.mark.parametrize("dtype", NUMERIC)
def test_every_numeric_type_is_generated_within_its_default_range(dtype: str) -> None:
    made = SampleSet.generate([spec("x", 500, dtype=dtype)], {"x": (500,)}, seed=7)
    array = made.inputs[0]["x"]
    assert array.dtype == NUMPY_DTYPES[dtype]
    assert array.shape == (500,)
    wide = array.astype(np.complex128 if dtype.startswith("complex") else np.float64)
    assert np.isfinite(wide).all()
    low = 0 if dtype in EXACT_DTYPES else max(-1.0, number_range(dtype)[0])
    assert ((wide.real >= low) & (wide.real <= 1)).all()
    assert len(np.unique(wide)) >= 2
    assert made.synthetic
    assert "seed 7" in made.notes[0]


@pytest.mark.parametrize("dtype", NUMERIC)
def test_every_numeric_type_takes_its_full_range(dtype: str) -> None:
    low, high = (0, 1) if dtype == "bool" else number_range(dtype)
    declared = spec("x", 300, dtype=dtype)
    name, limits = parse_input_range(f"x={low!r}:{high!r}", [declared])
    made = SampleSet.generate([declared], {"x": (300,)}, ranges={name: limits})
    array = made.inputs[0]["x"]
    assert array.dtype == NUMPY_DTYPES[dtype]
    if dtype not in EXACT_DTYPES:
        assert np.isfinite(array.astype(np.complex128)).all()
    if dtype == "int64":
        assert array.min() < -(2**60)
        assert array.max() > 2**60


def test_defaults_by_kind_of_input() -> None:
    inputs = [
        spec("ids", 50, dtype="int32"),
        spec("attention_mask", 3, dtype="int64"),
        spec("PadMask", 3, dtype="bool"),
        spec("mask_f", 3),
        spec("sr", dtype="int64"),
        spec("flag", 50, dtype="bool"),
    ]
    shapes = {item.name: tuple(item.shape or ()) for item in inputs}
    made = SampleSet.generate(inputs, shapes)  # type: ignore[arg-type]
    sample = made.inputs[0]
    assert set(sample["ids"].tolist()) == {0, 1}
    assert sample["attention_mask"].tolist() == [1, 1, 1]
    assert sample["PadMask"].tolist() == [True] * 3
    assert sample["mask_f"].tolist() == [1, 1, 1]
    assert sample["sr"].tolist() == 1
    assert set(sample["flag"].tolist()) == {False, True}
    assert any("'sr' is a single integer" in note for note in made.notes)
    assert any("'ids' holds integers 0 and 1" in note for note in made.notes)
    assert not any("mask" in note.lower() for note in made.notes)
    ranged = SampleSet.generate(inputs, shapes, ranges={"sr": (16000, 16000)})  # type: ignore[arg-type]
    assert ranged.inputs[0]["sr"].tolist() == 16000
    assert not any("'sr'" in note for note in ranged.notes)


def test_generation_is_reproducible_and_per_input() -> None:
    shapes = {"x": (2, 4), "ids": (2,), "z": (2, 4)}
    z = spec("z", 2, 4)
    base = SampleSet.generate([X, IDS], shapes, count=2, seed=1)
    assert SampleSet.generate([X, IDS], shapes, count=2, seed=1).digest == base.digest
    assert SampleSet.generate([X, IDS], shapes, count=2, seed=2).digest != base.digest
    same(base.inputs[0], SampleSet.generate([IDS, X], shapes, seed=1).inputs[0])
    more = SampleSet.generate([X, z], shapes, seed=1).inputs[0]
    same({"x": base.inputs[0]["x"]}, {"x": more["x"]})
    assert not np.array_equal(more["x"], more["z"])
    assert not np.array_equal(base.inputs[0]["x"], base.inputs[1]["x"])


@pytest.mark.parametrize("dtype", ["string", "sequence(float)", "optional(float)", "undefined"])
def test_types_that_cannot_be_made_up(dtype: str) -> None:
    fails(
        f"'q' is of type {dtype}, which cannot be made up; supply data for it with --samples",
        lambda: SampleSet.generate([TensorSpec("q", dtype, (1,))], {"q": (1,)}),
    )


def test_generation_options_are_checked() -> None:
    shapes = {"x": (1, 4)}
    fails("must be at least 1", lambda: SampleSet.generate([X], shapes, count=0))
    fails("must not be negative", lambda: SampleSet.generate([X], shapes, seed=-1))
    fails("did you mean 'x'", lambda: SampleSet.generate([X], shapes, ranges={"xx": (0, 1)}))
    fails("are free", lambda: SampleSet.generate([X], {"x": (2**40, 4)}))
    fails("are free", lambda: SampleSet.generate([X], {"x": (2**62, 2**62)}))
    nan = float("nan")
    fails("is empty", lambda: SampleSet.generate([X], shapes, ranges={"x": (nan, nan)}))


@pytest.mark.parametrize("name", sorted(set(models.MODELS) - {"string_identity", "bf16_cast"}))
def test_made_up_inputs_run(name: str, tmp_path: Path) -> None:
    model = OnnxModel.open(models.save(models.MODELS[name](), tmp_path / "m.onnx"))
    sizes = {
        item.name: [d if isinstance(d, int) else 3 for d in item.shape or ()]
        for item in model.inputs
    }
    ranges = {"sr": (16000, 16000)} if name == "sample_rate" else {}
    made = SampleSet.generate(model.inputs, model.resolve_shapes(sizes), ranges=ranges)
    made.check_against(model.inputs)
    session = ort.InferenceSession(model.path, providers=["CPUExecutionProvider"])
    assert session.run(None, made.inputs[0])


def test_input_ranges() -> None:
    inputs = [X, IDS, spec("a=b", 2), spec("flag", 2, dtype="bool")]
    assert parse_input_range("x=-1:2.5", inputs) == ("x", (-1.0, 2.5))
    assert parse_input_range("ids=0:9", inputs) == ("ids", (0, 9))
    assert parse_input_range("a=b=0:1", inputs) == ("a=b", (0.0, 1.0))
    assert parse_input_range("flag=1:1", inputs) == ("flag", (1, 1))
    assert parse_input_range("-3 : 4", [IDS]) == ("ids", (-3, 4))
    assert all(type(limit) is int for limit in parse_input_range("ids=0:9", inputs)[1])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("idz=0:1", "did you mean 'ids'?"),
        ("0:1", "write name=lo:hi"),
        ("", "write name=lo:hi"),
        ("ids=5", "write ids=lo:hi"),
        ("ids=1:0", "is empty"),
        ("ids=0:1.5", "whole number is needed"),
        ("ids=a:b", "whole number is needed"),
        ("ids=:", "whole number is needed"),
        ("ids=0:9223372036854775808", "exceeds what int64 holds"),
        ("x=nan:1", "is empty"),
        ("x=0:inf", "exceeds what float holds"),
        ("x=0:1e39", "exceeds what float holds"),
        ("x=zero:1", "a number is needed"),
        ("x=1:2:3", "a number is needed"),
        ("tiny=-9:1", "exceeds what int4 holds, -8 to 7"),
        ("flag=0:2", "exceeds what bool holds"),
        ("text=0:1", "is of type string, which has no range"),
    ],
)
def test_ranges_that_do_not_fit(text: str, reason: str) -> None:
    inputs = [
        X,
        IDS,
        spec("tiny", 2, dtype="int4"),
        spec("flag", 1, dtype="bool"),
        spec("text", 1, dtype="string"),
    ]
    fails(reason, lambda: parse_input_range(text, inputs))


@settings(deadline=None)
@given(st.text())
def test_arbitrary_text_gives_a_range_or_an_error(text: str) -> None:
    try:
        name, (low, high) = parse_input_range(text, [X, IDS])
    except RoutewrightError as error:
        message = str(error)
    else:
        message = ""
        assert name in {"x", "ids"}
        assert low <= high
    assert len(message.splitlines()) <= 1


@settings(max_examples=60, suppress_health_check=FIXTURE_HEALTH, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
        hnp.arrays(
            st.sampled_from([np.float32, np.int8, np.bool_, np.complex64, np.uint64]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        ),
        max_size=4,
    ),
    st.integers(1, 3),
)
def test_anything_saved_loads_the_same(
    tmp_path: Path, tensors: dict[str, np.ndarray[Any, Any]], count: int
) -> None:
    original = SampleSet((tensors,) * count, (tensors,) * count, notes=("a\nb", ""))
    original.save(tmp_path / "s.npz")
    specs = [TensorSpec(name, "undefined", array.shape) for name, array in tensors.items()]
    loaded = SampleSet.load(tmp_path / "s.npz", inputs=specs, outputs=specs)
    assert loaded.digest == original.digest
    assert loaded.notes[:2] == original.notes
