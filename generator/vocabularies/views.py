"""Vocabularies of one tensor seen in several ways: axes of extent 1, split rows, places.

Exporters write the same view as a Reshape, a Squeeze or an Unsqueeze.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, either, sorts, stages, tensors
from xflow.generator.vocabulary import Family, Input, Vocabulary

EXTENTS = {"n": 3, "m": 5}


def _single(dims: str, axes: tuple[int, ...], *, gone: bool) -> Vocabulary:
    """Axes of extent 1 that are put into a tensor of these axes, or taken out of it."""
    sizes = tuple(EXTENTS.get(name, 1) for name in dims.split())
    if gone:
        view, shape = "Squeeze", [n for axis, n in enumerate(sizes) if axis not in axes]
    else:
        view, shape = "Unsqueeze", list(sizes)
        for axis in axes:
            shape.insert(axis, 1)
    return Vocabulary(
        f"axes {axes} {'of' if gone else 'put into'} {dims}",
        (Input("x", X, dims, sizes),),
        limits=(0, 0),
        roots=sorts("out"),
        by_example=True,
        searched=False,
    ).steps(f"out = {view}(x, axes={axes}) | Reshape(x, shape={tuple(shape)})")


TAKEN = (
    ("1 n", (0,)),
    ("n 1", (1,)),
    ("1 n m", (0,)),
    ("n 1 m", (1,)),
    ("n m 1", (2,)),
    ("n 1 1", (1, 2)),
    ("n m 1 1", (2, 3)),
    ("1 n 1 1", (0, 2, 3)),
)
PUT = (
    ("n", (0,)),
    ("n", (1,)),
    ("n", (1, 2)),
    ("n", (0, 2, 3)),
    ("n m", (0,)),
    ("n m", (1,)),
    ("n m", (2,)),
    ("n m", (2, 3)),
    ("n 1 1", (0,)),
    ("n 1 1", (1,)),
    ("n 1 1", (3,)),
)


def _split(dims: str, sizes: tuple[int, ...]) -> Vocabulary:
    """Features of rows that are split, behind an operator with a vector and before it."""
    heads, depth = 3, 4
    shape = (*sizes, heads, depth)
    return stages(
        f"operands of split rows {dims}",
        (
            Input("x", X, f"{dims} M", (*sizes, heads * depth)),
            Input("b", "vector", "M", (heads * depth,)),
        ),
        limits=(1,) * 3,
        free=sorts("vector"),
        by_example=True,
    ).steps(f"""
        f = Elementwise(x, vector)
        split = Reshape(x, shape={shape})
        parts = Reshape(vector, shape={(heads, depth)})
        out = Reshape(f, shape={shape}) | Elementwise(split, parts)
    """)


GATHERED = stages(
    "places of places",
    tensors("x: x[v *D]  places: i[n] INT64  some: j[k] INT64", v=7, D=4, n=5, k=4),
    limits=(1,) * 3,
    free=sorts("places some"),
    ranks=(0, 1, 2, 3),
).steps("""
    rows = Gather(x, places, axis=0)
    chosen = Gather(places, some, axis=0)
    out = Gather(rows, some, axis=0) | Gather(x, chosen, axis=0)
""")

STACKED = stages(
    "stacked rows split",
    tensors("x: x[n M] y[m M]", n=5, m=6, M=12),
    limits=(0,) * 4,
    by_example=True,
    searched=False,
).steps("""
    both = Concat(x, x, axis=0)
    parts = Reshape(x, shape=(5, 3, 4) | (6, 3, 4))
    out = Reshape(both, shape=(11, 3, 4)) | Concat(parts, parts, axis=0)
""")

TURNED = stages(
    "places of turned matrices",
    tensors("x: x[n m]  places: i[k] INT64", n=7, m=4, k=5),
    limits=(0,) * 3,
    free=sorts("places"),
).steps("""
    turned = Transpose(x, perm=(1, 0))
    columns = Gather(x, places, axis=1)
    out = Gather(turned, places, axis=0) | Transpose(columns, perm=(1, 0))
""")


def _copies(place: str, axis: int, *sizes: int) -> Vocabulary:
    """Copies of copies along an axis of a matrix."""

    def copied(sort: str, *numbers: int) -> str:
        repeats = either((1, n) if axis else (n, 1) for n in numbers)
        return f"Tile({sort}, repeats={repeats})"

    return stages(
        f"copies along the {place} axis",
        (Input("x", X, "n m", sizes),),
        by_example=True,
        searched=False,
    ).steps(f"""
        once = {copied("x", 2, 3, 4)}
        out = {copied("once", 2, 3, 4)} | {copied("x", 2, 3, 4, 6, 8, 9, 12, 16)}
        out = Concat(x, x, axis={axis}) | Concat(x, x, x, axis={axis})
    """)


REPEATED = (_copies("first", 0, 5, 3), _copies("last", 1, 3, 5))

FLAT = stages(
    "convolutions of one pixel as products",
    tensors("x: x[N C H W]  kernel: w[O C 1 1]", N=2, C=3, H=5, W=7, O=4),
    limits=(1,) * 4,
    free=sorts("kernel"),
    by_example=True,
    searched=False,
).steps("""
    matrix = Reshape(kernel, shape=(4, 3))
    flat = Reshape(x, shape=(2, 3, 35))
    product = MatMul(matrix, flat)
    out = Reshape(product, shape=(2, 4, 5, 7)) | Conv(x, kernel)
""")

KERNELS = stages(
    "kernels of one pixel multiplied",
    tensors("x: x[N C H W]  first: w[M C 1 1]  second: v[O M 1 1]", N=2, C=3, H=5, W=7, M=6, O=4),
    limits=(4,) * 3,
    free=sorts("first second"),
    by_example=True,
).steps("""
    matrix = Reshape(first, shape=(6, 3))
    matrices = Reshape(second, shape=(4, 6))
    product = MatMul(matrices, matrix)
    kernel = Reshape(product, shape=(4, 3, 1, 1))
    once = Conv(x, first)
    out = Conv(once, second) | Conv(x, kernel)
""")

VIEWS = Family(
    "views",
    (
        *(_single(dims, axes, gone=True) for dims, axes in TAKEN),
        *(_single(dims, axes, gone=False) for dims, axes in PUT),
        *(_split("n", (5,)), _split("B n", (2, 5))),
        *(GATHERED, STACKED, TURNED, *REPEATED, FLAT, KERNELS),
    ),
    about="one tensor seen in several ways: axes of extent 1, split rows, places of places",
)
