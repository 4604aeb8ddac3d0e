"""Masks that replace scores become masks that are added where floats make that the same."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from graphs import call
from hypothesis import given
from hypothesis import strategies as st
from spellings import rules_over

import xflow
from xflow.analysis.ranges import LARGEST, Ranges
from xflow.analysis.value_rewrites.basis import fault
from xflow.analysis.value_rewrites.masked_scores import FACT
from xflow.analysis.value_rewrites.nan_tests import decided
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.node import apply
from xflow.onnx.importer import import_model
from xflow.recheck.bounds import Analysis
from xflow.recheck.facts import Facts

LEAST = -LARGEST["FLOAT"]


def facts(model: onnx.ModelProto, assumption: Assumption = DEFAULT) -> list[str]:
    """What is known of the masks in a model, and confirmed by the checkers."""
    imported = import_model(ir.from_proto(model))
    made = list(decided(imported.graph, Ranges(imported.constants, assumption)))
    checks = Facts(imported.graph, imported.constants, assumption)
    assert not any(fault(checks, name, before, after) for before, after, name in made)
    return [name for *_, name in made]


def from_tokens(table: str = "table") -> onnx.ModelProto:
    """Scores of features that are looked up by tokens and multiplied by a mask of integers."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
        g (int64[2, 4] tokens, int64[2, 4] seen, float[9, 8] given) => (float[2, 4, 4] y)
        <float mask = {{{LEAST!r}}}, int64[1] one = {{1}}, int64[1] two = {{2}},
         float table = {{0}}> {{
            features = Gather({table}, tokens)
            kept = Cast<to = 1>(seen) each = Unsqueeze(kept, two) x = Mul(features, each)
            t = Transpose<perm = [0, 2, 1]>(x) s = MatMul(x, t)
            c = Cast<to = 9>(seen) d = Unsqueeze(c, one)
            m = Where(d, s, mask) y = Softmax<axis = -1>(m) }}"""
    model = onnx.parser.parse_model(text)
    (empty,) = [item for item in model.graph.initializer if item.name == "table"]
    data = np.random.default_rng(0).standard_normal((9, 8)).astype(np.float32)
    empty.CopyFrom(onnx.numpy_helper.from_array(data, "table"))
    return onnx.shape_inference.infer_shapes(model)


def test_scores_of_integers_alone_are_taken_to_be_moderate() -> None:
    """A mask of integers may be of any size; as a float input, it may be no number at all."""
    model = from_tokens()
    assert facts(model) == [FACT]
    imported = import_model(ir.from_proto(model))
    ((before, after, name),) = decided(imported.graph, Ranges(imported.constants))
    strict = Facts(imported.graph, imported.constants, Assumption.NONE)
    assert "may be no number" in fault(strict, name, before, after)
    assert not facts(model, Assumption.FINITE_INPUTS)
    assert not facts(from_tokens("given"))


def masked(body: str, mask: float = LEAST) -> onnx.ModelProto:
    """Products q @ k, called s, of which `body` makes y where `seen` says so.

    q and k were integers: so s is known to be moderate, whatever a caller passes.
    """
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
        g (int8[2, 4, 8] q8, int8[2, 8, 4] k8, bool[2, 4, 4] seen, float[2, 4, 4] bias,
           int64[2, 1, 4] kept) => (float[2, 4, 4] y) <float mask = {{0}}, float scale = {{0.5}}>
        {{ q = Cast<to = 1>(q8) k = Cast<to = 1>(k8) s = MatMul(q, k)
           zero = Constant<value = float {{0}}>() {body} }}"""
    model = onnx.parser.parse_model(text)
    (given,) = [item for item in model.graph.initializer if item.name == "mask"]
    given.CopyFrom(onnx.numpy_helper.from_array(np.asarray(mask, np.float32), "mask"))
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("mask", [LEAST, -np.inf, -(2.0**100)])
@pytest.mark.parametrize("sides", ["w, mask", "mask, w"])
def test_a_mask_beside_which_scores_are_lost_is_one_that_is_added(mask: float, sides: str) -> None:
    model = masked(f"w = Mul(s, scale) m = Where(seen, {sides}) y = Softmax<axis = -1>(m)", mask)
    assert facts(model) == [FACT]


@pytest.mark.parametrize("mask", [LEAST, -(2.0**100)])
@pytest.mark.parametrize(
    "body", ["t = Add(w, bias) m = Max(t, mask)", "t = Add(bias, w) m = Max(mask, t)"]
)
def test_a_sum_that_is_kept_finite_is_one_with_a_mask_that_is(mask: float, body: str) -> None:
    model = masked(f"w = Mul(s, scale) {body} y = Softmax<axis = -1>(m)", mask)
    assert facts(model) == [FACT]


WITH_ANOTHER = "n = Not(seen) {} m = Where(seen, s, mask) t = Add({}) y = Softmax<axis = -1>(t)"


@pytest.mark.parametrize("mask", [LEAST, -np.inf, -(2.0**100)])
@pytest.mark.parametrize("sum_of", ["m, o", "o, m"])
def test_two_masks_are_one_that_is_added(mask: float, sum_of: str) -> None:
    """Also where both are the least float, and their sum is -inf in either order."""
    body = WITH_ANOTHER.format("o = Where(n, zero, mask)", sum_of)
    assert facts(masked(body, mask)) == [FACT, FACT]


@pytest.mark.parametrize(("factor", "count"), [("mask", 2), ("large", 1)])
def test_a_mask_of_ones_and_zeros_that_is_inverted_is_below_zero(factor: str, count: int) -> None:
    """With the largest float for the least one, it is above."""
    other = f"""large = Neg(mask) f = Cast<to = 1>(kept) one = Cos(zero) i = Sub(one, f)
        o = Mul(i, {factor})"""
    model = masked(WITH_ANOTHER.format(other, "m, o"))
    assert facts(model) == [FACT] * count
    assert facts(model, Assumption.FINITE_INPUTS) == [FACT]


@pytest.mark.parametrize(
    ("other", "mask"),
    [
        ("o = Where(n, scale, mask)", LEAST),
        ("o = Mul(bias, zero)", LEAST),
        ("o = Identity(bias)", LEAST),
        ("l = Neg(mask) o = Where(n, zero, l)", LEAST),
    ],
    ids=["above 0", "no number", "an input", "the largest float"],
)
def test_what_may_be_above_zero_stays_outside_of_a_mask(other: str, mask: float) -> None:
    model = masked(WITH_ANOTHER.format(other, "m, o"), mask)
    assert facts(model) == [FACT]
    imported = import_model(ir.from_proto(model))
    (total,) = [n for n in imported.graph.nodes if n.is_operator("Add")]
    choice, added = total.inputs
    seen, scores, low = choice.node.inputs
    (zero,) = apply("Scalar", (), {"value": Fraction(0)}, dtype="FLOAT")
    both = call("Add", call("Where", seen, zero, low), added)
    checks = Facts(imported.graph, imported.constants, DEFAULT)
    assert "above 0" in fault(checks, FACT, total.outputs[0], call("Add", scores, both))


@given(
    st.lists(
        st.tuples(
            st.floats(-(2.0**63), 2.0**63, width=32),
            st.booleans(),
            st.floats(max_value=0, width=32) | st.just(LEAST) | st.just(-np.inf),
        ),
        min_size=1,
    ),
    st.sampled_from([LEAST, -np.inf, -(2.0**100)]),
)
def test_scores_are_lost_in_two_masks(given: list[tuple[float, bool, float]], mask: float) -> None:
    numbers, seen, others = zip(*given, strict=True)
    scores, other = np.asarray(numbers, np.float32), np.asarray(others, np.float32)
    low = np.float32(mask)
    with np.errstate(over="ignore"):
        before = np.where(seen, scores, low) + other
        after = scores + (np.where(seen, np.float32(0), low) + other)
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("first", [0, -1, 1])
@pytest.mark.parametrize(
    "total",
    ["a = Where(c, s, mask) t = Add(a, o)", "a = Where(c, zero, mask) b = Add(o, a) t = Add(s, b)"],
)
def test_two_masks_cover_a_row_only_where_the_known_one_does(first: int, total: str) -> None:
    """A constant triangle gives each query a key, unless it begins below the diagonal."""
    model = masked(f"o = Where(seen, zero, mask) {total} y = Softmax<axis = -1>(t)")
    triangle = np.tri(4, 4, first, dtype=bool)[None]
    model.graph.initializer.append(onnx.numpy_helper.from_array(triangle, "c"))
    imported = import_model(ir.from_proto(onnx.shape_inference.infer_shapes(model)))
    (weights,) = imported.graph.outputs
    analysis = Analysis(imported.graph, imported.constants, Assumption.NONE)
    for known in (Ranges(imported.constants, Assumption.NONE), analysis):
        assert known.of(weights).nan == (first < 0)


@pytest.mark.parametrize(
    ("body", "mask"),
    [
        ("t = Add(s, bias) m = Max(t, mask) y = Softmax<axis = -1>(m)", -1e9),
        ("t = Add(bias, bias) m = Max(t, mask) y = Softmax<axis = -1>(m)", LEAST),
        ("t = Add(s, bias) m = Max(t, mask) y = Relu(m)", LEAST),
        ("m = Where(seen, s, mask) y = Softmax<axis = -1>(m)", -1e9),
        ("m = Where(seen, s, mask) y = Softmax<axis = -1>(m)", -LEAST),
        ("m = Where(seen, s, mask) y = Softmax<axis = -1>(m)", np.nan),
        ("w = Add(s, bias) m = Where(seen, w, mask) y = Softmax<axis = -1>(m)", LEAST),
        ("m = Where(seen, bias, mask) y = Softmax<axis = -1>(m)", LEAST),
        ("b = MatMul(bias, bias) m = Where(seen, b, mask) y = Softmax<axis = -1>(m)", LEAST),
        ("m = Where(seen, s, mask) y = Relu(m)", LEAST),
    ],
    ids=["at least a score", "no scores", "at least, and no softmax", "a score leaves a trace",
         "no mask", "no number", "a bias of infinities", "an input", "a product that may overflow",
         "no softmax"],
)  # fmt: skip
def test_other_choices_stay(body: str, mask: float) -> None:
    assert not facts(masked(body, mask))


@given(
    st.lists(st.floats(-(2.0**63), 2.0**63, width=32), min_size=1),
    st.sampled_from([LEAST, -np.inf, -(2.0**100)]),
    st.data(),
)
def test_scores_are_lost_in_floats(numbers: list[float], mask: float, data: st.DataObject) -> None:
    scores, low = np.asarray(numbers, np.float32), np.float32(mask)
    size = len(numbers)
    seen = np.asarray(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    added = scores + np.where(seen, np.float32(0), low)
    np.testing.assert_array_equal(np.where(seen, scores, low), added)


@given(
    st.lists(st.tuples(st.floats(-(2.0**63), 2.0**63, width=32), st.floats(width=32)), min_size=1),
    st.sampled_from([LEAST, -(2.0**100)]),
)
def test_scores_are_lost_in_sums_that_are_kept_finite(
    numbers: list[tuple[float, float]], least: float
) -> None:
    scores, mask = np.asarray(numbers, np.float32).T
    low = np.float32(least)
    kept = np.maximum(scores + mask, low)
    np.testing.assert_array_equal(kept, scores + np.maximum(mask, low))


def test_attention_takes_such_a_mask_even_where_it_covers_a_row() -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        g (int8[2, 3, 16, 8] q8, int8[2, 3, 16, 8] k8, float[2, 3, 16, 8] v,
           bool[2, 1, 16, 16] seen) => (float[2, 3, 16, 8] y)
        <float least = {{{LEAST!r}}}, float scale = {{0.01}}> {{
            q = Cast<to = 1>(q8) k = Cast<to = 1>(k8)
            t = Transpose<perm = [0, 1, 3, 2]>(k) m = MatMul(q, t) c = Mul(m, scale)
            w = Where(seen, c, least) p = Softmax<axis = -1>(w) y = MatMul(p, v) }}"""
    )
    rules = rules_over("MatMul", "Softmax", "Attention", "Mul", "Add", "Transpose", "Scalar")
    result = xflow.optimize(model, cost="estimated", budget=60, check=1, rules=rules)
    after = ir.to_proto(result.model)
    assert "Attention" in {node.op_type for node in after.graph.node}
    rng = np.random.default_rng(0)
    seen = rng.random((2, 1, 16, 16)) < 0.5
    seen[:, :, 3] = False
    shape = (2, 3, 16, 8)
    heads = {name: rng.integers(-9, 9, shape, dtype=np.int8) for name in ("q8", "k8")}
    feeds = {**heads, "v": rng.standard_normal(shape).astype(np.float32), "seen": seen}
    first, second = (
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, feeds
        )[0]
        for each in (model, after)
    )
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
