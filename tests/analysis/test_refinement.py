"""The check of a whole rewrite from end to end: which elements have to be numbers, and of what."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from graphs import call, tensor

from xflow.analysis.ranges import Ranges
from xflow.analysis.refinement import objection
from xflow.core.assumptions import Assumption
from xflow.core.fold import no_constants
from xflow.core.node import TensorType, Value, leaf

X, Y, K = tensor("x", 5, 5), tensor("y", 5, 5), tensor("k", 1, 5)
C = leaf("c", TensorType("BOOL", (5, 5)))


def turned(value: Value) -> Value:
    return call("Transpose", value, perm=(1, 0))


def rows(value: Value, start: int, end: int) -> Value:
    return call("Slice", value, starts=(start,), ends=(end,), axes=(0,), steps=(1,))


def flat(value: Value) -> Value:
    return call("Reshape", value, shape=(25,))


def log(value: Value) -> Value:
    return call("Log", value)


def chosen(condition: Value, value: Value) -> Value:
    return call("Where", condition, value, Y)


def found(before: Value, after: Value) -> str:
    return objection([before], [after], {X, Y, K, C}, Ranges(no_constants))


SHOWN: dict[str, tuple[Value, Value]] = {
    "a function between transposes": (turned(log(turned(X))), log(X)),
    "and something behind": (call("Neg", turned(log(turned(X)))), call("Neg", log(X))),
    "of a sum with a row": (
        turned(log(call("Add", turned(X), K))),
        log(call("Add", X, turned(K))),
    ),
    "operands the other way round": (
        turned(log(call("Mul", turned(X), turned(Y)))),
        log(call("Mul", Y, X)),
    ),
    "a quotient": (turned(call("Div", Y, turned(X))), call("Div", turned(Y), X)),
    "a reshape": (flat(log(X)), log(flat(X))),
    "rows before and behind": (rows(log(X), 1, 3), log(rows(X, 1, 3))),
    "where a condition holds": (
        turned(chosen(C, log(X))),
        call("Where", turned(C), log(turned(X)), turned(Y)),
    ),
    "rows of rows": (rows(rows(log(X), 1, 5), 1, 3), log(rows(X, 2, 4))),
}
NOT_SHOWN: dict[str, tuple[Value, Value]] = {
    "other elements of a sum": (turned(log(call("Add", turned(X), K))), log(call("Add", X, K))),
    "other rows": (rows(log(X), 1, 3), log(rows(X, 2, 4))),
    "another divisor": (turned(call("Div", Y, turned(X))), call("Div", X, turned(Y))),
    "where a condition holds of other elements": (
        turned(chosen(C, log(X))),
        call("Where", C, log(turned(X)), turned(Y)),
    ),
    "where a condition does not hold": (
        turned(chosen(C, log(X))),
        call("Where", turned(C), turned(Y), log(turned(X))),
    ),
    "another function": (turned(log(turned(X))), call("Sqrt", X)),
    "one that was not there": (turned(turned(X)), log(X)),
}


@pytest.mark.parametrize("case", SHOWN)
def test_elements_are_followed_where_they_are_moved(case: str) -> None:
    assert not found(*SHOWN[case])


@pytest.mark.parametrize("case", NOT_SHOWN)
def test_needs_of_other_elements_are_not_taken_for_these(case: str) -> None:
    assert found(*NOT_SHOWN[case])


WINDOW = {"kernel_shape": (3,), "pads": (1, 1), "strides": (1,)}
A, B = tensor("a", 1, 2, 5), tensor("b", 1, 2, 5)
W, V = tensor("w", 3, 2, 3), tensor("v", 3, 2, 3)
CONV = {"pads": (1, 1)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            call("Add", call("AveragePool", A, **WINDOW), call("AveragePool", B, **WINDOW)),
            call("AveragePool", call("Add", A, B), **WINDOW),
        ),
        (
            call("Sub", call("Conv", A, W, **CONV), call("Conv", B, W, **CONV)),
            call("Conv", call("Sub", A, B), W, **CONV),
        ),
        (call("Conv", A, W, **CONV), call("Conv", B, W, **CONV)),
        (call("Conv", A, W, **CONV), call("Conv", A, V, **CONV)),
    ],
)
def test_a_sum_behind_a_border_is_that_of_its_own_tensor(before: Value, after: Value) -> None:
    """Within a border, an element or 0 is read: of which tensor is part of what may overflow."""
    inputs, ranges = {A, B, W, V}, Ranges(no_constants, Assumption.FINITE_INPUTS)
    assert "a sum or product" in objection([before], [after], inputs, ranges, overflow=True)
    assert not objection([before], [before], inputs, ranges, overflow=True)


@pytest.mark.parametrize("wrap", [turned, flat, lambda value: call("Neg", value)])
def test_what_is_lost_on_the_way_is_no_need(wrap: Callable[[Value], Value]) -> None:
    """A maximum loses what is no number in one operand: what is behind it says nothing of it."""
    lossy = call("Max", wrap(log(X)), wrap(Y))
    assert found(lossy, wrap(log(X)))


def test_long_chains_are_followed_no_further_than_is_worth_it() -> None:
    before, after = turned(X), X
    for _ in range(300):
        before, after = call("Add", before, Y), call("Add", after, turned(Y))
    assert found(turned(log(before)), log(after))  # not shown, and no error
