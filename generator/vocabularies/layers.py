"""Vocabularies of products with weight matrices for all batches, with scales, shifts and biases."""

from __future__ import annotations

from functools import partial

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, anywhere, sorts, tensors
from xflow.generator.vocabulary import Family, Input, Vocabulary

N = 4
WEIGHT, BIAS, ROWS, ROW = "weight", "bias", "rows", "row"
"""Sorts: matrices, vectors, columns [n, 1] and rows [1, m] of weights."""
FREE = sorts("weight bias rows row")
BATCHES = (0, 1, 2)


def _batch(name: str) -> Input:
    return Input(name, X, "*B l n", (2, N, N))


def _matrix(name: str) -> Input:
    return Input(name, WEIGHT, "n m", (N, N))


def _vector(name: str) -> Input:
    return Input(name, BIAS, "m", (N,))


weighted = partial(Vocabulary, free=FREE, ranks=BATCHES)
"""A vocabulary of batches of rows, and of weights."""

PROJECTIONS = weighted(
    "projections",
    (*map(_batch, "xy"), *map(_matrix, "wv"), *map(_vector, "bc")),
    limits=(2, 2, 1, 0),
).steps(f"""
    x = MatMul(x, weight | shifted) | Add(x, x | bias)
    weight = MatMul(weight, weight) | Add(weight, weight)
    bias = Add(bias, bias)
    eye = Eye(n={N})
    shifted = Add(weight, eye)
""")

DIFFERENCES = weighted(
    "differences of projections",
    (_batch("x"), _batch("y"), _matrix("w"), _matrix("v")),
    limits=(1, 1, 1, 0),
    roots=sorts("out"),
).steps("""
    image = MatMul(x, weight)
    difference = Sub(x, x)
    weights = Sub(weight, weight)
    out = Sub(image, image) | MatMul(difference, weight) | MatMul(x, weights)
""")

SCALED = weighted(
    "scaled projections",
    (_batch("x"), _matrix("w"), _vector("b"), _vector("c")),
    limits=(3, 3, 2),
    exact=False,
    roots=sorts("x once twice"),
    reals={SYMBOL: "s"},
).steps("""
    c = SYMBOL
    rows = Unsqueeze(bias, axes=(1,))
    row = Unsqueeze(bias, axes=(0,))
    once = MatMul(x, weight) | Mul(x, bias | c) | Div(x, bias | c) | Add(x, bias | row)
    twice = MatMul(once, weight) | Mul(once, bias | c) | Div(once, bias | c)
    twice = Add(once, bias | row | moved_row | product)
    scaled = Mul(weight, bias | rows | c) | Div(weight, bias | rows | c)
    twice = MatMul(x, scaled) | Mul(x, product) | Div(x, product)
    product = Mul(bias, bias | c)
    moved_row = MatMul(row, weight)
""")

PARALLEL = weighted(
    "parallel projections",
    (*map(_batch, "xy"), *map(_matrix, "wv"), *map(_vector, "bc")),
    limits=(1, 1, 1, 0),
).steps("""
    x = MatMul(x, weight) | Add(x, x | bias) | Mul(x, bias) | Concat(x, x, axis=1 | 2)
    weight = Concat(weight, weight, axis=0 | 1)
    bias = Concat(bias, bias, axis=0)
""")

REDUCED = weighted(
    "reduced projections",
    (_batch("x"), _matrix("w"), _vector("b")),
    limits=(1, 1, 1),
    exact=False,
    roots=sorts("less"),
).steps("""
    f = MatMul(x, weight) | Add(x, bias) | Mul(x, bias)
    less = ReduceSum(x | f, axes=(1,) | (2,), keepdims=0 | 1)
    less = ReduceMean(x | f, axes=(1,) | (2,), keepdims=0 | 1)
    sums = ReduceSum(weight, axes=(1,), keepdims=0 | 1)
    sums = ReduceMean(weight, axes=(1,), keepdims=0 | 1)
    total = ReduceSum(bias, axes=(0,), keepdims=1) | ReduceMean(bias, axes=(0,), keepdims=1)
    less = MatMul(x, sums | bias) | MatMul(less, weight)
    less = Add(less, bias | total) | Mul(less, bias)
""")

FLAT = (Input("x", X, "l n", (N, N)), _matrix("w"), _matrix("v"), _vector("b"), _vector("c"))


def _affine(name: str, transposed: int) -> Vocabulary:
    """Gemm with the matrix as it is or transposed; along its outputs and its inputs."""
    way = f"transB={transposed}"
    product, weights = ("reversed", "weight | reversed") if transposed else ("weight", "weight")
    return Vocabulary(name, FLAT, limits=(3, 3, 1), free=FREE).steps(f"""
        x = Gemm(x, {weights}, {way}) | Gemm(x, {weights}, bias | row, {way})
        {product} = MatMul(weight, weight)
        row = Unsqueeze(bias, axes=(0,))
        rows = Unsqueeze(bias, axes=(1,))
        row = Gemm(row, weight, bias, {way}) | Gemm(row, weight, {way})
        x = Add(x, bias) | Mul(x, bias)
        bias = Add(bias, bias) | Mul(bias, bias)
        weight = Mul(weight, rows | bias)
    """)


GEMMS = (_affine("affine maps", 0), _affine("affine maps, transposed", 1))


def _sums(name: str, op: str, transposed: int) -> Vocabulary:
    """Sums or differences of affine maps of one input, or with one matrix."""
    way = f"transB={transposed}"
    return Vocabulary(
        name,
        (Input("y", X, "l n", (N, N)), *FLAT),
        limits=(2, 2, 1, 0),
        free=FREE,
        roots=sorts("out"),
    ).steps(f"""
        image = Gemm(x, weight, {way}) | Gemm(x, weight, bias, {way})
        sum = {op}(x, x)
        weights = {op}(weight, weight)
        biases = {op}(bias, bias)
        out = {op}(image, image)
        out = Gemm(sum, weight, {way}) | Gemm(sum, weight, bias | biases, {way})
        out = Gemm(x, weights, {way}) | Gemm(x, weights, bias | biases, {way})
    """)


SUMS = tuple(
    _sums(f"{name} of affine maps{how}", op, transposed)
    for name, op in (("sums", "Add"), ("differences", "Sub"))
    for transposed, how in enumerate(("", ", transposed"))
)

SCALES = Vocabulary(
    "inputs and their scales",
    (anywhere("x"), anywhere("a", WEIGHT)),
    limits=(2, 2, 0),
    free=sorts("weight"),
).steps("""
    one = 1
    x = Mul(x, weight) | Add(x, x) | Sub(x, x)
    weight = Add(weight, one) | Sub(weight, one) | Sub(one, weight)
""")

TURNED = Vocabulary("transposed weights", FLAT, limits=(1, 2, 1, 0), free=FREE).steps("""
    x = MatMul(x, weight) | Gemm(x, weight, [bias], transB=0 | 1)
    x = Transpose(x, perm=(1, 0)) | Concat(x, x, axis=1)
    weight = Transpose(weight, perm=(1, 0)) | Concat(weight, weight, axis=0 | 1)
    bias = Concat(bias, bias, axis=0)
""")

MERGED = Vocabulary(
    "products of rows that batches are merged into",
    tensors("x: x[N L n]  weight: w[n m]  turned: v[m n]  bias: b[m]", N=2, L=3, n=5, m=7),
    limits=(1, 1, 1, 1),
    free=FREE | {"turned"},
    roots=sorts("out"),
    chain=True,
).steps("""
    flat = Reshape(x, shape=(6, 5))
    image = Gemm(flat, weight, [bias], transB=0)
    image = Gemm(flat, turned, [bias], transB=1)
    image = MatMul(flat, weight)
    weight = Transpose(turned, perm=(1, 0))
    product = MatMul(x, weight)
    out = Reshape(image, shape=(2, 3, 7)) | MatMul(x, weight) | Add(product, bias)
""")

LAYERS = Family(
    "layers",
    (PROJECTIONS, DIFFERENCES, SCALED, PARALLEL, REDUCED, *GEMMS, *SUMS, SCALES, TURNED, MERGED),
    about="products with matrices of weights for all batches, their scales and biases",
)
