"""Vocabularies of heads that are shared, packed or masked by windows, and of their projections.

Completes `attention`: the operators around an attention, and the form of inputs that it reads.
"""

from __future__ import annotations

from xflow.generator.equations import steps
from xflow.generator.production import Production
from xflow.generator.vocabularies.attention_inputs import (
    HEADS,
    KEY,
    MASK,
    QUERIES,
    QUERY,
    VALUE,
    attended,
    masks,
)
from xflow.generator.vocabularies.common import X, applied, reshaped, stages
from xflow.generator.vocabularies.packed_heads import PARTS, PLACES, SELF_MASKS, gathered, part
from xflow.generator.vocabulary import Family, Input, Vocabulary

BATCH, SHARED, LENGTH, DEPTH, INNER = 2, 2, 7, 5, 3
SORTS = (QUERY, KEY, VALUE)
SCALED = f"scale=SYMBOL, q_num_heads={HEADS}, kv_num_heads={HEADS}"

SHARED_COLUMNS = stages(
    "shared heads turned over",
    (Input("x", X, "B G n L D", (BATCH, HEADS, SHARED, LENGTH, DEPTH)),),
    limits=(0,) * 4,
    exact=True,
    by_example=True,
).steps(f"""
    batch = Reshape(x, shape=({BATCH * HEADS * SHARED}, {LENGTH}, {DEPTH}))
    columns = Transpose(batch, perm=(0, 2, 1))
    heads = Reshape(x, shape=({BATCH}, {HEADS * SHARED}, {LENGTH}, {DEPTH}))
    out = Reshape(columns, shape=({BATCH}, {HEADS * SHARED}, {DEPTH}, {LENGTH}))
    out = Transpose(heads, perm=(0, 1, 3, 2))
""")
"""Keys that several heads of queries read, as columns: heads and batches become one axis first."""

WINDOWS = 5


def _windows(name: str, batch: int) -> Vocabulary:
    """Scores of the windows of some images, to which each window adds a mask of its own."""
    scores = (HEADS, LENGTH, DEPTH)
    of_each = (WINDOWS, 1, LENGTH, DEPTH)
    narrow = f"shape={(batch * WINDOWS, 1, LENGTH, DEPTH)}"
    of_all = f"mask_of_all = Reshape(mask, {narrow})"
    if batch > 1:
        of_all = f"""
            masks = Expand(mask, shape={(batch, *of_each)})
            mask_of_all = Reshape(masks, {narrow})
        """
    return stages(
        name,
        (
            Input("x", X, "B H S L", (batch * WINDOWS, *scores)),
            Input("a", MASK, "1 W 1 S L", (1, *of_each)),
            Input("b", MASK if batch > 1 else "mask of all", "W 1 S L", of_each),
        ),
        limits=(2,) * 4,
        free=frozenset({MASK, "mask of all"}),
        exact=True,
        by_example=True,
    ).steps(
        of_all,
        f"""
        windows = Reshape(x, shape={(batch, WINDOWS, *scores)})
        sum = Add(windows, mask | mask_of_all)
        out = Reshape(sum, shape={(batch * WINDOWS, *scores)}) | Add(x, mask_of_all)
    """,
    )


def _projected(name: str, *, by_slice: bool, biased: bool) -> Vocabulary:
    """Attention on rows that one product makes for queries, keys and values, or three products.

    What is packed into the weight are more parts than three, so that each may lie anywhere. A bias
    of the keys adds the same to all scores of a query, and so nothing.
    """
    width = HEADS * DEPTH
    packed = "shifted" if biased else "product"
    extents = {packed: (BATCH, QUERIES), "weight": (INNER,), **({"bias": ()} if biased else {})}
    made = {
        sort: f"{sort} shifted" if biased and sort != KEY else f"{sort} alone" for sort in SORTS
    }
    places = () if by_slice else zip("ijl", SORTS, strict=True)
    rows = (
        ", ".join(f"{sort}_of_{packed}" for sort in SORTS),
        ", ".join(each.replace(" ", "_") for each in made.values()),
    )

    def parts(source: str, sort: str) -> tuple[Production, ...]:
        """The part for `sort` of the tensors that are packed into the last axis of `source`."""
        sources = f"parts of {source}", f"{sort} of {source}", len(extents[source])
        return part(*sources, PLACES[sort]) if by_slice else gathered(*sources, f"place of {sort}")

    return attended(
        name,
        (
            Input("x", X, "B S K", (BATCH, QUERIES, INNER)),
            Input("w", "weight", "K M", (INNER, PARTS * width)),
            *((Input("b", "bias", "M", (PARTS * width,)),) if biased else ()),
            *(Input(letter, f"place of {sort}", "", (), dtype="INT64") for letter, sort in places),
            *(SELF_MASKS if by_slice else ()),
        ),
        (
            applied("MatMul", X, "weight", "product"),
            *((applied("Add", "product", "bias", "shifted"),) if biased else ()),
            *(
                reshaped(source, f"parts of {source}", *axes, PARTS, width)
                for source, axes in extents.items()
            ),
            *(each for source in extents for sort in SORTS for each in parts(source, sort)),
            *(applied("MatMul", X, f"{sort} of weight", f"{sort} alone") for sort in SORTS),
            *(
                applied("Add", f"{sort} alone", f"{sort} of bias", shifted)
                for sort, shifted in made.items()
                if shifted.endswith("shifted")
            ),
            *(
                each
                for heads in rows
                for mask in (("", ", mask") if by_slice else ("",))
                for each in steps(f"out = Attention({heads}{mask}, {SCALED})")
            ),
        ),
        (18 if by_slice else 12,) * 17,  # terms shared by three arguments count three times
        free=frozenset({"weight", "bias", *(f"place of {sort}" for sort in SORTS)}),
        by_example=True,
    )


def _bias(name: str, of: str) -> Vocabulary:
    """A bias of all rows of keys or of values, in them or behind the attention, if anywhere.

    One of keys is the same in all scores of a query, so that a softmax drops it. Behind one of
    values there is no mask: weights add up to 1, but where a mask covers a row, the runtime's
    kernel has zeros.
    """
    width = HEADS * (DEPTH if of == KEY else INNER)
    if of == KEY:
        made = f"""
            out = Attention(query, key | shifted, value, {SCALED})
            out = Attention(query, key | shifted, value, mask, {SCALED})
        """
    else:
        made = f"out = Attention(query, key, value | shifted, {SCALED}) | Add(out, bias)"
    return attended(
        name,
        (
            Input("q", QUERY, "B S M", (BATCH, QUERIES, HEADS * DEPTH)),
            Input("k", KEY, "B L N", (BATCH, LENGTH, HEADS * DEPTH)),
            Input("v", VALUE, "B L P", (BATCH, LENGTH, HEADS * INNER)),
            Input("b", "bias", "N" if of == KEY else "P", (width,)),
            *(masks("S L", (QUERIES, LENGTH), "adefg") if of == KEY else ()),
        ),
        (applied("Add", of, "bias", "shifted"), *steps(made)),
        (0,) * 3,
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
