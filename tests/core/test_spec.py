"""Scalars of specifications: what stays the same when bound variables are named anew."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xflow.core.size import Size, symbol
from xflow.core.spec import (
    Element,
    Scalar,
    bound_by_depth,
    call,
    evaluate,
    max_over,
    plus,
    sum_over,
    times,
)

ROW, WIDTH = symbol("i0"), 3


def mean(row: Size) -> Scalar:
    return times(Fraction(1, WIDTH), sum_over(WIDTH, lambda k: Element("x", (row, k))))


def difference(row: Size, column: Size) -> Scalar:
    return plus(Element("x", (row, column)), times(-1, mean(row)))


def variance(row: Size) -> Scalar:
    """The mean is written out twice, each with a variable of its own."""
    return sum_over(WIDTH, lambda k: times(difference(row, k), difference(row, k)))


@given(st.lists(st.integers(-9, 9), min_size=6, max_size=6), st.integers(0, 1))
def test_scalars_denote_the_same_when_bound_variables_are_named_by_depth(
    numbers: list[int], row: int
) -> None:
    tensors = {"x": np.array([Fraction(n) for n in numbers]).reshape(2, WIDTH)}
    largest = max_over(WIDTH, lambda k: plus(difference(ROW, k), variance(k - k)))
    for scalar in (variance(ROW), largest, call("sign", variance(ROW))):
        named = bound_by_depth(scalar)
        assert evaluate(named, tensors, {"i0": row}) == evaluate(scalar, tensors, {"i0": row})


def test_scalars_that_differ_by_names_of_bound_variables_become_equal() -> None:
    one, other = variance(ROW), variance(ROW)
    assert one != other
    assert bound_by_depth(one) == bound_by_depth(other)
    square = bound_by_depth(times(difference(ROW, 0), difference(ROW, 0))).args  # type: ignore[attr-defined]
    assert square[0] == square[1]
    assert bound_by_depth(variance(ROW)) != bound_by_depth(variance(symbol("i1")))
