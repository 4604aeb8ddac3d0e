"""Vocabularies of the operators over which TASO's generator enumerates.

These are the ones that its program registers (table 2 of Jia et al., TASO, SOSP 2019): matrix
products, convolutions of stride 1 with SAME padding and 3x3, 1x3 and 3x1 kernels, with or without
a fused relu, sums and products of elements, products with a scalar, relu, pooling, concat and
split in two along both leading axes, transposes, enlarged kernels, and the constants that are
neutral or average. No rule comes from here: it is a benchmark of enumeration.

TASO enumerates over one set of 20 inputs. Terms of matrices and of images never combine, though,
and a kernel has the type of an image; so there is one vocabulary for each kind, with as many inputs
as three operators can read.
"""

from __future__ import annotations

from xflow.generator.production import Production, choices
from xflow.generator.vocabulary import Family, Input, Vocabulary

X, SCALAR, CONSTANT = "x", "scalar", "constant"
N, S = 4, 3
"""Extents of matrices and of the first two axes of images, and of images along the others."""


def _scalar(name: str) -> Input:
    return Input(name, SCALAR, "", ())


ELEMENTWISE = (
    Production("Add", (X, X), X),
    Production("Mul", (X, X), X),
    Production("Relu", (X,), X),
    Production("Mul", (X, SCALAR), X),
)
PARTS = (
    Production("Concat", (X, X), X, choices(axis=[0, 1])),
    Production("Split", (X,), X, choices(axis=[0, 1], split=[(N, N)])),
)


def _matrix(name: str) -> Input:
    return Input(name, X, "n m", (N, N))


MATRICES = Vocabulary(
    "matrices",
    (*map(_matrix, "abcd"), _scalar("s")),
    (
        Production("MatMul", (X, X), X),
        *ELEMENTWISE,
        *PARTS,
        Production("Transpose", (X,), X, choices(perm=[(1, 0)])),
        Production("Eye", (), X, choices(n=[N])),
        Production("Ones", (), X, choices(shape=[(N, N)])),
    ),
    (0, 0, 0, 0),
)


def _image(name: str) -> Input:
    return Input(name, X, "N C *S", (N, N, S))


GROUPS = choices(pads=[(1, 1)], group=[1, 2, N])

IMAGES = Vocabulary(
    "images",
    (*map(_image, "xyzw"), _scalar("s")),
    (
        Production("Conv", (X, X), X, GROUPS),
        Production("Conv", (X, X), X, GROUPS, then="Relu"),
        *ELEMENTWISE,
        *PARTS,
        Production("MaxPool", (X,), X, choices(kernel_shape=[(3,)], pads=[(1, 1)])),
        Production("Ones", (), X, choices(shape=[(N, N, S)])),
    ),
    (0, 0, 0, 0),
    ranks=(1, 2, 3),
)

SQUARE, WIDE, HIGH, DEPTHWISE = "3x3", "1x3", "3x1", "depthwise"


def _kernel(name: str, sort: str, *extents: int) -> Input:
    return Input(name, sort, "O I H W", (N, *extents))


def _convolutions(kernel: str, down: int, across: int) -> tuple[Production, ...]:
    """Convolutions whose output is as large as their input."""
    attributes = choices(pads=[(down, across, down, across)], group=[1, 2, N])
    return (
        Production("Conv", (X, kernel), X, attributes),
        Production("Conv", (X, kernel), X, attributes, then="Relu"),
    )


KERNELS = Vocabulary(
    "kernels",
    (
        *(Input(name, X, "N C H W", (2, N, 4, 5)) for name in "xy"),
        *(_kernel(name, SQUARE, N, 3, 3) for name in "wv"),
        *(_kernel(name, WIDE, N, 1, 3) for name in "pq"),
        _kernel("r", HIGH, N, 3, 1),
        _scalar("s"),
    ),
    (
        *_convolutions(SQUARE, 1, 1),
        *_convolutions(WIDE, 0, 1),
        *_convolutions(HIGH, 1, 0),
        *(
            Production("Pad", (kernel,), SQUARE, choices(pads=[(0, 0, h, w, 0, 0, h, w)]))
            for kernel, h, w in ((WIDE, 1, 0), (HIGH, 0, 1))
        ),
        *(
            Production("IdentityKernel", (), kernel, choices(channels=[N], kernel=[extents]))
            for kernel, extents in ((SQUARE, (3, 3)), (WIDE, (1, 3)), (HIGH, (3, 1)))
        ),
        *(Production("Add", (sort, sort), sort) for sort in (X, SQUARE, WIDE)),
        *(Production("Mul", (sort, SCALAR), sort) for sort in (X, SQUARE)),
        *(
            Production("Concat", (sort, sort), sort, choices(axis=[0, 1]))
            for sort in (X, SQUARE, WIDE)
        ),
        Production("Split", (X,), X, choices(axis=[0, 1], split=[(2, 2), (N, N)])),
        Production("Relu", (X,), X),
    ),
    (0, 0, 0, 0),
)

POOLS = Vocabulary(
    "averages",
    (_image("x"), _image("y"), _image("w"), _scalar("s")),
    (
        Production("Conv", (X, X), X, GROUPS),
        *ELEMENTWISE,
        *PARTS,
        Production(
            "AveragePool",
            (X,),
            X,
            choices(kernel_shape=[(3,)], pads=[(1, 1)], count_include_pad=[1]),
        ),
        Production("Ones", (), "ones", choices(shape=[(N, 1, 3)])),
        Production("ReduceSum", ("ones",), "count", choices(axes=[(2,)], keepdims=[1])),
        Production("Div", ("ones", "count"), "mean"),
        Production("Conv", (X, "mean"), X, choices(pads=[(1, 1)], group=[N])),
    ),
    (3, 3, 3, 3),
    free=frozenset({"ones", "count", "mean"}),
    exact=False,
    ranks=(1, 2, 3),
)

TASO = Family(
    "taso",
    (MATRICES, IMAGES, KERNELS, POOLS),
    about="the operators of TASO's generator",
)
