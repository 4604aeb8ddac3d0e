"""Vocabularies of means of rows or pixels, moved before operators that then run only once.

`means` are means of `x`, `out` are means of what an operator made of `x`, or what the operator
makes of `means`.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, applied
from xflow.generator.vocabulary import Input, Production, Vocabulary, choices

OF_X, MADE, OUT, WEIGHT, VECTOR = "means", "made", "out", "weight", "vector"
STAGES = ((X, MADE), (OF_X, OUT))
SIZES = (2, 4, 4)
KEPT = [0, 1]
MEANS = Vocabulary(
    "means of all rows",
    (
        Input("x", X, "N *S m", SIZES),
        Input("y", X, "N *S m", SIZES),
        Input("w", WEIGHT, "m k", (4, 4)),
        Input("b", VECTOR, "m", (4,)),
    ),
    (
        *(
            Production("ReduceMean", (sort,), result, choices(axes=[(1,)], keepdims=KEPT))
            for sort, result in ((X, OF_X), (MADE, OUT))
        ),
        *(applied("MatMul", sort, WEIGHT, result) for sort, result in STAGES),
        *(applied(op, sort, VECTOR, result) for op in ("Add", "Mul") for sort, result in STAGES),
        *(applied("Add", sort, sort, result) for sort, result in STAGES),
    ),
    (0, 0, 0, 0),
    free=frozenset({WEIGHT, VECTOR}),
    exact=False,
    ranks=(1, 2, 3),
    roots=frozenset({OUT}),
)

PIXELS = Vocabulary(
    "means of pixels",
    (
        Input("x", X, "N C *S", SIZES),
        Input("v", WEIGHT, "O I *1", (4, 4, 1)),
        Input("b", VECTOR, "O", (4,)),
    ),
    (
        *(Production("GlobalAveragePool", (sort,), r) for sort, r in ((X, OF_X), (MADE, OUT))),
        *(
            Production("Conv", (sort, WEIGHT, *bias), result)
            for bias in ((), (VECTOR,))
            for sort, result in STAGES
        ),
    ),
    (0, 0, 0),
    free=frozenset({WEIGHT, VECTOR}),
    exact=False,
    ranks=(1, 2, 3),
    roots=frozenset({OUT}),
)

FIRST, LAST = (2, 3), (1, 2)
"""The axes of pixels with channels first, and last."""
TURNED_MEANS = Vocabulary(
    "means of transposed images",
    (Input("x", "last", "N H W C", (2, 3, 4, 5)), Input("y", "first", "N C H W", (2, 5, 3, 4))),
    (
        Production("Transpose", ("last",), MADE, choices(perm=[(0, 3, 1, 2)])),
        Production("Transpose", ("first",), "other", choices(perm=[(0, 2, 3, 1)])),
        Production("ReduceMean", (MADE,), OUT, choices(axes=[FIRST], keepdims=KEPT)),
        Production("ReduceMean", ("other",), OUT, choices(axes=[LAST], keepdims=KEPT)),
        Production("ReduceMean", ("last",), "mean", choices(axes=[LAST], keepdims=[1])),
        Production("ReduceMean", ("last",), OUT, choices(axes=[LAST], keepdims=[0])),
        Production("ReduceMean", ("first",), "image", choices(axes=[FIRST], keepdims=[1])),
        Production("ReduceMean", ("first",), OUT, choices(axes=[FIRST], keepdims=[0])),
        Production("Transpose", ("mean",), OUT, choices(perm=[(0, 3, 1, 2)])),
        Production("Transpose", ("image",), OUT, choices(perm=[(0, 2, 3, 1)])),
    ),
    (0, 0, 0),
    exact=False,
    roots=frozenset({OUT}),
)

ALL_MEANS = (MEANS, PIXELS, TURNED_MEANS)
