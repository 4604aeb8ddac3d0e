"""Vocabularies of what a factor goes past: functions, reductions and pools of multiples.

A factor that is not negative goes past whatever keeps order. The rules say so of it, since it is a
scale that is known: a constant, or one that an analysis shows to be positive.
"""

from __future__ import annotations

from dataclasses import replace

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import anywhere, scalar, sorts, stages
from xflow.generator.vocabularies.convolutions import SPATIAL, flat, image
from xflow.generator.vocabularies.parts import LAST, SECOND, Layout
from xflow.generator.vocabularies.pools import WINDOW
from xflow.generator.vocabulary import Family, Input, Vocabulary

ANYWHERE = stages(
    "functions of positive multiples",
    (anywhere("x"), anywhere("y"), anywhere("s", "scale", sign="> 0")),
    limits=(1,) * 4,
    free=sorts("scale"),
    roots=sorts("out scale"),
    reals={SYMBOL: "alpha"},
).steps("""
    zero = 0
    scaled = Mul(x, scale)
    quotient = Div(x, scale)
    f = Relu(x) | Abs(x) | LeakyRelu(x, alpha=SYMBOL) | Max(x, x) | Min(x, x | zero)
    out = Relu(scaled) | Abs(scaled) | LeakyRelu(scaled, alpha=SYMBOL)
    out = Max(scaled, scaled) | Min(scaled, scaled | zero) | Mul(f, scale)
    out = Relu(quotient) | Abs(quotient) | LeakyRelu(quotient, alpha=SYMBOL) | Div(f, scale)
    scale = Abs(scale) | Relu(scale)
""")

DIRECTIONS = stages(
    "signs of positive multiples",
    (anywhere("x"), anywhere("s", "scale", sign="> 0")),
    limits=(0,) * 4,
    searched=False,
).steps("""
    multiple = Mul(x, scale) | Div(x, scale)
    out = Sign(x | multiple)
""")
"""Not searched: a product of 1e-25 and another such number has no sign in floats."""

SYMBOLS = stages(
    "functions of multiples by a positive number",
    (anywhere("x"), anywhere("y")),
    limits=(1,) * 4,
    reals={SYMBOL: "a"},
    signs={"a": "> 0"},
).steps("""
    c = SYMBOL
    scaled = Mul(x, c)
    f = Relu(x) | Abs(x) | Max(x, x) | Min(x, x)
    out = Relu(scaled) | Abs(scaled) | Max(scaled, scaled) | Min(scaled, scaled) | Mul(f, c)
""")


def _reduced(layout: Layout) -> Vocabulary:
    """Reductions of multiples; sums of magnitudes of any, and extremes by what is not negative."""
    way = f"axes=({layout.axis},), keepdims=1"
    column = layout.column("u", "column")
    line = Input("s", "scale", column.dims, column.sizes, sign="> 0")
    return stages(
        f"reductions of multiples along {layout.name}",
        (layout.input("x"), column, line),
        limits=(1,) * 5,
        free=sorts("scale"),
        ranks=layout.ranks,
    ).steps(f"""
        scaled = Mul(x, column)
        shrunk = Div(x, column)
        size = Abs(column)
        norm = ReduceL1(x, {way})
        out = ReduceL1(scaled | shrunk, {way}) | Mul(norm, size) | Div(norm, size)
        positive = Mul(x, scale)
        extreme = ReduceMax(x, {way}) | ReduceMin(x, {way})
        out = ReduceMax(positive, {way}) | ReduceMin(positive, {way}) | Mul(extreme, scale)
    """)


def _squared(layout: Layout) -> Vocabulary:
    """Norms and sums of squares of multiples.

    They are not searched: squares of 1e-12 times 1e-12 are 0 in floats, and the product of two
    norms is not.
    """
    way = f"axes=({layout.axis},), keepdims=1"
    return stages(
        f"squares of multiples along {layout.name}",
        (layout.input("x"), layout.column("u", "column")),
        limits=(1,) * 5,
        ranks=layout.ranks,
        searched=False,
    ).steps(f"""
        scaled = Mul(x, column)
        shrunk = Div(x, column)
        size = Abs(column)
        square = Mul(column, column)
        power = ReduceSumSquare(x, {way})
        norm = ReduceL2(x, {way})
        out = ReduceL2(scaled | shrunk, {way}) | ReduceSumSquare(scaled | shrunk, {way})
        out = Mul(norm, size) | Div(norm, size) | Mul(power, square) | Div(power, square)
    """)


POOLED = stages(
    "pools of positive multiples",
    (image("x"), replace(flat("s", "scale"), sign="> 0"), scalar("k", "scale", sign="> 0")),
    limits=(0,) * 4,
    free=sorts("scale"),
    ranks=SPATIAL,
).steps(f"""
    scaled = Mul(x, scale)
    pooled = MaxPool(x, {WINDOW}) | GlobalMaxPool(x)
    out = MaxPool(scaled, {WINDOW}) | GlobalMaxPool(scaled) | Mul(pooled, scale)
""")

MULTIPLES = Family(
    "multiples",
    (
        *(ANYWHERE, DIRECTIONS, SYMBOLS),
        *(made(layout) for made in (_reduced, _squared) for layout in (SECOND, LAST)),
        POOLED,
    ),
    about="factors past functions, reductions and pools",
)
