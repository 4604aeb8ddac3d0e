"""Vocabularies of sums of products: by ones, of squares of differences, of merged heads.

A sum of products is a product of matrices, and moments and distances are sums of products.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, sorts, stages, tensors
from xflow.generator.vocabularies.parts import LAST, SECOND, Layout
from xflow.generator.vocabulary import Family, Input, Vocabulary

BATCHES = (0, 1, 2, 3)
ROWS = "axes=(1,), keepdims=1"
N, M, D = 3, 5, 7


MOMENTS = stages(
    "variances, squares as powers",
    (Input("x", X, "*B n", (3, 4)),),
    limits=(3,) * 7,
    ranks=BATCHES,
    roots=sorts("variance"),
).steps(f"""
    two = 2
    mean = ReduceMean(x, {ROWS})
    deviation = Sub(x, mean)
    square = Pow(deviation, two)
    own = Pow(x, two)
    second = ReduceMean(own, {ROWS})
    known = Pow(mean, two)
    variance = ReduceMean(square, {ROWS}) | Sub(second, known)
""")
"""The variance as the mean of squared deviations, and by the mean of squares."""

ONES = stages(
    "sums as products by ones",
    tensors("x: x[*B n m]  vector: v[m]", B=2, n=N, m=M),
    limits=(1,) * 4,
    free=sorts("vector"),
    ranks=(0, 1, 2),
    by_example=True,
    searched=False,
).steps(f"""
    ones = Ones(shape=({M}, 1))
    row = Ones(shape=(1, {N}))
    column = Unsqueeze(vector, axes=(1,))
    weighted = Mul(x, vector)
    out = MatMul(x, ones | column) | MatMul(row, x)
    out = ReduceSum(x | weighted, axes=(2,), keepdims=1) | ReduceSum(x, axes=(1,), keepdims=1)
""")
"""Not searched: they lead from norms of scaled rows to norms that are scaled, and the squares of
1e-23 are 0 in floats."""

OUTER = stages(
    "products of columns and rows",
    tensors("x: x[*B n 1]  row: y[*B 1 m]", B=2, n=N, m=M),
    limits=(0,) * 3,
    ranks=(0, 1, 2),
).steps("out = MatMul(x, row) | Mul(x, row)")

UNITS = stages(
    "sums of weights",
    tensors("x: x[B n]", B=2, n=N),
    limits=(1,) * 3,
    by_example=True,
    searched=False,
).steps(f"""
    weights = Softmax(x, axis=1)
    out = ReduceSum(weights, {ROWS}) | Ones(shape=(2, 1))
""")

DISTANCES = stages(
    "squared distances", tensors("one: x[n 1 d]  other: y[1 m d]", n=N, d=D, m=M), limits=(3,) * 13
).steps("""
    two = 2
    difference = Sub(one, other)
    square = Pow(difference, two)
    own = Pow(one, two)
    others = Pow(other, two)
    length = ReduceSum(own, axes=(2,), keepdims=0)
    lengths = ReduceSum(others, axes=(2,), keepdims=0)
    total = Add(length, lengths)
    rows = Squeeze(one, axes=(1,))
    lines = Squeeze(other, axes=(0,))
    columns = Transpose(lines, perm=(1, 0))
    product = MatMul(rows, columns)
    double = Mul(product, two)
    out = ReduceSum(square, axes=(2,), keepdims=0) | Sub(total, double)
""")

HEADS = 2
MERGED = stages(
    "projections of merged heads",
    tensors("x: x[B h S D]  weight: w[h D K]", B=2, h=HEADS, S=N, D=D, K=M),
    limits=(1,) * 5,
    free=sorts("weight"),
    by_example=True,
).steps(f"""
    turned = Transpose(x, perm=(0, 2, 1, 3))
    rows = Reshape(turned, shape=(2, {N}, {HEADS * D}))
    whole = Reshape(weight, shape=({HEADS * D}, {M}))
    each = MatMul(x, weight)
    out = MatMul(rows, whole) | ReduceSum(each, axes=(1,), keepdims=0)
""")

TWO = stages(
    "weights of two",
    tensors("x: x[*B 1] y[*B 1]", B=3),
    limits=(0,) * 4,
    ranks=BATCHES,
    literal=sorts("Slice"),
    searched=False,
).steps("""
    both = Concat(x, x, axis=1)
    weights = Softmax(both, axis=1)
    margin = Sub(x, x)
    out = Slice(weights, starts=(0,), ends=(1,), axes=(1,), steps=(1,))
    out = Slice(weights, starts=(1,), ends=(2,), axes=(1,), steps=(1,)) | Sigmoid(margin)
""")
"""Not searched: the runtime's Sigmoid is 1.5e-8 from -18 on, and a softmax goes on to less."""


def _differences(layout: Layout) -> Vocabulary:
    """Sums and means of differences, and differences of sums and means."""
    way = f"axes=({layout.axis},), keepdims=1"
    return stages(
        f"sums of differences along {layout.name}",
        (layout.input("x"), layout.input("y")),
        limits=(0,) * 4,
        ranks=layout.ranks,
    ).steps(f"""
        difference = Sub(x, x)
        sum = ReduceSum(x, {way})
        mean = ReduceMean(x, {way})
        out = ReduceSum(difference, {way}) | Sub(sum, sum)
        out = ReduceMean(difference, {way}) | Sub(mean, mean)
    """)


SUMS = Family(
    "sums",
    (
        MOMENTS,
        *(_differences(layout) for layout in (SECOND, LAST)),
        *(ONES, OUTER, UNITS, DISTANCES, MERGED, TWO),
    ),
    about="sums of products as products of matrices, moments, distances, and weights of two",
)
