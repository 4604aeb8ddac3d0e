"""Miniatures of transformers and related networks for images."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from miniatures.net import Net, miniature

WIDTH = 96


def patches(net: Net, size: int = 7, width: int = WIDTH) -> str:
    """[1, size * size, width] of an image."""
    image = net.input("pixel_values", [1, 3, size * 8, size * 8])
    x = net("Conv", image, net.weight(width, 3, 8, 8), net.weight(width), strides=[8, 8])
    return net("Transpose", net("Reshape", x, [0, width, -1]), perm=[0, 2, 1])


def mean_classifier(net: Net, x: str, width: int = WIDTH) -> str:
    x = net("ReduceMean", net.layer_norm(x, width), axes=[1], keepdims=0)
    return net("Gemm", x, net.weight(10, width), net.weight(10), transB=1)


@miniature
def deit() -> onnx.ModelProto:
    """Touvron et al., 2021: joint QKV, a token for class and one for distillation."""
    net = Net(13)
    tokens = net.weight(1, 2, WIDTH, std=1.0)
    x = net("Concat", tokens, patches(net), axis=1)
    x = net("Add", x, net.weight(1, 51, WIDTH, std=1.0))
    for number in range(2):
        net.scope = f"/blocks.{number}"
        y = net.linear(net.layer_norm(x, WIDTH), WIDTH, 3 * WIDTH)
        y = net("Transpose", net("Reshape", y, [1, 51, 3, 3, 32]), perm=[2, 0, 3, 1, 4])
        q, k, v = (net("Gather", y, np.array(part), axis=0) for part in range(3))
        q = net("Mul", q, 32**-0.5)
        scores = net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2]))
        y = net("MatMul", net("Softmax", scores, axis=-1), v)
        y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), [1, 51, WIDTH])
        x = net("Add", x, net.linear(y, WIDTH, WIDTH))
        x = net("Add", x, net.mlp(net.layer_norm(x, WIDTH), WIDTH, 4 * WIDTH))
    x = net.layer_norm(x, WIDTH)
    heads = [
        net("Gemm", net("Gather", x, np.array(token), axis=1), net.weight(10, WIDTH),
            net.weight(10), transB=1)
        for token in range(2)
    ]  # fmt: skip
    return net.model((net("Div", net("Add", *heads), 2.0), [1, 10]))


@miniature
def xcit() -> onnx.ModelProto:
    """El-Nouby et al., 2021: attention among channels, with L2-normalized queries and keys."""
    net = Net(17)
    x = patches(net)

    def unit(t: str) -> str:
        norm = net("ReduceL2", t, axes=[-1], keepdims=1)
        return net("Div", t, net("Expand", net("Clip", norm, 1e-12), net("Shape", t)))

    for number in range(2):
        net.scope = f"/blocks.{number}"
        y = net.linear(net.layer_norm(x, WIDTH), WIDTH, 3 * WIDTH)
        y = net("Transpose", net("Reshape", y, [1, 49, 3, 3, 32]), perm=[2, 0, 3, 4, 1])
        q, k, v = (net("Squeeze", part, [0]) for part in net.ops("Split", 3, y, [1, 1, 1], axis=0))
        scores = net("MatMul", unit(q), net("Transpose", unit(k), perm=[0, 1, 3, 2]))
        scores = net("Mul", scores, net.weight(3, 1, 1, std=0.1, mean=1.0))
        y = net("MatMul", net("Softmax", scores, axis=-1), v)
        y = net("Reshape", net("Transpose", y, perm=[0, 3, 1, 2]), [1, 49, WIDTH])
        gamma = net.weight(WIDTH, std=0.1)
        x = net("Add", x, net("Mul", gamma, net.linear(y, WIDTH, WIDTH)))
        # Patches speak to their neighbours by convolutions.
        y = net("Transpose", net.layer_norm(x, WIDTH), perm=[0, 2, 1])
        y = net.gelu(net.conv(net("Reshape", y, [1, WIDTH, 7, 7]), WIDTH, WIDTH, 3, group=WIDTH))
        y = net.conv(net.norm(y, WIDTH), WIDTH, WIDTH, 3, group=WIDTH)
        y = net("Transpose", net("Reshape", y, [1, WIDTH, 49]), perm=[0, 2, 1])
        x = net("Add", x, net("Mul", gamma, y))
    return net.model((mean_classifier(net, x), [1, 10]))


@miniature
def mlp_mixer() -> onnx.ModelProto:
    """Tolstikhin et al., 2021: layers over patches, between two transpositions."""
    net = Net(17)
    x = patches(net)
    for number in range(2):
        net.scope = f"/blocks.{number}"
        y = net("Transpose", net.layer_norm(x, WIDTH), perm=[0, 2, 1])
        y = net("Transpose", net.mlp(y, 49, 128), perm=[0, 2, 1])
        x = net("Add", x, y)
        x = net("Add", x, net.mlp(net.layer_norm(x, WIDTH), WIDTH, 384))
    return net.model((mean_classifier(net, x), [1, 10]))


@miniature
def gmlp() -> onnx.ModelProto:
    """Liu et al., 2021: one half gates the other after a product over positions."""
    net = Net(17)
    x = patches(net)
    for number in range(2):
        net.scope = f"/blocks.{number}"
        y = net.gelu(net.linear(net.layer_norm(x, WIDTH), WIDTH, 4 * WIDTH))
        u, v = net.ops("Split", 2, y, axis=-1)
        v = net("Transpose", net.layer_norm(v, 2 * WIDTH), perm=[0, 2, 1])
        v = net("Add", net("MatMul", v, net.weight(49, 49)), net.weight(49, std=0.1, mean=1.0))
        y = net("Mul", u, net("Transpose", v, perm=[0, 2, 1]))
        x = net("Add", x, net.linear(y, 2 * WIDTH, WIDTH))
    return net.model((mean_classifier(net, x), [1, 10]))


@miniature
def efficientformer() -> onnx.ModelProto:
    """Li et al., 2022: stages of images, then of sequences with biases of attention."""
    net = Net(15)
    image = net.input("image", [1, 3, 56, 56])
    x = net("Relu", net.norm(net.conv(image, 3, 48, 3, stride=2), 48))
    x = net("Relu", net.norm(net.conv(x, 48, WIDTH, 3, stride=4), WIDTH))
    y = net("Sub", net("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1]), x)
    x = net("Add", x, net("Mul", net.weight(WIDTH, 1, 1, std=0.1), y))
    y = net.gelu(net.norm(net.conv(x, WIDTH, 4 * WIDTH), 4 * WIDTH))
    y = net.norm(net.conv(y, 4 * WIDTH, WIDTH), WIDTH)
    x = net("Add", x, net("Mul", net.weight(WIDTH, 1, 1, std=0.1), y))
    x = net("Transpose", net("Reshape", x, [1, WIDTH, 49]), perm=[0, 2, 1])
    y = net.linear(net.layer_norm(x, WIDTH), WIDTH, 4 * (16 + 16 + 64))
    y = net("Transpose", net("Reshape", y, [1, 49, 4, 96]), perm=[0, 2, 1, 3])
    q, k, v = net.ops("Split", 3, y, [16, 16, 64], axis=3)
    scores = net("Mul", net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2])), 0.25)
    # The bias of each pair of places is looked up in a table of weights.
    near = np.abs(np.arange(49)[:, None] - np.arange(49)[None])
    scores = net("Add", scores, net("Gather", net.weight(4, 49, std=0.3), near, axis=1))
    y = net("MatMul", net("Softmax", scores, axis=-1), v)
    y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), [1, 49, 256])
    x = net("Add", x, net.linear(y, 256, WIDTH))
    return net.model((mean_classifier(net, x), [1, 10]))


@miniature
def maxvit() -> onnx.ModelProto:
    """Tu et al., 2022: attention in windows and in a grid, with relative bias, after an MBConv."""
    net = Net(17)
    image = net.input("image", [1, 3, 56, 56])
    x = net.conv(image, 3, 64, 3, stride=4)
    y = net.gelu(net.norm(net.conv(net.norm(x, 64), 64, 128, bias=False), 128))
    y = net.gelu(net.norm(net.conv(y, 128, 128, 3, group=128, bias=False), 128))
    gate = net.conv(net.silu(net.conv(net("ReduceMean", y, axes=[2, 3]), 128, 16)), 16, 128)
    y = net.conv(net("Mul", y, net("Sigmoid", gate)), 128, 64)
    x = net("Transpose", net("Add", x, y), perm=[0, 2, 3, 1])
    for kind in ("block", "grid"):
        net.scope = f"/attn_{kind}"
        y = net.layer_norm(x, 64)
        cut, perm = ([1, 2, 7, 2, 7, 64], [0, 1, 3, 2, 4, 5])
        if kind == "grid":
            cut, perm = ([1, 7, 2, 7, 2, 64], [0, 2, 4, 1, 3, 5])
        y = net("Reshape", net("Transpose", net("Reshape", y, cut), perm=perm), [-1, 7, 7, 64])
        y = net("Reshape", net.linear(y, 64, 192), [-1, 49, 2, 96])
        q, k, v = net.ops("Split", 3, net("Transpose", y, perm=[0, 2, 1, 3]), axis=3)
        scores = net("MatMul", net("Mul", q, 32**-0.5), net("Transpose", k, perm=[0, 1, 3, 2]))
        bias = net("Gather", net.weight(169, 2, std=0.3), net.random.integers(0, 169, 49 * 49))
        bias = net("Transpose", net("Reshape", bias, [49, 49, 2]), perm=[2, 0, 1])
        scores = net("Add", scores, net("Unsqueeze", bias, [0]))
        y = net("Transpose", net("MatMul", net("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = net.linear(net("Reshape", y, [-1, 7, 7, 64]), 64, 64)
        y = net("Reshape", y, [1, 2, 2, 7, 7, 64])
        perm = [0, 1, 3, 2, 4, 5] if kind == "block" else [0, 3, 1, 4, 2, 5]
        x = net("Add", x, net("Reshape", net("Transpose", y, perm=perm), [1, 14, 14, 64]))
        x = net("Add", x, net.mlp(net.layer_norm(x, 64), 64, 256))
    x = net("GlobalAveragePool", net("Transpose", x, perm=[0, 3, 1, 2]))
    x = net("Gemm", net("Flatten", x), net.weight(10, 64), net.weight(10), transB=1)
    return net.model((x, [1, 10]))


@miniature
def clip() -> onnx.ModelProto:
    """Radford et al., 2021: a tower for images, one for texts with QuickGelu, cosines of both."""
    net = Net(14)
    ids = net.input("input_ids", ["texts", "length"], TensorProto.INT64)
    image = patches(net)

    def layer(x: str, mask: str = "") -> str:
        y = net.layer_norm(x, WIDTH)
        x = net("Add", x, net.attention(y, y, WIDTH, 3, mask=mask)[0])
        y = net.linear(net.layer_norm(x, WIDTH), WIDTH, 4 * WIDTH)
        y = net("Mul", y, net("Sigmoid", net("Mul", y, 1.702)))
        return net("Add", x, net.linear(y, 4 * WIDTH, WIDTH))

    def unit(t: str) -> str:
        return net("Div", t, net("ReduceL2", t, axes=[-1], keepdims=1))

    x = net("Concat", net.weight(1, 1, WIDTH, std=1.0), image, axis=1)
    x = layer(net("Add", x, net.weight(1, 50, WIDTH, std=0.5)))
    x = net.layer_norm(net("Gather", x, np.array(0), axis=1), WIDTH)
    x = unit(net("MatMul", x, net.weight(WIDTH, 64)))
    net.scope = "/text_model"
    length = net("Gather", net("Shape", ids), np.array(1), axis=0)
    t = net("Gather", net.weight(200, WIDTH, std=0.5), ids)
    places = net("Slice", net.keep(np.arange(77)[None]), [0], net("Unsqueeze", length, [0]), [1])
    t = net("Add", t, net("Gather", net.weight(77, WIDTH, std=0.5), places))
    square = net("Concat", *[net("Unsqueeze", length, [0])] * 2, axis=0)
    least = net("Expand", float(np.finfo(np.float32).min), square)
    mask = net("Unsqueeze", net("Trilu", least, np.array(1), upper=1), [0, 1])
    t = net.layer_norm(layer(t, mask), WIDTH)
    # The token with the largest number ends a text.
    ends = net("ArgMax", ids, axis=-1, keepdims=1)
    wide = net("Expand", net("Unsqueeze", ends, [2]), np.array([1, 1, WIDTH]))
    t = net("Squeeze", net("GatherElements", t, wide, axis=1), [1])
    t = unit(net("MatMul", t, net.weight(WIDTH, 64)))
    logits = net("Mul", net("MatMul", t, net("Transpose", x, perm=[1, 0])), 14.28)
    return net.model((logits, ["texts", 1]), (net("Transpose", logits, perm=[1, 0]), [1, "texts"]))
