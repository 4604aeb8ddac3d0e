"""Which inputs may hold what is no number is read from the model: tests and masks."""

import time

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from xflow.analysis.inputs import special_inputs
from xflow.core.node import MayBe
from xflow.onnx.importer import import_model
from xflow.recheck.sources import Sources

ANYTHING, MASK = MayBe.ANYTHING, MayBe.NEGATIVE_INFINITY


def special(body: str, weights: str = "") -> dict[str, MayBe]:
    """What is special of the inputs x, m and s [2, 4], c (Booleans) and i (integers) of a model."""
    text = f"""<ir_version: 9, opset_import: ["" : 20, "own" : 1]>
    g (float[2, 4] x, float[2, 4] m, float[2, 4] s, bool[2, 4] c, int64[2, 4] i)
     => (float[2, 4] y) <float one = {{1}}, float six = {{6}}, float zero = {{0}}{weights}>
    {{ {body} }}"""
    imported = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    found = dict(special_inputs(imported.graph, imported.constants))
    kept = {
        key: value.node.op.may_be  # type: ignore[union-attr]
        for value in imported.graph.leaves
        for key in [value.node.op.key]  # type: ignore[union-attr]
        if key in "xms"
    }
    assert kept == {key: found.get(key, MayBe.NUMBERS) for key in kept}
    return found


TESTED = {
    "is it NaN": "n = IsNaN(x) y = Where(n, zero, x)",
    "is it infinite": "n = IsInf(x) y = Where(n, zero, x)",
    "is something of it NaN": "a = Mul(x, six) b = Abs(a) n = IsNaN(b) y = Where(n, zero, x)",
    "is it itself": "n = Equal(x, x) y = Where(n, x, zero)",
    "is it the same as what is made of it": "a = Neg(x) n = Less(a, x) y = Where(n, x, zero)",
    "below the largest": "a = Abs(x) n = LessOrEqual(a, most) y = Where(n, x, zero)",
    "below infinity": "n = Less(x, inf) y = Where(n, x, zero)",
    "an operator of which nothing is known": "y = own.Fill(x)",
    "is its sum NaN": "t = ReduceSum<keepdims = 1>(x) n = IsNaN(t) y = Where(n, zero, x)",
    "is its maximum infinite": "t = ReduceMax<keepdims = 1>(x) n = IsInf(t) y = Where(n, zero, x)",
    "is its sum itself": "t = ReduceSum<keepdims = 1>(x) n = Equal(t, t) y = Where(n, x, zero)",
    "is its maximum below infinity": "t = ReduceMax<keepdims = 1>(x) n = Less(t, inf)"
    " y = Where(n, x, zero)",
    "is a product of it NaN": "t = Transpose(x) u = MatMul(t, w) n = IsNaN(u) b = Where(n, zero, u)"
    " y = MatMul(x, b)",
    "is a cumulative sum of it NaN": "t = CumSum(x, axis) n = IsNaN(t) y = Where(n, zero, x)",
    "is the difference to itself 0": "t = Sub(x, x) n = Equal(t, zero) y = Where(n, x, zero)",
    "is the sum with its negative 0": "u = Neg(x) t = Add(x, u) n = Equal(t, zero)"
    " y = Where(n, x, zero)",
    "is its quotient by itself 1": "t = Div(x, x) n = Equal(t, one) y = Where(n, x, zero)",
    "is it 0 times 0": "t = Mul(x, zero) n = Equal(t, zero) y = Where(n, x, zero)",
    "is it 0 times 0 in sum": "t = Mul(x, zero) u = ReduceSum<keepdims = 1>(t) n = Equal(u, zero)"
    " y = Where(n, x, zero)",
    "are weights that are made of it NaN": "p = Softmax(x) n = IsNaN(p) y = Where(n, zero, p)",
}
ENORMOUS = (
    ", float most = {3.4028234663852886e38}, float inf = {inf}, int64 axis = {0},"
    " float[2, 4] w = {1, -2, 3, 4, 5, 6, 7, 8}"
)


@pytest.mark.parametrize("body", TESTED.values(), ids=list(TESTED))
def test_an_input_that_the_model_tests_may_be_anything(body: str) -> None:
    assert special(body, ENORMOUS) == {"x": ANYTHING}


NOT_TESTED = {
    "a threshold": "n = Less(x, six) y = Where(n, x, zero)",
    "two inputs": "n = Less(x, s) y = Where(n, x, zero)",
    "a threshold of a sum": "t = ReduceSum<keepdims = 1>(x) n = Less(t, six) y = Where(n, x, zero)",
    "a threshold of a difference": "t = Sub(x, s) n = Less(t, zero) y = Where(n, x, zero)",
    "weights of products of it": "k = Transpose(s) a = MatMul(x, k) p = Softmax(a) n = IsNaN(p)"
    " b = Where(n, zero, p) y = MatMul(b, x)",
    "products of it that are compared with -inf": "k = Transpose(s) a = MatMul(x, k) p = Softmax(a)"
    " n = Equal(a, least) b = Where(n, zero, p) y = MatMul(b, x)",
    "features": "k = Transpose(w) a = MatMul(x, k) b = MatMul(s, k) d = Add(a, b) p = Softmax(d)"
    " y = MatMul(p, x)",
    "arithmetic": "a = Div(x, s) y = Relu(a)",
    "a softmax": "y = Softmax(x)",
    "integers": "n = Equal(i, i) y = Where(n, x, zero)",
}


IN_A_BRANCH = """u = MatMul(x, w) t = Constant<value = bool {1}>()
    y = If(t) <then_branch = yes () => (float[2, 4] o) {
        inf = Constant<value_float = inf>() none = Constant<value_float = 0.0>()
        %s o = Where(n, u, s)
    }, else_branch = no () => (float[2, 4] p) { p = Identity(u) }>"""


@pytest.mark.parametrize(
    "test",
    [
        "n = IsNaN(u)",
        "n = IsInf(u)",
        "a = Abs(u) n = Less(a, inf)",
        "a = Sub(u, u) n = Equal(a, a)",
        "a = Mul(u, none) n = Equal(a, none)",
    ],
)
def test_a_test_in_a_branch_is_one(test: str) -> None:
    """Of what is computed of an input, whatever of it is asked."""
    weights = f", float[4, 4] w = {{{', '.join(['0.5'] * 16)}}}"
    found = special(IN_A_BRANCH % test, weights)
    assert found["x"] is ANYTHING
    assert special(IN_A_BRANCH % "n = Less(u, s)", weights).get("x") is not ANYTHING


def test_an_input_of_which_a_size_is_asked_is_a_number() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[n, 4] x) => (bool[k] y, float[n, 4] z) <int64[2] most = {6, 6}> {
        s = Shape(x) y = Less(s, most) n = Size(x) f = Cast<to = 1>(n) d = IsInf(f)
        z = Where(d, f, x) }""")
    imported = import_model(ir.from_proto(model))
    assert not special_inputs(imported.graph, imported.constants)
    assert not any(Sources(imported.graph, imported.constants).special)


@pytest.mark.parametrize("body", NOT_TESTED.values(), ids=list(NOT_TESTED))
def test_other_inputs_are_numbers(body: str) -> None:
    weights = ", float least = {-inf}, float[2, 4] w = {1, -2, 3, 4, 5, 6, 7, 8}"
    assert special(body, weights) == {}


MASKED = {
    "added to scores": "a = Add(x, m) y = Softmax(a)",
    "added to what was added": "a = Add(x, s) b = Mul(a, six) c1 = Add(m, b) y = Softmax(c1)",
    "through movement": "t = Transpose<perm = [1, 0]>(m) u = Transpose<perm = [1, 0]>(t)"
    " a = Add(x, u) y = Softmax(a)",
    "times a number": "t = Mul(m, six) a = Add(x, t) y = Softmax(a)",
    "a choice": "t = Where(c, m, zero) a = Add(x, t) y = Softmax(a)",
    "before an exponential": "a = Add(x, m) y = Exp(a)",
    "before a sigmoid": "a = Add(x, m) y = Sigmoid(a)",
    "by Gemm": "t = Transpose(x) a = MatMul(x, t) b = Gemm(a, s, m) y = Softmax(b)",
    "through a reduction": "t = ReduceMin(m, axis) a = Add(x, t) y = Softmax(a)",
    "through a pool": "t = Unsqueeze(m, axis) u = MaxPool<kernel_shape = [1]>(t)"
    " v = Squeeze(u, axis) a = Add(x, v) y = Softmax(a)",
    "through a convolution": "t = Unsqueeze(m, axis) u = Conv(t, kernel) v = Squeeze(u, axis)"
    " a = Add(x, v) y = Softmax(a)",
    "through a product with a constant": "t = MatMul(m, ones) a = Add(x, t) y = Softmax(a)",
    "through a cumulative sum": "k = Squeeze(axis) t = CumSum(m, k) a = Add(x, t) y = Softmax(a)",
    "in the place of a score": "a = Where(c, x, m) y = Softmax(a)",
    "less a score": "a = Sub(m, x) y = Softmax(a)",
}


@pytest.mark.parametrize("body", MASKED.values(), ids=list(MASKED))
def test_what_is_added_to_scores_may_be_a_mask(body: str) -> None:
    weights = (
        ", int64[1] axis = {0}, float[2, 2, 1] kernel = {1, 0, 0, 1},"
        " float[4, 4] ones = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}"
    )
    assert special(body, weights)["m"] is MASK


def test_a_factor_of_scores_is_no_mask() -> None:
    found = special("q = Mul(x, s) a = Add(q, m) y = Softmax(a)")
    assert found["m"] is MASK
    assert "s" not in found
    assert "x" not in found


def test_a_mask_that_is_tested_may_be_anything() -> None:
    found = special("n = IsNaN(m) k = Where(n, zero, m) a = Add(x, k) y = Softmax(a)")
    assert found["m"] is ANYTHING


def test_the_steps_of_a_long_recurrence_are_read_in_linear_time() -> None:
    """Each of its exponentials has all steps before it behind it."""
    steps = 400
    body = "\n".join(
        f"k{t} = Mul(h{t}, half) l{t} = Max(k{t}, h{t}) d{t} = Sub(k{t}, l{t}) e{t} = Exp(d{t})"
        f" p{t} = Mul(e{t}, h{t}) h{t + 1} = Add(p{t}, x)"
        for t in range(steps)
    )
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 20]> g (float[4] x) => (float[4] h{steps})
        <float half = {{0.5}}> {{ h0 = Neg(x) {body} }}"""
    )
    imported = import_model(ir.from_proto(model))
    start = time.process_time()
    assert not special_inputs(imported.graph, imported.constants)
    assert time.process_time() - start < 3
