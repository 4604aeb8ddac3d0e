"""Scalars that are compiled compute what `evaluate` does, with parts that are alike shared."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from xflow.core.size import Size, symbols
from xflow.core.spec import Element, Scalar, call, evaluate, max_over, product_over, sum_over
from xflow.verifier.recheck.compiled import compiled, compiled_steps

n, m, i = symbols("n m i")
DATA: dict[str, Any] = {
    "x": np.array([[Fraction(7 * a - b * b, 3) for b in range(3)] for a in range(4)], dtype=object),
    "y": np.array([Fraction(a, 5) for a in range(-1, 3)], dtype=object),
}
SIZES = {"n": 4, "m": 3, "i": 2}


def x(row: Size, column: Size) -> Scalar:
    return Element("x", (row, column))


def y(place: Size) -> Scalar:
    return Element("y", (place,))


def same(scalar: Scalar) -> None:
    assert compiled(scalar)(DATA, SIZES) == evaluate(scalar, DATA, SIZES)


def test_sums_that_differ_by_names_are_the_same() -> None:
    same(sum_over(m, lambda k: x(i, k)) * sum_over(m, lambda k: x(i, k)))


def test_a_sum_inside_another_is_computed_for_each_value_of_its_variable() -> None:
    same(sum_over(n, lambda a: y(a) * sum_over(m, lambda k: x(a, k))))
    same(sum_over(n, lambda a: sum_over(m, lambda k: x(a, k)) * max_over(m, lambda k: x(a, k))))


def test_sums_that_read_the_same_at_other_variables_are_not_mixed_up() -> None:
    def row(a: Size) -> Scalar:
        return sum_over(m, lambda k: x(a, k))

    same(sum_over(n, lambda a: sum_over(n, lambda b: (row(a) - 2 * row(b)) * row(a) * y(b))))
    same(sum_over(n, lambda a: row(a) * row(n - 1 - a) * row(i)))
    same(product_over(n, lambda a: sum_over(a + 1, y) + sum_over(a, y)))


def test_a_softmax_is_that_of_its_row() -> None:
    """Its greatest value is read in the numerator, and once for each part of the denominator."""

    def greatest(row: Size) -> Scalar:
        return max_over(m, lambda k: x(row, k))

    def softmax(row: Size, column: Size) -> Scalar:
        total = sum_over(m, lambda k: call("max", x(row, k) - greatest(row), 1))
        return (x(row, column) - greatest(row)) / total

    same(sum_over(n, lambda a: softmax(a, 0) * y(a)))
    same(softmax(i, 1))


def test_steps_are_counted_with_the_variables_of_ranges_at_zero() -> None:
    nested = sum_over(n, lambda a: sum_over(m, lambda k: x(a, k) * y(a)) + y(a))
    assert compiled_steps(nested)(SIZES) == 4 * (3 * 2 + 1)
    assert compiled_steps(sum_over(n - 5, lambda _: y(0)) + y(i))(SIZES) == 1
    dependent = sum_over(n, lambda a: sum_over(a + 2, y))
    assert compiled_steps(dependent)(SIZES) == 4 * 2
    undefined = sum_over(n, lambda a: sum_over(n // a, y))
    assert compiled_steps(undefined)(SIZES) == 4 * 4
