"""Vocabularies of images: normalisation by channel, slopes, transposed convolutions, batches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, scalar, sorts, stages
from xflow.generator.vocabularies.convolutions import (
    BIAS,
    FREE,
    KERNEL,
    SPATIAL,
    C,
    bias,
    flat,
    image,
    kernel,
    of_images,
    point,
    scale,
)
from xflow.generator.vocabulary import Family, Input, Vocabulary

VECTOR, VARIANCE = "vector", "variance"
IMAGES = (2, 3)
"""Spatial axes where one would mean something else as well."""

normalized = partial(of_images, exact=False, roots=sorts("out"), reals={SYMBOL: "epsilon"})
"""A vocabulary of images with an epsilon."""


def _vectors(names: str) -> tuple[Input, ...]:
    return tuple(Input(name, VECTOR, "C", (C,)) for name in names)


def _folded(op: str, axes: tuple[int, int]) -> str:
    """A layer's normalization, and the same in its kernels, whose other axes are `axes`."""
    return f"""
        epsilon = SYMBOL
        y = {op}(x, kernel, [bias])
        shifted = Add(variance, epsilon)
        root = Sqrt(shifted)
        factor = Div(vector, root)
        rows = Unsqueeze(factor, axes={axes})
        kernels = Mul(kernel, rows)
        difference = Sub(bias, vector)
        product = Mul(difference | vector, factor)
        biases = Add(product, vector) | Sub(vector, product)
        out = BatchNormalization(y, vector, vector, vector, variance, epsilon=SYMBOL)
        out = {op}(x, kernels, biases)
    """


VARIANCES = Input("v", VARIANCE, "C", (C,), positive=True)
BATCH_NORMALIZATION = normalized(
    "batch normalisation of a convolution",
    (image("x"), kernel("w"), bias("b"), *_vectors("acu"), VARIANCES),
    limits=(8, 13, 0),
    free=FREE | {VECTOR, VARIANCE},
    chain=True,
).steps(_folded("Conv", (1, 2)))

OF_SIX = "O", (6,)
TRANSPOSED_NORMALIZATION = normalized(
    "batch normalisation of a transposed convolution",
    (
        *(image("x"), Input("w", KERNEL, "C O *R", (C, 6, 3)), Input("b", BIAS, *OF_SIX)),
        *(Input(name, VECTOR, *OF_SIX) for name in "acu"),
        Input("v", VARIANCE, *OF_SIX, positive=True),
    ),
    limits=(8, 13, 0),
    free=FREE | {VECTOR, VARIANCE},
    chain=True,
    by_example=True,
).steps(_folded("ConvTranspose", (0, 2)))

PLANES = normalized(
    "scale and shift of layers by channel",
    (
        *(image("x"), kernel("w"), Input("v", "turned", "I O *R", (C, C, 3)), bias("b")),
        *(flat("s"), *_vectors("acu"), replace(VARIANCES, name="t")),
    ),
    limits=(6,) * 5,
    free=FREE | {"turned", "flat", VECTOR, VARIANCE},
    searched=False,
    chain=True,
).steps(f"""
    row = Reshape(flat, shape=({C},))
    columns = Unsqueeze(flat, axes=(1,))
    y = Conv(x, kernel, [bias]) | ConvTranspose(x, turned, [bias])
    y = BatchNormalization(x, vector, vector, vector, variance, epsilon=SYMBOL)
    scaled_kernel, scaled_turned = Mul((kernel, turned), (columns, flat))
    scaled_bias = Mul(bias, row)
    moved_bias = Add(bias, row)
    scaled = Mul(vector, row)
    moved = Add(vector, row)
    out = Mul(y, flat) | Add(y, flat)
    out = Conv(x, kernel, row | moved_bias) | Conv(x, scaled_kernel, [scaled_bias])
    out = ConvTranspose(x, turned, row | moved_bias)
    out = ConvTranspose(x, scaled_turned, [scaled_bias])
    out = BatchNormalization(x, vector, moved, vector, variance, epsilon=SYMBOL)
    out = BatchNormalization(x, scaled, scaled, vector, variance, epsilon=SYMBOL)
""")
"""Not searched: with a batch axis of 1 before them, others have the same."""

SINGLE_GROUPS = normalized(
    "groups of one channel",
    (image("x"), Input("a", "scale", "C", (C,)), Input("b", "shift", "C", (C,))),
    limits=(0, 0),
    free=sorts("scale shift"),
    by_example=True,
    ranks=(2,),
    searched=False,
).steps(f"""
    out = GroupNormalization(x, scale, shift, num_groups={C}, epsilon=SYMBOL)
    out = InstanceNormalization(x, scale, shift, epsilon=SYMBOL)
""")

SHIFTED = normalized(
    "batch normalisation of what is shifted",
    (image("x"), flat("k"), *_vectors("acu"), VARIANCES),
    limits=(2, 2, 2),
    free=FREE | {"flat", VECTOR, VARIANCE},
).steps(f"""
    row = Reshape(flat, shape=({C},))
    mean = Sub(vector, row)
    y = Add(x, flat)
    out = BatchNormalization(y, vector, vector, vector, variance, epsilon=SYMBOL)
    out = BatchNormalization(x, vector, vector, mean, variance, epsilon=SYMBOL)
""")

AFFINE = of_images(
    "scale and shift by channel",
    (image("x"), scale("r"), scale("t"), flat("a"), *_vectors("b")),
    limits=(4, 4, 4),
    free=FREE | {"flat", VECTOR},
    exact=False,
    roots=sorts("out"),
).steps(f"""
    zeros = Zeros(shape=({C},))
    ones = Ones(shape=({C},))
    vector = Reshape(scale | flat, shape=({C},))
    scaled = Mul(x, scale | flat)
    out = Add(scaled, scale | flat)
    out = BatchNormalization(x, vector, vector, zeros, ones, epsilon=0)
""")


def _slopes(name: str, x: Input, slope: Input, ranks: tuple[int, ...]) -> Vocabulary:
    """PRelu with a slope for each channel, and what exporters write for it."""
    return stages(
        name,
        (x, slope),
        limits=(2,) * 6,
        free=sorts("slope"),
        exact=True,
        ranks=ranks,
        roots=sorts("out other scaled"),
    ).steps("""
        zero = 0; half = 1/2
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
    """)


SLOPES = (
    _slopes("slopes by channel", image("x"), flat("a", "slope"), SPATIAL),
    _slopes(
        "slopes along the last axis",
        Input("x", X, "*B n", (3, 4)),
        Input("a", "slope", "n", (4,)),
        (0, 1, 2, 3),
    ),
)

BATCHES = of_images(
    "batches of images",
    (image("x"), image("y"), kernel("w"), bias("b"), scale("r"), scalar("k", "c")),
    limits=(2, 2, 2, 0),
    free=FREE | {"c"},
    exact=False,
    roots=sorts("y"),
    reals={SYMBOL: "s"},
).steps("""
    c = SYMBOL
    joined = Concat(x, x, axis=0)
    scaled = Mul(x, c)
    y = Conv(x | joined | scaled, kernel, [bias])
    y = Mul(x | joined, scale) | Concat(y, y, axis=0) | Mul(y, c)
    kernel = Mul(kernel, c)
    bias = Mul(bias, c)
""")

PLACED = "pads=(0, 0) | (1, 1) | (0, 2) | (2, 0) | (2, 2), strides=(1,) | (2,)"
"""Paddings of which every element counts, with both strides, for the kernel and extent here."""
POINTWISE = of_images(
    "convolutions of one pixel and others",
    (image("x"), kernel("w"), point("v", "point"), point("u", "point"), bias("b"), bias("c")),
    limits=(3, 6, 0),
    free=FREE | {"point"},
    roots=sorts("out"),
).steps(f"""
    pixels = Conv(x, point, [bias])
    y = Conv(x, kernel, [bias], {PLACED})
    turned_point = Transpose(point, perm=(1, 0, 2))
    made_point = Conv(point, turned_point)
    turned = Transpose(kernel, perm=(1, 0, 2))
    turned_product = Conv(turned, point)
    made = Conv(kernel, turned_point) | Transpose(turned_product, perm=(1, 0, 2))
    image = Reshape(bias, shape=(1, {C}, 1))
    moved = Conv(image, point, [bias])
    made_bias = Reshape(moved, shape=({C},))
    out = Conv(pixels | y, point, [bias]) | Conv(pixels, kernel, [bias], {PLACED})
    out = Conv(x, made_point, [bias | made_bias]) | Conv(x, made, [bias | made_bias], {PLACED})
""")

TRANSPOSED = of_images(
    "transposed convolutions",
    (
        *(image("x"), image("y")),
        *(Input(name, KERNEL, "I O *R", (C, C, 3)) for name in "wv"),
        *(bias("b"), scale("r")),
    ),
    limits=(2, 3, 0),
    roots=sorts("out"),
).steps(f"""
    rows = Reshape(scale, shape=({C}, 1, 1))
    bias = Reshape(scale, shape=({C},)) | Mul(bias, bias) | Add(bias, bias)
    kernel = Mul(kernel, scale | rows) | Add(kernel, kernel)
    scaled = Mul(x, scale)
    sum = Add(x, x)
    out = ConvTranspose(x | scaled | sum, kernel) | ConvTranspose(x | scaled, kernel, bias)
    out = Mul(out, scale) | Add(out, scale | out)
""")

INSTANCES = normalized(
    "instance normalisation",
    (image("x"), scale("r"), *_vectors("ab")),
    limits=(2, 2, 1),
    free=FREE | {VECTOR},
).steps(f"""
    vector = Reshape(scale, shape=({C},)) | Mul(vector, vector) | Add(vector, vector)
    shifted = Add(x, scale)
    out = InstanceNormalization(x | shifted, vector, vector, epsilon=SYMBOL)
    out = Mul(out, scale) | Add(out, scale)
""")

INSTANCES_STEP_BY_STEP = tuple(
    normalized(
        f"instance normalisation, squares as {name}",
        (image("x"), scale("r"), scale("t")),
        limits=(4,) * 12,
        ranks=IMAGES,
        roots=sorts("normal scaled out"),
        chain=True,
    ).steps(f"""
        two = 2; epsilon = SYMBOL
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
    """)
    for name, square in (
        ("powers", "Pow(deviation, two)"),
        ("products", "Mul(deviation, deviation)"),
    )
)
"""Instance normalisation as exporters write it, its scale and shift as they apply them.

Of images alone: along one axis it is what they write for a layer normalisation, too, which would
become that of the channels wherever there is one batch."""

CHANNELS = Family(
    "channels",
    (
        *(BATCH_NORMALIZATION, TRANSPOSED_NORMALIZATION, PLANES, SINGLE_GROUPS),
        *(SHIFTED, AFFINE, *SLOPES, BATCHES, POINTWISE, TRANSPOSED),
        *(INSTANCES, *INSTANCES_STEP_BY_STEP),
    ),
    about="normalisation and slopes by channel, batches, transposed and pointwise convolutions",
)
