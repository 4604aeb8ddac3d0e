"""Vocabularies of images padded with channels of zeros, for one operator alone.

Where a runtime computes an operator well only on whole blocks of channels, an image may be padded
with zeros and the result cut. That pays by itself, wherever the image comes from; the operator that
makes the image may then make the zeros as well, by kernels of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xflow.core.registry import Attribute
from xflow.generator.vocabularies.common import OUT, X, applied
from xflow.generator.vocabularies.convolutions import BIAS, FREE, KERNEL, SPATIAL, S
from xflow.generator.vocabularies.padded_channels import MADE, PART, WIDE, convolved
from xflow.generator.vocabularies.pools import WINDOW
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

Choices: TypeAlias = tuple[dict[str, Attribute], ...]
FEW, MANY = 3, (4, 5, 6)
"""Channels that there are, and that there are with zeros behind."""
IMAGE = Input("x", X, "N D *S", (2, FEW, S))
MORE, BIASES, DEEPER = "more kernels", "more biases", "deeper kernels"
CUT = Production(
    "Slice", (MADE,), OUT, choices(starts=[(0,)], ends=[(FEW,)], axes=[(1,)], steps=[(1,)])
)


def _zeros(rank: int, axis: int, borders: Sequence[tuple[int, int]] = ((0, 0),)) -> Choices:
    """Zeros behind what there is along an axis, and around images."""
    pads = []
    for channels in MANY:
        for first, last in borders:
            numbers = [0] * (2 * rank)
            numbers[rank - 1], numbers[-1] = first, last
            numbers[rank + axis] = channels - FEW
            pads.append(tuple(numbers))
    return choices(pads=pads)


def _vocabulary(name: str, inputs: tuple[Input, ...], *productions: Production) -> Vocabulary:
    """Biases have as many elements as there are channels; terms of weights alone are free."""
    return Vocabulary(
        name,
        (IMAGE, *inputs),
        (
            Production("Pad", (X,), WIDE, _zeros(3, 1)),
            *productions,
        ),
        (1, 2, 2, 2),
        free=FREE | {MORE, BIASES, DEEPER},
        exact=not any(production.op == "AveragePool" for production in productions),
        ranks=SPATIAL,
        roots=frozenset({OUT, MADE}),
        by_example=True,
    )


MORE_KERNELS = (
    Production("Pad", (KERNEL,), MORE, _zeros(3, 0)),
    Production("Pad", (BIAS,), BIASES, _zeros(1, 0)),
)
POOLS = _vocabulary(
    "pools of images that are padded with channels",
    (),
    *(
        Production(op, (sort,), result, lists)
        for op, lists in (
            ("MaxPool", WINDOW),
            ("AveragePool", WINDOW),
            ("AveragePool", tuple({**window, "count_include_pad": 1} for window in WINDOW)),
        )
        for sort, result in ((X, OUT), (WIDE, MADE))
    ),
    CUT,
)
DEPTHWISE = _vocabulary(
    "depthwise convolutions of images that are padded with channels",
    (Input("w", KERNEL, "C 1 *R", (FEW, 1, 3)), Input("b", BIAS, "C", (FEW,))),
    *convolved(X, KERNEL, BIAS, OUT, [FEW]),
    *MORE_KERNELS,
    *convolved(WIDE, MORE, BIASES, MADE, MANY),
    CUT,
)
KERNELS = _vocabulary(
    "kernels of images that are padded with channels",
    (Input("w", KERNEL, "O I *R", (FEW, FEW, 3)), Input("b", BIAS, "O", (FEW,))),
    *convolved(X, KERNEL, BIAS, OUT),
    Production("Pad", (KERNEL,), DEEPER, _zeros(3, 1)),
    *convolved(WIDE, DEEPER, BIAS, OUT),
)
MADE_WIDE = _vocabulary(
    "convolutions that make channels of zeros",
    (Input("w", KERNEL, "O I *R", (FEW, FEW, 3)), Input("b", BIAS, "O", (FEW,))),
    *convolved(X, KERNEL, BIAS, OUT),
    *MORE_KERNELS,
    *convolved(X, MORE, BIASES, MADE),
    Production("Pad", (OUT,), MADE, _zeros(3, 1)),
)
BORDERS = tuple((first, last) for first in range(1, 4) for last in range(1, 4))
PADDED = Vocabulary(
    "channels of zeros, and borders",
    (IMAGE, Input("y", X, "N D *S", (2, FEW, S))),
    (
        Production("Pad", (X,), WIDE, _zeros(3, 1)),
        Production("Pad", (X,), PART, choices(pads=[(0, 0, a, 0, 0, b) for a, b in BORDERS])),
        Production("Pad", (WIDE,), OUT, choices(pads=[(0, 0, a, 0, 0, b) for a, b in BORDERS])),
        Production("Pad", (PART,), OUT, _zeros(3, 1)),
        Production("Pad", (X,), OUT, _zeros(3, 1, BORDERS)),
        applied("Add", X, X, "sum"),
        Production("Pad", ("sum",), MADE, _zeros(3, 1)),
        applied("Add", WIDE, WIDE, MADE),
    ),
    (0, 0, 0, 0),
    ranks=SPATIAL,
    roots=frozenset({OUT, MADE}),
)

FILLED_CHANNELS = Family(
    "filled-channels",
    (POOLS, DEPTHWISE, KERNELS, MADE_WIDE, PADDED),
    about="images that are padded with channels for one operator",
)
