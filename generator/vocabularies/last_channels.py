"""Vocabularies of images with channels last, transposed and back: scales and shifts by channel."""

from __future__ import annotations

from xflow.generator.production import Production, choices
from xflow.generator.vocabularies.common import applied
from xflow.generator.vocabulary import Family, Input, Vocabulary

FIRST, LAST, SCALE, VECTOR = "first", "last", "scale", "vector"
"""Sorts: images with channels first and last; weights [1, C, 1, 1] and [C]."""
N, C, H, W = 2, 5, 3, 4
TO_FIRST, TO_LAST = choices(perm=[(0, 3, 1, 2)]), choices(perm=[(0, 2, 3, 1)])
MEANS = choices(axes=[(2, 3)], keepdims=[1])

_SCALE = Input("s", SCALE, "1 C 1 1", (1, C, 1, 1))
_AS_VECTOR = Production("Reshape", (SCALE,), VECTOR, choices(shape=[(C,)]))

TO_THE_FRONT = Vocabulary(
    "channels to the front",
    (Input("x", LAST, "N H W C", (N, H, W, C)), _SCALE),
    (
        _AS_VECTOR,
        *(
            production
            for op in ("Mul", "Add")
            for production in (
                applied(op, FIRST, SCALE, "out"),
                applied(op, LAST, VECTOR, "changed"),
            )
        ),
        Production("Transpose", (LAST,), FIRST, TO_FIRST),
        Production("Transpose", ("changed",), "out", TO_FIRST),
    ),
    (1, 1, 1),
    free=frozenset({SCALE, VECTOR}),
    roots=frozenset({"out"}),
)

TO_THE_BACK = Vocabulary(
    "channels to the back",
    (Input("x", FIRST, "N C H W", (N, C, H, W)), _SCALE),
    (
        _AS_VECTOR,
        *(
            production
            for op in ("Mul", "Add")
            for production in (
                applied(op, FIRST, SCALE, "changed"),
                applied(op, LAST, VECTOR, "out"),
                applied(op, "mean", SCALE, "out"),
            )
        ),
        Production("Transpose", (FIRST,), LAST, TO_LAST),
        Production("Transpose", ("changed",), "out", TO_LAST),
        Production("ReduceMean", (FIRST,), "mean", MEANS),
        Production("ReduceMean", ("changed",), "out", MEANS),
    ),
    (1, 1, 1),
    free=frozenset({SCALE, VECTOR}),
    roots=frozenset({"out"}),
)

LAST_CHANNELS = Family(
    "last-channels",
    (TO_THE_FRONT, TO_THE_BACK),
    about="scales and shifts of channels that go first or last",
)
