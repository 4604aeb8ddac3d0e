"""Rounding: what is too bad to use is refused, what is not is allowed, and search obeys."""

import dataclasses

import numpy as np
import pytest
from graphs import call
from planting import reads_codes
from runtime import Runtime

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.deadline import Deadline
from xflow.core.errors import RuleFileError, ShapeError
from xflow.core.fold import no_constants
from xflow.core.graph import Graph, walk
from xflow.core.node import TensorType, Value, leaf
from xflow.cost.estimate import EstimatedCost
from xflow.onnx.writer import UnwritableError
from xflow.ops import operators
from xflow.rewriting.index import RuleIndex, narrows, operators_of
from xflow.rewriting.numerics import EVERYWHERE, Figures, Numerics, Refusal, parse_numerics
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules
from xflow.search.driver import search
from xflow.search.steps import Steps
from xflow.verifier.database import verify_rule
from xflow.verifier.rounding.measure import measure
from xflow.verifier.rounding.rounded import BF16, FP16, FP32, Precision

MEAN = "ReduceMean(x, axes=[1])"
DEVIATION = f"Sub(x, {MEAN})"
BATCH = ", ".join(["scale", "bias", "mean", "var"])
NORMAL = (
    "Add(Mul(x, Div(scale, Sqrt(Add(var, 1/1024)))), "
    "Sub(bias, Mul(mean, Div(scale, Sqrt(Add(var, 1/1024))))))"
)

UNSTABLE = {
    "softmax without a maximum": (
        "x[N, C]",
        "Softmax(x)",
        "Div(Exp(x), ReduceSum(Exp(x), axes=[1]))",
    ),
    "logarithm of softmax": ("x[N, C]", "LogSoftmax(x)", "Log(Softmax(x))"),
    "logarithm of a sum of exponentials": (
        "x[N, C]",
        "ReduceLogSumExp(x, axes=[1])",
        "Log(ReduceSum(Exp(x), axes=[1]))",
    ),
    "variance as a difference of squares": (
        "x[N, C]",
        f"ReduceMean(Mul({DEVIATION}, {DEVIATION}), axes=[1])",
        f"Sub(ReduceMean(Mul(x, x), axes=[1]), Mul({MEAN}, {MEAN}))",
    ),
    "a term added and taken away": ("x[...] y[...]", "x", "Sub(Add(x, y), y)"),
    "logarithm of an exponential": ("x[...]", "x", "Log(Exp(x))"),
    "sigmoid from 1": ("x[...]", "Sigmoid(Neg(x))", "Sub(1, Sigmoid(x))"),
    "square root of a product of squares": (
        "x[...] y[...]",
        "Abs(Mul(x, y))",
        "Sqrt(Mul(Mul(x, x), Mul(y, y)))",
    ),
    "softmax of a shifted input": ("x[N, C] y[N, 1]", "Softmax(x)", "Softmax(Add(x, y))"),
}
"""Inputs and two sides, of which the first must not become the second in any element type."""

UNSTABLE_IN_FP16 = {
    "square root of a product": (
        "x[...] y[...]",
        "Mul(Sqrt(x), Sqrt(y))",
        "Sqrt(Mul(x, y))",
    ),
    "square root of a square": ("x[...]", "Abs(x)", "Sqrt(Mul(x, x))"),
    "a factor multiplied and divided": ("x[...] y[...]", "x", "Div(Mul(x, y), y)"),
    "product with a reciprocal": ("x[...] y[...]", "Div(x, y)", "Mul(x, Reciprocal(y))"),
    "negative exponential by a reciprocal": ("x[...]", "Exp(Neg(x))", "Reciprocal(Exp(x))"),
}
"""The same of what fp16 alone cannot hold."""

STABLE = {
    "product of matrices": (
        "a[n, m] b[m, k] c[k, l]",
        "MatMul(MatMul(a, b), c)",
        "MatMul(a, MatMul(b, c))",
    ),
    "sum": ("x[...] y[...] z[...]", "Add(Add(x, y), z)", "Add(x, Add(y, z))"),
    "product of a sum": ("x[...] y[...] z[...]", "Mul(x, Add(y, z))", "Add(Mul(x, y), Mul(x, z))"),
    "product of a difference": (
        "a[n, m] b[m, k] c[m, k]",
        "MatMul(a, Sub(b, c))",
        "Sub(MatMul(a, b), MatMul(a, c))",
    ),
    "two convolutions": (
        "x[N, C, S] v[O, C, R] w[O, C, R]",
        "Add(Conv(x, v), Conv(x, w))",
        "Conv(x, Add(v, w))",
    ),
    "scaled convolution": (
        "x[N, C, S] w[O, C, R] r[1, O, 1]",
        "Mul(Conv(x, w), r)",
        "Conv(x, Mul(w, Reshape(r, shape=[O, 1, 1])))",
    ),
    "batch normalization": (
        "x[N, C] scale[C] bias[C] mean[C] var[C]",
        f"BatchNormalization(x, {BATCH}, epsilon=1/1024)",
        NORMAL,
    ),
    "sum of a product": (
        "x[n, m] w[m, k]",
        "ReduceSum(MatMul(x, w), axes=[0])",
        "MatMul(ReduceSum(x, axes=[0]), w)",
    ),
    "softmax less its largest": (
        "x[N, C]",
        "Softmax(x)",
        "Softmax(Sub(x, ReduceMax(x, axes=[1])))",
    ),
    "maximum of shifted inputs": (
        "x[...] y[...] z[...]",
        "Max(Add(x, y), Add(x, z))",
        "Add(x, Max(y, z))",
    ),
    "concatenation": (
        "x[n, m] y[n, k] v[m, l] w[k, l]",
        "MatMul(Concat(x, y, axis=1), Concat(v, w, axis=0))",
        "Add(MatMul(x, v), MatMul(y, w))",
    ),
}
"""Equations that may be used both ways in every element type."""


def equation(inputs: str, source: str, target: str) -> Rule:
    text = f"rule r\n  in {inputs}\n  from {source}\n  to {target}\n  reverse always\n"
    return parse_rules(text)[0]


def refused(rule: Rule) -> frozenset[str]:
    return measure(rule).refused


@pytest.mark.parametrize("name", UNSTABLE)
def test_unstable_direction_is_refused_in_every_type(name: str) -> None:
    assert refused(equation(*UNSTABLE[name])) == EVERYWHERE


@pytest.mark.parametrize("name", UNSTABLE_IN_FP16)
def test_what_only_fp16_cannot_hold_is_refused_there_alone(name: str) -> None:
    assert refused(equation(*UNSTABLE_IN_FP16[name])) == {"FLOAT16"}


@pytest.mark.parametrize("name", STABLE)
def test_stable_equation_may_be_used_both_ways(name: str) -> None:
    assert measure(equation(*STABLE[name])).refusals == ()


@pytest.mark.parametrize("name", [*UNSTABLE, *UNSTABLE_IN_FP16])
def test_way_back_from_an_unstable_form_is_open(name: str) -> None:
    inputs, source, target = (UNSTABLE | UNSTABLE_IN_FP16)[name]
    if name != "square root of a product":  # its way back asks for the root of a negative number
        assert refused(equation(inputs, target, source)) == frozenset()


def test_directions_are_judged_alike_from_either_end() -> None:
    for inputs, source, target in STABLE.values():
        there = measure(equation(inputs, source, target))
        assert measure(equation(inputs, target, source)).refusals == there.refusals


def test_figures_are_the_same_each_time_and_for_every_name() -> None:
    rule = equation(*STABLE["two convolutions"])
    again = dataclasses.replace(rule, name="other")
    np.random.seed(1)
    assert str(measure(rule)) == str(measure(again))
    assert parse_numerics(str(measure(rule))) == measure(rule)


def test_figures_are_about_the_unit_of_each_type() -> None:
    for line in measure(equation(*STABLE["product of matrices"])).figures:
        unit = {p.name: p.digits for p in (FP32, FP16, BF16)}[line.type]
        for figure in (line.left, line.right, line.extreme_left, line.extreme_right):
            assert abs(int(figure.removeprefix("2^")) + unit) <= 2


def test_equal_sides_have_equal_figures() -> None:
    for figures in measure(equation("x[...] y[...]", "Div(x, y)", "Div(x, y)")).figures:
        assert (figures.left, figures.extreme_left) == (figures.right, figures.extreme_right)


def test_movements_are_exact() -> None:
    line = measure(equation("x[n, m]", "Transpose(Transpose(x))", "x"))
    assert {*map(dataclasses.astuple, line.figures)} == {
        (name, "0", "0", "0", "0") for name in ("fp32", "fp16", "bf16")
    }


def test_conditions_on_values_are_kept_to() -> None:
    text = "rule r\n  in x[...] s[...]\n  from Relu(Mul(x, s))\n  to Mul(Relu(x), s)\n"
    (rule,) = parse_rules(f"{text}  where s > 0\n")
    assert measure(rule).refused == frozenset()
    assert measure(parse_rules(text)[0]).refused == EVERYWHERE


def test_what_cannot_be_measured_is_refused() -> None:
    rule = equation("x[n]", "Neg(Neg(x))", "x")
    line = measure(dataclasses.replace(rule, where=("n >= 3", "2 >= n")))
    assert {item.direction for item in line.refusals} == {"forward", "reverse"}
    assert line.refused == EVERYWHERE
    assert parse_numerics(str(line)) == line


# The line


def test_line_turns_with_the_rule() -> None:
    line = Numerics(
        (Figures("fp32", "2^-24", "2^-23", "0", "inf"),),
        (Refusal("forward", "overflow"), Refusal("reverse", "error", "fp16")),
    )
    assert str(line) == (
        "fp32 2^-24 2^-23, extreme 0 inf; refused: forward (overflow), reverse in fp16 (error)"
    )
    rule = dataclasses.replace(SHARED, reverse=(), notes={"numerics": str(line)})
    forward, back = rule.directions()
    assert forward.numerics == line
    assert back.numerics == line.turned()
    assert forward.numerics.refused == EVERYWHERE
    assert back.numerics.refused == {"FLOAT16"}
    assert line.turned().turned() == line


@pytest.mark.parametrize(
    "line",
    [
        "fp32 2^-24 2^-23, extreme 0 inf",
        "fp8 2^-24 2^-23, extreme 0 inf; refused: none",
        "fp32 2^-24, extreme 0 inf; refused: none",
        "fp32 2^-24 2^-23, extreme 0 inf; refused: sideways (error)",
        "fp32 2^-24 2^-23, extreme 0 inf; refused: forward in fp8 (error)",
        "exact; fp32 2^-24 2^-23, extreme 0 inf; refused: none",
        "",
    ],
)
def test_malformed_line_is_an_error_of_the_rule_file(line: str) -> None:
    with pytest.raises(RuleFileError, match=r"numerics line|refused"):
        parse_rules(f"rule r\n  in x[...]\n  from Neg(Neg(x))\n  to x\n  numerics {line}\n")


def test_wrong_line_is_found_when_the_rule_is_verified() -> None:
    rule = equation("x[...]", "Neg(Neg(x))", "x")
    line = str(measure(rule))
    assert verify_rule(dataclasses.replace(rule, notes={"numerics": line})) is None
    wrong = line.replace("fp32 0", "fp32 2^-24")
    failure = verify_rule(dataclasses.replace(rule, notes={"numerics": wrong}))
    assert failure
    assert line in failure.verdict_text


# Search


def tensor(key: str, dtype: str) -> Value:
    return leaf(key, TensorType(dtype, (64, 64)))


SHARED = equation("x[...]", "Sigmoid(Neg(x))", "Sub(1, Sigmoid(x))")
PRODUCT = equation("x[...] y[...]", "Mul(Sqrt(x), Sqrt(y))", "Sqrt(Mul(x, y))")


def measured(rule: Rule) -> Rule:
    rule = dataclasses.replace(rule, reverse=None)
    return dataclasses.replace(rule, notes={"numerics": str(measure(rule))})


def test_search_never_takes_a_refused_direction_though_it_pays() -> None:
    x = tensor("x", "FLOAT")
    graph = Graph((call("Sigmoid", x), call("Sigmoid", call("Neg", x))))

    def best(rule: Rule) -> Graph:
        result = search(graph, [rule], EstimatedCost(), deadline=Deadline.after(10))
        return result.graph

    assert best(dataclasses.replace(SHARED, reverse=None)) != graph
    assert best(measured(SHARED)) == graph


@pytest.mark.parametrize(("dtype", "steps"), [("FLOAT", 1), ("FLOAT16", 0), ("BFLOAT16", 1)])
def test_direction_refused_in_fp16_alone_is_taken_in_other_types(dtype: str, steps: int) -> None:
    x, y = tensor("x", dtype), tensor("y", dtype)
    graph = Graph((call("Mul", call("Sqrt", x), call("Sqrt", y)),))
    index = RuleIndex([measured(PRODUCT)])
    # Mul commutes, so the rule matches in both orders.
    assert bool(list(Steps(index, no_constants).of(graph))) == bool(steps)


def test_index_leaves_out_what_is_refused_everywhere() -> None:
    rule = dataclasses.replace(SHARED, reverse=())
    both = dataclasses.replace(rule, notes={"numerics": str(measure(rule))})
    index = RuleIndex([both])
    entries = [entry for op in operators() for rank in range(4) for entry in index.single(op, rank)]
    assert {entry.name for entry in entries} == {"r.reverse"}


# The runtime


ROUGH = frozenset({"Sigmoid", "Swish"})
"""Operators for which the runtime has a kernel that is exact to a unit of 1, not of the result."""


def is_excused(way: Rule, precision: Precision) -> bool:
    """Whether the search does not take it in fp16, or it leads to a rough kernel in fp32."""
    instance = way.instance(way.usable_ranks[0])
    if precision is FP16:
        return narrows(instance)
    sides = instance.lhs, instance.rhs
    before, after = ({op.name for op in operators_of(walk(side))} for side in sides)
    return not after.isdisjoint(ROUGH) and before.isdisjoint(ROUGH)


def lost(rule: Rule, precision: Precision) -> set[str]:
    """The directions of a rule that are allowed, and lose too much in the runtime."""
    expected = {item.direction for item in measure(rule, (precision,)).refusals}
    for way in rule.directions():
        if is_excused(way, precision):
            expected.add("reverse" if way.name.endswith(".reverse") else "forward")
    try:
        seen = {item.direction for item in measure(rule, (precision,), Runtime()).refusals}
    except (UnwritableError, ShapeError):  # neither a kernel nor an operator of that type
        assert precision is FP16
        return set()
    return seen - expected


@pytest.mark.parametrize("precision", [FP32, FP16], ids=lambda precision: precision.name)
@pytest.mark.parametrize("step", [60, pytest.param(1, marks=pytest.mark.many)])
def test_runtime_loses_nothing_in_a_direction_that_is_allowed(
    precision: Precision, step: int
) -> None:
    for rule in load_rules(default_directory())[::step]:
        if reads_codes(rule):
            continue  # `test_coded_networks` runs these
        assert not lost(rule, precision), rule.name
