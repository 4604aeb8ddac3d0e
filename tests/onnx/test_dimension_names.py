"""Names of dimensions that stand for sizes which differ: nothing may be concluded from them."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

import xflow
from xflow.cli import main
from xflow.onnx.importer import import_model
from xflow.onnx.interface import is_dimension_name
from xflow.onnx.subgraphs import optimize_bodies
from xflow.onnx.types import DISTRUSTED
from xflow.pipeline.context import Run
from xflow.pipeline.preparation import begin

SIZES = {"x": (4, 6), "y": (1, 6)}
VALUES = {name: np.random.default_rng(0).random(s, np.float32) for name, s in SIZES.items()}


def expanded(of_x: list[str], of_y: list[str]) -> onnx.ModelProto:
    """`y` in the shape of `x`, which is `y` itself if the names of dimensions tell the truth."""
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", of_x), ("y", of_y))
    )
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Expand", ["y", "s"], ["e"]),
        helper.make_node("Relu", ["e"], ["r"]),
        helper.make_node("Relu", ["r"], ["z"]),
    ]
    opset = helper.make_opsetid("", 17)
    graph = helper.make_graph(nodes, "g", [x, y], [z])
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def optimized(model: onnx.ModelProto, **how: Any) -> tuple[onnx.ModelProto, Sequence[str]]:
    """The model with fewer operators, and what was said of it."""
    result = xflow.optimize(model, objective="nodes", cost="estimated", budget=5, threads=1, **how)
    return ir.to_proto(result.model), [*result.report.messages, *result.report.warnings]


def run(model: onnx.ModelProto) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, VALUES)[0])


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_dimensions_of_one_name_are_equal() -> None:
    made, _ = optimized(expanded(["h", "w"], ["h", "w"]))
    assert operators(made) == ["Relu"]


@pytest.mark.parametrize("name", ["?", "-1", "None", "unk"])
def test_a_placeholder_is_no_name(name: str) -> None:
    assert not is_dimension_name(name)
    model = expanded([name, name], [name, name])
    made, _ = optimized(model)
    assert operators(made) == ["Shape", "Expand", "Relu"]
    assert made.graph.input == model.graph.input
    np.testing.assert_array_equal(run(model), run(made))


def test_given_shapes_are_believed_rather_than_names() -> None:
    model = expanded(["h", "w"], ["h", "w"])
    made, messages = optimized(model, input_shapes=SIZES)
    assert operators(made) == ["Shape", "Expand", "Relu"]
    assert made.graph.input == model.graph.input
    assert [text for text in messages if "'h'" in text]
    assert not [text for text in messages if "'w'" in text]
    np.testing.assert_array_equal(run(model), run(made))


def test_what_was_done_without_a_name_is_certified_without_it(tmp_path: Path) -> None:
    before, after, report = (tmp_path / name for name in ("in.onnx", "out.onnx", "report.json"))
    onnx.save(expanded(["h", "w"], ["h", "w"]), before)
    given = [f"{name}:{','.join(map(str, size))}" for name, size in SIZES.items()]
    shapes = [part for text in given for part in ("--input-shapes", text)]
    how = ["--objective", "nodes", "--cost", "estimated", "--budget", "5", "-q"]
    arguments = ["optimize", str(before), str(after), *how, *shapes, "--report", str(report)]
    assert main(arguments) == 0
    assert main(["certify", str(before), str(after), str(report)]) == 0


def test_what_is_frozen_before_knows_no_more() -> None:
    """Weights that are inputs, too, become constants in a copy of the model."""
    model = expanded(["h", "w"], ["h", "w"])
    weight = onnx.numpy_helper.from_array(np.ones((1, 1), np.float32), "one")
    model.graph.initializer.append(weight)
    model.graph.input.append(helper.make_tensor_value_info("one", TensorProto.FLOAT, [1, 1]))
    model.graph.node[3].output[0] = "positive"
    model.graph.node.append(helper.make_node("Sub", ["positive", "one"], ["z"]))
    assert "Expand" not in operators(optimized(model)[0])
    made, said = optimized(model, input_shapes=SIZES)
    assert "Expand" in operators(made)
    assert not [text for text in said if "dropped" in text]


def test_so_are_the_sizes_of_given_inputs() -> None:
    model = expanded(["h", "w"], ["h", "w"])
    made, _ = optimized(model, inputs=VALUES)
    assert operators(made) == ["Shape", "Expand", "Relu"]


def test_wrong_shapes_of_values_between_operators_are_not_written() -> None:
    """An exporter declared halves and wholes alike, and the runtime gave one's memory to the other.

    It ended with "Shape mismatch attempting to re-use buffer" once an Identity was left out.
    """
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, "h", "w"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2, "a", "b"])
    whole, half = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2, "h", "w"])
        for name in ("whole", "half")
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["whole"]),
        helper.make_node("Identity", ["whole"], ["same"]),
        helper.make_node("MaxPool", ["same"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Sigmoid", ["half"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], value_info=[whole, half])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made, _ = optimized(model)
    assert operators(made) == ["Relu", "MaxPool", "Sigmoid"]
    shapes = {
        item.name: [dim.dim_param for dim in item.type.tensor_type.shape.dim]
        for item in made.graph.value_info
    }
    assert shapes["half"] == ["n", "", "", ""]
    assert shapes["whole"] == ["n", "", "h", "w"]
    assert made.graph.output == model.graph.output


def test_bodies_distrust_what_their_model_does() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in "xy")
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    shape, moved = (
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Expand", ["y", "s"], ["e"]),
    )
    branch = helper.make_graph(
        [shape, moved], "then", [], [helper.make_empty_tensor_value_info("e")]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["y"], ["o"])],
        "else",
        [],
        [helper.make_empty_tensor_value_info("o")],
    )
    chosen = helper.make_node("If", ["flag"], ["z"], then_branch=branch, else_branch=other)
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    graph = helper.make_graph([chosen], "g", [flag, x, y], [z])
    opset = helper.make_opsetid("", 17)
    model = ir.from_proto(helper.make_model(graph, opset_imports=[opset], ir_version=8))
    model.meta[DISTRUSTED] = {"N"}
    bodies: list[ir.Model] = []
    optimize_bodies(model, lambda place, body, share: bodies.append(body))
    run = cast(Run, SimpleNamespace(shapes=[{}], inputs=(), keep_initializer_inputs=False))
    known = {value.name: value for value in bodies[0].graph.inputs}
    imported = import_model(begin(bodies[0], run).model, inner=True)
    assert imported.values[known["x"]].shape != imported.values[known["y"]].shape
