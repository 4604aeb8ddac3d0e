"""Inputs at the boundaries of comparisons: false equations are refuted there, true ones are not."""

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from equations import one
from hypothesis import given
from hypothesis import strategies as st
from places import CORPUS

from xflow.core.enclosure import UNDEFINED, Enclosure, UndecidedError, differ, pi
from xflow.core.registry import Array
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Refuted, prove
from xflow.verifier.refutation import refute
from xflow.verifier.refutation.boundaries import boundaries_of
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.refute import CASES, Survived, search_counterexample
from xflow.verifier.refutation.shrink import shrink

BAD = parse_rules((CORPUS / "bad_boundaries.rules").read_text("utf-8"))


# What is false


@pytest.mark.parametrize("rule", BAD, ids=lambda rule: rule.name)
def test_the_cross_check_of_a_proof_sees_what_is_false_at_a_boundary(rule: Rule) -> None:
    """By as many cases as a proof is checked with."""
    assert isinstance(search_counterexample(rule, cases=CASES), Counterexample)


def test_few_seeds_miss_a_boundary() -> None:
    seeds = range(1, 5)
    found = [
        isinstance(search_counterexample(rule, cases=CASES, seed=seed), Counterexample)
        for rule in BAD
        for seed in seeds
    ]
    assert sum(found) >= 0.97 * len(found)


def test_strictness_that_is_confused_is_refuted_and_shown_at_a_tie() -> None:
    verdict = prove(one("x[...] y[...]", "Not(Less(x, y))", "Greater(x, y)"))
    assert isinstance(verdict, Refuted)
    found = verdict.counterexample
    small = shrink(one("x[...] y[...]", "Not(Less(x, y))", "Greater(x, y)"), found)
    assert small.inputs["x"] == small.inputs["y"]


def test_a_counterexample_of_scalars_is_made_small() -> None:
    rule = one("x[] y[]", "Less(x, y)", "LessOrEqual(x, y)")
    found = search_counterexample(rule)
    assert isinstance(found, Counterexample)
    assert shrink(rule, found).inputs["x"].shape == ()


# What is true

TRUE = [
    one("x[...] y[...]", "Less(Mul(x, 1 / 3), y)", "Less(x, Mul(y, 3))"),
    one("x[...] y[...]", "LessOrEqual(Add(x, 1 / 10), y)", "LessOrEqual(x, Sub(y, 1 / 10))"),
    one("x[...] y[...]", "Less(Mul(Exp(x), Exp(y)), 1)", "Less(Add(x, y), 0)"),
    one("x[...] y[...]", "Less(Log(Exp(x)), y)", "Less(x, y)"),
    one("x[...] y[...]", "Equal(Mul(x, 1 / 7), y)", "Equal(x, Mul(y, 7))"),
    one("x[...]", "Floor(Mul(Mul(x, 1 / 3), 3))", "Floor(x)"),
    one("x[...]", "Ceil(Div(x, 10))", "Ceil(Mul(x, 1 / 10))"),
    one("x[...]", "Sign(Sub(Mul(x, 1 / 10), 1 / 10))", "Sign(Sub(x, 1))"),
    one("x[...]", "Less(Mul(Sqrt(Relu(x)), Sqrt(Relu(x))), 2)", "Less(Relu(x), 2)"),
    one("x[n, m]", "Less(Div(ReduceSum(x, axes=[1]), 3), 1)", "Less(ReduceSum(x, axes=[1]), 3)"),
]
"""Both sides round differently, so that at a tie one of them may be on the wrong side."""


@pytest.mark.parametrize("rule", TRUE, ids=lambda rule: rule.lhs)
def test_rounding_at_a_tie_refutes_nothing(rule: Rule) -> None:
    for seed in range(6):
        assert isinstance(search_counterexample(rule, seed=seed), Survived)


def test_what_only_the_runtime_computes_from_an_infinity_still_refutes() -> None:
    rule = one("x[...] y[...]", "Less(Relu(Div(x, y)), 1)", "Less(Div(Relu(x), y), 1)")
    assert isinstance(search_counterexample(rule), Counterexample)


# The draws


def inputs_of(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Array]]:
    """The inputs that a search compares at."""
    seen: list[dict[str, Array]] = []
    compare = refute.compare_on

    def listening(instance: Instance, sizes: Any, reals: Any, inputs: dict[str, Array]) -> Any:
        seen.append(dict(inputs))
        return compare(instance, sizes, reals, inputs)

    with monkeypatch.context() as patch:
        patch.setattr(refute, "compare_on", listening)
        search_counterexample(rule)
    return seen


def test_generic_inputs_are_there_as_without_boundaries(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = one("x[n] y[n]", "Less(x, y)", "Greater(y, x)")
    both = inputs_of(rule, monkeypatch)
    monkeypatch.setattr(refute, "boundaries_of", lambda _: [])
    generic = inputs_of(rule, monkeypatch)
    assert len(generic) >= 32
    texts = {str(inputs) for inputs in both}
    assert {str(inputs) for inputs in generic} <= texts
    assert len(both) > len(generic)


def test_the_same_seed_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = one("x[...] y[...]", "Less(x, Clip(y, max=6))", "Greater(Min(y, 6), x)")
    first, second = (str(inputs_of(rule, monkeypatch)) for _ in range(2))
    assert first == second


def test_draws_hold_ties_between_inputs_and_within_one_zeros_and_thresholds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = one("x[...] y[...]", "Where(Less(x, 6), x, y)", "Where(Greater(6, x), x, y)")
    seen = inputs_of(rule, monkeypatch)

    def share(holds: Any) -> float:
        return sum(bool(holds(inputs)) for inputs in seen) / len(seen)

    def has_tie_within(inputs: dict[str, Array]) -> bool:
        return any(np.unique(array).size < array.size for array in inputs.values())

    def has_tie_between(inputs: dict[str, Array]) -> bool:
        x, y = inputs.values()
        return bool(np.intersect1d(x, y).size)

    assert share(has_tie_within) > 0.2
    assert share(has_tie_between) > 0.2
    assert share(lambda inputs: any((array == 0).any() for array in inputs.values())) > 0.1
    assert share(lambda inputs: bool((inputs["x"] == 6).any())) > 0.1
    assert share(lambda inputs: bool((inputs["x"] > 6).any())) > 0.1


def test_an_operator_that_only_computes_has_no_boundary() -> None:
    rule = one("x[n, m] y[m, k]", "MatMul(x, Mul(y, 2))", "Mul(MatMul(x, y), 2)")
    assert boundaries_of(rule.instance(0)) == []


# Enclosed numbers

RATIONALS = st.fractions(min_value=-20, max_value=20, max_denominator=50)


@given(RATIONALS, RATIONALS)
def test_enclosed_numbers_are_exact_as_long_as_only_rational_operations_occur(
    x: Fraction, y: Fraction
) -> None:
    a, b = Enclosure(x), Enclosure(y)
    assert (a + b).exact == x + y
    assert (a - b).exact == x - y
    assert (a * b).exact == x * y
    assert (a / b).exact == (x / y if y else None)
    assert (a / b).is_defined is bool(y)
    assert math.floor(a).exact == Fraction(math.floor(x))
    assert math.ceil(a).exact == Fraction(math.ceil(x))
    assert (a < b, a == b, a >= b) == (x < y, x == y, x >= y)
    assert abs(a).exact == abs(x)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[Fraction], bool]]] = {
    "exp": (mpmath.exp, lambda _: True),
    "expm1": (mpmath.expm1, lambda _: True),
    "log": (mpmath.log, lambda x: x > 0),
    "log1p": (mpmath.log1p, lambda x: x > -1),
    "sqrt": (mpmath.sqrt, lambda x: x >= 0),
    "tanh": (mpmath.tanh, lambda _: True),
    "erf": (mpmath.erf, lambda _: True),
    "sin": (mpmath.sin, lambda _: True),
    "cos": (mpmath.cos, lambda _: True),
}


@given(RATIONALS, st.sampled_from(sorted(FUNCTIONS)))
def test_a_function_of_an_enclosed_number_lies_between_its_bounds(x: Fraction, name: str) -> None:
    function, is_defined = FUNCTIONS[name]
    found = getattr(Enclosure(x), name)()
    assert found.is_defined is is_defined(x)
    if not found.is_defined:
        return
    with mpmath.workprec(400):
        value = function(mpmath.mpf(x.numerator) / x.denominator)
        near = Fraction(int(value * 2**200), 2**200)
    if found.exact is not None:
        assert abs(found.exact - near) <= Fraction(1, 2**199)
        return
    assert not differ(found, Enclosure(near))
    margin = (1 + abs(near)) / 2**100
    assert differ(found, Enclosure(near + margin))
    assert differ(found, Enclosure(near - margin))


def test_what_bounds_do_not_tell_is_undecided() -> None:
    root = Enclosure(2).sqrt()
    assert root > Fraction(14142, 10000)
    assert root < Fraction(14143, 10000)
    with pytest.raises(UndecidedError):
        _ = root * root == 2
    assert differ(root * root, Enclosure(2)) is None
    with pytest.raises(UndecidedError):
        _ = UNDEFINED < 1
    assert not (UNDEFINED + 1).is_defined
    assert pi() > Fraction(314, 100)
    with pytest.raises(TypeError):
        float(root)


@pytest.mark.parametrize(("value", "meant"), [(0.1, Fraction(1, 10)), (-0.375, Fraction(-3, 8))])
def test_a_float_is_read_as_the_fraction_that_was_meant(value: float, meant: Fraction) -> None:
    assert Enclosure(value).exact == meant


def test_a_float_that_is_no_plain_fraction_is_a_narrow_interval() -> None:
    found = Enclosure(math.sqrt(2))
    assert found.exact is None
    assert differ(found, Enclosure(2).sqrt()) is None


def test_elements_of_arrays_may_be_enclosed() -> None:
    generator = random.Random(0)
    numbers = [Fraction(generator.randint(-30, 30), 8) for _ in range(6)]
    array = np.array([Enclosure(number) for number in numbers], dtype=object)
    greatest = [Enclosure(x).exact for x in np.maximum(array, 1)]
    assert greatest == [max(x, Fraction(1)) for x in numbers]
    assert list(np.less(array, 0)) == [x < 0 for x in numbers]
    assert [Enclosure(x).exact for x in np.floor(array)] == [math.floor(x) for x in numbers]
    assert Enclosure(array.sum()).exact == sum(numbers)
    assert all(x.is_defined for x in np.exp(array))
