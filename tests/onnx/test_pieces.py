"""Models written in pieces: the same message as protobuf writes, whatever its weights are."""

from __future__ import annotations

import io

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from xflow.core.errors import OutputError
from xflow.onnx.files import self_contained
from xflow.onnx.proto_compat import to_message
from xflow.onnx.streamed_writer import Pieces, pieces

ROWS = np.arange(12).reshape(3, 4)


def model_of(*initializers: onnx.TensorProto) -> onnx.ModelProto:
    """A model that gives out all its weights, and has something in every part around them."""
    names = [tensor.name for tensor in initializers]
    outputs = [
        onnx.helper.make_tensor_value_info(f"{tensor.name}_out", tensor.data_type, tensor.dims)
        for tensor in initializers
    ]
    nodes = [onnx.helper.make_node("Identity", [name], [f"{name}_out"]) for name in names]
    graph = onnx.helper.make_graph(nodes, "graph", [], outputs, [*initializers], "about the graph")
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    model.metadata_props.add(key="author", value="somebody")
    return model


def weights() -> list[onnx.TensorProto]:
    """Tensors in all ways in which a message holds them."""
    typed = onnx.helper.make_tensor("typed", onnx.TensorProto.FLOAT, (3, 4), ROWS.ravel() / 4)
    described = onnx.numpy_helper.from_array(ROWS.astype(np.float32), "described")
    described.doc_string = "what it is for"
    half_bytes = onnx.helper.make_tensor("half_bytes", onnx.TensorProto.INT4, (3, 5), [1] * 15)
    return [
        typed,
        described,
        onnx.numpy_helper.from_array(ROWS.astype(ml_dtypes.bfloat16), "bfloats"),
        onnx.numpy_helper.from_array(ROWS.astype(np.int64), "integers"),
        onnx.numpy_helper.from_array(np.array(["a", "b"], dtype=object), "texts"),
        onnx.numpy_helper.from_array(np.zeros((0, 4), np.float32), "nothing"),
        half_bytes,
        onnx.helper.make_tensor("raw_half_bytes", onnx.TensorProto.INT4, (2,), b"\x21", raw=True),
    ]


def written(found: Pieces | None) -> bytes:
    assert found is not None
    file = io.BytesIO()
    found.write(file)
    data = file.getvalue()
    assert len(data) == found.size
    return data


@pytest.mark.parametrize("large", [0, 30, 10**6], ids=["every", "some", "none"])
def test_pieces_are_the_message(large: int) -> None:
    """Wherever a tensor counts as large; the model has all its tensors again afterwards."""
    model = ir.from_proto(model_of(*weights()))
    made = ROWS.astype(np.float16).T  # by a rewrite, and not even contiguous
    about = {"from": "a rewrite"}
    tensor = ir.Tensor(made, name="of another name", metadata_props=about)
    model.graph.initializers["integers"].const_value = tensor
    before = to_message(model)
    assert onnx.ModelProto.FromString(written(pieces(model, large))) == before
    assert to_message(model) == before


def test_lengths_of_several_digits_are_right() -> None:
    """Each of protobuf's digits has seven bits."""
    for size in (1, 127, 128, 129, 16_383, 16_384, 2_097_152):
        model = ir.from_proto(model_of(onnx.numpy_helper.from_array(np.ones(size, np.int8), "w")))
        assert onnx.ModelProto.FromString(written(pieces(model, 1))) == to_message(model)


def test_what_lies_in_other_files_is_not_in_pieces() -> None:
    model = ir.from_proto(model_of(onnx.numpy_helper.from_array(ROWS, "w")))
    outside = ir.ExternalTensor(
        "data", 0, ROWS.nbytes, ir.DataType.INT64, shape=ir.Shape(ROWS.shape), name="w"
    )
    model.graph.initializers["w"].const_value = outside
    assert pieces(model) is None
    assert self_contained(model) is None


def test_a_tensor_of_another_size_than_it_claims_is_refused() -> None:
    """Rather than a file that nobody can read."""
    model = ir.from_proto(model_of(onnx.numpy_helper.from_array(ROWS.astype(np.float32), "w")))
    shape = ir.Shape((3, 4))
    model.graph.initializers["w"].const_value = ir.LazyTensor(
        lambda: ir.Tensor(ROWS[:2].astype(np.float32)), ir.DataType.FLOAT, shape, name="w"
    )
    found = pieces(model, 1)
    assert found is not None
    with pytest.raises(OutputError):
        found.write(io.BytesIO())
