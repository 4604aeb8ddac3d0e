"""Vocabularies of 8-bit integers, which have a sign or none: codes of reals, and products of them.

The runtime has kernels for both: those for weights with a sign are much slower on some processors,
and there what is quantized with a sign is not fused into the operators that compute with codes.
A convolution of one pixel is a product of matrices, by which the runtime's kernel can have the
weights packed before, and into which it fuses what makes reals of the sums.
"""

from __future__ import annotations

from xflow.core.registry import Attribute
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
MATRIX, TURNED, ROWS, MADE = "matrix", "turned", "rows", "made"
MOVED, LATER, SCALED, LAST = "moved", "later", "scaled", "last"
"""Sorts: sums that were moved, and floats of them; floats that are scaled, not moved and moved."""
BIAS, LOW = "bias", "low"
POINTS = (("z", ZERO), ("v", SHIFT))
N, K = 3, 7
SHIFTS = (
    Input("b", BIAS, "1 K 1 1", (1, K, 1, 1)),
    Production("Squeeze", (BIAS,), LOW, choices(axes=[(0, 2, 3)])),
    Production("Add", (SCALED, LOW), SCALED),
    Production("Add", (LAST, BIAS), OUT),
)
"""What adds a number for each channel to images, before or after they are moved."""

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


def _moved(
    name: str,
    dims: str,
    sizes: tuple[int, ...],
    op: str,
    *more: Input | Production,
    **how: Attribute,
) -> Vocabulary:
    """Sums of codes that are moved, before or after they become floats and are scaled."""
    moves = choices(**{key: [value] for key, value in how.items()})
    return Vocabulary(
        name,
        (
            Input("k", SUMS, dims, sizes, dtype="INT64"),
            Input("s", SCALE, "", ()),
            *(each for each in more if isinstance(each, Input)),
        ),
        (
            Production(op, (SUMS,), MOVED, moves),
            *(Production(op, (sort,), OUT, moves) for sort in (MADE, SCALED)),
            *(Production("NearestFloat", (MOVED,), sort) for sort in (LATER, OUT)),
            Production("NearestFloat", (SUMS,), MADE),
            Production("Mul", (MADE, SCALE), SCALED),
            *(Production("Mul", (LATER, SCALE), sort) for sort in (LAST, OUT)),
            *(each for each in more if isinstance(each, Production)),
        ),
        (1, 1, 1, 1, 1),
        free=frozenset({BIAS, LOW}),
        exact=False,
        roots=frozenset({OUT}),
        chain=True,
        by_example=True,
    )


def _moved_codes(
    name: str,
    dims: str,
    sizes: tuple[int, ...],
    op: str,
    *places: Input,
    ranks: tuple[int, ...] = (0,),
    **how: Attribute,
) -> Vocabulary:
    """Codes that are moved before they become reals or behind, and reals before they are codes.

    One scale and one zero are those of all elements, wherever they are.
    """
    moves = choices(**{key: [value] for key, value in how.items()})
    more = tuple(item.sort for item in places)
    return Vocabulary(
        name,
        (
            Input("x", CODED, dims, sizes, dtype=TYPES[SIGNED]),
            Input("y", X, dims, sizes),
            Input("s", SCALE, "", ()),
            Input("z", ZERO, "", (), dtype=TYPES[SIGNED]),
            *places,
        ),
        (
            Production(op, (CODED, *more), MOVED, moves),
            Production("DequantizeLinear", (MOVED, SCALE, ZERO), OUT),
            Production("DequantizeLinear", (CODED, SCALE, ZERO), MADE),
            Production(op, (MADE, *more), OUT, moves),
            Production(op, (X, *more), LATER, moves),
            Production("QuantizeLinear", (LATER, SCALE, ZERO), OUT, choices(to=[SIGNED])),
            Production("QuantizeLinear", (X, SCALE, ZERO), LAST, choices(to=[SIGNED])),
            Production(op, (LAST, *more), OUT, moves),
        ),
        (0,) * 3,
        free=frozenset({ZERO, SCALE, *more}),
        exact=False,
        ranks=ranks,
        roots=frozenset({OUT}),
        by_example=not ranks[-1],
    )


CODES_MOVED = (
    _moved_codes("codes with turned axes", "B n m", (2, N, K), "Transpose", perm=(0, 2, 1)),
    _moved_codes("codes of heads", "B n h d", (2, N, 5, K), "Transpose", perm=(0, 2, 1, 3)),
    _moved_codes("codes, channels last", "N C H W", (2, N, 5, K), "Transpose", perm=(0, 2, 3, 1)),
    _moved_codes("codes, channels first", "N H W C", (2, N, 5, K), "Transpose", perm=(0, 3, 1, 2)),
    _moved_codes("codes of rows split", "n M", (N, 5 * K), "Reshape", shape=(N, 5, K)),
    _moved_codes("codes split", "B n M", (2, N, 5 * K), "Reshape", shape=(2, N, 5, K)),
    _moved_codes("codes merged", "B n h d", (2, N, 5, K), "Reshape", shape=(2, N, 5 * K)),
    _moved_codes(
        "gathered codes",
        "v *D",
        (N, K),
        "Gather",
        Input("i", "places", "l", (2,), dtype="INT64"),
        ranks=RANKS,
        axis=0,
    ),
)
SCALED_CODES = Vocabulary(
    "codes and their scale",
    (
        Input("x", X, "*S", (S,), dtype=TYPES[UNSIGNED]),
        Input("s", SCALE, "", ()),
        Input("z", ZERO, "", (), dtype=TYPES[UNSIGNED]),
    ),
    (
        numbers("one", 1),
        Production("DequantizeLinear", (X, "one", ZERO), MADE),
        Production("DequantizeLinear", (X, SCALE, ZERO), OUT),
        Production("Mul", (MADE, SCALE), OUT),
    ),
    (1, 1, 1),
    free=frozenset({ZERO, SCALE}),
    exact=False,
    ranks=RANKS,
    roots=frozenset({OUT}),
)


def _pixels(name: str, sizes: tuple[int, ...], *more: Production) -> Vocabulary:
    """Convolutions of one pixel, of images of these sizes, and products of matrices."""
    return Vocabulary(
        name,
        (
            Input("x", X, "N C H W", sizes, dtype=TYPES[UNSIGNED]),
            Input("w", KERNEL, "O C 1 1", (K, C, 1, 1), dtype=TYPES[UNSIGNED]),
            *(Input(name, sort, "", (), dtype=TYPES[UNSIGNED]) for name, sort in POINTS),
        ),
        (
            Production("Squeeze", (KERNEL,), MATRIX, choices(axes=[(2, 3)])),
            Production("Transpose", (MATRIX,), TURNED, choices(perm=[(1, 0)])),
            Production("ConvInteger", (X, KERNEL, ZERO, SHIFT), OUT),
            *more,
        ),
        (2, 2, 2, 2),
        free=frozenset({KERNEL, SHIFT, ZERO, MATRIX, TURNED}),
        ranks=(2,),
        roots=frozenset({OUT}),
        chain=True,
        by_example=True,
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
        _pixels(
            "pixels of codes, channels last",
            (N, C, S, S),
            Production("Transpose", (X,), ROWS, choices(perm=[(0, 2, 3, 1)])),
            Production("MatMulInteger", (ROWS, TURNED, ZERO, SHIFT), MADE),
            Production("Transpose", (MADE,), OUT, choices(perm=[(0, 3, 1, 2)])),
        ),
        _pixels(
            "pixels of codes, in one axis",
            (N, C, 2, S),
            Production("Reshape", (X,), ROWS, choices(shape=[(N, C, 2 * S)])),
            Production("MatMulInteger", (MATRIX, ROWS, SHIFT, ZERO), MADE),
            Production("Reshape", (MADE,), OUT, choices(shape=[(N, K, 2, S)])),
        ),
        _pixels(
            "one pixel of codes",
            (N, C, 1, 1),
            Production("Squeeze", (X,), ROWS, choices(axes=[(2, 3)])),
            Production("MatMulInteger", (ROWS, TURNED, ZERO, SHIFT), MADE),
            Production("Unsqueeze", (MADE,), OUT, choices(axes=[(2, 3)])),
        ),
        _moved(
            "sums, channels last", "N H W K", (N, 2, S, K), "Transpose", *SHIFTS, perm=(0, 3, 1, 2)
        ),
        _moved("sums in one axis", "N K L", (N, K, 2 * S), "Reshape", shape=(N, K, 2, S)),
        _moved("sums of one pixel", "N K", (N, K), "Unsqueeze", *SHIFTS, axes=(2, 3)),
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
        *CODES_MOVED,
        SCALED_CODES,
        _weights("codes of weights", "*S", "", 0),
        _weights("codes of weights, channels first", "O *S", "O", 0),
        _weights("codes of weights, channels second", "I O *S", "O", 1),
    ),
    about="quantized numbers: codes of reals, and products of 8-bit integers",
)
