"""Vocabularies of heads that are shared, packed or masked by windows, and of their projections.

Completes `attention`: the operators around an attention, and the form of inputs that it reads.
"""

from __future__ import annotations

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
from xflow.generator.vocabularies.common import X, sorts, stages, tensors
from xflow.generator.vocabularies.packed_heads import (
    PARTS,
    PLACES,
    SELF_MASKS,
    cuts,
    gathered,
    part,
    place,
)
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
        free=sorts("mask mask_of_all"),
        exact=True,
        by_example=True,
    ).steps(
        of_all if batch > 1 else f"mask_of_all = Reshape(mask, {narrow})",
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
        sort: f"{sort}_shifted" if biased and sort != KEY else f"{sort}_alone" for sort in SORTS
    }
    places = () if by_slice else zip("ijl", SORTS, strict=True)
    masked = ", [mask]" if by_slice else ""

    def taken(source: str, sort: str) -> str:
        """The part for `sort` of the tensors that are packed into the last axis of `source`."""
        axis = len(extents[source])
        found = f"parts_of_{source}", f"{sort}_of_{source}", axis
        return part(*found, f"{sort}_{axis}") if by_slice else gathered(*found, f"place_of_{sort}")

    return attended(
        name,
        (
            *tensors("x: x[B S K]  weight: w[K M]", B=BATCH, S=QUERIES, K=INNER, M=PARTS * width),
            *((Input("b", "bias", "M", (PARTS * width,)),) if biased else ()),
            *(place(letter, f"place of {sort}") for letter, sort in places),
            *(SELF_MASKS if by_slice else ()),
        ),
        limits=(18 if by_slice else 12,) * 17,  # terms shared by three arguments count three times
        free=frozenset({"weight", "bias", *(f"place of {sort}" for sort in SORTS)}),
        by_example=True,
    ).steps(
        "product = MatMul(x, weight)",
        "shifted = Add(product, bias)" if biased else "",
        *(
            f"parts_of_{source} = Reshape({source}, shape={(*axes, PARTS, width)})"
            for source, axes in extents.items()
        ),
        *(taken(source, sort) for source in extents for sort in SORTS),
        *(f"{sort}_alone = MatMul(x, {sort}_of_weight)" for sort in SORTS),
        *(
            f"{sort}_shifted = Add({sort}_alone, {sort}_of_bias)"
            for sort, shifted in made.items()
            if shifted.endswith("shifted")
        ),
        f"""
        out = Attention({", ".join(f"{sort}_of_{packed}" for sort in SORTS)}{masked}, {SCALED})
        out = Attention({", ".join(made.values())}{masked}, {SCALED})
        """,
        **{f"{sort}_{axis}": cuts(axis, PLACES[sort]) for sort in SORTS for axis in range(3)},
    )


def _bias(name: str, of: str) -> Vocabulary:
    """A bias of all rows of keys or of values, in them or behind the attention, if anywhere.

    One of keys is the same in all scores of a query, so that a softmax drops it. Behind one of
    values there is no mask: weights add up to 1, but where a mask covers a row, the runtime's
    kernel has zeros.
    """
    width = HEADS * (DEPTH if of == KEY else INNER)
    made = f"out = Attention(query, key, value | shifted, {SCALED}) | Add(out, bias)"
    if of == KEY:
        made = f"out = Attention(query, key | shifted, value, [mask], {SCALED})"
    return attended(
        name,
        (
            Input("q", QUERY, "B S M", (BATCH, QUERIES, HEADS * DEPTH)),
            Input("k", KEY, "B L N", (BATCH, LENGTH, HEADS * DEPTH)),
            Input("v", VALUE, "B L P", (BATCH, LENGTH, HEADS * INNER)),
            Input("b", "bias", "N" if of == KEY else "P", (width,)),
            *(masks("S L", (QUERIES, LENGTH), "adefg") if of == KEY else ()),
        ),
        by_example=True,
    ).steps(f"shifted = Add({of}, bias)", made)


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
