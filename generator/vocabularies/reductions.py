"""Vocabularies of reductions along an axis, kept or dropped, and of expanded operands."""

from __future__ import annotations

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, any_of, sorts, stages, tensors
from xflow.generator.vocabularies.parts import INNER, LAST, SECOND, Layout
from xflow.generator.vocabulary import Family, Input, Vocabulary

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")


def _reduced(layout: Layout) -> Vocabulary:
    """Reductions along an axis, with and without it, and what commutes with them."""
    kept, gone = (f"axes=({layout.axis},), keepdims={keep}" for keep in (1, 0))
    shape = tuple(n for place, n in enumerate(layout.sizes) if place != layout.axis)
    return Vocabulary(
        f"reductions along {layout.name}",
        (layout.input("x"), layout.input("y"), layout.column("u", "column")),
        limits=(1, 1, 1),
        exact=False,
        ranks=layout.ranks,
        roots=sorts("kept gone"),
        reals={SYMBOL: "s"},
    ).steps(f"""
        kept = {any_of(REDUCTIONS, f"x | f, {kept}")}
        gone = {any_of(REDUCTIONS, f"x | f, {gone}")}
        c = SYMBOL; two = 2
        gone = Squeeze(kept, axes=({layout.axis},)) | Reshape(kept, shape={shape})
        kept = Unsqueeze(gone, axes=({layout.axis},))
        f = Add(x, c | column | x) | Mul(x, c | column)
        f = Neg(x) | Abs(x) | Exp(x) | Pow(x, two)
        kept = Add(kept, c | column | kept) | Mul(kept, c | column)
        kept = Neg(kept) | Sqrt(kept) | Log(kept)
        kept = ReduceL1(x, {kept}) | ReduceL2(x, {kept})
        kept = ReduceSumSquare(x, {kept}) | ReduceLogSumExp(x, {kept})
    """)


def _expanded(layout: Layout) -> Vocabulary:
    """Operands that are expanded first: broadcasting does it by itself."""
    shape = f"shape={layout.sizes}"
    last = layout.axis == len(layout.sizes) - 1
    flat = (Input("v", "flat", layout.dims.split()[-1], layout.sizes[-1:]),) if last else ()
    small = " | ".join(("line", "column", *(each.sort for each in flat), "large"))
    return Vocabulary(
        f"operands expanded to {layout.name}",
        (layout.input("x"), layout.line("r", "line"), layout.column("u", "column"), *flat),
        exact=False,
        ranks=layout.ranks,
        roots=sorts("x large out"),
    ).steps(f"""
        x = Expand(x, {shape})
        large = Expand({small}, {shape})
        large = Tile(line, repeats={layout.around}) | Tile(column, repeats={layout.along})
        out = Elementwise(x, {small})
    """)


def _joined(layout: Layout) -> Vocabulary:
    """Tensors joined along the axis that is reduced."""
    kept = f"axes=({layout.axis},), keepdims=1"
    results = ("total", "top", "bottom", "size", "squares")
    return Vocabulary(
        f"reductions of what is joined along {layout.name}",
        (layout.input("x"), layout.input("y")),
        limits=(0, 0, 0, 0),
        exact=False,
        ranks=layout.ranks,
        roots=frozenset(f"{result} of both" for result in results),
    ).steps(f"""
        both = Concat(x, x, axis={layout.axis})
        total_of_both = ReduceSum(both, {kept})
        top_of_both = ReduceMax(both, {kept})
        bottom_of_both = ReduceMin(both, {kept})
        size_of_both = ReduceL1(both, {kept})
        squares_of_both = ReduceSumSquare(both, {kept})
        total = ReduceSum(x, {kept})
        top = ReduceMax(x, {kept})
        bottom = ReduceMin(x, {kept})
        size = ReduceL1(x, {kept})
        squares = ReduceSumSquare(x, {kept})
        total_of_both = Add(total, total)
        top_of_both = Max(top, top)
        bottom_of_both = Min(bottom, bottom)
        size_of_both, squares_of_both = Add((size, squares), (size, squares))
    """)


def _of_both(op: str, keep: int) -> str:
    """A reduction of two axes, at once or one after the other; `keep` says if they stay."""
    both = f"{op}_kept" if keep else f"{op}_gone"
    return f"""
        {both} = {op}(x, axes=(1, 2), keepdims={keep})
        {both}_along_first = {op}(x, axes=(1,), keepdims={keep})
        {both} = {op}({both}_along_first, axes=({2 if keep else 1},), keepdims={keep})
        {both}_along_second = {op}(x, axes=(2,), keepdims={keep})
        {both} = {op}({both}_along_second, axes=(1,), keepdims={keep})
    """


MATRICES = tensors("x: x[*B n m]  row: r[*B m]", B=2, n=3, m=4)
TWO_AXES = Vocabulary(
    "reductions of two axes",
    MATRICES,
    limits=(0, 0, 0),
    exact=False,
    ranks=(0, 1, 2),
    roots=frozenset(f"{op} {kept}" for op in REDUCTIONS for kept in ("kept", "gone")),
).steps(*(_of_both(op, keep) for op in REDUCTIONS for keep in (1, 0)))


def _stacked(place: str, dims: str, stack: str, axis: int) -> Vocabulary:
    """Two or three tensors side by side along an axis of their own, which is reduced at once.

    `dims` are the axes of each, and `stack` those of all: an input of that rank, which nothing
    reads, tells where the vector is.
    """
    over = f"axes=({axis},), keepdims=0"
    results = ("top", "bottom", "sum", "mean")
    return stages(
        f"tensors stacked along the {place} axis and reduced",
        (*(Input(name, name, dims, (3, 4)) for name in "xyz"), Input("s", "all", stack, (3, 4, 2))),
        limits=(1,) * 6,
        ranks=(0, 1, 2, 3),
        roots=frozenset(f"{result}{many}" for result in results for many in ("", " of all")),
    ).steps(f"""
        half = 1/2; third = 1/3
        row_of_x, row_of_y, row_of_z = Unsqueeze((x, y, z), axes=({axis},))
        two = Concat(row_of_x, row_of_y, axis={axis})
        three = Concat(row_of_x, row_of_y, row_of_z, axis={axis})
        top = ReduceMax(two, {over})
        bottom = ReduceMin(two, {over})
        sum = ReduceSum(two, {over})
        mean = ReduceMean(two, {over})
        top_of_all = ReduceMax(three, {over})
        bottom_of_all = ReduceMin(three, {over})
        sum_of_all = ReduceSum(three, {over})
        mean_of_all = ReduceMean(three, {over})
        top = Max(x, y)
        bottom = Min(x, y)
        sum = Add(x, y)
        top_of_all = Max(top, z)
        bottom_of_all = Min(bottom, z)
        sum_of_all = Add(sum, z)
        mean, mean_of_all = Mul((sum, sum_of_all), (half, third))
    """)


STACKS = (
    _stacked("first", "n *S", "m n *S", 0),
    _stacked("second", "n *S", "n m *S", 1),
    _stacked("last", "*B n", "*B n m", 2),
)

TURNED = Vocabulary(
    "reductions of turned matrices",
    MATRICES,
    exact=False,
    ranks=(0, 1, 2),
    roots=frozenset(REDUCTIONS),
).steps(
    "turned = Transpose(x, perm=(0, 2, 1))",
    *(f"{op} = {op}(x | turned, axes=(1,) | (2,), keepdims=0)" for op in REDUCTIONS),
)

KEPT = tuple(
    stages(
        f"{op} of turned matrices", MATRICES, limits=(0,) * 3, ranks=(0, 1, 2), searched=False
    ).steps(f"""
        turned = Transpose(x, perm=(0, 2, 1))
        made = {op}(x, {first}) | {op}(x, {second})
        out = {op}(turned, {first}) | {op}(turned, {second}) | Transpose(made, perm=(0, 2, 1))
    """)
    for op, first, second in (
        *((op, "axes=(1,), keepdims=1", "axes=(2,), keepdims=1") for op in REDUCTIONS),
        *((op, "axis=1", "axis=2") for op in ("Softmax", "LogSoftmax")),
    )
)
"""Not searched: with as many operators, the axes are turned before or after."""

LENGTH = 4
COUNTED = Vocabulary(
    "sums divided by their number",
    (Input("x", X, "*B n", (3, LENGTH)),),
    limits=(3, 3, 3),
    exact=False,
    ranks=(0, 1, 2, 3),
    roots=sorts("mean"),
    chain=True,
    by_example=True,
).steps(f"""
    ones = Ones(shape=({LENGTH},))
    number = ReduceSum(ones, axes=(0,), keepdims=0)
    inverse = Reciprocal(number)
    sum = ReduceSum(x, axes=(1,), keepdims=0 | 1)
    mean = Mul(sum, inverse) | ReduceMean(x, axes=(1,), keepdims=0 | 1)
""")
"""Models hold 1/n as a constant; by the sum of so many ones it is tied to the extent. Sums divided
by n are products with what is then computed."""

REDUCTIONS_FAMILY = Family(
    "reductions",
    (
        *(make(layout) for layout in (SECOND, LAST) for make in (_reduced, _expanded)),
        _expanded(INNER),
        COUNTED,
        *STACKS,
        *(_joined(layout) for layout in (SECOND, LAST)),
        *(TWO_AXES, TURNED, *KEPT),
    ),
    about="reductions of one axis or two, of stacks and joined tensors, and expanded operands",
)
