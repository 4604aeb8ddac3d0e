"""Rewrites by facts about values are confirmed by checkers that know nothing of what found them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from attention_models import A_ROW_COVERED, CAUSAL, attention
from graphs import call

from xflow.analysis.ranges import Ranges
from xflow.analysis.value_rewrites.basis import fault
from xflow.analysis.value_rewrites.covered_rows import FACT as COVERED
from xflow.analysis.value_rewrites.masked_scores import FACT as LOST
from xflow.analysis.value_rewrites.nan_tests import decided
from xflow.analysis.value_rewrites.repeated_angles import HALVES, NEIGHBOURS
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.core.registry import Array
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.recheck.facts import Facts
from xflow.rewriting.replay import Rewrite, Unfounded, replay

LEAST = -(2.0**128 - 2.0**104)


def number(value: float, dtype: str = "FLOAT") -> Value:
    """A constant of one number."""
    return apply("Scalar", (), {"value": Fraction(value)}, dtype=dtype)[0]


def imported(text: str) -> Imported:
    """A model from its text."""
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    return import_model(ir.from_proto(model))


def found(model: Imported) -> Sequence[tuple[Value, Value, str]]:
    """What the finders say of a model."""
    return list(decided(model.graph, Ranges(model.constants)))


def checks(model: Imported, assumption: Assumption = DEFAULT) -> Facts:
    """The checkers for a model."""
    return Facts(model.graph, model.constants, assumption)


# Tests ------------------------------------------------------------------------------------------


def guarded(scores: str) -> Imported:
    """A guard of a softmax of scores that are made of x."""
    return imported(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[4, 4] x) => (float[4, 4] y)
        <float zero = {{0}}, float[4, 4] w = {{1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}}>
        {{ {scores} p = Softmax<axis = -1>(s) odd = IsNaN(p) y = Where(odd, zero, p) }}""")


def test_a_test_that_no_element_passes_is_confirmed() -> None:
    model = import_model(ir.from_proto(attention(CAUSAL)))
    ((before, after, name),) = found(model)
    assert not fault(checks(model, Assumption.NONE), name, before, after)
    model = guarded("s = MatMul(x, x)")
    ((before, after, name),) = found(model)
    assert not fault(checks(model), name, before, after)
    assert "may pass" in fault(checks(model, Assumption.FINITE_INPUTS), name, before, after)


@pytest.mark.parametrize(
    "model",
    [import_model(ir.from_proto(attention(A_ROW_COVERED))), guarded("t = MatMul(x, w) s = Exp(t)")],
    ids=["a row is covered", "an exponential may overflow"],
)
def test_a_test_that_an_element_may_pass_is_not(model: Imported) -> None:
    assert not found(model)
    (guard,) = [node for node in model.graph.nodes if getattr(node.op, "name", "") == "Where"]
    name, before = "no-number-is-nan", guard.outputs[0]
    for number_, reason in ((0, "may pass"), (1, "something else")):
        forged = call("Where", number(number_, "BOOL"), *guard.inputs[1:])
        assert reason in fault(checks(model), name, before, forged)


IN_SCORES = {
    "added by Gemm": "s = Gemm(q, k, x)",
    "reduced": "m = ReduceMin(x, axis) a = MatMul(q, k) s = Add(a, m)",
    "pooled": "u = Unsqueeze(x, axes) n = MaxPool<kernel_shape = [1, 1]>(u) m = Squeeze(n, axes)"
    " a = MatMul(q, k) s = Add(a, m)",
    "convolved": "u = Unsqueeze(x, axes) n = Conv(u, kernel) m = Squeeze(n, axes)"
    " a = MatMul(q, k) s = Add(a, m)",
    "expanded by a product": "m = MatMul(x, w) a = MatMul(q, k) s = Add(a, m)",
}


@pytest.mark.parametrize("scores", IN_SCORES.values(), ids=list(IN_SCORES))
def test_a_test_of_weights_stays_where_an_input_is_in_the_scores(scores: str) -> None:
    """By either analysis."""
    body = f"{scores} p = Softmax<axis = -1>(s) odd = IsNaN(p) y = Where(odd, zero, p)"
    model = imported(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[4, 4] q, float[4, 4] k, float[4, 4] x) => (float[4, 4] y)
        <float zero = {{0}}, float[4, 4] w = {{1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}},
         int64[1] axis = {{0}}, int64[2] axes = {{0, 1}}, float[1, 1, 1, 1] kernel = {{1}}>
        {{ {body} }}""")
    assert not found(model)
    guard = model.graph.outputs[0]
    forged = call("Where", number(0, "BOOL"), *guard.node.inputs[1:])
    assert "may pass" in fault(checks(model), "no-number-is-nan", guard, forged)


# Covered rows -----------------------------------------------------------------------------------


def covered(
    mask: str = "Where(seen, zero, infinite)",
    scores: str = "MatMul(q, k)",
    values: str = "2, 4, 4",
    batch: int = 2,
) -> Imported:
    """Guarded weights of integers that a mask may cover, and what they weigh."""
    results = f"{batch}, 4" if "," not in values else "2, 4, 4"
    return imported(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (int8[{batch}, 4, 8] q8, int8[{batch}, 8, 4] k8, bool[{batch}, 1, 4] seen,
           float[{batch}, 4, 4] bias, float[{values}] v) => (float[{results}] y)
        <float zero = {{0}}, float infinite = {{-inf}}, float vast = {{1e30}}>
        {{ q = Cast<to = 1>(q8) k = Cast<to = 1>(k8) s = {scores} m = {mask} t = Add(s, m)
           p = Softmax<axis = -1>(t) odd = IsNaN(p) w = Where(odd, zero, p) y = MatMul(w, v) }}""")


def parts(model: Imported) -> tuple[Value, Value, Value, Value]:
    """Scores, mask, values, and the guarded product."""
    product = model.graph.outputs[0]
    guard, values = product.node.inputs
    scores, mask = guard.node.inputs[2].node.inputs[0].node.inputs
    return scores, mask, values, product


def asked(
    model: Imported,
    *,
    lowest: float = LEAST / 2,
    limit: float = LEAST / 4,
    axis: int = 2,
    otherwise: float = 0,
    along: int = 2,
) -> Value:
    """The same product with the mask asked, in the right way or in another."""
    scores, mask, values, _ = parts(model)
    raised = call("Max", mask, number(lowest))
    weights = call("Softmax", call("Add", scores, raised), axis=along)
    test = call("Less", call("ReduceMax", mask, axes=(axis,), keepdims=1), number(limit))
    return call("Where", test, number(otherwise), call("MatMul", weights, values))


def test_a_mask_that_tells_which_rows_it_covers_is_confirmed() -> None:
    model = covered()
    ((before, after, name),) = found(model)
    assert name == COVERED
    assert not fault(checks(model), name, before, after)
    assert not fault(checks(model), name, before, asked(model))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"lowest": -1e4}, "may have a weight"),
        ({"lowest": LEAST}, "may have a weight"),
        ({"limit": -1e4}, "tells nothing"),
        ({"limit": LEAST}, "tells nothing"),
        ({"axis": 1}, "of each row"),
        ({"otherwise": 1}, "is not 0"),
        ({"along": 1}, "one softmax"),
    ],
)
def test_a_mask_that_is_asked_something_else_is_not(wrong: dict[str, float], reason: str) -> None:
    model = covered()
    before = parts(model)[3]
    assert reason in fault(checks(model), COVERED, before, asked(model, **wrong))  # type: ignore[arg-type]


def test_a_product_with_a_vector_has_no_rows() -> None:
    """Of as many rows as there are batches, the type alone does not tell them apart."""
    model = covered(values="4", batch=4)
    assert not [each for each in found(model) if each[2] == COVERED]
    _, _, _, before = parts(model)
    after = asked(model)
    assert fault(checks(model), COVERED, before, after)


@pytest.mark.parametrize(
    "model",
    [covered("Add(bias, bias)"), covered("Mul(bias, vast)"), covered("Log(bias)")],
    ids=["an input as a mask", "large numbers", "what may be NaN"],
)
def test_a_mask_that_does_not_tell_is_not_asked(model: Imported) -> None:
    """Either by the finder or by the checker."""
    assert not [each for each in found(model) if each[2] == COVERED]
    before = parts(model)[3]
    assert fault(checks(model, Assumption.NONE), COVERED, before, asked(model))


# Masks ------------------------------------------------------------------------------------------


def masked(mask: float, body: str = "Where(seen, s, mask)") -> Imported:
    """Scores of integers, and a softmax that reads them where a mask does not replace them."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (int8[2, 4, 8] q8, int8[2, 8, 4] k8, bool[2, 4, 4] seen, float[2, 4, 4] bias)
            => (float[2, 4, 4] y) <float mask = {{0}}>
        {{ q = Cast<to = 1>(q8) k = Cast<to = 1>(k8) s = MatMul(q, k) t = Add(s, bias)
           m = {body} y = Softmax<axis = -1>(m) }}""")
    (given,) = model.graph.initializer
    given.CopyFrom(onnx.numpy_helper.from_array(np.asarray(mask, np.float32), "mask"))
    return import_model(ir.from_proto(onnx.shape_inference.infer_shapes(model)))


@pytest.mark.parametrize("body", ["Where(seen, s, mask)", "Where(seen, mask, s)", "Max(t, mask)"])
def test_scores_that_are_lost_are_confirmed(body: str) -> None:
    model = masked(LEAST, body)
    ((before, after, name),) = found(model)
    assert name == LOST
    assert not fault(checks(model), name, before, after)


@pytest.mark.parametrize(
    ("mask", "body"),
    [(-1e9, "Where(seen, s, mask)"), (1e38, "Where(seen, s, mask)"), (-1e9, "Max(t, mask)")],
)
def test_scores_that_leave_a_trace_are_not(mask: float, body: str) -> None:
    """The same places of the same model, with another mask."""
    rewrites = [(before, after) for before, after, _ in found(masked(LEAST, body))]
    model = masked(mask, body)
    assert not found(model)
    for before, after in rewrites:
        reason = fault(checks(model), LOST, before, after)
        assert "trace" in reason or "negative" in reason


def test_a_log_that_is_about_another_mask_is_refused() -> None:
    model, other = masked(LEAST), masked(-1e9)
    ((before, _, name),) = found(model)
    place = model.graph.nodes.index(before.node), before.index
    log = [[Rewrite((place,), (), None, name)]]
    assert replay(model.graph, log, {}, model.constants).outputs != model.graph.outputs
    with pytest.raises(Unfounded, match=name):
        replay(other.graph, log, {}, other.constants)


def test_scores_of_any_size_are_not() -> None:
    model = masked(LEAST, "Where(seen, t, mask)")
    (where,) = [n for n in model.graph.nodes if getattr(n.op, "name", "") == "Where"]
    condition, scores, mask = where.inputs
    added = call("Add", scores, call("Where", condition, number(0), mask))
    assert "no number" in fault(checks(model), LOST, where.outputs[0], added)


def test_another_sum_is_not() -> None:
    model = masked(LEAST)
    ((before, _, name),) = found(model)
    condition, scores, mask = before.node.inputs
    for other in (
        call("Add", scores, call("Where", condition, number(1), mask)),
        call("Add", scores, call("Where", condition, mask, number(0))),
        call("Sub", scores, call("Where", condition, number(0), mask)),
    ):
        assert "sum" in fault(checks(model), name, before, other)


# Halves -----------------------------------------------------------------------------------------


def rotated(table: Array) -> tuple[Value, Facts, Ranges]:
    """A product with a table of angles, and what checks and finds what is known of it."""
    x = leaf("x", TensorType("FLOAT", (2, 3, 5, 4)))
    given = leaf("table", TensorType("FLOAT", table.shape), constant=True)
    graph = Graph((call("Mul", x, given),))
    constants = {given: table}.get
    return graph.outputs[0], Facts(graph, constants, DEFAULT), Ranges(constants)


@pytest.mark.parametrize("shape", [(1, 1, 5, 4), (1, 5, 4)])
@pytest.mark.parametrize("fact", [HALVES, NEIGHBOURS])
def test_angles_that_differ_in_one_bit_are_not_equal(fact: str, shape: tuple[int, ...]) -> None:
    angles = np.random.default_rng(0).standard_normal((*shape[:-1], 2)).astype(np.float32)
    table = np.tile(angles, 2) if fact == HALVES else np.repeat(angles, 2, axis=-1)
    value, facts, ranges = rotated(table)
    ((before, after, name),) = decided(Graph((value,)), ranges)
    assert (before, name) == (value, fact)
    assert not fault(facts, name, before, after)
    other = table.copy()
    other[..., 3, 3] = np.nextafter(other[..., 3, 3], np.float32(9))
    value, facts, ranges = rotated(other)
    assert not list(decided(Graph((value,)), ranges))
    assert "differ" in fault(facts, name, before, after)


# Raised masks -----------------------------------------------------------------------------------


def attended(mask: Value) -> Value:
    """Attention with a mask."""
    q, k, v = (leaf(name, TensorType("FLOAT", (1, 2, 4, 8))) for name in "qkv")
    return call("Attention", q, k, v, mask, scale=Fraction(1))


@pytest.mark.parametrize(
    ("units", "dropped", "confirmed"),
    [(1, False, True), (2, False, False), (0, False, False), (1, True, False)],
)
def test_a_mask_is_raised_by_one_unit_and_nothing_else(
    units: int, dropped: bool, confirmed: bool
) -> None:
    seen = leaf("seen", TensorType("BOOL", (4, 4)))
    mask = call("Where", seen, number(0), number(LEAST))
    above = number(LEAST + units * math.ldexp(1, 104))
    raised = call("Max", mask, above)
    before, after = (
        attended(mask),
        attended(call("Expand", above, shape=(4, 4)) if dropped else raised),
    )
    facts = Facts(Graph((before,)), lambda _: None, DEFAULT)
    assert (not facts.raised_masks([before], [after])) == (confirmed and not dropped)
    assert not facts.raised_masks([before], [before])
    assert facts.raised_masks([before], [call("Neg", before)])


def test_a_mask_with_infinities_keeps_them() -> None:
    seen = leaf("seen", TensorType("BOOL", (4, 4)))
    mask = call("Where", seen, number(0), leaf("m", TensorType("FLOAT", (4, 4))))
    above = number(LEAST + math.ldexp(1, 104))
    before, lost = attended(mask), attended(call("Max", mask, above))
    kept = attended(call("Where", call("Equal", mask, number(LEAST)), above, mask))
    facts = Facts(Graph((before,)), lambda _: None, Assumption.NONE)
    assert facts.raised_masks([before], [lost])
    assert not facts.raised_masks([before], [kept])
