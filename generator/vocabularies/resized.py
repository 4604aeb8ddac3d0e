"""Vocabularies of images enlarged by repeating pixels, and of operators that commute with that.

A pixel that is broadcast over an image can be enlarged first; a runtime may keep one form in its
layout and not the other. An operator before enlarging computes each pixel only once.
"""

from __future__ import annotations

from xflow.generator.vocabularies.channels import SCALE_INPUT, X_INPUT, Y_INPUT
from xflow.generator.vocabularies.common import X, pointwise, scalar
from xflow.generator.vocabularies.convolutions import BIAS, FREE, KERNEL, SCALE, SPATIAL, C, S
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

PIXEL, WIDE, OUT = "pixel", "wide", "out"
WHOLE = choices(scales=[(1, 1, S)])
GATES = Vocabulary(
    "a pixel for the whole image",
    (
        X_INPUT,
        Input("g", PIXEL, "N C *1", (2, C, 1)),
        Input("r", PIXEL, "1 C *1", (1, C, 1)),
    ),
    (
        Production("Resize", (PIXEL,), WIDE, WHOLE),
        Production("Resize", (PIXEL,), WIDE, choices(scales=[(2, 1, S)])),
        Production("Expand", (PIXEL,), WIDE, choices(shape=[(2, C, S)])),
        *(pointwise(OUT, *pair) for sort in (PIXEL, WIDE) for pair in ((X, sort), (sort, X))),
    ),
    (0, 0, 0),
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({WIDE, OUT}),
)

FACTOR = [(1, 1, 2)]
STAGES = ((X, "f"), (WIDE, "g"))
"""Operators before the image is enlarged and behind it: f is enlarged to g."""
ENLARGED = Vocabulary(
    "enlarged images",
    (
        X_INPUT,
        Y_INPUT,
        SCALE_INPUT,
        Input("w", KERNEL, "O I *1", (C, C, 1)),
        Input("b", BIAS, "O", (C,)),
        scalar("k", "c"),
    ),
    (
        *(
            Production("Resize", (sort,), result, choices(scales=FACTOR))
            for sort, result in ((X, WIDE), ("f", "g"))
        ),
        *(
            Production("Conv", (sort, KERNEL, *bias), result)
            for bias in ((), (BIAS,))
            for sort, result in STAGES
        ),
        *(
            pointwise(result, sort, *second)
            for sort, result in STAGES
            for second in ((), (SCALE,), ("c",), (sort,))
        ),
        *(
            Production("Concat", (sort, sort), result, choices(axis=[0, 1]))
            for sort, result in STAGES
        ),
    ),
    (0, 0, 0, 0),
    free=FREE | {"c"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({WIDE, "g"}),
)

TWICE = Vocabulary(
    "enlarged again, and pooled",
    (X_INPUT,),
    (
        Production("Resize", (X,), X, choices(scales=[(1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 1, 6)])),
        *(Production(op, (X,), "pooled") for op in ("GlobalAveragePool", "GlobalMaxPool")),
        *(
            Production(op, (X,), "pooled", choices(kernel_shape=[(k,)], strides=[(k,)]))
            for op in ("AveragePool", "MaxPool")
            for k in (2, 3)
        ),
        *(
            Production(op, (X,), "pooled", choices(axes=[(2,)], keepdims=[1]))
            for op in ("ReduceMean", "ReduceMax")
        ),
    ),
    (0, 0, 0),
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({X, "pooled"}),
)

ONCE = "once"
SOME = [(1, 1, factor) for factor in (2, 3, 4)]
AGAIN = Vocabulary(
    "enlarged by two factors",
    (X_INPUT,),
    (
        Production("Resize", (X,), ONCE, choices(scales=SOME)),
        Production("Resize", (ONCE,), WIDE, choices(scales=SOME)),
        Production("Resize", (X,), WIDE, choices(scales=[(1, 1, n) for n in (4, 6, 8, 9, 12, 16)])),
    ),
    (0, 0, 0),
    ranks=SPATIAL,
    roots=frozenset({WIDE}),
)
"""So many pairs of factors that the factor of both is seen to be their product."""

RESIZED = Family(
    "resized",
    (GATES, ENLARGED, TWICE, AGAIN),
    about="images that are enlarged by repeating pixels",
)
