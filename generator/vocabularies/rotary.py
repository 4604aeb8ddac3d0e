"""Vocabularies of rotary position embeddings, in exporters' steps, and of heads in rows."""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, applied
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

BATCH, HEADS, LENGTH, HALF = 2, 3, 5, 4
OUT = "out"
ANGLES = ("cos", "sin")
TURN = choices(perm=[(0, 2, 1, 3)])
"""Heads before rows, and back."""


def _rotated(name: str, *, shared: bool) -> Vocabulary:
    """``x * [c, c] + [-second half, first half] * [s, s]``, as most models have it.

    Tables of one batch that all batches share are expanded for the operator.
    """
    kinds = ("", " twice", " of heads", *((" of batches",) if shared else ()))
    tables = {angle: f"{angle} of batches" if shared else angle for angle in ANGLES}
    dims, sizes = ("1 S D", (1, LENGTH, HALF)) if shared else ("B S D", (BATCH, LENGTH, HALF))
    whole = choices(shape=[(BATCH, LENGTH, HALF)])
    return Vocabulary(
        name,
        (
            Input("x", X, "B H S E", (BATCH, HEADS, LENGTH, 2 * HALF)),
            *(Input(angle[0], angle, dims, sizes) for angle in ANGLES),
        ),
        (
            Production("Split", (X,), "half", choices(axis=[3], split=[(HALF, HALF)])),
            Production("Neg", ("half",), "negated"),
            Production("Concat", ("negated", "half"), "turned", choices(axis=[3])),
            *(
                production
                for angle in ANGLES
                for production in (
                    Production("Concat", (angle, angle), f"{angle} twice", choices(axis=[2])),
                    Production(
                        "Unsqueeze", (f"{angle} twice",), f"{angle} of heads", choices(axes=[(1,)])
                    ),
                    *(
                        (Production("Expand", (angle,), f"{angle} of batches", whole),)
                        if shared
                        else ()
                    ),
                )
            ),
            applied("Mul", X, "cos of heads", "kept"),
            applied("Mul", "turned", "sin of heads", "moved"),
            applied("Add", "kept", "moved", OUT),
            Production("RotaryEmbedding", (X, *tables.values()), OUT),
        ),
        (4,) * 7,
        free=frozenset(f"{angle}{kind}" for angle in ANGLES for kind in kinds),
        roots=frozenset({OUT}),
        chain=True,
        by_example=True,
    )


ROTATED = (
    _rotated("rotary embedding", shared=False),
    _rotated("rotary embedding of a table that batches share", shared=True),
)

IN_ROWS = Vocabulary(
    "rotary embedding of rows",
    (
        Input("x", X, "B S M", (BATCH, LENGTH, HEADS * 2 * HALF)),
        Input("c", "cos", "B S D", (BATCH, LENGTH, HALF)),
        Input("s", "sin", "B S D", (BATCH, LENGTH, HALF)),
    ),
    (
        *(
            Production(
                "Reshape", (sort,), result, choices(shape=[(BATCH, LENGTH, HEADS, 2 * HALF)])
            )
            for sort, result in ((X, "rows"), ("turned", "turned rows"))
        ),
        Production("Transpose", ("rows",), "heads", TURN),
        Production("RotaryEmbedding", ("heads", *ANGLES), OUT),
        Production("RotaryEmbedding", (X, *ANGLES), "turned", choices(num_heads=[HEADS])),
        Production("Transpose", ("turned rows",), OUT, TURN),
    ),
    (0,) * 4,
    roots=frozenset({OUT}),
    chain=True,
    by_example=True,
)
"""Heads that lie side by side in rows need not be put first to be rotated."""

ROTARY = Family(
    "rotary",
    (*ROTATED, IN_ROWS),
    about="rotary position embeddings in one operator and step by step",
)
