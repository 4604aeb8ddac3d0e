"""Vocabularies of images and the four that have every second row and column of them.

These are their polyphase components, as signal processing calls them (Vaidyanathan, *Multirate
Systems and Filter Banks*, 1993). A convolution of an image of twice the extents computes each
component by a smaller kernel; one of the components side by side is a strided one of the image.

Enumeration does not reach four components by itself. So each has a sort of its own: what it is made
of is said here, and found are borders, orders and kernels that agree.
"""

from __future__ import annotations

from xflow.core.registry import Attribute
from xflow.generator.production import Production, choices, numbers
from xflow.generator.vocabularies.common import X, applied
from xflow.generator.vocabularies.convolutions import BIAS, KERNEL
from xflow.generator.vocabulary import Family, Input, Vocabulary

WIDE, OUT = "wide", "out"
FOUR = range(4)
AT_CHANNELS = choices(axis=[1])
CORNERS = ((1, 1, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0), (0, 0, 1, 1))
"""Borders of one row and one column, before the image and behind it."""
INTERLEAVED = Vocabulary(
    "convolutions of images of twice the extents",
    (
        Input("x", X, "N C H W", (2, 2, 3, 4)),
        Input("w", KERNEL, "O C 3 3", (2, 2, 3, 3)),
        Input("b", BIAS, "O", (2,)),
    ),
    (
        numbers("four", 4),
        Production("Resize", (X,), WIDE, choices(scales=[(1, 1, 2, 2)])),
        *(
            Production("Conv", (WIDE, KERNEL, *bias), OUT, choices(pads=[(1, 1, 1, 1)]))
            for bias in ((), (BIAS,))
        ),
        *(
            production
            for corner, pads in enumerate(CORNERS)
            for production in (
                Production(
                    "AveragePool",
                    (KERNEL,),
                    f"mean {corner}",
                    choices(
                        kernel_shape=[(2, 2)], strides=[(2, 2)], pads=[pads], count_include_pad=[1]
                    ),
                ),
                applied("Mul", f"mean {corner}", "four", f"kernel {corner}"),
                *(
                    Production(
                        "Conv",
                        (X, f"kernel {corner}", *bias),
                        f"part {corner}{' and bias' * len(bias)}",
                        choices(pads=CORNERS),
                    )
                    for bias in ((), (BIAS,))
                ),
            )
        ),
        *(
            Production("Concat", tuple(f"part {n}{bias}" for n in FOUR), "parts", AT_CHANNELS)
            for bias in ("", " and bias")
        ),
        Production("DepthToSpace", ("parts",), OUT, choices(blocksize=[2], mode=["DCR", "CRD"])),
    ),
    (12,) * 7,
    free=frozenset(
        {KERNEL, BIAS, "four"} | {f"{sort} {n}" for sort in ("mean", "kernel") for n in FOUR}
    ),
    exact=False,
    roots=frozenset({OUT}),
    chain=True,
    literal=frozenset({"AveragePool", "Conv", "DepthToSpace", "Resize"}),
)

BOTH = (0, 1)
ROWS, COLUMNS = 6, 8
ORDERS = ((0, 1, 2, 3), (0, 2, 1, 3))
"""Components row by row, and column by column."""
TURNED = choices(perm=[(0, 1, 3, 2)])


def _every_second(axis: int, start: int, extent: int) -> tuple[dict[str, Attribute], ...]:
    return choices(starts=[(start,)], ends=[(extent,)], axes=[(axis,)], steps=[(2,)])


def _padded(*sides: int, times: int) -> dict[str, Attribute]:
    return {"pads": tuple(times * side for side in sides), "strides": (times, times)}


BORDERS = ((0, 0, 0, 0), (1, 0, 0, 2), (0, 1, 2, 0), (2, 1, 1, 3), (3, 2, 0, 1), (1, 3, 2, 2))
TAKEN_APART = Vocabulary(
    "convolutions of components side by side",
    (
        Input("x", X, "N C H W", (2, 2, ROWS, COLUMNS)),
        Input("w", KERNEL, "O I K L", (2, 8, 2, 3)),
        Input("b", BIAS, "O", (2,)),
    ),
    (
        *(Production("Slice", (X,), f"rows {n}", _every_second(2, n, ROWS)) for n in BOTH),
        *(
            Production("Slice", (f"rows {n}",), f"part {2 * n + m}", _every_second(3, m, COLUMNS))
            for n in BOTH
            for m in BOTH
        ),
        *(
            Production("Concat", tuple(f"part {n}" for n in order), "parts", AT_CHANNELS)
            for order in ORDERS
        ),
        Production("DepthToSpace", (KERNEL,), "large kernel", choices(blocksize=[2])),
        Production("Transpose", (KERNEL,), "turned kernel", TURNED),
        Production("DepthToSpace", ("turned kernel",), "large and turned", choices(blocksize=[2])),
        Production("Transpose", ("large and turned",), "large kernel", TURNED),
        *(
            Production("Conv", (image, kernel, *bias), OUT, windows)
            for bias in ((), (BIAS,))
            for image, kernel, windows in (
                ("parts", KERNEL, tuple(_padded(*border, times=1) for border in BORDERS)),
                (X, "large kernel", tuple(_padded(*border, times=2) for border in BORDERS)),
            )
        ),
    ),
    (3,) * 11,
    free=frozenset({KERNEL, BIAS, "turned kernel", "large and turned", "large kernel"}),
    roots=frozenset({OUT}),
    chain=True,
    literal=frozenset({"DepthToSpace"}),
)

POLYPHASE = Family(
    "polyphase",
    (INTERLEAVED, TAKEN_APART),
    about="images and their every second row and column",
)
