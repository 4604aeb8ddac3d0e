"""Miniatures of networks for sound and other sequences, and of those with loops."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from miniatures.net import Net, miniature

WIDTH, HEADS, SIZE = 128, 4, 32


@miniature
def whisper_encoder() -> onnx.ModelProto:
    """Radford et al., 2022: two convolutions along time, the queries' scale on both sides."""
    net = Net(14)
    x = net.input("input_features", ["batch", 80, 100])
    x = net.gelu(net.conv(x, 80, WIDTH, 3, dims=1))
    x = net.gelu(net.conv(x, WIDTH, WIDTH, 3, dims=1, stride=2))
    x = net("Transpose", x, perm=[0, 2, 1])
    x = net("Add", x, net.weight(50, WIDTH, std=0.5))
    for number in range(2):
        net.scope = f"/layers.{number}"
        y = net.layer_norm(x, WIDTH)
        q = net("Mul", net.linear(y, WIDTH, WIDTH), SIZE**-0.5)
        k, v = net.linear(y, WIDTH, WIDTH, bias=False), net.linear(y, WIDTH, WIDTH)
        q, k, v = (
            net("Reshape", net.heads(part, 50, HEADS, SIZE, [0, 2, 1, 3]), [-1, 50, SIZE])
            for part in (q, k, v)
        )
        scores = net("MatMul", q, net("Transpose", k, perm=[0, 2, 1]))
        y = net("MatMul", net("Softmax", scores, axis=-1), v)
        y = net("Transpose", net("Reshape", y, [-1, HEADS, 50, SIZE]), perm=[0, 2, 1, 3])
        x = net("Add", x, net.linear(net("Reshape", y, [-1, 50, WIDTH]), WIDTH, WIDTH))
        x = net("Add", x, net.mlp(net.layer_norm(x, WIDTH), WIDTH, 4 * WIDTH))
    return net.model((net.layer_norm(x, WIDTH), ["batch", 50, WIDTH]))


@miniature
def whisper_decoder() -> onnx.ModelProto:
    """One step: keys and values of the past grow, those of the encoder are inputs."""
    net = Net(17)
    ids = net.input("decoder_input_ids", ["batch", 1], TensorProto.INT64)
    place = net.input("cache_position", [1], TensorProto.INT64)
    x = net("Gather", net.weight(500, WIDTH, std=0.5), ids)
    x = net("Add", x, net("Gather", net.weight(64, WIDTH, std=0.5), place))
    outputs = []
    for number in range(2):
        net.scope = f"/layers.{number}"
        own = tuple(
            net.input(f"past.{number}.decoder.{part}", ["batch", HEADS, "past", SIZE])
            for part in ("key", "value")
        )
        other = [
            net.input(f"past.{number}.encoder.{part}", ["batch", HEADS, 50, SIZE])
            for part in ("key", "value")
        ]
        y = net.layer_norm(x, WIDTH)
        y, k, v = net.attention(y, y, WIDTH, HEADS, length=1, past=own)  # type: ignore[arg-type]
        outputs += [(part, ["batch", HEADS, "total", SIZE]) for part in (k, v)]
        x = net("Add", x, y)
        q = net("Mul", net.linear(net.layer_norm(x, WIDTH), WIDTH, WIDTH), SIZE**-0.5)
        q = net.heads(q, 1, HEADS, SIZE, [0, 2, 1, 3])
        scores = net("MatMul", q, net("Transpose", other[0], perm=[0, 1, 3, 2]))
        y = net("MatMul", net("Softmax", scores, axis=-1), other[1])
        y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), [-1, 1, WIDTH])
        x = net("Add", x, net.linear(y, WIDTH, WIDTH))
        x = net("Add", x, net.mlp(net.layer_norm(x, WIDTH), WIDTH, 4 * WIDTH))
    logits = net("MatMul", net.layer_norm(x, WIDTH), net.weight(WIDTH, 500))
    return net.model((logits, ["batch", 1, 500]), *outputs)


@miniature
def wav2vec2() -> onnx.ModelProto:
    """Baevski et al., 2020: convolutions of samples, GroupNorm, places by convolution."""
    net = Net(14)
    x = net("Unsqueeze", net.input("input_values", ["batch", 1600]), [1])
    x = net.conv(x, 1, 64, 10, dims=1, stride=5, pad=0, bias=False)
    y = net("Reshape", x, [0, 64, -1])
    y = net("InstanceNormalization", y, np.ones(64, np.float32), np.zeros(64, np.float32))
    y = net("Reshape", y, net("Shape", x))
    y = net("Mul", y, net.weight(64, 1, std=0.1, mean=1.0))
    x = net.gelu(net("Add", y, net.weight(64, 1, std=0.1)))
    for _ in range(2):
        x = net.gelu(net.conv(x, 64, 64, 3, dims=1, stride=2, pad=0, bias=False))
    x = net("Transpose", x, perm=[0, 2, 1])
    x = net.linear(net.layer_norm(x, 64), 64, WIDTH)
    y = net("Transpose", x, perm=[0, 2, 1])
    y = net("Conv", y, net.weight(WIDTH, 8, 16), net.weight(WIDTH), group=16, pads=[8, 8])
    y = net("Slice", y, [0], [-1], [2])
    x = net("Add", x, net("Transpose", net.gelu(y), perm=[0, 2, 1]))
    x = net.layer_norm(x, WIDTH)
    y = net.attention(x, x, WIDTH, HEADS)[0]
    x = net.layer_norm(net("Add", x, y), WIDTH)
    x = net.layer_norm(net("Add", x, net.mlp(x, WIDTH, 256)), WIDTH)
    logits = net.linear(x, WIDTH, 32)
    return net.model((logits, ["batch", 79, 32]))


@miniature
def recurrent() -> onnx.ModelProto:
    """A tagger by the operators LSTM and GRU, as Torch exports them: squeezed and transposed."""
    net = Net(14)
    ids = net.input("ids", ["length", "batch"], TensorProto.INT64)
    x = net("Gather", net.weight(300, 64, std=0.5), ids)
    batch = net("Slice", net("Shape", x), [1], [2], [0])
    zero = net("Expand", 0.0, net("Concat", [2], batch, [48], axis=0))
    y, h, c = net.ops(
        "LSTM", 3, x, net.weight(2, 192, 64, std=0.1), net.weight(2, 192, 48, std=0.1),
        net.weight(2, 384, std=0.1), "", zero, zero, hidden_size=48, direction="bidirectional",
    )  # fmt: skip
    y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, -1])
    y, _ = net.ops("GRU", 2, y, net.weight(1, 144, 96, std=0.1), net.weight(1, 144, 48, std=0.1),
                   net.weight(1, 288, std=0.1), hidden_size=48, linear_before_reset=1)  # fmt: skip
    y = net.linear(net("Squeeze", y, [1]), 48, 9)
    return net.model((net("LogSoftmax", y, axis=-1), ["length", "batch", 9]), h, c)


@miniature
def unrolled_lstm() -> onnx.ModelProto:
    """Steps of a cell written out; both products of each step come with a bias."""
    net = Net(13)
    x = net.input("x", [4, 6, 64])
    h, c = net.input("h", [4, 48]), net.input("c", [4, 48])
    kernels = [net.weight(192, 64), net.weight(192), net.weight(192, 48), net.weight(192)]
    made = []
    for step in range(6):
        net.scope = f"/step.{step}"
        now = net("Squeeze", net("Slice", x, [step], [step + 1], [1]), [1])
        a = net("Gemm", now, kernels[0], kernels[1], transB=1)
        gates = net("Add", a, net("Gemm", h, kernels[2], kernels[3], transB=1))
        i, f, g, o = net.ops("Split", 4, gates, axis=1)
        kept = net("Mul", net("Sigmoid", f), c)
        c = net("Add", kept, net("Mul", net("Sigmoid", i), net("Tanh", g)))
        h = net("Mul", net("Sigmoid", o), net("Tanh", c))
        made.append(net("Unsqueeze", h, [1]))
    return net.model((net("Concat", *made, axis=1), [4, 6, 48]), h, c)


@miniature
def mamba() -> onnx.ModelProto:
    """Gu and Dao, 2023: a gated state space, whose recurrence is a Scan."""
    net = Net(17)
    inner, states, length = 128, 16, 24
    x = net.input("hidden", [1, length, 64])
    y = net.linear(net.layer_norm(x, 64), 64, 2 * inner, bias=False)
    u, z = net.ops("Split", 2, y, axis=-1)
    u = net("Transpose", u, perm=[0, 2, 1])
    u = net("Conv", u, net.weight(inner, 1, 4), net.weight(inner), group=inner, pads=[3, 3])
    u = net.silu(net("Slice", u, [0], [length], [2]))
    u = net("Transpose", u, perm=[0, 2, 1])
    part = net.linear(u, inner, 4 + 2 * states, bias=False)
    delta, b, c = net.ops("Split", 3, part, [4, states, states], axis=-1)
    delta = net("Softplus", net.linear(delta, 4, inner))
    a = net("Neg", net("Exp", net.weight(inner, states)))
    decay = net("Exp", net("Mul", net("Unsqueeze", delta, [-1]), a))
    put = net("Mul", net("Unsqueeze", delta, [-1]), net("Unsqueeze", b, [2]))
    put = net("Mul", put, net("Unsqueeze", u, [-1]))
    body = Net(17)
    body.scope = "/scan"
    body.input("state", [1, inner, states])
    body.input("decay", [1, inner, states])
    body.input("put", [1, inner, states])
    body.input("c_now", [1, states])
    new = body("Add", body("Mul", "decay", "state"), "put")
    shown = body("MatMul", new, body("Unsqueeze", "c_now", [-1]))
    shown = body("Squeeze", shown, [-1])
    graph = body.graph(
        [(new, TensorProto.FLOAT, [1, inner, states]), (shown, TensorProto.FLOAT, [1, inner])]
    )
    zero = np.zeros((1, inner, states), np.float32)
    _, y = net.ops("Scan", 2, zero, decay, put, c, body=graph, num_scan_inputs=3,
                   scan_input_axes=[1, 1, 1], scan_output_axes=[1])  # fmt: skip
    y = net("Add", y, net("Mul", u, net.weight(inner)))
    y = net("Mul", y, net.silu(z))
    x = net("Add", x, net.linear(y, inner, 64, bias=False))
    return net.model((x, [1, length, 64]))


@miniature
def greedy_decoder() -> onnx.ModelProto:
    """A Loop over tokens with a branch in it: generation inside of the model."""
    net = Net(16)
    state = net.input("state", [1, 64])
    steps = net.input("steps", [], TensorProto.INT64)
    table, head = net.weight(100, 64, std=0.5), net.weight(64, 100)
    body = Net(16)
    body.scope = "/loop"
    body.input("step", [], TensorProto.INT64)
    body.input("going", [], TensorProto.BOOL)
    body.input("now", [1, 64])
    body.input("token", [1], TensorProto.INT64)
    x = body("Add", body("Gather", table, "token"), "now")
    x = body("Tanh", body.linear(x, 64, 64))
    logits = body("MatMul", x, head)
    token = body("ArgMax", body("Softmax", logits, axis=-1), axis=-1, keepdims=0)
    going = body("Not", body("Squeeze", body("Equal", token, np.array([0])), [0]))
    emitted = body("Identity", token)
    graph = body.graph(
        [
            (going, TensorProto.BOOL, []),
            (x, TensorProto.FLOAT, [1, 64]),
            (token, TensorProto.INT64, [1]),
            (emitted, TensorProto.INT64, [1]),
        ]
    )
    last, _, tokens = net.ops("Loop", 3, steps, np.array(True), state, np.array([1]), body=graph)
    return net.model((last, [1, 64]), (tokens, ["made", 1], TensorProto.INT64))
