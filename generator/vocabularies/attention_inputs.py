"""Sorts, extents and masks that the vocabularies of attention share."""

from __future__ import annotations

from functools import partial

from xflow.core.registry import Attribute
from xflow.generator.production import OTHER_SYMBOL, SYMBOL, choices
from xflow.generator.vocabularies.common import stages
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
    extents = {"1": 1, "B": BATCH, "H": heads}
    return tuple(
        Input(
            name,
            MASK,
            f"{LEADING[name]} {rows}".strip(),
            (*(extents[axis] for axis in LEADING[name].split()), *sizes),
            dtype,
        )
        for name in names
    )


def scales(*values: Attribute, **others: Attribute) -> tuple[dict[str, Attribute], ...]:
    """Attributes of an attention: any of these scales, beside `others`."""
    return choices(scale=values, **{name: [value] for name, value in others.items()})
