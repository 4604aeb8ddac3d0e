"""Vocabularies of convolutions.

One spatial axis stands for any number of them. Kernels, biases and scales are sorts of their own:
what is computed from weights alone costs nothing at run time.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import SYMBOL, X
from xflow.generator.vocabularies.equations import steps
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

KERNEL, BIAS, SCALE = "kernel", "bias", "scale"
DIAGONAL = "diagonal"
"""Kernels made of a scale or of nothing; apart, so that they meet few other operators."""
FREE = frozenset({KERNEL, BIAS, SCALE, DIAGONAL})
SPATIAL = (1, 2, 3)
C, S = 4, 7


def _image(name: str, extent: int = S) -> Input:
    return Input(name, X, "N C *S", (2, C, extent))


def _kernel(name: str, size: int, inputs: int = C) -> Input:
    return Input(name, KERNEL, "O I *R", (C, inputs, size))


def _bias(name: str) -> Input:
    return Input(name, BIAS, "O", (C,))


def _scale(name: str) -> Input:
    return Input(name, SCALE, "1 C *1", (1, C, 1))


def _pads(limit: int) -> str:
    return " | ".join(f"({e}, {f})" for e in range(limit) for f in range(limit))


SUMS = Vocabulary(
    "sums",
    (_image("x"), _image("y"), _kernel("w", 3), _kernel("v", 3), _bias("b"), _bias("c")),
    steps("""
        x = Conv(x, kernel) | Conv(x, kernel, bias) | Add(x, x) | Sub(x, x)
        kernel = Add(kernel, kernel) | Sub(kernel, kernel)
        bias = Add(bias, bias) | Sub(bias, bias)
    """),
    (1, 2, 0, 0),
    free=FREE,
    ranks=SPATIAL,
)

DILATIONS = "dilations=(1,) | (2,)"
"""Strides are left to be set free: with them, padding at the end is often of no effect."""
SIZES = Vocabulary(
    "kernel sizes",
    (
        _image("x", 13),
        Input("w", "small", "O I *R", (C, C, 2)),
        _kernel("v", 4),
        _bias("b"),
        _bias("c"),
    ),
    steps(f"""
        y = Conv(x, small, pads={_pads(2)}, {DILATIONS})
        y = Conv(x, kernel, pads={_pads(6)}, {DILATIONS})
        y = Conv(x, small, bias, pads={_pads(2)}, {DILATIONS})
        y = Conv(x, kernel, bias, pads={_pads(6)}, {DILATIONS})
        bias = Add(bias, bias)
        sum = Add(y, y)
        kernel = Pad(small, pads=(0, 0, 1, 0, 0, 1) | (0, 0, 2, 0, 0, 0) | (0, 0, 0, 0, 0, 2))
        kernel = Add(kernel, kernel)
    """),
    (2, 3, 0, 0),
    free=FREE | {"small"},
    ranks=SPATIAL,
    roots=frozenset({X, "y", "sum"}),
)

IDENTITIES = Vocabulary(
    "identity kernels",
    (_image("x", 13), *(_kernel(f"w{n}", n) for n in (2, 3, 4, 5)), _bias("b")),
    steps(f"""
        diagonal = IdentityKernel(channels={C}, kernel=(1,))
        centre = IdentityKernel(channels={C}, kernel=(2,) | (3,) | (4,) | (5,))
        centre = Add(kernel, centre)
        y = Conv(x, diagonal) | Conv(x, diagonal, bias)
        y = Conv(x, centre | kernel, pads={_pads(5)}, {DILATIONS})
        y = Conv(x, centre | kernel, bias, pads={_pads(5)}, {DILATIONS})
        sum = Add(x, y)
    """),
    (2, 2, 0),
    free=FREE | {"centre"},
    ranks=SPATIAL,
    roots=frozenset({X, "y", "sum"}),
)

SCALES = Vocabulary(
    "scales",
    (_image("x"), _kernel("w", 3), _bias("b"), _scale("r")),
    steps(f"""
        x = Conv(x, kernel) | Conv(x, kernel, bias) | Mul(x, scale) | Add(x, scale)
        rows = Reshape(scale, shape=({C}, 1, 1))
        kernel = Mul(kernel, rows | scale)
        bias = Reshape(scale, shape=({C},)) | Mul(bias, bias) | Add(bias, bias)
    """),
    (2, 4, 1),
    free=FREE,
    ranks=SPATIAL,
)

DIAGONALS = Vocabulary(
    "diagonal kernels",
    (_image("x"), _scale("r"), _scale("t")),
    steps(f"""
        rows = Reshape(scale, shape=({C}, 1, 1))
        bias = Reshape(scale, shape=({C},))
        scale = Mul(scale, scale) | Add(scale, scale)
        diagonal = IdentityKernel(channels={C}, kernel=(1,)) | Mul(diagonal, scale)
        x = Mul(x, scale) | Add(x, scale | x) | Conv(x, diagonal) | Conv(x, diagonal, bias)
        x = Conv(x, rows, group={C}) | Conv(x, rows, bias, group={C})
    """),
    (2, 3, 0),
    free=FREE,
    ranks=SPATIAL,
)

CONCATS = Vocabulary(
    "concatenations",
    (_image("x"), _image("y"), _kernel("w", 3), _kernel("v", 3), _bias("b"), _bias("c")),
    steps("""
        x = Conv(x, kernel) | Conv(x, kernel, bias) | Concat(x, x, axis=1) | Add(x, x)
        kernel = Concat(kernel, kernel, axis=0 | 1)
        bias = Concat(bias, bias, axis=0) | Add(bias, bias)
    """),
    (1, 2, 1, 0),
    free=FREE,
    ranks=SPATIAL,
)

DEPTHWISE = Vocabulary(
    "depthwise convolutions",
    (_image("x"), _image("y"), _kernel("w", 3, 1), _kernel("v", 3, 1), _bias("b"), _scale("r")),
    steps(f"""
        x = Conv(x, kernel, group={C}) | Conv(x, kernel, bias, group={C}) | Mul(x, scale)
        rows = Reshape(scale, shape=({C}, 1, 1))
        kernel = Mul(kernel, rows)
    """),
    (2, 2, 0),
    free=FREE,
    ranks=SPATIAL,
)

SHIFTS = Vocabulary(
    "shifts",
    (_image("x"), _kernel("w", 3), _bias("b"), _scale("r")),
    steps("""
        c = SYMBOL
        moved = Add(x, scale | c) | Sub(x, scale | c) | Mul(x, scale) | Div(x, scale)
        x = Conv(x | moved, kernel) | Conv(x | moved, kernel, bias)
        kernel = Mul(kernel, scale | c) | Div(kernel, scale)
        bias = ReduceSum(kernel, axes=(1, 2), keepdims=0) | Neg(bias)
        bias = Add(bias, bias) | Sub(bias, bias) | Mul(bias, c)
    """),
    (4, 4, 1),
    free=FREE,
    exact=False,
    ranks=SPATIAL,
    reals={SYMBOL: "m"},
)

FLAT = Vocabulary(
    "scales without a batch axis",
    (_image("x"), Input("r", "flat", "C *1", (C, 1)), _bias("b")),
    steps(f"""
        scale = Reshape(flat, shape=(1, {C}, 1))
        x = Mul(x, flat | scale) | Add(x, flat | scale)
    """),
    (2, 1),
    free=FREE | {"flat"},
    ranks=SPATIAL,
)

PADDED = Vocabulary(
    "padded inputs",
    (_image("x", 13), _kernel("w", 3), _bias("b")),
    (
        *steps(f"x = Conv(x, kernel, pads={_pads(5)}) | Conv(x, kernel, bias, pads={_pads(5)})"),
        Production(
            "Pad", (X,), X, choices(pads=[(0, 0, p, 0, 0, q) for p in range(3) for q in range(3)])
        ),
        *steps("x = Relu(x)"),
    ),
    (0, 0, 0),
    free=FREE,
    ranks=SPATIAL,
)

TRANSPOSED = Vocabulary(
    "transposed convolutions of one pixel",
    (_image("x"), Input("w", KERNEL, "I O *1", (C, C, 1)), _bias("b")),
    steps("""
        turned = Transpose(kernel, perm=(1, 0, 2))
        out = ConvTranspose(x, kernel) | ConvTranspose(x, kernel, bias)
        out = Conv(x, turned) | Conv(x, turned, bias)
    """),
    (1, 1),
    free=FREE,
    ranks=SPATIAL,
    roots=frozenset({"out"}),
)

CONVOLUTION = Family(
    "convolution",
    (
        *(SUMS, SIZES, IDENTITIES, SCALES, SHIFTS, FLAT, DIAGONALS, DEPTHWISE, CONCATS, PADDED),
        TRANSPOSED,
    ),
    about="convolutions, and what can be moved into their weights",
)
