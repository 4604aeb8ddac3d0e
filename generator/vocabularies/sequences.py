"""Vocabularies of sequences [N, C, L] as images of one row, [N, C, 1, L].

Runtimes have faster kernels for images than for sequences: layouts in blocks of channels, and
convolutions of each channel by itself. So windows over one axis are stated as windows over two, and
what stands between them moves past the axis that comes and goes. What is made of a sequence is
`out`, and of an image `made`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from xflow.core.registry import Attributes
from xflow.generator.vocabularies.common import OUT, X, either, scalar, sorts, stages, tensors
from xflow.generator.vocabularies.convolutions import BIAS, KERNEL, C
from xflow.generator.vocabulary import Family, Input, Vocabulary

IMAGE, MADE = "image", "made"
LENGTH, EXTENT = 13, 3
"""Extents of a sequence, and of a kernel."""


def _sequence(name: str) -> Input:
    return Input(name, X, "N C L", (2, C, LENGTH))


def _image(name: str) -> Input:
    return Input(name, IMAGE, "N C 1 L", (2, C, 1, LENGTH))


Axes: TypeAlias = Callable[[int, int], tuple[int, ...]]
"""The spatial axes of a number along the sequence, and of a number along the axis of extent 1."""


def _alone(along: int, across: int) -> tuple[int, ...]:
    return (along,)


def _in_a_row(along: int, across: int) -> tuple[int, ...]:
    return (across, along)


def _in_a_column(along: int, across: int) -> tuple[int, ...]:
    return (along, across)


def _windows(axes: Axes) -> list[dict[str, tuple[int, ...]]]:
    """Windows along the sequence, at some strides and with some borders."""
    return [
        {"pads": (*axes(begin, 0), *axes(end, 0)), "strides": axes(stride, 1)}
        for begin, end in ((0, 0), (1, 0), (0, 1), (2, 1))
        for stride in (1, 2)
    ]


def _dilated(axes: Axes) -> list[Attributes]:
    return [{**window, "dilations": axes(step, 1)} for step in (1, 2) for window in _windows(axes)]


BIASES = Input("b", BIAS, "O", (C,))
CONVOLUTIONS = stages(
    "convolutions of sequences",
    (_sequence("x"), Input("w", KERNEL, "O I K", (C, C, EXTENT)), BIASES),
    limits=(1, 1, 1, 1),
    free=sorts("kernel bias"),
    exact=True,
).steps(
    """
    image, flat = Unsqueeze((x, kernel), axes=(2,))
    out = Conv(x, kernel, [bias], **windows)
    made = Conv(image, flat, [bias], **windows_of_a_row)
    out = Squeeze(made, axes=(2,))
    """,
    windows=_dilated(_alone),
    windows_of_a_row=_dilated(_in_a_row),
)

COLUMNS = stages(
    "convolutions of one column",
    (*tensors("x: x[N C L 1]  kernel: w[O I K 1]", N=2, C=C, L=LENGTH, O=C, I=C, K=EXTENT), BIASES),
    limits=(1, 1, 1, 1),
    free=sorts("kernel bias"),
    exact=True,
).steps(
    """
    image, flat = Transpose((x, kernel), perm=(0, 1, 3, 2))
    out = Conv(x, kernel, [bias], **windows)
    made = Conv(image, flat, [bias], **windows_of_a_row)
    out = Transpose(made, perm=(0, 1, 3, 2))
    """,
    windows=_dilated(_in_a_column),
    windows_of_a_row=_dilated(_in_a_row),
)
"""Sequences as images of one column, as JAX writes them for TensorFlow: the runtime takes several
pixels of a row at once, and here each row has one."""


def _pools(op: str) -> str:
    return "".join(
        f"""
        out = {op}(x, kernel_shape=({extent},), **windows)
        made = {op}(image, kernel_shape=(1, {extent}), **windows_of_a_row)
        """
        for extent in (EXTENT, EXTENT + 1, EXTENT + 2)
    )


POOLS = stages("pools of sequences", (_sequence("x"),), limits=(0, 0, 0, 0)).steps(
    """
    image = Unsqueeze(x, axes=(2,))
    out = Squeeze(made, axes=(2,))
    out, made = GlobalMaxPool((x, image))
    out, made = GlobalAveragePool((x, image))
    """,
    _pools("MaxPool"),
    _pools("AveragePool"),
    windows=_windows(_alone),
    windows_of_a_row=_windows(_in_a_row),
)


def _laws(
    name: str, inputs: tuple[Input, ...], *texts: str, free: frozenset[str] = frozenset()
) -> Vocabulary:
    """Operators on a sequence, which is an image's row or becomes one, and on the image."""
    return Vocabulary(
        name,
        (*inputs, _sequence("x"), _sequence("y"), _image("z"), _image("u")),
        limits=(1, 1, 1, 1),
        free=free,
        exact=False,
        roots=sorts("x image out made"),
    ).steps(
        """
        x = Squeeze(image, axes=(2,))
        image = Unsqueeze(x, axes=(2,))
        out = Squeeze(made, axes=(2,))
        made = Unsqueeze(out, axes=(2,))
        """,
        *texts,
    )


FUNCTIONS = _laws(
    "functions of the elements of a row",
    (*tensors("scale: r[1 C 1]  column: s[C 1]", C=C), scalar("k", "number")),
    """
        scale_of_images = Unsqueeze(scale, axes=(2,))
        column_of_images = Unsqueeze(column, axes=(1,))
        out, made = Elementwise((x, image), [(x, image) | number])
        out = Elementwise(x, scale | column)
        made = Elementwise(image, scale_of_images | column_of_images)
    """,
    free=sorts("scale column number"),
)


def _parts(sort: str, result: str, last: int) -> str:
    """Parts along the channels and along the last axis."""
    cut = "starts=(0,) | (1,) | (2,), ends=(3,) | (4,), steps=(1,)"
    outer = (0,) * last
    borders = either((*outer, p, *outer, q) for p in range(3) for q in range(3))
    return f"""
        {result} = Concat({sort}, {sort}, axis=1) | Concat({sort}, {sort}, axis={last})
        {result} = Slice({sort}, {cut}, axes=(1,)) | Slice({sort}, {cut}, axes=({last},))
        {result} = Pad({sort}, pads={borders})
    """


MOVEMENT = _laws("parts of a row", (), _parts(X, OUT, 2), _parts(IMAGE, MADE, 3))
TURNED = _laws(
    "rows with channels last",
    tensors("turned: t[N L C]  turned_image: o[N 1 L C]", N=2, L=LENGTH, C=C),
    """
        turned, x = Transpose((x, turned), perm=(0, 2, 1))
        turned_image = Transpose(image, perm=(0, 2, 3, 1))
        image = Transpose(turned_image, perm=(0, 3, 1, 2))
        turned = Squeeze(turned_image, axes=(1,))
        turned_image = Unsqueeze(turned, axes=(1,))
    """,
)

SEQUENCES = Family(
    "sequences",
    (CONVOLUTIONS, COLUMNS, POOLS, FUNCTIONS, MOVEMENT, TURNED),
    about="sequences as images of one row",
)
