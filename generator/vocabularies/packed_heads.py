"""Vocabularies of heads that lie packed in rows, of their projections, and of heads turned over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xflow.generator.production import SYMBOL, Production, choices
from xflow.generator.vocabularies.attention_inputs import (
    BATCH,
    DEPTH,
    FLIP,
    HEADS,
    KEY,
    MASK,
    QUERIES,
    QUERY,
    TURN,
    VALUE,
    attended,
    masks,
    scales,
)
from xflow.generator.vocabularies.common import OUT, X, applied, reshaped, transposed
from xflow.generator.vocabulary import Input, Vocabulary

PARTS = 8
"""How many tensors are packed into one, such as queries, keys and values: so many that a formula
for where they begin can be told."""
PART = HEADS * DEPTH
PACKED_ROWS = Input("x", X, "B S M", (BATCH, QUERIES, PARTS * PART))

COLUMNS = attended(
    "heads turned over",
    (
        Input("x", X, "B H S D", (BATCH, HEADS, QUERIES, DEPTH)),
        Input("y", "rows", "B S H D", (BATCH, QUERIES, HEADS, DEPTH)),
    ),
    (
        transposed("rows", "turned", *TURN),
        transposed("rows", OUT, 0, 2, 3, 1),
        *(transposed(sort, OUT, *FLIP) for sort in (X, "turned")),
        *(reshaped(sort, "batch", BATCH * HEADS, QUERIES, DEPTH) for sort in (X, "turned")),
        transposed("batch", "batch turned", 0, 2, 1),
        reshaped("batch turned", OUT, BATCH, HEADS, DEPTH, QUERIES),
    ),
    (0,) * 5,
    exact=True,
    by_example=True,
)

PLACE = Input("i", "place", "", (), dtype="INT64")


def part(
    sort: str, result: str, axis: int, places: Sequence[int] = range(PARTS)
) -> tuple[Production, ...]:
    """One of the tensors that are packed along an axis, which goes away: at any of `places`."""
    cuts = tuple(
        {"starts": (start,), "ends": (start + 1,), "axes": (axis,), "steps": (1,)}
        for start in places
    )
    return (
        Production("Slice", (sort,), f"{result}, alone", cuts),
        Production("Squeeze", (f"{result}, alone",), result, choices(axes=[(axis,)])),
    )


def gathered(sort: str, result: str, axis: int, place: str = PLACE.sort) -> tuple[Production, ...]:
    """The same by an index, which is an input."""
    return (Production("Gather", (sort, place), result, choices(axis=[axis])),)


def _taken(sort: str, result: str, axis: int) -> tuple[Production, ...]:
    """One of the packed tensors, in both ways."""
    return (*gathered(sort, result, axis), *part(sort, result, axis))


UNPACKING = (
    reshaped(X, "packed heads", BATCH, QUERIES, PARTS, HEADS, DEPTH),
    transposed("packed heads", "turned", 2, 0, 3, 1, 4),
    reshaped(X, "packed rows", BATCH, QUERIES, PARTS, PART),
)
"""From packed rows to packed heads, and to rows side by side."""

UNPACKED = attended(
    "packed heads",
    (PACKED_ROWS, PLACE),
    (
        *UNPACKING,
        *_taken("turned", OUT, 0),
        *_taken("packed heads", "rows", 2),
        *_taken("packed rows", "row", 2),
        reshaped("row", "rows", BATCH, QUERIES, HEADS, DEPTH),
        transposed("rows", OUT, *TURN),
    ),
    (1,) * 7,
    free=frozenset({PLACE.sort}),
    roots=frozenset({OUT, "rows"}),
    exact=True,
    by_example=True,
)

PLACES: Mapping[str, Sequence[int]] = {QUERY: (0, 1, 2), KEY: (3, 4), VALUE: (5, 6)}
SELF_MASKS = masks("S S", (QUERIES, QUERIES), "adefg")
"""The masks among rows of one length."""


def _packed(name: str, by_slice: bool) -> Vocabulary:
    """Attention among rows that hold queries, keys and values, taken out of the heads or before."""

    def taken(source: str, what: str, axis: int, sort: str) -> tuple[Production, ...]:
        found = source, f"{what} of {sort}", axis
        return part(*found, PLACES[sort]) if by_slice else gathered(*found, f"place of {sort}")

    places = () if by_slice else zip("ijl", PLACES, strict=True)
    apart, packed = (tuple(f"{what} of {sort}" for sort in PLACES) for what in ("heads", "rows"))
    return attended(
        name,
        (
            PACKED_ROWS,
            *(Input(name, f"place of {sort}", "", (), dtype="INT64") for name, sort in places),
            *SELF_MASKS,
        ),
        (
            *UNPACKING,
            *(
                production
                for sort in PLACES
                for production in (
                    *taken("turned", "heads", 0, sort),
                    *taken("packed rows", "rows", 2, sort),
                )
            ),
            *(
                Production("Attention", (*inputs, *mask), result, attributes)
                for mask in ((), (MASK,))
                for inputs, result, attributes in (
                    (apart, "heads", scales(SYMBOL)),
                    (packed, OUT, scales(SYMBOL, q_num_heads=HEADS, kv_num_heads=HEADS)),
                )
            ),
            transposed("heads", "rows", *TURN),
            reshaped("rows", OUT, BATCH, QUERIES, PART),
        ),
        (3,) * 17,
        free=frozenset(f"place of {sort}" for sort in PLACES),
        by_example=True,
    )


INNER = 3
PROJECTED = attended(
    "packed projections",
    (
        Input("x", X, "B S K", (BATCH, QUERIES, INNER)),
        Input("w", "weight", "K M", (INNER, PARTS * PART)),
        Input("y", "packed", "B S M", (BATCH, QUERIES, PARTS * PART)),
        Input("b", "bias", "M", (PARTS * PART,)),
        PLACE,
    ),
    (
        applied("MatMul", X, "weight", "product"),
        *(applied("Add", sort, "bias", "shifted") for sort in ("packed", "product")),
        *(
            production
            for sort in ("packed", "product", "shifted")
            for production in (
                reshaped(sort, f"rows of {sort}", BATCH, QUERIES, PARTS, PART),
                *_taken(f"rows of {sort}", "row" if sort == "packed" else OUT, 2),
            )
        ),
        reshaped("weight", "weights", INNER, PARTS, PART),
        *_taken("weights", "part of weights", 1),
        reshaped("bias", "biases", PARTS, PART),
        *_taken("biases", "part of biases", 0),
        *(applied("MatMul", X, "part of weights", result) for result in (OUT, "row")),
        applied("Add", "row", "part of biases", OUT),
    ),
    (4,) * 5,
    free=frozenset(
        {"weight", "bias", "weights", "biases", PLACE.sort}
        | {f"part of {name}{alone}" for name in ("weights", "biases") for alone in ("", ", alone")}
    ),
    exact=True,
    by_example=True,
)

PACKED_HEADS = (
    COLUMNS,
    UNPACKED,
    _packed("attention on packed heads", by_slice=True),
    _packed("attention on packed heads, gathered", by_slice=False),
    PROJECTED,
)
"""The vocabularies of this module."""
