"""What is known of the elements of computed tensors, and the guards that go because of it."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from attention_models import A_ROW_COVERED, ALL_LEFT_OUT, CAUSAL, EVERYWHERE, LEAST, attention
from chains import CHAINS, assert_covers, chained, numbers
from graphs import call
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import xflow
from xflow.analysis.ranges import LARGEST, Ranges, coarse, without_sign
from xflow.analysis.value_rewrites.nan_tests import decided
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.fold import no_constants
from xflow.core.intervals import FUNCTIONS, Range
from xflow.core.node import MayBe, Opaque, TensorType, Value, apply, leaf
from xflow.core.registry import Array
from xflow.core.size import symbol
from xflow.core.size_text import parse_size
from xflow.core.spec import Call, OfSize
from xflow.onnx.importer import import_model
from xflow.search.constants import Constants


def operators(model: onnx.ModelProto) -> Counter[str]:
    """The operators that are left behind a search by the estimate."""
    result = xflow.optimize(model, cost="estimated", budget=60.0)
    return Counter(node.op_type for node in ir.to_proto(result.model).graph.node)


def known_tests(model: onnx.ModelProto) -> list[str]:
    """The facts by which tests in a model are known to be false."""
    imported = import_model(ir.from_proto(model))
    return [fact for *_, fact in decided(imported.graph, Ranges(imported.constants))]


@pytest.mark.parametrize("mask", [CAUSAL, ALL_LEFT_OUT])
def test_a_guard_goes_where_no_row_can_be_covered(mask: Array) -> None:
    left = operators(attention(mask))
    assert not left["IsNaN"]
    assert not left["Where"]


def test_a_guard_stays_where_a_mask_covers_a_row() -> None:
    left = operators(attention(A_ROW_COVERED))
    assert left["IsNaN"] == left["Where"] == 1
    assert not known_tests(attention(A_ROW_COVERED, twice=True))


def test_a_guard_stays_where_two_least_floats_add_up_to_infinity() -> None:
    assert not known_tests(attention(ALL_LEFT_OUT, twice=True))
    with np.errstate(over="ignore"):
        assert np.isneginf(np.float32(LEAST) + np.float32(LEAST))


def test_a_guard_stays_where_a_caller_may_pass_infinities() -> None:
    model = attention(EVERYWHERE)
    (given,) = [i for i, item in enumerate(model.graph.initializer) if item.name == "mask"]
    del model.graph.initializer[given]
    model.graph.input.append(helper.make_tensor_value_info("mask", 1, [1, 1, 4, 4]))
    assert not known_tests(model)


@pytest.mark.parametrize(
    ("body", "guarded"),
    [
        ("q = MatMul(x, w) s = MatMul(q, w) p = Softmax(s)", False),
        ("s = MatMul(x, x) p = Softmax(s)", False),
        ("h = Mul(x, half) s = MatMul(h, w) p = Softmax(s)", False),
        ("h = LayerNormalization(x, gain) p = Softmax(h)", False),
        ("s = MatMul(x, w) t = Add(s, m) p = Softmax(t)", True),  # a mask from outside
        ("s = MatMul(x, w) h = Mul(m, half) t = Add(s, h) p = Softmax(t)", True),
        ("q = Reciprocal(x) s = MatMul(q, w) p = Softmax(s)", True),
        ("q = Add(x, m) a = Softmax(q) s = MatMul(a, w) p = Softmax(s)", True),
        ("s = MatMul(x, odd_ones) p = Softmax(s)", True),
        ("a = MatMul(x, w) h = MatMul(m, ones) t = Add(a, h) p = Softmax(t)", True),
        ("t = Gemm(x, w, m) p = Softmax(t)", True),
        ("p = MatMul(x, w)", True),  # no weights: who asks about these may mean the input
        ("p = Softmax(x)", True),
    ],
)
def test_features_are_numbers_where_weights_are_guarded(body: str, guarded: bool) -> None:
    """Masks need not be, nor what is made of features before a product by dividing, say."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[4, 4] x, float[4, 4] m) => (float[4, 4] y)
        <float[4, 4] w = {{1, -2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
         float[4, 1] ones = {{1, 1, 1, 1}}, float[4] gain = {{1, 1, 1, 1}}, float half = {{0.5}},
         float zero = {{0}}>
        {{ n = Neg(w) odd_ones = Sqrt(n) {body} odd = IsNaN(p) y = Where(odd, zero, p) }}""")
    assert known_tests(onnx.shape_inference.infer_shapes(model)) == ["no-number-is-nan"] * (
        not guarded
    )


@pytest.mark.parametrize(
    ("kind", "to", "guarded"),
    [("int64", 1, False), ("int32", 1, False), ("int8", 10, False), ("int64", 10, True)],
)
def test_positions_that_are_made_floats_are_numbers_where_they_fit(
    kind: str, to: int, guarded: bool
) -> None:
    """A rotary embedding takes the cosine of them, which an infinity has none of."""
    float_ = {1: "float", 10: "float16"}[to]
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g ({kind}[4, 4] i) => ({float_}[4, 4] y)
        <{float_} zero = {{0}}>
        {{ f = Cast<to = {to}>(i) c = Cos(f) p = Softmax(c)
           odd = IsNaN(p) y = Where(odd, zero, p) }}""")
    found = known_tests(onnx.shape_inference.infer_shapes(model))
    assert found == ["no-number-is-nan"] * (not guarded)


def test_sums_are_numbers_also_where_their_sizes_are_not_known_to_fit() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (int64[n, 4] i, int64[m, 4] j) => (float[k, 4] y)
        { a = Cast<to = 1>(i) b = Cast<to = 1>(j) y = Add(a, b) }""")
    imported = import_model(ir.from_proto(onnx.shape_inference.infer_shapes(model)))
    added = [node for node in imported.graph.nodes if getattr(node.op, "op_type", "") == "Add"]
    assert [isinstance(node.op, Opaque) for node in added] == [True]
    assert Ranges(imported.constants).of(added[0].outputs[0]).is_real


def test_the_test_for_infinities_goes_likewise() -> None:
    assert known_tests(attention(CAUSAL, test="IsInf")) == ["no-number-is-infinite"]


def test_a_guard_on_a_number_of_an_input_stays() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    zero = numpy_helper.from_array(np.asarray(0, np.float32), "zero")
    nodes = [
        helper.make_node("IsNaN", ["x"], ["odd"]),
        helper.make_node("Where", ["odd", "zero", "x"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "guard", [x], [y], [zero]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
    )
    assert not known_tests(model)


def ranges(
    assumption: Assumption = DEFAULT, **data: Array
) -> tuple[Ranges, Callable[[str], Value]]:
    """Ranges over constants, and these by name; sizes above what is folded stand for any data."""

    def constant(name: str) -> Value:
        return leaf(name, TensorType("FLOAT", data[name].shape), constant=True)

    known = {constant(name): array for name, array in data.items()}
    return Ranges(known.get, assumption), constant


def embedded(*shape: int) -> tuple[Value, Ranges]:
    """Numbers that are looked up by indices which are not known."""
    found, constant = ranges(table=np.linspace(-3, 5, 40).reshape(10, *shape[1:]))
    return call(
        "Gather", constant("table"), leaf("ids", TensorType("INT64", shape[:1])), axis=0
    ), found


def test_ranges_of_functions_follow_from_their_specifications() -> None:
    x, found = embedded(7, 4)
    assert bounds(found.of(x)) == about(-3, 5)
    assert found.of(call("Relu", x)) == Range(0, 5)
    assert bounds(found.of(call("Mul", x, x))) == about(0, 25)
    assert found.of(call("Softmax", x)) == Range(0, 1)
    sigmoid = found.of(call("Sigmoid", x))
    assert 0 < sigmoid.low < sigmoid.high < 1
    assert bounds(found.of(call("Transpose", x, perm=(1, 0)))) == about(-3, 5)
    assert bounds(found.of(call("ReduceSum", x, axes=(0,)))) == about(-21, 35)


def about(low: float, high: float) -> object:
    """Bounds, up to a few roundings."""
    return pytest.approx((low, high), rel=1e-5)


def bounds(known: Range) -> tuple[float, float]:
    """The bounds of what is a number throughout."""
    assert known.is_real
    return known.low, known.high


def test_what_may_be_no_number_is_told_apart() -> None:
    x, found = embedded(7, 4)  # of which no element is 0
    some = call("Floor", x)  # of which an element may be
    inverse = found.of(call("Reciprocal", some))
    assert (inverse.plus, inverse.minus, inverse.nan) == (True, True, False)
    root = found.of(call("Sqrt", x))
    assert (root.plus, root.minus, root.nan) == (False, False, True)
    logarithm = found.of(call("Log", call("Relu", x)))
    assert (logarithm.plus, logarithm.minus, logarithm.nan) == (False, True, False)
    assert found.of(call("Add", x, anything("y", ()))).nan
    assert found.of(call("Reciprocal", x)).is_real
    large = call("Exp", call("Mul", x, call("Exp", x)))
    assert found.of(large).plus
    assert bounds(found.of(call("Min", large, number(1)))) == about(0, 1)
    assert not found.of(call("Sub", large, large)).is_below_infinity
    shifted = call("Add", call("Mul", x, x), number(Fraction(1, 100)))
    assert found.of(call("Reciprocal", call("Sqrt", shifted))).is_real


def anything(name: str, shape: tuple[int, ...]) -> Value:
    return leaf(name, TensorType("FLOAT", shape), may_be=MayBe.ANYTHING)


def number(value: Fraction | int) -> Value:
    return apply("Scalar", (), {"value": Fraction(value)}, dtype="FLOAT")[0]


def test_a_choice_knows_what_it_tests() -> None:
    part, weights = leaf("x", TensorType("FLOAT", (4, 3))), leaf("w", TensorType("FLOAT", (3, 3)))
    found = Ranges(no_constants)
    x = call("MatMul", part, weights)
    n = call("ReduceSum", call("Mul", x, x), axes=(1,))
    zero = number(0)
    quotient = call("Div", x, n)
    assert not found.of(quotient).is_real
    for test, sides in (
        (call("Greater", n, zero), (quotient, zero)),
        (call("Less", zero, n), (quotient, zero)),
        (call("Equal", n, zero), (zero, quotient)),
        (call("Not", call("LessOrEqual", n, zero)), (quotient, zero)),
        (call("And", call("Greater", n, zero), call("Less", x, zero)), (quotient, zero)),
    ):
        assert found.of(call("Where", test, *sides)).is_real, test
    for test, sides in (
        (call("GreaterOrEqual", n, zero), (quotient, zero)),
        (call("Or", call("Greater", n, zero), call("Less", x, zero)), (quotient, zero)),
        (call("Greater", n, zero), (zero, quotient)),
    ):
        assert not found.of(call("Where", test, *sides)).is_real, test


def test_a_comparison_with_what_may_be_nan_tells_nothing_where_it_fails() -> None:
    x, y = (anything(name, (4,)) for name in "xy")
    found = Ranges(no_constants)
    capped = call("Where", call("Greater", x, number(6)), number(6), x)
    assert found.of(capped).nan
    assert found.of(capped).high == 6
    assert found.of(call("Where", call("Less", x, number(6)), x, number(6))).nan is False
    assert found.of(call("Where", call("Less", x, y), number(0), x)).high > 1e38


@pytest.mark.parametrize(
    ("assumption", "sure", "rough"),
    [
        (Assumption.NONE, False, False),
        (Assumption.FINITE_INPUTS, True, False),
        (Assumption.MODERATE, True, True),
    ],
)
def test_an_assumption_grants_no_more_than_it_says(
    assumption: Assumption, sure: bool, rough: bool
) -> None:
    found, constant = ranges(assumption, w=np.full((4, 4), 2.0))
    x = leaf("x", TensorType("FLOAT", (3, 4)))
    assert found.of(x).is_real is sure
    assert found.of(call("Relu", x)).is_real is sure
    product = call("MatMul", x, constant("w"))
    assert found.of(product).is_real is rough  # it may overflow
    bounded = call("Clip", x, min=Fraction(-1), max=Fraction(1))
    assert found.of(call("MatMul", bounded, constant("w"))).is_real is sure
    assert found.of(bounded).is_real is sure  # it passes what is no number
    mask = leaf("m", TensorType("FLOAT", (3, 4)), may_be=MayBe.NEGATIVE_INFINITY)
    assert not found.of(mask).is_real
    assert found.of(mask).is_below_infinity is sure
    assert not found.of(anything("z", (3, 4))).is_below_infinity
    assert not found.of(call("Exp", product)).is_real  # whatever is taken for granted
    assert not found.of(call("Div", product, product)).is_real


def test_layers_of_embeddings_are_numbers_whatever_is_assumed() -> None:
    table = np.linspace(-3, 5, 40).reshape(10, 4)
    found, constant = ranges(Assumption.NONE, table=table, w=np.full((4, 4), 9.0), one=np.ones(4))
    x = call("Gather", constant("table"), leaf("ids", TensorType("INT64", (7,))), axis=0)
    for _ in range(20):
        x = call("Add", x, call("Gelu", call("MatMul", x, constant("w")), approximate="none"))
        x = call("LayerNormalization", x, constant("one"), constant("one"), axis=1)
    known = found.of(x)
    assert bounds(known) == about(-1, 3)  # at most the root of 4, and the bias


def test_a_maximum_that_is_taken_off_leaves_an_exponential_of_at_least_1() -> None:
    x = leaf("x", TensorType("FLOAT", (5, 3)))
    found = Ranges(no_constants)
    y = call("MatMul", x, leaf("w", TensorType("FLOAT", (3, 4))))
    shifted = call("Sub", y, call("ReduceMax", y, axes=(1,)))
    power = call("Exp", shifted)
    assert bounds(found.of(power)) == about(0, 1)
    total = call("ReduceSum", power, axes=(1,))
    assert bounds(found.of(total)) == about(1, 4)
    assert bounds(found.of(call("Div", power, total))) == about(0, 1)
    other = call("ReduceSum", power, axes=(0,))  # along which no element has to be 1
    assert found.of(other).low == 0
    assert found.of(call("Exp", call("Sub", y, call("ReduceMax", x, axes=(1,))))).plus


def test_lines_go_where_their_axis_goes() -> None:
    """A mask that covers no row covers a whole column, or may after a transposition."""
    found, constant = ranges(mask=np.where(np.tril(np.ones((4, 4))) > 0, 0.0, -np.inf))
    mask = constant("mask")
    stretched = call("Expand", mask, shape=(6000, 100, 4, 4))  # too large to be looked at
    for value, rows in ((stretched, True), (call("Transpose", stretched, perm=(0, 1, 3, 2)), True)):
        assert (not found.of(call("Softmax", value, axis=3)).nan) is rows
    covered = call("Slice", stretched, starts=(1,), ends=(4,), axes=(3,), steps=(1,))
    assert found.of(call("Softmax", covered, axis=3)).nan
    folded = call("Reshape", stretched, shape=(6000, 50, 8, 4))
    assert found.of(folded).minus


@pytest.mark.parametrize("dtype", ["FLOAT", "DOUBLE", "BFLOAT16"])
def test_a_mask_of_the_least_float_is_one_at_the_border_of_a_region_too(dtype: str) -> None:
    """The layers behind the one that makes a mask know no less of what it adds to their scores."""
    zero, least = (leaf(name, TensorType(dtype, (4, 4)), constant=True) for name in "zl")
    data = {zero: np.zeros((4, 4)), least: np.full((4, 4), -LARGEST[dtype])}
    mask = call("Where", leaf("seen", TensorType("BOOL", (4, 4))), zero, least)
    scores = leaf("scores", TensorType(dtype, (4, 4)))
    border = Constants(data.get).leaf("0", mask, [])
    found = Ranges(data.get)
    assert found.of(call("Softmax", call("Add", scores, mask), axis=1)).is_real
    assert found.of(call("Softmax", call("Add", scores, border), axis=1)).is_real
    assert not found.of(call("Add", border, border)).is_real


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.booleans(),
)
def test_what_is_known_at_a_border_is_true_of_what_is_there(
    one: float, other: float, constant: bool
) -> None:
    known = Range(min(one, other), max(one, other))
    kept = coarse(known, "FLOAT", constant=constant)
    assert kept.is_real
    assert kept.low <= known.low
    assert known.high <= kept.high
    assert coarse(kept, "FLOAT", constant=constant) == kept
    unsigned = without_sign(kept, "FLOAT")
    assert unsigned.low <= kept.low
    assert kept.high <= unsigned.high


def test_weights_of_usual_size_leave_room_for_products() -> None:
    """What is scaled and shifted by weights is a number, whatever it is, if it is moderate."""
    x = leaf("x", TensorType("FLOAT", (1, 4)))
    scale, shift = (leaf(name, TensorType("FLOAT", (4,)), constant=True) for name in "ab")
    data = {scale: np.full(4, 1e-3), shift: np.full(4, 1e6)}
    readers = {scale: call("Div", x, scale).node, shift: call("Sub", x, shift).node}
    a, b = (
        Constants(data.get).leaf(str(number), value, [reader])
        for number, (value, reader) in enumerate(readers.items())
    )
    quotient = call("Div", call("Sub", x, b), a)
    assert Ranges(lambda value: None).of(call("Mul", quotient, b)).is_real


@settings(max_examples=150, deadline=None)
@given(*CHAINS)
@example(["Exp", "Softplus"], "Add", 0.5, 1)
@example(["Relu", "Log"], "Mul", -np.inf, 1)
@example(["Gelu"], "Sub", 3e38, 0)  # on the way, its double is computed
@example(["Sigmoid", "Floor"], "Add", np.nan, 158)  # 1 - 2e-10 is 1 in 32 bits
def test_no_element_lies_outside_of_its_range(
    names: list[str], joined: str, odd: float, seed: int
) -> None:
    """Whatever is assumed of nothing: in floats, with what is no number among them."""
    data = numbers(odd, seed)
    found, constant = ranges(Assumption.NONE, table=data)
    ids = leaf("ids", TensorType("INT64", (10,)))
    x = call("Gather", constant("table"), ids, axis=0)
    value, result = chained(x, data, names, joined)
    known = found.of(value)
    assert_covers(known, result)
    assert not known.nonzero or np.all(result[np.isfinite(result)] != 0)


@pytest.mark.parametrize("name", ["Softplus", "Mish", "ReduceLogSumExp"])
def test_nothing_is_taken_to_be_moderate_within_an_operator(name: str) -> None:
    """An exponential would overflow that none of these ever computes."""
    found, constant = ranges(table=np.array([[10.0], [1e9]]))
    x = call("Gather", constant("table"), leaf("ids", TensorType("INT64", (2,))), axis=0)
    known = found.of(call(name, x, axes=(1,)) if name.startswith("Reduce") else call(name, x))
    assert known.high >= 1e9


@pytest.mark.parametrize(
    ("dtype", "exponent", "overflows"),
    [
        ("FLOAT16", 2.0, False),
        ("FLOAT16", 2.5, True),
        ("FLOAT16", 3.0, True),
        ("FLOAT", 3.0, False),
        ("FLOAT", 3.5, True),
        ("FLOAT", 4.0, True),
    ],
)
def test_higher_powers_are_not_taken_to_be_moderate(
    dtype: str, exponent: float, overflows: bool
) -> None:
    """In 16 bits, the cube of 41 overflows."""
    found, _ = ranges(Assumption.MODERATE)
    x = call("Abs", leaf("x", TensorType(dtype, (4,))))
    (scalar,) = apply("Scalar", (), {"value": Fraction(exponent)}, dtype=dtype)
    assert found.of(x).is_real
    assert found.of(call("Pow", x, scalar)).plus is overflows


def test_what_is_known_to_be_larger_is_not_assumed_to_be_moderate() -> None:
    """In 16 bits, squares of 100 to 200 are."""
    found, _ = ranges(Assumption.MODERATE)
    x = leaf("x", TensorType("FLOAT16", (4,)))
    clipped = call("Clip", x, min=Fraction(100), max=Fraction(200))
    square = call("Mul", clipped, clipped)
    assert bounds(found.of(square)) == pytest.approx((1e4, 4e4), rel=2e-3)
    (most,) = apply("Scalar", (), {"value": Fraction(12_000)}, dtype="FLOAT16")
    assert found.of(call("Sqrt", call("Sub", most, square))).nan


def test_what_is_known_of_a_deep_network_stays_known() -> None:
    """Bounds grow from layer to layer until they are moderate by assumption alone."""
    table = np.linspace(-3, 5, 40).reshape(10, 4)
    found, constant = ranges(table=table, weight=np.full((4, 4), 1e3), scale=np.ones(4))
    x = call("Gather", constant("table"), leaf("ids", TensorType("INT64", (7,))), axis=0)
    for _ in range(12):
        x = call("Gelu", call("MatMul", x, constant("weight")), approximate="none")
        x = call("LayerNormalization", x, constant("scale"), constant("scale"), axis=1)
    assert found.of(call("Softmax", x, axis=1)) == Range(0, 1)


@pytest.mark.parametrize("never", [Range(1.0, 0.0), Range(0.0, -1.0), Range(0.0, -1.0, nan=True)])
def test_functions_of_what_is_never_a_number_have_a_range(never: Range) -> None:
    floats = Ranges(no_constants).floats("FLOAT")
    assert FUNCTIONS["reciprocal"](never, floats).nan == never.nan
    for exponent in (Range(0.3, 0.3), Range(-0.3, -0.3), Range(0.1, 0.2)):
        assert FUNCTIONS["power"](never, exponent, floats).nan >= never.nan


def inverted(mask: Value, number: float = LEAST, *, one: float = 1.0) -> Range:
    """The range of ``(one - mask) * number``, where the mask is made a float, if it is none."""
    constants = {
        leaf(name, TensorType("FLOAT", ()), constant=True): np.array(value, np.float32)
        for name, value in (("one", one), ("number", number))
    }
    ones, numbers_ = constants
    if mask.type.dtype != "FLOAT":
        (mask,) = apply("NearestFloat", [call("Unsqueeze", mask, axes=(1,))], dtype="FLOAT")
    return Ranges(constants.get).of(call("Mul", call("Sub", ones, mask), numbers_))


def test_a_mask_of_ones_and_zeros_that_is_inverted_does_not_overflow() -> None:
    """As exports of transformers have it; of the mask itself, nothing follows."""
    tokens = leaf("mask", TensorType("INT64", (2, 7)))
    known = inverted(tokens)
    assert known.is_real
    assert known.low == LEAST
    assert inverted(leaf("mask", TensorType("FLOAT", (2, 7)))).is_real
    assert not inverted(call("Sub", tokens, tokens)).is_real
    known_integers = leaf("computed", TensorType("INT64", (2, 7)), known=Range(-9.0, 9.0))
    assert not inverted(known_integers).is_real
    assert not inverted(tokens, one=2.0).is_real
    assert not inverted(leaf("x", TensorType("FLOAT", (2, 7)), known=Range(-9.0, 9.0))).is_real


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = ConstantOfShape<value = float[1] {-3}>(n)", -3.0, -3.0),
        ("y = ConstantOfShape(n)", 0.0, 0.0),
        ("y = RandomNormalLike <mean = 3.0, scale = 0.5> (f)", -17.0, 23.0),
        ("y = RandomUniformLike <low = -2.0> (f)", -2.0, 1.0),
        ("y = Range(two, five, two)", -(2.0**63), 2.0**63),  # sums go beyond the limit
        ("q, y, z = DynamicQuantizeLinear(f)", -(2.0**63), 2.0**63),
    ],
)
def test_numbers_that_opaque_operators_give_are_known(body: str, low: float, high: float) -> None:
    """An operator that makes codes asks nothing, so that its input is a number like others."""
    known = given_by(body)
    assert known.is_real
    assert (known.low, known.high) == (low, high)


def test_what_opaque_operators_fill_tensors_with_may_be_no_number() -> None:
    assert given_by("y = ConstantOfShape<value = float[1] {-inf}>(n)").minus
    assert not given_by("y = RandomNormalLike <scale = 1e30> (f)").is_real


def given_by(body: str) -> Range:
    """The range of what a model of some floats and a number of elements gives."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[6] f, int64[1] n) => (float[p] y)
        <float two = {{2}}, float five = {{5}}> {{ {body} }}""")
    imported = import_model(ir.from_proto(model))
    return Ranges(imported.constants).of(imported.graph.outputs[0])


@pytest.mark.parametrize("extent", ["h", "h//2", "2*h + 1", "h*w"])
def test_a_mean_over_dynamic_extents_is_a_number(extent: str) -> None:
    """Each dimension has at least one element, so that the mean divides by no 0."""
    x = leaf("x", TensorType("FLOAT", (1, 3, parse_size(extent), 4)))
    for op, attributes in (("GlobalAveragePool", {}), ("ReduceMean", {"axes": (2, 3)})):
        mean = apply(op, [apply("Relu", [x])[0]], attributes)[0]
        assert Ranges(no_constants).of(mean).is_real
        assert not Ranges(no_constants, Assumption.NONE).of(mean).is_real


def test_a_quotient_by_an_index_may_be_none() -> None:
    index = OfSize(symbol("i0"))
    count = OfSize(symbol("h"))
    reading = Ranges(no_constants)
    x = leaf("x", TensorType("FLOAT", (symbol("h"),)))
    assert reading.of_numbers(x, Call("reciprocal", (count,))).is_real
    assert not reading.of_numbers(x, Call("reciprocal", (index,))).is_real
