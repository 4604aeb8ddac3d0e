"""Vocabularies of reductions along an axis, kept or dropped, and of expanded operands."""

from __future__ import annotations

from fractions import Fraction

from xflow.generator.equations import steps
from xflow.generator.production import SYMBOL, Production, choices, numbers
from xflow.generator.vocabularies.common import X, applied
from xflow.generator.vocabularies.parts import INNER, LAST, SECOND, Layout
from xflow.generator.vocabulary import Family, Input, Vocabulary


def _reduced(layout: Layout) -> Vocabulary:
    """Reductions along an axis, with and without it, and what commutes with them."""
    kept, gone = (choices(axes=[(layout.axis,)], keepdims=[keep]) for keep in (1, 0))
    operators = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
    shape = tuple(n for place, n in enumerate(layout.sizes) if place != layout.axis)
    return Vocabulary(
        f"reductions along {layout.name}",
        (layout.input("x"), layout.input("y"), layout.column("u", "column")),
        (
            *(Production(op, (s,), "kept", kept) for op in operators for s in (X, "f")),
            *(Production(op, (s,), "gone", gone) for op in operators for s in (X, "f")),
            *steps(f"""
                c = SYMBOL
                two = 2
                gone = Squeeze(kept, axes=({layout.axis},)) | Reshape(kept, shape={shape})
                kept = Unsqueeze(gone, axes=({layout.axis},))
                f = Add(x, c | column | x) | Mul(x, c | column)
                f = Neg(x) | Abs(x) | Exp(x) | Pow(x, two)
                kept = Add(kept, c | column | kept) | Mul(kept, c | column)
                kept = Neg(kept) | Sqrt(kept) | Log(kept)
            """),
            *(
                Production(op, (X,), "kept", kept)
                for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
            ),
        ),
        (1, 1, 1),
        exact=False,
        ranks=layout.ranks,
        roots=frozenset({"kept", "gone"}),
        reals={SYMBOL: "s"},
    )


def _expanded(layout: Layout) -> Vocabulary:
    """Operands that are expanded first: broadcasting does it by itself."""
    full = choices(shape=[layout.sizes])
    small = ("line", "column")
    return Vocabulary(
        f"operands expanded to {layout.name}",
        (layout.input("x"), layout.line("r", "line"), layout.column("u", "column")),
        (
            Production("Expand", (X,), X, full),
            *(Production("Expand", (sort,), "large", full) for sort in small),
            Production("Tile", ("line",), "large", choices(repeats=[layout.around])),
            Production("Tile", ("column",), "large", choices(repeats=[layout.along])),
            *(
                applied(op, X, sort, "out")
                for op in ("Add", "Sub", "Mul", "Div")
                for sort in (*small, "large")
            ),
            *(applied(op, sort, X, "out") for op in ("Sub", "Div") for sort in (*small, "large")),
            Production("Expand", ("large",), "large", full),
        ),
        (0, 0, 0),
        exact=False,
        ranks=layout.ranks,
        roots=frozenset({X, "large", "out"}),
    )


def _joined(layout: Layout) -> Vocabulary:
    """Tensors joined along the axis that is reduced."""
    kept = choices(axes=[(layout.axis,)], keepdims=[1])
    joins = {
        "ReduceSum": "Add",
        "ReduceMax": "Max",
        "ReduceMin": "Min",
        "ReduceL1": "Add",
        "ReduceSumSquare": "Add",
    }
    return Vocabulary(
        f"reductions of what is joined along {layout.name}",
        (layout.input("x"), layout.input("y")),
        (
            Production("Concat", (X, X), "both", choices(axis=[layout.axis])),
            *(Production(op, ("both",), f"{op} of all", kept) for op in joins),
            *(Production(op, (X,), op, kept) for op in joins),
            *(applied(join, op, op, f"{op} of all") for op, join in joins.items()),
        ),
        (0, 0, 0, 0),
        exact=False,
        ranks=layout.ranks,
        roots=frozenset(f"{op} of all" for op in joins),
    )


def _of_both(op: str, keep: int) -> tuple[Production, ...]:
    """A reduction of two axes, at once or one after the other; `keep` says if they stay."""
    first, second = 1, 2
    steps = ((first, second if keep else first), (second, first))
    both = f"{op} of both" if keep else f"{op} without both"
    made = [Production(op, (X,), both, choices(axes=[(first, second)], keepdims=[keep]))]
    for axis, then in steps:
        one = f"{both}, first of {axis}"
        made += [
            Production(op, (X,), one, choices(axes=[(axis,)], keepdims=[keep])),
            Production(op, (one,), both, choices(axes=[(then,)], keepdims=[keep])),
        ]
    return tuple(made)


NESTED = tuple(
    production
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
    for keep in (1, 0)
    for production in _of_both(op, keep)
)
TWO_AXES = Vocabulary(
    "reductions of two axes",
    (
        Input("x", X, "*B n m", (2, 3, 4)),
        Input("r", "row", "*B m", (2, 4)),  # says where vectors are where an axis is gone
    ),
    NESTED,
    (0, 0, 0),
    exact=False,
    ranks=(0, 1, 2),
    roots=frozenset(made.result for made in NESTED if "first" not in made.result),
)


def _stacked(place: str, dims: str, stack: str, axis: int) -> Vocabulary:
    """Two or three tensors side by side along an axis of their own, which is reduced at once.

    `dims` are the axes of each, and `stack` those of all: an input of that rank, which nothing
    reads, tells where the vector is.
    """
    names = ("x", "y", "z")
    rows = tuple(f"row of {name}" for name in names)
    side_by_side, new = choices(axis=[axis]), choices(axes=[(axis,)])
    over = choices(axes=[(axis,)], keepdims=[0])
    joins = {"ReduceMax": "Max", "ReduceMin": "Min", "ReduceSum": "Add"}
    results = {**joins, "ReduceMean": "mean"}
    pairs = [applied(name, "x", "y", name) for name in joins.values()]
    pairs += [applied(name, name, "z", f"{name} of all") for name in joins.values()]
    return Vocabulary(
        f"tensors stacked along the {place} axis and reduced",
        (*(Input(name, name, dims, (3, 4)) for name in names), Input("s", "all", stack, (3, 4, 2))),
        (
            numbers("half", Fraction(1, 2)),
            numbers("third", Fraction(1, 3)),
            *(Production("Unsqueeze", (n,), row, new) for n, row in zip(names, rows, strict=True)),
            Production("Concat", rows[:2], "two", side_by_side),
            Production("Concat", rows, "three", side_by_side),
            *(Production(op, ("two",), result, over) for op, result in results.items()),
            *(
                Production(op, ("three",), f"{result} of all", over)
                for op, result in results.items()
            ),
            *pairs,
            applied("Mul", "Add", "half", "mean"),
            applied("Mul", "Add of all", "third", "mean of all"),
        ),
        (1,) * 6,
        exact=False,
        ranks=(0, 1, 2, 3),
        roots=frozenset(f"{name}{many}" for name in results.values() for many in ("", " of all")),
        chain=True,
    )


STACKS = (
    _stacked("first", "n *S", "m n *S", 0),
    _stacked("second", "n *S", "n m *S", 1),
    _stacked("last", "*B n", "*B n m", 2),
)

LENGTH = 4
COUNTED = Vocabulary(
    "sums divided by their number",
    (Input("x", X, "*B n", (3, LENGTH)),),
    limits=(3, 3, 3),
    exact=False,
    ranks=(0, 1, 2, 3),
    roots=frozenset({"mean"}),
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

REDUCTIONS = Family(
    "reductions",
    (
        *(make(layout) for layout in (SECOND, LAST) for make in (_reduced, _expanded)),
        _expanded(INNER),
        COUNTED,
        *STACKS,
        *(_joined(layout) for layout in (SECOND, LAST)),
        TWO_AXES,
    ),
    about="reductions of one axis or two, of stacks and joined tensors, and expanded operands",
)
