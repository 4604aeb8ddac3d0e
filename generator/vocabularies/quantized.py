"""Vocabularies of 8-bit integers, which have a sign or none: codes of reals, and products of them.

The runtime has kernels for both: those for weights with a sign are much slower on some processors,
and there what is quantized with a sign is not fused into the operators that compute with codes.
A convolution of one pixel is a product of matrices, by which the runtime's kernel can have the
weights packed before, and into which it fuses what makes reals of the sums.

`zero` and `shift` are the codes of 0 of images and of weights.
"""

from __future__ import annotations

from functools import partial

from xflow.generator.equations import steps
from xflow.generator.vocabularies.common import OUT, X, scalar
from xflow.generator.vocabularies.convolutions import KERNEL, SPATIAL, C, S
from xflow.generator.vocabulary import Family, Input, Vocabulary
from xflow.ops.quantized import SIGNED, TYPES, UNSIGNED

ZERO, SHIFT, SCALE = "zero", "shift", "scale"
N, K = 3, 7
RANKS = (0, 1, 2, 3)
RECODED = f'to="{SIGNED}" | "{UNSIGNED}"'

signed = partial(Input, dtype=TYPES[SIGNED])
unsigned = partial(Input, dtype=TYPES[UNSIGNED])
integers = partial(Vocabulary, roots=frozenset({OUT}))
rounded = partial(integers, exact=False)
"""Vocabularies of integers, and of reals, to which codes are rounded."""

IMAGES = (
    unsigned("x", X, "N C *S", (2, C, S)),
    signed("w", KERNEL, "O I *R", (C, C, 3)),
    unsigned("z", ZERO, "", ()),
    signed("v", SHIFT, "", ()),
)
CONVOLVED = integers(
    "images of codes",
    IMAGES,
    steps(f"""
        kernel = Recoded(kernel, {RECODED})
        shift = Recoded(shift, {RECODED})
        out = ConvInteger(x, kernel, [zero], [shift])
    """),
    (1, 2),
    free=frozenset({KERNEL, ZERO, SHIFT}),
    ranks=SPATIAL,
)
IN_FLOATS = integers(
    "sums of codes in floats",
    IMAGES,
    steps("""
        image, weights, level, offset = Cast((x, kernel, zero, shift), to="FLOAT")
        image = Sub(image, level)
        weights = Sub(weights, offset)
        out = Conv(image, weights)
        sums = ConvInteger(x, kernel, [zero], [shift])
        out = NearestFloat(sums)
    """),
    (4, 4, 4, 4),
    free=frozenset({KERNEL, ZERO, SHIFT}),
    ranks=SPATIAL,
)


def _pixels(name: str, sizes: tuple[int, ...], text: str) -> Vocabulary:
    """Convolutions of one pixel, of images of these sizes, and products of matrices."""
    return integers(
        name,
        (
            unsigned("x", X, "N C H W", sizes),
            unsigned("w", KERNEL, "O C 1 1", (K, C, 1, 1)),
            unsigned("z", ZERO, "", ()),
            unsigned("v", SHIFT, "", ()),
        ),
        (
            *steps("""
                matrix = Squeeze(kernel, axes=(2, 3))
                turned = Transpose(matrix, perm=(1, 0))
                out = ConvInteger(x, kernel, zero, shift)
            """),
            *steps(text),
        ),
        (2, 2, 2, 2),
        free=frozenset({KERNEL, SHIFT, ZERO}),
        ranks=(2,),
        chain=True,
        by_example=True,
    )


PIXELS = (
    _pixels(
        "pixels of codes, channels last",
        (N, C, S, S),
        """
            rows = Transpose(x, perm=(0, 2, 3, 1))
            made = MatMulInteger(rows, turned, zero, shift)
            out = Transpose(made, perm=(0, 3, 1, 2))
        """,
    ),
    _pixels(
        "pixels of codes, in one axis",
        (N, C, 2, S),
        f"""
            rows = Reshape(x, shape={(N, C, 2 * S)})
            made = MatMulInteger(matrix, rows, shift, zero)
            out = Reshape(made, shape={(N, K, 2, S)})
        """,
    ),
    _pixels(
        "one pixel of codes",
        (N, C, 1, 1),
        """
            rows = Squeeze(x, axes=(2, 3))
            made = MatMulInteger(rows, turned, zero, shift)
            out = Unsqueeze(made, axes=(2, 3))
        """,
    ),
)


def _moved_sums(
    name: str, dims: str, sizes: tuple[int, ...], op: str, way: str, *, biased: bool = True
) -> Vocabulary:
    """Sums of codes that are moved, before or after they become floats and are scaled.

    With a bias, which is a number for each channel, before or behind that.
    """
    sums = (Input("k", "sums", dims, sizes, dtype="INT64"), scalar("s", SCALE))
    bias = Input("b", "bias", "1 K 1 1", (1, K, 1, 1))
    shifts = """
        low = Squeeze(bias, axes=(0, 2, 3))
        scaled = Add(scaled, low)
        out = Add(moved_and_scaled, bias)
    """
    return rounded(
        name,
        (*sums, bias) if biased else sums,
        (
            *steps(f"""
                moved = {op}(sums, {way})
                out = {op}(made | scaled, {way})
                moved_floats, out = NearestFloat(moved)
                made = NearestFloat(sums)
                scaled = Mul(made, scale)
                moved_and_scaled, out = Mul(moved_floats, scale)
            """),
            *(steps(shifts) if biased else ()),
        ),
        (1, 1, 1, 1, 1),
        free=frozenset({"bias", "low"}),
        chain=True,
        by_example=True,
    )


SUMS = (
    _moved_sums("sums, channels last", "N H W K", (N, 2, S, K), "Transpose", "perm=(0, 3, 1, 2)"),
    _moved_sums(
        "sums in one axis", "N K L", (N, K, 2 * S), "Reshape", f"shape={(N, K, 2, S)}", biased=False
    ),
    _moved_sums("sums of one pixel", "N K", (N, K), "Unsqueeze", "axes=(2, 3)"),
)


def _moved_codes(
    name: str,
    dims: str,
    sizes: tuple[int, ...],
    op: str,
    way: str,
    *places: Input,
    ranks: tuple[int, ...] = (0,),
) -> Vocabulary:
    """Codes that are moved before they become reals or behind, and reals before they are codes.

    One scale and one zero are those of all elements, wherever they are.
    """
    return rounded(
        name,
        (
            signed("x", "coded", dims, sizes),
            Input("y", X, dims, sizes),
            scalar("s", SCALE),
            signed("z", ZERO, "", ()),
            *places,
        ),
        steps(f"""
            moved = {op}(coded, {way})
            out = DequantizeLinear(moved, scale, zero)
            made = DequantizeLinear(coded, scale, zero)
            out = {op}(made, {way})
            moved_reals = {op}(x, {way})
            out = QuantizeLinear(moved_reals, scale, zero, to="{SIGNED}")
            codes = QuantizeLinear(x, scale, zero, to="{SIGNED}")
            out = {op}(codes, {way})
        """),
        (0,) * 3,
        free=frozenset({ZERO, SCALE, *(item.sort for item in places)}),
        ranks=ranks,
        by_example=not ranks[-1],
    )


H, D = 5, 7
CODES = (
    _moved_codes("codes with turned axes", "B n m", (2, N, D), "Transpose", "perm=(0, 2, 1)"),
    _moved_codes("codes of heads", "B n h d", (2, N, H, D), "Transpose", "perm=(0, 2, 1, 3)"),
    _moved_codes("codes, channels last", "N C H W", (2, N, H, D), "Transpose", "perm=(0, 2, 3, 1)"),
    _moved_codes(
        "codes, channels first", "N H W C", (2, N, H, D), "Transpose", "perm=(0, 3, 1, 2)"
    ),
    _moved_codes("codes of rows split", "n M", (N, H * D), "Reshape", f"shape={(N, H, D)}"),
    _moved_codes("codes split", "B n M", (2, N, H * D), "Reshape", f"shape={(2, N, H, D)}"),
    _moved_codes("codes merged", "B n h d", (2, N, H, D), "Reshape", f"shape={(2, N, H * D)}"),
    _moved_codes(
        "gathered codes",
        "v *D",
        (N, D),
        "Gather",
        "places, axis=0",
        Input("i", "places", "l", (2,), dtype="INT64"),
        ranks=RANKS,
    ),
)
RECODED_IMAGES = rounded(
    "codes of images",
    (
        Input("x", X, "*S", (S,)),
        scalar("s", SCALE),
        signed("z", ZERO, "", ()),
        scalar("t", "step"),
        signed("v", SHIFT, "", ()),
    ),
    steps(f"""
        zero = Recoded(zero, {RECODED})
        shift = Recoded(shift, {RECODED})
        coded = QuantizeLinear(x, scale, zero, {RECODED})
        out = DequantizeLinear(coded, step, shift)
    """),
    (1, 1, 2),
    free=frozenset({ZERO, SHIFT}),
    ranks=RANKS,
)
DIFFERENCES = integers(
    "differences of codes",
    (unsigned("x", X, "*S", (S,)), unsigned("z", ZERO, "", ())),
    steps("""
        image, level = Cast((x, zero), to="FLOAT")
        out = Sub(image, level)
        scale = 1
        out = DequantizeLinear(x, scale, zero)
    """),
    (1, 1, 1),
    free=frozenset({ZERO}),
    ranks=RANKS,
)
SCALED = rounded(
    "codes and their scale",
    (unsigned("x", X, "*S", (S,)), scalar("s", SCALE), unsigned("z", ZERO, "", ())),
    steps("""
        one = 1
        made = DequantizeLinear(x, one, zero)
        out = DequantizeLinear(x, scale, zero) | Mul(made, scale)
    """),
    (1, 1, 1),
    free=frozenset({ZERO, SCALE}),
    ranks=RANKS,
)


def _weights(name: str, dims: str, channels: str, axis: int) -> Vocabulary:
    """Codes of constants, with a scale for all of them or one for each channel."""
    axes = len(dims.split())
    each = (N,) if channels else ()
    return integers(
        name,
        (
            signed("w", KERNEL, dims, (N,) * (axes - 1) + (S,)),
            Input("s", SCALE, channels, each),
            signed("z", ZERO, channels, each),
        ),
        steps(f"""
            kernel = Recoded(kernel, {RECODED})
            zero = Recoded(zero, {RECODED})
            out = DequantizeLinear(kernel, scale, zero, axis={axis})
        """),
        (1, 2),
        free=frozenset({KERNEL, ZERO}),
        ranks=RANKS[: len(RANKS) - axes + 1],
    )


QUANTIZED = Family(
    "quantized",
    (
        *(CONVOLVED, *PIXELS, *SUMS, RECODED_IMAGES, IN_FLOATS, DIFFERENCES, *CODES, SCALED),
        _weights("codes of weights", "*S", "", 0),
        _weights("codes of weights, channels first", "O *S", "O", 0),
        _weights("codes of weights, channels second", "I O *S", "O", 1),
    ),
    about="quantized numbers: codes of reals, and products of 8-bit integers",
)
