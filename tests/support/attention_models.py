"""A model of masked attention of embedded tokens, its softmax guarded against NaN by exporters."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from xflow.core.registry import Array

LEAST = float(np.finfo(np.float32).min)
EVERYWHERE = np.zeros((1, 1, 4, 4), np.float32)
CAUSAL = np.where(np.tril(np.ones((1, 1, 4, 4), bool)), 0.0, -np.inf).astype(np.float32)
A_ROW_COVERED = CAUSAL.copy()
A_ROW_COVERED[..., 2, :] = -np.inf
ALL_LEFT_OUT = np.full((1, 1, 4, 4), LEAST, np.float32)


def attention(mask: Array, *, twice: bool = False, test: str = "IsNaN") -> onnx.ModelProto:
    """Scores of embedded tokens under a mask, and a guard on their softmax."""
    random = np.random.default_rng(0)
    weights = {
        "table": random.standard_normal((10, 8)).astype(np.float32),
        "w": random.standard_normal((8, 4)).astype(np.float32),
        "mask": mask,
        "zero": np.asarray(0, np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["once"]),
        helper.make_node("Add", ["once", "mask"], ["masked"]) if twice
        else helper.make_node("Identity", ["once"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
        helper.make_node(test, ["p"], ["odd"]),
        helper.make_node("Where", ["odd", "zero", "p"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "attention",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 4, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)
