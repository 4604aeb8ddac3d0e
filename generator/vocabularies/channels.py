"""Vocabularies of images: normalisation by channel, slopes, transposed convolutions, batches."""

from __future__ import annotations

from xflow.generator.vocabularies.common import OUT, SYMBOL, X, scalar
from xflow.generator.vocabularies.convolutions import BIAS, FREE, KERNEL, SCALE, SPATIAL, C, S
from xflow.generator.vocabularies.equations import steps
from xflow.generator.vocabulary import Family, Input, Vocabulary, choices

VECTOR = "vector"
X_INPUT = Input("x", X, "N C *S", (2, C, S))
Y_INPUT = Input("y", X, "N C *S", (2, C, S))
SCALE_INPUT = Input("r", SCALE, "1 C *1", (1, C, 1))
OTHER_SCALE = Input("t", SCALE, "1 C *1", (1, C, 1))
KERNEL_INPUT = Input("w", KERNEL, "O I *R", (C, C, 3))
BIAS_INPUT = Input("b", BIAS, "O", (C,))
IMAGES = (2, 3)
"""Spatial axes where one would mean something else as well."""
SAME = choices(epsilon=[SYMBOL])


def _vector(name: str) -> Input:
    return Input(name, VECTOR, "C", (C,))


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
    steps("""
        epsilon = SYMBOL
        y = Conv(x, kernel) | Conv(x, kernel, bias)
        shifted = Add(variance, epsilon)
        root = Sqrt(shifted)
        factor = Div(vector, root)
        rows = Unsqueeze(factor, axes=(1, 2))
        kernels = Mul(kernel, rows)
        difference = Sub(bias, vector)
        product = Mul(difference | vector, factor)
        biases = Add(product, vector) | Sub(vector, product)
        out = BatchNormalization(y, vector, vector, vector, variance, epsilon=SYMBOL)
        out = Conv(x, kernels, biases)
    """),
    (8, 13, 0),
    free=FREE | {VECTOR, "variance"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    reals={SYMBOL: "epsilon"},
    chain=True,
)

SHIFTED = Vocabulary(
    "batch normalisation of what is shifted",
    (
        X_INPUT,
        Input("k", "flat", "C *1", (C, 1)),
        *(_vector(name) for name in "acu"),
        Input("v", "variance", "C", (C,), positive=True),
    ),
    steps(f"""
        row = Reshape(flat, shape=({C},))
        mean = Sub(vector, row)
        y = Add(x, flat)
        out = BatchNormalization(y, vector, vector, vector, variance, epsilon=SYMBOL)
        out = BatchNormalization(x, vector, vector, mean, variance, epsilon=SYMBOL)
    """),
    (2, 2, 2),
    free=FREE | {"flat", VECTOR, "variance"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    reals={SYMBOL: "epsilon"},
)

AFFINE = Vocabulary(
    "scale and shift by channel",
    (X_INPUT, SCALE_INPUT, OTHER_SCALE, Input("a", "flat", "C *1", (C, 1)), _vector("b")),
    steps(f"""
        zeros = Zeros(shape=({C},))
        ones = Ones(shape=({C},))
        vector = Reshape(scale | flat, shape=({C},))
        scaled = Mul(x, scale | flat)
        out = Add(scaled, scale | flat)
        out = BatchNormalization(x, vector, vector, zeros, ones, epsilon=0)
    """),
    (4, 4, 4),
    free=FREE | {"flat", VECTOR},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)


def _slopes(name: str, x: Input, slope: Input, ranks: tuple[int, ...]) -> Vocabulary:
    """PRelu with a slope for each channel, and what exporters write for it."""
    return Vocabulary(
        name,
        (x, slope),
        steps("""
            zero = 0
            half = 1/2
            negative = Neg(x)
            turned = Neg(slope)
            part = Relu(x) | Max(x, zero)
            absolute = Abs(x)
            double = Sub(x, absolute)
            other = Relu(negative) | Min(x, zero) | Mul(double, half)
            more = Mul(double, slope)
            scaled = Mul(other, slope | turned) | Mul(more, half)
            line = Mul(x, slope)
            truth = Greater(x, zero) | Less(x, zero)
            truth = GreaterOrEqual(x, zero) | LessOrEqual(x, zero)
            out = Add(part, scaled) | Sub(part, scaled)
            out = Where(truth, x, line) | Where(truth, line, x) | PRelu(x, slope)
        """),
        (2,) * 6,
        free=frozenset({"slope"}),
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
    steps("""
        c = SYMBOL
        joined = Concat(x, x, axis=0)
        scaled = Mul(x, c)
        y = Conv(x | joined | scaled, kernel) | Conv(x | joined | scaled, kernel, bias)
        y = Mul(x | joined, scale) | Concat(y, y, axis=0) | Mul(y, c)
        kernel = Mul(kernel, c)
        bias = Mul(bias, c)
    """),
    (2, 2, 2, 0),
    free=FREE | {"c"},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({"y"}),
    reals={SYMBOL: "s"},
)

PLACED = "pads=(0, 0) | (1, 1) | (0, 2) | (2, 0) | (2, 2), strides=(1,) | (2,)"
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
    steps(f"""
        pixels = Conv(x, point) | Conv(x, point, bias)
        y = Conv(x, kernel, {PLACED}) | Conv(x, kernel, bias, {PLACED})
        turned_point = Transpose(point, perm=(1, 0, 2))
        made_point = Conv(point, turned_point)
        turned = Transpose(kernel, perm=(1, 0, 2))
        turned_product = Conv(turned, point)
        made = Conv(kernel, turned_point) | Transpose(turned_product, perm=(1, 0, 2))
        image = Reshape(bias, shape=(1, {C}, 1))
        moved = Conv(image, point) | Conv(image, point, bias)
        made_bias = Reshape(moved, shape=({C},))
        out = Conv(pixels | y, point) | Conv(pixels | y, point, bias)
        out = Conv(pixels, kernel, {PLACED}) | Conv(pixels, kernel, bias, {PLACED})
        out = Conv(x, made_point) | Conv(x, made_point, bias | made_bias)
        out = Conv(x, made, {PLACED}) | Conv(x, made, bias | made_bias, {PLACED})
    """),
    (3, 6, 0),
    free=FREE | {"point"},
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
    steps(f"""
        rows = Reshape(scale, shape=({C}, 1, 1))
        bias = Reshape(scale, shape=({C},)) | Mul(bias, bias) | Add(bias, bias)
        kernel = Mul(kernel, scale | rows) | Add(kernel, kernel)
        scaled = Mul(x, scale)
        sum = Add(x, x)
        out = ConvTranspose(x | scaled | sum, kernel) | ConvTranspose(x | scaled, kernel, bias)
        out = Mul(out, scale) | Add(out, scale | out)
    """),
    (2, 3, 0),
    free=FREE,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)

INSTANCES = Vocabulary(
    "instance normalisation",
    (X_INPUT, SCALE_INPUT, _vector("a"), _vector("b")),
    steps(f"""
        vector = Reshape(scale, shape=({C},)) | Mul(vector, vector) | Add(vector, vector)
        shifted = Add(x, scale)
        out = InstanceNormalization(x | shifted, vector, vector, epsilon=SYMBOL)
        out = Mul(out, scale) | Add(out, scale)
    """),
    (2, 2, 1),
    free=FREE | {VECTOR},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    reals={SYMBOL: "epsilon"},
)


def _step_by_step(name: str, square: str) -> Vocabulary:
    """Instance normalisation as exporters write it, its scale and shift as they apply them.

    Of images alone: along one axis it is what they write for a layer normalisation, too, which
    would become that of the channels wherever there is one batch.
    """
    return Vocabulary(
        name,
        (X_INPUT, SCALE_INPUT, OTHER_SCALE),
        steps(f"""
            two = 2
            epsilon = SYMBOL
            ones = Ones(shape=({C},))
            zeros = Zeros(shape=({C},))
            vector = Reshape(scale, shape=({C},))
            mean = ReduceMean(x, axes=(2,), keepdims=1)
            deviation = Sub(x, mean)
            square = {square}
            variance = ReduceMean(square, axes=(2,), keepdims=1)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            normal = Div(deviation, root)
            normal = InstanceNormalization(x, ones, zeros, epsilon=SYMBOL)
            scaled = Mul(normal, scale)
            scaled = InstanceNormalization(x, vector, zeros, epsilon=SYMBOL)
            out = Add(scaled, scale)
            out = InstanceNormalization(x, vector, vector, epsilon=SYMBOL)
        """),
        (4,) * 12,
        free=FREE,
        exact=False,
        ranks=IMAGES,
        roots=frozenset({"normal", "scaled", OUT}),
        reals={SYMBOL: "epsilon"},
        chain=True,
    )


INSTANCES_STEP_BY_STEP = (
    _step_by_step("instance normalisation, squares as powers", "Pow(deviation, two)"),
    _step_by_step("instance normalisation, squares as products", "Mul(deviation, deviation)"),
)

CHANNELS = Family(
    "channels",
    (
        BATCH_NORMALIZATION,
        SHIFTED,
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
