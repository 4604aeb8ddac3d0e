"""Vocabularies of pooling, by windows and global, and of operators that commute with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xflow.core.registry import Attribute
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

STAGES = ((X, "f"), ("pooled", "g"))
"""Elementwise operators before pooling and after it: f is pooled to g."""
WINDOWED = ((X, "pooled"), ("f", "g"))
"""Pools before these operators and after them."""
WINDOW = choices(kernel_shape=[(3,)], pads=[(1, 0)], strides=[(2,)])
POOLS = Vocabulary(
    "pools by windows",
    (X_INPUT, Y_INPUT, SCALE_INPUT, scalar("k", "c")),
    (
        numbers("c", SYMBOL),
        *(
            Production(op, (sort,), result, WINDOW)
            for op in ("MaxPool", "AveragePool")
            for sort, result in WINDOWED
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
        *(Production("AveragePool", (sort,), result, WITHOUT_BORDERS) for sort, result in WINDOWED),
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
        *(Production("MaxPool", (sort,), result, WITHOUT_BORDERS) for sort, result in WINDOWED),
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
"""Without padding, since the rules are not proved for windows that may be empty."""

POOLED = (*WINDOWED, ("pooled", "pooled"))
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


def _of_pixels(name: str, *productions: Production) -> Vocabulary:
    """Pools, and convolutions by a kernel of one pixel, which may come before them and after."""
    return Vocabulary(
        name,
        (X_INPUT, Input("v", KERNEL, "O I *1", (C, C, 1)), Input("b", BIAS, "O", (C,))),
        productions,
        (0, 0, 0),
        free=FREE,
        exact=False,
        ranks=SPATIAL,
        roots=frozenset({"pooled", "g"}),
    )


def _mixed(sort: str, result: str, *steps: Mapping[str, Attribute]) -> Iterator[Production]:
    """Such convolutions, without bias and with one."""
    for bias in ((), (BIAS,)):
        yield Production("Conv", (sort, KERNEL, *bias), result, steps or ({},))


def _averaged(name: str, window: tuple[Mapping[str, Attribute], ...]) -> Vocabulary:
    """Means by windows before what a convolution makes of each pixel, and after it."""
    return _of_pixels(
        name,
        *(Production("AveragePool", (sort,), result, window) for sort, result in WINDOWED),
        *(made for sort, result in STAGES for made in _mixed(sort, result)),
    )


COUNTED = tuple({**window, "count_include_pad": 1} for window in WINDOW)
"""Padding is always counted: nothing is proved of a mean over a window without elements."""
STRIDES = [(stride,) for stride in range(2, 8)]
SINGLE = choices(kernel_shape=[(1,)], strides=STRIDES)
TAKEN = _of_pixels(
    "some of the pixels",
    *(Production(op, (X,), "pooled", SINGLE) for op in ("AveragePool", "MaxPool")),
    *_mixed("pooled", "g"),
    *_mixed(X, "g", *choices(strides=STRIDES)),
)

POOLING = Family(
    "pooling",
    (
        *(POOLS, SHIFTS, CUT, GLOBAL_POOLS, AVERAGES, SPREAD),
        _averaged("pools of pixels", WITHOUT_BORDERS),
        _averaged("pools of pixels and borders", COUNTED),
        TAKEN,
    ),
    about="pooling and reductions over spatial axes",
)
