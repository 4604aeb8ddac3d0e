"""Vocabularies of images: normalisation by channel, slopes, transposed convolutions, batches."""

from __future__ import annotations

from fractions import Fraction

from xflow.generator.vocabularies.common import SYMBOL, applied, numbers, scalar, squared
from xflow.generator.vocabularies.convolutions import (
    ALONG_OUTPUTS,
    AS_BIAS,
    BIAS,
    FREE,
    KERNEL,
    SCALE,
    SPATIAL,
    C,
    S,
    X,
)
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

OUT, VECTOR = "out", "vector"
X_INPUT = Input("x", X, "N C *S", (2, C, S))
Y_INPUT = Input("y", X, "N C *S", (2, C, S))
SCALE_INPUT = Input("r", SCALE, "1 C *1", (1, C, 1))
OTHER_SCALE = Input("t", SCALE, "1 C *1", (1, C, 1))
KERNEL_INPUT = Input("w", KERNEL, "O I *R", (C, C, 3))
BIAS_INPUT = Input("b", BIAS, "O", (C,))
IMAGES = (2, 3)
"""Spatial axes where one would mean something else as well."""
SAME = choices(epsilon=[SYMBOL])


def _vector(name: str, *, positive: bool = False) -> Input:
    return Input(name, VECTOR, "C", (C,), positive=positive)


BATCH_NORMALIZATION = Vocabulary(
    "batch normalisation of a convolution",
    (
        X_INPUT,
        KERNEL_INPUT,
        BIAS_INPUT,
        _vector("a"),
        _vector("c"),
        _vector("u"),
        Input("v", "variance", "C", (C,), positive=True),
    ),
    (
        numbers("epsilon", SYMBOL),
        Production("Conv", (X, KERNEL), "y"),
        Production("Conv", (X, KERNEL, BIAS), "y"),
        Production("BatchNormalization", ("y", VECTOR, VECTOR, VECTOR, "variance"), OUT, SAME),
        applied("Add", "variance", "epsilon", "shifted"),
        Production("Sqrt", ("shifted",), "root"),
        applied("Div", VECTOR, "root", "factor"),
        Production("Unsqueeze", ("factor",), "rows", choices(axes=[(1, 2)])),
        applied("Mul", KERNEL, "rows", "kernels"),
        applied("Sub", BIAS, VECTOR, "difference"),
        applied("Mul", "difference", "factor", "product"),
        applied("Mul", VECTOR, "factor", "product"),
        applied("Add", "product", VECTOR, "biases"),
        applied("Sub", VECTOR, "product", "biases"),
        Production("Conv", (X, "kernels", "biases"), OUT),
    ),
    (8, 13, 0),
    free=FREE
    | {
        *("epsilon", "shifted", "root", "factor", "rows", "kernels", "difference"),
        *("product", "biases", VECTOR, "variance"),
    },
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    reals={SYMBOL: "epsilon"},
    chain=True,
)

AFFINE = Vocabulary(
    "scale and shift by channel",
    (X_INPUT, SCALE_INPUT, OTHER_SCALE, Input("a", "flat", "C *1", (C, 1)), _vector("b")),
    (
        Production("Zeros", (), "zeros", choices(shape=[(C,)])),
        Production("Ones", (), "ones", choices(shape=[(C,)])),
        *(
            Production("Reshape", (sort,), VECTOR, choices(shape=[(C,)]))
            for sort in (SCALE, "flat")
        ),
        *(applied("Mul", X, sort, "scaled") for sort in (SCALE, "flat")),
        *(applied("Add", "scaled", sort, OUT) for sort in (SCALE, "flat")),
        Production(
            "BatchNormalization",
            (X, VECTOR, VECTOR, "zeros", "ones"),
            OUT,
            choices(epsilon=[0 * SYMBOL]),
        ),
    ),
    (4, 4, 4),
    free=FREE | {"zeros", "ones", "flat", VECTOR},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)


def _slopes(name: str, x: Input, slope: Input, ranks: tuple[int, ...]) -> Vocabulary:
    """PRelu with a slope for each channel, and what exporters write for it."""
    return Vocabulary(
        name,
        (x, slope),
        (
            numbers("zero", 0),
            Production("Neg", (X,), "negative"),
            Production("Relu", (X,), "part"),
            applied("Max", X, "zero", "part"),
            Production("Relu", ("negative",), "other"),
            applied("Min", X, "zero", "other"),
            applied("Mul", "other", "slope", "scaled"),
            Production("Neg", ("slope",), "turned"),
            applied("Mul", "other", "turned", "scaled"),
            numbers("half", Fraction(1, 2)),
            Production("Abs", (X,), "absolute"),
            applied("Sub", X, "absolute", "double"),
            applied("Mul", "double", "half", "other"),
            applied("Mul", "double", "slope", "more"),
            applied("Mul", "more", "half", "scaled"),
            applied("Add", "part", "scaled", OUT),
            applied("Sub", "part", "scaled", OUT),
            applied("Mul", X, "slope", "line"),
            *(
                applied(op, X, "zero", "truth")
                for op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")
            ),
            Production("Where", ("truth", X, "line"), OUT),
            Production("Where", ("truth", "line", X), OUT),
            Production("PRelu", (X, "slope"), OUT),
        ),
        (2, 2, 2, 2, 2, 2),
        free=frozenset({"zero", "half", "slope", "turned"}),
        ranks=ranks,
        roots=frozenset({OUT, "other", "scaled"}),
        chain=True,
    )


SLOPES = _slopes("slopes by channel", X_INPUT, Input("a", "slope", "C *1", (C, 1)), SPATIAL)
LAST_SLOPES = _slopes(
    "slopes along the last axis",
    Input("x", X, "*B n", (3, 4)),
    Input("a", "slope", "n", (4,)),
    (0, 1, 2, 3),
)

BATCHES = Vocabulary(
    "batches of images",
    (X_INPUT, Y_INPUT, KERNEL_INPUT, BIAS_INPUT, SCALE_INPUT, scalar("k", "c")),
    (
        numbers("c", SYMBOL),
        Production("Concat", (X, X), "joined", choices(axis=[0])),
        *(Production("Conv", (sort, KERNEL), "y") for sort in (X, "joined")),
        *(Production("Conv", (sort, KERNEL, BIAS), "y") for sort in (X, "joined")),
        *(applied("Mul", sort, SCALE, "y") for sort in (X, "joined")),
        Production("Concat", ("y", "y"), "y", choices(axis=[0])),
        applied("Mul", X, "c", "scaled"),
        Production("Conv", ("scaled", KERNEL), "y"),
        Production("Conv", ("scaled", KERNEL, BIAS), "y"),
        applied("Mul", "y", "c", "y"),
        applied("Mul", KERNEL, "c", KERNEL),
        applied("Mul", BIAS, "c", BIAS),
    ),
    (2, 2, 2, 0),
    free=FREE | {"c"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"y"}),
    reals={SYMBOL: "s"},
)

TURN = choices(perm=[(1, 0, 2)])
PLACED = choices(pads=[(0, 0), (1, 1), (0, 2), (2, 0), (2, 2)], strides=[(1,), (2,)])
"""Paddings of which every element counts, with both strides, for the kernel and extent here."""
POINTWISE = Vocabulary(
    "convolutions of one pixel and others",
    (
        X_INPUT,
        KERNEL_INPUT,
        Input("v", "point", "O I *1", (C, C, 1)),
        Input("u", "point", "O I *1", (C, C, 1)),
        BIAS_INPUT,
        Input("c", BIAS, "O", (C,)),
    ),
    (
        *(Production("Conv", (X, "point", *bias), "pixels") for bias in ((), (BIAS,))),
        *(Production("Conv", (X, KERNEL, *bias), "y", PLACED) for bias in ((), (BIAS,))),
        *(
            Production("Conv", (sort, "point", *bias), OUT)
            for sort in ("pixels", "y")
            for bias in ((), (BIAS,))
        ),
        *(Production("Conv", ("pixels", KERNEL, *bias), OUT, PLACED) for bias in ((), (BIAS,))),
        Production("Transpose", ("point",), "turned point", TURN),
        Production("Conv", ("point", "turned point"), "made point"),
        Production("Conv", (KERNEL, "turned point"), "made"),
        Production("Transpose", (KERNEL,), "turned", TURN),
        Production("Conv", ("turned", "point"), "turned product"),
        Production("Transpose", ("turned product",), "made", TURN),
        Production("Reshape", (BIAS,), "image", choices(shape=[(1, C, 1)])),
        *(Production("Conv", ("image", "point", *bias), "moved") for bias in ((), (BIAS,))),
        Production("Reshape", ("moved",), "made bias", choices(shape=[(C,)])),
        *(
            Production("Conv", (X, "made point", *bias), OUT)
            for bias in ((), (BIAS,), ("made bias",))
        ),
        *(
            Production("Conv", (X, "made", *bias), OUT, PLACED)
            for bias in ((), (BIAS,), ("made bias",))
        ),
    ),
    (3, 6, 0),
    free=FREE
    | {
        *("point", "turned point", "made point", "made", "turned", "turned product", "image"),
        *("moved", "made bias"),
    },
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)

TRANSPOSED = Vocabulary(
    "transposed convolutions",
    (
        X_INPUT,
        Y_INPUT,
        Input("w", KERNEL, "I O *R", (C, C, 3)),
        Input("v", KERNEL, "I O *R", (C, C, 3)),
        BIAS_INPUT,
        SCALE_INPUT,
    ),
    (
        Production("ConvTranspose", (X, KERNEL), OUT),
        Production("ConvTranspose", (X, KERNEL, BIAS), OUT),
        applied("Mul", OUT, SCALE, OUT),
        applied("Add", OUT, SCALE, OUT),
        applied("Mul", KERNEL, SCALE, KERNEL),
        ALONG_OUTPUTS,
        applied("Mul", KERNEL, "rows", KERNEL),
        applied("Mul", X, SCALE, "scaled"),
        Production("ConvTranspose", ("scaled", KERNEL), OUT),
        Production("ConvTranspose", ("scaled", KERNEL, BIAS), OUT),
        AS_BIAS,
        applied("Mul", BIAS, BIAS, BIAS),
        applied("Add", BIAS, BIAS, BIAS),
        applied("Add", OUT, OUT, OUT),
        applied("Add", KERNEL, KERNEL, KERNEL),
        applied("Add", X, X, "sum"),
        Production("ConvTranspose", ("sum", KERNEL), OUT),
    ),
    (2, 3, 0),
    free=FREE | {"rows"},
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)

INSTANCES = Vocabulary(
    "instance normalisation",
    (X_INPUT, SCALE_INPUT, _vector("a"), _vector("b")),
    (
        Production("InstanceNormalization", (X, VECTOR, VECTOR), OUT, SAME),
        applied("Mul", OUT, SCALE, OUT),
        applied("Add", OUT, SCALE, OUT),
        Production("Reshape", (SCALE,), VECTOR, choices(shape=[(C,)])),
        applied("Mul", VECTOR, VECTOR, VECTOR),
        applied("Add", VECTOR, VECTOR, VECTOR),
        applied("Add", X, SCALE, "shifted"),
        Production("InstanceNormalization", ("shifted", VECTOR, VECTOR), OUT, SAME),
    ),
    (2, 2, 1),
    free=FREE | {VECTOR},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    reals={SYMBOL: "epsilon"},
)


def _step_by_step(name: str, *, product: bool) -> Vocabulary:
    """Instance normalisation as exporters write it, its scale and shift as they apply them.

    Of images alone: along one axis it is what they write for a layer normalisation, too, which
    would become that of the channels wherever there is one batch.
    """
    spatial = choices(axes=[(2,)], keepdims=[1])
    return Vocabulary(
        name,
        (X_INPUT, SCALE_INPUT, OTHER_SCALE),
        (
            numbers("two", 2),
            numbers("epsilon", SYMBOL),
            Production("Ones", (), "ones", choices(shape=[(C,)])),
            Production("Zeros", (), "zeros", choices(shape=[(C,)])),
            Production("Reshape", (SCALE,), VECTOR, choices(shape=[(C,)])),
            Production("ReduceMean", (X,), "mean", spatial),
            applied("Sub", X, "mean", "deviation"),
            squared("deviation", "square", product=product),
            Production("ReduceMean", ("square",), "variance", spatial),
            applied("Add", "variance", "epsilon", "shifted"),
            Production("Sqrt", ("shifted",), "root"),
            applied("Div", "deviation", "root", "normal"),
            applied("Mul", "normal", SCALE, "scaled"),
            applied("Add", "scaled", SCALE, OUT),
            *(
                Production("InstanceNormalization", (X, scale, shift), result, SAME)
                for scale, shift, result in (
                    ("ones", "zeros", "normal"),
                    (VECTOR, "zeros", "scaled"),
                    (VECTOR, VECTOR, OUT),
                )
            ),
        ),
        (4,) * 12,
        free=FREE | {"two", "epsilon", "ones", "zeros", VECTOR},
        exact=False,
        ranks=IMAGES,
        roots=frozenset({"normal", "scaled", OUT}),
        reals={SYMBOL: "epsilon"},
        chain=True,
    )


INSTANCES_STEP_BY_STEP = tuple(
    _step_by_step(
        f"instance normalisation, squares as {'products' if product else 'powers'}",
        product=product,
    )
    for product in (False, True)
)

CHANNELS = Family(
    "channels",
    (
        BATCH_NORMALIZATION,
        AFFINE,
        SLOPES,
        LAST_SLOPES,
        BATCHES,
        POINTWISE,
        TRANSPOSED,
        INSTANCES,
        *INSTANCES_STEP_BY_STEP,
    ),
    about="normalisation and slopes by channel, batches, transposed and pointwise convolutions",
)
