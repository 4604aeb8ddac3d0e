"""Vocabularies of rotary position embeddings, in exporters' steps, and of heads in rows."""

from __future__ import annotations

from functools import partial

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import OUT, X, stages, tensors
from xflow.generator.vocabulary import Family, Input, Vocabulary

BATCH, HEADS, LENGTH, HALF = 2, 3, 5, 4
WHOLE = 2 * HALF
ANGLES = ("cos", "sin")
TURN = "perm=(0, 2, 1, 3)"
"""Heads before rows, and back."""


def _rotation(
    name: str, batch: int, op: str, turned: str, twice: str, *, shared: bool, heads_first: bool
) -> Vocabulary:
    """``x * [c, c] + turned * [s, s]``, and in one operator, which has the heads before the rows.

    `turned` and `twice` are equations: what becomes of `x`, and of a table ANGLE. Tables of one
    batch that all batches share (`shared`) are expanded for the operator.
    """
    rows, axis = ((HEADS, LENGTH), 1) if heads_first else ((LENGTH, HEADS), 2)
    of_batches = "_of_batches" if shared else ""
    tables = ", ".join(f"{angle}{of_batches}" for angle in ANGLES)
    whole = f"""
        out = {op}(x, {tables})
    """
    if not heads_first:
        whole = f"""
            heads = Transpose(x, {TURN})
            turned_heads = {op}(heads, {tables})
            out = Transpose(turned_heads, {TURN})
        """
    table = f"""
        ANGLE_of_heads = Unsqueeze(ANGLE_twice, axes=({axis},))
    """
    if shared:
        table += f"""
        ANGLE_of_batches = Expand(ANGLE, shape=({batch}, {LENGTH}, {HALF}))
        """
    dims, size = ("1 S D", 1) if shared else ("B S D", batch)
    return stages(
        name,
        (
            Input("x", X, "B H S E" if heads_first else "B S H E", (batch, *rows, WHOLE)),
            *(Input(angle[0], angle, dims, (size, LENGTH, HALF)) for angle in ANGLES),
        ),
        limits=(8,) * 11,
        free=frozenset(ANGLES),
        exact=True,
        by_example=True,
    ).steps(
        turned,
        *(
            text.replace("ANGLE", angle).replace("BATCHES", str(size))
            for angle in ANGLES
            for text in (twice, table)
        ),
        """
        kept = Mul(x, cos_of_heads)
        moved = Mul(turned, sin_of_heads)
        out = Add(kept, moved)
        """,
        whole,
    )


FORMS = tuple(
    (f"{behind}{table}", shared, heads_first)
    for heads_first, behind in ((True, ""), (False, " behind rows"))
    for shared, table in ((False, ""), (True, ", of a table that batches share"))
)

ROTATED = tuple(
    _rotation(
        f"rotary embedding{form}",
        BATCH,
        "RotaryEmbedding",
        f"""
            half = Split(x, axis=3, split=({HALF}, {HALF}))
            negated = Neg(half)
            turned = Concat(negated, half, axis=3)
        """,
        "ANGLE_twice = Concat(ANGLE, ANGLE, axis=2)",
        shared=shared,
        heads_first=heads_first,
    )
    for form, shared, heads_first in FORMS
)
"""``x * [c, c] + [-second half, first half] * [s, s]``, as most models have it."""

PAIRS = 6
"""Batches of rotations of neighbours: another number than the two of a pair."""
IN_A_ROW = f"""
    ANGLE_columns = Unsqueeze(ANGLE, axes=(3,))
    ANGLE_pairs = Expand(ANGLE_columns, shape=(1, 1, 1, 2))
    ANGLE_twice = Reshape(ANGLE_pairs, shape=(BATCHES, {LENGTH}, {WHOLE}))
"""
"""Each element of a table twice in a row."""


def _interleaved(form: str, *, shared: bool, heads_first: bool) -> Vocabulary:
    rows = (HEADS, LENGTH) if heads_first else (LENGTH, HEADS)
    return _rotation(
        f"rotary embedding of neighbours{form}",
        PAIRS,
        "InterleavedRotaryEmbedding",
        f"""
            even = Slice(x, starts=(0,), ends=({WHOLE},), axes=(3,), steps=(2,))
            odd = Slice(x, starts=(1,), ends=({WHOLE},), axes=(3,), steps=(2,))
            negated = Neg(odd)
            column_of_negated = Unsqueeze(negated, axes=(4,))
            column_of_even = Unsqueeze(even, axes=(4,))
            columns = Concat(column_of_negated, column_of_even, axis=4)
            turned = Reshape(columns, shape={(PAIRS, *rows, WHOLE)})
        """,
        IN_A_ROW,
        shared=shared,
        heads_first=heads_first,
    )


INTERLEAVED = tuple(
    _interleaved(form, shared=shared, heads_first=heads_first)
    for form, shared, heads_first in FORMS
)
"""The same for pairs of neighbours, of which each angle comes twice in a row."""

REPEATED = stages(
    "elements that come twice in a row",
    (Input("x", X, "B S D", (PAIRS, LENGTH, HALF)),),
    limits=(0,) * 5,
    exact=True,
    by_example=True,
).steps(
    "computed = Elementwise(x)",
    IN_A_ROW.replace("ANGLE", X).replace("BATCHES", str(PAIRS)),
    IN_A_ROW.replace("ANGLE_twice", OUT)
    .replace("ANGLE", "computed")
    .replace("BATCHES", str(PAIRS)),
    "out = Elementwise(x_twice)",
)
"""A table of cosines is that of the angles, or the angles are repeated before."""

IN_ROWS = stages(
    "rotary embedding of rows",
    tensors(
        "x: x[B S M]  cos: c[B S D]  sin: s[B S D]", B=BATCH, S=LENGTH, M=HEADS * WHOLE, D=HALF
    ),
    limits=(0,) * 4,
    exact=True,
    by_example=True,
).steps(f"""
    rows = Reshape(x, shape=({BATCH}, {LENGTH}, {HEADS}, {WHOLE}))
    heads = Transpose(rows, {TURN})
    out = RotaryEmbedding(heads, cos, sin)
    turned = RotaryEmbedding(x, cos, sin, num_heads={HEADS})
    turned_rows = Reshape(turned, shape=({BATCH}, {LENGTH}, {HEADS}, {WHOLE}))
    out = Transpose(turned_rows, {TURN})
""")
"""Heads that lie side by side in rows need not be put first to be rotated."""

of_rows = partial(tensors, B=BATCH, H=HEADS, S=LENGTH, D=HALF, E=WHOLE)
LINEAR = tuple(
    stages(
        f"laws of {op}",
        of_rows("x: x[B H S E] y[B H S E]  cos: c[B S D]  sin: s[B S D]"),
        limits=(1,) * 4,
        reals={SYMBOL: "a"},
        by_example=True,
        searched=False,
    ).steps(f"""
        scale = SYMBOL
        scaled = Mul(x, scale)
        both = Concat(x, x, axis=1)
        sum = Add(x, x)
        turned = {op}(x, cos, sin)
        out = {op}(scaled | both | sum, cos, sin)
        out = Mul(turned, scale) | Concat(turned, turned, axis=1) | Add(turned, turned)
    """)
    for op in ("RotaryEmbedding", "InterleavedRotaryEmbedding")
)
"""What is linear goes past a scale and a sum; heads side by side are turned as one tensor."""

AGAIN = stages(
    "rotary embedding twice",
    of_rows("x: x[B H S E]  cos: c[B S D]  sin: s[B S D]  next_cos: d[B S D]  next_sin: e[B S D]"),
    limits=(6,) * 8,
    by_example=True,
    searched=False,
).steps("""
    once = RotaryEmbedding(x, cos, sin)
    cosines, sines = Mul((cos, sin), (next_cos, next_sin))
    cross, other = Mul((sin, cos), (next_cos, next_sin))
    angle_cos = Sub(cosines, sines)
    angle_sin = Add(cross, other)
    out = RotaryEmbedding(once, next_cos, next_sin)
    out = RotaryEmbedding(x, angle_cos, angle_sin)
""")

ROTARY = Family(
    "rotary",
    (*ROTATED, *INTERLEAVED, REPEATED, IN_ROWS, *LINEAR, AGAIN),
    about="rotary position embeddings in one operator and step by step",
)
