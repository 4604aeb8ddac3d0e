"""Vocabularies of operators on shapes and axis order, and of those that commute with them."""

from __future__ import annotations

from itertools import product

from xflow.core.registry import Attribute
from xflow.generator.equations import steps
from xflow.generator.production import SYMBOL, Production
from xflow.generator.vocabularies.common import X, scalar
from xflow.generator.vocabularies.parts import INNER
from xflow.generator.vocabulary import Family, Input, Vocabulary


def _moved(
    name: str, moves: tuple[Production, ...], *inputs: Input, ranks: tuple[int, ...] = (0,)
) -> Vocabulary:
    """Operators that move elements, and elementwise ones before (f) and after them (g)."""
    return Vocabulary(
        name,
        (*inputs, scalar("k", "c")),
        (
            *moves,
            *steps("""
                f = Elementwise(x, [x | c])
                g = Elementwise(moved, [moved | c])
            """),
        ),
        (0, 0, 0, 0),
        free=frozenset({"c"}),
        exact=False,
        ranks=ranks,
        roots=frozenset({X, "moved", "f", "g"}),
    )


def _transposed(perms: str) -> tuple[Production, ...]:
    """Transposes of inputs, of what was moved, and of what was computed."""
    return steps(f"""
        moved = Transpose(x | moved, perm={perms})
        g = Transpose(f, perm={perms})
    """)


FOUR = tuple(Input(name, X, "N C H W", (2, 3, 4, 5)) for name in "xy")
PERMUTATIONS = "(0, 2, 1, 3) | (0, 1, 3, 2) | (0, 2, 3, 1) | (0, 3, 1, 2)"
"""Heads in and out, matrices, channels last and first: what models of four axes do."""

CHANNEL_SCALES = Vocabulary(
    "scales between transposes",
    (Input("x", X, "N C H W", (2, 3, 4, 5)), Input("r", "vector", "C", (3,))),
    limits=(1, 1, 1, 1),
    free=frozenset({"vector"}),
    exact=False,
    roots=frozenset({"scaled", "f"}),
).steps("""
    last = Transpose(x, perm=(0, 2, 3, 1))
    image = Unsqueeze(vector, axes=(1, 2))
    scaled = Elementwise(last, vector) | Transpose(f, perm=(0, 2, 3, 1))
    f = Elementwise(x, image) | Transpose(scaled, perm=(0, 3, 1, 2))
""")

TRANSPOSES = _moved("transposes", _transposed(PERMUTATIONS), *FOUR)

PLANES = _moved(
    "transposed matrices",
    _transposed("(0, 2, 1)"),
    *(Input(name, X, "*B n m", (2, 3, 4)) for name in "xy"),
    ranks=(0, 1, 2),
)

SHAPES_OF = {"matrix": (6, 20), "rows": (2, 3, 20), "heads": (2, 3, 4, 5)}
"""Sorts of tensors of two, three and four axes with as many elements."""


def _reshaped(sort: str, dims: str) -> Vocabulary:
    """Reshapes to other numbers of axes, once and twice, and elementwise operators between."""
    every = " | ".join(SHAPES_OF)
    return Vocabulary(
        f"reshaped {sort}",
        tuple(Input(name, sort, dims, SHAPES_OF[sort]) for name in "xy"),
        (
            *(
                production
                for name, shape in SHAPES_OF.items()
                for production in steps(f"""
                    {name} = Reshape({every}, shape={shape})
                    {name}_of_f = Elementwise({name}, [{name}])
                    {name}_of_f = Reshape({sort}_of_f, shape={shape})
                """)
            ),
            *steps(f"flat = Flatten({every}, axis=1) | Reshape({every}, shape=(2, 60))"),
        ),
        (0, 0, 0, 0),
        exact=False,
        roots=frozenset({*SHAPES_OF, "flat", *(f"{name} of f" for name in SHAPES_OF)}),
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
    exact=False,
    roots=frozenset({"out"}),
).steps("""
    large = Expand(mask, shape=(4, 5) | (1, 1, 4, 5) | (2, 1, 4, 5) | (2, 3, 4, 5))
    out = Elementwise(x, mask | large)
""")


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

ENDS = "axes=(0,) | (1,) | (2,)"
AXES = _moved(
    "axes of extent 1",
    steps(f"""
        moved = Unsqueeze(x, {ENDS}) | Reshape(x, shape=(1, 2, 3, 4) | (2, 1, 3, 4))
        x = Squeeze(moved, {ENDS})
        g = Unsqueeze(f, {ENDS})
        f = Squeeze(g, {ENDS})
    """),
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
        Input("i", "places", "*l", (3,), dtype="INT64"),
    ),
    limits=(0, 0, 0, 0),
    free=frozenset({"weight", "vector"}),
    exact=False,
    ranks=(1, 2),
    roots=frozenset({"g"}),
).steps("""
    rows = Gather(x, places, axis=0)
    f = Elementwise(x, [x | vector]) | MatMul(x, weight)
    g = Elementwise(rows, [rows | vector]) | MatMul(rows, weight)
    g = Gather(f, places, axis=0)
""")

BLOCKS = _moved(
    "blocks of pixels",
    steps("""
        moved = DepthToSpace(x, blocksize=2, mode="DCR" | "CRD") | SpaceToDepth(x, blocksize=2)
        x = SpaceToDepth(moved, blocksize=2)
        g = DepthToSpace(f, blocksize=2, mode="DCR" | "CRD") | SpaceToDepth(f, blocksize=2)
    """),
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
        *(
            production
            for sort, result in ((X, "f"), ("part", "g"))
            for production in steps(f"""
                {result} = Elementwise({sort}, [vector | {sort}])
                {result} = MatMul({sort}, weight | matrix) | Softmax({sort}, axis=2)
                {result} = LayerNormalization({sort}, vector, vector, axis=2, epsilon=SYMBOL)
                {result} = RMSNormalization({sort}, vector, axis=2, epsilon=SYMBOL)
            """)
        ),
        *steps("""
            part = Slice(x, starts=(1,), ends=(3,), axes=(1,), steps=(1,))
            g = Slice(f, starts=(1,), ends=(3,), axes=(1,), steps=(1,))
        """),
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
