"""Vocabularies of rotary position embeddings, in exporters' steps, and of heads in rows."""

from __future__ import annotations

from dataclasses import dataclass

from xflow.generator.vocabularies.common import X, applied, pointwise
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

BATCH, HEADS, LENGTH, HALF = 2, 3, 5, 4
OUT = "out"
ANGLES = ("cos", "sin")
TURN = choices(perm=[(0, 2, 1, 3)])
"""Heads before rows, and back."""


@dataclass(frozen=True)
class _Order:
    """The order of heads and rows: which axis the heads are, and the extents of what is turned."""

    axis: int
    dims: str
    extents: tuple[int, ...]

    @classmethod
    def of(cls, batch: int, *, heads_first: bool) -> _Order:
        """That of [batch, heads, rows, elements], or of [batch, rows, heads, elements]."""
        if heads_first:
            return cls(1, "B H S E", (batch, HEADS, LENGTH, 2 * HALF))
        return cls(2, "B S H E", (batch, LENGTH, HEADS, 2 * HALF))

    def turned(self, operator: str, cos: str, sin: str) -> tuple[Production, ...]:
        """A rotation by tables for all heads and what is turned, and by an operator of its own.

        That has the heads before the rows.
        """
        steps = (
            applied("Mul", X, "cos of heads", "kept"),
            applied("Mul", "turned", "sin of heads", "moved"),
            applied("Add", "kept", "moved", OUT),
        )
        if self.axis == 1:
            return (*steps, Production(operator, (X, cos, sin), OUT))
        return (
            *steps,
            Production("Transpose", (X,), "heads", TURN),
            Production(operator, ("heads", cos, sin), "turned heads"),
            Production("Transpose", ("turned heads",), OUT, TURN),
        )

    def for_heads(self, sort: str, result: str) -> Production:
        """A table that all heads share."""
        return Production("Unsqueeze", (sort,), result, choices(axes=[(self.axis,)]))


def _rotated(name: str, *, shared: bool, heads_first: bool = True) -> Vocabulary:
    """``x * [c, c] + [-second half, first half] * [s, s]``, as most models have it.

    Tables of one batch that all batches share are expanded for the operator.
    """
    order = _Order.of(BATCH, heads_first=heads_first)
    kinds = ("", " twice", " of heads", *((" of batches",) if shared else ()))
    tables = {angle: f"{angle} of batches" if shared else angle for angle in ANGLES}
    dims, sizes = ("1 S D", (1, LENGTH, HALF)) if shared else ("B S D", (BATCH, LENGTH, HALF))
    whole = choices(shape=[(BATCH, LENGTH, HALF)])
    return Vocabulary(
        name,
        (
            Input("x", X, order.dims, order.extents),
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
                    order.for_heads(f"{angle} twice", f"{angle} of heads"),
                    *(
                        (Production("Expand", (angle,), f"{angle} of batches", whole),)
                        if shared
                        else ()
                    ),
                )
            ),
            *order.turned("RotaryEmbedding", *tables.values()),
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
    _rotated("rotary embedding behind rows", shared=False, heads_first=False),
    _rotated(
        "rotary embedding behind rows, of a table that batches share",
        shared=True,
        heads_first=False,
    ),
)

PAIRS = 6
"""Batches of rotations of neighbours: another number than the two of a pair."""


def _in_a_row(sort: str, result: str, batch: int) -> tuple[Production, ...]:
    """Each element of a table of `batch` batches twice in a row."""
    return (
        Production("Unsqueeze", (sort,), f"{sort} columns", choices(axes=[(3,)])),
        Production("Expand", (f"{sort} columns",), f"{sort} pairs", choices(shape=[(1, 1, 1, 2)])),
        Production(
            "Reshape",
            (f"{sort} pairs",),
            result,
            choices(shape=[(batch, LENGTH, 2 * HALF)]),
        ),
    )


def _interleaved(name: str, *, shared: bool, heads_first: bool = True) -> Vocabulary:
    """The same for pairs of neighbours, of which each angle comes twice in a row."""
    order = _Order.of(PAIRS, heads_first=heads_first)
    batches = (" of batches",) if shared else ()
    kinds = ("", " columns", " pairs", " twice", " of heads", *batches)
    tables = {angle: f"{angle} of batches" if shared else angle for angle in ANGLES}
    batch, dims = (1, "1 S D") if shared else (PAIRS, "B S D")
    return Vocabulary(
        name,
        (
            Input("x", X, order.dims, order.extents),
            *(Input(angle[0], angle, dims, (batch, LENGTH, HALF)) for angle in ANGLES),
        ),
        (
            *(
                Production(
                    "Slice",
                    (X,),
                    result,
                    choices(starts=[(start,)], ends=[(2 * HALF,)], axes=[(3,)], steps=[(2,)]),
                )
                for start, result in enumerate(("even", "odd"))
            ),
            Production("Neg", ("odd",), "negated"),
            *(
                Production("Unsqueeze", (sort,), f"column of {sort}", choices(axes=[(4,)]))
                for sort in ("negated", "even")
            ),
            Production(
                "Concat", ("column of negated", "column of even"), "columns", choices(axis=[4])
            ),
            Production("Reshape", ("columns",), "turned", choices(shape=[order.extents])),
            *(
                production
                for angle in ANGLES
                for production in (
                    *_in_a_row(angle, f"{angle} twice", batch),
                    order.for_heads(f"{angle} twice", f"{angle} of heads"),
                    *(
                        (
                            Production(
                                "Expand",
                                (angle,),
                                f"{angle} of batches",
                                choices(shape=[(PAIRS, LENGTH, HALF)]),
                            ),
                        )
                        if shared
                        else ()
                    ),
                )
            ),
            *order.turned("InterleavedRotaryEmbedding", *tables.values()),
        ),
        (8,) * 11,
        free=frozenset(f"{angle}{kind}" for angle in ANGLES for kind in kinds),
        roots=frozenset({OUT}),
        chain=True,
        by_example=True,
    )


INTERLEAVED = (
    _interleaved("rotary embedding of neighbours", shared=False),
    _interleaved("rotary embedding of neighbours, of a table that batches share", shared=True),
    _interleaved("rotary embedding of neighbours behind rows", shared=False, heads_first=False),
    _interleaved(
        "rotary embedding of neighbours behind rows, of a table that batches share",
        shared=True,
        heads_first=False,
    ),
)

ROWS_OF_ANGLES = (PAIRS, LENGTH, HALF)
REPEATED = Vocabulary(
    "elements that come twice in a row",
    (Input("x", X, "B S D", ROWS_OF_ANGLES),),
    (
        pointwise("computed", X),
        *_in_a_row(X, "twice", PAIRS),
        *_in_a_row("computed", OUT, PAIRS),
        pointwise(OUT, "twice"),
    ),
    (0,) * 5,
    roots=frozenset({OUT}),
    chain=True,
    by_example=True,
)
"""A table of cosines is that of the angles, or the angles are repeated before."""

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
    (*ROTATED, *INTERLEAVED, REPEATED, IN_ROWS),
    about="rotary position embeddings in one operator and step by step",
)
