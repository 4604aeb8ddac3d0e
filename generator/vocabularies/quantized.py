"""Vocabularies of 8-bit integers, which have a sign or none: codes of reals, and convolutions.

The runtime has kernels for both: those for weights with a sign are much slower on some processors,
and there what is quantized with a sign is not fused into the operators that compute with codes.
Products of matrices are left out: where 16 bits hold the sum of two products of bytes, as on
processors with AVX2 alone, the runtime's kernel for weights with a sign cuts sums off, so that the
two are not equal there.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import X, numbers
from xflow.generator.vocabularies.convolutions import KERNEL, SPATIAL, C, S
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices
from xflow.ops.quantized import SIGNED, TYPES, UNSIGNED

ZERO, SHIFT, OUT = "zero", "shift", "out"
SCALE, STEP, CODED = "scale", "step", "coded"
RECODED = choices(to=tuple(TYPES))
SUMS, IMAGE, WEIGHTS, LEVEL, OFFSET = "sums", "image", "weights", "level", "offset"
AS_FLOATS = {X: IMAGE, KERNEL: WEIGHTS, ZERO: LEVEL, SHIFT: OFFSET}
FLOATS = choices(to=["FLOAT"])
RANKS = (0, 1, 2, 3)
N = 3

IMAGES = (
    Input("x", X, "N C *S", (2, C, S), dtype=TYPES[UNSIGNED]),
    Input("w", KERNEL, "O I *R", (C, C, 3), dtype=TYPES[SIGNED]),
    Input("z", ZERO, "", (), dtype=TYPES[UNSIGNED]),
)
SHIFTED = Input("v", SHIFT, "", (), dtype=TYPES[SIGNED])


def _weights(name: str, dims: str, channels: str, axis: int) -> Vocabulary:
    """Codes of constants, with a scale for all of them or one for each channel."""
    axes = len(dims.split())
    each = (N,) if channels else ()
    return Vocabulary(
        name,
        (
            Input("w", KERNEL, dims, (N,) * (axes - 1) + (S,), dtype=TYPES[SIGNED]),
            Input("s", SCALE, channels, each),
            Input("z", ZERO, channels, each, dtype=TYPES[SIGNED]),
        ),
        (
            *(Production("Recoded", (sort,), sort, RECODED) for sort in (KERNEL, ZERO)),
            Production("DequantizeLinear", (KERNEL, SCALE, ZERO), OUT, choices(axis=[axis])),
        ),
        (1, 2),
        free=frozenset({KERNEL, ZERO}),
        ranks=RANKS[: len(RANKS) - axes + 1],
        roots=frozenset({OUT}),
    )


QUANTIZED = Family(
    "quantized",
    (
        Vocabulary(
            "images of codes",
            (*IMAGES, SHIFTED),
            (
                *(Production("Recoded", (sort,), sort, RECODED) for sort in (KERNEL, SHIFT)),
                Production("ConvInteger", (X, KERNEL), OUT),
                Production("ConvInteger", (X, KERNEL, ZERO), OUT),
                Production("ConvInteger", (X, KERNEL, ZERO, SHIFT), OUT),
            ),
            (1, 2),
            free=frozenset({KERNEL, ZERO, SHIFT}),
            ranks=SPATIAL,
            roots=frozenset({OUT}),
        ),
        Vocabulary(
            "codes of images",
            (
                Input("x", X, "*S", (S,)),
                Input("s", SCALE, "", ()),
                Input("z", ZERO, "", (), dtype=TYPES[SIGNED]),
                Input("t", STEP, "", ()),
                Input("v", SHIFT, "", (), dtype=TYPES[SIGNED]),
            ),
            (
                *(Production("Recoded", (sort,), sort, RECODED) for sort in (ZERO, SHIFT)),
                Production("QuantizeLinear", (X, SCALE, ZERO), CODED, RECODED),
                Production("DequantizeLinear", (CODED, STEP, SHIFT), OUT),
            ),
            (1, 1, 2),
            free=frozenset({ZERO, SHIFT}),
            exact=False,
            ranks=RANKS,
            roots=frozenset({OUT}),
        ),
        Vocabulary(
            "sums of codes in floats",
            (*IMAGES, SHIFTED),
            (
                *(Production("Cast", (sort,), made, FLOATS) for sort, made in AS_FLOATS.items()),
                Production("Sub", (IMAGE, LEVEL), IMAGE),
                Production("Sub", (WEIGHTS, OFFSET), WEIGHTS),
                Production("Conv", (IMAGE, WEIGHTS), OUT),
                Production("ConvInteger", (X, KERNEL), SUMS),
                Production("ConvInteger", (X, KERNEL, ZERO), SUMS),
                Production("ConvInteger", (X, KERNEL, ZERO, SHIFT), SUMS),
                Production("NearestFloat", (SUMS,), OUT),
            ),
            (4, 4, 4, 4),
            free=frozenset({KERNEL, ZERO, SHIFT, LEVEL, WEIGHTS, OFFSET}),
            ranks=SPATIAL,
            roots=frozenset({OUT}),
        ),
        Vocabulary(
            "differences of codes",
            (
                Input("x", X, "*S", (S,), dtype=TYPES[UNSIGNED]),
                Input("z", ZERO, "", (), dtype=TYPES[UNSIGNED]),
            ),
            (
                Production("Cast", (X,), IMAGE, FLOATS),
                Production("Cast", (ZERO,), LEVEL, FLOATS),
                Production("Sub", (IMAGE, LEVEL), OUT),
                numbers(SCALE, 1),
                Production("DequantizeLinear", (X, SCALE, ZERO), OUT),
            ),
            (1, 1, 1),
            free=frozenset({ZERO, LEVEL, SCALE}),
            ranks=RANKS,
            roots=frozenset({OUT}),
        ),
        _weights("codes of weights", "*S", "", 0),
        _weights("codes of weights, channels first", "O *S", "O", 0),
        _weights("codes of weights, channels second", "I O *S", "O", 1),
    ),
    about="quantized numbers: codes of reals, and convolutions of 8-bit integers",
)
