"""Cases of convolutions that merge with each other and with the operators around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from isolated.case import Draw, Outputs, case
from isolated.expression import Tensor, node

Pair = tuple[Outputs, Outputs]

ONE = [1, 1, 1, 1]

SUMS = "Conv(x, A) + Conv(x, B)"


@case(SUMS)
def convolutions_of_one_input(g: Draw) -> Pair:
    n = g.sizes.channels
    x, a, b = g.planes, g.weight(n, n, 3, 3), g.weight(n, n, 3, 3)
    plain = node("Conv", x, a, pads=ONE) + node("Conv", x, b, pads=ONE)
    return plain, node("Conv", x, a + b, pads=ONE)


@case(SUMS)
def biased_convolutions_of_one_input(g: Draw) -> Pair:
    n = g.sizes.channels
    x, a, b = g.planes, g.weight(n, n, 3, 3), g.weight(n, n, 3, 3)
    c, d = g.weight(n), g.weight(n)
    plain = node("Conv", x, a, c, pads=ONE) + node("Conv", x, b, d, pads=ONE)
    return plain, node("Conv", x, a + b, c + d, pads=ONE)


@case(SUMS)
def convolutions_of_unlike_kernels(g: Draw) -> Pair:
    n = g.sizes.channels
    x, a, b = g.planes, g.weight(n, n, 3, 3), g.weight(n, n, 1, 1)
    padded = node("Pad", b, [0, 0, 1, 1, 0, 0, 1, 1])
    plain = node("Conv", x, a, pads=ONE) + node("Conv", x, b)
    return plain, node("Conv", x, a + padded, pads=ONE)


@case(SUMS)
def asymmetric_convolutions(g: Draw) -> Pair:
    """As ACNet trains them."""
    n = g.sizes.channels
    x = g.planes
    a, b, c = g.weight(n, n, 3, 3), g.weight(n, n, 1, 3), g.weight(n, n, 3, 1)
    plain = node("Conv", x, a, pads=ONE) + node("Conv", x, b, pads=[0, 1, 0, 1])
    plain = plain + node("Conv", x, c, pads=[1, 0, 1, 0])
    kernels = a + node("Pad", b, [0, 0, 1, 0, 0, 0, 1, 0])
    kernels = kernels + node("Pad", c, [0, 0, 0, 1, 0, 0, 0, 1])
    return plain, node("Conv", x, kernels, pads=ONE)


@case(SUMS)
def convolution_of_a_pointwise_one(g: Draw) -> Pair:
    """Two pointwise convolutions in a row, the first one wider or as wide."""
    n = g.sizes.channels
    x, a, b = g.planes, g.weight(n, n, 1, 1), g.weight(n, n, 1, 1)
    matrix = node("Reshape", b, [n, n]) @ node("Reshape", a, [n, n])
    plain = node("Conv", node("Conv", x, a), b)
    return plain, node("Conv", x, node("Reshape", matrix, [n, n, 1, 1]))


REPVGG = "three RepVGG branches"


def _identity(channels: int) -> np.ndarray[Any, Any]:
    kernel = np.zeros((channels, channels, 3, 3), np.float32)
    kernel[np.arange(channels), np.arange(channels), 1, 1] = 1
    return kernel


@case(REPVGG)
def repvgg_block(g: Draw) -> Pair:
    """After the normalizations have gone into the kernels."""
    n = g.sizes.channels
    x, a, b, c = g.planes, g.weight(n, n, 3, 3), g.weight(n, n, 1, 1), g.weight(n)
    plain = node("Relu", (node("Conv", x, a, c, pads=ONE) + node("Conv", x, b)) + x)
    kernel = a + node("Pad", b, [0, 0, 1, 1, 0, 0, 1, 1]) + _identity(n)
    return plain, node("Relu", node("Conv", x, kernel, c, pads=ONE))


@case(REPVGG)
def repvgg_block_as_trained(g: Draw) -> Pair:
    """A BatchNormalization in each of the branches."""
    n = g.sizes.channels
    x, a, b = g.planes, g.weight(n, n, 3, 3), g.weight(n, n, 1, 1)
    branches = [node("Conv", x, a, pads=ONE), node("Conv", x, b), x]
    kernels: list[Tensor] = []
    biases: list[Tensor] = []
    made = []
    padded = node("Pad", b, [0, 0, 1, 1, 0, 0, 1, 1])
    unit = node("Add", _identity(n), 0.0)
    for branch, kernel in zip(branches, (a, padded, unit), strict=True):
        w, c, m, v = g.weight(n), g.weight(n), g.weight(n), g.weight(n, positive=True)
        made.append(node("BatchNormalization", branch, w, c, m, v, epsilon=1e-5))
        scale = w / node("Sqrt", v + 1e-5)
        kernels.append(kernel * node("Reshape", scale, [n, 1, 1, 1]))
        biases.append(c - m * scale)
    plain = node("Relu", (made[0] + made[1]) + made[2])
    kernel, bias = (parts[0] + parts[1] + parts[2] for parts in (kernels, biases))
    return plain, node("Relu", node("Conv", x, kernel, bias, pads=ONE))


POOLED = "MaxPool(Relu)"


@case(POOLED)
def pool_of_relu(g: Draw) -> Pair:
    x = g.planes
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return node("MaxPool", node("Relu", x), **pool), node("Relu", node("MaxPool", x, **pool))


@case(POOLED)
def padded_pool_of_relu(g: Draw) -> Pair:
    """As at the beginning of ResNet."""
    x = g.planes
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": ONE}
    return node("MaxPool", node("Relu", x), **pool), node("Relu", node("MaxPool", x, **pool))


@case(POOLED)
def pool_of_clip(g: Draw) -> Pair:
    x = g.planes
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    plain = node("MaxPool", node("Clip", x, 0.0, 6.0), **pool)
    return plain, node("Clip", node("MaxPool", x, **pool), 0.0, 6.0)


IMAGES = "input normalization into the first Conv"


def _image(g: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """An image of three channels, their means and their deviations."""
    side = g.sizes.image
    return (
        g.input(1, 3, side, side), g.weight(1, 3, 1, 1), g.weight(1, 3, 1, 1, positive=True),
    )  # fmt: skip


@case(IMAGES)
def normalized_patches(g: Draw) -> Pair:
    """Before the patches of a vision transformer: nothing is padded, all of it goes in."""
    n = g.sizes.channels
    x, m, s = _image(g)
    w, b = g.weight(n, 3, 4, 4), g.weight(n)
    plain = node("Conv", (x - m) / s, w, b, strides=[4, 4])
    scaled = w / s
    bias = b - node("ReduceSum", scaled * m, [1, 2, 3], keepdims=0)
    return plain, node("Conv", x, scaled, bias, strides=[4, 4])


@case(IMAGES)
def scaled_patches(g: Draw) -> Pair:
    """Pixels from 0 to 255 to numbers from -1 to 1."""
    n = g.sizes.channels
    x, w, b = _image(g)[0], g.weight(n, 3, 4, 4), g.weight(n)
    plain = node("Conv", x * (2 / 255) - 1.0, w, b, strides=[4, 4])
    bias = b - node("ReduceSum", w, [1, 2, 3], keepdims=0)
    return plain, node("Conv", x, w * (2 / 255), bias, strides=[4, 4])


@case(IMAGES)
def divided_padded_image(g: Draw) -> Pair:
    """Before the first convolution of ResNet."""
    n = g.sizes.channels
    x, _, s = _image(g)
    w, b = g.weight(n, 3, 7, 7), g.weight(n)
    conv = {"strides": [2, 2], "pads": [3, 3, 3, 3]}
    return node("Conv", x / s, w, b, **conv), node("Conv", x, w / s, b, **conv)


@case(IMAGES)
def normalized_padded_image(g: Draw) -> Pair:
    """The mean cannot go into a padded convolution, the deviation can."""
    n = g.sizes.channels
    x, m, s = _image(g)
    w, b = g.weight(n, 3, 7, 7), g.weight(n)
    conv = {"strides": [2, 2], "pads": [3, 3, 3, 3]}
    return node("Conv", (x - m) / s, w, b, **conv), node("Conv", x - m, w / s, b, **conv)
