"""Maxima: what is true of them is proved, their look-alikes are refuted, signs are never wrong."""

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from longer import some
from places import CORPUS

from xflow.core.constraint import Constraint, Relation, at_least, in_range
from xflow.core.size import evaluate as evaluate_size
from xflow.core.size import symbol
from xflow.core.spec import (
    FUNCTIONS,
    Bottom,
    Call,
    Element,
    MaxOver,
    Scalar,
    call,
    evaluate,
    max_over,
    plus,
    scalar,
    sum_over,
    times,
    where,
)
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.maxima import outer_minimum
from xflow.verifier.algebra.normal import Normalizer
from xflow.verifier.algebra.signs import Signs
from xflow.verifier.algebra.terms import Base, Function, Group, Maximum, Normal, SizeAtom
from xflow.verifier.matching.abstraction import equal_abstractly
from xflow.verifier.matching.match import Equality
from xflow.verifier.proof.instance import InstanceProof
from xflow.verifier.prove import Proved, Refuted, prove

TRUE = parse_rules((CORPUS / "maxima.rules").read_text(), "maxima.rules")
FALSE = parse_rules((CORPUS / "bad_maxima.rules").read_text(), "bad_maxima.rules")
SIZES = {"n": 3, "i": 1}
"""Values of the symbols in the expressions below; a range over n is 0, 1, 2."""


def names(rule: Rule) -> str:
    return rule.name


@pytest.mark.parametrize("rule", some(TRUE, 2), ids=names)
def test_a_true_rule_about_maxima_is_proved(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    assert set(verdict.where) == set(rule.where)


@pytest.mark.parametrize("rule", FALSE, ids=names)
def test_a_false_rule_about_maxima_is_refuted(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Refuted), str(verdict)
    # Nor would the prover have believed it without the counterexample.
    assert any(InstanceProof(instance).attempt().failure for instance in rule.instances())


# Expressions

X, Y, Z = (Element(name, ()) for name in "xyz")
numbers = st.fractions(-3, 3, max_denominator=2)
leaves = st.sampled_from([X, Y, Z]) | st.integers(-2, 2).map(scalar)


def _combined(parts: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Scalar]:
    pairs = st.tuples(parts, parts)
    return (
        pairs.map(lambda p: plus(*p))
        | pairs.map(lambda p: plus(p[0], times(-1, p[1])))
        | pairs.map(lambda p: times(*p))
        | pairs.map(lambda p: call("max", *p))
        | pairs.map(lambda p: call("min", *p))
        | parts.map(lambda p: call("abs", p))
        | parts.map(lambda p: call("max", p, 0))
        | parts.map(lambda p: call("sqrt", times(p, p)))
        | parts.map(lambda p: max_over(symbol("n"), lambda k: times(_row(k), p)))
        | parts.map(lambda p: max_over(symbol("n"), lambda k: call("min", plus(_row(k), p), p)))
        | parts.map(lambda p: max_over(symbol("n"), lambda k: plus(p, call("abs", _row(k)))))
        | parts.map(lambda p: sum_over(symbol("n"), lambda k: times(p, p, call("max", _row(k), 0))))
        | parts.map(lambda p: max_over(symbol("n"), lambda k: _window(k, p)))
    )


def _row(k: Any) -> Scalar:
    return Element("row", (k,))


def _window(k: Any, summand: Scalar) -> Scalar:
    """``summand + row[k + i - 1]`` where there is such an element: never nowhere."""
    position = k + symbol("i") - 1
    return where(in_range(position, symbol("n")), plus(summand, _row(position)), Bottom())


expressions = st.recursive(leaves, _combined, max_leaves=5)
points = st.fixed_dictionaries(
    {
        "x": numbers,
        "y": numbers,
        "z": numbers,
        "row": st.lists(numbers, min_size=3, max_size=3),
    }
)


def tensors(point: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(value, dtype=object) for name, value in point.items()}


def value_of(normal: Normal, given: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """The number that a normal form denotes, by its definition."""

    def holds(guard: Constraint, env: Mapping[str, int]) -> bool:
        value = evaluate_size(guard.difference, env)
        return value >= 0 if guard.relation is Relation.AT_LEAST else value == 0

    def points_of(
        variables: tuple[str, ...], guards: tuple[Constraint, ...], env: Mapping[str, int]
    ) -> Any:
        for values in itertools.product(range(-4, 8), repeat=len(variables)):
            here = {**env, **dict(zip(variables, values, strict=True))}
            if all(holds(guard, here) for guard in guards):
                yield here

    def total(n: Normal, env: Mapping[str, int]) -> Any:
        return sum(
            (
                math.prod(
                    (base(b, here) ** e for b, e in term.powers), start=Fraction(term.coefficient)
                )
                for term in n.terms
                for here in points_of(term.variables, term.guards, env)
            ),
            start=Fraction(0),
        )

    def base(b: Base, env: Mapping[str, int]) -> Any:
        match b:
            case Element(tensor, index):
                return given[tensor][tuple(evaluate_size(i, env) for i in index)]
            case SizeAtom(size):
                return Fraction(evaluate_size(size, env))
            case Function(name, args):
                return FUNCTIONS[name](*(total(arg, env) for arg in args))
            case Group(body):
                return total(body, env)
            case Maximum(options):
                return max(
                    total(option.body, here)
                    for option in options
                    for here in points_of(option.variables, option.guards, env)
                )
        raise TypeError(type(b))

    return total(normal, sizes)


ASSUMED = (*(at_least(symbol(name), 1) for name in SIZES), *in_range(symbol("i"), symbol("n")))


@settings(max_examples=60, deadline=None)
@given(expression=expressions, point=points)
def test_simplified_maxima_have_the_value_of_the_expression(
    expression: Scalar, point: dict[str, Any]
) -> None:
    made = Normalizer(Arithmetic())
    given_tensors = tensors(point)
    with made.arithmetic.assuming(ASSUMED), made.set(merges=False, unrolls=False, tropical=True):
        normal = made.normal(expression)
    expected = evaluate(expression, given_tensors, SIZES)
    assert expected is not None
    found = value_of(normal, given_tensors, SIZES)
    assert found == expected or math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    expression=expressions,
    point=points,
    tropical=st.booleans(),
    known=st.sampled_from([">", ">=", ""]),
)
def test_a_sign_that_is_shown_is_the_sign_of_the_value(
    expression: Scalar, point: dict[str, Any], tropical: bool, known: str
) -> None:
    made = Normalizer(Arithmetic())
    facts = {"x": known} if known else {}
    made.facts = facts
    x = abs(point["x"]) or (Fraction(1) if known == ">" else Fraction(0))
    given_tensors = tensors({**point, "x": x if known else point["x"]})
    with (
        made.arithmetic.assuming(ASSUMED),
        made.set(merges=False, unrolls=False, tropical=tropical),
    ):
        normal = made.normal(expression)
        signs = Signs(made.arithmetic, facts)
        nonnegative, positive = signs.is_nonnegative(normal), signs.is_positive(normal)
    value = evaluate(expression, given_tensors, SIZES)
    assert value is not None
    assert value >= -1e-9 or not nonnegative
    assert value > 0 or not positive


@settings(max_examples=40, deadline=None)
@given(left=expressions, right=expressions, point=points)
def test_expressions_that_are_shown_equal_have_equal_values(
    left: Scalar, right: Scalar, point: dict[str, Any]
) -> None:
    equality = Equality(Arithmetic())
    given_tensors = tensors(point)
    made = equality.normalizer
    with (
        equality.arithmetic.assuming(ASSUMED),
        made.set(merges=False, unrolls=False, tropical=True),
    ):
        normals = made.normal(left), made.normal(right)
        shown = equality.equal(*normals) or equal_abstractly(*normals, equality, {})
    if shown:
        values = [evaluate(side, given_tensors, SIZES) for side in (left, right)]
        assert all(value is not None for value in values)
        assert math.isclose(*map(float, values), rel_tol=1e-9, abs_tol=1e-9)  # type: ignore[arg-type]


# Signs


def _nonnegative(expression: Scalar, facts: Mapping[str, str] | None = None) -> bool:
    made = Normalizer(Arithmetic())
    made.facts = facts or {}
    with made.arithmetic.assuming(ASSUMED), made.set(merges=False, unrolls=False, tropical=True):
        return Signs(made.arithmetic, made.facts).is_nonnegative(made.normal(expression))


@pytest.mark.parametrize(
    "expression",
    [
        times(X, X),
        plus(times(X, X), call("exp", Y), symbol("n") - 1),
        call("abs", X),
        call("abs", plus(X, Y)),
        plus(call("abs", plus(X, Y)), X, Y),
        call("max", plus(X, Y), times(Z, Z)),
        times(call("max", X, 0), call("max", Y, 0), call("sqrt", Z)),
        max_over(symbol("n"), lambda k: call("abs", _row(k))),
        sum_over(symbol("n"), lambda k: times(_row(k), _row(k))),
        call("min", times(X, X), 3),
        plus(call("max", X, Y), times(-1, X)),
    ],
)
def test_what_is_never_negative_is_seen_to_be(expression: Scalar) -> None:
    assert _nonnegative(expression)


@pytest.mark.parametrize(
    "expression",
    [
        X,
        times(X, Y),
        plus(times(X, X), -1),
        symbol("n") - 3,
        call("log", X),
        call("min", X, 1),
        times(X, call("abs", X)),
        plus(X, call("max", X, 0)),
        max_over(symbol("n"), _row),
        sum_over(symbol("n"), lambda k: times(_row(k), _row(0))),
    ],
)
def test_what_may_be_negative_is_not_taken_for_anything_else(expression: Scalar) -> None:
    assert not _nonnegative(scalar(expression))


def test_a_fact_about_an_input_is_used() -> None:
    assert _nonnegative(plus(times(X, call("exp", Y)), X), {"x": ">="})
    assert not _nonnegative(plus(times(X, Y), X), {"x": ">="})
    assert not _nonnegative(X, {"x": "!="})


# Maxima over ranges


def test_a_minimum_is_taken_out_of_a_maximum_only_without_its_variables() -> None:
    taken = outer_minimum(max_over(symbol("n"), lambda k: call("min", _row(k), X)))
    assert isinstance(taken, Call)
    assert isinstance(taken.args[0], MaxOver)
    assert taken.args[1:] == (X,)
    assert outer_minimum(max_over(symbol("n"), lambda k: call("min", _row(k), _row(k + 1)))) is None
    assert outer_minimum(max_over(symbol("n"), _row)) is None


def test_an_option_that_counts_only_in_places_dominates_nothing_elsewhere() -> None:
    padded = max_over(
        symbol("n"),
        lambda k: where(in_range(k, symbol("i")), plus(_row(k), 1), _row(k)),
    )
    made = Normalizer(Arithmetic())
    with made.arithmetic.assuming(ASSUMED), made.set(merges=False, unrolls=False, tropical=True):
        (term,) = made.normal(padded).terms
    ((base, _),) = term.powers
    assert isinstance(base, Maximum)
    assert len(base.options) == 2


def test_a_quotient_is_not_taken_out_of_an_option_that_is_not_always_there() -> None:
    # Where i = 0 the first option is not there and y may be 0.
    quotient = where((at_least(symbol("i"), 1),), call("reciprocal", Y), Bottom())
    made = Normalizer(Arithmetic())
    inside = max_over(symbol("n"), lambda k: call("max", quotient, _row(k)))
    with (
        made.arithmetic.assuming([at_least(symbol("n"), 1), at_least(symbol("i"), 0)]),
        made.set(merges=False, unrolls=False, tropical=True),
    ):
        normal = made.normal(inside)
    read = {base for term in normal.terms if not term.guards for base, _ in term.powers}
    assert Y not in read
