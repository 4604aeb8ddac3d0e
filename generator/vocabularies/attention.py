"""Vocabularies of attention, step by step as exporters write it, and of the layout of its heads.

Sorts are the stages of a computation, so that terms may be deep and yet be few. Sizes differ where
they mean different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from xflow.core.registry import Attribute
from xflow.generator.vocabularies.common import OTHER_SYMBOL, SYMBOL, X, applied, numbers
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

BATCH, HEADS, QUERIES, KEYS, DEPTH, WIDTH = 2, 3, 5, 6, 4, 7
PAST = 10
SHARED = 2
"""How many heads of queries share a head of keys and values."""
PARTS = 8
"""How many tensors are packed into one, such as queries, keys and values: so many that a formula
for where they begin can be told."""
QUERY, KEY, VALUE, MASK, OUT = "query", "key", "value", "mask", "out"
TURN = choices(perm=[(0, 2, 1, 3)])
"""Heads before rows, and back."""
FLIP = choices(perm=[(0, 1, 3, 2)])
"""The keys of each head as columns."""
SCALES = choices(scale=[Fraction(1), SYMBOL])

HEADS_FIRST = (
    Input("q", QUERY, "B H S D", (BATCH, HEADS, QUERIES, DEPTH)),
    Input("k", KEY, "B H L D", (BATCH, HEADS, KEYS, DEPTH)),
    Input("v", VALUE, "B H L E", (BATCH, HEADS, KEYS, WIDTH)),
)
MASKS = (
    Input("a", MASK, "S L", (QUERIES, KEYS)),
    Input("b", MASK, "H S L", (HEADS, QUERIES, KEYS)),
    Input("c", MASK, "1 S L", (1, QUERIES, KEYS)),
    Input("d", MASK, "1 1 S L", (1, 1, QUERIES, KEYS)),
    Input("e", MASK, "B 1 S L", (BATCH, 1, QUERIES, KEYS)),
    Input("f", MASK, "1 H S L", (1, HEADS, QUERIES, KEYS)),
    Input("g", MASK, "B H S L", (BATCH, HEADS, QUERIES, KEYS)),
)
"""The masks that the operator takes."""
LINES = (
    Input("m", "line", "L", (KEYS,)),
    Input("n", "line", "1 L", (1, KEYS)),
    Input("o", "line", "1 1 1 L", (1, 1, 1, KEYS)),
    Input("p", "line", "B 1 1 L", (BATCH, 1, 1, KEYS)),
    Input("t", "line", "B H 1 L", (BATCH, HEADS, 1, KEYS)),
    Input("u", "line", "1 H 1 L", (1, HEADS, 1, KEYS)),
)
"""Masks that say the same of every query; the operator has them expanded."""


def _weighted(*kinds: str) -> Iterator[Production]:
    """From scores, of these kinds, to the weighted values."""
    for scores in kinds:
        yield Production("Softmax", (scores,), "weights", choices(axis=[3]))
        for mask in (MASK, "line"):
            yield applied("Add", scores, mask, "masked scores")
    yield Production("Softmax", ("masked scores",), "weights", choices(axis=[3]))
    yield applied("MatMul", "weights", VALUE, OUT)


SPELLED_OUT = Vocabulary(
    "attention",
    (*HEADS_FIRST, Input("r", "rows", "B L H D", (BATCH, KEYS, HEADS, DEPTH)), *MASKS, *LINES),
    (
        numbers("scale", SYMBOL),
        Production("Transpose", (KEY,), "columns", FLIP),
        Production("Transpose", ("rows",), KEY, TURN),
        Production("Transpose", ("rows",), "columns", choices(perm=[(0, 2, 3, 1)])),
        applied("Mul", QUERY, "scale", "scaled query"),
        applied("Mul", KEY, "scale", "scaled key"),
        applied("Mul", "columns", "scale", "scaled columns"),
        Production("Transpose", ("scaled key",), "scaled columns", FLIP),
        applied("MatMul", QUERY, "columns", "scores"),
        applied("MatMul", "scaled query", "columns", "scaled scores"),
        applied("MatMul", QUERY, "scaled columns", "scaled scores"),
        applied("Mul", "scores", "scale", "scaled scores"),
        *_weighted("scores", "scaled scores"),
        Production("Attention", (QUERY, KEY, VALUE), OUT, SCALES),
        *(
            Production("Attention", (*heads, VALUE, *mask), OUT, choices(scale=[Fraction(1)]))
            for heads in (("scaled query", KEY), (QUERY, "scaled key"))
            for mask in ((), (MASK,))
        ),
        Production("Expand", ("line",), "lines", choices(shape=[(1, 1, QUERIES, KEYS)])),
        Production("Attention", (QUERY, KEY, VALUE, MASK), OUT, SCALES),
        Production("Attention", (QUERY, KEY, VALUE, "lines"), OUT, SCALES),
    ),
    (1,) * 8,
    free=frozenset({"scale"}),
    roots=frozenset({OUT}),
    exact=False,
    reals={SYMBOL: "s"},
    chain=True,
)


def _shared(sort: str, result: str, width: int) -> tuple[Production, ...]:
    """Heads of keys or values, each of them for several heads of queries."""
    rows = (BATCH, HEADS, SHARED, KEYS, width)
    return (
        Production("Unsqueeze", (sort,), f"one {sort}", choices(axes=[(2,)])),
        Production("Expand", (f"one {sort}",), f"each {sort}", choices(shape=[rows])),
        Production(
            "Reshape",
            (f"each {sort}",),
            result,
            choices(shape=[(BATCH, HEADS * SHARED, KEYS, width)]),
        ),
    )


CAUSAL = ("CausalAttention", "CachedCausalAttention")
"""Attentions that have no mask as an input."""
PAST_ONES = (
    Input("x", "past key", "B H P D", (BATCH, HEADS, PAST, DEPTH)),
    Input("y", "past value", "B H P E", (BATCH, HEADS, PAST, WIDTH)),
)


def _masks(heads: int, *, chosen: bool = False, cached: bool = False) -> tuple[Input, ...]:
    """Masks for so many heads of queries, of Booleans where keys are `chosen`.

    Where they are `cached`, for the past ones, too.
    """
    given = (MASKS[number] for number in ((0, 3, 4) if chosen or cached else (0, 3, 4, 5)))
    own = (*given, Input("g", MASK, "B H S L", (BATCH, heads, QUERIES, KEYS)))
    keys = PAST + KEYS if cached else KEYS
    return tuple(
        replace(
            mask,
            dims=mask.dims.replace("L", "T" if cached else "L"),
            sizes=tuple(
                keys if place == -1 else heads if (place, size) == (-3, HEADS) else size
                for place, size in enumerate(mask.sizes, -len(mask.sizes))
            ),
            dtype="BOOL" if chosen else mask.dtype,
        )
        for mask in own
    )


def _masked(attention: str, *, chosen: bool) -> tuple[tuple[str, ...], ...]:
    """The masks that an attention may have as inputs: none, one, or either."""
    if attention in CAUSAL:
        return ((),)
    return ((MASK,),) if chosen else ((), (MASK,))


def _grouped(
    name: str,
    attention: str,
    reals: Mapping[Fraction, str],
    *,
    chosen: bool = False,
    **given: Attribute,
) -> Vocabulary:
    """Heads of keys and values, each for several heads of queries: repeated, or as they are.

    With masks, or without; where keys are `chosen`, with masks of Booleans alone.
    """
    attributes = choices(**{key: [value] for key, value in given.items()})
    masks = (
        replace(mask, dtype="BOOL") if chosen else mask
        for mask in (
            *(MASKS[number] for number in (0, 3, 4)),
            Input("g", MASK, "B H S L", (BATCH, HEADS * SHARED, QUERIES, KEYS)),
        )
    )
    return Vocabulary(
        name,
        (
            Input("q", QUERY, "B H S D", (BATCH, HEADS * SHARED, QUERIES, DEPTH)),
            *HEADS_FIRST[1:],
            *(() if attention in CAUSAL else masks),
        ),
        (
            *_shared(KEY, "keys", DEPTH),
            *_shared(VALUE, "values", WIDTH),
            *(
                Production(attention, (QUERY, *rest), OUT, attributes)
                for mask in _masked(attention, chosen=chosen)
                for rest in ((KEY, VALUE, *mask), ("keys", "values", *mask))
            ),
        ),
        (0,) * 8,
        roots=frozenset({OUT}),
        exact=False,
        reals=reals,
        chain=True,
        by_example=True,
    )


def _with_past(
    name: str,
    attention: str,
    cached: str,
    reals: Mapping[Fraction, str],
    *,
    chosen: bool = False,
    **given: Attribute,
) -> Vocabulary:
    """Keys and values behind those of the past: concatenated, or as inputs of their own."""
    attributes = choices(**{key: [value] for key, value in given.items()})
    queries = HEADS * SHARED
    return Vocabulary(
        name,
        (
            Input("q", QUERY, "B H S D", (BATCH, queries, QUERIES, DEPTH)),
            *HEADS_FIRST[1:],
            *PAST_ONES,
            *_masks(queries, chosen=chosen, cached=True),
        ),
        (
            Production("Concat", ("past key", KEY), "keys", choices(axis=[2])),
            Production("Concat", ("past value", VALUE), "values", choices(axis=[2])),
            *(
                production
                for mask in _masked(attention, chosen=chosen)
                for production in (
                    Production(attention, (QUERY, "keys", "values", *mask), OUT, attributes),
                    Production(
                        cached,
                        (QUERY, KEY, VALUE, "past key", "past value", *mask),
                        OUT,
                        attributes,
                    ),
                )
            ),
        ),
        (0,) * 8,
        roots=frozenset({OUT}),
        exact=False,
        reals=reals,
        chain=True,
        by_example=True,
    )


def _causal() -> Vocabulary:
    """Masks that give each query all keys, or those up to its own place, and what has none."""
    scaled = choices(scale=[SYMBOL])
    triangle = (QUERIES, KEYS)
    shapes: list[Attribute] = [triangle, (1, 1, *triangle)]
    return Vocabulary(
        "causal attention",
        (
            Input("q", QUERY, "B H S D", (BATCH, HEADS * SHARED, QUERIES, DEPTH)),
            *HEADS_FIRST[1:],
        ),
        (
            Production("LowerTriangle", (), MASK, choices(shape=shapes, offset=[0])),
            Production("AllTrue", (), MASK, choices(shape=[*shapes, (BATCH, 1, *triangle)])),
            Production("MaskedAttention", (QUERY, KEY, VALUE, MASK), OUT, scaled),
            Production("CausalAttention", (QUERY, KEY, VALUE), OUT, scaled),
            Production("Attention", (QUERY, KEY, VALUE), OUT, scaled),
        ),
        (1,) * 8,
        free=frozenset({MASK}),
        roots=frozenset({OUT}),
        exact=False,
        reals={SYMBOL: "s"},
        chain=True,
        by_example=True,
    )


def _causal_behind_a_past() -> Vocabulary:
    """Masks that give each query all of the past, and new keys up to its own place."""
    scaled = choices(scale=[SYMBOL])
    triangle = (QUERIES, PAST + KEYS)
    shapes: list[Attribute] = [triangle, (1, 1, *triangle)]
    given = (QUERY, KEY, VALUE, *(item.sort for item in PAST_ONES))
    return Vocabulary(
        "causal attention with a past",
        (
            Input("q", QUERY, "B H S D", (BATCH, HEADS * SHARED, QUERIES, DEPTH)),
            *HEADS_FIRST[1:],
            *PAST_ONES,
        ),
        (
            Production("LowerTriangle", (), MASK, choices(shape=shapes, offset=[PAST])),
            Production("CachedMaskedAttention", (*given, MASK), OUT, scaled),
            Production("CachedCausalAttention", given, OUT, scaled),
        ),
        (1,) * 8,
        free=frozenset({MASK}),
        roots=frozenset({OUT}),
        exact=False,
        reals={SYMBOL: "s"},
        chain=True,
        by_example=True,
    )


BEHIND_A_PAST = _causal_behind_a_past()
GROUPED = _grouped("grouped queries", "Attention", {SYMBOL: "s"}, scale=SYMBOL)
GROUPED_CHOSEN = _grouped(
    "grouped queries of chosen keys",
    "MaskedAttention",
    {SYMBOL: "s"},
    chosen=True,
    scale=SYMBOL,
)
"""As PyTorch exports it from opset 23 on."""

CAPS = {SYMBOL: "s", OTHER_SYMBOL: "c"}
CAPPED = Vocabulary(
    "attention with a softcap",
    (*HEADS_FIRST, MASKS[0], MASKS[3], MASKS[4], MASKS[6], *LINES[2:4]),
    (
        numbers("scale", SYMBOL),
        numbers("cap", OTHER_SYMBOL),
        applied("Mul", QUERY, "scale", "scaled query"),
        applied("Mul", KEY, "scale", "scaled key"),
        Production("Transpose", (KEY,), "columns", FLIP),
        applied("MatMul", QUERY, "columns", "scores"),
        applied("Div", "scores", "cap", "quotients"),
        Production("Tanh", ("quotients",), "bounded"),
        applied("Mul", "bounded", "cap", "capped scores"),
        *_weighted("capped scores"),
        Production("Expand", ("line",), "lines", choices(shape=[(1, 1, QUERIES, KEYS)])),
        *(
            Production(
                "CappedAttention",
                (QUERY, KEY, VALUE, *mask),
                OUT,
                choices(scale=[Fraction(1)], softcap=[OTHER_SYMBOL]),
            )
            for mask in ((), (MASK,), ("lines",))
        ),
        *(
            Production(
                "CappedAttention",
                (*heads, VALUE, *mask),
                OUT,
                choices(scale=[scale], softcap=[OTHER_SYMBOL]),
            )
            for heads, scale in (
                ((QUERY, KEY), SYMBOL),
                (("scaled query", KEY), Fraction(1)),
                ((QUERY, "scaled key"), Fraction(1)),
            )
            for mask in ((), (MASK,))
        ),
    ),
    (2,) * 9,
    free=frozenset({"cap", "scale"}),
    roots=frozenset({OUT}),
    exact=False,
    reals=CAPS,
    chain=True,
)
"""Scores that are bounded before the mask is added, as in Gemma 2, and a scale of the queries."""
GROUPED_CAPPED = _grouped(
    "grouped queries with a softcap", "CappedAttention", CAPS, scale=SYMBOL, softcap=OTHER_SYMBOL
)


ONE_HEAD = Vocabulary(
    "one head of keys",
    (
        HEADS_FIRST[0],
        Input("k", KEY, "B 1 L D", (BATCH, 1, KEYS, DEPTH)),
        Input("v", VALUE, "B 1 L E", (BATCH, 1, KEYS, WIDTH)),
        *(MASKS[number] for number in (0, 3, 4, 6)),
        *LINES[2:4],
    ),
    (
        Production("Transpose", (KEY,), "columns", FLIP),
        applied("MatMul", QUERY, "columns", "scores"),
        *_weighted("scores"),
        Production("Expand", ("line",), "lines", choices(shape=[(1, 1, QUERIES, KEYS)])),
        *(
            Production("Attention", (QUERY, KEY, VALUE, *mask), OUT, choices(scale=[Fraction(1)]))
            for mask in ((), (MASK,), ("lines",))
        ),
    ),
    (1,) * 8,
    roots=frozenset({OUT}),
    exact=False,
    chain=True,
)
"""Keys and values of one head that all heads of queries share, by broadcasting."""
SCALED_ONE_HEAD = Vocabulary(
    "scaled scores of one head of keys",
    (HEADS_FIRST[0], Input("k", "columns", "B 1 D L", (BATCH, 1, DEPTH, KEYS))),
    (
        numbers("scale", SYMBOL),
        applied("Mul", QUERY, "scale", "scaled query"),
        applied("MatMul", QUERY, "columns", "scores"),
        applied("MatMul", "scaled query", "columns", OUT),
        applied("Mul", "scores", "scale", OUT),
    ),
    (1,) * 4,
    free=frozenset({"scale"}),
    roots=frozenset({OUT}),
    exact=False,
    reals={SYMBOL: "s"},
    chain=True,
)


def _merged(
    name: str,
    groups: int,
    attention: str = "Attention",
    *,
    chosen: bool = False,
    cached: bool = False,
) -> Vocabulary:
    """Heads that lie side by side in rows, split and put first, and what was made of them back.

    Still split: what reads it may join the heads, or all rows of a batch besides. Where keys are
    `chosen`, masks are of Booleans, and always there; where they are `cached`, so are past ones.
    """
    heads = {QUERY: HEADS * groups, KEY: HEADS, VALUE: HEADS}
    widths = {QUERY: DEPTH, KEY: DEPTH, VALUE: WIDTH}
    lengths = {QUERY: QUERIES, KEY: KEYS, VALUE: KEYS}
    split: dict[str, Attribute] = {
        sort: (BATCH, lengths[sort], heads[sort], widths[sort]) for sort in heads
    }
    apart = (BATCH, QUERIES, heads[QUERY], WIDTH)
    first = tuple(f"heads of {sort}" for sort in heads)
    numbers_of_heads = choices(
        scale=[SYMBOL], q_num_heads=[heads[QUERY]], kv_num_heads=[heads[KEY]]
    )
    past = tuple(item.sort for item in PAST_ONES) if cached else ()
    masks = _masks(heads[QUERY], chosen=chosen, cached=cached)
    return Vocabulary(
        name,
        (
            *(
                Input(sort[0], sort, f"B {length} {size}", (BATCH, lengths[sort], size_of))
                for sort, length, size, size_of in (
                    (sort, "S" if sort == QUERY else "L", f"M{place}", heads[sort] * widths[sort])
                    for place, sort in enumerate(heads)
                )
            ),
            *(PAST_ONES if cached else ()),
            *(() if attention in CAUSAL else masks),
        ),
        (
            *(
                Production("Reshape", (sort,), f"rows of {sort}", choices(shape=[split[sort]]))
                for sort in heads
            ),
            *(
                Production("Transpose", (f"rows of {sort}",), f"heads of {sort}", TURN)
                for sort in heads
            ),
            *(
                production
                for mask in _masked(attention, chosen=chosen)
                for production in (
                    Production(attention, (*first, *past, *mask), "heads", choices(scale=[SYMBOL])),
                    Production(attention, (*heads, *past, *mask), "rows", numbers_of_heads),
                )
            ),
            Production("Transpose", ("heads",), OUT, TURN),
            Production("Reshape", ("rows",), OUT, choices(shape=[apart])),
        ),
        (0,) * 9,
        roots=frozenset({OUT}),
        exact=False,
        reals={SYMBOL: "s"},
        chain=True,
        by_example=True,
    )


BATCHED = (BATCH * HEADS, QUERIES, DEPTH)
COLUMNS = Vocabulary(
    "heads turned over",
    (
        Input("x", X, "B H S D", (BATCH, HEADS, QUERIES, DEPTH)),
        Input("y", "rows", "B S H D", (BATCH, QUERIES, HEADS, DEPTH)),
    ),
    (
        Production("Transpose", ("rows",), "turned", TURN),
        Production("Transpose", ("rows",), OUT, choices(perm=[(0, 2, 3, 1)])),
        *(Production("Transpose", (sort,), OUT, FLIP) for sort in (X, "turned")),
        *(
            Production(
                "Reshape", (sort,), "batch", choices(shape=[(BATCH * HEADS, QUERIES, DEPTH)])
            )
            for sort in (X, "turned")
        ),
        Production("Transpose", ("batch",), "batch turned", choices(perm=[(0, 2, 1)])),
        Production(
            "Reshape", ("batch turned",), OUT, choices(shape=[(BATCH, HEADS, DEPTH, QUERIES)])
        ),
    ),
    (0,) * 5,
    roots=frozenset({OUT}),
    chain=True,
    by_example=True,
)

PLACE = Input("i", "place of ", "", (), dtype="INT64")
PACKED = (BATCH, QUERIES, PARTS, HEADS * DEPTH)
SPLIT = (BATCH, QUERIES, PARTS, HEADS, DEPTH)


def _part(
    sort: str, result: str, axis: int, place: str = "", places: Sequence[int] = range(PARTS)
) -> tuple[Production, ...]:
    """One of the tensors that are packed along an axis, which goes away."""
    cuts = tuple(
        {"starts": (start,), "ends": (start + 1,), "axes": (axis,), "steps": (1,)}
        for start in places
    )
    return (
        Production("Slice", (sort,), f"{result}, alone", cuts),
        Production("Squeeze", (f"{result}, alone",), result, choices(axes=[(axis,)])),
    )


def _gathered(
    sort: str, result: str, axis: int, place: str = "", places: Sequence[int] = ()
) -> tuple[Production, ...]:
    """The same by an index, which is an input."""
    return (Production("Gather", (sort, f"place of {place}"), result, choices(axis=[axis])),)


def _taken(sort: str, result: str, axis: int) -> tuple[Production, ...]:
    """One of the packed tensors, in both ways."""
    return (*_gathered(sort, result, axis), *_part(sort, result, axis))


UNPACKED = Vocabulary(
    "packed heads",
    (Input("x", X, "B S M", (BATCH, QUERIES, PARTS * HEADS * DEPTH)), PLACE),
    (
        Production("Reshape", (X,), "packed heads", choices(shape=[SPLIT])),
        Production("Transpose", ("packed heads",), "turned", choices(perm=[(2, 0, 3, 1, 4)])),
        *_taken("turned", OUT, 0),
        *_taken("packed heads", "rows", 2),
        Production("Reshape", (X,), "packed rows", choices(shape=[PACKED])),
        *_taken("packed rows", "row", 2),
        Production("Reshape", ("row",), "rows", choices(shape=[(BATCH, QUERIES, HEADS, DEPTH)])),
        Production("Transpose", ("rows",), OUT, TURN),
    ),
    (1,) * 7,
    free=frozenset({PLACE.sort}),
    roots=frozenset({OUT, "rows"}),
    chain=True,
    by_example=True,
)

PLACES: Mapping[str, Sequence[int]] = {QUERY: (0, 1, 2), KEY: (3, 4), VALUE: (5, 6)}
SELF_MASKS = tuple(
    Input(name, MASK, dims, sizes)
    for name, dims, sizes in (
        ("a", "S S", (QUERIES, QUERIES)),
        ("d", "1 1 S S", (1, 1, QUERIES, QUERIES)),
        ("e", "B 1 S S", (BATCH, 1, QUERIES, QUERIES)),
        ("f", "1 H S S", (1, HEADS, QUERIES, QUERIES)),
        ("g", "B H S S", (BATCH, HEADS, QUERIES, QUERIES)),
    )
)
"""The masks among rows of one length."""


def _packed(name: str, by_slice: bool) -> Vocabulary:
    """Attention among rows that hold queries, keys and values, taken out of the heads or before."""
    parts = dict.fromkeys(PLACES, _part if by_slice else _gathered)
    heads = choices(scale=[SYMBOL], q_num_heads=[HEADS], kv_num_heads=[HEADS])
    return Vocabulary(
        name,
        (
            Input("x", X, "B S M", (BATCH, QUERIES, PARTS * HEADS * DEPTH)),
            *(
                Input(letter, f"place of {sort}", "", (), dtype="INT64")
                for letter, sort in zip("ijl", PLACES, strict=True)
                if not by_slice
            ),
            *SELF_MASKS,
        ),
        (
            Production("Reshape", (X,), "packed heads", choices(shape=[SPLIT])),
            Production("Transpose", ("packed heads",), "turned", choices(perm=[(2, 0, 3, 1, 4)])),
            Production("Reshape", (X,), "packed rows", choices(shape=[PACKED])),
            *(
                production
                for sort, places in PLACES.items()
                for production in (
                    *parts[sort]("turned", f"heads of {sort}", 0, sort, places),
                    *parts[sort]("packed rows", f"rows of {sort}", 2, sort, places),
                )
            ),
            *(
                production
                for mask in ((), (MASK,))
                for production in (
                    Production(
                        "Attention",
                        (*(f"heads of {sort}" for sort in PLACES), *mask),
                        "heads",
                        choices(scale=[SYMBOL]),
                    ),
                    Production(
                        "Attention", (*(f"rows of {sort}" for sort in PLACES), *mask), OUT, heads
                    ),
                )
            ),
            Production("Transpose", ("heads",), "rows", TURN),
            Production("Reshape", ("rows",), OUT, choices(shape=[(BATCH, QUERIES, HEADS * DEPTH)])),
        ),
        (3,) * 17,
        free=frozenset(f"place of {sort}" for sort in PLACES),
        roots=frozenset({OUT}),
        exact=False,
        reals={SYMBOL: "s"},
        chain=True,
        by_example=True,
    )


INNER, PART = 3, HEADS * DEPTH
PROJECTED = Vocabulary(
    "packed projections",
    (
        Input("x", X, "B S K", (BATCH, QUERIES, INNER)),
        Input("w", "weight", "K M", (INNER, PARTS * PART)),
        Input("y", "packed", "B S M", (BATCH, QUERIES, PARTS * PART)),
        Input("b", "bias", "M", (PARTS * PART,)),
        PLACE,
    ),
    (
        applied("MatMul", X, "weight", "product"),
        *(applied("Add", sort, "bias", "shifted") for sort in ("packed", "product")),
        *(
            production
            for sort in ("packed", "product", "shifted")
            for production in (
                Production("Reshape", (sort,), f"rows of {sort}", choices(shape=[PACKED])),
                *_taken(f"rows of {sort}", "row" if sort == "packed" else OUT, 2),
            )
        ),
        Production("Reshape", ("weight",), "weights", choices(shape=[(INNER, PARTS, PART)])),
        *_taken("weights", "part of weights", 1),
        Production("Reshape", ("bias",), "biases", choices(shape=[(PARTS, PART)])),
        *_taken("biases", "part of biases", 0),
        *(applied("MatMul", X, "part of weights", result) for result in (OUT, "row")),
        applied("Add", "row", "part of biases", OUT),
    ),
    (4,) * 5,
    free=frozenset(
        {"weight", "bias", "weights", "biases", PLACE.sort}
        | {f"part of {name}{alone}" for name in ("weights", "biases") for alone in ("", ", alone")}
    ),
    roots=frozenset({OUT}),
    chain=True,
    by_example=True,
)

CHOSEN = (
    _merged("merged heads of chosen keys", SHARED, "MaskedAttention", chosen=True),
    _merged("merged heads of causal attention", SHARED, "CausalAttention"),
    _merged(
        "merged heads of causal attention with a past",
        SHARED,
        "CachedCausalAttention",
        cached=True,
    ),
    _grouped("grouped queries of causal attention", "CausalAttention", {SYMBOL: "s"}, scale=SYMBOL),
    _causal(),
    BEHIND_A_PAST,
    *(
        vocabulary
        for attention, cached, chosen in (
            ("Attention", "CachedAttention", False),
            ("MaskedAttention", "CachedMaskedAttention", True),
        )
        for vocabulary in (
            _with_past(
                f"a past of {attention}",
                attention,
                cached,
                {SYMBOL: "s"},
                chosen=chosen,
                scale=SYMBOL,
            ),
            _merged(f"merged heads of {cached}", SHARED, cached, chosen=chosen, cached=True),
        )
    ),
    _with_past(
        "a past of attention with a softcap",
        "CappedAttention",
        "CachedCappedAttention",
        CAPS,
        scale=SYMBOL,
        softcap=OTHER_SYMBOL,
    ),
)
"""Attention with masks of Booleans, causal, and with keys and values of the past."""

ATTENTION = Family(
    "attention",
    (
        SPELLED_OUT,
        GROUPED,
        GROUPED_CHOSEN,
        CAPPED,
        GROUPED_CAPPED,
        ONE_HEAD,
        SCALED_ONE_HEAD,
        _merged("merged heads", 1),
        _merged("merged heads of grouped queries", SHARED),
        *CHOSEN,
        COLUMNS,
        UNPACKED,
        _packed("attention on packed heads", by_slice=True),
        _packed("attention on packed heads, gathered", by_slice=False),
        PROJECTED,
    ),
    about="attention in one operator and step by step, and how its heads are laid out",
)
