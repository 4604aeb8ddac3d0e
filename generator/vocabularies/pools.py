"""Vocabularies of pooling, by windows and global, and of operators that commute with it.

An operator makes `f` of an image, and `g` of what is pooled: `f` is pooled to `g`.
"""

from __future__ import annotations

from functools import partial

from xflow.generator.production import OTHER_SYMBOL, SYMBOL
from xflow.generator.vocabularies.common import X, either, scalar, sorts
from xflow.generator.vocabularies.convolutions import (
    FREE,
    C,
    bias,
    image,
    kernel,
    of_images,
    point,
    scale,
)
from xflow.generator.vocabulary import Family, Input, Vocabulary

of_pools = partial(of_images, exact=False, roots=sorts("pooled g"))
BOUNDS = {SYMBOL: "low", OTHER_SYMBOL: "high"}

WINDOW = "kernel_shape=(3,), pads=(1, 0), strides=(2,)"
POOLS = of_pools(
    "pools by windows",
    (image("x"), image("y"), scale("r"), scalar("k", "c")),
    limits=(1, 1, 1, 0),
    free=FREE | {"c"},
    reals=BOUNDS,
).steps(f"""
    c = SYMBOL
    pooled = MaxPool(x, {WINDOW}) | AveragePool(x, {WINDOW})
    f = Relu(x) | Clip(x, min=SYMBOL) | Clip(x, max=OTHER_SYMBOL) | Max(x, x)
    f = Add(x, scale | c | x) | Mul(x, scale | c) | Concat(x, x, axis=0 | 1)
    g = MaxPool(f, {WINDOW}) | AveragePool(f, {WINDOW})
    g = Relu(pooled) | Clip(pooled, min=SYMBOL) | Clip(pooled, max=OTHER_SYMBOL)
    g = Add(pooled, scale | c | pooled) | Mul(pooled, scale | c)
    g = Max(pooled, pooled) | Concat(pooled, pooled, axis=0 | 1)
""")

WITHOUT_BORDERS = "kernel_shape=(3,), strides=(2,)"
SHIFTS = of_pools(
    "pools of shifted images", (image("x"), scale("r"), scalar("k", "c")), free=FREE | {"c"}
).steps(f"""
    pooled = AveragePool(x, {WITHOUT_BORDERS})
    f = Add(x, scale | c)
    g = AveragePool(f, {WITHOUT_BORDERS}) | Add(pooled, scale | c)
""")

CUT = of_pools(
    "pools of what is cut off on both sides", (image("x"),), exact=True, reals=BOUNDS
).steps(f"""
    pooled = MaxPool(x, {WITHOUT_BORDERS})
    f = Clip(x, min=SYMBOL, max=OTHER_SYMBOL)
    g = MaxPool(f, {WITHOUT_BORDERS}) | Clip(pooled, min=SYMBOL, max=OTHER_SYMBOL)
""")
"""Without padding, since the rules are not proved for windows that may be empty."""

TWICE = of_images("pools of pools", (image("x", 9),), roots=sorts("x")).steps(
    "x = MaxPool(x, kernel_shape=(2,) | (3,) | (4,))"
)


ANY_OF_ALL = of_images(
    "pools of everything after windows", (image("x", 9),), roots=sorts("out")
).steps("""
    pooled = MaxPool(x, kernel_shape=(2,) | (3,) | (4,))
    out = GlobalMaxPool(x | pooled)
""")


def _means(sort: str, *windows: int) -> str:
    """Means by windows of so many pixels, side by side."""
    return " | ".join(f"AveragePool({sort}, kernel_shape=({k},), strides=({k},))" for k in windows)


MEANS_OF_MEANS = Vocabulary(
    "means of means by windows",
    (image("x", 48),),
    exact=False,
    ranks=(1, 2),
    roots=sorts("out"),
).steps(f"""
    once = {_means("x", 2, 3, 4)}
    out = {_means("once", 2, 3, 4)}
    out = {_means("x", 4, 6, 8, 9, 12, 16)}
""")


def _same_size(*reaches: int) -> tuple[dict[str, tuple[int, ...]], ...]:
    """Windows that reach so many pixels to both sides, at borders of as many."""
    return tuple({"kernel_shape": (2 * n + 1,), "pads": (n, n)} for n in reaches)


SAME_SIZE_TWICE = of_images(
    "pools of pools that keep the size",
    (image("x", 17),),
    roots=sorts("pooled"),
    literal=sorts("MaxPool"),
).steps(
    """
    once = MaxPool(x, **first)
    pooled = MaxPool(once, **second) | MaxPool(x, **both)
    """,
    first=_same_size(1, 2, 4),
    second=_same_size(1, 2),
    both=_same_size(2, 4, 6),
)
"""As object detectors pool at several scales. Of borders of symbols, no condition is found."""

KEPT, GONE = "axes=(2,), keepdims=1", "axes=(2,), keepdims=0"
GLOBAL_POOLS = of_pools(
    "pools of everything",
    (image("x"), image("y"), scale("r")),
    limits=(1, 1, 1, 0),
    roots=sorts("pooled g less flat"),
    reals={SYMBOL: "s"},
).steps(f"""
    pooled, g, pooled = (
        GlobalAveragePool((x, f, pooled)) | GlobalMaxPool((x, f, pooled))
        | ReduceMean((x, f, pooled), {KEPT}) | ReduceMax((x, f, pooled), {KEPT})
        | ReduceSum((x, f, pooled), {KEPT})
    )
    c = SYMBOL
    less = ReduceMean(x, {GONE}) | ReduceMax(x, {GONE}) | ReduceSum(x, {GONE})
    less = Squeeze(pooled, axes=(2,))
    flat = Flatten(pooled, axis=1) | Reshape(pooled, shape=(2, {C}))
    f = Relu(x) | Add(x, scale | c | x) | Mul(x, scale | c)
    g = Relu(pooled) | Add(pooled, scale | c | pooled) | Mul(pooled, scale | c)
""")

AVERAGES = of_images(
    "averages as convolutions", (image("x"), kernel("w")), limits=(3, 3), exact=False
).steps(f"""
    x = AveragePool(x, kernel_shape=(2,) | (3,)) | Conv(x, even, group={C})
    ones = Ones(shape=({C}, 1, 2) | ({C}, 1, 3))
    mean = ReduceMean(ones, {KEPT}) | ReduceSum(ones, {KEPT})
    even = Div(ones, mean)
""")

EXTENTS = range(2, 8)
SPREAD = of_images(
    "one pixel spread",
    (Input("x", X, "N C *1", (2, C, 1)),),
    limits=(0, 0),
    free=frozenset(),
    exact=False,
    roots=sorts("pooled"),
).steps(
    f"pooled = Expand(x, shape={either((2, C, k) for k in EXTENTS)}) | AveragePool(x, **windows)",
    windows=[{"kernel_shape": (k,), "pads": (k - 1, k - 1)} for k in EXTENTS],
)

PIXELS = (image("x"), point("v"), bias("b"))


def _averaged(name: str, window: str) -> Vocabulary:
    """Means by windows before what a convolution makes of each pixel, and after it."""
    return of_pools(name, PIXELS).steps(f"""
        pooled, g = AveragePool((x, f), {window})
        f, g = Conv((x, pooled), kernel, [bias])
    """)


STRIDES = "strides=" + either((stride,) for stride in EXTENTS)
TAKEN = of_pools("some of the pixels", PIXELS).steps(f"""
    pooled = AveragePool(x, kernel_shape=(1,), {STRIDES}) | MaxPool(x, kernel_shape=(1,), {STRIDES})
    g = Conv(pooled, kernel, [bias]) | Conv(x, kernel, [bias], {STRIDES})
""")

POOLING = Family(
    "pooling",
    (
        *(POOLS, SHIFTS, CUT, TWICE, SAME_SIZE_TWICE, ANY_OF_ALL, MEANS_OF_MEANS),
        *(GLOBAL_POOLS, AVERAGES, SPREAD),
        _averaged("pools of pixels", WITHOUT_BORDERS),
        # Padding is counted: nothing is proved of a mean over a window without elements.
        _averaged("pools of pixels and borders", f"{WINDOW}, count_include_pad=1"),
        TAKEN,
    ),
    about="pooling and reductions over spatial axes",
)
