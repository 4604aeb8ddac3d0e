"""Vocabularies of products with weight matrices for all batches, with scales, shifts and biases."""

from __future__ import annotations

from xflow.generator.vocabularies.common import SYMBOL, X, anywhere, applied, numbers
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

N = 4
WEIGHT, BIAS, ROWS, ROW = "weight", "bias", "rows", "row"
"""Sorts: matrices, vectors, columns [n, 1] and rows [1, m] of weights."""
FREE = frozenset({WEIGHT, BIAS, ROWS, ROW, "eye", "shifted"})
BATCHES = (0, 1, 2)


def _batch(name: str) -> Input:
    return Input(name, X, "*B l n", (2, N, N))


def _matrix(name: str) -> Input:
    return Input(name, WEIGHT, "n m", (N, N))


def _vector(name: str) -> Input:
    return Input(name, BIAS, "m", (N,))


AS_ROWS = Production("Unsqueeze", (BIAS,), ROWS, choices(axes=[(1,)]))
AS_ROW = Production("Unsqueeze", (BIAS,), ROW, choices(axes=[(0,)]))
PRODUCTS = (applied("MatMul", X, WEIGHT), applied("MatMul", WEIGHT, WEIGHT, WEIGHT))

PROJECTIONS = Vocabulary(
    "projections",
    (_batch("x"), _batch("y"), _matrix("w"), _matrix("v"), _vector("b"), _vector("c")),
    (
        *PRODUCTS,
        applied("Add", X, X),
        applied("Add", WEIGHT, WEIGHT, WEIGHT),
        applied("Add", X, BIAS),
        applied("Add", BIAS, BIAS, BIAS),
        Production("Eye", (), "eye", choices(n=[N])),
        applied("Add", WEIGHT, "eye", "shifted"),
        applied("MatMul", X, "shifted"),
    ),
    (2, 2, 1, 0),
    free=FREE,
    ranks=BATCHES,
)

DIFFERENCES = Vocabulary(
    "differences of projections",
    (_batch("x"), _batch("y"), _matrix("w"), _matrix("v")),
    (
        applied("MatMul", X, WEIGHT, "image"),
        applied("Sub", X, X, "difference"),
        applied("Sub", WEIGHT, WEIGHT, "weights"),
        applied("Sub", "image", "image", "out"),
        applied("MatMul", "difference", WEIGHT, "out"),
        applied("MatMul", X, "weights", "out"),
    ),
    (1, 1, 1, 0),
    free=FREE | {"weights"},
    ranks=BATCHES,
    roots=frozenset({"out"}),
)

SCALED = Vocabulary(
    "scaled projections",
    (_batch("x"), _matrix("w"), _vector("b"), _vector("c")),
    (
        numbers("c", SYMBOL),
        AS_ROWS,
        AS_ROW,
        *(
            production
            for sort, result in ((X, "once"), ("once", "twice"))
            for production in (
                applied("MatMul", sort, WEIGHT, result),
                *(applied(op, sort, s, result) for op in ("Mul", "Div") for s in (BIAS, "c")),
                *(applied("Add", sort, s, result) for s in (BIAS, ROW)),
            )
        ),
        *(applied(op, WEIGHT, s, "scaled") for op in ("Mul", "Div") for s in (BIAS, ROWS, "c")),
        applied("MatMul", X, "scaled", "twice"),
        *(applied("Mul", BIAS, s, "product") for s in (BIAS, "c")),
        *(applied(op, X, "product", "twice") for op in ("Mul", "Div")),
        applied("MatMul", ROW, WEIGHT, "moved row"),
        *(applied(op, "once", s, "twice") for op in ("Add",) for s in ("moved row", "product")),
    ),
    (3, 3, 2),
    free=frozenset({WEIGHT, BIAS, ROWS, ROW, "c", "scaled", "product", "moved row"}),
    ranks=BATCHES,
    exact=False,
    roots=frozenset({X, "once", "twice"}),
    reals={SYMBOL: "s"},
)

PARALLEL = Vocabulary(
    "parallel projections",
    (_batch("x"), _batch("y"), _matrix("w"), _matrix("v"), _vector("b"), _vector("c")),
    (
        applied("MatMul", X, WEIGHT),
        applied("Add", X, X),
        applied("Add", X, BIAS),
        applied("Mul", X, BIAS),
        Production("Concat", (X, X), X, choices(axis=[1, 2])),
        Production("Concat", (WEIGHT, WEIGHT), WEIGHT, choices(axis=[0, 1])),
        Production("Concat", (BIAS, BIAS), BIAS, choices(axis=[0])),
    ),
    (1, 1, 1, 0),
    free=FREE,
    ranks=BATCHES,
)

REDUCTIONS = ("ReduceSum", "ReduceMean")
REDUCED = Vocabulary(
    "reduced projections",
    (_batch("x"), _matrix("w"), _vector("b")),
    (
        applied("MatMul", X, WEIGHT, "f"),
        *(applied(op, X, BIAS, "f") for op in ("Add", "Mul")),
        *(
            Production(op, (sort,), "less", choices(axes=[(1,), (2,)], keepdims=[0, 1]))
            for op in REDUCTIONS
            for sort in (X, "f")
        ),
        *(
            Production(op, (WEIGHT,), "sums", choices(axes=[(1,)], keepdims=[0, 1]))
            for op in REDUCTIONS
        ),
        *(
            Production(op, (BIAS,), "total", choices(axes=[(0,)], keepdims=[1]))
            for op in REDUCTIONS
        ),
        applied("MatMul", X, "sums", "less"),
        applied("MatMul", X, BIAS, "less"),
        applied("MatMul", "less", WEIGHT, "less"),
        *(applied(op, "less", BIAS, "less") for op in ("Add", "Mul")),
        applied("Add", "less", "total", "less"),
    ),
    (1, 1, 1),
    free=frozenset({WEIGHT, BIAS, "sums", "total"}),
    ranks=BATCHES,
    exact=False,
    roots=frozenset({"less"}),
)

FLAT = (
    Input("x", X, "l n", (N, N)),
    _matrix("w"),
    _matrix("v"),
    _vector("b"),
    _vector("c"),
)


def _affine(name: str, transposed: int) -> Vocabulary:
    """Gemm with the matrix as it is or transposed; along its outputs and its inputs."""
    way = choices(transB=[transposed])
    outputs, inputs = (ROWS, BIAS) if transposed else (BIAS, ROWS)
    product = "reversed" if transposed else WEIGHT
    return Vocabulary(
        name,
        FLAT,
        (
            *(
                Production("Gemm", (X, *weights), X, way)
                for weights in (
                    (WEIGHT,),
                    (WEIGHT, BIAS),
                    (WEIGHT, ROW),
                    (product,),
                    (product, BIAS),
                    (product, ROW),
                )
            ),
            applied("MatMul", WEIGHT, WEIGHT, product),
            AS_ROW,
            AS_ROWS,
            Production("Gemm", (ROW, WEIGHT, BIAS), ROW, way),
            Production("Gemm", (ROW, WEIGHT), ROW, way),
            applied("Add", X, BIAS),
            applied("Mul", X, BIAS),
            applied("Add", BIAS, BIAS, BIAS),
            applied("Mul", BIAS, BIAS, BIAS),
            applied("Mul", WEIGHT, outputs, WEIGHT),
            applied("Mul", WEIGHT, inputs, WEIGHT),
        ),
        (3, 3, 1),
        free=FREE | {product},
    )


GEMMS = (_affine("affine maps", 0), _affine("affine maps, transposed", 1))


def _sums(name: str, op: str, transposed: int) -> Vocabulary:
    """Sums or differences of affine maps of one input, or with one matrix."""
    way = choices(transB=[transposed])
    return Vocabulary(
        name,
        (Input("y", X, "l n", (N, N)), *FLAT),
        (
            Production("Gemm", (X, WEIGHT), "image", way),
            Production("Gemm", (X, WEIGHT, BIAS), "image", way),
            applied(op, X, X, "sum"),
            applied(op, WEIGHT, WEIGHT, "weights"),
            applied(op, BIAS, BIAS, "biases"),
            applied(op, "image", "image", "out"),
            *(
                Production("Gemm", (*factors, *bias), "out", way)
                for factors in (("sum", WEIGHT), (X, "weights"))
                for bias in ((), (BIAS,), ("biases",))
            ),
        ),
        (2, 2, 1, 0),
        free=FREE | {"weights", "biases"},
        roots=frozenset({"out"}),
    )


SUMS = tuple(
    _sums(f"{name} of affine maps{how}", op, transposed)
    for name, op in (("sums", "Add"), ("differences", "Sub"))
    for transposed, how in enumerate(("", ", transposed"))
)

SCALES = Vocabulary(
    "inputs and their scales",
    (anywhere("x"), Input("a", WEIGHT, "...", (5,))),
    (
        numbers("one", 1),
        applied("Mul", X, WEIGHT),
        *(applied(op, X, X) for op in ("Add", "Sub")),
        *(applied(op, WEIGHT, "one", WEIGHT) for op in ("Add", "Sub")),
        applied("Sub", "one", WEIGHT, WEIGHT),
    ),
    (2, 2, 0),
    free=frozenset({WEIGHT, "one"}),
)

TURNED = Vocabulary(
    "transposed weights",
    FLAT,
    (
        applied("MatMul", X, WEIGHT),
        Production("Gemm", (X, WEIGHT), X, choices(transB=[0, 1])),
        Production("Gemm", (X, WEIGHT, BIAS), X, choices(transB=[0, 1])),
        Production("Transpose", (WEIGHT,), WEIGHT, choices(perm=[(1, 0)])),
        Production("Transpose", (X,), X, choices(perm=[(1, 0)])),
        Production("Concat", (X, X), X, choices(axis=[1])),
        Production("Concat", (WEIGHT, WEIGHT), WEIGHT, choices(axis=[0, 1])),
        Production("Concat", (BIAS, BIAS), BIAS, choices(axis=[0])),
    ),
    (1, 2, 1, 0),
    free=FREE,
)

MERGED = Vocabulary(
    "products of rows that batches are merged into",
    (
        Input("x", X, "N L n", (2, 3, 5)),
        Input("w", WEIGHT, "n m", (5, 7)),
        Input("v", "turned", "m n", (7, 5)),
        Input("b", BIAS, "m", (7,)),
    ),
    (
        Production("Reshape", (X,), "flat", choices(shape=[(6, 5)])),
        *(
            Production("Gemm", ("flat", matrix, *bias), "image", choices(transB=[transposed]))
            for transposed, matrix in enumerate((WEIGHT, "turned"))
            for bias in ((), (BIAS,))
        ),
        applied("MatMul", "flat", WEIGHT, "image"),
        Production("Reshape", ("image",), "out", choices(shape=[(2, 3, 7)])),
        Production("Transpose", ("turned",), WEIGHT, choices(perm=[(1, 0)])),
        applied("MatMul", X, WEIGHT, "product"),
        applied("MatMul", X, WEIGHT, "out"),
        applied("Add", "product", BIAS, "out"),
    ),
    (1, 1, 1, 1),
    free=FREE | {"turned"},
    roots=frozenset({"out"}),
    chain=True,
)

LAYERS = Family(
    "layers",
    (PROJECTIONS, DIFFERENCES, SCALED, PARALLEL, REDUCED, *GEMMS, *SUMS, SCALES, TURNED, MERGED),
    about="products with matrices of weights for all batches, their scales and biases",
)
