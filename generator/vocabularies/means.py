"""Vocabularies of means of rows or pixels, moved before operators that then run only once.

`means` are means of `x`, `out` are means of what an operator made of `x`, or what the operator
makes of `means`.
"""

from __future__ import annotations

from functools import partial

from xflow.generator.vocabularies.common import sorts, tensors
from xflow.generator.vocabulary import Vocabulary

averaged = partial(
    Vocabulary, free=sorts("weight vector"), exact=False, ranks=(1, 2, 3), roots=sorts("out")
)

MEANS = averaged(
    "means of all rows",
    tensors("x: x[N *S m] y[N *S m]  weight: w[m k]  vector: b[m]", N=2, S=4, m=4, k=4),
    limits=(0, 0, 0, 0),
).steps("""
    means = ReduceMean(x, axes=(1,), keepdims=0 | 1)
    made = MatMul(x, weight) | Add(x, vector | x) | Mul(x, vector)
    out = ReduceMean(made, axes=(1,), keepdims=0 | 1)
    out = MatMul(means, weight) | Add(means, vector | means) | Mul(means, vector)
""")

PIXELS = averaged(
    "means of pixels",
    tensors("x: x[N C *S]  weight: v[O I *1]  vector: b[O]", N=2, C=4, S=4, O=4, I=4),
).steps("""
    means = GlobalAveragePool(x)
    made = Conv(x, weight, [vector])
    out = GlobalAveragePool(made) | Conv(means, weight, [vector])
""")

FIRST, LAST = "axes=(2, 3)", "axes=(1, 2)"
"""The axes of pixels with channels first, and last."""
TURNED_MEANS = averaged(
    "means of transposed images",
    tensors("last: x[N H W C]  first: y[N C H W]", N=2, H=3, W=4, C=5),
    free=frozenset(),
    ranks=(0,),
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
