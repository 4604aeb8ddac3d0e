"""Networks of any depth, with small weights, for the scaling benchmark.

A depth is a number of layers, cells or nodes; the networks have the operators and the wiring of
the exported models, and the least width with which the search does the same there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
from onnx import TensorProto

from architectures import OPSET, bias, weight
from isolated.expression import Tensor, Variable, model, node, variables

# BERT

WIDTH, HEADS, INNER, LENGTH = 64, 4, 256, 32
WIDER = 16
"""By how much the feed-forward part of a layer is wider than that of the layer before, where all
layers are to be distinct."""
EPSILON = 1e-12


def linear(x: Tensor, name: str, before: int, after: int) -> Tensor:
    """A linear layer in the operators that PyTorch exports it in."""
    matrix = weight(f"{name}.weight", before, after, std=1 / math.sqrt(before))
    return x @ matrix + bias(f"{name}.bias", after)


def layer_norm(x: Tensor, name: str) -> Tensor:
    """A normalization over the last axis."""
    scale = weight(f"{name}.weight", WIDTH, mean=1.0, std=0.1)
    shift = bias(f"{name}.bias", WIDTH)
    return node("LayerNormalization", x, scale, shift, axis=-1, epsilon=EPSILON)


def attention(x: Tensor, mask: Tensor, name: str) -> Tensor:
    """Self-attention of x [1, length, width], in the operators of `models/bert_base.onnx`."""
    size = WIDTH // HEADS
    root = size**-0.25

    def heads(part: str) -> Tensor:
        made = linear(x, f"{name}.{part}", WIDTH, WIDTH)
        split = node("Reshape", made, [1, LENGTH, HEADS, size])
        return node("Transpose", split, perm=[0, 2, 1, 3])

    query, key, value = map(heads, ("query", "key", "value"))
    key = node("Reshape", key, [HEADS, LENGTH, size])
    key = node("Transpose", key, perm=[0, 2, 1])
    key = node("Reshape", key, [1, HEADS, size, LENGTH])
    weights = node("Softmax", (query * root) @ (key * root) + mask, axis=-1)
    weights = node("Where", node("IsNaN", weights), 0.0, weights)
    mixed = node("Transpose", weights @ value, perm=[0, 2, 1, 3])
    joined = node("Reshape", mixed, [1, LENGTH, WIDTH])
    return linear(joined, f"{name}.output", WIDTH, WIDTH)


def bert(inner: Sequence[int]) -> onnx.ModelProto:
    """An encoder whose layers have feed-forward parts of these widths."""
    x = Tensor(Variable("embedded", (1, LENGTH, WIDTH)))
    attended = Tensor(Variable("attention_mask", (1, LENGTH), TensorProto.INT64))
    is_seen = node("Unsqueeze", node("Cast", attended, to=TensorProto.BOOL), [1, 2])
    mask = node("Where", is_seen, 0.0, float("-inf"))
    for number, width in enumerate(inner):
        name = f"layer{number}"
        x = layer_norm(attention(x, mask, f"{name}.attention") + x, f"{name}.attention.norm")
        between = node("Gelu", linear(x, f"{name}.inner", WIDTH, width))
        x = layer_norm(linear(between, f"{name}.outer", width, WIDTH) + x, f"{name}.norm")
    return model([x], variables([x]), OPSET, f"bert{len(inner)}")


def equal_layers(layers: int) -> onnx.ModelProto:
    """BERT with layers that differ in nothing but their weights."""
    return bert([INNER] * layers)


def distinct_layers(layers: int) -> onnx.ModelProto:
    """BERT with layers of which no two have the same shapes."""
    return bert([INNER + WIDER * number for number in range(layers)])


# NASNet

STAGES = 3
FILTERS, IMAGE = 24, 48
"""Filters of the first stage and the height of its images: `models/nasnetalarge.onnx` has 168 and
42. Blocks of 16 channels fit into neither; a height that can be halved twice needs no padding of
its own in each stage."""


def conv(x: Tensor, name: str, before: int, after: int, size: int = 1, **more: object) -> Tensor:
    """A convolution with an odd kernel and without bias."""
    group = more.get("group", 1)
    assert isinstance(group, int)
    inner = before // group
    kernel = weight(name, after, inner, size, size, std=1 / math.sqrt(inner * size * size))
    attributes = {"pads": [size // 2] * 4, "kernel_shape": [size, size], **more}
    return node("Conv", x, kernel, **attributes)


def separable(x: Tensor, name: str, filters: int, size: int, stride: int = 1) -> Tensor:
    """Twice a convolution of each channel and one across them; `x` is past its Relu.

    The first has the stride; in a reduction it pads more at the end than at the start, as
    TensorFlow does.
    """
    more = size // 2 - 1 if stride > 1 else size // 2
    for number, (step, start) in enumerate(((stride, more), (1, size // 2))):
        if number:
            x = node("Relu", x)
        x = conv(
            *(x, f"{name}.{number}.depthwise", filters, filters, size),
            group=filters,
            strides=[step, step],
            pads=[start, start, size // 2, size // 2],
        )
        x = conv(x, f"{name}.{number}.pointwise", filters, filters)
    return x


def pool(x: Tensor, kind: str, stride: int = 1) -> Tensor:
    """A pool of 3x3, of an image padded at its end if there is a stride."""
    if stride == 1:
        return node(kind, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    filler = float("-inf") if kind == "MaxPool" else 0.0
    x = node("Pad", x, [0, 0, 0, 0, 0, 0, 1, 1], filler)
    return node(kind, x, kernel_shape=[3, 3], strides=[stride, stride])


def halved(x: Tensor, name: str, before: int, after: int) -> Tensor:
    """An image of half the size: every other pixel, and those between, through a layer each."""
    sides = []
    for number in range(2):
        if number:
            x = node("Pad", x, [0, 0, -1, -1, 0, 0, 1, 1], 0.0)
        taken = node("AveragePool", x, kernel_shape=[1, 1], strides=[2, 2])
        sides.append(conv(taken, f"{name}.path{number}", before, after // 2))
    scale = weight(f"{name}.scale", after, mean=1.0, std=0.1)
    mean, shift = bias(f"{name}.mean", after), bias(f"{name}.shift", after)
    variance = weight(f"{name}.running_var", after, mean=1.0, std=0.1)
    joined = node("Concat", *sides, axis=1)
    return node("BatchNormalization", joined, scale, shift, mean, variance, epsilon=1e-3)


def normal_cell(left: Tensor, right: Tensor, name: str, filters: int) -> Tensor:
    """NASNet-A's normal cell, of six times as many channels as `left` and `right` have.

    Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition" (2018).
    """
    of_left, of_right = node("Relu", left), node("Relu", right)

    def branch(x: Tensor, number: int, size: int) -> Tensor:
        return separable(x, f"{name}.{number}.{size}", filters, size)

    pooled = pool(left, "AveragePool")
    return node(
        "Concat",
        left,
        branch(of_right, 0, 5) + branch(of_left, 0, 3),
        branch(of_left, 1, 5) + branch(of_left, 1, 3),
        pool(right, "AveragePool") + left,
        pooled + pooled,
        branch(of_right, 4, 3) + right,
        axis=1,
    )


def reduction_cell(left: Tensor, right: Tensor, name: str, filters: int) -> Tensor:
    """NASNet-A's reduction cell: four times the channels of its inputs, at half their size."""
    of_left, of_right = node("Relu", left), node("Relu", right)

    def branch(x: Tensor, number: int, size: int) -> Tensor:
        return separable(x, f"{name}.{number}.{size}", filters, size, stride=2)

    first = branch(of_right, 0, 5) + branch(of_left, 0, 7)
    largest = pool(right, "MaxPool", 2)
    second = largest + branch(of_left, 1, 7)
    third = pool(right, "AveragePool", 2) + branch(of_left, 2, 5)
    fourth = pool(first, "AveragePool") + second
    fifth = separable(node("Relu", first), f"{name}.4.3", filters, 3) + largest
    return node("Concat", second, third, fourth, fifth, axis=1)


def nasnet(cells: int) -> onnx.ModelProto:
    """NASNet-A with so many normal cells, in three stages with reduction cells between them."""
    filters = FILTERS
    image = node("Relu", Tensor(Variable("image", (1, filters, IMAGE, IMAGE))))
    before = x = image, filters
    is_halved = False
    for stage in range(STAGES):
        for number in range(-1 if stage else 0, cells // STAGES):
            name = f"stage{stage}.cell{number}"
            is_reduction = number < 0
            if is_reduction:
                filters *= 2
            # Behind a reduction, what lies two cells back has twice the size.
            fit = halved if is_halved else conv
            left = fit(before[0], f"{name}.left", before[1], filters)
            right = conv(x[0], f"{name}.right", x[1], filters)
            cell, times = (reduction_cell, 4) if is_reduction else (normal_cell, 6)
            made = node("Relu", cell(left, right, name, filters))
            before, x, is_halved = x, (made, times * filters), is_reduction
    y = node("ReduceMean", x[0], [-1, -2], keepdims=0)
    y = node("Gemm", y, weight("dense", x[1], 10, std=0.01), bias("dense.bias", 10))
    return model([y], variables([y]), OPSET, f"nasnet{cells}")


# A chain

CHANNELS = 24


def chain(nodes: int) -> onnx.ModelProto:
    """Convolutions with scale, shift and Relu apart, one after the other."""
    x = Tensor(Variable("image", (1, CHANNELS, 16, 16)))
    for number in range(nodes):
        name = f"node{number}"
        match number % 4:
            case 0:
                x = conv(x, name, CHANNELS, CHANNELS)
            case 1:
                x = x * weight(name, CHANNELS, 1, 1, mean=1.0, std=0.1)
            case 2:
                x = x + weight(name, CHANNELS, 1, 1, std=0.1)
            case _:
                x = node("Relu", x)
    return model([x], variables([x]), OPSET, f"chain{nodes}")
