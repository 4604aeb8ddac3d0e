"""Sorts, extents and masks that the vocabularies of attention share."""

from __future__ import annotations

from functools import partial

from xflow.generator.production import OTHER_SYMBOL, SYMBOL
from xflow.generator.vocabularies.common import stages, tensors
from xflow.generator.vocabulary import DTYPE, Input

BATCH, HEADS, QUERIES, KEYS, DEPTH, WIDTH = 2, 3, 5, 6, 4, 7
QUERY, KEY, VALUE, MASK = "query", "key", "value", "mask"
TURN = (0, 2, 1, 3)
"""Heads before rows, and back."""
FLIP = (0, 1, 3, 2)
"""The keys of each head as columns."""
LEADING = {"a": "", "b": "H", "c": "1", "d": "1 1", "e": "B 1", "f": "1 H", "g": "B H"}
"""The axes that the masks of these names have before those of queries and keys."""

attended = partial(stages, reals={SYMBOL: "s", OTHER_SYMBOL: "c"})
"""A vocabulary of stages, with symbols for a scale and another number."""


def masks(
    rows: str,
    sizes: tuple[int, int],
    names: str = "".join(LEADING),
    *,
    heads: int = HEADS,
    dtype: str = DTYPE,
) -> tuple[Input, ...]:
    """Masks of these names, of which the last two axes are `rows`, of these `sizes`."""
    axes = (f"{LEADING[name]} {rows}".strip() for name in names)
    text = " ".join(f"{name}[{dims}] {dtype}" for name, dims in zip(names, axes, strict=True))
    extents = dict(zip(rows.split(), sizes, strict=True))
    return tensors(f"mask: {text}", B=BATCH, H=heads, **extents)
