"""A small model that several tests share."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def small_model(weights: int = 4, name: str = "small", fill: float = 1.0) -> onnx.ModelProto:
    """Return a valid model y[N, `weights`] = relu(x[N, weights] @ w) + c, all weights `fill`."""
    w = np.full((weights, weights), fill, np.float32)
    c = np.full((1,), fill, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Add", ["b", "c"], ["y"]),
        ],
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", weights])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", weights])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(c, "c")],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="tests")
