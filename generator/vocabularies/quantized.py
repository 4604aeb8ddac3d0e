"""Vocabularies of convolutions of 8-bit integers, whose weights have a sign or none.

The runtime has kernels for both: those for weights with a sign are much slower on some processors.
Products of matrices are left out: where 16 bits hold the sum of two products of bytes, as on
processors with AVX2 alone, the runtime's kernel for weights with a sign cuts sums off, so that the
two are not equal there.
"""

from __future__ import annotations

from xflow.generator.vocabularies.common import X
from xflow.generator.vocabularies.convolutions import KERNEL, SPATIAL, C, S
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices
from xflow.ops.quantized import SIGNED, TYPES, UNSIGNED

ZERO, SHIFT, OUT = "zero", "shift", "out"
RECODED = choices(to=tuple(TYPES))

QUANTIZED = Family(
    "quantized",
    (
        Vocabulary(
            "images of codes",
            (
                Input("x", X, "N C *S", (2, C, S), dtype=TYPES[UNSIGNED]),
                Input("w", KERNEL, "O I *R", (C, C, 3), dtype=TYPES[SIGNED]),
                Input("z", ZERO, "", (), dtype=TYPES[UNSIGNED]),
                Input("v", SHIFT, "", (), dtype=TYPES[SIGNED]),
            ),
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
    ),
    about="convolutions of 8-bit integers",
)
