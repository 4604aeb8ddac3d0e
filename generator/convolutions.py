"""Vocabularies of convolutions and pooling.

One spatial axis stands for any number of them. Kernels, biases and scales are sorts of their own:
what is computed from weights alone costs nothing at run time.
"""

from __future__ import annotations

from xflow.generator.vocabulary import Family, Input, Production, Vocabulary, choices

X, KERNEL, BIAS, SCALE = "x", "kernel", "bias", "scale"
FREE = frozenset({KERNEL, BIAS, SCALE})
SPATIAL = (1, 2, 3)
C, S = 4, 7


def _image(name: str, channels: int = C) -> Input:
    return Input(name, X, "N C *S", (2, channels, S))


def _kernel(name: str, size: int, outputs: int = C, inputs: int = C) -> Input:
    return Input(name, KERNEL, "O I *R", (outputs, inputs, size))


def _bias(name: str, channels: int = C) -> Input:
    return Input(name, BIAS, "O", (channels,))


def _scale(name: str) -> Input:
    return Input(name, SCALE, "1 C *1", (1, C, 1))


CONV = Production("Conv", (X, KERNEL), X)
CONV_BIAS = Production("Conv", (X, KERNEL, BIAS), X)
RELU = Production("Relu", (X,), X)
ADD = Production("Add", (X, X), X)
AS_OUTPUTS = Production("Reshape", (SCALE,), KERNEL, choices(shape=[(C, 1, 1)]))
AS_BIAS = Production("Reshape", (SCALE,), BIAS, choices(shape=[(C,)]))


def _pads(*pairs: tuple[int, int]) -> list[tuple[int, ...]]:
    return list(pairs)


RANGE = [(e, f) for e in range(3) for f in range(3)]
WIDE = [(e, f) for e in range(6) for f in range(6)]

SUMS = Vocabulary(
    "sums of convolutions",
    (_image("x"), _image("y"), _kernel("w", 3), _kernel("v", 3), _bias("b"), _bias("c")),
    (
        CONV,
        CONV_BIAS,
        ADD,
        Production("Sub", (X, X), X),
        RELU,
        Production("Add", (KERNEL, KERNEL), KERNEL),
        Production("Sub", (KERNEL, KERNEL), KERNEL),
        Production("Add", (BIAS, BIAS), BIAS),
    ),
    (0, 2, 0, 0),
    free=FREE,
    ranks=SPATIAL,
)

SIZES = Vocabulary(
    "kernels of different sizes",
    (_image("x"), _kernel("w", 2), _kernel("v", 4)),
    (
        Production("Conv", (X, KERNEL), X, choices(pads=WIDE, strides=[(1,), (2,)], dilations=[(1,), (2,)])),
        ADD,
        Production(
            "Pad", (KERNEL,), KERNEL, choices(pads=[(0, 0, p, 0, 0, q) for p, q in ((1, 1), (2, 0), (0, 2))])
        ),
        Production("Add", (KERNEL, KERNEL), KERNEL),
    ),
    (0, 2, 0, 0),
    free=FREE,
    ranks=SPATIAL,
)

CONVOLUTION = Family("convolution", (SUMS,), about="convolutions")
POOLING = Family("pooling", (), about="pooling")
