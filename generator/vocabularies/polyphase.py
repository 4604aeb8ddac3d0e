"""Vocabularies of images and the four that have every second row and column of them.

These are their polyphase components, as signal processing calls them (Vaidyanathan, *Multirate
Systems and Filter Banks*, 1993). A convolution of an image of twice the extents computes each
component by a smaller kernel; one of the components side by side is a strided one of the image.

Enumeration does not reach four components by itself. So each has a sort of its own: what it is made
of is said here, and found are borders, orders and kernels that agree.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import either, sorts, stages, tensors
from xflow.generator.vocabulary import Family

FREE = sorts("kernel bias")
CORNERS = ((1, 1, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0), (0, 0, 1, 1))
"""Borders of one row and one column, before the image and behind it."""


def _component(number: int) -> str:
    """A component, whose kernel is made of sums of neighbours, and the same with a bias."""
    n, pads = number, f"pads={either(CORNERS)}"
    windows = f"kernel_shape=(2, 2), strides=(2, 2), pads={CORNERS[n]}, count_include_pad=1"
    return f"""
        mean_{n} = AveragePool(kernel, {windows})
        kernel_{n} = Mul(mean_{n}, four)
        part_{n} = Conv(x, kernel_{n}, {pads})
        part_{n}_and_bias = Conv(x, kernel_{n}, bias, {pads})
    """


INTERLEAVED = stages(
    "convolutions of images of twice the extents",
    tensors("x: x[N C H W]  kernel: w[O C 3 3]  bias: b[O]", N=2, C=2, H=3, W=4, O=2),
    limits=(12,) * 7,
    free=FREE,
    literal=sorts("AveragePool Conv DepthToSpace Resize"),
).steps(
    """
    four = 4
    wide = Resize(x, scales=(1, 1, 2, 2))
    out = Conv(wide, kernel, [bias], pads=(1, 1, 1, 1))
    """,
    *map(_component, range(4)),
    """
    parts = Concat(part_0, part_1, part_2, part_3, axis=1)
    parts = Concat(part_0_and_bias, part_1_and_bias, part_2_and_bias, part_3_and_bias, axis=1)
    out = DepthToSpace(parts, blocksize=2, mode="DCR" | "CRD")
    """,
)

ROWS, COLUMNS = 6, 8


def _every_second(axis: int, start: int, extent: int) -> str:
    return f"starts=({start},), ends=({extent},), axes=({axis},), steps=(2,)"


BORDERS = ((0, 0, 0, 0), (1, 0, 0, 2), (0, 1, 2, 0), (2, 1, 1, 3), (3, 2, 0, 1), (1, 3, 2, 2))
TURNED = "perm=(0, 1, 3, 2)"
TAKEN_APART = stages(
    "convolutions of components side by side",
    tensors(
        "x: x[N C H W]  kernel: w[O I K L]  bias: b[O]",
        N=2,
        C=2,
        H=ROWS,
        W=COLUMNS,
        O=2,
        I=8,
        K=2,
        L=3,
    ),
    limits=(3,) * 11,
    free=FREE,
    exact=True,
    literal=sorts("DepthToSpace"),
).steps(
    f"""
    even_rows = Slice(x, {_every_second(2, 0, ROWS)})
    odd_rows = Slice(x, {_every_second(2, 1, ROWS)})
    part_0 = Slice(even_rows, {_every_second(3, 0, COLUMNS)})
    part_1 = Slice(even_rows, {_every_second(3, 1, COLUMNS)})
    part_2 = Slice(odd_rows, {_every_second(3, 0, COLUMNS)})
    part_3 = Slice(odd_rows, {_every_second(3, 1, COLUMNS)})
    parts = Concat(part_0, part_1, part_2, part_3, axis=1)
    parts = Concat(part_0, part_2, part_1, part_3, axis=1)
    large_kernel = DepthToSpace(kernel, blocksize=2)
    turned_kernel = Transpose(kernel, {TURNED})
    large_and_turned = DepthToSpace(turned_kernel, blocksize=2)
    large_kernel = Transpose(large_and_turned, {TURNED})
    out = Conv(parts, kernel, **once) | Conv(x, large_kernel, **twice)
    out = Conv(parts, kernel, bias, **once) | Conv(x, large_kernel, bias, **twice)
    """,
    once=[{"pads": sides, "strides": (1, 1)} for sides in BORDERS],
    twice=[{"pads": tuple(2 * n for n in sides), "strides": (2, 2)} for sides in BORDERS],
)
"""Components row by row, and column by column."""

POLYPHASE = Family(
    "polyphase", (INTERLEAVED, TAKEN_APART), about="images and their every second row and column"
)
