"""Vocabularies of heads that lie packed in rows, of their projections, and of heads turned over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xflow.generator.vocabularies.attention_inputs import (
    BATCH,
    DEPTH,
    FLIP,
    HEADS,
    KEY,
    QUERIES,
    QUERY,
    TURN,
    VALUE,
    attended,
    masks,
)
from xflow.generator.vocabularies.common import OUT, X, sorts, tensors
from xflow.generator.vocabulary import Input, Vocabulary

PARTS = 8
"""How many tensors are packed into one, such as queries, keys and values: so many that a formula
for where they begin can be told."""
PART = HEADS * DEPTH
PACKED_ROWS = Input("x", X, "B S M", (BATCH, QUERIES, PARTS * PART))

COLUMNS = attended(
    "heads turned over",
    tensors("x: x[B H S D]  rows: y[B S H D]", B=BATCH, H=HEADS, S=QUERIES, D=DEPTH),
    limits=(0,) * 5,
    exact=True,
    by_example=True,
).steps(f"""
    turned = Transpose(rows, perm={TURN})
    out = Transpose(rows, perm=(0, 2, 3, 1)) | Transpose(x | turned, perm={FLIP})
    batch = Reshape(x | turned, shape={(BATCH * HEADS, QUERIES, DEPTH)})
    batch_turned = Transpose(batch, perm=(0, 2, 1))
    out = Reshape(batch_turned, shape={(BATCH, HEADS, DEPTH, QUERIES)})
""")


def place(name: str, sort: str = "place") -> Input:
    """An index of one of the packed tensors."""
    return Input(name, sort, "", (), dtype="INT64")


def cuts(axis: int, places: Iterable[int] = range(PARTS)) -> list[dict[str, tuple[int, ...]]]:
    """The slices of one of the tensors that are packed along an axis, at any of these places."""
    return [
        {"starts": (start,), "ends": (start + 1,), "axes": (axis,), "steps": (1,)}
        for start in places
    ]


def part(source: str, result: str, axis: int, cuts: str) -> str:
    """One of the tensors that are packed along an axis, which goes away."""
    return f"""
        {result}_in_axis = Slice({source}, **{cuts})
        {result} = Squeeze({result}_in_axis, axes=({axis},))
    """


def gathered(source: str, result: str, axis: int, place: str) -> str:
    """The same by an index, which is an input."""
    return f"{result} = Gather({source}, {place}, axis={axis})"


def _taken(source: str, result: str, axis: int) -> str:
    """One of the packed tensors, in both ways."""
    return f"""
        {result} = Gather({source}, place, axis={axis})
        {result}_in_axis = Slice({source}, **along_{axis})
        {result} = Squeeze({result}_in_axis, axes=({axis},))
    """


ALONG = {f"along_{axis}": cuts(axis) for axis in range(3)}
UNPACKING = f"""
    packed_heads = Reshape(x, shape={(BATCH, QUERIES, PARTS, HEADS, DEPTH)})
    turned = Transpose(packed_heads, perm=(2, 0, 3, 1, 4))
    packed_rows = Reshape(x, shape={(BATCH, QUERIES, PARTS, PART)})
"""
"""From packed rows to packed heads, and to rows side by side."""

UNPACKED = attended(
    "packed heads",
    (PACKED_ROWS, place("i")),
    limits=(1,) * 7,
    free=sorts("place"),
    roots=sorts("out rows"),
    exact=True,
    by_example=True,
).steps(
    UNPACKING,
    _taken("turned", OUT, 0),
    _taken("packed_heads", "rows", 2),
    _taken("packed_rows", "row", 2),
    f"""
    rows = Reshape(row, shape={(BATCH, QUERIES, HEADS, DEPTH)})
    out = Transpose(rows, perm={TURN})
    """,
    **ALONG,
)

PLACES: Mapping[str, Sequence[int]] = {QUERY: (0, 1, 2), KEY: (3, 4), VALUE: (5, 6)}
SELF_MASKS = masks("S S", (QUERIES, QUERIES), "adefg")
"""The masks among rows of one length."""


def _packed(name: str, by_slice: bool) -> Vocabulary:
    """Attention among rows that hold queries, keys and values, taken out of the heads or before."""

    def taken(source: str, what: str, axis: int, sort: str) -> str:
        found = source, f"{what}_of_{sort}", axis
        return part(*found, f"{sort}_{axis}") if by_slice else gathered(*found, f"place_of_{sort}")

    places = () if by_slice else zip("ijl", PLACES, strict=True)
    apart, packed = (
        ", ".join(f"{what}_of_{sort}" for sort in PLACES) for what in ("heads", "rows")
    )
    counts = f"q_num_heads={HEADS}, kv_num_heads={HEADS}"
    return attended(
        name,
        (PACKED_ROWS, *(place(name, f"place of {sort}") for name, sort in places), *SELF_MASKS),
        limits=(3,) * 17,
        free=frozenset(f"place of {sort}" for sort in PLACES),
        by_example=True,
    ).steps(
        UNPACKING,
        *(
            taken("turned", "heads", 0, sort) + "\n" + taken("packed_rows", "rows", 2, sort)
            for sort in PLACES
        ),
        f"""
        heads = Attention({apart}, scale=SYMBOL)
        out = Attention({packed}, scale=SYMBOL, {counts})
        heads = Attention({apart}, mask, scale=SYMBOL)
        out = Attention({packed}, mask, scale=SYMBOL, {counts})
        rows = Transpose(heads, perm={TURN})
        out = Reshape(rows, shape={(BATCH, QUERIES, PART)})
        """,
        **{f"{sort}_{axis}": cuts(axis, PLACES[sort]) for sort in PLACES for axis in (0, 2)},
    )


INNER = 3


def _rows_of(source: str, result: str) -> str:
    """One of the rows that lie side by side in those of `source`."""
    rows = f"rows_of_{source} = Reshape({source}, shape={(BATCH, QUERIES, PARTS, PART)})"
    return f"\n        {rows}{_taken(f'rows_of_{source}', result, 2)}"


PROJECTED = attended(
    "packed projections",
    tensors(
        "x: x[B S K]  weight: w[K M]  packed: y[B S M]  bias: b[M]  place: i[] INT64",
        **{"B": BATCH, "S": QUERIES, "K": INNER, "M": PARTS * PART},
    ),
    limits=(4,) * 5,
    free=sorts("weight bias place"),
    exact=True,
    by_example=True,
).steps(
    """
    product = MatMul(x, weight)
    shifted = Add(packed | product, bias)
    """,
    _rows_of("packed", "row"),
    _rows_of("product", OUT),
    _rows_of("shifted", OUT),
    f"weights = Reshape(weight, shape={(INNER, PARTS, PART)})",
    _taken("weights", "part_of_weights", 1),
    f"biases = Reshape(bias, shape={(PARTS, PART)})",
    _taken("biases", "part_of_biases", 0),
    """
    out, row = MatMul(x, part_of_weights)
    out = Add(row, part_of_biases)
    """,
    **ALONG,
)

PACKED_HEADS = (
    COLUMNS,
    UNPACKED,
    _packed("attention on packed heads", by_slice=True),
    _packed("attention on packed heads, gathered", by_slice=False),
    PROJECTED,
)
"""The vocabularies of this module."""
