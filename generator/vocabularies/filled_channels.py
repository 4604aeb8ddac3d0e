"""Vocabularies of images padded with channels of zeros, for one operator alone.

Where a runtime computes an operator well only on whole blocks of channels, an image may be padded
with zeros and the result cut. That pays by itself, wherever the image comes from; the operator that
makes the image may then make the zeros as well, by kernels of zeros.

`wide` is `x` with channels of zeros behind, and `made` is made of it.
"""

from __future__ import annotations

from functools import partial

from xflow.generator.vocabularies.common import X, cut, either, sorts, tensors
from xflow.generator.vocabularies.convolutions import S, of_images
from xflow.generator.vocabularies.padded_channels import CONV, STEPS, zeros
from xflow.generator.vocabularies.pools import WINDOW
from xflow.generator.vocabulary import Family, Input

FEW, MANY = 3, (4, 5, 6)
"""Channels that there are, and that there are with zeros behind."""
MORE = [many - FEW for many in MANY]
IMAGE = Input("x", X, "N D *S", (2, FEW, S))
WEIGHTS = tensors("kernel: w[O I *R]  bias: b[O]", O=FEW, I=FEW, R=3)

filled = partial(of_images, limits=(1, 2, 2, 2), roots=sorts("out made"), by_example=True)
"""Biases have as many elements as there are channels."""

IMAGES = f"wide = Pad(x, {zeros(3, 1, MORE)})"
NEEDED = f"out = Slice(made, {cut(1, [0], [FEW])})"
MORE_KERNELS = f"""
    more_kernels = Pad(kernel, {zeros(3, 0, MORE)})
    more_biases = Pad(bias, {zeros(1, 0, MORE)})
"""
POOLS = filled("pools of images that are padded with channels", (IMAGE,), exact=False).steps(
    IMAGES,
    f"""
    out, made = MaxPool((x, wide), {WINDOW})
    out, made = AveragePool((x, wide), {WINDOW})
    out, made = AveragePool((x, wide), {WINDOW}, count_include_pad=1)
    """,
    NEEDED,
)
DEPTHWISE = filled(
    "depthwise convolutions of images that are padded with channels",
    (IMAGE, *tensors("kernel: w[C 1 *R]  bias: b[C]", C=FEW, R=3)),
).steps(
    IMAGES,
    f"out = Conv(x, kernel, [bias], {STEPS}, group={FEW})",
    MORE_KERNELS,
    f"made = Conv(wide, more_kernels, [more_biases], {STEPS}, group={either(MANY)})",
    NEEDED,
)
KERNELS = filled("kernels of images that are padded with channels", (IMAGE, *WEIGHTS)).steps(
    IMAGES,
    f"""
    out = Conv(x, kernel, [bias], {CONV})
    deeper_kernels = Pad(kernel, {zeros(3, 1, MORE)})
    out = Conv(wide, deeper_kernels, [bias], {CONV})
    """,
)
MADE_WIDE = filled("convolutions that make channels of zeros", (IMAGE, *WEIGHTS)).steps(
    IMAGES,
    f"out = Conv(x, kernel, [bias], {CONV})",
    MORE_KERNELS,
    f"""
    made = Conv(x, more_kernels, [more_biases], {CONV})
    made = Pad(out, {zeros(3, 1, MORE)})
    """,
)
BORDERS = [(first, last) for first in range(1, 4) for last in range(1, 4)]
AROUND = "pads=" + either((0, 0, a, 0, 0, b) for a, b in BORDERS)
PADDED = of_images(
    "channels of zeros, and borders",
    (IMAGE, Input("y", X, "N D *S", (2, FEW, S))),
    limits=(0, 0, 0, 0),
    free=frozenset(),
    roots=sorts("out made"),
).steps(
    IMAGES,
    f"""
    part, out = Pad((x, wide), {AROUND})
    out = Pad(part, {zeros(3, 1, MORE)})
    out = Pad(x, pads={either((0, 0, a, 0, n, b) for n in MORE for a, b in BORDERS)})
    sum = Add(x, x)
    made = Pad(sum, {zeros(3, 1, MORE)}) | Add(wide, wide)
    """,
)

FILLED_CHANNELS = Family(
    "filled-channels",
    (POOLS, DEPTHWISE, KERNELS, MADE_WIDE, PADDED),
    about="images that are padded with channels for one operator",
)
