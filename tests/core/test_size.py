"""Sizes: polynomials over symbols behave as the integers that they stand for."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xflow.core.constraint import at_least, equal, less, parse_constraint
from xflow.core.errors import SizeError
from xflow.core.size import (
    Expr,
    Size,
    coefficient_of,
    divide,
    evaluate,
    floor_divide,
    free_symbols,
    product,
    substitute,
    symbol,
    symbols,
)
from xflow.core.size_text import parse_size

NAMES = ("a", "b", "c", "n")
VALUES = st.fixed_dictionaries({name: st.integers(-6, 9) for name in NAMES})
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
}


class Tree:
    """An expression tree, to be read over symbols and over integers."""

    def __init__(self, op: str, *args: Any):
        self.op, self.args = op, args

    def __repr__(self) -> str:
        if self.op in OPERATIONS:
            return f"({self.args[0]} {self.op} {self.args[1]})"
        return str(self.args[0])

    def read(self, leaf: Callable[[str], Any]) -> Any:
        if self.op == "name":
            return leaf(self.args[0])
        if self.op == "int":
            return self.args[0]
        return OPERATIONS[self.op](*(arg.read(leaf) for arg in self.args))


LEAVES = st.one_of(
    st.sampled_from(NAMES).map(lambda name: Tree("name", name)),
    st.integers(-4, 6).map(lambda value: Tree("int", value)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(Tree, st.sampled_from(sorted(OPERATIONS)), inner, inner),
    max_leaves=7,
)


def read_both(tree: Tree, values: dict[str, int]) -> tuple[Size, int] | None:
    """The tree over symbols and over integers; None where it divides by zero."""
    try:
        return tree.read(symbol), tree.read(values.__getitem__)
    except ZeroDivisionError:
        return None


@settings(deadline=None)
@given(TREES, VALUES)
def test_arithmetic_on_symbols_is_arithmetic_on_their_values(
    tree: Tree, values: dict[str, int]
) -> None:
    both = read_both(tree, values)
    if both is not None:
        general, expected = both
        assert evaluate(general, values) == expected
        assert substitute(general, dict(values)) == expected


@settings(deadline=None)
@given(TREES, VALUES)
def test_substitution_in_two_steps_is_substitution_at_once(
    tree: Tree, values: dict[str, int]
) -> None:
    both = read_both(tree, values)
    if both is None:
        return
    general, expected = both
    first = {name: values[name] for name in NAMES[:2]}
    try:
        partly = substitute(general, first)
    except ZeroDivisionError:
        return
    assert evaluate(partly, values) == expected
    assert not free_symbols(partly) & set(first)


@settings(deadline=None)
@given(TREES)
def test_printing_and_parsing_round_trip(tree: Tree) -> None:
    try:
        size = tree.read(symbol)
    except ZeroDivisionError:
        return
    assert parse_size(str(size)) == size


@settings(deadline=None)
@given(TREES, TREES)
def test_equal_polynomials_are_equal_objects(left: Tree, right: Tree) -> None:
    try:
        a, b = left.read(symbol), right.read(symbol)
    except ZeroDivisionError:
        return
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) * a == a * a + b * a
    assert a - a == 0
    assert hash(a + b) == hash(b + a)


@settings(deadline=None)
@given(TREES, TREES, VALUES)
def test_division_leaves_whole_and_rest(left: Tree, right: Tree, values: dict[str, int]) -> None:
    try:
        numerator, denominator = left.read(symbol), right.read(symbol)
        if denominator == 0:
            return
        whole, rest = divide(numerator, denominator)
        assert whole * denominator + rest == numerator
        expected = evaluate(numerator, values) // evaluate(denominator, values)
        assert evaluate(floor_divide(numerator, denominator), values) == expected
    except ZeroDivisionError:
        return


@settings(deadline=None)
@given(TREES, VALUES, st.sampled_from(NAMES))
def test_coefficient_and_rest_make_up_the_size(
    tree: Tree, values: dict[str, int], name: str
) -> None:
    try:
        size = tree.read(symbol)
    except ZeroDivisionError:
        return
    found = coefficient_of(size, name)
    if found is not None:
        coefficient, rest = found
        assert coefficient * symbol(name) + rest == size
        assert name not in free_symbols(rest)


@settings(deadline=None)
@given(TREES, TREES, VALUES)
def test_conditions_hold_where_they_hold_of_the_values(
    left: Tree, right: Tree, values: dict[str, int]
) -> None:
    a, b = read_both(left, values), read_both(right, values)
    if a is None or b is None:
        return
    try:
        relations = (
            (at_least(a[0], b[0]), a[1] >= b[1]),
            (less(a[0], b[0]), a[1] < b[1]),
            (equal(a[0], b[0]), a[1] == b[1]),
        )
        for condition, expected in relations:
            assert condition.substitute(values).decided is expected
            opposite = [other.substitute(values).decided for other in condition.negation()]
            assert opposite.count(True) == (not expected)
            if condition.decided is None:
                assert parse_constraint(str(condition)) == condition
    except ZeroDivisionError:
        return


def test_exact_multiples_divide_without_a_quotient() -> None:
    a, b, n = symbols("a b n")
    assert (a * n + b * n) // n == a + b
    assert (a * n) % n == 0
    assert (a * n + b) // n == a + b // n
    assert (a * a - b * b) // (a - b) == a + b
    assert (6 * a + 4) // 2 == 3 * a + 2


def test_a_constant_expression_is_an_integer() -> None:
    n = symbol("n")
    assert n - n == 0
    assert isinstance(n - n + 3, int)
    assert product([n, n]) == n**2
    assert product([]) == 1


def test_the_truth_of_a_symbolic_size_is_an_error() -> None:
    with pytest.raises(SizeError, match="not known"):
        bool(symbol("n"))


def test_a_missing_value_is_named() -> None:
    a, b = symbols("a b")
    with pytest.raises(SizeError, match="b has no value"):
        evaluate(a + b, {"a": 1})


def test_a_value_that_does_not_matter_may_be_missing() -> None:
    a, b = symbols("a b")
    assert evaluate(a * b + a + 2, {"a": 0}) == 2


@pytest.mark.parametrize("text", ["", "a +", "a / b", "f(a)", "1.5", "True", "a < b"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(SizeError):
        parse_size(text)


def test_expressions_sort_by_their_text() -> None:
    a, b = symbols("a b")
    assert sorted([b, a], key=str) == [a, b]
    assert isinstance(a, Expr)
    assert a < b


def test_sizes_from_another_process_equal_those_of_this_one() -> None:
    code = (
        "import pickle, sys; from xflow.core.constraint import at_least;"
        "from xflow.core.size import symbol;"
        "n = symbol('n') * 2 + symbol('m'); c = at_least(n, 3); hash(c);"
        "sys.stdout.buffer.write(pickle.dumps((n, c)))"
    )
    size = symbol("n") * 2 + symbol("m")
    for seed in ("1", "2"):  # of the hashes of texts
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        read, condition = pickle.loads(done.stdout)
        assert {read, condition} == {size, at_least(size, 3)}
