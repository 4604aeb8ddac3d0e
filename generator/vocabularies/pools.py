"""Vocabularies of pooling, by windows and global, and of operators that commute with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xflow.core.registry import Attribute
from xflow.generator.vocabularies.channels import SCALE_INPUT, X_INPUT, Y_INPUT
from xflow.generator.vocabularies.common import OTHER_SYMBOL, SYMBOL, X, scalar
from xflow.generator.vocabularies.convolutions import BIAS, FREE, KERNEL, SPATIAL, C, S
from xflow.generator.vocabularies.equations import steps
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

STAGES = ((X, "f"), ("pooled", "g"))
"""Elementwise operators before pooling and after it: f is pooled to g."""
WINDOWED = ((X, "pooled"), ("f", "g"))
"""Pools before these operators and after them."""
WINDOW = choices(kernel_shape=[(3,)], pads=[(1, 0)], strides=[(2,)])
WINDOWS = "kernel_shape=(3,), pads=(1, 0), strides=(2,)"
POOLS = Vocabulary(
    "pools by windows",
    (X_INPUT, Y_INPUT, SCALE_INPUT, scalar("k", "c")),
    steps(f"""
        c = SYMBOL
        pooled = MaxPool(x, {WINDOWS}) | AveragePool(x, {WINDOWS})
        f = Relu(x) | Clip(x, min=SYMBOL) | Clip(x, max=OTHER_SYMBOL) | Max(x, x)
        f = Add(x, scale | c | x) | Mul(x, scale | c) | Concat(x, x, axis=0 | 1)
        g = MaxPool(f, {WINDOWS}) | AveragePool(f, {WINDOWS})
        g = Relu(pooled) | Clip(pooled, min=SYMBOL) | Clip(pooled, max=OTHER_SYMBOL)
        g = Add(pooled, scale | c | pooled) | Mul(pooled, scale | c)
        g = Max(pooled, pooled) | Concat(pooled, pooled, axis=0 | 1)
    """),
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
    steps("""
        pooled = AveragePool(x, kernel_shape=(3,), strides=(2,))
        f = Add(x, scale | c)
        g = AveragePool(f, kernel_shape=(3,), strides=(2,)) | Add(pooled, scale | c)
    """),
    (0, 0, 0),
    free=FREE | {"c"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "g"}),
)

CUT = Vocabulary(
    "pools of what is cut off on both sides",
    (X_INPUT,),
    steps("""
        pooled = MaxPool(x, kernel_shape=(3,), strides=(2,))
        f = Clip(x, min=SYMBOL, max=OTHER_SYMBOL)
        g = MaxPool(f, kernel_shape=(3,), strides=(2,))
        g = Clip(pooled, min=SYMBOL, max=OTHER_SYMBOL)
    """),
    (0, 0, 0),
    free=FREE,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "g"}),
    reals={SYMBOL: "low", OTHER_SYMBOL: "high"},
)
"""Without padding, since the rules are not proved for windows that may be empty."""

TWICE = Vocabulary(
    "pools of pools",
    (Input("x", X, "N C *S", (2, C, 9)),),
    (Production("MaxPool", (X,), X, choices(kernel_shape=[(2,), (3,), (4,)])),),
    (0, 0, 0),
    free=FREE,
    ranks=SPATIAL,
    roots=frozenset({X}),
)

ONCE = "once"
SAME_SIZE = {reach: {"kernel_shape": (2 * reach + 1,), "pads": (reach,) * 2} for reach in range(7)}
"""Windows that reach so many pixels to both sides, at borders of as many."""
SAME_SIZE_TWICE = Vocabulary(
    "pools of pools that keep the size",
    (Input("x", X, "N C *S", (2, C, 17)),),
    tuple(
        Production("MaxPool", (sort,), result, tuple(SAME_SIZE[reach] for reach in reaches))
        for sort, result, reaches in (
            (X, ONCE, (1, 2, 4)),
            (ONCE, "pooled", (1, 2)),
            (X, "pooled", (2, 4, 6)),
        )
    ),
    (0, 0, 0),
    free=FREE,
    ranks=SPATIAL,
    roots=frozenset({"pooled"}),
    literal=frozenset({"MaxPool"}),
)
"""As object detectors pool at several scales. Of borders of symbols, no condition is found."""


def _pooled(sort: str, result: str) -> tuple[Production, ...]:
    """Pools of everything, and the reductions that they are or that are like them."""
    ops = ("ReduceMean", "ReduceMax", "ReduceSum")
    reductions = " | ".join(f"{op}({sort}, axes=(2,), keepdims=1)" for op in ops)
    return steps(f"{result} = GlobalAveragePool({sort}) | GlobalMaxPool({sort}) | {reductions}")


GLOBAL_POOLS = Vocabulary(
    "pools of everything",
    (X_INPUT, Y_INPUT, SCALE_INPUT),
    (
        *_pooled(X, "pooled"),
        *_pooled("f", "g"),
        *_pooled("pooled", "pooled"),
        *steps(f"""
            c = SYMBOL
            less = ReduceMean(x, axes=(2,), keepdims=0) | ReduceMax(x, axes=(2,), keepdims=0)
            less = ReduceSum(x, axes=(2,), keepdims=0) | Squeeze(pooled, axes=(2,))
            flat = Flatten(pooled, axis=1) | Reshape(pooled, shape=(2, {C}))
            f = Relu(x) | Add(x, scale | c | x) | Mul(x, scale | c)
            g = Relu(pooled) | Add(pooled, scale | c | pooled) | Mul(pooled, scale | c)
        """),
    ),
    (1, 1, 1, 0),
    free=FREE,
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"pooled", "g", "less", "flat"}),
    reals={SYMBOL: "s"},
)

AVERAGES = Vocabulary(
    "averages as convolutions",
    (Input("x", X, "N C *S", (2, C, S)), Input("w", KERNEL, "O I *R", (C, C, 3))),
    steps(f"""
        x = AveragePool(x, kernel_shape=(2,) | (3,)) | Conv(x, even, group={C})
        ones = Ones(shape=({C}, 1, 2) | ({C}, 1, 3))
        mean = ReduceMean(ones, axes=(2,), keepdims=1) | ReduceSum(ones, axes=(2,), keepdims=1)
        even = Div(ones, mean)
    """),
    (3, 3),
    free=FREE,
    exact=False,
    ranks=SPATIAL,
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
        *(POOLS, SHIFTS, CUT, TWICE, SAME_SIZE_TWICE, GLOBAL_POOLS, AVERAGES, SPREAD),
        _averaged("pools of pixels", WITHOUT_BORDERS),
        _averaged("pools of pixels and borders", COUNTED),
        TAKEN,
    ),
    about="pooling and reductions over spatial axes",
)
