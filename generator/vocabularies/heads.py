"""Vocabularies of heads that are shared, packed or masked by windows, and of their projections.

Completes `attention`: the operators around an attention, and the form of inputs that it reads.
"""

from __future__ import annotations

from xflow.generator.vocabularies.attention import (
    HEADS,
    KEY,
    MASK,
    OUT,
    PARTS,
    PLACES,
    QUERIES,
    QUERY,
    SELF_MASKS,
    VALUE,
)
from xflow.generator.vocabularies.common import SYMBOL, X, applied
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

BATCH, SHARED, LENGTH, DEPTH, INNER = 2, 2, 7, 5, 3
SORTS = (QUERY, KEY, VALUE)

SHARED_COLUMNS = Vocabulary(
    "shared heads turned over",
    (Input("x", X, "B G n L D", (BATCH, HEADS, SHARED, LENGTH, DEPTH)),),
    (
        Production(
            "Reshape", (X,), "batch", choices(shape=[(BATCH * HEADS * SHARED, LENGTH, DEPTH)])
        ),
        Production("Transpose", ("batch",), "columns", choices(perm=[(0, 2, 1)])),
        Production(
            "Reshape", ("columns",), OUT, choices(shape=[(BATCH, HEADS * SHARED, DEPTH, LENGTH)])
        ),
        Production(
            "Reshape", (X,), "heads", choices(shape=[(BATCH, HEADS * SHARED, LENGTH, DEPTH)])
        ),
        Production("Transpose", ("heads",), OUT, choices(perm=[(0, 1, 3, 2)])),
    ),
    (0,) * 4,
    roots=frozenset({OUT}),
    chain=True,
    by_example=True,
)
"""Keys that several heads of queries read, as columns: heads and batches become one axis first."""

WINDOWS = 5


def _windows(name: str, batch: int) -> Vocabulary:
    """Scores of the windows of some images, to which each window adds a mask of its own."""
    scores = (HEADS, LENGTH, DEPTH)
    masks = (WINDOWS, 1, LENGTH, DEPTH)
    narrow = (batch * WINDOWS, 1, LENGTH, DEPTH)
    whole = Production("Expand", (MASK,), "masks", choices(shape=[(batch, *masks)]))
    return Vocabulary(
        name,
        (
            Input("x", X, "B H S L", (batch * WINDOWS, *scores)),
            Input("a", MASK, "1 W 1 S L", (1, *masks)),
            Input("b", MASK if batch > 1 else "mask of all", "W 1 S L", masks),
        ),
        (
            Production("Reshape", (X,), "windows", choices(shape=[(batch, WINDOWS, *scores)])),
            *(applied("Add", "windows", mask, "sum") for mask in (MASK, "mask of all")),
            Production("Reshape", ("sum",), OUT, choices(shape=[(batch * WINDOWS, *scores)])),
            *((whole,) if batch > 1 else ()),
            Production(
                "Reshape", ("masks" if batch > 1 else MASK,), "mask of all", choices(shape=[narrow])
            ),
            applied("Add", X, "mask of all", OUT),
        ),
        (2,) * 4,
        free=frozenset({MASK, "masks", "mask of all"}),
        roots=frozenset({OUT}),
        chain=True,
        by_example=True,
    )


def _projected(name: str, *, by_slice: bool, biased: bool) -> Vocabulary:
    """Attention on rows that one product makes for queries, keys and values, or three products.

    What is packed into the weight are more parts than three, so that each may lie anywhere. A bias
    of the keys adds the same to all scores of a query, and so nothing.
    """
    width = HEADS * DEPTH
    masks = SELF_MASKS if by_slice else ()
    packed = "shifted" if biased else "product"
    heads = choices(scale=[SYMBOL], q_num_heads=[HEADS], kv_num_heads=[HEADS])
    sources = {packed: 2, "weight": 1, **({"bias": 0} if biased else {})}
    extents = {packed: (BATCH, QUERIES), "weight": (INNER,), "bias": ()}

    def parts(source: str, axis: int) -> list[Production]:
        """For each sort the part of the tensors that are packed into an axis of `source`."""
        made = []
        for sort in SORTS:
            if not by_slice:
                args = f"parts of {source}", f"place of {sort}"
                made.append(Production("Gather", args, f"{sort} of {source}", choices(axis=[axis])))
                continue
            cuts = tuple(
                {"starts": (k,), "ends": (k + 1,), "axes": (axis,), "steps": (1,)}
                for k in PLACES[sort]
            )
            alone = f"{sort} of {source}, alone"
            made.append(Production("Slice", (f"parts of {source}",), alone, cuts))
            made.append(
                Production("Squeeze", (alone,), f"{sort} of {source}", choices(axes=[(axis,)]))
            )
        return made

    made = {
        sort: f"{sort} shifted" if biased and sort != KEY else f"{sort} alone" for sort in SORTS
    }
    products = [applied("MatMul", X, f"{sort} of weight", f"{sort} alone") for sort in SORTS]
    products += [
        applied("Add", f"{sort} alone", f"{sort} of bias", rows)
        for sort, rows in made.items()
        if rows.endswith("shifted")
    ]
    return Vocabulary(
        name,
        (
            Input("x", X, "B S K", (BATCH, QUERIES, INNER)),
            Input("w", "weight", "K M", (INNER, PARTS * width)),
            *((Input("b", "bias", "M", (PARTS * width,)),) if biased else ()),
            *(
                Input(letter, f"place of {sort}", "", (), dtype="INT64")
                for letter, sort in zip("ijl", SORTS, strict=True)
                if not by_slice
            ),
            *masks,
        ),
        (
            applied("MatMul", X, "weight", "product"),
            *((applied("Add", "product", "bias", "shifted"),) if biased else ()),
            *(
                Production(
                    "Reshape",
                    (source,),
                    f"parts of {source}",
                    choices(shape=[(*extents[source], PARTS, width)]),
                )
                for source in sources
            ),
            *(production for source in sources.items() for production in parts(*source)),
            *products,
            *(
                Production("Attention", (*rows, *mask), OUT, heads)
                for mask in (((), (MASK,)) if masks else ((),))
                for rows in ([f"{sort} of {packed}" for sort in SORTS], made.values())
            ),
        ),
        (18 if by_slice else 12,) * 17,  # terms shared by three arguments count three times
        free=frozenset(
            {"weight", "bias", "parts of weight", "parts of bias"}
            | {f"place of {sort}" for sort in SORTS}
            | {
                f"{sort} of {source}{alone}"
                for sort in SORTS
                for source in ("weight", "bias")
                for alone in ("", ", alone")
            }
        ),
        roots=frozenset({OUT}),
        exact=False,
        reals={SYMBOL: "s"},
        chain=True,
        by_example=True,
    )


def _bias(name: str, of: str) -> Vocabulary:
    """A bias of all rows of keys or of values, in them or behind the attention, if anywhere.

    One of keys is the same in all scores of a query, so that a softmax drops it. Behind one of
    values there is no mask: weights add up to 1, but where a mask covers a row, the runtime's
    kernel has zeros.
    """
    width = HEADS * (DEPTH if of == KEY else INNER)
    all_masks = (
        Input("a", MASK, "S L", (QUERIES, LENGTH)),
        Input("d", MASK, "1 1 S L", (1, 1, QUERIES, LENGTH)),
        Input("e", MASK, "B 1 S L", (BATCH, 1, QUERIES, LENGTH)),
        Input("f", MASK, "1 H S L", (1, HEADS, QUERIES, LENGTH)),
        Input("g", MASK, "B H S L", (BATCH, HEADS, QUERIES, LENGTH)),
    )
    masks = all_masks if of == KEY else ()
    rows = {sort: (sort, "shifted") if sort == of else (sort,) for sort in (KEY, VALUE)}
    return Vocabulary(
        name,
        (
            Input("q", QUERY, "B S M", (BATCH, QUERIES, HEADS * DEPTH)),
            Input("k", KEY, "B L N", (BATCH, LENGTH, HEADS * DEPTH)),
            Input("v", VALUE, "B L P", (BATCH, LENGTH, HEADS * INNER)),
            Input("b", "bias", "N" if of == KEY else "P", (width,)),
            *masks,
        ),
        (
            applied("Add", of, "bias", "shifted"),
            *(
                Production(
                    "Attention",
                    (QUERY, keys, values, *mask),
                    OUT,
                    choices(scale=[SYMBOL], q_num_heads=[HEADS], kv_num_heads=[HEADS]),
                )
                for mask in (((), (MASK,)) if masks else ((),))
                for keys in rows[KEY]
                for values in rows[VALUE]
            ),
            *((applied("Add", OUT, "bias", OUT),) if of == VALUE else ()),
        ),
        (0,) * 3,
        roots=frozenset({OUT}),
        exact=False,
        reals={SYMBOL: "s"},
        chain=True,
        by_example=True,
    )


HEADS_FAMILY = Family(
    "heads",
    (
        SHARED_COLUMNS,
        _bias("bias of keys", KEY),
        _bias("bias of values", VALUE),
        _windows("masks of windows", 1),
        _windows("masks of windows of several images", BATCH),
        *(
            _projected(
                f"attention on {'shifted ' * biased}projections{'' if by_slice else ', gathered'}",
                by_slice=by_slice,
                biased=biased,
            )
            for by_slice in (True, False)
            for biased in (False, True)
        ),
    ),
    about="heads that are shared, masks of windows, and the products that heads come from",
)
