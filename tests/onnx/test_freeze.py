"""Weights that are inputs, too: constants by default, and said so; inputs for who wants that."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from products import RULES, listed, operators

import xflow
from xflow.pipeline import api


def optimized(model: onnx.ModelProto, **settings: Any) -> api.Result:
    return xflow.optimize(
        model, rules=RULES, cost="estimated", budget=3, threads=1, check=1, **settings
    )


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=providers)
    results: list[np.ndarray] = session.run(None, feeds)
    return results


def inputs(result: api.Result) -> list[str | None]:
    return [value.name for value in result.model.graph.inputs]


@pytest.mark.parametrize("ir_version", [3, 8])
def test_weights_that_are_inputs_become_constants_and_that_is_said(ir_version: int) -> None:
    model = listed(ir_version)
    result = optimized(model)
    assert operators(result) == ["MatMul", "Relu"]
    assert inputs(result) == ["x"]
    assert any("2 of the model's weights were inputs" in text for text in result.report.warnings)
    onnx.checker.check_model(ir.to_proto(result.model), full_check=True)


@pytest.mark.parametrize("ir_version", [3, 8])
def test_they_stay_inputs_for_who_wants_that(ir_version: int) -> None:
    result = optimized(listed(ir_version), keep_initializer_inputs=True)
    assert inputs(result) == ["x", "a", "b"]
    assert operators(result)[:2] == ["Add", "MatMul"], "weights that may change are not folded"
    x = np.ones((2, 96), np.float32)
    feeds = {"x": x}
    if ir_version > 3:  # before, the runtime took none
        feeds["a"] = np.full((96, 96), 0.5, np.float32)
    before, after = (run(each, feeds) for each in (listed(ir_version), ir.to_proto(result.model)))
    np.testing.assert_allclose(before[0], after[0], rtol=1e-4, atol=1e-4)


def test_a_model_without_rewrites_gains_by_constants_alone() -> None:
    """Only where the runtime did not take them for constants before, which depends on the IR."""
    for ir_version, changed in ((8, True), (3, False)):
        model = listed(ir_version)
        for node in model.graph.node:
            if node.op_type == "Relu":
                node.op_type = "Softplus"
            if node.op_type == "Add":
                node.op_type = "Max"
        result = optimized(model)
        assert result.report.changed is changed
        assert inputs(result) == (["x"] if changed else ["x", "a", "b"])
