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

from dataclasses import replace

from xflow.generator.equations import steps
from xflow.generator.production import Production
from xflow.generator.vocabularies.common import X, scalar
from xflow.generator.vocabulary import Family, Input, Vocabulary

N, S = 4, 3
"""Extents of matrices and of the first two axes of images, and of images along the others."""
ELEMENTWISE = "x = Add(x, x) | Mul(x, x) | Relu(x) | Mul(x, scalar)"
PARTS = f"x = Concat(x, x, axis=0 | 1) | Split(x, axis=0 | 1, split=({N}, {N}))"
GROUPS = f"group=1 | 2 | {N}"


def _fused(text: str) -> tuple[Production, ...]:
    """Operators, and the same with a fused relu."""
    made = steps(text)
    return (*made, *(replace(production, then="Relu") for production in made))


MATRICES = Vocabulary(
    "matrices",
    (*(Input(name, X, "n m", (N, N)) for name in "abcd"), scalar("s", "scalar")),
    limits=(0, 0, 0, 0),
).steps(
    "x = MatMul(x, x)",
    ELEMENTWISE,
    PARTS,
    f"x = Transpose(x, perm=(1, 0)) | Eye(n={N}) | Ones(shape=({N}, {N}))",
)


def _image(name: str) -> Input:
    return Input(name, X, "N C *S", (N, N, S))


IMAGES = Vocabulary(
    "images",
    (*map(_image, "xyzw"), scalar("s", "scalar")),
    (
        *_fused(f"x = Conv(x, x, pads=(1, 1), {GROUPS})"),
        *steps(ELEMENTWISE),
        *steps(PARTS),
        *steps(f"x = MaxPool(x, kernel_shape=(3,), pads=(1, 1)) | Ones(shape=({N}, {N}, {S}))"),
    ),
    limits=(0, 0, 0, 0),
    ranks=(1, 2, 3),
)


def _kernel(name: str, sort: str, *extents: int) -> Input:
    return Input(name, sort, "O I H W", (N, N, *extents))


KERNELS = Vocabulary(
    "kernels",
    (
        *(Input(name, X, "N C H W", (2, N, 4, 5)) for name in "xy"),
        *(_kernel(name, "square", 3, 3) for name in "wv"),
        *(_kernel(name, "wide", 1, 3) for name in "pq"),
        _kernel("r", "high", 3, 1),
        scalar("s", "scalar"),
    ),
    (
        *_fused(f"x = Conv(x, square, pads=(1, 1, 1, 1), {GROUPS})"),
        *_fused(f"x = Conv(x, wide, pads=(0, 1, 0, 1), {GROUPS})"),
        *_fused(f"x = Conv(x, high, pads=(1, 0, 1, 0), {GROUPS})"),
        *steps(f"""
            square = Pad(wide, pads=(0, 0, 1, 0, 0, 0, 1, 0))
            square = Pad(high, pads=(0, 0, 0, 1, 0, 0, 0, 1))
            square = IdentityKernel(channels={N}, kernel=(3, 3))
            wide = IdentityKernel(channels={N}, kernel=(1, 3))
            high = IdentityKernel(channels={N}, kernel=(3, 1))
            x, square, wide = Add((x, square, wide), (x, square, wide))
            x, square = Mul((x, square), scalar)
            x, square, wide = Concat((x, square, wide), (x, square, wide), axis=0 | 1)
            x = Split(x, axis=0 | 1, split=(2, 2) | ({N}, {N})) | Relu(x)
        """),
    ),
    limits=(0, 0, 0, 0),
)

POOLS = Vocabulary(
    "averages",
    (*map(_image, "xyw"), scalar("s", "scalar")),
    limits=(3, 3, 3, 3),
    exact=False,
    ranks=(1, 2, 3),
).steps(
    f"x = Conv(x, x, pads=(1, 1), {GROUPS})",
    ELEMENTWISE,
    PARTS,
    f"""
    x = AveragePool(x, kernel_shape=(3,), pads=(1, 1), count_include_pad=1)
    ones = Ones(shape=({N}, 1, 3))
    count = ReduceSum(ones, axes=(2,), keepdims=1)
    mean = Div(ones, count)
    x = Conv(x, mean, pads=(1, 1), group={N})
    """,
)

TASO = Family("taso", (MATRICES, IMAGES, KERNELS, POOLS), about="the operators of TASO's generator")
