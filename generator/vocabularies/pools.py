"""Pooling by windows and of everything, and what commutes with it."""

from __future__ import annotations

from xflow.generator.vocabularies.channels import SCALE_INPUT, X_INPUT, Y_INPUT
from xflow.generator.vocabularies.common import OTHER_SYMBOL, SYMBOL, applied, numbers, scalar
from xflow.generator.vocabularies.convolutions import (
    AVERAGES,
    BIAS,
    FREE,
    KERNEL,
    SCALE,
    SPATIAL,
    C,
    X,
)
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices
from xflow.ops.registry import Attribute

STAGES = ((X, "f"), ("pooled", "g"))
"""Elementwise operators before pooling and after it: f is pooled to g."""
WINDOW = choices(kernel_shape=[(3,)], pads=[(1, 0)], strides=[(2,)])
POOLS = Vocabulary(
    "pools by windows",
    (X_INPUT, Y_INPUT, SCALE_INPUT, scalar("k", "c")),
    (
        numbers("c", SYMBOL),
        *(
            Production(op, (sort,), result, WINDOW)
            for op in ("MaxPool", "AveragePool")
            for sort, result in ((X, "pooled"), ("f", "g"))
        ),
        *(Production("Relu", (sort,), result) for sort, result in STAGES),
        *(
            Production("Clip", (sort,), result, bound)
            for sort, result in STAGES
            for bound in (choices(min=[SYMBOL]), choices(max=[OTHER_SYMBOL]))
        ),
        *(
            applied(op, sort, second, result)
            for op, seconds in (("Add", (SCALE, "c")), ("Mul", (SCALE, "c")))
            for second in seconds
            for sort, result in STAGES
        ),
        *(Production(op, (sort, sort), result) for op in ("Add", "Max") for sort, result in STAGES),
        *(
            Production("Concat", (sort, sort), result, choices(axis=[0, 1]))
            for sort, result in STAGES
        ),
    ),
    (1, 1, 1, 0),
    free=FREE | {"c"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "g"}),
    reals={SYMBOL: "low", OTHER_SYMBOL: "high"},
)

WITHOUT_BORDERS = choices(kernel_shape=[(3,)], strides=[(2,)])
SHIFTS = Vocabulary(
    "pools of shifted images",
    (X_INPUT, SCALE_INPUT, scalar("k", "c")),
    (
        *(
            Production("AveragePool", (sort,), result, WITHOUT_BORDERS)
            for sort, result in ((X, "pooled"), ("f", "g"))
        ),
        *(
            applied("Add", sort, second, result)
            for second in (SCALE, "c")
            for sort, result in STAGES
        ),
    ),
    (0, 0, 0),
    free=FREE | {"c"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "g"}),
)

CUT = Vocabulary(
    "pools of what is cut off on both sides",
    (X_INPUT,),
    (
        *(
            Production("MaxPool", (sort,), result, WITHOUT_BORDERS)
            for sort, result in ((X, "pooled"), ("f", "g"))
        ),
        *(
            Production("Clip", (sort,), result, choices(min=[SYMBOL], max=[OTHER_SYMBOL]))
            for sort, result in STAGES
        ),
    ),
    (0, 0, 0),
    free=FREE,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "g"}),
    reals={SYMBOL: "low", OTHER_SYMBOL: "high"},
)
"""Without borders, since of a window that may be empty it is not shown."""

POOLED = ((X, "pooled"), ("f", "g"), ("pooled", "pooled"))
GLOBAL_POOLS = Vocabulary(
    "pools of everything",
    (X_INPUT, Y_INPUT, SCALE_INPUT),
    (
        numbers("c", SYMBOL),
        *(
            Production(op, (s,), r)
            for op in ("GlobalAveragePool", "GlobalMaxPool")
            for s, r in POOLED
        ),
        *(
            Production(op, (s,), r, choices(axes=[(2,)], keepdims=[1]))
            for op in ("ReduceMean", "ReduceMax", "ReduceSum")
            for s, r in POOLED
        ),
        *(
            Production(op, (X,), "less", choices(axes=[(2,)], keepdims=[0]))
            for op in ("ReduceMean", "ReduceMax", "ReduceSum")
        ),
        Production("Squeeze", ("pooled",), "less", choices(axes=[(2,)])),
        Production("Flatten", ("pooled",), "flat", choices(axis=[1])),
        Production("Reshape", ("pooled",), "flat", choices(shape=[(2, C)])),
        *(Production("Relu", (sort,), result) for sort, result in STAGES),
        *(
            applied(op, sort, second, result)
            for op in ("Add", "Mul")
            for second in (SCALE, "c")
            for sort, result in STAGES
        ),
        *(applied("Add", sort, sort, result) for sort, result in STAGES),
    ),
    (1, 1, 1, 0),
    free=FREE | {"c"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "g", "less", "flat"}),
    reals={SYMBOL: "s"},
)

SPREAD = Vocabulary(
    "one pixel spread",
    (Input("x", X, "N C *1", (2, C, 1)),),
    (
        Production("Expand", (X,), "pooled", choices(shape=[(2, C, k) for k in range(2, 8)])),
        Production(
            "AveragePool",
            (X,),
            "pooled",
            tuple({"kernel_shape": (k,), "pads": (k - 1, k - 1)} for k in range(2, 8)),
        ),
    ),
    (0, 0),
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"pooled"}),
)

PIXELS = (X_INPUT, Input("v", KERNEL, "O I *1", (C, C, 1)), Input("b", BIAS, "O", (C,)))
"""A kernel of one pixel: it may be applied before pooling and after it."""


def _of_pixels(name: str, window: tuple[dict[str, Attribute], ...]) -> Vocabulary:
    """Means by windows before what a convolution makes of each pixel, and after it."""
    return Vocabulary(
        name,
        PIXELS,
        (
            *(
                Production("AveragePool", (sort,), result, window)
                for sort, result in ((X, "pooled"), ("f", "g"))
            ),
            *(
                Production("Conv", (sort, KERNEL, *bias), result)
                for bias in ((), (BIAS,))
                for sort, result in STAGES
            ),
        ),
        (0, 0, 0),
        free=FREE,
        exact=False,
        ranks=SPATIAL,
        roots=frozenset({"g"}),
    )


COUNTED = tuple({**window, "count_include_pad": 1} for window in WINDOW)
"""Borders that do not count are left out: of a window that may lie in them no mean is shown."""
STEPS = [(step,) for step in range(2, 8)]
TAKEN = Vocabulary(
    "some of the pixels",
    PIXELS,
    (
        *(
            Production(op, (X,), "pooled", choices(kernel_shape=[(1,)], strides=STEPS))
            for op in ("AveragePool", "MaxPool")
        ),
        *(Production("Conv", ("pooled", KERNEL, *bias), "g") for bias in ((), (BIAS,))),
        *(
            Production("Conv", (X, KERNEL, *bias), "g", choices(strides=STEPS))
            for bias in ((), (BIAS,))
        ),
    ),
    (0, 0, 0),
    free=FREE,
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "g"}),
)

POOLING = Family(
    "pooling",
    (
        *(POOLS, SHIFTS, CUT, GLOBAL_POOLS, AVERAGES, SPREAD),
        _of_pixels("pools of pixels", WITHOUT_BORDERS),
        _of_pixels("pools of pixels and borders", COUNTED),
        TAKEN,
    ),
    about="pooling and reductions over spatial axes",
)
