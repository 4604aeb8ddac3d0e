"""Vocabularies of matrix products of activations, transposes, sums, parts, with any batch axes."""

from __future__ import annotations

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, scalar, sorts
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
            limits=(1, 1, 1, 0),
            free=sorts("s"),
            ranks=BATCHES,
            reals={SYMBOL: "s"},
        ).steps("""
            s = SYMBOL
            x = MatMul(x, x) | Add(x, x) | Sub(x, x) | Mul(x, s)
            x = Transpose(x, perm=(0, 2, 1)) | Relu(x)
        """),
        Vocabulary(
            "parts", (_square("a"), _square("b"), _square("c")), limits=(0, 0, 0, 0), ranks=BATCHES
        ).steps("""
            x = MatMul(x, x) | Add(x, x) | Relu(x) | Transpose(x, perm=(0, 2, 1))
            x = Concat(x, x, axis=1 | 2) | Split(x, axis=1 | 2, split=(4, 4))
        """),
        Vocabulary("reductions", (_square("a"), _square("b")), ranks=BATCHES).steps("""
            x = MatMul(x, x) | Add(x, x)
            x = ReduceSum(x, axes=(1,) | (2,), keepdims=1)
            x = ReduceMean(x, axes=(1,) | (2,), keepdims=1)
        """),
        Vocabulary(
            "four",
            (_square("a"), _square("b"), _square("c"), _square("d")),
            limits=(0, 0, 0, 0),
            ranks=BATCHES,
        ).steps("x = MatMul(x, x) | Add(x, x) | Concat(x, x, axis=1 | 2)"),
        Vocabulary("constants", (_square("a"),), limits=(1, 1, 2), ranks=BATCHES).steps("""
            c = Eye(n=4) | Zeros(shape=(4, 4))
            x = MatMul(x, c) | MatMul(c, x) | Add(x, x) | Sub(x, x)
        """),
    ),
    about="matrix products, transposes and parts of matrices, with any batch axes",
)
