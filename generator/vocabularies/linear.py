"""Vocabularies of matrix products of activations, transposes, sums, parts, with any batch axes."""

from __future__ import annotations

from xflow.generator.vocabularies.common import SYMBOL, X, scalar
from xflow.generator.vocabularies.equations import steps
from xflow.generator.vocabulary import Family, Input, Vocabulary

BATCHES = (0, 1, 2)


def _square(name: str) -> Input:
    return Input(name, X, "*B n m", (2, 4, 4))


LINEAR = Family(
    "linear",
    (
        Vocabulary(
            "matrices",
            (_square("a"), _square("b"), _square("c"), scalar("r", "s")),
            steps("""
                s = SYMBOL
                x = MatMul(x, x) | Add(x, x) | Sub(x, x) | Mul(x, s)
                x = Transpose(x, perm=(0, 2, 1)) | Relu(x)
            """),
            (1, 1, 1, 0),
            free=frozenset({"s"}),
            ranks=BATCHES,
            reals={SYMBOL: "s"},
        ),
        Vocabulary(
            "parts",
            (_square("a"), _square("b"), _square("c")),
            steps("""
                x = MatMul(x, x) | Add(x, x) | Relu(x) | Transpose(x, perm=(0, 2, 1))
                x = Concat(x, x, axis=1 | 2) | Split(x, axis=1 | 2, split=(4, 4))
            """),
            (0, 0, 0, 0),
            ranks=BATCHES,
        ),
        Vocabulary(
            "reductions",
            (_square("a"), _square("b")),
            steps("""
                x = MatMul(x, x) | Add(x, x)
                x = ReduceSum(x, axes=(1,) | (2,), keepdims=1)
                x = ReduceMean(x, axes=(1,) | (2,), keepdims=1)
            """),
            (0, 0, 0),
            ranks=BATCHES,
        ),
        Vocabulary(
            "four",
            (_square("a"), _square("b"), _square("c"), _square("d")),
            steps("x = MatMul(x, x) | Add(x, x) | Concat(x, x, axis=1 | 2)"),
            (0, 0, 0, 0),
            ranks=BATCHES,
        ),
        Vocabulary(
            "constants",
            (_square("a"),),
            steps("""
                c = Eye(n=4) | Zeros(shape=(4, 4))
                x = MatMul(x, c) | MatMul(c, x) | Add(x, x) | Sub(x, x)
            """),
            (1, 1, 2),
            ranks=BATCHES,
        ),
    ),
    about="matrix products, transposes and parts of matrices, with any batch axes",
)
