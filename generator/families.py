"""The families: which operators, inputs and attributes are enumerated together.

Each vocabulary has few inputs and one theme. What it finds does not depend on any model.
"""

from __future__ import annotations

from fractions import Fraction

from xflow.generator.convolutions import CONVOLUTION, POOLING
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

X = "x"


def _anywhere(name: str) -> Input:
    return Input(name, X, "...", (5,))


def _binary(*names: str) -> tuple[Production, ...]:
    return tuple(Production(name, (X, X), X) for name in names)


def _unary(*names: str) -> tuple[Production, ...]:
    return tuple(Production(name, (X,), X) for name in names)


def _numbers(sort: str, *values: int | Fraction) -> Production:
    return Production("Scalar", (), sort, choices(value=[Fraction(v) for v in values]))


ELEMENTWISE = Family(
    "elementwise",
    (
        Vocabulary(
            "constants",
            (_anywhere("x"), _anywhere("y")),
            (
                _numbers("zero", 0),
                _numbers("c", 1, 2, -1, Fraction(1, 2)),
                *_binary("Add", "Sub", "Mul", "Max", "Min"),
                *_unary("Neg", "Relu"),
                *(Production(op, (X, "zero"), X) for op in ("Add", "Sub", "Max", "Min")),
                Production("Sub", ("zero", X), X),
                Production("Mul", (X, "c"), X),
            ),
            (1, 1, 2),
            free=frozenset({"c", "zero"}),
        ),
        Vocabulary(
            "functions",
            (_anywhere("x"), _anywhere("y")),
            (
                _numbers("one", 1),
                _numbers("c", 2, -1),
                *_binary("Mul", "Div"),
                *_unary("Neg", "Sigmoid", "Tanh", "Exp", "Sqrt", "Reciprocal", "Relu"),
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
            (_anywhere("x"), _anywhere("y"), _anywhere("z")),
            (*_binary("Add", "Sub", "Mul", "Max"), *_unary("Relu")),
            (0, 0, 0, 0),
        ),
    ),
    about="elementwise operators at any shape",
)


def _square(name: str) -> Input:
    return Input(name, X, "*B n m", (2, 4, 4))


LINEAR = Family(
    "linear",
    (
        Vocabulary(
            "matrices",
            (_square("a"), _square("b"), _square("c")),
            (
                *_binary("MatMul", "Add", "Sub"),
                Production("Transpose", (X,), X, choices(perm=[(0, 2, 1)])),
                _numbers("s", 2),
                Production("Mul", (X, "s"), X),
                *_unary("Relu"),
            ),
            (1, 1, 1, 0),
            free=frozenset({"s"}),
            ranks=(0, 1, 2),
        ),
        Vocabulary(
            "parts",
            (_square("a"), _square("b"), _square("c")),
            (
                *_binary("MatMul", "Add"),
                *_unary("Relu"),
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
                *_binary("MatMul", "Add"),
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
                *_binary("Add", "Sub"),
            ),
            (1, 1, 2),
            free=frozenset({"c"}),
            ranks=(0, 1, 2),
        ),
    ),
    about="matrix products, transposes and parts of matrices, with any batch axes",
)


def _plane(name: str) -> Input:
    return Input(name, X, "n m", (3, 4))


MOVEMENT = Family(
    "movement",
    (
        Vocabulary(
            "planes",
            (_plane("x"), _plane("y")),
            (
                *_unary("Relu"),
                *_binary("Add", "Mul"),
                Production("Transpose", (X,), X, choices(perm=[(1, 0)])),
                Production("Concat", (X, X), X, choices(axis=[0, 1])),
                Production("Unsqueeze", (X,), X, choices(axes=[(0,), (2,)])),
                Production("Squeeze", (X,), X, choices(axes=[(0,), (2,)])),
                Production("Reshape", (X,), X, choices(shape=[(3, 4), (12,)])),
                Production(
                    "Slice",
                    (X,),
                    X,
                    tuple(
                        {"starts": (a,), "ends": (b,), "axes": (axis,), "steps": (1,)}
                        for axis, a, b in ((0, 0, 2), (0, 1, 3), (1, 0, 3), (1, 1, 3))
                    ),
                ),
                Production("Pad", (X,), X, choices(pads=[(1, 0, 2, 0), (0, 2, 0, 1)])),
            ),
            (0, 0, 0),
        ),
        Vocabulary(
            "splits",
            (_plane("x"), _plane("y")),
            (
                *_unary("Relu"),
                *_binary("Add"),
                Production("Concat", (X, X), X, choices(axis=[0, 1])),
                Production(
                    "Split",
                    (X,),
                    X,
                    ({"axis": 0, "split": (3, 3)}, {"axis": 1, "split": (4, 4)}),
                ),
            ),
            (0, 0, 0, 0),
        ),
    ),
    about="operators that move elements, and what commutes with them",
)

DEFINITIONS = Family(
    "definitions", definitions=True, about="composite operators and what they are made of"
)

FAMILIES = (ELEMENTWISE, LINEAR, CONVOLUTION, MOVEMENT, POOLING, DEFINITIONS)
