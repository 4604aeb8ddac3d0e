"""Cases of normalizations that exporters spell out."""

from __future__ import annotations

import numpy as np

from isolated.case import Draw, Outputs, case, constant
from isolated.expression import Tensor, node

Pair = tuple[Outputs, Outputs]

EPSILON = 1e-5
RMS_EPSILON = 1e-6

RMS = "RMSNorm in its reciprocal form"


def _mean(x: Tensor) -> Tensor:
    return node("ReduceMean", x, [-1], keepdims=1)


def _rms(x: Tensor, square: Tensor) -> Tensor:
    return node("Sqrt", _mean(square) + RMS_EPSILON)


def _by_rms(x: Tensor, w: Tensor) -> Tensor:
    return node("RMSNormalization", x, w, axis=-1, epsilon=RMS_EPSILON)


@case(RMS, opset=23)
def rms_by_reciprocal(g: Draw) -> Pair:
    """As the LlamaRMSNorm of Hugging Face."""
    x, w = g.tokens, g.weight(g.sizes.width)
    return w * (x * node("Reciprocal", _rms(x, node("Pow", x, 2.0)))), _by_rms(x, w)


@case(RMS, opset=23)
def rms_by_reciprocal_of_product(g: Draw) -> Pair:
    x, w = g.tokens, g.weight(g.sizes.width)
    return (x * node("Reciprocal", _rms(x, x * x))) * w, _by_rms(x, w)


@case(RMS, opset=23)
def rms_by_quotient(g: Draw) -> Pair:
    x, w = g.tokens, g.weight(g.sizes.width)
    return w * (x / _rms(x, node("Pow", x, 2.0))), _by_rms(x, w)


@case(RMS, opset=23)
def rms_by_one_over_root(g: Draw) -> Pair:
    x, w = g.tokens, g.weight(g.sizes.width)
    return (x * (1.0 / _rms(x, node("Pow", x, 2.0)))) * w, _by_rms(x, w)


@case(RMS)
def rms_before_its_operator(g: Draw) -> Pair:
    """At an opset without RMSNormalization, a quotient in the form that the runtime fuses."""
    x, w = g.tokens, g.weight(g.sizes.width)
    root = _rms(x, node("Pow", x, 2.0))
    return w * (x * node("Reciprocal", root)), (x / root) * w


LAYER = "LayerNorm variants"


def _centred(x: Tensor) -> Tensor:
    return x - _mean(x)


def _deviation(square: Tensor) -> Tensor:
    return node("Sqrt", _mean(square) + EPSILON)


def _by_layer(x: Tensor, *weights: Tensor) -> Tensor:
    return node("LayerNormalization", x, *weights, axis=-1, epsilon=EPSILON)


@case(LAYER)
def layer_norm_by_power(g: Draw) -> Pair:
    """As PyTorch exports it up to opset 16."""
    x, w, b = g.tokens, g.weight(g.sizes.width), g.weight(g.sizes.width)
    c = _centred(x)
    return (c / _deviation(node("Pow", c, 2.0))) * w + b, _by_layer(x, w, b)


@case(LAYER)
def layer_norm_by_product(g: Draw) -> Pair:
    x, w, b = g.tokens, g.weight(g.sizes.width), g.weight(g.sizes.width)
    c = _centred(x)
    return (c / _deviation(c * c)) * w + b, _by_layer(x, w, b)


@case(LAYER)
def layer_norm_by_reciprocal(g: Draw) -> Pair:
    x, w, b = g.tokens, g.weight(g.sizes.width), g.weight(g.sizes.width)
    c = _centred(x)
    inverse = node("Reciprocal", _deviation(node("Pow", c, 2.0)))
    return (c * inverse) * w + b, _by_layer(x, w, b)


@case(LAYER)
def layer_norm_by_tensorflow(g: Draw) -> Pair:
    """As TensorFlow's batch_normalization writes it: x * s + (b - m * s)."""
    x, w, b = g.tokens, g.weight(g.sizes.width), g.weight(g.sizes.width)
    m, c = _mean(x), _centred(x)
    s = node("Reciprocal", _deviation(c * c)) * w
    return x * s + (b - m * s), _by_layer(x, w, b)


@case(LAYER)
def layer_norm_without_bias(g: Draw) -> Pair:
    x, w = g.tokens, g.weight(g.sizes.width)
    c = _centred(x)
    return (c * node("Reciprocal", _deviation(c * c))) * w, _by_layer(x, w)


@case(LAYER)
def layer_norm_without_weights(g: Draw) -> Pair:
    x = g.tokens
    c = _centred(x)
    ones = constant(np.ones(g.sizes.width))
    return c / _deviation(node("Pow", c, 2.0)), node(
        "LayerNormalization", x, ones, axis=-1, epsilon=EPSILON
    )


@case(LAYER)
def instance_norm_by_mean(g: Draw) -> Pair:
    n = g.sizes.channels
    x, w, b = g.planes, g.weight(n), g.weight(n)
    c = x - node("ReduceMean", x, [2, 3], keepdims=1)
    variance = node("ReduceMean", c * c, [2, 3], keepdims=1)
    shape = [1, n, 1, 1]
    scaled = c / node("Sqrt", variance + EPSILON) * node("Reshape", w, shape)
    return scaled + node("Reshape", b, shape), node(
        "InstanceNormalization", x, w, b, epsilon=EPSILON
    )


CHANNELS = "channel-wise Mul and Add as BatchNormalization"


def _normalized(x: Tensor, w: Tensor, b: Tensor, channels: int) -> Tensor:
    zeros, ones = constant(np.zeros(channels)), constant(np.ones(channels))
    return node("BatchNormalization", x, w, b, zeros, ones, epsilon=0.0)


@case(CHANNELS)
def scale_and_shift(g: Draw) -> Pair:
    n = g.sizes.channels
    x, w, b = g.planes, g.weight(1, n, 1, 1), g.weight(1, n, 1, 1)
    vectors = [node("Reshape", v, [n]) for v in (w, b)]
    return x * w + b, _normalized(x, vectors[0], vectors[1], n)


@case(CHANNELS)
def scale_and_shift_then_relu(g: Draw) -> Pair:
    """As in DenseNet, where no convolution stands before the normalization."""
    n = g.sizes.channels
    x, w, b = g.planes, g.weight(n, 1, 1), g.weight(n, 1, 1)
    vectors = [node("Reshape", v, [n]) for v in (w, b)]
    return node("Relu", x * w + b), node("Relu", _normalized(x, vectors[0], vectors[1], n))


@case(CHANNELS)
def shift_and_scale(g: Draw) -> Pair:
    n = g.sizes.channels
    x, m, s = g.planes, g.weight(1, n, 1, 1), g.weight(1, n, 1, 1, positive=True)
    scale = node("Reciprocal", node("Reshape", s, [n]))
    shift = -(node("Reshape", m, [n]) * scale)
    return (x - m) / s, _normalized(x, scale, shift, n)


@case(CHANNELS)
def decomposed_batch_normalization(g: Draw) -> Pair:
    """As the frozen batch normalization of detection nets."""
    n = g.sizes.channels
    x = g.planes
    w, b, m = (g.weight(1, n, 1, 1) for _ in range(3))
    v = g.weight(1, n, 1, 1, positive=True)
    scale = w * node("Reciprocal", node("Sqrt", v + EPSILON))
    plain = ((x - m) / node("Sqrt", v + EPSILON)) * w + b
    vectors = [node("Reshape", term, [n]) for term in (scale, b - m * scale)]
    return plain, _normalized(x, vectors[0], vectors[1], n)
