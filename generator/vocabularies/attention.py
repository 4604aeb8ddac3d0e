"""Vocabularies of attention: step by step as exporters write it, and in one operator.

Which operators of attention there are, and which laws concern them, follows from their traits, see
`xflow.ops.attention.Attention.traits`: none of those beyond what exporters spell out is named here.
Sorts are the stages of a computation, so that terms may be deep and yet be few. Sizes differ where
they mean different things.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from xflow.core.registry import Kind
from xflow.generator.vocabularies.attention_inputs import (
    BATCH,
    DEPTH,
    HEADS,
    KEY,
    KEYS,
    QUERIES,
    QUERY,
    TURN,
    VALUE,
    WIDTH,
    attended,
    masks,
)
from xflow.generator.vocabularies.common import sorts, tensors
from xflow.generator.vocabularies.packed_heads import PACKED_HEADS
from xflow.generator.vocabulary import DTYPE, Family, Input, Vocabulary
from xflow.ops import operators
from xflow.ops.attention import Attention

# Step by step ------------------------------------------------------------------------------------

of_heads = partial(tensors, B=BATCH, H=HEADS, S=QUERIES, L=KEYS, D=DEPTH, E=WIDTH)
HEADS_FIRST = of_heads("query: q[B H S D]  key: k[B H L D]  value: v[B H L E]")
LINES = of_heads("line: m[L] n[1 L] o[1 1 1 L] p[B 1 1 L] t[B H 1 L] u[1 H 1 L]")
"""Masks that say the same of every query; the operator has them expanded."""


def _weighted(scores: str) -> str:
    """From scores, of these kinds, to the weighted values."""
    return f"""
        masked_scores = Add({scores}, mask | line)
        weights = Softmax({scores} | masked_scores, axis=3)
        out = MatMul(weights, value)
    """


def _in_one(op: str, scales: str, given: str = "") -> str:
    """The operator, of these scales, with every mask that it may have."""
    return f"""
        lines = Expand(line, shape=(1, 1, {QUERIES}, {KEYS}))
        out = {op}(query, key, value, [mask | lines], scale={scales}{given})
    """


def _scaled_before(op: str, given: str = "") -> str:
    """The operator on queries or on keys that are scaled, as its own scale does it."""
    return f"""
        scale = SYMBOL
        scaled_query, scaled_key = Mul((query, key), scale)
        out = {op}(scaled_query, key, value, [mask], scale=1{given})
        out = {op}(query, scaled_key, value, [mask], scale=1{given})
    """


SPELLED_OUT = attended(
    "attention",
    (*HEADS_FIRST, *of_heads("rows: r[B L H D]"), *masks("S L", (QUERIES, KEYS)), *LINES),
    limits=(1,) * 8,
).steps(
    """
    key = Transpose(rows, perm=(0, 2, 1, 3))
    columns = Transpose(key, perm=(0, 1, 3, 2)) | Transpose(rows, perm=(0, 2, 3, 1))
    scaled_columns = Mul(columns, scale) | Transpose(scaled_key, perm=(0, 1, 3, 2))
    scores = MatMul(query, columns)
    scaled_scores = MatMul(scaled_query, columns) | MatMul(query, scaled_columns)
    scaled_scores = Mul(scores, scale)
""",
    _weighted("scores | scaled_scores"),
    _in_one("Attention", "1 | SYMBOL"),
    _scaled_before("Attention"),
)

SOFTCAP = ", softcap=OTHER_SYMBOL"
CAPPED = attended(
    "attention with a softcap",
    (*HEADS_FIRST, *masks("S L", (QUERIES, KEYS), "adeg"), *LINES[2:4]),
    limits=(2,) * 9,
).steps(
    """
    cap = OTHER_SYMBOL
    columns = Transpose(key, perm=(0, 1, 3, 2))
    scores = MatMul(query, columns)
    quotients = Div(scores, cap)
    bounded = Tanh(quotients)
    capped_scores = Mul(bounded, cap)
    """,
    _weighted("capped_scores"),
    _in_one("CappedAttention", "1 | SYMBOL", SOFTCAP),
    _scaled_before("CappedAttention", SOFTCAP),
)
"""Scores that are bounded before the mask is added, as in Gemma 2, and a scale of the queries."""

ONE_HEAD = attended(
    "one head of keys",
    (
        HEADS_FIRST[0],
        *of_heads("key: k[B 1 L D]  value: v[B 1 L E]"),
        *masks("S L", (QUERIES, KEYS), "adeg"),
        *LINES[2:4],
    ),
    limits=(1,) * 8,
).steps(
    """
    columns = Transpose(key, perm=(0, 1, 3, 2))
    scores = MatMul(query, columns)
    """,
    _weighted("scores"),
    _in_one("Attention", "1"),
)
"""Keys and values of one head that all heads of queries share, by broadcasting."""
SCALED_ONE_HEAD = attended(
    "scaled scores of one head of keys",
    of_heads("query: q[B H S D]  columns: k[B 1 D L]"),
    limits=(1,) * 4,
).steps("""
    scale = SYMBOL
    scaled_query = Mul(query, scale)
    scores = MatMul(query, columns)
    out = MatMul(scaled_query, columns) | Mul(scores, scale)
""")

WINDOWS = 9
FEW = WINDOWS * BATCH
IN_WINDOWS = attended(
    "attention in windows",
    (
        *(
            replace(each, dims=f"A {each.dims}", sizes=(WINDOWS, *each.sizes))
            for each in HEADS_FIRST
        ),
        *masks("S L", (QUERIES, KEYS), "abcdf"),
    ),
    limits=(0,) * 8,
    by_example=True,
).steps(f"""
    columns = Transpose(key, perm=(0, 1, 2, 4, 3))
    scores = MatMul(query, columns)
    masked_scores = Add(scores, mask)
    weights = Softmax(scores | masked_scores, axis=4)
    out = MatMul(weights, value)
    queries = Reshape(query, shape=({FEW}, {HEADS}, {QUERIES}, {DEPTH}))
    keys = Reshape(key, shape=({FEW}, {HEADS}, {KEYS}, {DEPTH}))
    values = Reshape(value, shape=({FEW}, {HEADS}, {KEYS}, {WIDTH}))
    batch = Attention(queries, keys, values, [mask], scale=1)
    out = Reshape(batch, shape=({WINDOWS}, {BATCH}, {HEADS}, {QUERIES}, {WIDTH}))
""")
"""Batches of two axes, as those of windows, of rows of an image, or of aligned sequences."""

OTHERS = 5
SIDE_BY_SIDE = attended(
    "attentions of heads side by side",
    of_heads(
        """
        query_of_H: q[B H S D]  key_of_H: k[B H L D]  value_of_H: v[B H L E]
        query_of_G: p[B G S D]  key_of_G: r[B G L D]  value_of_G: t[B G L E]
        """,
        G=OTHERS,
    ),
    limits=(0,) * 5,
    by_example=True,
    searched=False,
).steps("""
    query = Concat(query_of_H, query_of_G, axis=1)
    key = Concat(key_of_H, key_of_G, axis=1)
    value = Concat(value_of_H, value_of_G, axis=1)
    first = Attention(query_of_H, key_of_H, value_of_H, scale=SYMBOL)
    second = Attention(query_of_G, key_of_G, value_of_G, scale=SYMBOL)
    out = Concat(first, second, axis=1) | Attention(query, key, value, scale=SYMBOL)
""")

SHIFTED_MASKS = attended(
    "masks shifted by rows",
    (*HEADS_FIRST, *masks("S L", (QUERIES, KEYS), "ag"), *of_heads("column: u[S 1]")),
    limits=(0,) * 3,
    searched=False,
).steps("""
    shifted = Add(mask, column)
    out = Attention(query, key, value, mask | shifted, scale=SYMBOL)
""")

# Any attention -----------------------------------------------------------------------------------

PAST, SHARED = 10, 2
"""How long the past is, and how many heads of queries share a head of keys and values."""
SHARED_HEADS = (
    *tensors("query: q[B H S D]", B=BATCH, H=HEADS * SHARED, S=QUERIES, D=DEPTH),
    *HEADS_FIRST[1:],
)
PAST_ONES = of_heads("past_key: x[B H P D]  past_value: y[B H P E]", P=PAST)
by_traits = partial(attended, limits=(0,) * 8, by_example=True)
BY_TRAITS = {op.traits: op for op in operators() if isinstance(op, Attention)}
"""The attentions that are declared."""
ALONE = [op for traits, op in BY_TRAITS.items() if len(traits - {"cached"}) <= 1]
"""Those that differ from `Attention` in one thing, beside a past, as those of models do. What is
found of each holds of both together, but is seldom wanted."""


def _given(op: Attention) -> tuple[Input, ...]:
    """The keys and values of the past that an attention takes."""
    return PAST_ONES if op.cached else ()


def _masks(op: Attention, *, biased: bool = False) -> tuple[Input, ...]:
    """Masks that an attention of shared heads takes; with `biased`, also one for each head."""
    if op.arity[1] == len(SHARED_HEADS) + len(_given(op)):
        return ()
    rows, keys = ("S T", PAST + KEYS) if op.cached else ("S L", KEYS)
    names = "adefg" if biased else "adeg"
    dtype = "BOOL" if "chosen" in op.traits else DTYPE
    return masks(rows, (QUERIES, keys), names, heads=HEADS * SHARED, dtype=dtype)


def _use(op: Attention, heads: str, *given: str, masked: bool = True) -> str:
    """An attention of queries, keys and values, and of what else it takes, or may take."""
    reals = (name for name, spec in op.attributes.items() if spec.kind is Kind.REAL)
    scales = (f"{name}={it}" for name, it in zip(reals, ("SYMBOL", "OTHER_SYMBOL"), strict=False))
    past = [item.sort.replace(" ", "_") for item in _given(op)]
    least, most = op.arity
    assert most is not None
    mask = ["mask"] * (least - len(SHARED_HEADS) - len(past)) + ["[mask]"] * (most - least) * masked
    return f"{op.name}({', '.join((heads, *past, *mask, *scales, *given))})"


def _shared(sort: str, width: int) -> str:
    """Heads of keys or values, each of them for several heads of queries."""
    return f"""
        one_{sort} = Unsqueeze({sort}, axes=(2,))
        each_{sort} = Expand(one_{sort}, shape={(BATCH, HEADS, SHARED, KEYS, width)})
        {sort}s = Reshape(each_{sort}, shape={(BATCH, HEADS * SHARED, KEYS, width)})
    """


def _grouped(op: Attention) -> Vocabulary:
    """Heads of keys and values, each for several heads of queries: repeated, or as they are.

    So PyTorch exports it from opset 23 on.
    """
    return by_traits(f"grouped queries of {op.name}", (*SHARED_HEADS, *_masks(op))).steps(
        _shared(KEY, DEPTH),
        _shared(VALUE, WIDTH),
        f"out = {_use(op, 'query, key, value')} | {_use(op, 'query, keys, values')}",
    )


def _with_past(op: Attention) -> Vocabulary:
    """Keys and values behind those of the past: concatenated, or as inputs of their own."""
    whole = BY_TRAITS[op.traits - {"cached"}]
    return by_traits(f"the past of {op.name}", (*SHARED_HEADS, *PAST_ONES, *_masks(op))).steps(
        "keys, values = Concat((past_key, past_value), (key, value), axis=2)",
        f"out = {_use(whole, 'query, keys, values')} | {_use(op, 'query, key, value')}",
    )


def _decided(op: Attention) -> Vocabulary:
    """Masks that give each query the keys up to its own place, behind all of the past.

    Without a past also those that give it all keys, as encoders have them.
    """
    rest = op.traits - {"causal"}
    rows, keys = (QUERIES, KEYS + PAST) if op.cached else (QUERIES, KEYS)
    shapes = f"({rows}, {keys}) | (1, 1, {rows}, {keys})"
    made = f"mask = LowerTriangle(shape={shapes}, offset={PAST if op.cached else 0})"
    kinds = [BY_TRAITS[rest | {"chosen"}], op]
    if not op.cached:
        made += f" | AllTrue(shape={shapes} | ({BATCH}, 1, {rows}, {keys}))"
        kinds.append(BY_TRAITS[rest])
    return by_traits(
        f"masks of {op.name}", (*SHARED_HEADS, *_given(op)), limits=(1,) * 8, free=sorts("mask")
    ).steps(made, *(f"out = {_use(kind, 'query, key, value', masked=False)}" for kind in kinds))


ROWS = {
    QUERY: ("S", QUERIES, HEADS * SHARED, DEPTH),
    KEY: ("L", KEYS, HEADS, DEPTH),
    VALUE: ("L", KEYS, HEADS, WIDTH),
}
"""The name and the extent of their axis, how many heads they have, and their size."""


def _merged(op: Attention) -> Vocabulary:
    """Heads that lie side by side in rows, split and put first, and what was made of them back.

    Still split: what reads it may join the heads, or all rows of a batch besides.
    """
    rows = tuple(
        Input(sort[0], sort, f"B {name} M{place}", (BATCH, length, heads * width))
        for place, (sort, (name, length, heads, width)) in enumerate(ROWS.items())
    )
    apart = ", ".join(f"heads_of_{sort}" for sort in ROWS)
    counts = f"q_num_heads={HEADS * SHARED}", f"kv_num_heads={HEADS}"
    return by_traits(
        f"merged heads of {op.name}",
        (*rows, *_given(op), *_masks(op, biased=not op.traits)),
        limits=(0,) * 9,
    ).steps(
        *(
            f"""
            rows_of_{sort} = Reshape({sort}, shape={(BATCH, *extents)})
            heads_of_{sort} = Transpose(rows_of_{sort}, perm={TURN})
            """
            for sort, (_, *extents) in ROWS.items()
        ),
        f"""
        heads = {_use(op, apart)}
        rows = {_use(op, "query, key, value", *counts)}
        out = Transpose(heads, perm={TURN})
        out = Reshape(rows, shape={(BATCH, QUERIES, HEADS * SHARED, WIDTH)})
        """,
    )


def _changed_values(op: Attention) -> Vocabulary:
    """Weighted values that are projected or scaled, and weights of such values.

    Linear maps of features go past the weights; a bias does not, where a mask covers a row.
    """
    return attended(
        f"changed values of {op.name}",
        (
            *HEADS_FIRST,
            *masks("S L", (QUERIES, KEYS), "adeg"),
            *of_heads("weight: w[E F]  gain: t[E]", F=PAST),
        ),
        limits=(0,) * 4,
        free=sorts("weight gain"),
    ).steps(f"""
        changed, out = MatMul((value, heads), weight) | Mul((value, heads), gain)
        heads = {_use(op, "query, key, value")}
        out = {_use(op, "query, key, changed")}
    """)


def _of_each() -> Iterator[Vocabulary]:
    """The laws of each attention that is declared, by its traits."""
    for op in ALONE:
        causal = "causal" in op.traits
        if not op.traits:
            yield _changed_values(op)
        if not op.cached:
            yield _grouped(op)
        elif not causal:
            yield _with_past(op)
        if causal:
            yield _decided(op)
        # A softcap takes the kernel so long that it matters little where heads lie.
        if "softcap" not in op.traits:
            yield _merged(op)


OF_EACH = {vocabulary.name: vocabulary for vocabulary in _of_each()}
"""By name."""

ATTENTION = Family(
    "attention",
    (
        *(SPELLED_OUT, CAPPED, ONE_HEAD, SCALED_ONE_HEAD, IN_WINDOWS, SIDE_BY_SIDE),
        *(SHIFTED_MASKS, *OF_EACH.values(), *PACKED_HEADS),
    ),
    about="attention in one operator and step by step, and how its heads are laid out",
)
