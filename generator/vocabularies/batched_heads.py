"""Vocabularies of attention with heads as batches, in products of rank 3, and of scales by head.

Many models merge batches and heads into one axis, so that their products are of rank 3. These are
an attention of one head, and one of all heads where the axis is taken apart again. Keys may lie in
columns from the start.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from xflow.generator.vocabularies.attention_inputs import KEY, QUERY, VALUE, attended
from xflow.generator.vocabularies.common import scalar, sorts, stages, tensors
from xflow.generator.vocabulary import Family, Input, Vocabulary

BATCH, HEADS, QUERIES, KEYS, DEPTH, WIDTH = 2, 3, 5, 7, 4, 11
"""Their products differ from them, too: what a Reshape merges can be told."""
N = BATCH * HEADS
SINGLE = "q_num_heads=1, kv_num_heads=1"
LENGTHS = {QUERY: QUERIES, KEY: KEYS, VALUE: KEYS}
WIDTHS = {QUERY: DEPTH, KEY: DEPTH, VALUE: WIDTH}
of_batches = partial(tensors, N=BATCH, S=QUERIES, L=KEYS, D=DEPTH, E=WIDTH)
of_heads = partial(tensors, B=BATCH, H=HEADS, N=N, S=QUERIES, L=KEYS, D=DEPTH, E=WIDTH)

WEIGHTS = """
    scale = SYMBOL
    scaled_query = Mul(query, scale)
    scores = MatMul(query | scaled_query, columns)
    weights = Softmax(scores, axis=2)
"""
"""From queries and keys in columns to the weights of values."""

ONE_HEAD = attended(
    "attention of one head",
    of_batches("""
        query: q[N S D]  columns: c[N D L]  value: v[N L E]  mask: a[S L] b[1 S L]
        mask_of_each: g[N S L]  line: m[N 1 L]
    """),
    limits=(1,) * 6,
).steps(
    WEIGHTS,
    f"""
    masked = Add(scores, mask | mask_of_each | line)
    weights = Softmax(masked, axis=2)
    out = MatMul(weights, value)
    key = Transpose(columns, perm=(0, 2, 1))
    mask_of_each = Expand(line, shape=({BATCH}, {QUERIES}, {KEYS}))
    mask_of_heads = Unsqueeze(mask_of_each, axes=(1,))
    out = Attention(query, key, value, [mask | mask_of_heads], scale=1 | SYMBOL, {SINGLE})
    """,
)
"""Products of rank 3. Keys that were turned to be columns are turned back."""

VALUES_IN_COLUMNS = replace(
    ONE_HEAD,
    name="values in columns",
    inputs=(*ONE_HEAD.inputs[:2], *of_batches("columns_of_values: w[N E L]")),
    productions=(),
).steps(
    WEIGHTS,
    f"""
    columns_of_weights = Transpose(weights, perm=(0, 2, 1))
    out = MatMul(columns_of_values, columns_of_weights)
    key = Transpose(columns, perm=(0, 2, 1))
    value = Transpose(columns_of_values, perm=(0, 2, 1))
    rows = Attention(query, key, value, scale=1 | SYMBOL, {SINGLE})
    out = Transpose(rows, perm=(0, 2, 1))
    """,
)
"""Values that are columns, too, as those of flattened images are."""

MERGED = attended(
    "heads in batches",
    of_heads("""
        query: q[B H S D]  key: k[B H L D]  value: v[B H L E]  columns: c[B H D L]
        scores: x[B H S L]
    """),
    limits=(0,) * 7,
    roots=sorts("out products_in_batches"),
    by_example=True,
).steps(f"""
    query_in_batches = Reshape(query, shape=({N}, {QUERIES}, {DEPTH}))
    key_in_batches = Reshape(key, shape=({N}, {KEYS}, {DEPTH}))
    value_in_batches = Reshape(value, shape=({N}, {KEYS}, {WIDTH}))
    columns_in_batches = Reshape(columns, shape=({N}, {DEPTH}, {KEYS}))
    columns_in_batches = Transpose(key_in_batches, perm=(0, 2, 1))
    scores_in_batches = Reshape(scores, shape=({N}, {QUERIES}, {KEYS}))
    columns = Transpose(key, perm=(0, 1, 3, 2))
    products = MatMul(query, columns)
    products_in_batches = MatMul(query_in_batches, columns_in_batches)
    products_in_batches = Reshape(products, shape=({N}, {QUERIES}, {KEYS}))
    weights = Softmax(scores, axis=3)
    weights_in_batches = Softmax(scores_in_batches, axis=2)
    out = MatMul(weights | scores, value)
    out_in_batches = MatMul(weights_in_batches | scores_in_batches, value_in_batches)
    out = Attention(query, key, value, scale=SYMBOL)
    out_in_batches = Attention(
        query_in_batches, key_in_batches, value_in_batches, scale=SYMBOL, {SINGLE}
    )
    out = Reshape(out_in_batches, shape=({BATCH}, {HEADS}, {QUERIES}, {WIDTH}))
""")
"""Products of rank 3 whose batches are the heads of all batches, and those of rank 4."""

ONE_BATCH = stages(
    "heads of one batch",
    of_heads("scores_in_batches: x[H S L]  value: v[1 H L E]"),
    limits=(0,) * 4,
    exact=True,
    by_example=True,
).steps(f"""
    value_in_batches = Reshape(value, shape=({HEADS}, {KEYS}, {WIDTH}))
    out = MatMul(scores_in_batches, value)
    out_in_batches = MatMul(scores_in_batches, value_in_batches)
    out = Reshape(out_in_batches, shape=(1, {HEADS}, {QUERIES}, {WIDTH}))
""")
"""Products of heads as batches with values of a batch of one, of which the first axis is broadcast:
onnxscript leaves out the Reshapes around a product of rank 3 where that gives the same."""

ADDED = stages(
    "masks and scales of heads in batches",
    (*of_heads("scores: x[B H S L]  mask: g[N S L] m[N 1 L]"), scalar("c", "scale")),
    limits=(0,) * 4,
    free=sorts("scale"),
    exact=True,
    roots=sorts("sums"),
    by_example=True,
).steps(f"""
    scores_in_batches = Reshape(scores, shape=({N}, {QUERIES}, {KEYS}))
    sums_in_batches = Add(scores_in_batches, mask) | Mul(scores_in_batches, scale)
    mask_apart = Reshape(mask, shape=({BATCH}, {HEADS}, 1, {KEYS}))
    mask_apart = Reshape(mask, shape=({BATCH}, {HEADS}, {QUERIES}, {KEYS}))
    sums = Add(scores, mask_apart) | Mul(scores, scale)
    sums = Reshape(sums_in_batches, shape=({BATCH}, {HEADS}, {QUERIES}, {KEYS}))
""")
"""Operators on scores whose heads are batches, as on those whose heads are an axis."""


def _places(name: str, leading: str, *extents: int) -> Vocabulary:
    """Scores of places in images, to which biases of rows and of columns are added one by one."""
    apart, together = (*extents, 2, 3, 5, 7), (*extents, 6, 35)
    named = dict(zip(leading.split(), extents, strict=True))
    return stages(
        name,
        tensors(
            f"""
            scores: x[{leading} S L]  bias_of_rows: a[{leading} h w k 1]
            bias_of_columns: b[{leading} h w 1 m]
            """,
            **named | {"S": 6, "L": 35, "h": 2, "w": 3, "k": 5, "m": 7},
        ),
        limits=(0,) * 5,
        exact=True,
        by_example=True,
    ).steps(f"""
        apart = Reshape(scores, shape={apart})
        once = Add(apart, bias_of_rows)
        twice = Add(once, bias_of_columns)
        bias = Add(bias_of_rows, bias_of_columns)
        bias_of_both = Reshape(bias, shape={together})
        out = Reshape(twice, shape={together}) | Add(scores, bias_of_both)
    """)


PLACES = (
    _places("biases of rows and columns", "N", 11),
    _places("biases of rows and columns of heads", "N H", 11, 4),
)


def _time_first(sort: str) -> str:
    """The equations of queries, keys or values: rows of heads as batches, and batches first."""
    return f"""
        rows_of_{sort} = Reshape({sort}, shape=({LENGTHS[sort]}, {N}, {WIDTHS[sort]}))
        batches_of_{sort} = Transpose(rows_of_{sort}, perm=(1, 0, 2))
        turned_{sort} = Transpose({sort}, perm=(1, 0, 2))
    """


BATCHES_OF, TURNED_OF = (
    ", ".join(f"{what}_{sort}" for sort in LENGTHS) for what in ("batches_of", "turned")
)
ALL_HEADS = f"q_num_heads={HEADS}, kv_num_heads={HEADS}"
TIME_FIRST = attended(
    "rows before batches",
    (
        *(
            Input(sort[0], sort, f"{name} B M{place}", (length, BATCH, HEADS * WIDTHS[sort]))
            for place, ((sort, length), name) in enumerate(zip(LENGTHS.items(), "SLL", strict=True))
        ),
        *of_heads("mask: a[S L]  mask_of_batches: g[N 1 S L]"),
    ),
    limits=(0,) * 9,
    by_example=True,
).steps(
    *map(_time_first, LENGTHS),
    f"""
    mask_of_heads = Reshape(mask_of_batches, shape=({BATCH}, {HEADS}, {QUERIES}, {KEYS}))
    attended_batches = Attention({BATCHES_OF}, [mask | mask_of_batches], scale=SYMBOL, {SINGLE})
    attended = Attention({TURNED_OF}, [mask | mask_of_heads], scale=SYMBOL, {ALL_HEADS})
    attended_rows = Transpose(attended, perm=(1, 0, 2))
    out = Transpose(attended_batches, perm=(1, 0, 2))
    out = Reshape(attended_rows, shape=({QUERIES}, {N}, {WIDTH}))
    """,
)
"""Rows before batches, as PyTorch's own layer has them: heads join the batches behind them.

Still apart: what reads the heads may join them to rows, or batches to rows besides."""

ORDERS = "(0, 2, 1) | (1, 0, 2) | (1, 2, 0) | (2, 0, 1) | (2, 1, 0)"
TURNED = Vocabulary(
    "rows and batches exchanged",
    tensors("x: x[S B K]  weight: w[K M]  bias: b[K]", S=QUERIES, B=BATCH, K=DEPTH, M=WIDTH),
    free=sorts("weight bias"),
    roots=sorts("x out"),
).steps(f"""
    x = Transpose(x, perm={ORDERS})
    swapped = Transpose(x, perm=(1, 0, 2))
    made = MatMul(x, weight) | Add(x, bias)
    out = MatMul(swapped, weight) | Add(swapped, bias) | Transpose(made, perm=(1, 0, 2))
""")
"""Transposes of rank 3, and layers in both orders of rows and batches."""

SCALED = Vocabulary(
    "scales of heads",
    of_heads("query: q[B H S D]  columns: c[B H D L]  scale: s[H 1 1] t[1 H 1 1]"),
    free=sorts("scale"),
    roots=sorts("out"),
).steps("""
    scaled_query = Mul(query, scale)
    products = MatMul(query, columns)
    out = MatMul(scaled_query, columns) | Mul(products, scale)
""")
"""A scale, or temperature, of each head, which may as well be that of its queries."""

BATCHED_HEADS = Family(
    "batched-heads",
    (ONE_HEAD, VALUES_IN_COLUMNS, MERGED, ONE_BATCH, ADDED, *PLACES, TIME_FIRST, TURNED, SCALED),
    about="heads that are batches, or have scales of their own, and attention among them",
)
