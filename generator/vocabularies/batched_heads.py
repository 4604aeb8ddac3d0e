"""Vocabularies of attention with heads as batches, in products of rank 3, and of scales by head.

Many models merge batches and heads into one axis, so that their products are of rank 3. These are
an attention of one head, and one of all heads where the axis is taken apart again. Keys may lie in
columns from the start.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from xflow.core.registry import Attribute
from xflow.generator.vocabularies.attention import FLIP, KEY, MASK, OUT, QUERY, VALUE
from xflow.generator.vocabularies.common import SYMBOL, X, applied, numbers, scalar
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

BATCH, HEADS, QUERIES, KEYS, DEPTH, WIDTH = 2, 3, 5, 7, 4, 11
"""Their products differ from them, too: what a Reshape merges can be told."""
COLUMNS = "columns"
FLIP_OF_ONE = choices(perm=[(0, 2, 1)])
SINGLE = {"q_num_heads": [1], "kv_num_heads": [1]}
SINGLE_SCALES = choices(scale=[Fraction(1), SYMBOL], **SINGLE)
SWAP = choices(perm=[(1, 0, 2)])
ORDERS: list[Attribute] = [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
LENGTHS = {QUERY: QUERIES, KEY: KEYS, VALUE: KEYS}
WIDTHS = {QUERY: DEPTH, KEY: DEPTH, VALUE: WIDTH}


def _weights(*masks: str) -> tuple[Production, ...]:
    """From queries and keys in columns to the weights of values."""
    return (
        numbers("scale", SYMBOL),
        applied("Mul", QUERY, "scale", "scaled query"),
        *(applied("MatMul", query, COLUMNS, "scores") for query in (QUERY, "scaled query")),
        *(applied("Add", "scores", mask, "masked") for mask in masks),
        *(
            Production("Softmax", (scores,), "weights", choices(axis=[2]))
            for scores in (("scores", "masked") if masks else ("scores",))
        ),
    )


ONE_HEAD = Vocabulary(
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
    (
        *_weights(MASK, "mask of each", "line"),
        applied("MatMul", "weights", VALUE, OUT),
        Production("Transpose", (COLUMNS,), KEY, FLIP_OF_ONE),
        Production("Expand", ("line",), "mask of each", choices(shape=[(BATCH, QUERIES, KEYS)])),
        Production("Unsqueeze", ("mask of each",), "mask of heads", choices(axes=[(1,)])),
        *(
            Production("Attention", (QUERY, KEY, VALUE, *mask), OUT, SINGLE_SCALES)
            for mask in ((), (MASK,), ("mask of heads",))
        ),
    ),
    (1,) * 6,
    free=frozenset({"scale"}),
    roots=frozenset({OUT}),
    exact=False,
    reals={SYMBOL: "s"},
    chain=True,
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
        *_weights(),
        Production("Transpose", ("weights",), "columns of weights", FLIP_OF_ONE),
        applied("MatMul", "columns of values", "columns of weights", OUT),
        Production("Transpose", (COLUMNS,), KEY, FLIP_OF_ONE),
        Production("Transpose", ("columns of values",), VALUE, FLIP_OF_ONE),
        Production("Attention", (QUERY, KEY, VALUE), "rows", SINGLE_SCALES),
        Production("Transpose", ("rows",), OUT, FLIP_OF_ONE),
    ),
)
"""Values that are columns, too, as those of flattened images are."""


def _merged(sort: str, length: int, width: int) -> Production:
    """Batches and heads as one axis."""
    shape = (BATCH * HEADS, length, width)
    return Production("Reshape", (sort,), f"{sort} in batches", choices(shape=[shape]))


def _apart(result: str, length: int, width: int) -> Production:
    """The one axis as batches and heads."""
    shape = (BATCH, HEADS, length, width)
    return Production("Reshape", (f"{result} in batches",), result, choices(shape=[shape]))


MERGED = Vocabulary(
    "heads in batches",
    (
        Input("q", QUERY, "B H S D", (BATCH, HEADS, QUERIES, DEPTH)),
        Input("k", KEY, "B H L D", (BATCH, HEADS, KEYS, DEPTH)),
        Input("v", VALUE, "B H L E", (BATCH, HEADS, KEYS, WIDTH)),
        Input("c", COLUMNS, "B H D L", (BATCH, HEADS, DEPTH, KEYS)),
        Input("x", "scores", "B H S L", (BATCH, HEADS, QUERIES, KEYS)),
    ),
    (
        *(_merged(sort, LENGTHS[sort], WIDTHS[sort]) for sort in LENGTHS),
        _merged(COLUMNS, DEPTH, KEYS),
        _merged("scores", QUERIES, KEYS),
        Production("Transpose", (KEY,), COLUMNS, FLIP),
        Production("Transpose", ("key in batches",), "columns in batches", FLIP_OF_ONE),
        applied("MatMul", QUERY, COLUMNS, "products"),
        applied("MatMul", "query in batches", "columns in batches", "products in batches"),
        _merged("products", QUERIES, KEYS),
        Production("Softmax", ("scores",), "weights", choices(axis=[3])),
        Production("Softmax", ("scores in batches",), "weights in batches", choices(axis=[2])),
        applied("MatMul", "weights", VALUE, OUT),
        applied("MatMul", "weights in batches", "value in batches", "out in batches"),
        applied("MatMul", "scores in batches", "value in batches", "out in batches"),
        applied("MatMul", "scores", VALUE, OUT),
        Production("Attention", (QUERY, KEY, VALUE), OUT, choices(scale=[SYMBOL])),
        Production(
            "Attention",
            tuple(f"{sort} in batches" for sort in LENGTHS),
            "out in batches",
            choices(scale=[SYMBOL], **SINGLE),
        ),
        _apart(OUT, QUERIES, WIDTH),
    ),
    (0,) * 7,
    roots=frozenset({OUT, "products in batches"}),
    exact=False,
    reals={SYMBOL: "s"},
    chain=True,
    by_example=True,
)
"""Products of rank 3 whose batches are the heads of all batches, and those of rank 4."""

ONE_BATCH = Vocabulary(
    "heads of one batch",
    (
        Input("x", "scores in batches", "H S L", (HEADS, QUERIES, KEYS)),
        Input("v", VALUE, "1 H L E", (1, HEADS, KEYS, WIDTH)),
    ),
    (
        Production("Reshape", (VALUE,), "value in batches", choices(shape=[(HEADS, KEYS, WIDTH)])),
        applied("MatMul", "scores in batches", VALUE, OUT),
        applied("MatMul", "scores in batches", "value in batches", "out in batches"),
        Production(
            "Reshape", ("out in batches",), OUT, choices(shape=[(1, HEADS, QUERIES, WIDTH)])
        ),
    ),
    (0,) * 4,
    roots=frozenset({OUT}),
    chain=True,
    by_example=True,
)
"""Products of heads as batches with values of a batch of one, of which the first axis is broadcast:
onnxscript leaves out the Reshapes around a product of rank 3 where that gives the same."""

ADDED = Vocabulary(
    "masks and scales of heads in batches",
    (
        Input("x", "scores", "B H S L", (BATCH, HEADS, QUERIES, KEYS)),
        Input("g", "mask", "N S L", (BATCH * HEADS, QUERIES, KEYS)),
        Input("m", "mask", "N 1 L", (BATCH * HEADS, 1, KEYS)),
        scalar("c", "scale"),
    ),
    (
        _merged("scores", QUERIES, KEYS),
        applied("Add", "scores in batches", "mask", "sums in batches"),
        *(
            Production("Reshape", ("mask",), "mask apart", choices(shape=[(BATCH, HEADS, n, KEYS)]))
            for n in (1, QUERIES)
        ),
        applied("Add", "scores", "mask apart", "sums"),
        applied("Mul", "scores in batches", "scale", "sums in batches"),
        applied("Mul", "scores", "scale", "sums"),
        _apart("sums", QUERIES, KEYS),
    ),
    (0,) * 4,
    free=frozenset({"scale"}),
    roots=frozenset({"sums"}),
    chain=True,
    by_example=True,
)
"""Operators on scores whose heads are batches, as on those whose heads are an axis."""

AREA = {"h": 2, "w": 3, "k": 5, "m": 7}
"""Rows and columns of queries, and of keys."""
PLACES = Vocabulary(
    "biases of rows and columns",
    (
        Input("x", "scores", "N S L", (11, 2 * 3, 5 * 7)),
        Input("a", "bias of rows", "N h w k 1", (11, 2, 3, 5, 1)),
        Input("b", "bias of columns", "N h w 1 m", (11, 2, 3, 1, 7)),
    ),
    (
        Production("Reshape", ("scores",), "apart", choices(shape=[(11, *AREA.values())])),
        applied("Add", "apart", "bias of rows", "once"),
        applied("Add", "once", "bias of columns", "twice"),
        Production("Reshape", ("twice",), OUT, choices(shape=[(11, 6, 35)])),
        applied("Add", "bias of rows", "bias of columns", "bias"),
        Production("Reshape", ("bias",), "bias of both", choices(shape=[(11, 6, 35)])),
        applied("Add", "scores", "bias of both", OUT),
    ),
    (0,) * 5,
    roots=frozenset({OUT}),
    chain=True,
    by_example=True,
)
"""Scores of places in images, to which biases of rows and of columns are added one by one."""


TIME_FIRST = Vocabulary(
    "rows before batches",
    (
        *(
            Input(sort[0], sort, f"{name} B M{place}", (length, BATCH, HEADS * WIDTHS[sort]))
            for place, ((sort, length), name) in enumerate(zip(LENGTHS.items(), "SLL", strict=True))
        ),
        Input("a", MASK, "S L", (QUERIES, KEYS)),
        Input("g", "mask of batches", "N 1 S L", (BATCH * HEADS, 1, QUERIES, KEYS)),
    ),
    (
        *(
            production
            for sort, length in LENGTHS.items()
            for production in (
                Production(
                    "Reshape",
                    (sort,),
                    f"rows of {sort}",
                    choices(shape=[(length, BATCH * HEADS, WIDTHS[sort])]),
                ),
                Production("Transpose", (f"rows of {sort}",), f"batches of {sort}", SWAP),
                Production("Transpose", (sort,), f"turned {sort}", SWAP),
            )
        ),
        Production(
            "Reshape",
            ("mask of batches",),
            "mask of heads",
            choices(shape=[(BATCH, HEADS, QUERIES, KEYS)]),
        ),
        *(
            production
            for single, whole in (
                ((), ()),
                ((MASK,), (MASK,)),
                (("mask of batches",), ("mask of heads",)),
            )
            for production in (
                Production(
                    "Attention",
                    (*(f"batches of {sort}" for sort in LENGTHS), *single),
                    "attended batches",
                    choices(scale=[SYMBOL], **SINGLE),
                ),
                Production(
                    "Attention",
                    (*(f"turned {sort}" for sort in LENGTHS), *whole),
                    "attended",
                    choices(scale=[SYMBOL], q_num_heads=[HEADS], kv_num_heads=[HEADS]),
                ),
            )
        ),
        Production("Transpose", ("attended batches",), OUT, SWAP),
        Production("Transpose", ("attended",), "attended rows", SWAP),
        Production(
            "Reshape", ("attended rows",), OUT, choices(shape=[(QUERIES, BATCH * HEADS, WIDTH)])
        ),
    ),
    (0,) * 9,
    roots=frozenset({OUT}),
    exact=False,
    reals={SYMBOL: "s"},
    chain=True,
    by_example=True,
)
"""Rows before batches, as PyTorch's own layer has them: heads join the batches behind them.

Still apart: what reads the heads may join them to rows, or batches to rows besides."""

TURNED = Vocabulary(
    "rows and batches exchanged",
    (
        Input("x", X, "S B K", (QUERIES, BATCH, DEPTH)),
        Input("w", "weight", "K M", (DEPTH, WIDTH)),
        Input("b", "bias", "K", (DEPTH,)),
    ),
    (
        Production("Transpose", (X,), X, choices(perm=ORDERS)),
        Production("Transpose", (X,), "swapped", SWAP),
        *(
            production
            for op, operand in (("MatMul", "weight"), ("Add", "bias"))
            for production in (
                applied(op, "swapped", operand, OUT),
                applied(op, X, operand, "made"),
            )
        ),
        Production("Transpose", ("made",), OUT, SWAP),
    ),
    (0,) * 3,
    free=frozenset({"weight", "bias"}),
    roots=frozenset({X, OUT}),
)
"""Transposes of rank 3, and layers in both orders of rows and batches."""

SCALED = Vocabulary(
    "scales of heads",
    (
        Input("q", QUERY, "B H S D", (BATCH, HEADS, QUERIES, DEPTH)),
        Input("c", COLUMNS, "B H D L", (BATCH, HEADS, DEPTH, KEYS)),
        Input("s", "scale", "H 1 1", (HEADS, 1, 1)),
        Input("t", "scale", "1 H 1 1", (1, HEADS, 1, 1)),
    ),
    (
        applied("Mul", QUERY, "scale", "scaled query"),
        applied("MatMul", "scaled query", COLUMNS, OUT),
        applied("MatMul", QUERY, COLUMNS, "products"),
        applied("Mul", "products", "scale", OUT),
    ),
    (0,) * 3,
    free=frozenset({"scale"}),
    roots=frozenset({OUT}),
)
"""A scale, or temperature, of each head, which may as well be that of its queries."""

BATCHED_HEADS = Family(
    "batched-heads",
    (
        ONE_HEAD,
        VALUES_IN_COLUMNS,
        MERGED,
        ONE_BATCH,
        ADDED,
        PLACES,
        TIME_FIRST,
        TURNED,
        SCALED,
    ),
    about="heads that are batches, or have scales of their own, and attention among them",
)
