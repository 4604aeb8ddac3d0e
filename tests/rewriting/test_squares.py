"""What is not squared in a model is not squared in its place: small numbers would be lost."""

import pytest
from graphs import call

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.graph import walk
from xflow.core.node import TensorType, Value, leaf
from xflow.rewriting.squares import squares_anew

A, B = (leaf(name, TensorType("FLOAT", (4, 4))) for name in "ab")
C = leaf("c", TensorType("FLOAT", ()), constant=True)


def _anew(before: Value, after: Value) -> bool:
    old, new = (tuple(walk([value], {A, B, C})) for value in (before, after))
    return squares_anew(old, new)


def _square(value: Value) -> Value:
    return call("Mul", value, value)


def _turned(value: Value) -> Value:
    return call("Transpose", value, perm=(1, 0))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_square(call("Mul", A, B)), call("Mul", _square(A), _square(B))),
        (_square(call("Mul", A, B)), call("Mul", A, call("Mul", A, _square(B)))),
        (call("Abs", A), call("Sqrt", _square(A))),
        (_square(call("Mul", A, C)), call("Mul", _square(A), _square(C))),
        (call("Mul", A, call("ReduceMax", B)), call("Mul", A, call("ReduceL2", B))),
        (call("Mul", A, _turned(_turned(B))), call("Mul", call("Mul", A, B), _square(_turned(B)))),
    ],
    ids=str,
)
def test_a_new_square_is_seen(before: Value, after: Value) -> None:
    assert _anew(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_square(_turned(A)), _turned(_square(A))),
        (_square(call("Neg", A)), _square(A)),
        (call("Mul", call("Mul", C, A), A), call("Mul", C, _square(A))),
        (call("ReduceL2", A, axes=(1,)), call("Sqrt", call("ReduceSumSquare", A, axes=(1,)))),
        (_square(call("Sub", A, B)), _square(call("Sub", B, A))),
        (call("Mul", A, call("Mul", B, C)), call("Mul", call("Mul", A, B), _square(C))),
        (call("Mul", A, B), call("Mul", B, A)),
    ],
    ids=str,
)
def test_a_square_that_was_there_may_be_written_otherwise(before: Value, after: Value) -> None:
    assert not _anew(before, after)
