"""Convolutions of codes of one pixel as products of matrices: the same sums, as they are served."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from operator_cases import run_onnxruntime
from places import CORPUS

from xflow.core.registry import Operator
from xflow.onnx.exporter import export_model
from xflow.onnx.importer import import_model
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.text import parse_rules
from xflow.search.steps import Steps, replaced

EXTREMES = {"int8": (-128, -127, -1, 0, 1, 127), "uint8": (0, 1, 127, 128, 254, 255)}
CHANNELS, FILTERS = 40, 5
NAMES = ("one-pixel-as-a-row", "pixels-as-columns")
RULES = {
    rule.name: rule
    for rule in parse_rules((CORPUS / "quantized-good.rules").read_text(), "quantized-good.rules")
    if rule.name in NAMES
}


def model_of(kind: str, height: int, width: int, attributes: str = "group = 1") -> onnx.ModelProto:
    """A convolution of one pixel, the weights among the extremes of their type, and its floats."""
    weights = np.random.default_rng(0).choice(EXTREMES[kind], FILTERS * CHANNELS)
    shape = f"{FILTERS}, {CHANNELS}, 1, 1"
    return parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 13]>
    main (uint8[2, {CHANNELS}, {height}, {width}] x, uint8 z, float s) => (float[N, K, H, W] y)
        <{kind}[{shape}] w = {{{", ".join(map(str, weights))}}}, {kind} v = {{3}}> {{
        sums = ConvInteger<{attributes}>(x, w, z, v)
        floats = Cast<to = 1>(sums)
        y = Mul(floats, s)
    }}""")


def rewritten(model: onnx.ModelProto, name: str) -> list[onnx.ModelProto]:
    """What each step of a rule, in either direction, makes of a model."""
    source = import_model(ir.from_proto(model))
    steps = Steps(RuleIndex([RULES[name]]), source.constants).of(source.graph)
    graphs = [replaced(source.graph, step)[0] for step in steps]
    return [ir.to_proto(export_model(source, graph)) for graph in graphs]


@pytest.mark.parametrize(
    ("name", "kind", "height", "width"),
    [
        ("one-pixel-as-a-row", "uint8", 1, 1),
        ("pixels-as-columns", "uint8", 3, 2),
        ("pixels-as-columns", "int8", 3, 2),
        ("pixels-as-columns", "uint8", 1, 1),
    ],
)
def test_sums_are_the_same(name: str, kind: str, height: int, width: int) -> None:
    model = model_of(kind, height, width)
    (after,) = rewritten(model, name)
    assert "MatMulInteger" in {node.op_type for node in after.graph.node}
    rng = np.random.default_rng(1)
    image = rng.choice(np.asarray(EXTREMES["uint8"], np.uint8), (2, CHANNELS, height, width))
    given = [image, np.asarray(254, np.uint8), np.asarray(0.3, np.float32)]
    (one,), (other,) = (run_onnxruntime(each, given) for each in (model, after))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "kind", "attributes"),
    [
        # A product by weights with a sign on the right may be cut off.
        ("one-pixel-as-a-row", "int8", "group = 1"),
        ("pixels-as-columns", "uint8", "strides = [2, 1]"),
        ("pixels-as-columns", "uint8", "pads = [0, 1, 0, 0]"),
        ("one-pixel-as-a-row", "uint8", "pads = [1, 0, 0, 0]"),
    ],
)
def test_others_are_left_as_they_are(name: str, kind: str, attributes: str) -> None:
    size = 3 if "columns" in name else 1
    assert not rewritten(model_of(kind, size, size, attributes), name)


@pytest.mark.parametrize(
    ("left", "right", "described"),
    [("uint8", "uint8", True), ("int8", "uint8", True), ("uint8", "int8", False)],
)
def test_products_that_may_be_cut_off_stay_opaque(left: str, right: str, described: bool) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]>'
        f" main ({left}[2, 3] x, {right}[3, 4] w, {left} z, {right} v) => (int32[2, 4] y)"
        " { y = MatMulInteger(x, w, z, v) }"
    )
    (node,) = (node for node in import_model(ir.from_proto(model)).graph.nodes if node.inputs)
    assert isinstance(node.op, Operator) == described
