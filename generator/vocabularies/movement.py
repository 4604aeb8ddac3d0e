"""Vocabularies of operators that move the elements of a plane, some of which commute."""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, pointwise
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices


def _plane(name: str) -> Input:
    return Input(name, X, "n m", (4, 5))


MOVEMENT = Family(
    "movement",
    (
        Vocabulary(
            "planes",
            (_plane("x"), _plane("y")),
            (
                pointwise(X, X),
                pointwise(X, X, X),
                pointwise(X, X, zero=True),
                Production("Transpose", (X,), X, choices(perm=[(1, 0)])),
                Production("Concat", (X, X), X, choices(axis=[0, 1])),
                Production("Unsqueeze", (X,), X, choices(axes=[(0,), (2,)])),
                Production("Squeeze", (X,), X, choices(axes=[(0,), (2,)])),
                Production("Reshape", (X,), X, choices(shape=[(4, 5), (20,)])),
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
            (0, 0, 0, 0),
            exact=False,
        ),
    ),
    about="operators that move elements, and what commutes with them",
)
