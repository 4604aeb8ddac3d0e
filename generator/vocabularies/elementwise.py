"""Vocabularies of arithmetic at any shape, whose rules all other families assume."""

from __future__ import annotations

from fractions import Fraction

from xflow.generator.vocabularies.common import X, anywhere, binary, numbers, unary
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary

ELEMENTWISE = Family(
    "elementwise",
    (
        Vocabulary(
            "constants",
            (anywhere("x"), anywhere("y")),
            (
                numbers("zero", 0),
                numbers("c", 1, 2, -1, Fraction(1, 2)),
                *binary("Add", "Sub", "Mul", "Max", "Min"),
                *unary("Neg", "Relu"),
                *(Production(op, (X, "zero"), X) for op in ("Add", "Sub", "Max", "Min")),
                Production("Sub", ("zero", X), X),
                Production("Mul", (X, "c"), X),
            ),
            (1, 1, 2),
            free=frozenset({"c", "zero"}),
        ),
        Vocabulary(
            "functions",
            (anywhere("x"), anywhere("y")),
            (
                numbers("one", 1),
                numbers("c", 2, -1),
                *binary("Mul", "Div"),
                *unary("Neg", "Sigmoid", "Tanh", "Exp", "Sqrt", "Reciprocal", "Relu"),
                *(Production(op, (X, "one"), X) for op in ("Add", "Div")),
                *(Production(op, ("one", X), X) for op in ("Sub", "Div")),
                *(Production(op, (X, "c"), X) for op in ("Mul", "Div")),
            ),
            (1, 1, 2),
            free=frozenset({"c", "one"}),
            exact=False,
        ),
        Vocabulary(
            "rings",
            (anywhere("x"), anywhere("y"), anywhere("z")),
            (*binary("Add", "Sub", "Mul", "Max"), *unary("Relu")),
            (0, 0, 0, 0),
        ),
        Vocabulary(
            "scales and shifts",
            (anywhere("x"), Input("k", "scale", "...", (5,)), Input("c", "shift", "...", (5,))),
            (
                *(Production(op, (X, "scale"), X) for op in ("Mul", "Div")),
                *(Production(op, (X, "shift"), X) for op in ("Add", "Sub")),
                *(Production(op, ("shift", "scale"), "shift") for op in ("Mul", "Div")),
            ),
            (1, 1, 1),
            free=frozenset({"scale", "shift"}),
            exact=False,
        ),
    ),
    about="elementwise operators at any shape",
)
