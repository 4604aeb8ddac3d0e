"""Vocabularies of sequences [N, C, L] as images of one row, [N, C, 1, L].

Runtimes have faster kernels for images than for sequences: layouts in blocks of channels, and
convolutions of each channel by itself. So windows over one axis are stated as windows over two, and
what stands between them moves past the axis that comes and goes.
"""

from __future__ import annotations

from xflow.core.registry import Attribute
from xflow.generator.equations import steps
from xflow.generator.production import Production, choices
from xflow.generator.vocabularies.common import X
from xflow.generator.vocabularies.convolutions import BIAS, KERNEL, C
from xflow.generator.vocabulary import Family, Input, Vocabulary

IMAGE, FLAT, MADE, OUT = "image", "flat", "made", "out"
AT_ROW = choices(axes=[(2,)])
LENGTH, EXTENT = 13, 3
"""Extents of a sequence, and of a kernel."""
STAGES = ((X, OUT), (IMAGE, MADE))
"""Sequences and images, before an operator and behind it."""


def _sequence(name: str) -> Input:
    return Input(name, X, "N C L", (2, C, LENGTH))


def _image(name: str) -> Input:
    return Input(name, IMAGE, "N C 1 L", (2, C, 1, LENGTH))


def _windows(image: bool, **further: Attribute) -> tuple[dict[str, Attribute], ...]:
    """Windows over the last axis, at some strides and with some borders."""
    row: tuple[int, ...] = (0,) if image else ()
    one: tuple[int, ...] = (1,) if image else ()
    return tuple(
        {"pads": (*row, begin, *row, end), "strides": (*one, stride), **further}
        for begin, end in ((0, 0), (1, 0), (0, 1), (2, 1))
        for stride in (1, 2)
    )


def _dilated(image: bool) -> tuple[dict[str, Attribute], ...]:
    return tuple(
        {**window, "dilations": (1, step) if image else (step,)}
        for step in (1, 2)
        for window in _windows(image)
    )


CONVOLUTIONS = Vocabulary(
    "convolutions of sequences",
    (
        _sequence("x"),
        Input("w", KERNEL, "O I K", (C, C, EXTENT)),
        Input("b", BIAS, "O", (C,)),
    ),
    (
        Production("Unsqueeze", (X,), IMAGE, AT_ROW),
        Production("Unsqueeze", (KERNEL,), FLAT, AT_ROW),
        Production("Conv", (X, KERNEL), OUT, _dilated(image=False)),
        Production("Conv", (X, KERNEL, BIAS), OUT, _dilated(image=False)),
        Production("Conv", (IMAGE, FLAT), MADE, _dilated(image=True)),
        Production("Conv", (IMAGE, FLAT, BIAS), MADE, _dilated(image=True)),
        Production("Squeeze", (MADE,), OUT, AT_ROW),
    ),
    (1, 1, 1, 1),
    free=frozenset({KERNEL, FLAT, BIAS}),
    roots=frozenset({OUT}),
    chain=True,
)

POOLS = Vocabulary(
    "pools of sequences",
    (_sequence("x"),),
    (
        Production("Unsqueeze", (X,), IMAGE, AT_ROW),
        Production("Squeeze", (MADE,), OUT, AT_ROW),
        *(
            Production(op, (sort,), result)
            for op in ("GlobalMaxPool", "GlobalAveragePool")
            for sort, result in STAGES
        ),
        *(
            production
            for op in ("MaxPool", "AveragePool")
            for extent in (EXTENT, EXTENT + 1, EXTENT + 2)
            for production in (
                Production(op, (X,), OUT, _windows(image=False, kernel_shape=(extent,))),
                Production(op, (IMAGE,), MADE, _windows(image=True, kernel_shape=(1, extent))),
            )
        ),
    ),
    (0, 0, 0, 0),
    exact=False,
    roots=frozenset({OUT}),
    chain=True,
)

SCALE, COLUMN, NUMBER = "scale", "column", "number"
"""What differs by channel, with a batch axis and without, and what does not."""


def _parts(axis: int) -> tuple[dict[str, Attribute], ...]:
    starts, ends = [(0,), (1,), (2,)], [(3,), (4,)]
    return choices(starts=starts, ends=ends, axes=[(axis,)], steps=[(1,)])


def _borders(image: bool) -> tuple[dict[str, Attribute], ...]:
    outer = (0, 0, 0) if image else (0, 0)
    return choices(pads=[(*outer, p, *outer, q) for p in (0, 1, 2) for q in (0, 1, 2)])


def _laws(
    name: str,
    inputs: tuple[Input, ...],
    productions: tuple[Production, ...],
    free: frozenset[str] = frozenset(),
) -> Vocabulary:
    """Operators on a sequence, which is an image's row or becomes one, and on the image."""
    return Vocabulary(
        name,
        (*inputs, _sequence("x"), _sequence("y"), _image("z"), _image("u")),
        (
            *steps("""
                x = Squeeze(image, axes=(2,))
                image = Unsqueeze(x, axes=(2,))
                out = Squeeze(made, axes=(2,))
                made = Unsqueeze(out, axes=(2,))
            """),
            *productions,
        ),
        (1, 1, 1, 1),
        free=free,
        exact=False,
        roots=frozenset({X, IMAGE, OUT, MADE}),
    )


FUNCTIONS = _laws(
    "functions of the elements of a row",
    (
        Input("r", SCALE, "1 C 1", (1, C, 1)),
        Input("s", COLUMN, "C 1", (C, 1)),
        Input("k", NUMBER, "", ()),
    ),
    steps("""
        scale_of_images = Unsqueeze(scale, axes=(2,))
        column_of_images = Unsqueeze(column, axes=(1,))
        out = Elementwise(x, [x | number])
        made = Elementwise(image, [image | number])
        out = Elementwise(x, scale | column)
        made = Elementwise(image, scale_of_images | column_of_images)
    """),
    frozenset({SCALE, COLUMN, NUMBER}),
)
MOVEMENT = _laws(
    "parts of a row",
    (),
    (
        *(
            production
            for image, (sort, result) in enumerate(STAGES)
            for production in (
                Production("Concat", (sort, sort), result, choices(axis=[1])),
                Production("Concat", (sort, sort), result, choices(axis=[2 + image])),
                Production("Slice", (sort,), result, _parts(1)),
                Production("Slice", (sort,), result, _parts(2 + image)),
                Production("Pad", (sort,), result, _borders(bool(image))),
            )
        ),
    ),
)
TURNED = _laws(
    "rows with channels last",
    (
        Input("t", "turned", "N L C", (2, LENGTH, C)),
        Input("o", "turned image", "N 1 L C", (2, 1, LENGTH, C)),
    ),
    steps("""
        turned = Transpose(x, perm=(0, 2, 1))
        x = Transpose(turned, perm=(0, 2, 1))
        turned_image = Transpose(image, perm=(0, 2, 3, 1))
        image = Transpose(turned_image, perm=(0, 3, 1, 2))
        turned = Squeeze(turned_image, axes=(1,))
        turned_image = Unsqueeze(turned, axes=(1,))
    """),
)

TURN = choices(perm=[(0, 1, 3, 2)])
"""Rows as columns, and back."""


def _columns(windows: tuple[dict[str, Attribute], ...]) -> tuple[dict[str, Attribute], ...]:
    """Windows over two axes as those that rows and columns exchanged have."""
    made: list[dict[str, Attribute]] = []
    for window in windows:
        turned: dict[str, Attribute] = {}
        for name, sizes in window.items():
            assert isinstance(sizes, tuple)
            first, second = sizes[0::2], sizes[1::2]
            turned[name] = tuple(size for pair in zip(second, first, strict=True) for size in pair)
        made.append(turned)
    return tuple(made)


COLUMNS = Vocabulary(
    "convolutions of one column",
    (
        Input("x", X, "N C L 1", (2, C, LENGTH, 1)),
        Input("w", KERNEL, "O I K 1", (C, C, EXTENT, 1)),
        Input("b", BIAS, "O", (C,)),
    ),
    (
        Production("Transpose", (X,), IMAGE, TURN),
        Production("Transpose", (KERNEL,), FLAT, TURN),
        Production("Conv", (X, KERNEL), OUT, _columns(_dilated(image=True))),
        Production("Conv", (X, KERNEL, BIAS), OUT, _columns(_dilated(image=True))),
        Production("Conv", (IMAGE, FLAT), MADE, _dilated(image=True)),
        Production("Conv", (IMAGE, FLAT, BIAS), MADE, _dilated(image=True)),
        Production("Transpose", (MADE,), OUT, TURN),
    ),
    (1, 1, 1, 1),
    free=frozenset({KERNEL, FLAT, BIAS}),
    roots=frozenset({OUT}),
    chain=True,
)
"""Sequences as images of one column, as JAX writes them for TensorFlow: the runtime takes several
pixels of a row at once, and here each row has one."""

SEQUENCES = Family(
    "sequences",
    (CONVOLUTIONS, COLUMNS, POOLS, FUNCTIONS, MOVEMENT, TURNED),
    about="sequences as images of one row",
)
