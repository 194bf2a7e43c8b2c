from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper
from onnx import numpy_helper as nph

import models
from routewright.backends.onnxruntime.fingerprint import fingerprint, graph_identity


def identity(model: ModelProto, folder: Path) -> str:
    return graph_identity(models.save(model, folder / "m.onnx")).digest


def renamed(model: ModelProto) -> ModelProto:
    """Return the model with other names for everything inside, branches included."""
    text = model.SerializeToString()
    copy = ModelProto.FromString(text)
    keep = {v.name for v in (*copy.graph.input, *copy.graph.output)}

    def rename(graph: onnx.GraphProto) -> None:
        def new(name: str) -> str:
            return name if not name or name in keep else f"z{name}z"

        for tensor in graph.initializer:
            tensor.name = new(tensor.name)
        for value in (*graph.input, *graph.output):
            value.name = new(value.name)
        for node in graph.node:
            node.name = f"other{random.random()}"
            node.input[:] = [new(name) for name in node.input]
            node.output[:] = [new(name) for name in node.output]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    rename(attribute.g)

    rename(copy.graph)
    return copy


@pytest.mark.parametrize("name", sorted(set(models.MODELS) - {"sequence_input"}))
def test_names_do_not_matter(name: str, tmp_path: Path) -> None:
    model = models.MODELS[name]()
    assert identity(renamed(model), tmp_path) == identity(model, tmp_path)


def test_different_models_differ(tmp_path: Path) -> None:
    digests = {name: identity(make(), tmp_path) for name, make in models.MODELS.items()}
    assert len(set(digests.values())) == len(digests)


def two_branches() -> ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["x"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    return models.build(nodes, [models.value("x", dims=[4])], [models.value("y", dims=[4])])


def with_nodes(model: ModelProto, order: list[int]) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    nodes: list[NodeProto] = [model.graph.node[index] for index in order]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def test_the_order_of_independent_nodes_does_not_matter(tmp_path: Path) -> None:
    model = two_branches()
    assert identity(with_nodes(model, [1, 0, 2]), tmp_path) == identity(model, tmp_path)
    # Not even where a file is not in topological order.
    assert identity(with_nodes(model, [2, 1, 0]), tmp_path) == identity(model, tmp_path)


def test_the_order_of_inputs_of_a_node_matters(tmp_path: Path) -> None:
    swapped = two_branches()
    swapped.graph.node[2].input[:] = ["b", "a"]
    assert identity(swapped, tmp_path) != identity(two_branches(), tmp_path)


def test_a_node_that_is_there_twice_counts_twice(tmp_path: Path) -> None:
    def model(names: list[str]) -> ModelProto:
        nodes = [helper.make_node("Exp", ["x"], [name]) for name in dict.fromkeys(names)]
        nodes.append(helper.make_node("Add", names, ["y"]))
        return models.build(nodes, [models.value("x", dims=[4])], [models.value("y", dims=[4])])

    assert identity(model(["a", "b"]), tmp_path) != identity(model(["a", "a"]), tmp_path)


def scaled(scale: float, *, raw: bool = True, dtype: int = TensorProto.FLOAT) -> ModelProto:
    value = nph.from_array(np.array([scale], dtype=np.float32), "s")
    if not raw:
        value = helper.make_tensor("s", dtype, [1], [scale])
    node = helper.make_node("Mul", ["x", "s"], ["y"])
    return models.build(
        [node], [models.value("x", dims=[4])], [models.value("y", dims=[4])], [value]
    )


def test_a_changed_weight_matters_but_not_how_it_is_stored(tmp_path: Path) -> None:
    assert identity(scaled(0.5), tmp_path) != identity(scaled(0.25), tmp_path)
    assert identity(scaled(0.5, raw=False), tmp_path) == identity(scaled(0.5), tmp_path)
    external = models.save_external(scaled(0.5), tmp_path / "e.onnx")
    assert graph_identity(external).digest == identity(scaled(0.5), tmp_path)


def test_an_attribute_matters_but_not_the_order_of_attributes(tmp_path: Path) -> None:
    def model(**attributes: object) -> ModelProto:
        node = helper.make_node("Gemm", ["x", "w"], ["y"], **attributes)
        return models.build(
            [node],
            [models.value("x", dims=[2, 4])],
            [models.value("y", dims=[2, 4])],
            [models.weights("w", 4, 4)],
        )

    one = model(alpha=2.0, transB=1)
    other = model(alpha=2.0, transB=1)
    attributes = list(other.graph.node[0].attribute)[::-1]
    del other.graph.node[0].attribute[:]
    other.graph.node[0].attribute.extend(attributes)
    assert identity(one, tmp_path) == identity(other, tmp_path)
    assert identity(one, tmp_path) != identity(model(alpha=3.0, transB=1), tmp_path)


def test_a_change_inside_a_branch_and_of_what_it_captures_matters(tmp_path: Path) -> None:
    model = models.if_matmul()
    inside = ModelProto.FromString(model.SerializeToString())
    branch = next(a for n in inside.graph.node for a in n.attribute if a.name == "then_branch")
    branch.g.node[0].op_type = "Add" if branch.g.node[0].op_type != "Add" else "Mul"
    assert identity(inside, tmp_path) != identity(model, tmp_path)
    captured = ModelProto.FromString(model.SerializeToString())
    for attribute in (a for n in captured.graph.node for a in n.attribute):
        for tensor in attribute.g.initializer:
            tensor.CopyFrom(nph.from_array(nph.to_array(tensor) + 1, tensor.name))
    for tensor in captured.graph.initializer:
        tensor.CopyFrom(nph.from_array(nph.to_array(tensor) + 1, tensor.name))
    assert identity(captured, tmp_path) != identity(model, tmp_path)


def test_the_body_of_a_function_matters(tmp_path: Path) -> None:
    def model(op: str, inner: str) -> ModelProto:
        function = helper.make_function(
            "own", "F", ["a"], ["b"], [helper.make_node(op, ["a"], ["b"], name=inner)],
            [helper.make_opsetid("", 17)],
        )  # fmt: skip
        graph = helper.make_graph(
            [helper.make_node("F", ["x"], ["y"], domain="own")],
            "test",
            [models.value("x", dims=[4])],
            [models.value("y", dims=[4])],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)

    assert identity(model("Exp", "p"), tmp_path) == identity(model("Exp", "q"), tmp_path)
    assert identity(model("Exp", "p"), tmp_path) != identity(model("Abs", "p"), tmp_path)


def test_run_time_settings_are_part_of_a_fingerprint(tmp_path: Path) -> None:
    graph = graph_identity(models.save(two_branches(), tmp_path / "m.onnx"))
    assert graph.op_types == {"Neg": 1, "Relu": 1, "Sub": 1}
    assert fingerprint(graph, {"threads": 1}) == fingerprint(graph, {"threads": 1})
    assert fingerprint(graph, {"threads": 1}) != fingerprint(graph, {"threads": 2})
