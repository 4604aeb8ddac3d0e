"""Vocabularies of 8-bit integers, which have a sign or none: codes of reals, and products of them.

The runtime has kernels for both: those for weights with a sign are much slower on some processors,
and there what is quantized with a sign is not fused into the operators that compute with codes.
A convolution of one pixel is a product of matrices, by which the runtime's kernel can have the
weights packed before, and into which it fuses what makes reals of the sums.

`zero` and `shift` are the codes of 0 of images and of weights.
"""

from __future__ import annotations

from functools import partial

from xflow.generator.vocabularies.common import X, sorts, tensors
from xflow.generator.vocabularies.convolutions import SPATIAL, C, S
from xflow.generator.vocabulary import Family, Input, Vocabulary
from xflow.ops.quantized import SIGNED, TYPES, UNSIGNED

B, N, K = 2, 3, 7
RANKS = (0, 1, 2, 3)
RECODED = f'to="{SIGNED}" | "{UNSIGNED}"'

integers = partial(Vocabulary, roots=sorts("out"))
rounded = partial(integers, exact=False)
"""Vocabularies of integers, and of reals, to which codes are rounded."""
POINTS = sorts("zero shift")
WEIGHTS = POINTS | {"kernel"}

IMAGES = tensors(
    "x: x[N C *S] UINT8  kernel: w[O I *R] INT8  zero: z[] UINT8  shift: v[] INT8",
    **{"N": B, "C": C, "S": S, "O": C, "I": C, "R": 3},
)
of_images = partial(integers, free=WEIGHTS, ranks=SPATIAL)
CONVOLVED = of_images("images of codes", IMAGES, limits=(1, 2)).steps(f"""
    kernel, shift = Recoded((kernel, shift), {RECODED})
    out = ConvInteger(x, kernel, [zero], [shift])
""")
IN_FLOATS = of_images("sums of codes in floats", IMAGES, limits=(4, 4, 4, 4)).steps("""
    image, weights, level, offset = Cast((x, kernel, zero, shift), to="FLOAT")
    image, weights = Sub((image, weights), (level, offset))
    out = Conv(image, weights)
    sums = ConvInteger(x, kernel, [zero], [shift])
    out = NearestFloat(sums)
""")


def _pixels(name: str, rows: int, columns: int, text: str) -> Vocabulary:
    """Convolutions of one pixel, of images of so many, and products of matrices."""
    return integers(
        name,
        tensors(
            "x: x[N C H W] UINT8  kernel: w[O C 1 1] UINT8  zero: z[] UINT8  shift: v[] UINT8",
            **{"N": N, "C": C, "H": rows, "W": columns, "O": K},
        ),
        limits=(2, 2, 2, 2),
        free=WEIGHTS,
        ranks=(2,),
        chain=True,
        by_example=True,
    ).steps(
        """
        matrix = Squeeze(kernel, axes=(2, 3))
        turned = Transpose(matrix, perm=(1, 0))
        out = ConvInteger(x, kernel, zero, shift)
        """,
        text,
    )


CHANNELS_LAST = """
    rows = Transpose(x, perm=(0, 2, 3, 1))
    made = MatMulInteger(rows, turned, zero, shift)
    out = Transpose(made, perm=(0, 3, 1, 2))
"""
IN_ONE_AXIS = f"""
    rows = Reshape(x, shape={(N, C, 2 * S)})
    made = MatMulInteger(matrix, rows, shift, zero)
    out = Reshape(made, shape={(N, K, 2, S)})
"""
ONE_PIXEL = """
    rows = Squeeze(x, axes=(2, 3))
    made = MatMulInteger(rows, turned, zero, shift)
    out = Unsqueeze(made, axes=(2, 3))
"""


def _moved_sums(name: str, dims: str, op: str, way: str, *, biased: bool = True) -> Vocabulary:
    """Sums of codes that are moved, before or after they become floats and are scaled.

    With a bias, which is a number for each channel, before or behind that.
    """
    bias = "bias: b[1 K 1 1]" if biased else ""
    shifts = """
        low = Squeeze(bias, axes=(0, 2, 3))
        scaled = Add(scaled, low)
        out = Add(moved_and_scaled, bias)
    """
    return rounded(
        name,
        tensors(
            f"sums: k[{dims}] INT64  scale: s[] {bias}",
            **{"N": N, "K": K, "H": 2, "W": S, "L": 2 * S},
        ),
        limits=(1, 1, 1, 1, 1),
        free=sorts("bias"),
        chain=True,
        by_example=True,
    ).steps(
        f"""
        moved = {op}(sums, {way})
        out = {op}(made | scaled, {way})
        moved_floats, out = NearestFloat(moved)
        made = NearestFloat(sums)
        scaled = Mul(made, scale)
        moved_and_scaled, out = Mul(moved_floats, scale)
        """,
        shifts if biased else "",
    )


SUMS = (
    _moved_sums("sums, channels last", "N H W K", "Transpose", "perm=(0, 3, 1, 2)"),
    _moved_sums("sums in one axis", "N K L", "Reshape", f"shape={(N, K, 2, S)}", biased=False),
    _moved_sums("sums of one pixel", "N K", "Unsqueeze", "axes=(2, 3)"),
)


def _moved_codes(
    name: str,
    dims: str,
    sizes: tuple[int, ...],
    move: str,
    *places: Input,
    ranks: tuple[int, ...] = (0,),
) -> Vocabulary:
    """Codes that are moved before they become reals or behind, and reals before they are codes.

    One scale and one zero are those of all elements, wherever they are.
    """
    op, way = move.split(" ", 1)
    return rounded(
        name,
        (
            Input("x", "coded", dims, sizes, dtype=TYPES[SIGNED]),
            Input("y", X, dims, sizes),
            *tensors("scale: s[]  zero: z[] INT8  shift: v[] UINT8"),
            *places,
        ),
        free=POINTS | {"scale", *(item.sort for item in places)},
        ranks=ranks,
        by_example=not ranks[-1],
    ).steps(f"""
        moved = {op}(coded, {way})
        out = DequantizeLinear(moved, scale, zero)
        made = DequantizeLinear(coded, scale, zero)
        out = {op}(made, {way})
        moved_reals = {op}(x, {way})
        out, codes = QuantizeLinear((moved_reals, x), scale, zero, to="{SIGNED}")
        out, codes = QuantizeLinear((moved_reals, x), scale, shift, to="{UNSIGNED}")
        out = {op}(codes, {way})
    """)


H, D = 5, 7
CODES = (
    _moved_codes("codes with turned axes", "B n m", (B, N, D), "Transpose perm=(0, 2, 1)"),
    _moved_codes("codes of matrices", "n m", (N, D), "Transpose perm=(1, 0)"),
    _moved_codes("codes of heads", "B n h d", (B, N, H, D), "Transpose perm=(0, 2, 1, 3)"),
    _moved_codes("codes, channels last", "N C H W", (B, N, H, D), "Transpose perm=(0, 2, 3, 1)"),
    _moved_codes("codes, channels first", "N H W C", (B, N, H, D), "Transpose perm=(0, 3, 1, 2)"),
    _moved_codes("codes of rows split", "n M", (N, H * D), f"Reshape shape={(N, H, D)}"),
    _moved_codes("codes split", "B n M", (B, N, H * D), f"Reshape shape={(B, N, H, D)}"),
    _moved_codes("codes merged", "B n h d", (B, N, H, D), f"Reshape shape={(B, N, H * D)}"),
    _moved_codes(
        "gathered codes",
        "v *D",
        (N, D),
        "Gather places, axis=0",
        *tensors("places: i[l] INT64", l=2),
        ranks=RANKS,
    ),
)
JOINED = rounded(
    "codes side by side",
    tensors("coded: x[*B n] INT8 y[*B n] INT8  scale: s[]  zero: z[] INT8", B=N, n=K),
    limits=(0,) * 4,
    free=sorts("zero scale"),
    ranks=RANKS,
    searched=False,
).steps("""
    both = Concat(coded, coded, axis=1)
    out = DequantizeLinear(both, scale, zero)
    made = DequantizeLinear(coded, scale, zero)
    out = Concat(made, made, axis=1)
""")
PARALLEL = integers(
    "products of codes side by side",
    tensors(
        """
        x: x[*B l n] UINT8  matrix: w[n m] UINT8 u[n m] UINT8
        zero: z[] UINT8  shift: v[] UINT8
        """,
        **{"B": B, "l": N, "n": N, "m": N},
    ),
    limits=(1,) * 4,
    free=POINTS | {"matrix"},
    ranks=RANKS[:3],
).steps("""
    both = Concat(matrix, matrix, axis=1)
    made, out = MatMulInteger(x, (matrix, both), [zero], [shift])
    out = Concat(made, made, axis=2)
""")
RECODED_IMAGES = rounded(
    "codes of images",
    tensors("x: x[*S]  scale: s[]  zero: z[] INT8  step: t[]  shift: v[] INT8", S=S),
    limits=(1, 1, 2),
    free=POINTS,
    ranks=RANKS,
).steps(f"""
    zero, shift = Recoded((zero, shift), {RECODED})
    coded = QuantizeLinear(x, scale, zero, {RECODED})
    out = DequantizeLinear(coded, step, shift)
""")
DIFFERENCES = integers(
    "differences of codes",
    tensors("x: x[*S] UINT8  zero: z[] UINT8", S=S),
    limits=(1, 1, 1),
    free=sorts("zero"),
    ranks=RANKS,
).steps("""
    image, level = Cast((x, zero), to="FLOAT")
    out = Sub(image, level)
    scale = 1
    out = DequantizeLinear(x, scale, zero)
""")
SCALED = rounded(
    "codes and their scale",
    tensors("x: x[*S] UINT8  scale: s[]  zero: z[] UINT8", S=S),
    limits=(1, 1, 1),
    free=sorts("zero scale"),
    ranks=RANKS,
).steps("""
    one = 1
    made = DequantizeLinear(x, one, zero)
    out = DequantizeLinear(x, scale, zero) | Mul(made, scale)
""")


def _weights(name: str, dims: str, channels: str, axis: int) -> Vocabulary:
    """Codes of constants, with a scale for all of them or one for each channel."""
    return integers(
        name,
        tensors(
            f"kernel: w[{dims}] INT8  scale: s[{channels}]  zero: z[{channels}] INT8",
            **{"O": N, "I": N, "S": S},
        ),
        limits=(1, 2),
        free=sorts("kernel zero"),
        ranks=RANKS[: len(RANKS) - len(dims.split()) + 1],
    ).steps(f"""
        kernel, zero = Recoded((kernel, zero), {RECODED})
        out = DequantizeLinear(kernel, scale, zero, axis={axis})
    """)


QUANTIZED = Family(
    "quantized",
    (
        CONVOLVED,
        _pixels("pixels of codes, channels last", S, S, CHANNELS_LAST),
        _pixels("pixels of codes, in one axis", 2, S, IN_ONE_AXIS),
        _pixels("one pixel of codes", 1, 1, ONE_PIXEL),
        *(*SUMS, RECODED_IMAGES, IN_FLOATS, DIFFERENCES, *CODES, JOINED, PARALLEL, SCALED),
        _weights("codes of weights", "*S", "", 0),
        _weights("codes of weights, channels first", "O *S", "O", 0),
        _weights("codes of weights, channels second", "I O *S", "O", 1),
    ),
    about="quantized numbers: codes of reals, and products of 8-bit integers",
)
