"""Operators that ONNX's checker passes and that make no sense, or only by another name.

They are left as they are: the runtime has a word on them. Nothing of it is an internal error.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import xflow
from xflow.core.errors import ModelError
from xflow.onnx.files import load_model
from xflow.onnx.importer import import_model

FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    constants: dict[str, onnx.TensorProto | np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """Reads x, and gives the first result of the last node, of which nothing is declared."""
    domains = sorted({node.domain for node in nodes if node.domain})
    weights = [
        each if isinstance(each, onnx.TensorProto) else numpy_helper.from_array(each, name)
        for name, each in (constants or {}).items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)],
        weights,
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


node = helper.make_node
MALFORMED = {
    "an axis that there is not": model_of(
        [node("Split", ["x"], ["y", "z"], axis=5)], [2, 6], opset=13
    ),
    "a stride of 0": model_of(
        [node("Conv", ["x", "w"], ["y"], strides=[0, 0], auto_pad="SAME_UPPER")],
        [1, 1, 4, 4],
        {"w": np.ones((1, 1, 2, 2), np.float32)},
    ),
    "no number of heads": model_of(
        [node("Attention", ["x", "x", "x"], ["y"])], [1, 4, 8], opset=23
    ),
    "a switch of two": model_of(
        [node("Dropout", ["x", "r", "t"], ["y"])],
        [4],
        {"r": np.array(0.5, np.float32), "t": np.array([False, False])},
        opset=13,
    ),
    "an axis of a scalar": model_of(
        [node("Resize", ["x", "", "", "s"], ["y"], axes=[0], mode="nearest")],
        [],
        {"s": np.array([2])},
        opset=18,
    ),
    "a factor in words": model_of(
        [node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", alpha="x")], [2, 2]
    ),
    "a size that is no number": model_of(
        [node("Reshape", ["x", "s"], ["y"])], [4], {"s": np.array([np.nan], np.float32)}
    ),
    "a reduction of somebody else's": model_of(
        [node("Loss", ["x"], ["a"], domain="lib", reduction=1), node("Relu", ["a"], ["y"])], [4]
    ),
    "an operator of somebody else's": model_of(
        [node("Gather", ["x"], ["a"], domain="lib"), node("Range", ["a"], ["y"], domain="lib")], [4]
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_makes_no_sense_is_imported_as_it_is(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MALFORMED[name], path)
    imported = import_model(load_model(path))
    assert len(imported.opaque_nodes) >= 1
    result = xflow.optimize(path, cost="estimated", budget=1, threads=1)
    assert not result.report.changed


@pytest.mark.parametrize(
    ("kind", "field", "dims", "given"),
    [
        (TensorProto.FLOAT, "float_data", [4], [1.0] * 5),
        (TensorProto.INT64, "int64_data", [2, 2], [1] * 5),
        (TensorProto.STRING, "string_data", [1], [b"a", b"b"]),
        (TensorProto.INT4, "int32_data", [3], [1] * 3),
        (TensorProto.COMPLEX64, "float_data", [1], [1.0] * 3),
    ],
)
def test_a_tensor_with_too_much_data_is_named(
    kind: int, field: str, dims: list[int], given: list[object], tmp_path: Path
) -> None:
    tensor = onnx.TensorProto(name="w", data_type=kind, dims=dims)
    getattr(tensor, field).extend(given)
    model = model_of([node("Neg", ["x"], ["y"])], [4], {"w": tensor})
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(ModelError, match=r"tensor w: it has \d elements where \d are needed"):
        load_model(path)


def test_a_sparse_default_of_an_input_is_a_default(tmp_path: Path) -> None:
    model = model_of([node("Add", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])], [4])
    model.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [4]))
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    places = numpy_helper.from_array(np.array([0, 2]), "places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(model, source)
    xflow.optimize(source, cost="estimated", budget=1, threads=1).save(target)
    x = np.ones(4, np.float32)
    (y,) = onnxruntime.InferenceSession(target).run(None, {"x": x})
    assert y.tolist() == [2, 1, 3, 1]


def test_names_that_are_reserved_are_refused(tmp_path: Path) -> None:
    model = model_of([node("Relu", ["x"], ["y"])], [4])
    model.graph.input[0].metadata_props.add(key="xflow.type", value="A")
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(ModelError, match="reserved"):
        load_model(path)
