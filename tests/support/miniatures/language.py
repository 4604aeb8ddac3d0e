"""Miniatures of language models: encoders, and decoders with keys and values of the past."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from miniatures.net import Net, miniature

WIDTH, HEADS, SIZE = 128, 4, 32
LEAST = float(np.finfo(np.float32).min)


def embedded(net: Net, ids: str, words: int = 500, width: int = WIDTH) -> str:
    return net("Gather", net.weight(words, width, std=0.5), ids)


def padding_mask(net: Net, attended: str) -> str:
    """[batch, 1, 1, length], of 0 and the least float, as transformers makes it."""
    mask = net("Cast", net("Unsqueeze", attended, [1, 2]), to=TensorProto.FLOAT)
    return net("Mul", net("Sub", 1.0, mask), LEAST)


def axis(net: Net, x: str, number: int) -> str:
    """One size of x, as a vector."""
    return net("Unsqueeze", net("Gather", net("Shape", x), np.array(number), axis=0), [0])


def text(net: Net) -> tuple[str, str]:
    return (
        net.input("input_ids", ["batch", "sequence"], TensorProto.INT64),
        net.input("attention_mask", ["batch", "sequence"], TensorProto.INT64),
    )


@miniature
def distilbert() -> onnx.ModelProto:
    """Sanh et al., 2019: masked by Where over an expanded comparison, as its exports have it."""
    net = Net(14)
    ids, attended = text(net)
    places = net("Slice", net.keep(np.arange(64)[None]), [0], axis(net, ids, 1), [1])
    x = net("Add", embedded(net, ids), net("Gather", net.weight(64, WIDTH, std=0.5), places))
    x = net.layer_norm(x, WIDTH)
    batch, length = axis(net, ids, 0), axis(net, ids, 1)
    for number in range(2):
        net.scope = f"/transformer/layer.{number}"
        target = net("Concat", batch, [-1], [HEADS], [SIZE], axis=0)
        q, k, v = (
            net("Transpose", net("Reshape", net.linear(x, WIDTH, WIDTH), target), perm=[0, 2, 1, 3])
            for _ in range(3)
        )
        scores = net("MatMul", net("Div", q, SIZE**0.5), net("Transpose", k, perm=[0, 1, 3, 2]))
        mask = net("Equal", attended, np.array(0))
        mask = net("Reshape", mask, net("Concat", batch, [1], [1], length, axis=0))
        scores = net("Where", net("Expand", mask, net("Shape", scores)), LEAST, scores)
        y = net("Transpose", net("MatMul", net("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = net("Reshape", y, net("Concat", batch, [-1], [WIDTH], axis=0))
        x = net.layer_norm(net("Add", net.linear(y, WIDTH, WIDTH), x), WIDTH)
        x = net.layer_norm(net("Add", net.mlp(x, WIDTH, 4 * WIDTH), x), WIDTH)
    return net.model((x, ["batch", "sequence", WIDTH]))


@miniature
def albert() -> onnx.ModelProto:
    """Lan et al., 2020: every layer has the same weights; two outputs, one of them a pooler's."""
    net = Net(17)
    ids, attended = text(net)
    x = net.linear(embedded(net, ids, width=64), 64, WIDTH)
    mask = padding_mask(net, attended)
    first = len(net.drawn)
    states = []
    for number in range(3):
        net.scope = f"/layers.{number}"
        if number:  # the weights of the first layer again
            net.again = iter(net.drawn[first:])
        y = net.attention(x, x, WIDTH, HEADS, mask=mask)[0]
        x = net.layer_norm(net("Add", y, x), WIDTH)
        y = net.linear(x, WIDTH, 4 * WIDTH)
        cube = net("Mul", net("Pow", y, 3.0), 0.044715)
        inner = net("Tanh", net("Mul", net("Add", y, cube), 0.7978845608))
        y = net("Mul", net("Mul", y, 0.5), net("Add", inner, 1.0))
        x = net.layer_norm(net("Add", net.linear(y, 4 * WIDTH, WIDTH), x), WIDTH)
        states.append((x, ["batch", "sequence", WIDTH]))
    net.again = None
    pooled = net("Gather", x, np.array(0), axis=1)
    pooled = net("Gemm", pooled, net.weight(WIDTH, WIDTH), net.weight(WIDTH), transB=1)
    return net.model(*states, (net("Tanh", pooled), ["batch", WIDTH]))


@miniature
def deberta() -> onnx.ModelProto:
    """He et al., 2021: scores of contents and of relative places, gathered along the last axis."""
    net = Net(17)
    length = 16
    ids = net.input("input_ids", [1, length], TensorProto.INT64)
    attended = net.input("attention_mask", [1, length], TensorProto.INT64)
    x = net.layer_norm(embedded(net, ids), WIDTH)
    seen = net("Unsqueeze", net("Cast", attended, to=TensorProto.FLOAT), [1, 2])
    x = net("Mul", x, net("Unsqueeze", net("Cast", attended, to=TensorProto.FLOAT), [2]))
    pair = net("Mul", seen, net("Unsqueeze", net("Squeeze", seen, [2]), [3]))
    hidden = net("Not", net("Cast", pair, to=TensorProto.BOOL))
    relative = np.arange(length)[:, None] - np.arange(length)[None] + length
    places = net.weight(2 * length, WIDTH, std=0.5)
    for number in range(2):
        net.scope = f"/layer.{number}"
        q, k, v = (
            net("Reshape", net("Transpose", net("Reshape", net.linear(x, WIDTH, WIDTH),
                [0, length, HEADS, SIZE]), perm=[0, 2, 1, 3]), [-1, length, SIZE])
            for _ in range(3)
        )  # fmt: skip
        scale = float((3 * SIZE) ** 0.5)
        scores = net("MatMul", q, net("Div", net("Transpose", k, perm=[0, 2, 1]), scale))
        for a, order in ((q, relative), (k, relative.T)):
            p = net("Transpose", net("Reshape", net.linear(places, WIDTH, WIDTH),
                [2 * length, HEADS, SIZE]), perm=[1, 2, 0])  # fmt: skip
            near = net("MatMul", a, p)
            wanted = np.broadcast_to(order, (HEADS, length, length)).copy()
            near = net("GatherElements", near, wanted, axis=2)
            if order is not relative:
                near = net("Transpose", near, perm=[0, 2, 1])
            scores = net("Add", scores, net("Div", near, scale))
        scores = net("Reshape", scores, [-1, HEADS, length, length])
        scores = net("Softmax", net("Where", hidden, LEAST, scores), axis=-1)
        scores = net("Where", hidden, 0.0, scores)
        y = net("MatMul", net("Reshape", scores, [-1, length, length]), v)
        y = net("Reshape", y, [-1, HEADS, length, SIZE])
        y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), [1, length, WIDTH])
        x = net.layer_norm(net("Add", net.linear(y, WIDTH, WIDTH), x), WIDTH)
        x = net.layer_norm(net("Add", net.mlp(x, WIDTH, 2 * WIDTH), x), WIDTH)
    return net.model((x, [1, length, WIDTH]))


@miniature
def t5_decoder() -> onnx.ModelProto:
    """Raffel et al., 2020: RMSNorm by hand, relative bias, the past, attention to an encoder."""
    net = Net(13)
    ids = net.input("input_ids", ["batch", 1], TensorProto.INT64)
    memory = net.input("encoder_hidden_states", ["batch", "encoded", WIDTH])
    attended = net.input("encoder_attention_mask", ["batch", "encoded"], TensorProto.INT64)
    x = embedded(net, ids)
    mask = padding_mask(net, attended)

    def norm(x: str) -> str:
        mean = net("ReduceMean", net("Pow", x, 2.0), axes=[-1])
        root = net("Sqrt", net("Add", mean, 1e-6))
        return net("Mul", net.weight(WIDTH, std=0.1, mean=1.0),
                   net("Mul", x, net("Div", 1.0, root)))  # fmt: skip

    def heads(x: str) -> str:
        return net.heads(x, -1, HEADS, SIZE, [0, 2, 1, 3])

    def attend(q: str, k: str, v: str, bias: str) -> str:
        scores = net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2]))
        y = net("MatMul", net("Softmax", net("Add", scores, bias), axis=-1), v)
        y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), [0, -1, WIDTH])
        return net.linear(y, WIDTH, WIDTH, bias=False)

    outputs, bias = [], ""
    for number in range(2):
        net.scope = f"/block.{number}"
        past = [
            net.input(f"past.{number}.{part}", ["batch", HEADS, "past", SIZE])
            for part in ("key", "value")
        ]
        y = norm(x)
        q, k, v = (heads(net.linear(y, WIDTH, WIDTH, bias=False)) for _ in range(3))
        k, v = (net("Concat", old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
        if not bias:
            keys = net("Squeeze", axis(net, k, 2), [0])
            far = net(
                "Sub", net("Sub", keys, np.array(1)), net("Range", np.array(0), keys, np.array(1))
            )
            distance = net("Cast", net("Max", far, np.array(1)), to=TensorProto.FLOAT)
            log = net("Div", net("Log", net("Div", distance, 16.0)), float(np.log(8)))
            large = net(
                "Add", net("Cast", net("Mul", log, 16.0), to=TensorProto.INT64), np.array(16)
            )
            large = net("Min", large, np.array(31))
            bucket = net("Where", net("Less", far, np.array(16)), far, large)
            table = net("Gather", net.weight(32, HEADS, std=0.5), bucket)
            bias = net("Unsqueeze", net("Transpose", table, perm=[1, 0]), [0, 2])
        x = net("Add", x, attend(q, k, v, bias))
        outputs += [(k, ["batch", HEADS, "total", SIZE]), (v, ["batch", HEADS, "total", SIZE])]
        q = heads(net.linear(norm(x), WIDTH, WIDTH, bias=False))
        k, v = (heads(net.linear(memory, WIDTH, WIDTH, bias=False)) for _ in range(2))
        x = net("Add", x, attend(q, k, v, mask))
        y = net("Relu", net.linear(norm(x), WIDTH, 512, bias=False))
        x = net("Add", x, net.linear(y, 512, WIDTH, bias=False))
    logits = net("MatMul", net("Mul", norm(x), WIDTH**-0.5), net.weight(WIDTH, 500))
    return net.model((logits, ["batch", 1, 500]), *outputs)


def rotated(net: Net, x: str, cos: str, sin: str, size: int) -> str:
    """x * cos + rotate_half(x) * sin."""
    first = net("Slice", x, [0], [size // 2], [3], [1])
    second = net("Slice", x, [size // 2], [2**63 - 1], [3], [1])
    turned = net("Concat", net("Neg", second), first, axis=-1)
    return net("Add", net("Mul", x, cos), net("Mul", turned, sin))


def angles(net: Net, positions: str, size: int) -> tuple[str, str]:
    """Cosines and sines [batch, 1, length, size] of the positions."""
    inverse = net.keep((1e4 ** -(np.arange(0, size, 2) / size)).astype(np.float32)[None, :, None])
    at = net("Cast", net("Unsqueeze", positions, [1]), to=TensorProto.FLOAT)
    angle = net("Transpose", net("MatMul", inverse, at), perm=[0, 2, 1])
    angle = net("Concat", angle, angle, axis=-1)
    return (
        net("Unsqueeze", net("Cos", angle), [1]),
        net("Unsqueeze", net("Sin", angle), [1]),
    )


@miniature
def mistral() -> onnx.ModelProto:
    """Jiang et al., 2023: fewer heads of keys, repeated by Expand; rotary; the past as an input."""
    net = Net(17)
    ids, attended = (
        net.input("input_ids", ["batch", "sequence"], TensorProto.INT64),
        net.input("attention_mask", ["batch", "total"], TensorProto.INT64),
    )
    positions = net.input("position_ids", ["batch", "sequence"], TensorProto.INT64)
    x = embedded(net, ids)
    cos, sin = angles(net, positions, SIZE)
    batch, length = axis(net, ids, 0), axis(net, ids, 1)
    total = axis(net, attended, 1)
    # Causal and padded positions are joined before the first layer.
    square = net("Concat", length, total, axis=0)
    rows, columns = (
        net("Range", np.array(0), net("Squeeze", end, [0]), np.array(1)) for end in (length, total)
    )
    rows = net("Add", rows, net("Squeeze", net("Sub", total, length), [0]))
    rows, columns = net("Unsqueeze", rows, [1]), net("Unsqueeze", columns, [0])
    causal = net("Where", net("Greater", columns, rows), net("Expand", LEAST, square),
                 net("Expand", 0.0, square))  # fmt: skip
    padded = net("Equal", net("Unsqueeze", attended, [1, 2]), np.array(0))
    mask = net("Where", padded, LEAST, net("Unsqueeze", causal, [0, 1]))

    def norm(x: str) -> str:
        y = net("Cast", x, to=TensorProto.FLOAT)
        mean = net("ReduceMean", net("Pow", y, 2.0), axes=[-1])
        y = net("Mul", y, net("Reciprocal", net("Sqrt", net("Add", mean, 1e-5))))
        return net(
            "Mul", net.weight(WIDTH, std=0.1, mean=1.0), net("Cast", y, to=TensorProto.FLOAT)
        )

    outputs = []
    for number in range(2):
        net.scope = f"/model/layers.{number}"
        past = [
            net.input(f"past_key_values.{number}.{part}", ["batch", 2, "past", SIZE])
            for part in ("key", "value")
        ]
        y = norm(x)
        q = net.heads(net.linear(y, WIDTH, WIDTH, bias=False), -1, HEADS, SIZE, [0, 2, 1, 3])
        k, v = (
            net.heads(net.linear(y, WIDTH, 2 * SIZE, bias=False), -1, 2, SIZE, [0, 2, 1, 3])
            for _ in range(2)
        )
        q, k = (rotated(net, part, cos, sin, SIZE) for part in (q, k))
        repeated = []
        for old, new in zip(past, (k, v), strict=True):
            whole = net("Concat", old, new, axis=2)
            outputs.append((whole, ["batch", 2, "total", SIZE]))
            shape = net("Concat", batch, [2], [2], axis(net, whole, 2), [SIZE], axis=0)
            wide = net("Expand", net("Unsqueeze", whole, [2]), shape)
            shape = net("Concat", batch, [HEADS], axis(net, whole, 2), [SIZE], axis=0)
            repeated.append(net("Reshape", wide, shape))
        scores = net("MatMul", q, net("Transpose", repeated[0], perm=[0, 1, 3, 2]))
        scores = net("Add", net("Mul", scores, SIZE**-0.5), mask)
        y = net("Transpose", net("MatMul", net("Softmax", scores, axis=-1), repeated[1]),
                perm=[0, 2, 1, 3])  # fmt: skip
        y = net("Reshape", y, net("Concat", batch, length, [WIDTH], axis=0))
        x = net("Add", x, net.linear(y, WIDTH, WIDTH, bias=False))
        y = norm(x)
        gate = net.silu(net.linear(y, WIDTH, 352, bias=False))
        y = net("Mul", gate, net.linear(y, WIDTH, 352, bias=False))
        x = net("Add", x, net.linear(y, 352, WIDTH, bias=False))
    logits = net("MatMul", norm(x), net.weight(WIDTH, 500))
    return net.model((logits, ["batch", "sequence", 500]), *outputs)


@miniature
def phi() -> onnx.ModelProto:
    """Phi and GPT-NeoX: a part of each head is rotated; attention and layers side by side."""
    net = Net(16)
    ids = net.input("input_ids", ["batch", "sequence"], TensorProto.INT64)
    positions = net.input("position_ids", ["batch", "sequence"], TensorProto.INT64)
    x = embedded(net, ids)
    turned = 16
    cos, sin = angles(net, positions, turned)
    length = net("Squeeze", axis(net, ids, 1), [0])
    line = net("Range", np.array(0), length, np.array(1))
    hidden = net("Greater", net("Unsqueeze", line, [0]), net("Unsqueeze", line, [1]))
    for number in range(2):
        net.scope = f"/layers.{number}"
        y = net.layer_norm(x, WIDTH)
        joint = net("Reshape", net.linear(y, WIDTH, 3 * WIDTH), [0, 0, HEADS, 3 * SIZE])
        joint = net("Transpose", joint, perm=[0, 2, 1, 3])
        q, k, v = (
            net("Slice", joint, [part * SIZE], [(part + 1) * SIZE], [3]) for part in range(3)
        )
        parts = []
        for part in (q, k):
            first = rotated(net, net("Slice", part, [0], [turned], [3]), cos, sin, turned)
            rest = net("Slice", part, [turned], [2**63 - 1], [3])
            parts.append(net("Concat", first, rest, axis=-1))
        scores = net("MatMul", parts[0], net("Transpose", parts[1], perm=[0, 1, 3, 2]))
        scores = net("Where", hidden, LEAST, net("Mul", scores, SIZE**-0.5))
        attended = net("MatMul", net("Softmax", scores, axis=-1), v)
        attended = net("Reshape", net("Transpose", attended, perm=[0, 2, 1, 3]), [0, 0, WIDTH])
        attended = net.linear(attended, WIDTH, WIDTH)
        x = net("Add", net("Add", net.mlp(y, WIDTH, 4 * WIDTH), attended), x)
    logits = net.linear(net.layer_norm(x, WIDTH), WIDTH, 500)
    return net.model((logits, ["batch", "sequence", 500]))
