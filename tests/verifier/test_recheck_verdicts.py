# ruff: noqa: E501 - rules and certificates are lines
"""What the second checker calls wrong: a counterexample that it evaluated exactly, or no certificate."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificates import Data, bare
from equations import one
from hypothesis import given
from hypothesis import strategies as st
from longer import some
from places import CORPUS

from xflow.core.constraint import in_range
from xflow.core.enclosure import UndecidedError
from xflow.core.evaluation import run
from xflow.core.graph import requirements, walk
from xflow.core.node import Leaf
from xflow.core.size import symbol
from xflow.core.spec import (
    Element,
    Scalar,
    call,
    evaluate,
    fresh_names,
    is_less,
    max_over,
    sum_over,
    times,
)
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.proof import instance as proof_of_instance
from xflow.verifier.proof.instance import InstanceProof, _Reading
from xflow.verifier.prove import Proved, prove
from xflow.verifier.recheck import check, database
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.exact import value_of
from xflow.verifier.recheck.floats import find_difference
from xflow.verifier.recheck.verdicts import Confirmed, Difference, NotConfirmed, Wrong
from xflow.verifier.refutation.refute import Survived, concretize, search_counterexample

# True rules

WINDOWS = parse_rules("""
rule windows-of-one-element
  in       x[N, C, m]
  param    k l
  from     MaxPool(x, kernel_shape=[l], strides=[1])
  to       ReduceMax(Reshape(x, shape=[N, C, k, m]), axes=[2], keepdims=0)
  where    l == 1, k == 1, finite(x)

rule windows-of-a-column
  in       x[N, C, k, 1]
  param    m l
  from     MaxPool(x, kernel_shape=[k, m], strides=[l, l])
  to       ReduceMax(Reshape(x, shape=[N, C, m, k, k, m]), axes=[2, 3], keepdims=0)
  where    k == m, m == 1

rule windows-of-a-row
  in       x[N, C, l, m]
  param    k
  from     MaxPool(x, kernel_shape=[k, m], strides=[m, k])
  to       ReduceMax(Reshape(x, shape=[N, C, k, m, m]), axes=[2], keepdims=0)
  where    l == 1, k == m

rule windows-whose-sizes-add-up
  in       x[N, C, 1]
  param    w h
  from     ReduceMax(Reshape(x, shape=[N, C, h, w]), axes=[2], keepdims=0)
  to       MaxPool(x, kernel_shape=[h], strides=[1])
  where    w >= 1, h + w == 2

rule windows-of-a-square
  in       x[N, C, m]
  param    k
  from     ReduceMax(Reshape(x, shape=[N, C, k * k, m]), axes=[2], keepdims=0)
  to       MaxPool(x, kernel_shape=[k * k], strides=[k * k])
  where    m == 1, (m//(k*k)) == m
""")
"""True by an equation among the conditions; all but the first few were once called wrong."""


@pytest.mark.parametrize("rule", WINDOWS, ids=lambda rule: rule.name)
def test_windows_that_are_whole_by_an_equation_are_confirmed(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    rule = replace(rule, where=verdict.where)
    found = recheck_rule(rule, json.loads(json.dumps(verdict.certificate)))
    assert isinstance(found, Confirmed), str(found)


OF_ONE_ELEMENT = json.loads("""
{"in": "x[N, C, m]", "param": "k l", "rank": "0", "where": "l == 1, k == 1, finite(x)",
 "from": "MaxPool(x, kernel_shape=[l], strides=[1])",
 "to": "ReduceMax(Reshape(x, shape=[N, C, k, m]), axes=[2], keepdims=0)",
 "ranks": [{"rank": 0,
  "assume": ["N >= 0", "C >= 0", "m >= 0", "l >= 1", "m >= l", "l == 1", "k == 1"],
  "require": ["N >= 0", "C >= 0", "k >= 0", "m >= 0", "C*N*m == C*N*k*m", "k >= 1"],
  "outputs": [{"index": ["_i0", "_i1", "_i2"],
   "where": ["_i0 >= 0", "N >= _i0 + 1", "_i1 >= 0", "C >= _i1 + 1", "_i2 >= 0", "m >= _i2 + l"],
   "left": [{"of": [{"maximum": [{"over": "_kc1_0", "where": "_kc1_0 >= 0, l >= _kc1_0 + 1",
    "value": [{"of": ["x[_i0, _i1, _i2 + _kc1_0]"]}]}]}]}],
   "right": [{"of": [{"maximum": [{"over": "_kc1_0", "where": "_kc1_0 >= 0, k >= _kc1_0 + 1",
    "value": [{"of": ["x[_i0, _i1, _kc1_0*m + _i2]"]}]}]}]}],
   "groups": [
    [{"times": "-1", "of": ["x[_i0, _i1, _i2 + _kc1_0]"]}, {"of": ["x[_i0, _i1, _i2]"]}],
    [{"times": "-1", "of": ["x[_i0, _i1, _i2 + _kc1_0]"]}, {"of": ["x[_i0, _i1, k*m + _i2 - m]"]}],
    ["right 0", "left 0"]],
   "witnesses": [{"_kc1_0": "_kc1_0*m"}, {"_kc1_0": "0"}, {"_kc1_0": "k - 1"}],
   "obligations": []}]}]}
""")
"""A true certificate whose groups hold inside of a maximum alone, where _kc1_0 is 0."""


def test_a_group_that_holds_where_it_was_used_is_not_asked_to_hold_everywhere() -> None:
    found = recheck_rule(WINDOWS[0], OF_ONE_ELEMENT)
    assert isinstance(found, Confirmed), str(found)


def test_a_group_that_holds_nowhere_is_not_confirmed_and_not_called_wrong() -> None:
    rule = one("x[n, m]", "ReduceSum(Relu(x), axes=[1])", "ReduceSum(Max(0, x), axes=[1])")
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved)
    rule = replace(rule, where=verdict.where, exact=verdict.exact)
    certificate = json.loads(json.dumps(verdict.certificate))
    assert isinstance(recheck_rule(rule, certificate), Confirmed)
    output = certificate["ranks"][0]["outputs"][0]
    false = [{"times": "-1", "of": ["x[_i0, 0]"]}, {"of": ["x[_i0, 1]"]}]
    output["groups"] = [*output.get("groups", ()), false]
    output["obligations"].append({"sum is zero": [["1", ""], ["-1", ""]]})
    found = recheck_rule(rule, certificate)
    assert isinstance(found, NotConfirmed)
    assert "a recorded step is not shown to follow" in found.reason


ROUNDED = [
    one("x[...] y[...]", "Less(Mul(Exp(x), Exp(y)), 1)", "Less(Add(x, y), 0)"),
    one("x[...] y[...]", "Less(Log(Exp(x)), y)", "Less(x, y)"),
    one("x[...]", "Floor(Mul(Sqrt(Relu(x)), Sqrt(Relu(x))))", "Floor(Relu(x))"),
    one(
        "x[n, m]",
        "Less(ReduceMean(Exp(x), axes=[1]), 1)",
        "Less(ReduceSum(Exp(x), axes=[1]), ReduceSum(Exp(Sub(x, x)), axes=[1]))",
        "  where m >= 1\n",
    ),
    one("x[...]", "Log(Sub(Exp(Mul(x, 20)), Exp(Mul(x, 20))))", "Log(Mul(x, 0))"),
    one("x[...] y[...]", "Mul(0, Div(x, y))", "Sub(Div(x, y), Div(x, y))"),
    one(
        "x[n, 0] w[0, m] b[m] i[]:int",
        "MatMul(x, Gather(w, Expand(Unsqueeze(i, axes=[0]), shape=[k]), axis=1))",
        "Mul(MatMul(x, Gather(w, Expand(Unsqueeze(i, axes=[0]), shape=[k]), axis=1)),"
        " Gather(b, Expand(Unsqueeze(i, axes=[0]), shape=[k]), axis=0))",
        "  param k\n",
    ),
]
"""True equations whose sides differ in floating-point arithmetic, or where the left is undefined.

In the last one nothing is read at an index that is out of range, on the left side.
"""


@pytest.mark.parametrize("rule", ROUNDED, ids=lambda rule: rule.lhs)
def test_a_rounding_error_is_no_counterexample(rule: Rule) -> None:
    found = recheck_rule(rule, bare(rule), cases=40)
    assert not isinstance(found, Wrong), str(found)


TRUE = parse_rules((CORPUS / "good.rules").read_text("utf-8"))


@pytest.mark.parametrize("rule", some(TRUE, 2), ids=lambda rule: rule.name)
def test_a_true_rule_is_not_called_wrong_for_what_its_certificate_lacks(rule: Rule) -> None:
    if not isinstance(search_counterexample(rule, cases=6), Survived):
        pytest.skip("it needs conditions, which it does not state")
    one_way = replace(rule, reverse=None)
    found = recheck_rule(one_way, bare(one_way), cases=4)
    assert isinstance(found, Confirmed | NotConfirmed), str(found)


@pytest.mark.parametrize(
    ("inputs", "left", "right", "where"),
    [
        ("x[n]", "x", "Neg(x)", "n + 1 == 0"),
        ("x[n, k]", "x", "Neg(x)", "k >= 2, k <= 1"),
        ("x[n]", "Slice(x, starts=[0], ends=[n], axes=[0], steps=[1])", "Neg(x)", "n <= -1"),
    ],
)
def test_a_rule_without_a_case_is_neither_wrong_nor_confirmed(
    inputs: str, left: str, right: str, where: str
) -> None:
    rule = one(inputs, left, right, f"  where {where}\n")
    found = recheck_rule(rule, bare(rule))
    assert isinstance(found, NotConfirmed), str(found)


# False rules

FALSE = [
    *parse_rules((CORPUS / "bad_boundaries.rules").read_text("utf-8")),
    one("a[n, n] b[n, n]", "MatMul(a, b)", "MatMul(b, a)"),
    one("x[...] y[...]", "x", "Div(Mul(x, y), y)"),
    one("x[...]", "Exp(x)", "Exp(Mul(x, 2))"),
    one("x[...]", "Log(x)", "Log(Abs(Sub(x, 1)))"),
    one("x[n, m] i[k]:int", "Gather(x, i, axis=0)", "Gather(Add(x, 1), i, axis=0)"),
    one("x[...]", "Mul(x, Scalar(value=t))", "x", "  param t:real\n"),
]


@pytest.mark.parametrize("rule", FALSE, ids=lambda rule: f"{rule.name} {rule.lhs}")
def test_a_false_rule_is_wrong_by_numbers_at_which_its_sides_differ(rule: Rule) -> None:
    found = recheck_rule(rule, bare(rule), cases=60)
    assert isinstance(found, Wrong), str(found)
    assert found.difference is not None
    assert_differs(rule, found.difference)


def assert_differs(rule: Rule, found: Difference) -> None:
    """The operators' numpy readings differ there, too, or the right side is not defined."""
    instance = rule.instance(found.rank)
    inputs = {
        node.op.key: as_floats(found.inputs[node.op.key], node.types[0].dtype)
        for node in walk((*instance.lhs, *instance.rhs))
        if isinstance(node.op, Leaf)
    }
    reals = {name: array[()] for name, array in found.inputs.items() if name not in inputs}
    shapes = {name: array.shape for name, array in inputs.items()}
    sides = []
    with np.errstate(all="ignore"):
        for side in (instance.lhs, instance.rhs):
            try:
                values = concretize(side, found.sizes, reals, shapes)
                output = run(values, inputs)[found.output]
                sides.append(float(output[found.index]))
            except IndexError:
                assert "undefined" in found.right
                return
    if "undefined" in found.right:
        assert not math.isfinite(sides[1])
    # At a tie of numbers that no float has, only exact arithmetic sees it.
    elif all(float(x) == x for array in inputs.values() for x in np.ravel(array)):
        assert sides[0] != sides[1] or "/" in found.left + found.right + str(found.inputs)


def as_floats(array: Any, dtype: str) -> Any:
    return array.astype({"BOOL": bool, "INT": np.int64}.get(dtype, np.float64))


def test_a_counterexample_is_told_with_its_numbers() -> None:
    rule = one("x[n] y[n]", "Less(x, y)", "LessOrEqual(x, y)", "  where n == 1\n")
    found = recheck_rule(rule, bare(rule), cases=20)
    assert isinstance(found, Wrong)
    assert "with n = 1, output 0 at [0] is 0 left and 1 right, where x = [" in str(found)


def test_wrong_without_a_counterexample_is_said_of_documents_alone(tmp_path: Path) -> None:
    rule = one("a[n, m] b[m, k]", "MatMul(a, b)", "Identity(MatMul(a, b))")
    good = bare(rule)
    assert isinstance(recheck_rule(rule, good), Confirmed)

    def changed(**parts: object) -> Data:
        return copy.deepcopy(good) | parts

    ranks = good["ranks"]
    documents: tuple[object, ...] = (
        None,
        [],
        {},
        changed(where="n >= 1"),
        changed(**{"from": "MatMul(b, a)"}),
        changed(ranks=[]),
        changed(ranks=[{**ranks[0], "assume": []}]),
        changed(ranks=[{**ranks[0], "require": ["n >= 7"]}]),
        changed(ranks=[{**ranks[0], "outputs": []}]),
    )
    for document in documents:
        found = recheck_rule(rule, document)
        assert isinstance(found, Wrong), document
        assert found.difference is None
    path = database.certificate_path(tmp_path, rule.name)
    assert isinstance(database.recheck_file(rule, tmp_path), Wrong)
    path.parent.mkdir()
    path.write_text('{"in": ', encoding="utf-8")
    assert isinstance(database.recheck_file(rule, tmp_path), Wrong)
    path.unlink()
    path.mkdir()
    assert isinstance(database.recheck_file(rule, tmp_path), NotConfirmed)


def test_an_index_that_is_not_shown_to_be_covered_is_not_called_wrong() -> None:
    certificate = copy.deepcopy(OF_ONE_ELEMENT)
    conditions = certificate["ranks"][0]["outputs"][0]["where"]
    conditions.append("m >= _i2 + k")  # as good as the range itself, since k is l
    assert isinstance(recheck_rule(WINDOWS[0], certificate), Confirmed)
    conditions.append("_i2 >= 1")
    found = recheck_rule(WINDOWS[0], certificate)
    assert isinstance(found, NotConfirmed)
    assert "cover" in found.reason


# The exact reading

N = symbol("n")


def x(index: Any) -> Scalar:
    return Element("x", (index,))


SCALARS: Mapping[str, Scalar] = {
    "sum": sum_over(N, lambda k: times(x(k), x(k), 3)),
    "maximum": max_over(N, lambda k: x(k) - x(0)),
    "choice": is_less(x(0), x(N - 1)),
    "quotient": x(0) / (x(N - 1) + 1),
    "floor": call("floor", x(0) * Fraction(1, 3)),
    "functions": call("exp", x(0)) - call("tanh", call("abs", x(N - 1))),
    "sign": call("sign", sum_over(N, x)),
    "power": call("power", call("abs", x(0)), Fraction(1, 2)),
}


@pytest.mark.parametrize("name", SCALARS)
@given(numbers=st.lists(st.fractions(-4, 4, max_denominator=6), min_size=1, max_size=4))
def test_the_exact_reading_agrees_with_that_of_the_specification_language(
    name: str, numbers: list[Fraction]
) -> None:
    array = np.empty(len(numbers), dtype=object)
    array[:] = numbers
    sizes = {"n": len(numbers)}
    found = value_of(SCALARS[name], {"x": array}, sizes)
    assert found is not None
    try:
        expected = evaluate(SCALARS[name], {"x": array}, sizes)
    except ZeroDivisionError:
        assert not found.is_defined
        return
    assert found.is_defined
    if isinstance(expected, float):
        assert abs(found - Fraction(expected)) < Fraction(1, 10**12)
    else:
        assert found.exact == expected


def test_a_comparison_that_bounds_do_not_tell_is_undecided() -> None:
    two = call("sqrt", Fraction(2))
    with pytest.raises(UndecidedError):
        value_of(is_less(two * two, 2), {}, {})


def test_what_is_evaluated_exactly_does_not_depend_on_the_order_of_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A false rule is told to be false though its certificate has no replay, either."""
    rule = one("x[n]", "Relu(x)", "Abs(x)")
    certificate = bare(rule)
    certificate["ranks"][0]["outputs"] = [
        {"index": ["_i0"], "where": ["_i0 >= 0"], "left": [{"of": ["x[_i1]"]}], "right": []}
    ]
    assert isinstance(recheck_rule(rule, certificate), Wrong)
    blind: Callable[..., int] = lambda *_: 1  # noqa: E731
    monkeypatch.setattr(check, "compare_at_random", blind)
    assert isinstance(recheck_rule(rule, certificate), NotConfirmed)


def test_digits_that_two_axes_share_reach_the_diagonal_alone() -> None:
    """A certificate is forged, by a proof at these indices only."""
    (rule,) = parse_rules(
        "rule r\n  in y[1, 1] z[n, n]\n  from z\n"
        "  to Where(Equal(Mul(y, y), 6255001), Transpose(z, perm=[1, 0]), z)\n"
        "  where finite(y), finite(z)\n"
    )
    (instance,) = rule.instances()
    with fresh_names():
        proof = InstanceProof(instance)
        i = symbol("_i9")
        with proof.arithmetic, proof.arithmetic.assuming(proof.conditions):
            reading = _Reading((i, i), in_range(i, symbol("n")), None)
            output = proof._compare_by(instance.lhs[0], instance.rhs[0], reading)
    rank = {
        "rank": 0,
        "assume": [str(c) for c in check.assumptions(instance)],
        "require": [str(c) for c in requirements(instance.rhs)],
        "outputs": [output],
    }
    certificate = {**check.statement_of(rule), "ranks": [rank]}
    found = recheck_rule(rule, json.loads(json.dumps(certificate)))
    assert isinstance(found, NotConfirmed)
    assert "digits" in found.reason


def test_what_compares_numbers_that_are_not_defined_is_not_confirmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 is not at least NaN, but at least 0. The prover is told that nothing compares so."""
    (rule,) = parse_rules(
        "rule r\n  in y[n]\n  from GreaterOrEqual(0, Mul(Reciprocal(Sub(Mul(y, y), 2500)), 0))\n"
        "  to GreaterOrEqual(0, Mul(y, 0))\n  where finite(y)\n"
    )
    monkeypatch.setattr(proof_of_instance, "loses_undefined", lambda values: False)
    verdict = prove(rule, both_ways=False, infer=False)
    assert isinstance(verdict, Proved)
    found = recheck_rule(rule, json.loads(json.dumps(verdict.certificate)))
    assert isinstance(found, NotConfirmed)
    assert "compares" in found.reason


def test_what_an_elementwise_kernel_gives_may_be_nan() -> None:
    """The prover refuses it; the second checker must by itself."""
    (rule,) = parse_rules(
        "rule r\n  in x[n] a[n] b[n]\n  from Where(Equal(Tanh(x), Tanh(x)), a, b)\n"
        "  to a\n  exact bits\n"
    )
    (instance,) = rule.instances()
    sides = instance.lhs[0], instance.rhs[0]
    assert find_difference(instance, sides, check.assumptions(instance)) is not None
