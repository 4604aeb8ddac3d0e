"""Products and squares of small numbers are 0 in floats: the search brings none under a root."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxruntime import InferenceSession

import xflow

MODELS = {
    "roots": """(float[512, 512] a, float[512, 512] b) => (float[512, 512] y) {
        p = Abs(a)  q = Abs(b)  r = Sqrt(p)  s = Sqrt(q)  y = Mul(r, s)
    }""",
    "norm": """(float[64, 64] a, float[64, 1] b) => (float[64, 1] y)
    <int64[1] axis = {-1}> {
        n = ReduceL2(a, axis)  s = Abs(b)  y = Mul(n, s)
    }""",
    "scaled": """(float[64, 512] a, float[64, 1] b) => (float[64, 1] y)
    <int64[1] axis = {-1}> {
        s = Mul(a, b)  y = ReduceL2(s, axis)
    }""",
}
NUMBERS = ((1.0, 1.0), (1e-15, 1e-15), (1e-23, 1e18))


@pytest.mark.parametrize("name", MODELS)
def test_small_numbers_are_not_lost(name: str) -> None:
    header = '<ir_version: 9, opset_import: ["": 18]> m '
    before = onnx.parser.parse_model(header + MODELS[name])
    after = xflow.optimize(before, cost="estimated", budget=2.0, threads=1).model
    sessions = [
        InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for model in (before, ir.to_proto(after))
    ]
    shapes = {value.name: value.shape for value in sessions[0].get_inputs()}
    for numbers in NUMBERS:
        feed = {
            key: np.full(shape, number, np.float32)
            for (key, shape), number in zip(shapes.items(), numbers, strict=True)
        }
        expected, found = (session.run(None, feed)[0] for session in sessions)
        assert np.allclose(found, expected, rtol=1e-3, atol=0)
