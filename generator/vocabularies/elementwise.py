"""Vocabularies of arithmetic at any shape, whose rules all other families assume."""

from __future__ import annotations

from xflow.generator.vocabularies.common import anywhere, sorts
from xflow.generator.vocabulary import Family, Vocabulary

ELEMENTWISE = Family(
    "elementwise",
    (
        Vocabulary("constants", (anywhere("x"), anywhere("y")), limits=(1, 1, 2)).steps("""
            zero = 0
            c = 1 | 2 | -1 | 1/2
            x = Add(x, x | zero) | Sub(x, x | zero) | Mul(x, x | c) | Sub(zero, x)
            x = Max(x, x | zero) | Min(x, x | zero) | Neg(x) | Relu(x)
        """),
        Vocabulary(
            "functions", (anywhere("x"), anywhere("y")), limits=(1, 1, 2), exact=False
        ).steps("""
            one = 1
            c = 2 | -1
            x = Mul(x, x | c) | Div(x, x | one | c) | Div(one, x) | Add(x, one) | Sub(one, x)
            x = Neg(x) | Sigmoid(x) | Tanh(x) | Exp(x) | Sqrt(x) | Reciprocal(x) | Relu(x)
        """),
        Vocabulary("rings", tuple(map(anywhere, "xyz")), limits=(0, 0, 0, 0)).steps(
            "x = Add(x, x) | Sub(x, x) | Mul(x, x) | Max(x, x) | Relu(x)"
        ),
        Vocabulary(
            "scales and shifts",
            (anywhere("x"), anywhere("k", "scale"), anywhere("c", "shift")),
            limits=(1, 1, 1),
            free=sorts("scale shift"),
            exact=False,
        ).steps("""
            x = Mul(x, scale) | Div(x, scale) | Add(x, shift) | Sub(x, shift)
            shift = Mul(shift, scale) | Div(shift, scale)
        """),
    ),
    about="elementwise operators at any shape",
)
