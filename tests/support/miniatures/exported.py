"""Miniatures with the layouts, types, names and duplicates of exporters and quantizers."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from miniatures.net import Array, Net, miniature

FLAT = [0, 3, 1, 2]
BACK = [0, 2, 3, 1]


@miniature
def tf2onnx_resnet() -> onnx.ModelProto:
    """Keras' ResNet by tf2onnx: Transpose around each Conv, Pad apart from it, norms not folded."""
    net = Net(13)
    x = net.input("input_1", ["unk__1", 56, 56, 3])

    def conv(x: str, before: int, after: int, size: int, stride: int = 1) -> str:
        """Pad and norm see channels last, as Keras' layers do; the bias is added apart."""
        if stride > 1:
            x = net("Pad", x, [0, 3, 3, 0, 0, 3, 3, 0], 0.0)
        x = net("Transpose", x, perm=FLAT)
        x = net("Conv", x, net.weight(after, before, size, size), strides=[stride, stride],
                kernel_shape=[size, size],
                auto_pad="SAME_UPPER" if size == 3 else "VALID")  # fmt: skip
        x = net("Transpose", x, perm=BACK)
        x = net("Add", x, net.weight(after, std=0.1))
        x = net.norm(net("Transpose", x, perm=FLAT), after)
        return net("Transpose", x, perm=BACK)

    x = net("Relu", conv(x, 3, 64, 7, 2))
    x = net("Pad", x, [0, 1, 1, 0, 0, 1, 1, 0], 0.0)
    x = net("MaxPool", net("Transpose", x, perm=FLAT), kernel_shape=[3, 3], strides=[2, 2])
    x = net("Transpose", x, perm=BACK)
    for number in range(2):
        net.scope = f"/StatefulPartitionedCall/conv2_block{number}"
        y = net("Relu", conv(x, 64 if number == 0 else 128, 32, 1))
        y = net("Relu", conv(y, 32, 32, 3))
        y = conv(y, 32, 128, 1)
        x = conv(x, 64, 128, 1) if number == 0 else x
        x = net("Relu", net("Add", x, y))
    x = net("ReduceMean", x, axes=[1, 2], keepdims=0)
    x = net("Add", net("MatMul", x, net.weight(128, 10)), net.weight(10))
    return net.model((net("Softmax", x, axis=-1), ["unk__1", 10]))


@miniature
def keras_efficientnet() -> onnx.ModelProto:
    """Keras' EfficientNet: rescaled and normalized inside, and gates in channels last."""
    net = Net(15)
    x = net.input("input", ["batch", 48, 48, 3])
    x = net("Mul", x, 1 / 255)
    x = net("Sub", x, net.keep(np.array([0.485, 0.456, 0.406], np.float32)))
    x = net("Div", x, net.keep(np.array([0.229, 0.224, 0.225], np.float32)))
    x = net("Transpose", x, perm=FLAT)
    x = net("Pad", x, [0, 0, 0, 0, 0, 0, 1, 1], 0.0)
    x = net.silu(net.norm(net.conv(x, 3, 32, 3, stride=2, pad=0, bias=False), 32))
    for number in range(2):
        net.scope = f"/block{number}"
        y = net.silu(net.norm(net.conv(x, 32, 96, bias=False), 96))
        y = net("Conv", y, net.weight(96, 1, 3, 3), group=96, auto_pad="SAME_UPPER",
                kernel_shape=[3, 3])  # fmt: skip
        y = net("Transpose", net.silu(net.norm(y, 96)), perm=BACK)
        gate = net("ReduceMean", y, axes=[1, 2], keepdims=0)
        gate = net("Reshape", gate, [-1, 1, 1, 96])
        gate = net.silu(net.conv(net("Transpose", gate, perm=FLAT), 96, 8))
        gate = net("Transpose", net("Sigmoid", net.conv(gate, 8, 96)), perm=BACK)
        y = net("Transpose", net("Mul", y, gate), perm=FLAT)
        y = net.norm(net.conv(y, 96, 32, bias=False), 32)
        x = net("Add", y, x)
    x = net("Squeeze", net("ReduceMean", x, axes=[2, 3]), [2, 3])
    x = net("Add", net("MatMul", x, net.weight(32, 10)), net.weight(10))
    return net.model((net("Softmax", x, axis=-1), ["batch", 10]))


def quantized(net: Net, x: str, scale: float, zero: Array) -> str:
    """x through 8 bits."""
    small = net("QuantizeLinear", x, scale, zero)
    return net("DequantizeLinear", small, scale, zero)


@miniature
def qdq_resnet() -> onnx.ModelProto:
    """A block quantized by the runtime's tools: QDQ around all, kernels by channel."""
    net = Net(13)
    zero = np.array(0, np.int8)
    x = quantized(net, net.input("image", [1, 64, 28, 28]), 0.03, zero)

    def conv(x: str) -> str:
        kernel = net.keep(net.random.integers(-127, 128, (64, 64, 3, 3)).astype(np.int8))
        scales = net.keep(net.random.uniform(5e-4, 1e-3, 64).astype(np.float32))
        zeros = net.keep(np.zeros(64, np.int8))
        kernel = net("DequantizeLinear", kernel, scales, zeros, axis=0)
        shift = net.keep(net.random.integers(-999, 999, 64).astype(np.int32))
        narrow = net.keep(net.random.uniform(1e-5, 3e-5, 64).astype(np.float32))
        shift = net("DequantizeLinear", shift, narrow, net.keep(np.zeros(64, np.int32)), axis=0)
        return net("Conv", x, kernel, shift, kernel_shape=[3, 3], pads=[1] * 4)

    y = quantized(net, net("Relu", conv(x)), 0.02, zero)
    y = quantized(net, conv(y), 0.04, zero)
    x = quantized(net, net("Relu", net("Add", x, y)), 0.04, zero)
    x = quantized(net, net("GlobalAveragePool", x), 0.02, zero)
    x = net("Flatten", x)
    return net.model(net("Gemm", x, net.weight(10, 64), net.weight(10), transB=1))


@miniature
def qoperator_block() -> onnx.ModelProto:
    """The same in operators of integers, with a dynamically quantized layer at the end."""
    net = Net(12, domains=[("com.microsoft", 1)])
    zero, unsigned = np.array(0, np.int8), np.array(128, np.uint8)
    image = net.input("image", [1, 64, 14, 14])
    x = net("QuantizeLinear", image, 0.03, unsigned)
    for _ in range(2):
        kernel = net.keep(net.random.integers(-127, 128, (64, 64, 3, 3)).astype(np.int8))
        shift = net.keep(net.random.integers(-999, 999, 64).astype(np.int32))
        x = net("QLinearConv", x, 0.03, unsigned, kernel, 1e-3, zero, 0.03, unsigned, shift,
                kernel_shape=[3, 3], pads=[1] * 4)  # fmt: skip
    x = net("QLinearAdd", x, 0.03, unsigned, x, 0.03, unsigned, 0.05, unsigned,
            domain="com.microsoft")  # fmt: skip
    x = net("Relu", net("DequantizeLinear", x, 0.05, unsigned))
    x = net("Flatten", net("GlobalAveragePool", x))
    small, scale, offset = net.ops("DynamicQuantizeLinear", 3, x)
    matrix = net.keep(net.random.integers(-127, 128, (64, 10)).astype(np.int8))
    y = net("Cast", net("MatMulInteger", small, matrix, offset, zero), to=TensorProto.FLOAT)
    y = net("Mul", y, net("Mul", scale, 0.01))
    return net.model((net("Add", y, net.weight(10)), [1, 10]))


def narrowed(model: onnx.ModelProto, dtype: int, types: dict[str, int]) -> onnx.ModelProto:
    """All floats of a model in another type; inputs and outputs too."""
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor)
            array = array.astype(onnx.helper.tensor_dtype_to_np_dtype(dtype))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = types.get(value.name, dtype)
    return model


def small_transformer(net: Net, softmax_in: int) -> onnx.ModelProto:
    """A layer whose softmax goes through 32 bits, as transformers asks for."""
    x = net.input("hidden_states", ["batch", 32, 64])
    mask = net.input("mask", ["batch", 1, 32, 32])
    for number in range(2):
        net.scope = f"/layer.{number}"
        q, k, v = (net.heads(net.linear(x, 64, 64), 32, 2, 32, [0, 2, 1, 3]) for _ in range(3))
        scores = net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net("Add", net("Mul", scores, 32**-0.5), mask)
        wide = net("Softmax", net("Cast", scores, to=TensorProto.FLOAT), axis=-1)
        y = net("MatMul", net("Cast", wide, to=softmax_in), v)
        y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), [0, 0, 64])
        x = net.layer_norm(net("Add", x, net.linear(y, 64, 64)), 64)
        x = net.layer_norm(net("Add", x, net.mlp(x, 64, 256)), 64)
    net.inputs = net.inputs[:2]
    shape = ["batch", 32, 64]
    made = net.graph([(x, TensorProto.FLOAT, shape)])
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", net.opset)])
    model.ir_version = 10
    return model


@miniature
def half_transformer() -> onnx.ModelProto:
    """A transformer in 16 bits."""
    return narrowed(small_transformer(Net(17), TensorProto.FLOAT16), TensorProto.FLOAT16, {})


@miniature
def bfloat_mlp() -> onnx.ModelProto:
    """Layers in bfloat16 between casts, since the runtime has few such kernels on processors."""
    net = Net(21)
    x = net.input("x", ["n", 64])
    for _ in range(2):
        y = net("Cast", x, to=TensorProto.BFLOAT16)
        y = net("Cast", y, to=TensorProto.FLOAT)
        x = net.layer_norm(net("Add", x, net.mlp(y, 64, 128, "Relu")), 64)
    return net.model((net("Cast", x, to=TensorProto.BFLOAT16), ["n", 64], TensorProto.BFLOAT16))


@miniature
def trees() -> onnx.ModelProto:
    """A pipeline of scikit-learn: scaled features, a forest and labels, by ai.onnx.ml."""
    net = Net(13, domains=[("ai.onnx.ml", 3)])
    x = net.input("X", ["rows", 4])
    x = net(
        "Scaler", x, domain="ai.onnx.ml", offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 0.5, 1.0]
    )
    label, chances = net.ops(
        "TreeEnsembleClassifier", 2, x, domain="ai.onnx.ml", class_ids=[0, 1, 0, 1],
        class_nodeids=[1, 2, 1, 2], class_treeids=[0, 0, 1, 1], class_weights=[1.0, 1.0, 0.5, 0.5],
        classlabels_int64s=[0, 1], nodes_falsenodeids=[2, 0, 0] * 2,
        nodes_featureids=[0, 0, 0, 2, 0, 0], nodes_truenodeids=[1, 0, 0] * 2,
        nodes_missing_value_tracks_true=[0] * 6, nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
        nodes_nodeids=[0, 1, 2] * 2, nodes_treeids=[0, 0, 0, 1, 1, 1],
        nodes_values=[0.5, 0.0, 0.0] * 2, post_transform="NONE",
    )  # fmt: skip
    chances = net("Normalizer", chances, domain="ai.onnx.ml", norm="L1")
    label = net("Cast", label, to=TensorProto.INT64)
    return net.model((label, ["rows"], TensorProto.INT64), (chances, ["rows", 2]))


@miniature
def preprocessing() -> onnx.ModelProto:
    """Bytes of an image, resized, normalized and moved, before a network's first layers."""
    net = Net(18)
    x = net.input("bytes", ["height", "width", 3], TensorProto.UINT8)
    x = net("Cast", x, to=TensorProto.FLOAT)
    x = net("Unsqueeze", net("Transpose", x, perm=[2, 0, 1]), [0])
    x = net("Resize", x, "", "", np.array([1, 3, 56, 56]), mode="linear")
    x = net("Div", x, 255.0)
    mean = net.keep(np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1))
    std = net.keep(np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1))
    x = net("Div", net("Sub", x, mean), std)
    x = net("Relu", net.norm(net.conv(x, 3, 64, 7, stride=2, pad=0), 64))
    x = net("Flatten", net("GlobalAveragePool", x))
    return net.model((net("Gemm", x, net.weight(64, 10), net.weight(10)), [1, 10]))


@miniature
def odd_names() -> onnx.ModelProto:
    """Odd names, equal parts, weights that are not read, and outputs from the middle."""
    net = Net(16)
    x = net.input("вход/0:0", ["пакет", 32])
    net.keep(np.ones(999, np.float32), "nobody reads this")
    weight, shift = net.weight(32, 32), net.weight(32)
    middle = net("Relu", net("Add", net("MatMul", x, weight), shift))
    again = net("Relu", net("Add", net("MatMul", x, weight), shift))
    kept = net("Identity", net("Identity", middle))
    folded = net("Mul", net("Sqrt", net("Add", net.keep(np.full(32, 3.0, np.float32)), 1.0)), 0.5)
    y = net("Mul", net("Add", middle, again), folded)
    y = net("Dropout", net("Identity", y))
    for node in net.nodes:
        node.name = ""
    return net.model(
        (kept, ["пакет", 32]),
        (y, ["пакет", 32]),
        (middle, ["пакет", 32]),
        (net("Neg", y), ["пакет", 32]),
    )
