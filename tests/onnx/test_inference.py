"""Shape inference in its own process: the same types, and no accident of it reaches the caller."""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper, parser

import xflow
from xflow.onnx import inference
from xflow.onnx.importer import import_model
from xflow.onnx.inference import LARGE, InferenceError, infer_shapes
from xflow.onnx.types import infer_types

HEAD = '<ir_version: 9, opset_import: ["" : 17]>'
LEAST, LARGEST = -(2**63), 2**63 - 1
CRASHES = f"""{HEAD}
g (float[4] x) => (float[N] y)
<int64[1] s = {{{LEAST}}}, int64[1] e = {{{LARGEST}}}, int64[1] a = {{0}},
 int64[1] t = {{{LARGEST}}}>
{{ b = Relu(x) c = Relu(b) y = Slice(c, s, e, a, t) }}"""
"""ONNX 1.23 reads outside of its memory where it follows the contents of these constants."""
BODY = "g (float[N, 4] x) => (float[N, M] y) { a = Relu(x) y = Concat<axis = 1>(a, a) }"
PLAIN = f"{HEAD} {BODY}"


def shape(model: onnx.ModelProto, name: str) -> list[int | str]:
    """The dimensions of a value."""
    (info,) = (each for each in (*model.graph.value_info, *model.graph.output) if each.name == name)
    return [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]


def test_the_types_are_those_of_onnx_and_large_weights_come_back() -> None:
    model = parser.parse_model(PLAIN)
    data = np.arange(2 * LARGE, dtype=np.float32)
    model.graph.node.append(helper.make_node("Neg", ["w"], ["negated"]))
    model.graph.initializer.append(numpy_helper.from_array(data, "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1), "small"))
    found = infer_shapes(model)
    assert shape(found, "a") == ["N", 4]
    assert shape(found, "negated") == [2 * LARGE]
    assert found == onnx.shape_inference.infer_shapes(model, data_prop=True)


def test_a_crash_costs_the_contents_of_shapes_alone() -> None:
    values, failure = infer_types(ir.from_proto(parser.parse_model(CRASHES)))
    assert failure == ""
    assert values["c"].shape == ir.Shape([4])


@pytest.mark.parametrize("factor", ["nan", "inf", "-2.0"])
def test_an_extent_that_makes_no_sense_is_unknown(factor: str) -> None:
    upsample = helper.make_node("Upsample", ["x"], ["u"], scales=[1.0, float(factor)])
    inputs, outputs = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)]
        for name, shape in (("x", [2, 3]), ("y", ["a", "b"]))
    )
    nodes = [upsample, helper.make_node("Relu", ["u"], ["y"])]
    opsets = [helper.make_opsetid("", 7)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=4
    )
    (output,) = import_model(ir.from_proto(model)).graph.outputs
    assert output.shape[0] == 2
    assert not isinstance(output.shape[1], int)


def test_a_model_on_which_inference_crashes_comes_through() -> None:
    model = parser.parse_model(CRASHES)
    found = xflow.optimize(model, cost="estimated", objective="nodes", budget=2, check=1)
    assert found.report.before.operators == {"Relu": 2, "Slice": 1}


def test_what_takes_too_long_is_told_once_and_the_next_model_is_inferred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inference, "LIMIT_S", 0.5)
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17, "own" : 1]>{BODY}')
    called, domain = "Relu", ""
    for number in range(40):
        nodes = [
            helper.make_node(called, ["p"], ["r"], domain=domain),
            helper.make_node(called, ["r"], ["q"], domain=domain),
        ]
        called, domain = f"F{number}", "own"
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        model.functions.append(helper.make_function("own", called, ["p"], ["q"], nodes, imports))
    model.graph.node[0].op_type, model.graph.node[0].domain = called, domain
    start = time.monotonic()
    for _ in range(20):
        with pytest.raises(InferenceError, match=r"it took more than 0\.5 s"):
            infer_shapes(model)
    assert time.monotonic() - start < 8
    assert shape(infer_shapes(parser.parse_model(PLAIN)), "a") == ["N", 4]
