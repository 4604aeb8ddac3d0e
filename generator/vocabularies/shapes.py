"""Vocabularies of operators on shapes and axis order, and of those that commute with them."""

from __future__ import annotations

from itertools import product

from xflow.core.registry import Attribute
from xflow.generator.vocabularies.common import SYMBOL, X, applied, pointwise, scalar
from xflow.generator.vocabularies.parts import INNER
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

LAST_AXIS = choices(axis=[2], epsilon=[SYMBOL])


def _moved(
    name: str, moves: tuple[Production, ...], *inputs: Input, ranks: tuple[int, ...] = (0,)
) -> Vocabulary:
    """Operators that move elements, and elementwise ones before (f) and after them (g)."""
    stages = ((X, "f"), ("moved", "g"))
    return Vocabulary(
        name,
        (*inputs, scalar("k", "c")),
        (
            *moves,
            *(
                pointwise(result, sort, *second)
                for sort, result in stages
                for second in ((), (sort,), ("c",))
            ),
        ),
        (0, 0, 0, 0),
        free=frozenset({"c"}),
        exact=False,
        ranks=ranks,
        roots=frozenset({X, "moved", "f", "g"}),
    )


def _both(op: str, lists: tuple[dict[str, Attribute], ...]) -> tuple[Production, ...]:
    """An operator on inputs, on what was moved, and on what was computed."""
    return (
        Production(op, (X,), "moved", lists),
        Production(op, ("moved",), "moved", lists),
        Production(op, ("f",), "g", lists),
    )


FOUR = tuple(Input(name, X, "N C H W", (2, 3, 4, 5)) for name in "xy")
PERMUTATIONS: list[Attribute] = [(0, 2, 1, 3), (0, 1, 3, 2), (0, 2, 3, 1), (0, 3, 1, 2)]
"""Heads in and out, matrices, channels last and first: what models of four axes do."""

CHANNEL_SCALES = Vocabulary(
    "scales between transposes",
    (Input("x", X, "N C H W", (2, 3, 4, 5)), Input("r", "vector", "C", (3,))),
    (
        Production("Transpose", (X,), "last", choices(perm=[(0, 2, 3, 1)])),
        Production("Unsqueeze", ("vector",), "image", choices(axes=[(1, 2)])),
        pointwise("scaled", "last", "vector"),
        pointwise("f", X, "image"),
        Production("Transpose", ("f",), "scaled", choices(perm=[(0, 2, 3, 1)])),
        Production("Transpose", ("scaled",), "f", choices(perm=[(0, 3, 1, 2)])),
    ),
    (1, 1, 1, 1),
    free=frozenset({"vector", "image"}),
    exact=False,
    roots=frozenset({"scaled", "f"}),
)

TRANSPOSES = _moved("transposes", _both("Transpose", choices(perm=PERMUTATIONS)), *FOUR)

PLANES = _moved(
    "transposed matrices",
    _both("Transpose", choices(perm=[(0, 2, 1)])),
    *(Input(name, X, "*B n m", (2, 3, 4)) for name in "xy"),
    ranks=(0, 1, 2),
)

SHAPES_OF = {"matrix": (6, 20), "rows": (2, 3, 20), "heads": (2, 3, 4, 5)}
"""Sorts of tensors of two, three and four axes with as many elements."""


def _reshaped(sort: str, dims: str) -> Vocabulary:
    """Reshapes to other numbers of axes, once and twice, and elementwise operators between."""
    results = {name: f"{name} of f" for name in SHAPES_OF}
    return Vocabulary(
        f"reshaped {sort}",
        tuple(Input(name, sort, dims, SHAPES_OF[sort]) for name in "xy"),
        (
            *(
                Production("Reshape", (first,), second, choices(shape=[shape]))
                for first in SHAPES_OF
                for second, shape in SHAPES_OF.items()
            ),
            *(Production("Flatten", (name,), "flat", choices(axis=[1])) for name in SHAPES_OF),
            *(
                Production("Reshape", (name,), "flat", choices(shape=[(2, 60)]))
                for name in SHAPES_OF
            ),
            *(
                pointwise(result, *args)
                for name, result in results.items()
                for args in ((name,), (name, name))
            ),
            *(
                Production("Reshape", (results[sort],), results[name], choices(shape=[shape]))
                for name, shape in SHAPES_OF.items()
            ),
        ),
        (0, 0, 0, 0),
        exact=False,
        roots=frozenset({*SHAPES_OF, "flat", *results.values()}),
    )


RESHAPES = (
    _reshaped("matrix", "n m"),
    _reshaped("rows", "N L D"),
    _reshaped("heads", "N L H C"),
)

MASKS = Vocabulary(
    "masks",
    (
        Input("x", X, "N H L K", (2, 3, 4, 5)),
        Input("y", "mask", "1 1 1 K", (1, 1, 1, 5)),
        Input("z", "mask", "N 1 1 K", (2, 1, 1, 5)),
        Input("u", "mask", "L 1", (4, 1)),
        Input("v", "mask", "K", (5,)),
    ),
    (
        Production(
            "Expand",
            ("mask",),
            "large",
            choices(shape=[(4, 5), (1, 1, 4, 5), (2, 1, 4, 5), (2, 3, 4, 5)]),
        ),
        *(pointwise("out", X, sort) for sort in ("mask", "large")),
    ),
    (0, 0, 0),
    exact=False,
    roots=frozenset({"out"}),
)


def _corners(name: str, dims: str, axes: tuple[int, int], ranks: tuple[int, ...]) -> Vocabulary:
    """Slices along two axes, at once or one after the other."""
    sizes = tuple(9 if place in axes else 2 for place in range(len(dims.split())))
    bounds = [(start, end) for start in (1, 2, 3) for end in (6, 7, 8)]

    def slices(*along: int) -> tuple[dict[str, Attribute], ...]:
        return tuple(
            {
                "starts": tuple(start for start, _ in chosen),
                "ends": tuple(end for _, end in chosen),
                "axes": along,
                "steps": (1,) * len(along),
            }
            for chosen in product(bounds, repeat=len(along))
        )

    return Vocabulary(
        name,
        (Input("x", X, dims, sizes),),
        (
            *(Production("Slice", (X,), f"part {axis}", slices(axis)) for axis in axes),
            Production("Slice", (X,), "corner", slices(*axes)),
            Production("Slice", (f"part {axes[0]}",), "corner", slices(axes[1])),
            Production("Slice", (f"part {axes[1]}",), "corner", slices(axes[0])),
        ),
        (0, 0, 0),
        ranks=ranks,
        roots=frozenset({"corner"}),
    )


CORNERS = (
    _corners("corners of matrices", "*B n m", (1, 2), (0, 1, 2)),
    _corners("corners behind a batch", "N n m *S", (1, 2), (0, 1)),
)

ENDS = choices(axes=[(0,), (1,), (2,)])
AXES = _moved(
    "axes of extent 1",
    (
        Production("Unsqueeze", (X,), "moved", ENDS),
        Production("Squeeze", ("moved",), X, ENDS),
        Production("Reshape", (X,), "moved", choices(shape=[(1, 2, 3, 4), (2, 1, 3, 4)])),
        Production("Unsqueeze", ("f",), "g", ENDS),
        Production("Squeeze", ("g",), "f", ENDS),
    ),
    *(Input(name, X, "N C *S", (2, 3, 4)) for name in "xy"),
    ranks=(1, 2),
)


GATHERED = Vocabulary(
    "gathered rows",
    (
        Input("x", X, "n m", (4, 4)),
        Input("y", X, "n m", (4, 4)),
        Input("w", "weight", "n m", (4, 4)),
        Input("b", "vector", "m", (4,)),
        Input("i", "places", "l", (3,), dtype="INT64"),
    ),
    (
        *(
            Production("Gather", (sort, "places"), result, choices(axis=[0]))
            for sort, result in ((X, "rows"), ("f", "g"))
        ),
        *(
            production
            for sort, result in ((X, "f"), ("rows", "g"))
            for production in (
                pointwise(result, sort),
                pointwise(result, sort, sort),
                pointwise(result, sort, "vector"),
                applied("MatMul", sort, "weight", result),
            )
        ),
    ),
    (0, 0, 0, 0),
    free=frozenset({"weight", "vector"}),
    exact=False,
    roots=frozenset({"g"}),
)

BLOCK = choices(blocksize=[2])
BLOCKS = _moved(
    "blocks of pixels",
    (
        Production("DepthToSpace", (X,), "moved", choices(blocksize=[2], mode=["DCR", "CRD"])),
        Production("SpaceToDepth", (X,), "moved", BLOCK),
        Production("SpaceToDepth", ("moved",), X, BLOCK),
        Production("DepthToSpace", ("f",), "g", choices(blocksize=[2], mode=["DCR", "CRD"])),
        Production("SpaceToDepth", ("f",), "g", BLOCK),
    ),
    *(Input(name, X, "N C H W", (3, 8, 4, 6)) for name in "xy"),
)

ROWS = Vocabulary(
    "rows of sequences",
    (
        INNER.input("x"),
        INNER.input("y"),
        Input("k", "matrix", "*B n m", (2, 3, 3)),
        Input("w", "weight", "n m", (3, 3)),
        Input("a", "vector", "m", (3,)),
        Input("b", "vector", "m", (3,)),
    ),
    (
        Production("Slice", (X,), "part", INNER.slices(range(1, 2), range(3, 4))),
        *(
            production
            for sort, result in ((X, "f"), ("part", "g"))
            for production in (
                pointwise(result, sort),
                pointwise(result, sort, "vector"),
                pointwise(result, sort, sort),
                *(applied("MatMul", sort, second, result) for second in ("weight", "matrix")),
                Production("Softmax", (sort,), result, choices(axis=[2])),
                Production("LayerNormalization", (sort, "vector", "vector"), result, LAST_AXIS),
                Production("RMSNormalization", (sort, "vector"), result, LAST_AXIS),
            )
        ),
        Production("Slice", ("f",), "g", INNER.slices(range(1, 2), range(3, 4))),
    ),
    (0, 0, 0, 0),
    free=frozenset({"weight", "vector"}),
    exact=False,
    ranks=INNER.ranks,
    roots=frozenset({"g"}),
    reals={SYMBOL: "epsilon"},
)

SHAPES = Family(
    "shapes",
    (TRANSPOSES, CHANNEL_SCALES, PLANES, *RESHAPES, AXES, GATHERED, BLOCKS, ROWS, MASKS, *CORNERS),
    about="transposes, reshapes, axes of extent 1, gathered rows and parts of sequences",
)
