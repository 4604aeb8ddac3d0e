"""Vocabularies of means of rows or pixels, moved before operators that then run only once.

`means` are means of `x`, `out` are means of what an operator made of `x`, or what the operator
makes of `means`.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, sorts, tensors
from xflow.generator.vocabulary import Input, Vocabulary

WEIGHT, VECTOR = "weight", "vector"
SIZES = (2, 4, 4)
MEANS = Vocabulary(
    "means of all rows",
    (
        Input("x", X, "N *S m", SIZES),
        Input("y", X, "N *S m", SIZES),
        Input("w", WEIGHT, "m k", (4, 4)),
        Input("b", VECTOR, "m", (4,)),
    ),
    limits=(0, 0, 0, 0),
    free=sorts("weight vector"),
    exact=False,
    ranks=(1, 2, 3),
    roots=sorts("out"),
).steps("""
    means = ReduceMean(x, axes=(1,), keepdims=0 | 1)
    made = MatMul(x, weight) | Add(x, vector | x) | Mul(x, vector)
    out = ReduceMean(made, axes=(1,), keepdims=0 | 1)
    out = MatMul(means, weight) | Add(means, vector | means) | Mul(means, vector)
""")

PIXELS = Vocabulary(
    "means of pixels",
    (
        Input("x", X, "N C *S", SIZES),
        Input("v", WEIGHT, "O I *1", (4, 4, 1)),
        Input("b", VECTOR, "O", (4,)),
    ),
    free=sorts("weight vector"),
    exact=False,
    ranks=(1, 2, 3),
    roots=sorts("out"),
).steps("""
    means = GlobalAveragePool(x)
    made = Conv(x, weight, [vector])
    out = GlobalAveragePool(made) | Conv(means, weight, [vector])
""")

FIRST, LAST = "axes=(2, 3)", "axes=(1, 2)"
"""The axes of pixels with channels first, and last."""
TURNED_MEANS = Vocabulary(
    "means of transposed images",
    tensors("last: x[N H W C]  first: y[N C H W]", N=2, H=3, W=4, C=5),
    exact=False,
    roots=sorts("out"),
).steps(f"""
    made = Transpose(last, perm=(0, 3, 1, 2))
    other = Transpose(first, perm=(0, 2, 3, 1))
    mean = ReduceMean(last, {LAST}, keepdims=1)
    image = ReduceMean(first, {FIRST}, keepdims=1)
    out = ReduceMean(made, {FIRST}, keepdims=0 | 1) | ReduceMean(other, {LAST}, keepdims=0 | 1)
    out = ReduceMean(last, {LAST}, keepdims=0) | ReduceMean(first, {FIRST}, keepdims=0)
    out = Transpose(mean, perm=(0, 3, 1, 2)) | Transpose(image, perm=(0, 2, 3, 1))
""")

ALL_MEANS = (MEANS, PIXELS, TURNED_MEANS)
