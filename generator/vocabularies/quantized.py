"""Vocabularies of products of 8-bit integers, whose weights may be held with a sign or without.

The runtime has kernels for both, and which one is faster depends on the processor.
"""

from __future__ import annotations

from xflow.core.sorts import CODES
from xflow.generator.vocabularies.common import X
from xflow.generator.vocabularies.convolutions import KERNEL, SPATIAL, C, S
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices
from xflow.ops.quantized import TYPES

SIGNED, UNSIGNED = CODES
ZERO, SHIFT, OUT = "zero", "shift", "out"
RECODED = choices(to=tuple(TYPES))


def _products(
    name: str, op: str, operands: tuple[Input, Input], shift: Input, ranks: tuple[int, ...]
) -> Vocabulary:
    """Products of an image, or rows, with weights, and what has the same codes otherwise."""
    zero = Input("z", ZERO, "", (), dtype=UNSIGNED)
    weight = operands[1].sort
    return Vocabulary(
        name,
        (*operands, zero, shift),
        (
            Production("Recoded", (weight,), weight, RECODED),
            Production("Recoded", (SHIFT,), SHIFT, RECODED),
            Production(op, (X, weight), OUT),
            Production(op, (X, weight, ZERO), OUT),
            Production(op, (X, weight, ZERO, SHIFT), OUT),
        ),
        (1, 2),
        free=frozenset({weight, ZERO, SHIFT}),
        ranks=ranks,
        roots=frozenset({OUT}),
    )


ROWS = Input("x", X, "*B n k", (2, C, C), dtype=UNSIGNED)
MATRIX = Input("w", "weight", "k m", (C, C), dtype=SIGNED)
IMAGE = Input("x", X, "N C *S", (2, C, S), dtype=UNSIGNED)
FILTERS = Input("w", KERNEL, "O I *R", (C, C, 3), dtype=SIGNED)
ONE = Input("v", SHIFT, "", (), dtype=SIGNED)
EACH = Input("v", SHIFT, "m", (C,), dtype=SIGNED)

QUANTIZED = Family(
    "quantized",
    (
        _products("rows of codes", "MatMulInteger", (ROWS, MATRIX), ONE, (0, 1, 2)),
        _products("codes of columns", "MatMulInteger", (ROWS, MATRIX), EACH, (0, 1, 2)),
        _products("images of codes", "ConvInteger", (IMAGE, FILTERS), ONE, SPATIAL),
    ),
    about="products of 8-bit integers",
)
