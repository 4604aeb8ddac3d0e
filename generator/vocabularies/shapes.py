"""Vocabularies of operators on shapes and axis order, and of those that commute with them."""

from __future__ import annotations

from itertools import product

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, cut, scalar, sorts, tensors
from xflow.generator.vocabularies.parts import INNER
from xflow.generator.vocabulary import Family, Input, Vocabulary


def _two(dims: str, *sizes: int) -> tuple[Input, ...]:
    return tuple(Input(name, X, dims, sizes) for name in "xy")


def _moved(
    name: str, inputs: tuple[Input, ...], moves: str, ranks: tuple[int, ...] = (0,)
) -> Vocabulary:
    """Operators that move elements, and elementwise ones before (f) and after them (g)."""
    return Vocabulary(
        name,
        (*inputs, scalar("k", "c")),
        limits=(0, 0, 0, 0),
        free=sorts("c"),
        exact=False,
        ranks=ranks,
        roots=sorts("x moved f g"),
    ).steps(moves, "f, g = Elementwise((x, moved), [(x, moved) | c])")


TRANSPOSES = _moved(
    "transposes",
    _two("N C H W", 2, 3, 4, 5),
    """
        moved, g = Transpose(
            (x | moved, f), perm=(0, 2, 1, 3) | (0, 1, 3, 2) | (0, 2, 3, 1) | (0, 3, 1, 2)
        )
    """,
)
"""Heads in and out, matrices, channels last and first: what models of four axes do."""

PLANES = _moved(
    "transposed matrices",
    _two("*B n m", 2, 3, 4),
    "moved, g = Transpose((x | moved, f), perm=(0, 2, 1))",
    (0, 1, 2),
)

CHANNEL_SCALES = Vocabulary(
    "scales between transposes",
    tensors("x: x[N C H W]  vector: r[C]", N=2, C=3, H=4, W=5),
    limits=(1, 1, 1, 1),
    free=sorts("vector"),
    exact=False,
    roots=sorts("scaled f"),
).steps("""
    last = Transpose(x, perm=(0, 2, 3, 1))
    image = Unsqueeze(vector, axes=(1, 2))
    scaled = Elementwise(last, vector) | Transpose(f, perm=(0, 2, 3, 1))
    f = Elementwise(x, image) | Transpose(scaled, perm=(0, 3, 1, 2))
""")

SHAPES_OF = {"matrix": (6, 20), "rows": (2, 3, 20), "heads": (2, 3, 4, 5)}
"""Sorts of tensors of two, three and four axes with as many elements."""


def _reshaped(sort: str, dims: str) -> Vocabulary:
    """Reshapes to other numbers of axes, once and twice, and elementwise operators between."""
    every = " | ".join(SHAPES_OF)
    return Vocabulary(
        f"reshaped {sort}",
        tuple(Input(name, sort, dims, SHAPES_OF[sort]) for name in "xy"),
        limits=(0, 0, 0, 0),
        exact=False,
        roots=frozenset({*SHAPES_OF, "flat", *(f"{name} of f" for name in SHAPES_OF)}),
    ).steps(
        *(
            f"""
            {name} = Reshape({every}, shape={shape})
            {name}_of_f = Elementwise({name}, [{name}]) | Reshape({sort}_of_f, shape={shape})
            """
            for name, shape in SHAPES_OF.items()
        ),
        f"flat = Flatten({every}, axis=1) | Reshape({every}, shape=(2, 60))",
    )


RESHAPES = (_reshaped("matrix", "n m"), _reshaped("rows", "N L D"), _reshaped("heads", "N L H C"))

MASKS = Vocabulary(
    "masks",
    tensors("x: x[N H L K]  mask: y[1 1 1 K] z[N 1 1 K] u[L 1] v[K]", N=2, H=3, L=4, K=5),
    exact=False,
    roots=sorts("out"),
).steps("""
    large = Expand(mask, shape=(4, 5) | (1, 1, 4, 5) | (2, 1, 4, 5) | (2, 3, 4, 5))
    out = Elementwise(x, mask | large)
""")


BOUNDS = tuple(product((1, 2, 3), (6, 7, 8)))


def _corners(name: str, dims: str, ranks: tuple[int, ...]) -> Vocabulary:
    """Slices along the second and the third axis, at once or one after the other."""
    sizes = tuple(9 if place in (1, 2) else 2 for place in range(len(dims.split())))
    rows, columns = (cut(axis, (1, 2, 3), (6, 7, 8)) for axis in (1, 2))
    return Vocabulary(
        name, (Input("x", X, dims, sizes),), ranks=ranks, roots=sorts("corner")
    ).steps(
        f"""
        some_rows = Slice(x, {rows})
        some_columns = Slice(x, {columns})
        corner = Slice(x, **corners) | Slice(some_rows, {columns}) | Slice(some_columns, {rows})
        """,
        corners=[
            {"starts": (top, left), "ends": (bottom, right), "axes": (1, 2), "steps": (1, 1)}
            for (top, bottom), (left, right) in product(BOUNDS, BOUNDS)
        ],
    )


CORNERS = (
    _corners("corners of matrices", "*B n m", (0, 1, 2)),
    _corners("corners behind a batch", "N n m *S", (0, 1)),
)

ENDS = "axes=(0,) | (1,) | (2,)"
AXES = _moved(
    "axes of extent 1",
    _two("N C *S", 2, 3, 4),
    f"""
        moved = Unsqueeze(x, {ENDS}) | Reshape(x, shape=(1, 2, 3, 4) | (2, 1, 3, 4))
        x = Squeeze(moved, {ENDS})
        g = Unsqueeze(f, {ENDS})
        f = Squeeze(g, {ENDS})
    """,
    (1, 2),
)

GATHERED = Vocabulary(
    "gathered rows",
    (
        *_two("n m", 4, 4),
        *tensors("weight: w[n m]  vector: b[m]  places: i[*l] INT64", n=4, m=4, l=3),
    ),
    limits=(0, 0, 0, 0),
    free=sorts("weight vector"),
    exact=False,
    ranks=(1, 2),
    roots=sorts("g"),
).steps("""
    rows = Gather(x, places, axis=0)
    f = Elementwise(x, [x | vector]) | MatMul(x, weight)
    g = Elementwise(rows, [rows | vector]) | MatMul(rows, weight)
    g = Gather(f, places, axis=0)
""")

BLOCKS = _moved(
    "blocks of pixels",
    _two("N C H W", 3, 8, 4, 6),
    """
        moved = DepthToSpace(x, blocksize=2, mode="DCR" | "CRD") | SpaceToDepth(x, blocksize=2)
        x = SpaceToDepth(moved, blocksize=2)
        g = DepthToSpace(f, blocksize=2, mode="DCR" | "CRD") | SpaceToDepth(f, blocksize=2)
    """,
)

ROWS = Vocabulary(
    "rows of sequences",
    (
        INNER.input("x"),
        INNER.input("y"),
        *tensors("matrix: k[*B n m]  weight: w[n m]  vector: a[m] b[m]", B=2, n=3, m=3),
    ),
    limits=(0, 0, 0, 0),
    free=sorts("weight vector"),
    exact=False,
    ranks=INNER.ranks,
    roots=sorts("g"),
    reals={SYMBOL: "epsilon"},
).steps(
    *(
        f"""
        {result} = Elementwise({sort}, [vector | {sort}])
        {result} = MatMul({sort}, weight | matrix) | Softmax({sort}, axis=2)
        {result} = LayerNormalization({sort}, vector, vector, axis=2, epsilon=SYMBOL)
        {result} = RMSNormalization({sort}, vector, axis=2, epsilon=SYMBOL)
        """
        for sort, result in ((X, "f"), ("part", "g"))
    ),
    f"part, g = Slice((x, f), {cut(1, [1], [3])})",
)

SHAPES = Family(
    "shapes",
    (TRANSPOSES, CHANNEL_SCALES, PLANES, *RESHAPES, AXES, GATHERED, BLOCKS, ROWS, MASKS, *CORNERS),
    about="transposes, reshapes, axes of extent 1, gathered rows and parts of sequences",
)
