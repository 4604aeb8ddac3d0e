"""Vocabularies of images with surplus channels: slices moved past operators on each channel.

A runtime that computes images in blocks of channels pays for the last block as for a full one. So a
convolution may as well make more channels than are needed (`p` more, with kernels of zeros), and
the part that is needed is taken where zeros in the next kernel take it for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xflow.core.registry import Attribute
from xflow.generator.vocabularies.channels import SAME, X_INPUT, Y_INPUT
from xflow.generator.vocabularies.common import OUT, SYMBOL, X, applied, pointwise
from xflow.generator.vocabularies.convolutions import BIAS, FREE, KERNEL, SCALE, SPATIAL, C, S
from xflow.generator.vocabularies.pools import WINDOW
from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

WIDE, PART, MADE = "wide", "part", "made"
FEW, MANY = (3, 4), (5, 6, 7)
"""Channels that are needed and that there are: several, to show that they are free."""
MORE = tuple(range(MANY[0] - FEW[-1], MANY[-1] - FEW[0] + 1))
"""The numbers of surplus channels."""


def _sized(name: str, sort: str, dims: str, *sizes: tuple[int, ...]) -> tuple[Input, ...]:
    """Inputs that differ in their sizes."""
    return tuple(Input(f"{name}{n}", sort, dims, size) for n, size in enumerate(sizes))


def _zeros(rank: int, axis: int) -> tuple[dict[str, Attribute], ...]:
    """Zeros behind what there is along an axis."""
    pads = [tuple(p if i == rank + axis else 0 for i in range(2 * rank)) for p in MORE]
    return choices(pads=pads)


def _ranges(axis: int) -> tuple[dict[str, Attribute], ...]:
    """Some of the kernels, and what they make."""
    starts, ends = [(0,), (1,), (2,)], [(3,), (4,), (5,)]
    return choices(starts=starts, ends=ends, axes=[(axis,)], steps=[(1,)])


def _depths(middle: int, end: int) -> tuple[dict[str, Attribute], ...]:
    """The first and the other channels of kernels."""
    rest = choices(starts=[(middle,)], ends=[(end,)], axes=[(1,)], steps=[(1,)])
    return (*choices(starts=[(0,)], ends=[(middle,)], axes=[(1,)], steps=[(1,)]), *rest)


IMAGES = _sized("x", WIDE, "N D *S", *((2, d, S) for d in MANY))
NEEDED = choices(starts=[(0,)], ends=[(c,) for c in FEW], axes=[(1,)], steps=[(1,)])
SOME = choices(starts=[(1,)], ends=[(3,)], axes=[(1,)], steps=[(1,)])
POINTS: tuple[tuple[str, tuple[dict[str, Attribute], ...]], ...] = (
    ("MaxPool", WINDOW),
    ("AveragePool", WINDOW),
    ("AveragePool", tuple({**window, "count_include_pad": 1} for window in WINDOW)),
    ("GlobalAveragePool", ({},)),
    ("GlobalMaxPool", ({},)),
    ("Pad", choices(pads=[(0, 0, 1, 0, 0, 2)])),
    ("Slice", choices(starts=[(1,)], ends=[(5,)], axes=[(2,)], steps=[(1,)])),
)
STAGES = ((X, MADE), (PART, OUT))
PARTS = Vocabulary(
    "parts of channels",
    (X_INPUT, Y_INPUT),
    (
        Production("Slice", (X,), PART, SOME),
        Production("Slice", (MADE,), OUT, SOME),
        *(
            Production(op, (sort,), result, lists)
            for op, lists in POINTS
            for sort, result in STAGES
        ),
        *(pointwise(result, sort, *second) for sort, result in STAGES for second in ((), (sort,))),
    ),
    (0, 0, 0, 0),
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)

NORM = ("scale of norm", "shift", "mean", "variance")
CONSTANTS = Vocabulary(
    "constants of padded channels",
    (
        *IMAGES,
        *_sized("r", SCALE, "1 C *1", *((1, c, 1) for c in FEW)),
        *_sized("a", "flat", "C *1", *((c, 1) for c in FEW)),
        *(
            replace(item, positive=sort == NORM[-1])
            for name, sort in zip("stuv", NORM, strict=True)
            for item in _sized(name, sort, "C", *((c,) for c in FEW))
        ),
    ),
    (
        Production("Slice", (WIDE,), PART, NEEDED),
        Production("Slice", (MADE,), OUT, NEEDED),
        Production("Pad", (SCALE,), "wide scale", _zeros(3, 1)),
        Production("Pad", ("flat",), "wide flat", _zeros(2, 0)),
        *(Production("Pad", (sort,), f"wide {sort}", _zeros(1, 0)) for sort in NORM),
        *(
            pointwise(result, x, sort)
            for kind in (SCALE, "flat")
            for x, sort, result in ((PART, kind, OUT), (WIDE, f"wide {kind}", MADE))
        ),
        Production("BatchNormalization", (PART, *NORM), OUT, SAME),
        Production("BatchNormalization", (WIDE, *(f"wide {sort}" for sort in NORM)), MADE, SAME),
    ),
    (1, 4, 4),
    free=FREE | {"flat", "wide scale", "wide flat", *NORM, *(f"wide {sort}" for sort in NORM)},
    exact=False,
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    reals={SYMBOL: "epsilon"},
)

STEPS = choices(pads=[(1, 0)], strides=[(2,)])


def convolved(
    sort: str, kernel: str, bias: str, result: str, groups: Sequence[Attribute] = (1,)
) -> tuple[Production, ...]:
    """Convolutions with and without a bias."""
    lists = tuple({**steps, "group": group} for steps in STEPS for group in groups)
    return (
        Production("Conv", (sort, kernel), result, lists),
        Production("Conv", (sort, kernel, bias), result, lists),
    )


MORE_KERNELS = Vocabulary(
    "kernels of more channels",
    (
        X_INPUT,
        Input("w", KERNEL, "O I *R", (C, C, 3)),
        Input("b", BIAS, "O", (C,)),
    ),
    (
        Production("Pad", (KERNEL,), "more kernels", _zeros(3, 0)),
        Production("Pad", (BIAS,), "more biases", _zeros(1, 0)),
        *convolved(X, "more kernels", "more biases", MADE),
        Production("Slice", (MADE,), OUT, NEEDED[-1:]),
        *convolved(X, KERNEL, BIAS, OUT),
    ),
    (1, 2, 2),
    free=FREE | {"more kernels", "more biases"},
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    by_example=True,
)

DEEPER_KERNELS = Vocabulary(
    "kernels that read more channels",
    (
        *IMAGES,
        *_sized("w", KERNEL, "O I *R", *((C, c, 3) for c in FEW)),
        Input("b", BIAS, "O", (C,)),
    ),
    (
        Production("Slice", (WIDE,), PART, NEEDED),
        *convolved(PART, KERNEL, BIAS, OUT),
        Production("Pad", (KERNEL,), "deeper kernels", _zeros(3, 1)),
        *convolved(WIDE, "deeper kernels", BIAS, OUT),
    ),
    (1, 1, 0),
    free=FREE | {"deeper kernels"},
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)

SOME_KERNELS = Vocabulary(
    "parts of kernels",
    (X_INPUT, Input("w", KERNEL, "O I *R", (C + 2, C, 3)), Input("b", BIAS, "O", (C + 2,))),
    (
        *convolved(X, KERNEL, BIAS, MADE),
        Production("Slice", (MADE,), OUT, _ranges(1)),
        Production("Slice", (KERNEL,), "some kernels", _ranges(0)),
        Production("Slice", (BIAS,), "some biases", _ranges(0)),
        *convolved(X, "some kernels", "some biases", OUT),
    ),
    (1, 2, 0),
    free=FREE | {"some kernels", "some biases"},
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    by_example=True,
)

DEPTHWISE = Vocabulary(
    "depthwise convolutions of padded channels",
    (
        *IMAGES,
        *_sized("w", KERNEL, "C 1 *R", *((c, 1, 3) for c in FEW)),
        *_sized("b", BIAS, "C", *((c,) for c in FEW)),
    ),
    (
        Production("Slice", (WIDE,), PART, NEEDED),
        *convolved(PART, KERNEL, BIAS, OUT, FEW),
        Production("Pad", (KERNEL,), "more kernels", _zeros(3, 0)),
        Production("Pad", (BIAS,), "more biases", _zeros(1, 0)),
        *convolved(WIDE, "more kernels", "more biases", MADE, MANY),
        Production("Slice", (MADE,), OUT, NEEDED),
    ),
    (1, 2, 2),
    free=FREE | {"more kernels", "more biases"},
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    by_example=True,
)

CONVOLVED_JOINTS = Vocabulary(
    "convolutions of images side by side",
    (
        *_sized("x", X, "N C *S", *((2, c, S) for c in FEW)),
        *_sized("y", X, "N C *S", *((2, c, S) for c in FEW)),
        Input("w", KERNEL, "O I *R", (C, sum(FEW), 3)),
        Input("b", BIAS, "O", (C,)),
    ),
    (
        Production("Concat", (X, X), "joined", choices(axis=[1])),
        *convolved("joined", KERNEL, BIAS, OUT),
        *(
            Production("Slice", (KERNEL,), sort, (cut,))
            for middle in FEW
            for sort, cut in zip(("first", "second"), _depths(middle, sum(FEW)), strict=True)
        ),
        *convolved(X, "first", BIAS, PART),
        Production("Conv", (X, "second"), "other part", STEPS),
        applied("Add", PART, "other part", OUT),
    ),
    (1, 1, 1, 2),
    free=FREE | {"first", "second"},
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)

WIDE_JOINTS = Vocabulary(
    "padded channels side by side with others",
    (
        *IMAGES,
        Input("y", X, "N C *S", (2, C, S)),
        *_sized("w", KERNEL, "O I *R", *((C, c + C, 3) for c in FEW)),
        Input("b", BIAS, "O", (C,)),
    ),
    (
        Production("Slice", (WIDE,), PART, NEEDED),
        Production("Concat", (PART, X), "joined", choices(axis=[1])),
        Production("Concat", (X, PART), "joined", choices(axis=[1])),
        *convolved("joined", KERNEL, BIAS, OUT),
        *(
            Production("Slice", (KERNEL,), sort, (cut,))
            for few in FEW
            for sort, cut in zip(("first", "second"), _depths(few, few + C), strict=True)
        ),
        Production("Pad", ("first",), "padded first", _zeros(3, 1)),
        Production("Concat", ("padded first", "second"), "deeper kernels", choices(axis=[1])),
        Production("Pad", (KERNEL,), "deeper kernels", _zeros(3, 1)),
        Production("Concat", (WIDE, X), "all", choices(axis=[1])),
        Production("Concat", (X, WIDE), "all", choices(axis=[1])),
        *convolved("all", "deeper kernels", BIAS, OUT),
    ),
    (4, 4, 4, 0),
    free=FREE | {"first", "second", "padded first", "deeper kernels"},
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)

JOINTS = Vocabulary(
    "padded channels behind others",
    (*IMAGES, Input("y", X, "N C *S", (2, 2, S))),
    (
        Production("Slice", (WIDE,), PART, NEEDED),
        Production("Concat", (X, PART), OUT, choices(axis=[1])),
        Production("Concat", (X, WIDE), "all", choices(axis=[1])),
        Production(
            "Slice",
            ("all",),
            OUT,
            choices(starts=[(0,)], ends=[(2 + c,) for c in FEW], axes=[(1,)], steps=[(1,)]),
        ),
    ),
    (0, 0, 0),
    ranks=SPATIAL,
    roots=frozenset({OUT}),
)

GROUPS, LESS = 6, 3
"""Groups of channels, and half as many."""
DEPTH, KERNELS = 5, 2
"""Channels that a group reads and makes."""
COARSER = Vocabulary(
    "convolutions in half as many groups",
    (
        Input("x", X, "N C *S", (2, GROUPS * DEPTH, S)),
        Input("w", KERNEL, "O I *R", (GROUPS * KERNELS, DEPTH, 3)),
        Input("b", BIAS, "O", (GROUPS * KERNELS,)),
        # No term reads these: they say where the vector is among five and six axes.
        Input("z", "five axes", "a b c d *R", (2, 1, 2, 1, 1)),
        Input("u", "six axes", "a b c d e *R", (LESS, 2, KERNELS, 1, DEPTH, 3)),
    ),
    (
        *convolved(X, KERNEL, BIAS, OUT, [GROUPS]),
        Production("Reshape", (KERNEL,), "pairs", choices(shape=[(LESS, 2, KERNELS, 1, DEPTH, 3)])),
        Production("Eye", (), "eye", choices(n=[2])),
        Production("Reshape", ("eye",), "places", choices(shape=[(2, 1, 2, 1, 1)])),
        applied("Mul", "pairs", "places", "blocks"),
        Production(
            "Reshape", ("blocks",), "coarse", choices(shape=[(GROUPS * KERNELS, 2 * DEPTH, 3)])
        ),
        *convolved(X, "coarse", BIAS, OUT, [LESS]),
    ),
    (5, 5),
    free=FREE | {"pairs", "eye", "places", "blocks", "coarse"},
    ranks=SPATIAL,
    roots=frozenset({OUT}),
    literal=frozenset({"Eye"}),
    by_example=True,
)

PADDED_CHANNELS = Family(
    "padded-channels",
    (
        PARTS,
        CONSTANTS,
        SOME_KERNELS,
        MORE_KERNELS,
        DEEPER_KERNELS,
        DEPTHWISE,
        JOINTS,
        CONVOLVED_JOINTS,
        WIDE_JOINTS,
        COARSER,
    ),
    about="images that carry more channels than are read",
)
