"""Vocabularies of matrix products of activations, transposes, sums, parts, with any batch axes."""

from __future__ import annotations

from xflow.generator.vocabularies.common import SYMBOL, X, applied, binary, numbers, scalar, unary
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices


def _square(name: str) -> Input:
    return Input(name, X, "*B n m", (2, 4, 4))


LINEAR = Family(
    "linear",
    (
        Vocabulary(
            "matrices",
            (_square("a"), _square("b"), _square("c"), scalar("r", "s")),
            (
                *binary("MatMul", "Add", "Sub"),
                Production("Transpose", (X,), X, choices(perm=[(0, 2, 1)])),
                numbers("s", SYMBOL),
                applied("Mul", X, "s"),
                *unary("Relu"),
            ),
            (1, 1, 1, 0),
            free=frozenset({"s"}),
            ranks=(0, 1, 2),
            reals={SYMBOL: "s"},
        ),
        Vocabulary(
            "parts",
            (_square("a"), _square("b"), _square("c")),
            (
                *binary("MatMul", "Add"),
                *unary("Relu"),
                Production("Concat", (X, X), X, choices(axis=[1, 2])),
                Production("Transpose", (X,), X, choices(perm=[(0, 2, 1)])),
                Production("Split", (X,), X, choices(axis=[1, 2], split=[(4, 4)])),
            ),
            (0, 0, 0, 0),
            ranks=(0, 1, 2),
        ),
        Vocabulary(
            "reductions",
            (_square("a"), _square("b")),
            (
                *binary("MatMul", "Add"),
                Production("ReduceSum", (X,), X, choices(axes=[(1,), (2,)], keepdims=[1])),
                Production("ReduceMean", (X,), X, choices(axes=[(1,), (2,)], keepdims=[1])),
            ),
            (0, 0, 0),
            ranks=(0, 1, 2),
        ),
        Vocabulary(
            "four",
            (_square("a"), _square("b"), _square("c"), _square("d")),
            (
                Production("MatMul", (X, X), X),
                Production("Add", (X, X), X),
                Production("Concat", (X, X), X, choices(axis=[1, 2])),
            ),
            (0, 0, 0, 0),
            ranks=(0, 1, 2),
        ),
        Vocabulary(
            "constants",
            (_square("a"),),
            (
                Production("Eye", (), "c", choices(n=[4])),
                Production("Zeros", (), "c", choices(shape=[(4, 4)])),
                Production("MatMul", (X, "c"), X),
                Production("MatMul", ("c", X), X),
                *binary("Add", "Sub"),
            ),
            (1, 1, 2),
            free=frozenset({"c"}),
            ranks=(0, 1, 2),
        ),
    ),
    about="matrix products, transposes and parts of matrices, with any batch axes",
)
