"""Vocabularies of convolutions.

One spatial axis stands for any number of them. Kernels, biases and scales are sorts of their own:
what is computed from weights alone costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from xflow.core.registry import Attribute
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

X, KERNEL, BIAS, SCALE = "x", "kernel", "bias", "scale"
DIAGONAL = "diagonal"
"""Kernels made of a scale or of nothing; apart, so that they meet few other operators."""
FREE = frozenset({KERNEL, BIAS, SCALE, DIAGONAL})
SPATIAL = (1, 2, 3)
C, S = 4, 7
ANY = Fraction(3, 8)
"""Stands for a real symbol."""


def _image(name: str, extent: int = S) -> Input:
    return Input(name, X, "N C *S", (2, C, extent))


def _kernel(name: str, size: int, inputs: int = C) -> Input:
    return Input(name, KERNEL, "O I *R", (C, inputs, size))


def _bias(name: str) -> Input:
    return Input(name, BIAS, "O", (C,))


def _scale(name: str) -> Input:
    return Input(name, SCALE, "1 C *1", (1, C, 1))


CONV = Production("Conv", (X, KERNEL), X)
CONV_BIAS = Production("Conv", (X, KERNEL, BIAS), X)
RELU = Production("Relu", (X,), X)
ADD = Production("Add", (X, X), X)
ALONG_OUTPUTS = Production("Reshape", (SCALE,), "rows", choices(shape=[(C, 1, 1)]))
AS_BIAS = Production("Reshape", (SCALE,), BIAS, choices(shape=[(C,)]))
IDENTITY = choices(channels=[C], kernel=[(1,)])


STEPS: dict[str, Sequence[Attribute]] = {"dilations": [(1,), (2,)]}
"""Strides are left to be set free: with them, padding at the end is often of no effect."""


def _pads(limit: int) -> list[Attribute]:
    return [(e, f) for e in range(limit) for f in range(limit)]


SUMS = Vocabulary(
    "sums",
    (_image("x"), _image("y"), _kernel("w", 3), _kernel("v", 3), _bias("b"), _bias("c")),
    (
        CONV,
        CONV_BIAS,
        *(
            Production(op, (sort, sort), sort)
            for op in ("Add", "Sub")
            for sort in (X, KERNEL, BIAS)
        ),
    ),
    (1, 2, 0, 0),
    free=FREE,
    ranks=SPATIAL,
)

SIZES = Vocabulary(
    "kernel sizes",
    (
        _image("x", 13),
        Input("w", "small", "O I *R", (C, C, 2)),
        _kernel("v", 4),
        _bias("b"),
        _bias("c"),
    ),
    (
        Production("Conv", (X, "small"), "y", choices(pads=_pads(2), **STEPS)),
        Production("Conv", (X, KERNEL), "y", choices(pads=_pads(6), **STEPS)),
        Production("Conv", (X, "small", BIAS), "y", choices(pads=_pads(2), **STEPS)),
        Production("Conv", (X, KERNEL, BIAS), "y", choices(pads=_pads(6), **STEPS)),
        Production("Add", (BIAS, BIAS), BIAS),
        Production("Add", ("y", "y"), "sum"),
        Production(
            "Pad",
            ("small",),
            KERNEL,
            choices(pads=[(0, 0, p, 0, 0, q) for p, q in ((1, 1), (2, 0), (0, 2))]),
        ),
        Production("Add", (KERNEL, KERNEL), KERNEL),
    ),
    (2, 3, 0, 0),
    free=FREE | {"small"},
    ranks=SPATIAL,
    roots=frozenset({X, "y", "sum"}),
)

IDENTITIES = Vocabulary(
    "identity kernels",
    (_image("x", 13), *(_kernel(f"w{n}", n) for n in (2, 3, 4, 5)), _bias("b")),
    (
        Production("IdentityKernel", (), DIAGONAL, choices(channels=[C], kernel=[(1,)])),
        Production(
            "IdentityKernel",
            (),
            "centre",
            choices(channels=[C], kernel=[(2,), (3,), (4,), (5,)]),
        ),
        Production("Conv", (X, DIAGONAL), "y"),
        Production("Conv", (X, DIAGONAL, BIAS), "y"),
        Production("Conv", (X, "centre"), "y", choices(pads=_pads(5), dilations=[(1,), (2,)])),
        Production("Conv", (X, KERNEL), "y", choices(pads=_pads(5), dilations=[(1,), (2,)])),
        Production(
            "Conv", (X, "centre", BIAS), "y", choices(pads=_pads(5), dilations=[(1,), (2,)])
        ),
        Production("Conv", (X, KERNEL, BIAS), "y", choices(pads=_pads(5), dilations=[(1,), (2,)])),
        Production("Add", (KERNEL, "centre"), "centre"),
        Production("Add", (X, "y"), "sum"),
    ),
    (2, 2, 0),
    free=FREE | {"centre"},
    ranks=SPATIAL,
    roots=frozenset({X, "y", "sum"}),
)

SCALES = Vocabulary(
    "scales",
    (_image("x"), _kernel("w", 3), _bias("b"), _scale("r")),
    (
        CONV,
        CONV_BIAS,
        Production("Mul", (X, SCALE), X),
        Production("Add", (X, SCALE), X),
        ALONG_OUTPUTS,
        AS_BIAS,
        Production("Mul", (KERNEL, "rows"), KERNEL),
        Production("Mul", (KERNEL, SCALE), KERNEL),
        Production("Mul", (BIAS, BIAS), BIAS),
        Production("Add", (BIAS, BIAS), BIAS),
    ),
    (2, 4, 1),
    free=FREE | {"rows"},
    ranks=SPATIAL,
)

DIAGONALS = Vocabulary(
    "diagonal kernels",
    (_image("x"), _scale("r"), _scale("t")),
    (
        Production("Mul", (X, SCALE), X),
        Production("Add", (X, SCALE), X),
        ADD,
        ALONG_OUTPUTS,
        AS_BIAS,
        Production("IdentityKernel", (), DIAGONAL, IDENTITY),
        Production("Mul", (DIAGONAL, SCALE), DIAGONAL),
        Production("Mul", (SCALE, SCALE), SCALE),
        Production("Add", (SCALE, SCALE), SCALE),
        Production("Conv", (X, DIAGONAL), X),
        Production("Conv", (X, DIAGONAL, BIAS), X),
        Production("Conv", (X, "rows"), X, choices(group=[C])),
        Production("Conv", (X, "rows", BIAS), X, choices(group=[C])),
    ),
    (2, 3, 0),
    free=FREE | {"rows"},
    ranks=SPATIAL,
)

CONCATS = Vocabulary(
    "concatenations",
    (_image("x"), _image("y"), _kernel("w", 3), _kernel("v", 3), _bias("b"), _bias("c")),
    (
        CONV,
        CONV_BIAS,
        Production("Concat", (X, X), X, choices(axis=[1])),
        ADD,
        Production("Concat", (KERNEL, KERNEL), KERNEL, choices(axis=[0, 1])),
        Production("Concat", (BIAS, BIAS), BIAS, choices(axis=[0])),
        Production("Add", (BIAS, BIAS), BIAS),
    ),
    (1, 2, 1, 0),
    free=FREE,
    ranks=SPATIAL,
)

DEPTHWISE = Vocabulary(
    "depthwise convolutions",
    (_image("x"), _image("y"), _kernel("w", 3, 1), _kernel("v", 3, 1), _bias("b"), _scale("r")),
    (
        Production("Conv", (X, KERNEL), X, choices(group=[C])),
        Production("Conv", (X, KERNEL, BIAS), X, choices(group=[C])),
        Production("Mul", (X, SCALE), X),
        ALONG_OUTPUTS,
        Production("Mul", (KERNEL, "rows"), KERNEL),
    ),
    (2, 2, 0),
    free=FREE | {"rows"},
    ranks=SPATIAL,
)

SHIFTS = Vocabulary(
    "shifts",
    (_image("x"), _kernel("w", 3), _bias("b"), _scale("r")),
    (
        Production("Scalar", (), "c", choices(value=[ANY])),
        CONV,
        CONV_BIAS,
        *(Production(op, (X, sort), "moved") for op in ("Add", "Sub") for sort in (SCALE, "c")),
        *(Production(op, (X, SCALE), "moved") for op in ("Mul", "Div")),
        Production("Conv", ("moved", KERNEL), X),
        Production("Conv", ("moved", KERNEL, BIAS), X),
        *(Production(op, (KERNEL, SCALE), KERNEL) for op in ("Mul", "Div")),
        Production("Mul", (KERNEL, "c"), KERNEL),
        Production("ReduceSum", (KERNEL,), BIAS, choices(axes=[(1, 2)], keepdims=[0])),
        Production("Neg", (BIAS,), BIAS),
        *(Production(op, (BIAS, BIAS), BIAS) for op in ("Add", "Sub")),
        Production("Mul", (BIAS, "c"), BIAS),
    ),
    (4, 4, 1),
    free=FREE | {"c"},
    exact=False,
    ranks=SPATIAL,
    reals={ANY: "m"},
)

FLAT = Vocabulary(
    "scales without a batch axis",
    (_image("x"), Input("r", "flat", "C *1", (C, 1)), _bias("b")),
    (
        Production("Reshape", ("flat",), SCALE, choices(shape=[(1, C, 1)])),
        Production("Mul", (X, "flat"), X),
        Production("Add", (X, "flat"), X),
        Production("Mul", (X, SCALE), X),
        Production("Add", (X, SCALE), X),
    ),
    (2, 1),
    free=FREE | {"flat"},
    ranks=SPATIAL,
)

PADDED = Vocabulary(
    "padded inputs",
    (_image("x", 13), _kernel("w", 3), _bias("b")),
    (
        Production("Conv", (X, KERNEL), X, choices(pads=_pads(5))),
        Production("Conv", (X, KERNEL, BIAS), X, choices(pads=_pads(5))),
        Production(
            "Pad", (X,), X, choices(pads=[(0, 0, p, 0, 0, q) for p in range(3) for q in range(3)])
        ),
        RELU,
    ),
    (0, 0, 0),
    free=FREE,
    ranks=SPATIAL,
)

CONVOLUTION = Family(
    "convolution",
    (
        SUMS,
        SIZES,
        IDENTITIES,
        SCALES,
        SHIFTS,
        FLAT,
        DIAGONALS,
        DEPTHWISE,
        CONCATS,
        PADDED,
    ),
    about="convolutions, and what can be moved into their weights",
)

AVERAGES = Vocabulary(
    "averages as convolutions",
    (_image("x"), _kernel("w", 3)),
    (
        Production(
            "AveragePool",
            (X,),
            X,
            choices(kernel_shape=[(2,), (3,)]),
        ),
        Production("Ones", (), "ones", choices(shape=[(C, 1, 2), (C, 1, 3)])),
        Production("ReduceMean", ("ones",), "mean", choices(axes=[(2,)], keepdims=[1])),
        Production("ReduceSum", ("ones",), "mean", choices(axes=[(2,)], keepdims=[1])),
        Production("Div", ("ones", "mean"), "even"),
        Production("Conv", (X, "even"), X, choices(group=[C])),
    ),
    (3, 3),
    free=FREE | {"ones", "mean", "even"},
    exact=False,
    ranks=SPATIAL,
)
