"""Vocabularies of attention with heads as batches, in products of rank 3, and of scales by head.

Many models merge batches and heads into one axis, so that their products are of rank 3. These are
an attention of one head, and one of all heads where the axis is taken apart again. Keys may lie in
columns from the start.
"""

from __future__ import annotations

from dataclasses import replace

from xflow.generator.equations import steps
from xflow.generator.vocabularies.attention_inputs import KEY, MASK, QUERY, VALUE, attended
from xflow.generator.vocabularies.common import OUT, X, scalar, stages
from xflow.generator.vocabulary import Family, Input, Vocabulary

BATCH, HEADS, QUERIES, KEYS, DEPTH, WIDTH = 2, 3, 5, 7, 4, 11
"""Their products differ from them, too: what a Reshape merges can be told."""
COLUMNS = "columns"
SINGLE = "q_num_heads=1, kv_num_heads=1"
LENGTHS = {QUERY: QUERIES, KEY: KEYS, VALUE: KEYS}
WIDTHS = {QUERY: DEPTH, KEY: DEPTH, VALUE: WIDTH}

WEIGHTS = """
    scale = SYMBOL
    scaled_query = Mul(query, scale)
    scores = MatMul(query | scaled_query, columns)
    weights = Softmax(scores, axis=2)
"""
"""From queries and keys in columns to the weights of values."""

ONE_HEAD = attended(
    "attention of one head",
    (
        Input("q", QUERY, "N S D", (BATCH, QUERIES, DEPTH)),
        Input("c", COLUMNS, "N D L", (BATCH, DEPTH, KEYS)),
        Input("v", VALUE, "N L E", (BATCH, KEYS, WIDTH)),
        Input("a", MASK, "S L", (QUERIES, KEYS)),
        Input("b", MASK, "1 S L", (1, QUERIES, KEYS)),
        Input("g", "mask of each", "N S L", (BATCH, QUERIES, KEYS)),
        Input("m", "line", "N 1 L", (BATCH, 1, KEYS)),
    ),
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
    inputs=(
        *ONE_HEAD.inputs[:2],
        Input("w", "columns of values", "N E L", (BATCH, WIDTH, KEYS)),
    ),
    productions=(
        *steps(WEIGHTS),
        *steps(f"""
            columns_of_weights = Transpose(weights, perm=(0, 2, 1))
            out = MatMul(columns_of_values, columns_of_weights)
            key = Transpose(columns, perm=(0, 2, 1))
            value = Transpose(columns_of_values, perm=(0, 2, 1))
            rows = Attention(query, key, value, scale=1 | SYMBOL, {SINGLE})
            out = Transpose(rows, perm=(0, 2, 1))
        """),
    ),
)
"""Values that are columns, too, as those of flattened images are."""

N = BATCH * HEADS
MERGED = attended(
    "heads in batches",
    (
        Input("q", QUERY, "B H S D", (BATCH, HEADS, QUERIES, DEPTH)),
        Input("k", KEY, "B H L D", (BATCH, HEADS, KEYS, DEPTH)),
        Input("v", VALUE, "B H L E", (BATCH, HEADS, KEYS, WIDTH)),
        Input("c", COLUMNS, "B H D L", (BATCH, HEADS, DEPTH, KEYS)),
        Input("x", "scores", "B H S L", (BATCH, HEADS, QUERIES, KEYS)),
    ),
    limits=(0,) * 7,
    roots=frozenset({OUT, "products in batches"}),
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
    (
        Input("x", "scores in batches", "H S L", (HEADS, QUERIES, KEYS)),
        Input("v", VALUE, "1 H L E", (1, HEADS, KEYS, WIDTH)),
    ),
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
    (
        Input("x", "scores", "B H S L", (BATCH, HEADS, QUERIES, KEYS)),
        Input("g", "mask", "N S L", (N, QUERIES, KEYS)),
        Input("m", "mask", "N 1 L", (N, 1, KEYS)),
        scalar("c", "scale"),
    ),
    limits=(0,) * 4,
    free=frozenset({"scale"}),
    exact=True,
    roots=frozenset({"sums"}),
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

PLACES = stages(
    "biases of rows and columns",
    (
        Input("x", "scores", "N S L", (11, 2 * 3, 5 * 7)),
        Input("a", "bias of rows", "N h w k 1", (11, 2, 3, 5, 1)),
        Input("b", "bias of columns", "N h w 1 m", (11, 2, 3, 1, 7)),
    ),
    limits=(0,) * 5,
    exact=True,
    by_example=True,
).steps("""
    apart = Reshape(scores, shape=(11, 2, 3, 5, 7))
    once = Add(apart, bias_of_rows)
    twice = Add(once, bias_of_columns)
    bias = Add(bias_of_rows, bias_of_columns)
    bias_of_both = Reshape(bias, shape=(11, 6, 35))
    out = Reshape(twice, shape=(11, 6, 35)) | Add(scores, bias_of_both)
""")
"""Scores of places in images, to which biases of rows and of columns are added one by one."""


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
        Input("a", MASK, "S L", (QUERIES, KEYS)),
        Input("g", "mask of batches", "N 1 S L", (N, 1, QUERIES, KEYS)),
    ),
    (
        *(production for sort in LENGTHS for production in steps(_time_first(sort))),
        *steps(f"""
            mask_of_heads = Reshape(mask_of_batches, shape=({BATCH}, {HEADS}, {QUERIES}, {KEYS}))
            attended_batches = Attention({BATCHES_OF}, scale=SYMBOL, {SINGLE})
            attended_batches = Attention(
                {BATCHES_OF}, mask | mask_of_batches, scale=SYMBOL, {SINGLE}
            )
            attended = Attention({TURNED_OF}, [mask | mask_of_heads], scale=SYMBOL, {ALL_HEADS})
            attended_rows = Transpose(attended, perm=(1, 0, 2))
            out = Transpose(attended_batches, perm=(1, 0, 2))
            out = Reshape(attended_rows, shape=({QUERIES}, {N}, {WIDTH}))
        """),
    ),
    (0,) * 9,
    by_example=True,
)
"""Rows before batches, as PyTorch's own layer has them: heads join the batches behind them.

Still apart: what reads the heads may join them to rows, or batches to rows besides."""

ORDERS = "(0, 2, 1) | (1, 0, 2) | (1, 2, 0) | (2, 0, 1) | (2, 1, 0)"
TURNED = Vocabulary(
    "rows and batches exchanged",
    (
        Input("x", X, "S B K", (QUERIES, BATCH, DEPTH)),
        Input("w", "weight", "K M", (DEPTH, WIDTH)),
        Input("b", "bias", "K", (DEPTH,)),
    ),
    free=frozenset({"weight", "bias"}),
    roots=frozenset({X, OUT}),
).steps(f"""
    x = Transpose(x, perm={ORDERS})
    swapped = Transpose(x, perm=(1, 0, 2))
    made = MatMul(x, weight) | Add(x, bias)
    out = MatMul(swapped, weight) | Add(swapped, bias) | Transpose(made, perm=(1, 0, 2))
""")
"""Transposes of rank 3, and layers in both orders of rows and batches."""

SCALED = Vocabulary(
    "scales of heads",
    (
        Input("q", QUERY, "B H S D", (BATCH, HEADS, QUERIES, DEPTH)),
        Input("c", COLUMNS, "B H D L", (BATCH, HEADS, DEPTH, KEYS)),
        Input("s", "scale", "H 1 1", (HEADS, 1, 1)),
        Input("t", "scale", "1 H 1 1", (1, HEADS, 1, 1)),
    ),
    free=frozenset({"scale"}),
    roots=frozenset({OUT}),
).steps("""
    scaled_query = Mul(query, scale)
    products = MatMul(query, columns)
    out = MatMul(scaled_query, columns) | Mul(products, scale)
""")
"""A scale, or temperature, of each head, which may as well be that of its queries."""

BATCHED_HEADS = Family(
    "batched-heads",
    (ONE_HEAD, VALUES_IN_COLUMNS, MERGED, ONE_BATCH, ADDED, PLACES, TIME_FIRST, TURNED, SCALED),
    about="heads that are batches, or have scales of their own, and attention among them",
)
