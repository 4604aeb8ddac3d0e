"""Cases of matrix products, and of sums with a common factor."""

from __future__ import annotations

import math

import numpy as np

from isolated.case import Draw, Outputs, case
from isolated.expression import node, tensor

Pair = tuple[Outputs, Outputs]

SUM_OF_PRODUCT = "ReduceSum(MatMul(x, W))"


@case(SUM_OF_PRODUCT)
def sum_of_product(g: Draw) -> Pair:
    x, w = g.tokens, g.weight(g.sizes.width, g.sizes.hidden)
    total = node("ReduceSum", w, [-1], keepdims=1)
    return node("ReduceSum", x @ w, [-1], keepdims=1), x @ total


@case(SUM_OF_PRODUCT)
def sum_of_product_without_axis(g: Draw) -> Pair:
    x, w = g.tokens, g.weight(g.sizes.width, g.sizes.hidden)
    total = node("ReduceSum", w, [1], keepdims=0)
    return node("ReduceSum", x @ w, [2], keepdims=0), x @ total


@case(SUM_OF_PRODUCT)
def mean_of_product(g: Draw) -> Pair:
    x, w = g.tokens, g.weight(g.sizes.width, g.sizes.hidden)
    mean = node("ReduceMean", w, [-1], keepdims=1)
    return node("ReduceMean", x @ w, [-1], keepdims=1), x @ mean


@case(SUM_OF_PRODUCT)
def mean_over_tokens_of_product(g: Draw) -> Pair:
    """As the pooling after the last projection of a classifier."""
    x, w = g.tokens, g.weight(g.sizes.width, g.sizes.hidden)
    mean = node("ReduceMean", x, [1], keepdims=1)
    return node("ReduceMean", x @ w, [1], keepdims=1), mean @ w


@case(SUM_OF_PRODUCT)
def sum_of_linear(g: Draw) -> Pair:
    x, w, b = g.tokens, g.weight(g.sizes.width, g.sizes.hidden), g.weight(g.sizes.hidden)
    weights = node("ReduceSum", w, [-1], keepdims=1)
    bias = node("ReduceSum", b, [-1], keepdims=1)
    return node("ReduceSum", x @ w + b, [-1], keepdims=1), x @ weights + bias


SHARED_INPUT = "x*A + x*B"


@case(SHARED_INPUT)
def products_of_one_input(g: Draw) -> Pair:
    n = g.sizes.width
    x, a, b = g.tokens, g.weight(n, n), g.weight(n, n)
    return x @ a + x @ b, x @ (a + b)


@case(SHARED_INPUT)
def difference_of_products(g: Draw) -> Pair:
    n = g.sizes.width
    x, a, b = g.tokens, g.weight(n, n), g.weight(n, n)
    return x @ a - x @ b, x @ (a - b)


@case(SHARED_INPUT)
def linears_of_one_input(g: Draw) -> Pair:
    n = g.sizes.width
    x, a, b = g.tokens, g.weight(n, n), g.weight(n, n)
    c, d = g.weight(n), g.weight(n)
    return (x @ a + c) + (x @ b + d), x @ (a + b) + (c + d)


@case(SHARED_INPUT)
def gemms_of_one_input(g: Draw) -> Pair:
    n = g.sizes.width
    x = g.input(g.sizes.tokens, n)
    a, b, c, d = g.weight(n, n), g.weight(n, n), g.weight(n), g.weight(n)
    plain = node("Gemm", x, a, c, transB=1) + node("Gemm", x, b, d, transB=1)
    return plain, node("Gemm", x, a + b, c + d, transB=1)


@case(SHARED_INPUT)
def scales_of_one_input(g: Draw) -> Pair:
    x, a, b = g.inner, g.weight(g.sizes.hidden), g.weight(g.sizes.hidden)
    return x * a + x * b, x * (a + b)


@case(SHARED_INPUT)
def input_and_its_scale(g: Draw) -> Pair:
    x, a = g.inner, g.weight(g.sizes.hidden)
    return x + x * a, x * (a + 1.0)


@case(SHARED_INPUT)
def input_and_its_product(g: Draw) -> Pair:
    """A residual connection around a product alone."""
    n = g.sizes.width
    x, a = g.tokens, g.weight(n, n)
    return x @ a + x, x @ (a + np.eye(n, dtype=np.float32))


LINEARS = "Linear of Linear"


@case(LINEARS)
def product_of_product(g: Draw) -> Pair:
    n = g.sizes.width
    x, a, b = g.tokens, g.weight(n, n), g.weight(n, n)
    return (x @ a) @ b, x @ (a @ b)


@case(LINEARS)
def linear_of_linear(g: Draw) -> Pair:
    n = g.sizes.width
    x, a, b = g.tokens, g.weight(n, n), g.weight(n, n)
    c, d = g.weight(n), g.weight(n)
    return (x @ a + c) @ b + d, x @ (a @ b) + (c @ b + d)


@case(LINEARS)
def gemm_of_gemm(g: Draw) -> Pair:
    n = g.sizes.width
    x = g.input(g.sizes.tokens, n)
    a, b, c, d = g.weight(n, n), g.weight(n, n), g.weight(n), g.weight(n)
    plain = node("Gemm", node("Gemm", x, a, c, transB=1), b, d, transB=1)
    return plain, node("Gemm", x, b @ a, c @ node("Transpose", b, perm=[1, 0]) + d, transB=1)


SHARED_WEIGHT = "a*C + b*C"


@case(SHARED_WEIGHT)
def products_by_one_weight(g: Draw) -> Pair:
    x, y, c = g.tokens, g.tokens, g.weight(g.sizes.width, g.sizes.width)
    return x @ c + y @ c, (x + y) @ c


@case(SHARED_WEIGHT)
def linears_by_one_weight(g: Draw) -> Pair:
    n = g.sizes.width
    x, y, c, b = g.tokens, g.tokens, g.weight(n, n), g.weight(n)
    return (x @ c + b) + (y @ c + b), (x + y) @ c + (b + b)


@case(SHARED_WEIGHT)
def scales_by_one_weight(g: Draw) -> Pair:
    x, y, c = g.inner, g.inner, g.weight(g.sizes.hidden)
    return x * c + y * c, (x + y) * c


@case(SHARED_WEIGHT)
def convolutions_by_one_weight(g: Draw) -> Pair:
    n = g.sizes.channels
    x, y, c = g.planes, g.planes, g.weight(n, n, 3, 3)

    pads = [1, 1, 1, 1]
    plain = node("Conv", x, c, pads=pads) + node("Conv", y, c, pads=pads)
    return plain, node("Conv", x + y, c, pads=pads)


ATTENTION = "attention scaled before or after the product"


@case(ATTENTION)
def scores_divided(g: Draw) -> Pair:
    """As BERT: the scores are divided by the root of the depth."""
    s = g.sizes
    q = g.input(1, s.heads, s.tokens, s.width // s.heads)
    k = g.input(1, s.heads, s.width // s.heads, s.tokens)
    root = math.sqrt(s.width // s.heads)
    return (q @ k) / root, (q * (1 / root)) @ k


@case(ATTENTION)
def scores_scaled(g: Draw) -> Pair:
    s = g.sizes
    q = g.input(1, s.heads, s.tokens, s.width // s.heads)
    k = g.input(1, s.heads, s.width // s.heads, s.tokens)
    scale = 1 / math.sqrt(s.width // s.heads)
    return (q @ k) * scale, (q * scale) @ k


@case(ATTENTION)
def both_factors_scaled(g: Draw) -> Pair:
    """As PyTorch exports scaled_dot_product_attention: the root of the scale on both factors."""
    s = g.sizes
    q = g.input(1, s.heads, s.tokens, s.width // s.heads)
    k = g.input(1, s.heads, s.width // s.heads, s.tokens)
    root = tensor((s.width // s.heads) ** -0.25)
    return (q * root) @ (k * root), (q * (root * root)) @ k


@case(ATTENTION)
def scale_in_the_projection(g: Draw) -> Pair:
    """The scale of the queries goes into the weights of their projection."""
    n = g.sizes.width
    x, w, b = g.tokens, g.weight(n, n), g.weight(n)
    scale = tensor(0.125)
    return (x @ w + b) * scale, x @ (w * scale) + b * scale


@case(ATTENTION)
def scores_scaled_before_softmax(g: Draw) -> Pair:
    s = g.sizes
    depth = s.width // s.heads
    q, k = g.input(1, s.heads, s.tokens, depth), g.input(1, s.heads, depth, s.tokens)
    v = g.input(1, s.heads, s.tokens, depth)
    root = math.sqrt(depth)
    plain = node("Softmax", (q @ k) / root, axis=-1) @ v
    return plain, node("Softmax", (q * (1 / root)) @ k, axis=-1) @ v
