"""Vocabularies of convolutions.

One spatial axis stands for any number of them. Kernels, biases and scales are sorts of their own:
what is computed from weights alone costs nothing at run time.
"""

from __future__ import annotations

from functools import partial

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, either, sorts, stages, tensors
from xflow.generator.vocabulary import Family, Input, Vocabulary

KERNEL, BIAS, SCALE, FLAT = "kernel", "bias", "scale", "flat"
DIAGONAL = "diagonal"
"""Kernels made of a scale or of nothing; apart, so that they meet few other operators."""
FREE = sorts("kernel bias scale diagonal")
SPATIAL = (1, 2, 3)
C, S = 4, 7

of_images = partial(Vocabulary, free=FREE, ranks=SPATIAL)
"""A vocabulary of images and weights with any number of spatial axes."""


def image(name: str, extent: int = S, channels: int = C, sort: str = X) -> Input:
    """A batch of two images."""
    return Input(name, sort, "N C *S", (2, channels, extent))


def kernel(name: str, size: int = 3, inputs: int = C, sort: str = KERNEL) -> Input:
    """A kernel that makes `C` channels of so many."""
    return Input(name, sort, "O I *R", (C, inputs, size))


def point(name: str, sort: str = KERNEL) -> Input:
    """A kernel of one pixel."""
    return Input(name, sort, "O I *1", (C, C, 1))


def bias(name: str) -> Input:
    """A number for each channel that a convolution makes."""
    return Input(name, BIAS, "O", (C,))


def scale(name: str) -> Input:
    """A number for each channel, in the axes of an image."""
    return Input(name, SCALE, "1 C *1", (1, C, 1))


def flat(name: str, sort: str = FLAT) -> Input:
    """A number for each channel, in the axes of an image without that of the batch."""
    return Input(name, sort, "C *1", (C, 1))


def _pads(limit: int) -> str:
    return "pads=" + either((e, f) for e in range(limit) for f in range(limit))


TWO_OF_EACH = (image("x"), image("y"), kernel("w"), kernel("v"), bias("b"), bias("c"))

SUMS = of_images("sums", TWO_OF_EACH, limits=(1, 2, 0, 0)).steps("""
    x = Conv(x, kernel, [bias]) | Add(x, x) | Sub(x, x)
    kernel = Add(kernel, kernel) | Sub(kernel, kernel)
    bias = Add(bias, bias) | Sub(bias, bias)
""")

DILATIONS = "dilations=(1,) | (2,)"
"""Strides are left to be set free: with them, padding at the end is often of no effect."""
SIZES = of_images(
    "kernel sizes",
    (image("x", 13), kernel("w", 2, sort="small"), kernel("v", 4), bias("b"), bias("c")),
    limits=(2, 3, 0, 0),
    free=FREE | {"small"},
    roots=sorts("x y sum"),
).steps(f"""
    y = Conv(x, small, {_pads(2)}, {DILATIONS}) | Conv(x, kernel, {_pads(6)}, {DILATIONS})
    y = Conv(x, small, bias, {_pads(2)}, {DILATIONS})
    y = Conv(x, kernel, bias, {_pads(6)}, {DILATIONS})
    bias = Add(bias, bias)
    sum = Add(y, y)
    kernel = Pad(small, pads=(0, 0, 1, 0, 0, 1) | (0, 0, 2, 0, 0, 0) | (0, 0, 0, 0, 0, 2))
    kernel = Add(kernel, kernel)
""")

IDENTITIES = of_images(
    "identity kernels",
    (image("x", 13), *(kernel(f"w{n}", n) for n in (2, 3, 4, 5)), bias("b")),
    limits=(2, 2, 0),
    free=FREE | {"centre"},
    roots=sorts("x y sum"),
).steps(f"""
    diagonal = IdentityKernel(channels={C}, kernel=(1,))
    centre = IdentityKernel(channels={C}, kernel=(2,) | (3,) | (4,) | (5,))
    centre = Add(kernel, centre)
    y = Conv(x, diagonal, [bias]) | Conv(x, centre | kernel, [bias], {_pads(5)}, {DILATIONS})
    sum = Add(x, y)
""")

SCALES = of_images(
    "scales", (image("x"), kernel("w"), bias("b"), scale("r")), limits=(2, 4, 1)
).steps(f"""
    x = Conv(x, kernel, [bias]) | Mul(x, scale) | Add(x, scale)
    rows = Reshape(scale, shape=({C}, 1, 1))
    kernel = Mul(kernel, rows | scale)
    bias = Reshape(scale, shape=({C},)) | Mul(bias, bias) | Add(bias, bias)
""")

DIAGONALS = of_images(
    "diagonal kernels", (image("x"), scale("r"), scale("t")), limits=(2, 3, 0)
).steps(f"""
    rows = Reshape(scale, shape=({C}, 1, 1))
    bias = Reshape(scale, shape=({C},))
    scale = Mul(scale, scale) | Add(scale, scale)
    diagonal = IdentityKernel(channels={C}, kernel=(1,)) | Mul(diagonal, scale)
    x = Mul(x, scale) | Add(x, scale | x) | Conv(x, diagonal, [bias])
    x = Conv(x, rows, [bias], group={C})
""")

CONCATS = of_images("concatenations", TWO_OF_EACH, limits=(1, 2, 1, 0)).steps("""
    x = Conv(x, kernel, [bias]) | Concat(x, x, axis=1) | Add(x, x)
    kernel = Concat(kernel, kernel, axis=0 | 1)
    bias = Concat(bias, bias, axis=0) | Add(bias, bias)
""")

DEPTHWISE = of_images(
    "depthwise convolutions",
    (image("x"), image("y"), kernel("w", 3, 1), kernel("v", 3, 1), bias("b"), scale("r")),
    limits=(2, 2, 0),
).steps(f"""
    x = Conv(x, kernel, [bias], group={C}) | Mul(x, scale)
    rows = Reshape(scale, shape=({C}, 1, 1))
    kernel = Mul(kernel, rows)
""")

SHIFTS = of_images(
    "shifts",
    (image("x"), kernel("w"), bias("b"), scale("r")),
    limits=(4, 4, 1),
    exact=False,
    reals={SYMBOL: "m"},
).steps("""
    c = SYMBOL
    moved = Add(x, scale | c) | Sub(x, scale | c) | Mul(x, scale) | Div(x, scale)
    x = Conv(x | moved, kernel, [bias])
    kernel = Mul(kernel, scale | c) | Div(kernel, scale)
    bias = ReduceSum(kernel, axes=(1, 2), keepdims=0) | Neg(bias)
    bias = Add(bias, bias) | Sub(bias, bias) | Mul(bias, c)
""")

WITHOUT_BATCH = of_images(
    "scales without a batch axis",
    (image("x"), flat("r"), bias("b")),
    limits=(2, 1),
    free=FREE | {FLAT},
).steps(f"""
    scale = Reshape(flat, shape=(1, {C}, 1))
    x = Mul(x, flat | scale) | Add(x, flat | scale)
""")

BORDERS = "pads=" + either((0, 0, p, 0, 0, q) for p in range(3) for q in range(3))
PADDED = of_images("padded inputs", (image("x", 13), kernel("w"), bias("b"))).steps(
    f"x = Conv(x, kernel, [bias], {_pads(5)}) | Pad(x, {BORDERS}) | Relu(x)"
)

TRANSPOSED = of_images(
    "transposed convolutions of one pixel",
    (image("x"), Input("w", KERNEL, "I O *1", (C, C, 1)), bias("b")),
    limits=(1, 1),
    roots=sorts("out"),
).steps("""
    turned = Transpose(kernel, perm=(1, 0, 2))
    out = ConvTranspose(x, kernel, [bias]) | Conv(x, turned, [bias])
""")

DEPTHWISE_SIDE_BY_SIDE = stages(
    "depthwise convolutions side by side",
    (
        *(image(name, channels=c, sort=name) for name, c in (("x", 3), ("y", 5))),
        *(Input(name, f"{name} {KERNEL}", "C 1 *R", (c, 1, 4)) for name, c in (("w", 3), ("v", 5))),
    ),
    limits=(1,) * 4,
    free=sorts("w_kernel v_kernel"),
    ranks=SPATIAL,
    by_example=True,
    searched=False,
).steps("""
    images = Concat(x, y, axis=1)
    kernels = Concat(w_kernel, v_kernel, axis=0)
    one = Conv(x, w_kernel, group=3)
    other = Conv(y, v_kernel, group=5)
    out = Concat(one, other, axis=1) | Conv(images, kernels, group=8)
""")

DILATED = of_images(
    "dilations of one pixel",
    (image("x"), point("w"), bias("b")),
    limits=(0, 0),
    roots=sorts("out"),
).steps("out = Conv(x, kernel, [bias], dilations=(1,) | (2,) | (3,))")

WHOLE = stages(
    "convolutions of whole images",
    tensors("x: x[N C H W]  kernel: w[O C H W]", N=2, C=3, H=5, W=7, O=4),
    limits=(2,) * 6,
    free=sorts("kernel"),
    by_example=True,
    searched=False,
).steps("""
    matrix = Reshape(kernel, shape=(4, 105))
    turned = Transpose(matrix, perm=(1, 0))
    rows = Reshape(x, shape=(2, 105))
    product = MatMul(rows, turned)
    out = Reshape(product, shape=(2, 4, 1, 1)) | Conv(x, kernel)
""")

TAKEN = stages(
    "some of the pixels",
    tensors("x: x[N C H W]  kernel: w[O C 1 1]", N=2, C=3, H=7, W=11, O=4),
    limits=(0,) * 3,
    free=sorts("kernel"),
    by_example=True,
    searched=False,
).steps("""
    some = Slice(x, starts=(0, 0), ends=(7, 11), axes=(2, 3), steps=(2, 2))
    out = Conv(x, kernel, strides=(2, 2)) | Conv(some, kernel)
""")

CONVOLUTION = Family(
    "convolution",
    (
        *(SUMS, SIZES, IDENTITIES, SCALES, SHIFTS, WITHOUT_BATCH, DIAGONALS, DEPTHWISE, CONCATS),
        *(PADDED, TRANSPOSED, DEPTHWISE_SIDE_BY_SIDE, DILATED, WHOLE, TAKEN),
    ),
    about="convolutions, and what can be moved into their weights",
)
