"""The second interval analysis: no element lies outside of its bounds."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from chains import CHAINS, assert_covers, chained, numbers
from graphs import call
from hypothesis import given, settings

from xflow.analysis.ranges import Ranges
from xflow.core.assumptions import Assumption
from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.core.registry import Array, Operator
from xflow.onnx.importer import import_model
from xflow.ops import operators
from xflow.recheck.bounds import Analysis
from xflow.recheck.interval import Bounds


def looked_up(data: Array) -> tuple[Value, Callable[[Value], Array | None]]:
    """Rows of a constant that are looked up by indices, and the constant's data."""
    dtype = {"float32": "FLOAT", "float16": "FLOAT16", "float64": "DOUBLE"}[str(data.dtype)]
    table = leaf("table", TensorType(dtype, data.shape), constant=True)
    ids = leaf("ids", TensorType("INT64", data.shape[:1]))
    return call("Gather", table, ids, axis=0), {table: data}.get


def analysed(value: Value, constants: Callable[[Value], Array | None]) -> Bounds:
    """The bounds of a value, with nothing taken for granted."""
    return Analysis(Graph((value,)), constants, Assumption.NONE).of(value)


@settings(max_examples=200, deadline=None)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@given(*CHAINS)
def test_no_element_lies_outside_of_its_bounds(
    dtype: type[np.floating[Any]], names: list[str], joined: str, odd: float, seed: int
) -> None:
    data = numbers(odd, seed, dtype)
    x, constants = looked_up(data)
    value, result = chained(x, data, names, joined)
    assert_covers(analysed(value, constants), result)


def test_sums_of_products_stay_within_their_bounds_or_overflow() -> None:
    small, constants = looked_up(np.full((4, 8), 3.0, np.float32))
    assert analysed(call("MatMul", small, call("Transpose", small)), constants).high >= 72
    large, constants = looked_up(np.full((4, 8), 1e19, np.float32))
    overflowing = analysed(call("MatMul", large, call("Transpose", large)), constants)
    assert overflowing.plus
    assert overflowing.nan  # inf - inf


@pytest.mark.parametrize("spelled", [False, True])
@pytest.mark.parametrize(("size", "known"), [(1e3, True), (1e30, None)])
def test_normalized_elements_are_bounded_by_the_root_of_their_number(
    spelled: bool, size: float, known: bool | None
) -> None:
    """A kernel may subtract squares that overflow, as single operators do not."""
    data = (np.linspace(-1, 1, 40) * size).reshape(10, 4).astype(np.float32)
    x, constants = looked_up(data)
    if spelled:
        deviation = call("Sub", x, call("ReduceMean", x, axes=(1,), keepdims=1))
        square = call("ReduceMean", call("Mul", deviation, deviation), axes=(1,), keepdims=1)
        (epsilon,) = scalar(1e-5)
        y = call("Div", deviation, call("Sqrt", call("Add", square, epsilon)))
    else:
        ones = leaf("ones", TensorType("FLOAT", (4,)), constant=True)
        lookup = constants
        constants = lambda value: np.ones(4, np.float32) if value == ones else lookup(value)  # noqa: E731
        y = call("RMSNormalization", x, ones, axis=1)
    found = analysed(y, constants)
    assert found.is_finite == bool(known or spelled)
    assert not found.is_finite or 2 <= found.high <= 8


def scalar(number: float) -> tuple[Value, ...]:
    """A constant of one number."""
    return apply("Scalar", (), {"value": Fraction(number)}, dtype="FLOAT")


def model_of(body: str) -> tuple[Value, Analysis, Analysis]:
    """What a model makes, what is known of it, and what is if inputs are moderate numbers."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[4, 4] x, float[4, 4] m, int64[4, 4] i) => (float[4, 4] y)
        <float zero = {{0}}, float[4, 4] w = {{1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}}> {{ {body} }}"""
    imported = import_model(
        ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    )
    graph = imported.graph
    strict, assumed = (
        Analysis(graph, imported.constants, level)
        for level in (Assumption.NONE, Assumption.MODERATE)
    )
    return graph.outputs[0], strict, assumed


@pytest.mark.parametrize(
    ("body", "finite"),
    [
        ("q = MatMul(x, w) y = MatMul(q, w)", True),
        ("y = Add(x, m)", True),
        ("q = Div(x, m) y = MatMul(q, w)", False),
        ("q = Exp(m) y = MatMul(q, w)", False),
        ("b = Less(x, zero) y = Where(b, zero, x)", False),  # x is compared
        ("b = IsNaN(x) q = Where(b, zero, x) y = MatMul(q, w)", False),
        ("q = Softmax(m) y = Add(m, q)", False),  # m may be a mask
        ("f = Cast<to = 1>(i) y = MatMul(f, w)", True),
    ],
)
def test_inputs_are_numbers_by_assumption_alone(body: str, finite: bool) -> None:
    value, strict, assumed = model_of(body)
    assert assumed.of(value).is_finite == finite
    assert not strict.of(value).is_finite or "Cast" in body


def test_what_is_known_to_be_larger_is_not_assumed_to_be_moderate() -> None:
    """In 16 bits, squares of 100 to 200 are."""
    x = leaf("x", TensorType("FLOAT16", (4,)))
    clipped = call("Clip", x, min=Fraction(100), max=Fraction(200))
    (most,) = apply("Scalar", (), {"value": Fraction(12_000)}, dtype="FLOAT16")
    root = call("Sqrt", call("Sub", most, call("Mul", clipped, clipped)))
    assert Analysis(Graph((root,)), lambda _: None, Assumption.MODERATE).of(root).nan


@pytest.mark.parametrize("name", ["Sum", "Mean"])
def test_a_sum_of_unknown_sizes_is_no_product(name: str) -> None:
    """The first summand is 0, and not what they add up to."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n, m] x, float[k, m] z) => (float[p, m] y)
        <float zero = {{0}}, float[1] five = {{5}}>
        {{ q = MatMul(x, z) r = Mul(q, zero) y = {name}(r, five, five) }}""")
    imported = import_model(ir.from_proto(model))
    known = Analysis(imported.graph, imported.constants, Assumption.MODERATE)
    assert known.of(imported.graph.outputs[0]).high >= 10


@pytest.mark.parametrize("covered", [False, True])
def test_weights_are_numbers_where_no_line_is_covered(covered: bool) -> None:
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 0 if covered else 1)
    scores, constants = looked_up(np.full((4, 4), 2.0, np.float32))
    given_ = leaf("mask", TensorType("FLOAT", (4, 4)), constant=True)
    lookup = lambda value: mask if value == given_ else constants(value)  # noqa: E731
    weights = call("Softmax", call("Add", scores, given_), axis=1)
    assert analysed(weights, lookup).nan == covered
    assert analysed(call("Softmax", call("Add", scores, given_), axis=0), lookup).nan == covered
    turned = call("Transpose", call("Add", scores, given_), perm=(1, 0))
    assert analysed(call("Softmax", turned, axis=0), lookup).nan == covered


@pytest.mark.parametrize("op", [op for op in operators() if op.elementwise and op.arity[0]])
def test_what_one_analysis_shows_to_be_a_number_the_other_does(op: Operator) -> None:
    """A fact that the checker cannot follow is a rewrite that nobody gets."""
    for example in op.examples:
        sources = [leaf(f"x{number}", TensorType("FLOAT", (2, 8))) for number in range(op.arity[0])]
        try:
            outputs = apply(
                op, [apply("Tanh", [x])[0] for x in sources], example.attributes, dtype="FLOAT"
            )
        except ShapeError:
            continue  # it takes no floats, or other shapes
        for value in outputs:
            found = Ranges(lambda _: None, Assumption.MODERATE).of(value)
            checked = Analysis(Graph((value,)), lambda _: None, Assumption.MODERATE).of(value)
            if not (found.nan or found.is_infinite):
                assert checked.is_finite


@pytest.mark.parametrize(
    ("body", "finite"),
    [
        ("f = Cast<to = 1>(ids) d = Sub(one, f) y = Mul(d, least)", True),
        ("w = Unsqueeze(ids, at) f = Cast<to = 1>(w) d = Sub(one, f) y = Mul(least, d)", True),
        ("f = Cast<to = 1>(ids) d = Sub(two, f) y = Mul(d, least)", False),
        ("f = Cast<to = 1>(ids) d = Sub(f, one) y = Mul(d, least)", False),
        ("f = Cast<to = 1>(ids) h = Mul(f, two) d = Sub(one, h) y = Mul(d, least)", False),
        ("f = Cast<to = 1>(ids) y = Mul(f, least)", False),
        ("i = Sub(ids, ids) f = Cast<to = 1>(i) d = Sub(one, f) y = Mul(d, least)", False),
    ],
)
def test_a_mask_that_is_inverted_does_not_overflow_where_that_is_granted(
    body: str, finite: bool
) -> None:
    """As it is where a mask is raised, and not where the model tests for what is no number."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (int64[n] ids) => (float[p] y) <float one = {{1}}, float two = {{2}}, int64[1] at = {{0}},
        float least = {{{float(np.finfo(np.float32).min)}}}> {{ {body} }}""")
    imported = import_model(ir.from_proto(model))
    (value,) = imported.graph.outputs
    for granted in (False, True):
        level = Assumption.MODERATE
        known = Analysis(imported.graph, imported.constants, level, inverted_masks=granted)
        assert known.of(value).is_finite == (finite and granted)
        inside = import_model(ir.from_proto(model), inner=True)  # whose inputs are computed
        (value_inside,) = inside.graph.outputs
        known = Analysis(inside.graph, inside.constants, level, inverted_masks=granted)
        assert not known.of(value_inside).is_finite
        assert not Ranges(inside.constants).of(value_inside).is_real
    weak = Analysis(
        imported.graph, imported.constants, Assumption.FINITE_INPUTS, inverted_masks=True
    )
    assert not weak.of(value).is_finite
