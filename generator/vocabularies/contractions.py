"""Vocabularies of contractions that split or merge axes: layers from and to heads, and of masks.

What one definition of an `Einsum` says of other equations is stated with the definitions. Where
axes are merged, only sizes that all differ show which of them a Reshape splits again.
"""

from __future__ import annotations

from functools import partial

from xflow.generator.vocabularies.common import sorts, stages, tensors
from xflow.generator.vocabulary import Family

BATCH, ROWS, WIDTH, HEADS, DEPTH = 2, 5, 7, 3, 11

contraction = partial(stages, limits=(2,) * 5, free=sorts("weight"), exact=True, by_example=True)

TO_HEADS = contraction(
    "rows to heads",
    tensors("x: x[B S K]  operand: w[K H D]", B=BATCH, S=ROWS, K=WIDTH, H=HEADS, D=DEPTH),
).steps(f"""
    out = Einsum(x, operand, equation="abc,cde->abde")
    weight = Reshape(operand, shape={(WIDTH, HEADS * DEPTH)})
    rows = MatMul(x, weight)
    out = Reshape(rows, shape={(BATCH, ROWS, HEADS, DEPTH)})
""")

FROM_HEADS = contraction(
    "heads to rows",
    tensors("x: x[B S H D]  operand: w[H D K]", B=BATCH, S=ROWS, H=HEADS, D=DEPTH, K=WIDTH),
).steps(f"""
    out = Einsum(x, operand, equation="abcd,cde->abe")
    weight = Reshape(operand, shape={(HEADS * DEPTH, WIDTH)})
    rows = Reshape(x, shape={(BATCH, ROWS, HEADS * DEPTH)})
    out = MatMul(rows, weight)
""")

MASKS = contraction(
    "masks of images",
    tensors("x: x[B Q C]  operand: y[B C H W]", B=BATCH, Q=ROWS, C=WIDTH, H=HEADS, W=DEPTH),
).steps(f"""
    out = Einsum(x, operand, equation="abc,acde->abde")
    pixels = Reshape(operand, shape={(BATCH, WIDTH, HEADS * DEPTH)})
    masks = MatMul(x, pixels)
    out = Reshape(masks, shape={(BATCH, ROWS, HEADS, DEPTH)})
""")

INNER = tuple(
    contraction(
        f"inner products of {kept}",
        tensors("x: x[B S K]  operand: y[B S K]", B=BATCH, S=ROWS, K=WIDTH),
    ).steps(f"""
        out = Einsum(x, operand, equation="abc,abc->{kept}")
        products = Mul(x, operand)
        out = ReduceSum(products, axes={axes}, keepdims=0)
    """)
    for kept, axes in (("ab", (2,)), ("a", (1, 2)), ("ac", (1,)))
)

CONTRACTIONS = Family(
    "contractions",
    (TO_HEADS, FROM_HEADS, MASKS, *INNER),
    about="sums of products over named axes, of which some are merged: layers of heads, and masks",
)
