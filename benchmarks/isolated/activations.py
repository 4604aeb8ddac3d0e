"""Cases of elementwise functions that exporters spell out."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from isolated.case import Draw, Outputs, case
from isolated.expression import Tensor, node

Pair = tuple[Outputs, Outputs]

RELU = "Where(x > 0, x, 0)"


@case(RELU)
def relu_by_where_greater(g: Draw) -> Pair:
    x = g.planes
    return node("Where", node("Greater", x, 0.0), x, 0.0), node("Relu", x)


@case(RELU)
def relu_by_where_less(g: Draw) -> Pair:
    x = g.planes
    return node("Where", node("Less", x, 0.0), 0.0, x), node("Relu", x)


@case(RELU)
def relu_by_where_greater_or_equal(g: Draw) -> Pair:
    x = g.planes
    return node("Where", node("GreaterOrEqual", x, 0.0), x, 0.0), node("Relu", x)


@case(RELU)
def relu_by_where_not(g: Draw) -> Pair:
    x = g.planes
    below = node("LessOrEqual", x, 0.0)
    return node("Where", node("Not", below), x, 0.0), node("Relu", x)


@case(RELU)
def relu_by_mask(g: Draw) -> Pair:
    x = g.planes
    mask = node("Cast", node("Greater", x, 0.0), to=TensorProto.FLOAT)
    return x * mask, node("Relu", x)


@case(RELU)
def relu_by_maximum(g: Draw) -> Pair:
    x = g.planes
    return node("Max", x, 0.0), node("Relu", x)


POWER = "Pow(x, 2)"


@case(POWER)
def square_by_power(g: Draw) -> Pair:
    x = g.inner
    return node("Pow", x, 2.0), x * x


@case(POWER)
def cube_by_power(g: Draw) -> Pair:
    x = g.inner
    return node("Pow", x, 3.0), x * (x * x)


@case(POWER)
def root_by_power(g: Draw) -> Pair:
    x = node("Abs", g.inner)
    return node("Pow", x, 0.5), node("Sqrt", x)


@case(POWER)
def squared_difference(g: Draw) -> Pair:
    x, y = g.inner, g.inner
    return node("Pow", x - y, 2.0), (x - y) * (x - y)


TANH_GELU = "GELU by tanh in 8 operators"


def _tanh_gelu(x: Tensor) -> Tensor:
    return node("Gelu", x, approximate="tanh")


@case(TANH_GELU)
def gelu_tanh_power(g: Draw) -> Pair:
    """As the NewGELUActivation of Hugging Face's GPT-2."""
    x = g.inner
    inner = (x + node("Pow", x, 3.0) * 0.044715) * float(np.sqrt(2 / np.pi))
    return (x * 0.5) * (node("Tanh", inner) + 1.0), _tanh_gelu(x)


@case(TANH_GELU)
def gelu_tanh_products(g: Draw) -> Pair:
    """As the FastGELUActivation, with products for the cube."""
    x = g.inner
    inner = (x * 0.7978845608) * ((x * 0.044715) * x + 1.0)
    return (x * 0.5) * (node("Tanh", inner) + 1.0), _tanh_gelu(x)


@case(TANH_GELU)
def gelu_tanh_cube(g: Draw) -> Pair:
    """As TensorFlow exports it: x * x * x, and the half at the end."""
    x = g.inner
    inner = 0.7978845608 * (x + 0.044715 * ((x * x) * x))
    return x * (0.5 * (node("Tanh", inner) + 1.0)), _tanh_gelu(x)


ERF_GELU = "GELU by erf in 5 operators"


@case(ERF_GELU)
def gelu_erf_quotient(g: Draw) -> Pair:
    """As PyTorch exports it up to opset 19."""
    x = g.inner
    inner = node("Erf", x / float(np.sqrt(2)))
    return (x * (inner + 1.0)) * 0.5, node("Gelu", x)


@case(ERF_GELU)
def gelu_erf_product(g: Draw) -> Pair:
    """As torch.export decomposes it."""
    x = g.inner
    inner = node("Erf", x * float(np.sqrt(0.5)))
    return (x * 0.5) * (inner + 1.0), node("Gelu", x)


@case(ERF_GELU)
def gelu_erf_half_inside(g: Draw) -> Pair:
    """As TensorFlow exports it."""
    x = g.inner
    inner = node("Erf", x / float(np.sqrt(2)))
    return x * (0.5 * (inner + 1.0)), node("Gelu", x)


RELUS = "Relu of Relu"


@case(RELUS)
def relu_of_relu(g: Draw) -> Pair:
    x = g.planes
    return node("Relu", node("Relu", x)), node("Relu", x)


@case(RELUS)
def clip_of_relu(g: Draw) -> Pair:
    x = g.planes
    return node("Clip", node("Relu", x), 0.0, 6.0), node("Clip", x, 0.0, 6.0)


@case(RELUS)
def relu_of_clip(g: Draw) -> Pair:
    x = g.planes
    return node("Relu", node("Clip", x, 0.0, 6.0)), node("Clip", x, 0.0, 6.0)


@case(RELUS)
def relu_of_sigmoid(g: Draw) -> Pair:
    x = g.planes
    return node("Relu", node("Sigmoid", x)), node("Sigmoid", x)


QUOTIENT = "Div by a constant"


@case(QUOTIENT)
def quotient_by_scalar(g: Draw) -> Pair:
    x = g.inner
    return x / 3.0, x * (1 / 3)


@case(QUOTIENT)
def quotient_by_vector(g: Draw) -> Pair:
    x, s = g.inner, g.weight(g.sizes.hidden, positive=True)
    return x / s, x * node("Reciprocal", s)


@case(QUOTIENT)
def quotient_by_channel(g: Draw) -> Pair:
    x, s = g.planes, g.weight(1, g.sizes.channels, 1, 1, positive=True)
    return x / s, x * node("Reciprocal", s)


PRELU = "PRelu forms"


def _by_minimum(x: Tensor, a: Tensor) -> Tensor:
    """The fastest form with a slope for each channel: the runtime's own PRelu is slow."""
    return node("Relu", x) + a * node("Min", x, 0.0)


@case(PRELU)
def prelu_as_operator(g: Draw) -> Pair:
    x, a = g.planes, g.weight(g.sizes.channels, 1, 1)
    return node("PRelu", x, a), _by_minimum(x, a)


@case(PRELU)
def prelu_by_absolute(g: Draw) -> Pair:
    """As converters from MXNet and Caffe write it."""
    x, a = g.planes, g.weight(g.sizes.channels, 1, 1)
    negative = (a * (x - node("Abs", x))) * 0.5
    return node("Relu", x) + negative, _by_minimum(x, a)


@case(PRELU)
def prelu_by_where(g: Draw) -> Pair:
    x, a = g.planes, g.weight(g.sizes.channels, 1, 1)
    return node("Where", node("Greater", x, 0.0), x, a * x), _by_minimum(x, a)


@case(PRELU)
def leaky_relu_by_difference(g: Draw) -> Pair:
    x = g.planes
    return node("Relu", x) - 0.25 * node("Relu", -x), node("LeakyRelu", x, alpha=0.25)


@case(PRELU)
def leaky_relu_by_keras(g: Draw) -> Pair:
    x = g.planes
    return node("Relu", x) + -0.25 * node("Relu", -x), node("LeakyRelu", x, alpha=0.25)


@case(PRELU)
def leaky_relu_by_minimum(g: Draw) -> Pair:
    x = g.planes
    return node("Max", x, 0.0) + 0.25 * node("Min", x, 0.0), node("LeakyRelu", x, alpha=0.25)


@case(PRELU)
def leaky_relu_by_maximum(g: Draw) -> Pair:
    x = g.planes
    return node("Max", x, 0.1 * x), node("LeakyRelu", x, alpha=0.1)


@case(PRELU)
def leaky_relu_by_where(g: Draw) -> Pair:
    x = g.planes
    return node("Where", node("Greater", x, 0.0), x, 0.25 * x), node("LeakyRelu", x, alpha=0.25)


@case(PRELU)
def leaky_relu_as_prelu(g: Draw) -> Pair:
    """As PyTorch exports PReLU with one parameter."""
    return node("PRelu", x := g.planes, 0.25), node("LeakyRelu", x, alpha=0.25)


SIGMOID = "decomposed Sigmoid"


def _exponential(x: Tensor) -> Tensor:
    return node("Exp", -x)


@case(SIGMOID)
def sigmoid_by_quotient(g: Draw) -> Pair:
    x = g.inner
    return 1.0 / (_exponential(x) + 1.0), node("Sigmoid", x)


@case(SIGMOID)
def sigmoid_by_reciprocal(g: Draw) -> Pair:
    x = g.inner
    return node("Reciprocal", 1.0 + _exponential(x)), node("Sigmoid", x)


@case(SIGMOID)
def sigmoid_by_exponential(g: Draw) -> Pair:
    x = g.inner
    exponential = node("Exp", x)
    return exponential / (exponential + 1.0), node("Sigmoid", x)


@case(SIGMOID)
def sigmoid_by_tanh(g: Draw) -> Pair:
    x = g.inner
    return 0.5 * (node("Tanh", 0.5 * x) + 1.0), node("Sigmoid", x)


SILU = "SiLU"


@case(SILU)
def silu_by_quotient(g: Draw) -> Pair:
    x = g.inner
    return x / (_exponential(x) + 1.0), x * node("Sigmoid", x)


@case(SILU)
def silu_by_product(g: Draw) -> Pair:
    x = g.inner
    return x * node("Reciprocal", _exponential(x) + 1.0), x * node("Sigmoid", x)


SOFTMAX = "decomposed softmax"


@case(SOFTMAX)
def softmax_by_quotient(g: Draw) -> Pair:
    x = g.scores
    e = node("Exp", x)
    return e / node("ReduceSum", e, [-1], keepdims=1), node("Softmax", x, axis=-1)


@case(SOFTMAX)
def softmax_less_maximum(g: Draw) -> Pair:
    x = g.scores
    e = node("Exp", x - node("ReduceMax", x, [-1], keepdims=1))
    return e / node("ReduceSum", e, [-1], keepdims=1), node("Softmax", x, axis=-1)


@case(SOFTMAX)
def softmax_by_reciprocal(g: Draw) -> Pair:
    x = g.scores
    e = node("Exp", x - node("ReduceMax", x, [-1], keepdims=1))
    total = node("ReduceSum", e, [-1], keepdims=1)
    return e * node("Reciprocal", total), node("Softmax", x, axis=-1)


@case(SOFTMAX)
def logarithm_of_softmax(g: Draw) -> Pair:
    x = g.scores
    return node("Log", node("Softmax", x, axis=-1)), node("LogSoftmax", x, axis=-1)
