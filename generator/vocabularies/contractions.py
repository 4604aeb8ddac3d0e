"""Vocabularies of contractions that split or merge axes: layers from and to heads, and of masks.

What one definition of an `Einsum` says of other equations is stated with the definitions. Where
axes are merged, only sizes that all differ show which of them a Reshape splits again.
"""

from __future__ import annotations

from xflow.generator.production import Production, choices
from xflow.generator.vocabularies.common import X, applied
from xflow.generator.vocabulary import Family, Input, Vocabulary

BATCH, ROWS, WIDTH, HEADS, DEPTH = 2, 5, 7, 3, 11
OUT = "out"


def _contraction(
    name: str, equation: str, inputs: tuple[Input, ...], *productions: Production
) -> Vocabulary:
    """An Einsum of two inputs, of sorts `X` and ``operand``, and what else leads to `OUT`."""
    whole = Production("Einsum", (X, "operand"), OUT, choices(equation=[equation]))
    return Vocabulary(
        name,
        inputs,
        (whole, *productions),
        (2,) * 5,
        free=frozenset({"weight"}),
        roots=frozenset({OUT}),
        chain=True,
        by_example=True,
    )


TO_HEADS = _contraction(
    "rows to heads",
    "abc,cde->abde",
    (
        Input("x", X, "B S K", (BATCH, ROWS, WIDTH)),
        Input("w", "operand", "K H D", (WIDTH, HEADS, DEPTH)),
    ),
    Production("Reshape", ("operand",), "weight", choices(shape=[(WIDTH, HEADS * DEPTH)])),
    applied("MatMul", X, "weight", "rows"),
    Production("Reshape", ("rows",), OUT, choices(shape=[(BATCH, ROWS, HEADS, DEPTH)])),
)

FROM_HEADS = _contraction(
    "heads to rows",
    "abcd,cde->abe",
    (
        Input("x", X, "B S H D", (BATCH, ROWS, HEADS, DEPTH)),
        Input("w", "operand", "H D K", (HEADS, DEPTH, WIDTH)),
    ),
    Production("Reshape", ("operand",), "weight", choices(shape=[(HEADS * DEPTH, WIDTH)])),
    Production("Reshape", (X,), "rows", choices(shape=[(BATCH, ROWS, HEADS * DEPTH)])),
    applied("MatMul", "rows", "weight", OUT),
)

MASKS = _contraction(
    "masks of images",
    "abc,acde->abde",
    (
        Input("x", X, "B Q C", (BATCH, ROWS, WIDTH)),
        Input("y", "operand", "B C H W", (BATCH, WIDTH, HEADS, DEPTH)),
    ),
    Production("Reshape", ("operand",), "pixels", choices(shape=[(BATCH, WIDTH, HEADS * DEPTH)])),
    applied("MatMul", X, "pixels", "masks"),
    Production("Reshape", ("masks",), OUT, choices(shape=[(BATCH, ROWS, HEADS, DEPTH)])),
)

CONTRACTIONS = Family(
    "contractions",
    (TO_HEADS, FROM_HEADS, MASKS),
    about="sums of products over named axes, of which some are merged: layers of heads, and masks",
)
