"""Vocabularies of images with surplus channels: slices moved past operators on each channel.

A runtime that computes images in blocks of channels pays for the last block as for a full one. So a
convolution may as well make more channels than are needed (`p` more, with kernels of zeros), and
the part that is needed is taken where zeros in the next kernel take it for nothing.

`part` are the channels of `wide` that are needed, and `out` those of `made`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from xflow.generator.production import SYMBOL
from xflow.generator.vocabularies.common import X, cut, either, sorts, tensors
from xflow.generator.vocabularies.convolutions import (
    BIAS,
    FREE,
    KERNEL,
    SCALE,
    C,
    S,
    bias,
    image,
    kernel,
    of_images,
)
from xflow.generator.vocabularies.pools import WINDOW
from xflow.generator.vocabulary import Family, Input

FEW, MANY = (3, 4), (5, 6, 7)
"""Channels that are needed and that there are: several, to show that they are free."""
MORE = range(MANY[0] - FEW[-1], MANY[-1] - FEW[0] + 1)
"""The numbers of surplus channels."""
STEPS = "pads=(1, 0), strides=(2,)"
CONV = f"{STEPS}, group=1"

of_parts = partial(of_images, roots=sorts("out"))


def zeros(rank: int, axis: int, numbers: Iterable[int] = MORE) -> str:
    """Zeros behind what there is along an axis."""
    pads = (tuple(n if i == rank + axis else 0 for i in range(2 * rank)) for n in numbers)
    return f"pads={either(pads)}"


def _sized(name: str, sort: str, dims: str, *sizes: tuple[int, ...]) -> tuple[Input, ...]:
    """Inputs that differ in their sizes."""
    return tuple(Input(f"{name}{n}", sort, dims, size) for n, size in enumerate(sizes))


IMAGES = _sized("x", "wide", "N D *S", *((2, d, S) for d in MANY))
NEEDED = cut(1, [0], FEW)
SOME = cut(1, [1], [3])
PARTS = of_parts(
    "parts of channels",
    (image("x"), image("y")),
    limits=(0, 0, 0, 0),
    free=frozenset(),
    exact=False,
).steps(f"""
    part, out = Slice((x, made), {SOME})
    made, out = MaxPool((x, part), {WINDOW})
    made, out = AveragePool((x, part), {WINDOW})
    made, out = AveragePool((x, part), {WINDOW}, count_include_pad=1)
    made, out = GlobalAveragePool((x, part))
    made, out = GlobalMaxPool((x, part))
    made, out = Pad((x, part), pads=(0, 0, 1, 0, 0, 2))
    made, out = Slice((x, part), {cut(2, [1], [5])})
    made, out = Elementwise((x, part), [(x, part)])
""")

NORM = ("scale of norm", "shift", "mean", "variance")
CONSTANTS = of_parts(
    "constants of padded channels",
    (
        *IMAGES,
        *_sized("r", SCALE, "1 C *1", *((1, c, 1) for c in FEW)),
        *_sized("a", "flat", "C *1", *((c, 1) for c in FEW)),
        *(
            replace(item, positive=sort == "variance")
            for name, sort in zip("stuv", NORM, strict=True)
            for item in _sized(name, sort, "C", *((c,) for c in FEW))
        ),
    ),
    limits=(1, 4, 4),
    free=FREE | {"flat", *NORM},
    exact=False,
    reals={SYMBOL: "epsilon"},
).steps(f"""
    part, out = Slice((wide, made), {NEEDED})
    wide_scale = Pad(scale, {zeros(3, 1)})
    wide_flat = Pad(flat, {zeros(2, 0)})
    wide_scale_of_norm = Pad(scale_of_norm, {zeros(1, 0)})
    wide_shift, wide_mean, wide_variance = Pad((shift, mean, variance), {zeros(1, 0)})
    out, made = Elementwise((part, wide), (scale, wide_scale))
    out, made = Elementwise((part, wide), (flat, wide_flat))
    out = BatchNormalization(part, scale_of_norm, shift, mean, variance, epsilon=SYMBOL)
    made = BatchNormalization(
        wide, wide_scale_of_norm, wide_shift, wide_mean, wide_variance, epsilon=SYMBOL
    )
""")

MORE_KERNELS = of_parts(
    "kernels of more channels",
    (image("x"), kernel("w"), bias("b")),
    limits=(1, 2, 2),
    by_example=True,
).steps(f"""
    more_kernels = Pad(kernel, {zeros(3, 0)})
    more_biases = Pad(bias, {zeros(1, 0)})
    made = Conv(x, more_kernels, [more_biases], {CONV})
    out = Slice(made, {cut(1, [0], [C])}) | Conv(x, kernel, [bias], {CONV})
""")

DEEPER_KERNELS = of_parts(
    "kernels that read more channels",
    (*IMAGES, *_sized("w", KERNEL, "O I *R", *((C, c, 3) for c in FEW)), bias("b")),
    limits=(1, 1, 0),
).steps(f"""
    part = Slice(wide, {NEEDED})
    out = Conv(part, kernel, [bias], {CONV})
    deeper_kernels = Pad(kernel, {zeros(3, 1)})
    out = Conv(wide, deeper_kernels, [bias], {CONV})
""")

SOME_KERNELS = of_parts(
    "parts of kernels",
    (image("x"), *tensors("kernel: w[O I *R]  bias: b[O]", O=C + 2, I=C, R=3)),
    limits=(1, 2, 0),
    by_example=True,
).steps(f"""
    made = Conv(x, kernel, [bias], {CONV})
    out = Slice(made, {cut(1, range(3), range(3, 6))})
    some_kernels, some_biases = Slice((kernel, bias), {cut(0, range(3), range(3, 6))})
    out = Conv(x, some_kernels, [some_biases], {CONV})
""")

DEPTHWISE = of_parts(
    "depthwise convolutions of padded channels",
    (
        *IMAGES,
        *_sized("w", KERNEL, "C 1 *R", *((c, 1, 3) for c in FEW)),
        *_sized("b", BIAS, "C", *((c,) for c in FEW)),
    ),
    limits=(1, 2, 2),
    by_example=True,
).steps(f"""
    part = Slice(wide, {NEEDED})
    out = Conv(part, kernel, [bias], {STEPS}, group={either(FEW)})
    more_kernels = Pad(kernel, {zeros(3, 0)})
    more_biases = Pad(bias, {zeros(1, 0)})
    made = Conv(wide, more_kernels, [more_biases], {STEPS}, group={either(MANY)})
    out = Slice(made, {NEEDED})
""")


def _depths(middle: int, end: int) -> str:
    """The first and the other channels of kernels."""
    return f"""
        first = Slice(kernel, {cut(1, [0], [middle])})
        second = Slice(kernel, {cut(1, [middle], [end])})
    """


CONVOLVED_JOINTS = of_parts(
    "convolutions of images side by side",
    (
        *_sized("x", X, "N C *S", *((2, c, S) for c in FEW)),
        *_sized("y", X, "N C *S", *((2, c, S) for c in FEW)),
        kernel("w", inputs=sum(FEW)),
        bias("b"),
    ),
    limits=(1, 1, 1, 2),
).steps(
    f"""
    joined = Concat(x, x, axis=1)
    out = Conv(joined, kernel, [bias], {CONV})
    """,
    *(_depths(few, sum(FEW)) for few in FEW),
    f"""
    part = Conv(x, first, [bias], {CONV})
    other_part = Conv(x, second, {STEPS})
    out = Add(part, other_part)
    """,
)

WIDE_JOINTS = of_parts(
    "padded channels side by side with others",
    (*IMAGES, image("y"), *_sized("w", KERNEL, "O I *R", *((C, c + C, 3) for c in FEW)), bias("b")),
    limits=(4, 4, 4, 0),
).steps(
    f"""
    part = Slice(wide, {NEEDED})
    joined = Concat(part, x, axis=1) | Concat(x, part, axis=1)
    out = Conv(joined, kernel, [bias], {CONV})
    """,
    *(_depths(few, few + C) for few in FEW),
    f"""
    padded_first = Pad(first, {zeros(3, 1)})
    deeper_kernels = Concat(padded_first, second, axis=1) | Pad(kernel, {zeros(3, 1)})
    all = Concat(wide, x, axis=1) | Concat(x, wide, axis=1)
    out = Conv(all, deeper_kernels, [bias], {CONV})
    """,
)

JOINTS = of_parts(
    "padded channels behind others", (*IMAGES, image("y", channels=2)), free=frozenset()
).steps(f"""
    part = Slice(wide, {NEEDED})
    out = Concat(x, part, axis=1)
    all = Concat(x, wide, axis=1)
    out = Slice(all, {cut(1, [0], [2 + few for few in FEW])})
""")

GROUPS, LESS = 6, 3
"""Groups of channels, and half as many."""
DEPTH, KERNELS = 5, 2
"""Channels that a group reads and makes."""
PAIRS = (LESS, 2, KERNELS, 1, DEPTH, 3)
COARSER = of_parts(
    "convolutions in half as many groups",
    (
        image("x", channels=GROUPS * DEPTH),
        Input("w", KERNEL, "O I *R", (GROUPS * KERNELS, DEPTH, 3)),
        Input("b", BIAS, "O", (GROUPS * KERNELS,)),
        # No term reads these: they say where the vector is among five and six axes.
        Input("z", "five axes", "a b c d *R", (2, 1, 2, 1, 1)),
        Input("u", "six axes", "a b c d e *R", PAIRS),
    ),
    limits=(5, 5),
    literal=sorts("Eye"),
    by_example=True,
).steps(f"""
    out = Conv(x, kernel, [bias], {STEPS}, group={GROUPS})
    pairs = Reshape(kernel, shape={PAIRS})
    eye = Eye(n=2)
    places = Reshape(eye, shape=(2, 1, 2, 1, 1))
    blocks = Mul(pairs, places)
    coarse = Reshape(blocks, shape=({GROUPS * KERNELS}, {2 * DEPTH}, 3))
    out = Conv(x, coarse, [bias], {STEPS}, group={LESS})
""")

PADDED_CHANNELS = Family(
    "padded-channels",
    (
        *(PARTS, CONSTANTS, SOME_KERNELS, MORE_KERNELS, DEEPER_KERNELS, DEPTHWISE),
        *(JOINTS, CONVOLVED_JOINTS, WIDE_JOINTS, COARSER),
    ),
    about="images that carry more channels than are read",
)
