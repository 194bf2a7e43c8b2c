"""Small ONNX models for tests, each with one thing about it that tools trip over.

Every function returns a fresh ``ModelProto``; :func:`save` and :func:`save_external` write one.
Inputs that fit a model are told in its docstring, as ``name: dtype shape``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx import numpy_helper as nph

OPSET = 17
IR_VERSION = 8

Dims = Sequence[int | str | None] | None


def value(name: str, elem_type: int = TensorProto.FLOAT, dims: Dims = ()) -> ValueInfoProto:
    """Return a tensor declaration; ``dims=None`` declares not even the rank."""
    return helper.make_tensor_value_info(name, elem_type, dims)


def weights(name: str, *shape: int, seed: int = 0, scale: float = 1.0) -> TensorProto:
    """Return a float initializer of standard normal numbers times ``scale``."""
    rng = np.random.default_rng([seed, len(name), *shape])
    return nph.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name)


def build(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    initializers: Sequence[TensorProto] = (),
    *,
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
    check: bool = True,
) -> ModelProto:
    """Return a model of one graph, checked unless it is meant to be out of the ordinary."""
    graph = helper.make_graph(nodes, "test", inputs, outputs, list(initializers))
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version
    )
    if check:
        onnx.checker.check_model(model)
    return model


def save(model: ModelProto, path: Path) -> Path:
    """Write ``model`` as one file and return its path."""
    path.write_bytes(model.SerializeToString())
    return path


def save_external(model: ModelProto, path: Path, location: str | None = None) -> Path:
    """Write ``model`` with all its initializers in the data file ``location`` beside it."""
    onnx.save_model(
        model,
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=location or f"{path.name}.data",
        size_threshold=0,
    )
    return path


def mlp_static() -> ModelProto:
    """MatMul and Relu, all sizes fixed. x: float [2, 8]; y: float [2, 4]."""
    return build(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
        ],
        [value("x", dims=(2, 8))],
        [value("y", dims=(2, 4))],
        [weights("w", 8, 4)],
    )


def mlp_dynamic() -> ModelProto:
    """Gemm, Relu, Gemm over a symbolic batch. x: float [batch, 16]; y: float [batch, 4]."""
    return build(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["a"]),
            helper.make_node("Relu", ["a"], ["h"]),
            helper.make_node("Gemm", ["h", "w2", "b2"], ["y"]),
        ],
        [value("x", dims=("batch", 16))],
        [value("y", dims=("batch", 4))],
        [weights("w1", 16, 32), weights("b1", 32), weights("w2", 32, 4), weights("b2", 4)],
    )


def shared_symbol() -> ModelProto:
    """Two inputs that share ``n``. a: float [n, 4]; b: float [n, 4]; y: float [n, 4]."""
    return build(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        [value("a", dims=("n", 4)), value("b", dims=("n", 4))],
        [value("y", dims=("n", 4))],
    )


def string_identity() -> ModelProto:
    """Identity on strings. text: string [n]; same: string [n]."""
    return build(
        [helper.make_node("Identity", ["text"], ["same"])],
        [value("text", TensorProto.STRING, ("n",))],
        [value("same", TensorProto.STRING, ("n",))],
    )


def if_matmul() -> ModelProto:
    """MatMul inside an If branch. flag: bool []; x: float [2, 4]; y: float [2, 4]."""

    def branch(name: str, weight: str) -> GraphProto:
        return helper.make_graph(
            [helper.make_node("MatMul", ["x", weight], [f"{name}_y"])],
            name,
            [],
            [value(f"{name}_y", dims=(2, 4))],
            [weights(weight, 4, 4)],
        )

    return build(
        [
            helper.make_node(
                "If",
                ["flag"],
                ["y"],
                then_branch=branch("yes", "w_yes"),
                else_branch=branch("no", "w_no"),
            )
        ],
        [value("flag", TensorProto.BOOL), value("x", dims=(2, 4))],
        [value("y", dims=(2, 4))],
    )


def loop_scan() -> ModelProto:
    """A Loop; ``trips`` of 0 gives an empty output. trips: int64 []; x: float [4]."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go_out"]),
            helper.make_node("Add", ["carry_in", "carry_in"], ["carry_out"]),
            helper.make_node("Identity", ["carry_out"], ["scanned"]),
        ],
        "body",
        [
            value("step", TensorProto.INT64),
            value("go_in", TensorProto.BOOL),
            value("carry_in", dims=(4,)),
        ],
        [
            value("go_out", TensorProto.BOOL),
            value("carry_out", dims=(4,)),
            value("scanned", dims=(4,)),
        ],
    )
    return build(
        [helper.make_node("Loop", ["trips", "go", "x"], ["last", "steps"], body=body)],
        [value("trips", TensorProto.INT64), value("x", dims=(4,))],
        [value("last", dims=(4,)), value("steps", dims=("trips_done", 4))],
        [nph.from_array(np.array(True), "go")],
    )


def random_normal() -> ModelProto:
    """Gives something else on every run. x: float [4]; y: float [4]."""
    return build(
        [
            helper.make_node("RandomNormalLike", ["x"], ["noise"]),
            helper.make_node("Add", ["x", "noise"], ["y"]),
        ],
        [value("x", dims=(4,))],
        [value("y", dims=(4,))],
    )


def scatter_add_duplicates() -> ModelProto:
    """ScatterND that adds to one place repeatedly. x: float [8]; updates: float [6]."""
    return build(
        [helper.make_node("ScatterND", ["x", "indices", "updates"], ["y"], reduction="add")],
        [value("x", dims=(8,)), value("updates", dims=(6,))],
        [value("y", dims=(8,))],
        [nph.from_array(np.array([[1], [1], [1], [5], [5], [0]], dtype=np.int64), "indices")],
        opset=18,
    )


def zero_output() -> ModelProto:
    """All outputs are 0. x: float [2, 4]; y: float [2, 4]."""
    return build(
        [helper.make_node("Sub", ["x", "x"], ["y"])],
        [value("x", dims=(2, 4))],
        [value("y", dims=(2, 4))],
    )


def initializer_as_input() -> ModelProto:
    """The initializer ``w`` is also listed as an input. x: float [2, 8]; y: float [2, 4]."""
    model = mlp_static()
    model.graph.input.append(value("w", dims=(8, 4)))
    onnx.checker.check_model(model)
    return model


def int_add() -> ModelProto:
    """Integers only. a: int64 [n]; b: int64 [n]; y: int64 [n]."""
    return build(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        [value("a", TensorProto.INT64, ("n",)), value("b", TensorProto.INT64, ("n",))],
        [value("y", TensorProto.INT64, ("n",))],
    )


def fp16_overflow() -> ModelProto:
    """x * 1e5 in half precision, which is infinite from 0.66 on. x: float16 [8]."""
    factor = np.array([300.0, 333.0], dtype=np.float16)
    return build(
        [
            helper.make_node("Mul", ["x", "f1"], ["h"]),
            helper.make_node("Mul", ["h", "f2"], ["y"]),
        ],
        [value("x", TensorProto.FLOAT16, (8,))],
        [value("y", TensorProto.FLOAT16, (8,))],
        [nph.from_array(factor[:1], "f1"), nph.from_array(factor[1:], "f2")],
    )


def no_inputs() -> ModelProto:
    """A constant model. y: float [3]."""
    return build(
        [helper.make_node("Relu", ["c"], ["y"])],
        [],
        [value("y", dims=(3,))],
        [nph.from_array(np.array([-1, 0, 2], dtype=np.float32), "c")],
    )


def nonzero() -> ModelProto:
    """The output's size depends on the data. x: float [4]; places: int64 [1, found]."""
    return build(
        [helper.make_node("NonZero", ["x"], ["places"])],
        [value("x", dims=(4,))],
        [value("places", TensorProto.INT64, (1, "found"))],
    )


def bf16_cast() -> ModelProto:
    """bfloat16 in and out. x: bfloat16 [n, 4]; y: bfloat16 [n, 4]."""
    return build(
        [
            helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["wide", "two"], ["doubled"]),
            helper.make_node("Cast", ["doubled"], ["y"], to=TensorProto.BFLOAT16),
        ],
        [value("x", TensorProto.BFLOAT16, ("n", 4))],
        [value("y", TensorProto.BFLOAT16, ("n", 4))],
        [nph.from_array(np.array(2, dtype=np.float32), "two")],
    )


def identity(elem_type: int) -> ModelProto:
    """Identity on any numeric type. x: that type [n, 4]; y: that type [n, 4]."""
    return build(
        [helper.make_node("Identity", ["x"], ["y"])],
        [value("x", elem_type, ("n", 4))],
        [value("y", elem_type, ("n", 4))],
        opset=25,
        ir_version=13,
    )


def sample_rate() -> ModelProto:
    """A scalar ``sr`` that must be 8000 or 16000. audio: float [batch, 512]; sr: int64 []."""
    return build(
        [
            helper.make_node("Div", ["sr", "unit"], ["which"]),
            helper.make_node("Sub", ["which", "one"], ["row"]),
            helper.make_node("Gather", ["gains", "row"], ["gain"]),
            helper.make_node("Mul", ["audio", "gain"], ["y"]),
        ],
        [value("audio", dims=("batch", 512)), value("sr", TensorProto.INT64)],
        [value("y", dims=("batch", 512))],
        [
            nph.from_array(np.array(8000, dtype=np.int64), "unit"),
            nph.from_array(np.array(1, dtype=np.int64), "one"),
            nph.from_array(np.array([0.5, 2.0], dtype=np.float32), "gains"),
        ],
    )


def sequence_length() -> ModelProto:
    """Keeps the first ``length`` steps. x: float [batch, time, 4]; length: int64 [1]."""
    return build(
        [helper.make_node("Slice", ["x", "start", "length", "axis"], ["y"])],
        [value("x", dims=("batch", "time", 4)), value("length", TensorProto.INT64, (1,))],
        [value("y", dims=("batch", "kept", 4))],
        [
            nph.from_array(np.array([0], dtype=np.int64), "start"),
            nph.from_array(np.array([1], dtype=np.int64), "axis"),
        ],
    )


def embedding() -> ModelProto:
    """A table of 5 rows, which larger ids overflow. ids: int64 [batch, seq]; mask: the same."""
    return build(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["mask3"]),
            helper.make_node("Mul", ["rows", "mask3"], ["kept"]),
            helper.make_node("ReduceMean", ["kept"], ["y"], axes=[1], keepdims=0),
        ],
        [
            value("ids", TensorProto.INT64, ("batch", "seq")),
            value("attention_mask", TensorProto.INT64, ("batch", "seq")),
        ],
        [value("y", dims=("batch", 8))],
        [weights("table", 5, 8), nph.from_array(np.array([-1], dtype=np.int64), "last")],
    )


def conv_net(blocks: int = 2) -> ModelProto:
    """Convolutions with BatchNorm and Relu, then a classifier. x: float [batch, 3, 16, 16]."""
    nodes, initializers = [], []
    source, channels = "x", 3
    for index in range(blocks):
        wide = 8 * (index + 1)
        names = [f"{part}{index}" for part in ("w", "scale", "bias", "mean", "var")]
        initializers.append(weights(names[0], wide, channels, 3, 3, seed=index, scale=0.2))
        for name, fill in zip(names[1:], (1.0, 0.1, 0.0, 1.0), strict=True):
            initializers.append(nph.from_array(np.full(wide, fill, dtype=np.float32), name))
        nodes += [
            helper.make_node("Conv", [source, names[0]], [f"c{index}"], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{index}", *names[1:]], [f"n{index}"]),
            helper.make_node("Relu", [f"n{index}"], [f"r{index}"]),
        ]
        source, channels = f"r{index}", wide
    nodes += [
        helper.make_node("GlobalAveragePool", [source], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w_out"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"]),
    ]
    initializers.append(weights("w_out", channels, 10))
    return build(
        nodes,
        [value("x", dims=("batch", 3, 16, 16))],
        [value("y", dims=("batch", 10))],
        initializers,
    )


def attention() -> ModelProto:
    """One self-attention block with LayerNorm and GELU. x: float [batch, seq, 16]."""
    width = 16
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "b"], ["xn"], axis=-1),
        helper.make_node("MatMul", ["xn", "wq"], ["q"]),
        helper.make_node("MatMul", ["xn", "wk"], ["k"]),
        helper.make_node("MatMul", ["xn", "wv"], ["v"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["qk"]),
        helper.make_node("Mul", ["qk", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["ctx"]),
        helper.make_node("Add", ["ctx", "x"], ["res"]),
        helper.make_node("MatMul", ["res", "w1"], ["up"]),
        helper.make_node("Div", ["up", "sqrt2"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["e1"]),
        helper.make_node("Mul", ["up", "e1"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["gelu"]),
        helper.make_node("MatMul", ["gelu", "w2"], ["down"]),
        helper.make_node("Add", ["down", "res"], ["y"]),
    ]
    scalars = {"scale": width**-0.5, "sqrt2": 2.0**0.5, "one": 1.0, "half": 0.5}
    initializers = [
        nph.from_array(np.array(number, dtype=np.float32), name)
        for name, number in scalars.items()
    ]
    initializers += [
        nph.from_array(np.ones(width, dtype=np.float32), "g"),
        nph.from_array(np.zeros(width, dtype=np.float32), "b"),
        *(weights(name, width, width, seed=3, scale=0.3) for name in ("wq", "wk", "wv")),
        weights("w1", width, 4 * width, scale=0.2),
        weights("w2", 4 * width, width, scale=0.2),
    ]
    return build(
        nodes,
        [value("x", dims=("batch", "seq", width))],
        [value("y", dims=("batch", "seq", width))],
        initializers,
    )


def sequence_input() -> ModelProto:
    """A sequence and an optional input. parts: sequence(float); extra: optional(float)."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    parts = helper.make_value_info("parts", helper.make_sequence_type_proto(tensor))
    extra = helper.make_value_info("extra", helper.make_optional_type_proto(tensor))
    return build(
        [
            helper.make_node("ConcatFromSequence", ["parts"], ["joined"], axis=0),
            helper.make_node("OptionalGetElement", ["extra"], ["held"]),
            helper.make_node("Add", ["joined", "held"], ["y"]),
        ],
        [parts, extra],
        [value("y", dims=None)],
        opset=18,
        check=False,
    )


def external_reference(
    location: str, *, length: int | None = None, offset: int | None = None
) -> ModelProto:
    """A model whose 4x4 float weight is said to lie in ``location``. x: float [n, 4]."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4])
    weight.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, "length": length}
    for key, entry in entries.items():
        if entry is not None:
            weight.external_data.add(key=key, value=str(entry))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "test",
        [value("x", dims=("n", 4))],
        [value("y", dims=("n", 4))],
        [weight],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


def save_big(folder: Path, rows: int = 70_000, columns: int = 8_192) -> Path:
    """Write a model of more than 2 GiB (sparse, so it takes no room on disk). x: float [n, 8].

    Only a row of the weight is used, so a run need not read all of it where it is mapped.
    """
    size = rows * columns * 4
    with (folder / "big.data").open("wb") as stream:
        stream.truncate(size)
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows, columns])
    weight.data_location = TensorProto.EXTERNAL
    for key, entry in {"location": "big.data", "offset": 0, "length": size}.items():
        weight.external_data.add(key=key, value=str(entry))
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["w", "first"], ["row"]),
            helper.make_node("ReduceSum", ["row"], ["sum"], keepdims=0),
            helper.make_node("Add", ["x", "sum"], ["y"]),
        ],
        "test",
        [value("x", dims=("n", 8))],
        [value("y", dims=("n", 8))],
        [weight, nph.from_array(np.array([0], dtype=np.int64), "first")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    return save(model, folder / "big.onnx")


MODELS = {
    "mlp_static": mlp_static,
    "mlp_dynamic": mlp_dynamic,
    "shared_symbol": shared_symbol,
    "string_identity": string_identity,
    "if_matmul": if_matmul,
    "loop_scan": loop_scan,
    "random_normal": random_normal,
    "scatter_add_duplicates": scatter_add_duplicates,
    "zero_output": zero_output,
    "initializer_as_input": initializer_as_input,
    "int_add": int_add,
    "fp16_overflow": fp16_overflow,
    "no_inputs": no_inputs,
    "nonzero": nonzero,
    "bf16_cast": bf16_cast,
    "sample_rate": sample_rate,
    "sequence_length": sequence_length,
    "embedding": embedding,
    "conv_net": conv_net,
    "attention": attention,
}
"""Every model that the embedded engine runs, by name."""
