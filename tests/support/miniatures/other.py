"""Miniatures of graph networks, recommenders, diffusion models, and of newer opsets."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from miniatures.net import Net, miniature


@miniature
def graph_network() -> onnx.ModelProto:
    """GCN and GAT layers: gathered by edges, summed by ScatterElements, softmax by receivers."""
    net = Net(18)
    x = net.input("features", ["nodes", 32])
    edges = net.input("edges", [2, "edges"], TensorProto.INT64)
    sender = net("Gather", edges, np.array(0), axis=0)
    receiver = net("Gather", edges, np.array(1), axis=0)
    count = net("Gather", net("Shape", x), np.array(0), axis=0)
    for number in range(2):
        net.scope = f"/conv{number}"
        x = net.linear(x, 32, 32, bias=False)
        sent = net("Gather", x, sender, axis=0)
        got = net("Gather", x, receiver, axis=0)
        a = net(
            "Add", net("MatMul", sent, net.weight(32, 1)), net("MatMul", got, net.weight(32, 1))
        )
        a = net("Exp", net("LeakyRelu", a, alpha=0.2))
        count_1 = net("Concat", net("Unsqueeze", count, [0]), [1], axis=0)
        index = net("Unsqueeze", receiver, [1])
        total = net(
            "ScatterElements", net("Expand", 0.0, count_1), index, a, axis=0, reduction="add"
        )
        a = net("Div", a, net("Add", net("Gather", total, receiver, axis=0), 1e-16))
        sent = net("Mul", a, sent)
        wide = net("Concat", net("Unsqueeze", count, [0]), [32], axis=0)
        index = net("Expand", index, net("Shape", sent))
        x = net("ScatterElements", net("Expand", 0.0, wide), index, sent, axis=0, reduction="add")
        x = net("Elu", net("Add", x, net.weight(32)))
    index = net("Unsqueeze", receiver, [1])
    x = net("ScatterND", x, index, net("Gather", x, sender, axis=0))
    return net.model((net("LogSoftmax", net.linear(x, 32, 7), axis=1), ["nodes", 7]))


@miniature
def recommender() -> onnx.ModelProto:
    """Naumov et al., 2019 (DLRM): tables, products of all pairs, and their lower triangle."""
    net = Net(13)
    x = net.input("dense", ["batch", 13])
    parts = []
    for before, after in ((13, 64), (64, 16)):
        x = net("Gemm", x, net.weight(after, before), net.weight(after), transB=1)
        x = net("Relu", x)
    parts.append(x)
    for number in range(6):
        index = net.input(f"sparse_{number}", ["batch", 1], TensorProto.INT64)
        found = net("Gather", net.weight(100, 16, std=0.5), index)
        parts.append(net("ReduceSum", found, [1], keepdims=0))
    both = net("Reshape", net("Concat", *parts, axis=1), [-1, 7, 16])
    pairs = net("MatMul", both, net("Transpose", both, perm=[0, 2, 1]))
    row, column = np.tril_indices(7, -1)
    flat = net("Reshape", pairs, [-1, 49])
    flat = net("Gather", flat, row * 7 + column, axis=1)
    y = net("Concat", x, flat, axis=1)
    for before, after in ((37, 64), (64, 1)):
        y = net("Gemm", y, net.weight(after, before), net.weight(after), transB=1)
        y = net("Relu", y) if after > 1 else net("Sigmoid", y)
    return net.model((y, ["batch", 1]))


@miniature
def diffusion_block() -> onnx.ModelProto:
    """Rombach et al., 2022: a residual block with time, two attentions, GEGLU, upsampling."""
    net = Net(17)
    width = 64
    x = net.input("sample", ["batch", width, 16, 16])
    step = net.input("timestep", ["batch"], TensorProto.INT64)
    words = net.input("encoder_hidden_states", ["batch", 7, 48])
    rate = net.keep(np.exp(-np.log(1e4) * np.arange(16) / 16).astype(np.float32)[None])
    angle = net("Mul", net("Cast", net("Unsqueeze", step, [1]), to=TensorProto.FLOAT), rate)
    time = net("Concat", net("Sin", angle), net("Cos", angle), axis=-1)
    time = net("Concat", net("Slice", time, [16], [2**63 - 1], [1]),
               net("Slice", time, [0], [16], [1]), axis=-1)  # fmt: skip
    time = net("Gemm", time, net.weight(width, 32), net.weight(width), transB=1)
    time = net("Gemm", net.silu(time), net.weight(width, width), net.weight(width), transB=1)

    def norm(x: str) -> str:
        y = net("Reshape", x, [0, 8, -1])
        y = net("InstanceNormalization", y, np.ones(8, np.float32), np.zeros(8, np.float32))
        y = net("Reshape", y, net("Shape", x))
        y = net("Mul", y, net.weight(width, 1, 1, std=0.1, mean=1.0))
        return net("Add", y, net.weight(width, 1, 1, std=0.1))

    y = net.conv(net.silu(norm(x)), width, width, 3)
    shift = net("Gemm", net.silu(time), net.weight(width, width), net.weight(width), transB=1)
    y = net("Add", y, net("Unsqueeze", net("Unsqueeze", shift, [2]), [3]))
    x = net("Div", net("Add", x, net.conv(net.silu(norm(y)), width, width, 3)), 1.0)
    net.scope = "/attentions.0"
    kept = x
    x = net("Reshape", net("Transpose", norm(x), perm=[0, 2, 3, 1]), [0, 256, width])
    y = net.layer_norm(x, width)
    x = net("Add", net.attention(y, y, width, 2, bias=False)[0], x)
    y = net.layer_norm(x, width)
    memory = net.linear(words, 48, width, bias=False)
    x = net("Add", net.attention(y, memory, width, 2, bias=False)[0], x)
    y = net.linear(net.layer_norm(x, width), width, 8 * width)
    left, gate = net.ops("Split", 2, y, axis=-1)
    x = net("Add", net.linear(net("Mul", left, net.gelu(gate)), 4 * width, width), x)
    x = net("Transpose", net("Reshape", x, [-1, 16, 16, width]), perm=[0, 3, 1, 2])
    x = net("Add", net.conv(x, width, width), kept)
    x = net("Resize", x, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
            coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    return net.model((net.conv(x, width, width, 3), ["batch", width, 32, 32]))


@miniature
def newest() -> onnx.ModelProto:
    """The operators of recent opsets as they stand: Attention, RMSNormalization, Swish."""
    net = Net(24)
    x = net.input("x", ["batch", "sequence", 64])
    for _ in range(2):
        y = net("RMSNormalization", x, net.weight(64, std=0.1, mean=1.0), axis=-1, epsilon=1e-5)
        q, k, v = (net.linear(y, 64, 64, bias=False) for _ in range(3))
        y = net("Attention", q, k, v, q_num_heads=2, kv_num_heads=2, is_causal=1)
        x = net("Add", x, net.linear(y, 64, 64, bias=False))
        y = net("RMSNormalization", x, net.weight(64, std=0.1, mean=1.0), axis=-1, epsilon=1e-5)
        gate = net("Swish", net.linear(y, 64, 128, bias=False))
        y = net("Mul", gate, net.linear(y, 64, 128, bias=False))
        x = net("Add", x, net.linear(y, 128, 64, bias=False))
    return net.model((x, ["batch", "sequence", 64]))


@miniature
def time_series() -> onnx.ModelProto:
    """TCN and N-BEATS: causal dilated convolutions cut at their end, and forecasts by residuals."""
    net = Net(17)
    x = net.input("series", ["batch", 8, 64])
    before = 8
    for dilation in (1, 2, 4):
        net.scope = f"/tcn.{dilation}"
        pad = 2 * dilation
        y = net("Conv", x, net.weight(32, before, 3), net.weight(32), dilations=[dilation],
                pads=[pad, pad])  # fmt: skip
        y = net("Relu", net("Slice", y, [0], [-pad], [2]))
        y = net("Conv", y, net.weight(32, 32, 3), net.weight(32), dilations=[dilation],
                pads=[pad, pad])  # fmt: skip
        y = net("Relu", net("Slice", y, [0], [-pad], [2]))
        x = net("Relu", net("Add", y, net.conv(x, 8, 32, dims=1) if before == 8 else x))
        before = 32
    rest = net("Reshape", net("Gather", x, np.array(-1), axis=2), [-1, 32])
    forecast = []
    for number in range(2):
        net.scope = f"/block.{number}"
        y = net("Relu", net("Gemm", rest, net.weight(64, 32), net.weight(64), transB=1))
        rest = net("Sub", rest, net("Gemm", y, net.weight(32, 64), net.weight(32), transB=1))
        forecast.append(net("Gemm", y, net.weight(12, 64), net.weight(12), transB=1))
    return net.model((net("Add", *forecast), ["batch", 12]))


@miniature
def siamese() -> onnx.ModelProto:
    """Two images through one network, and the cosine of what comes out."""
    net = Net(13)
    sides = []
    weights = [net.weight(32, 3, 3, 3), net.weight(32), net.weight(64, 32, 3, 3), net.weight(64)]
    for side in ("left", "right"):
        net.scope = f"/{side}"
        x = net.input(side, [1, 3, 32, 32])
        for number in range(2):
            x = net("Conv", x, *weights[2 * number : 2 * number + 2], pads=[1] * 4, strides=[2, 2])
            x = net("Relu", x)
        x = net("Flatten", net("GlobalAveragePool", x))
        sides.append(net("Div", x, net("Max", net("ReduceL2", x, axes=[1]), 1e-12)))
    return net.model((net("ReduceSum", net("Mul", *sides), [1], keepdims=0), [1]))
