"""Miniatures of convolutional networks for images."""

from __future__ import annotations

import numpy as np
import onnx

from miniatures.net import Net, miniature


def image(net: Net, size: int = 56, batch: int | str = 1) -> str:
    return net.input("image", [batch, 3, size, size])


def classifier(net: Net, x: str, channels: int) -> str:
    x = net("Flatten", net("GlobalAveragePool", x), axis=1)
    return net("Gemm", x, net.weight(10, channels), net.weight(10), transB=1)


def normed(net: Net, x: str, before: int, after: int, size: int = 1, **attributes: int) -> str:
    return net.norm(net.conv(x, before, after, size, bias=False, **attributes), after)


@miniature
def mobilenet_v2() -> onnx.ModelProto:
    """Sandler et al., 2018: inverted residuals, Relu6 as Clip; BatchNormalization not folded."""
    net = Net(13)
    x = net("Clip", normed(net, image(net), 3, 32, 3, stride=2), 0.0, 6.0)
    before = 32
    for number, (expand, after, stride) in enumerate(((1, 16, 1), (6, 24, 2), (6, 24, 1))):
        net.scope = f"/features.{number}"
        y, inner = x, before * expand
        if expand > 1:
            y = net("Clip", normed(net, y, before, inner), 0.0, 6.0)
        y = net("Clip", normed(net, y, inner, inner, 3, stride=stride, group=inner), 0.0, 6.0)
        y = normed(net, y, inner, after)
        x = net("Add", x, y) if stride == 1 and before == after else y
        before = after
    return net.model(classifier(net, x, before))


def shuffle(net: Net, x: str, channels: int, side: int) -> str:
    """The channels of two halves, by turns."""
    y = net("Reshape", x, [1, 2, channels // 2, side, side])
    return net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3, 4]), [1, channels, side, side])


@miniature
def shufflenet_v2() -> onnx.ModelProto:
    """Ma et al., 2018: half of the channels pass by; Slice as exports of opset 10 to 12 have it."""
    net = Net(12)
    x = net("Relu", net.conv(image(net), 3, 116, 3, stride=2))
    for number in range(3):
        net.scope = f"/stage2.{number}"
        if number == 1:
            left, right = net.ops("Split", 2, x, axis=1, split=[58, 58])
        else:
            left = net("Slice", x, [0], [58], [1], [1])
            right = net("Slice", x, [58], [116], [1], [1])
        y = net("Relu", net.conv(right, 58, 58))
        y = net.conv(y, 58, 58, 3, group=58)
        y = net("Relu", net.conv(y, 58, 58))
        x = shuffle(net, net("Concat", left, y, axis=1), 116, 28)
    x = net("ReduceMean", x, axes=[2, 3], keepdims=0)
    return net.model(net("Gemm", x, net.weight(10, 116), net.weight(10), transB=1))


@miniature
def ghostnet() -> onnx.ModelProto:
    """Han et al., 2020: half of the channels are cheap functions of the others."""
    net = Net(17)
    x = net("Relu", net.conv(image(net), 3, 16, 3, stride=2))
    for number in range(2):
        net.scope = f"/blocks.{number}"
        a = net("Relu", normed(net, x, 16, 24))
        b = net("Relu", normed(net, a, 24, 24, 3, group=24))
        y = net("Concat", a, b, axis=1)
        y = net("Slice", y, [0], [48], [1])
        gate = net("ReduceMean", y, axes=[2, 3], keepdims=1)
        gate = net.conv(net("Relu", net.conv(gate, 48, 12)), 12, 48)
        gate = net("Clip", net("Div", net("Add", gate, 3.0), 6.0), 0.0, 1.0)
        y = net("Mul", y, gate)
        c = normed(net, y, 48, 8)
        y = net("Concat", c, normed(net, c, 8, 8, 3, group=8), axis=1)
        x = net("Add", y, x)
    return net.model(classifier(net, x, 16))


@miniature
def regnet_y() -> onnx.ModelProto:
    """Radosavovic et al., 2020: grouped bottlenecks with squeeze and excitation."""
    net = Net(18)
    x = net("Relu", net.conv(image(net), 3, 32, 3, stride=2))
    for number in range(2):
        net.scope = f"/s1/b{number}"
        width = 48
        y = net("Relu", net.conv(x, 32 if number == 0 else width, width))
        stride = 2 if number == 0 else 1
        y = net("Relu", net.conv(y, width, width, 3, group=2, stride=stride))
        gate = net("ReduceMean", y, [2, 3], keepdims=1)
        gate = net("Sigmoid", net.conv(net("Relu", net.conv(gate, width, 8)), 8, width))
        y = net.conv(net("Mul", y, gate), width, width)
        x = net.conv(x, 32, width, 1, stride=2) if number == 0 else x
        x = net("Relu", net("Add", y, x))
    return net.model(classifier(net, x, 48))


@miniature
def ecanet() -> onnx.ModelProto:
    """Wang et al., 2020: the gate is a convolution along the channels."""
    net = Net(17)
    x = net("Relu", net.conv(image(net), 3, 64, 7, stride=2))
    for number in range(2):
        net.scope = f"/layer1.{number}"
        y = net("Relu", net.conv(x, 64, 64, 3))
        y = net.conv(y, 64, 64, 3)
        gate = net("GlobalAveragePool", y)
        gate = net("Transpose", net("Squeeze", gate, [-1]), perm=[0, 2, 1])
        gate = net.conv(gate, 1, 1, 3, dims=1, bias=False)
        gate = net("Unsqueeze", net("Transpose", gate, perm=[0, 2, 1]), [-1])
        gate = net("Expand", net("Sigmoid", gate), net("Shape", y))
        x = net("Relu", net("Add", net("Mul", y, gate), x))
    return net.model(classifier(net, x, 64))


@miniature
def googlenet() -> onnx.ModelProto:
    """Szegedy et al., 2015: Caffe's export with LRN, Dropout and opset 7."""
    net = Net(7)
    x = net("Relu", net.conv(image(net), 3, 64, 7, stride=2))
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    x = net("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)
    before = 64
    for number in range(2):
        net.scope = f"/inception_{number}"
        a = net("Relu", net.conv(x, before, 64))
        b = net("Relu", net.conv(net("Relu", net.conv(x, before, 96)), 96, 128, 3))
        c = net("Relu", net.conv(net("Relu", net.conv(x, before, 16)), 16, 32, 5))
        d = net("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
        d = net("Relu", net.conv(d, before, 32))
        x, before = net("Concat", a, b, c, d, axis=1), 256
    x = net("AveragePool", x, kernel_shape=[14, 14], strides=[1, 1])
    x = net.ops("Dropout", 1, x, ratio=0.4)[0]
    x = net("Reshape", x, [1, 256])
    x = net("Gemm", x, net.weight(10, 256), net.weight(10), transB=1)
    return net.model(net("Softmax", x, axis=1))


@miniature
def unet() -> onnx.ModelProto:
    """Ronneberger et al., 2015: down, up by ConvTranspose, joined with what came from the side."""
    net = Net(13)

    def double(x: str, before: int, after: int) -> str:
        x = net("Relu", normed(net, x, before, after, 3))
        return net("Relu", normed(net, x, after, after, 3))

    x = double(image(net, 48), 3, 32)
    sides = []
    for width in (64, 128):
        sides.append(x)
        x = net("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = double(x, width // 2, width)
    for width in (64, 32):
        kernel, shift = net.weight(2 * width, width, 2, 2), net.weight(width)
        x = net("ConvTranspose", x, kernel, shift, kernel_shape=[2, 2], strides=[2, 2])
        side = sides.pop()
        # The difference of the sizes is computed, and zero.
        x = net("Pad", x, [0] * 8, mode="constant")
        x = double(net("Concat", side, x, axis=1), 2 * width, width)
    return net.model(net.conv(x, 32, 2))


@miniature
def superresolution() -> onnx.ModelProto:
    """Shi et al., 2016 (ESPCN) with EDSR's scaled residuals; DepthToSpace is written out."""
    net = Net(11)
    x = net.input("image", ["batch", 3, 24, 24])
    x = net.conv(net("Sub", x, net.keep(np.full((1, 3, 1, 1), 0.45, np.float32))), 3, 64, 3)
    for number in range(2):
        net.scope = f"/body.{number}"
        y = net.conv(net("Relu", net.conv(x, 64, 64, 3)), 64, 64, 3)
        x = net("Add", net("Mul", y, 0.1), x)
    x = net.conv(x, 64, 12, 3)
    x = net("Reshape", x, [-1, 3, 2, 2, 24, 24])
    x = net("Transpose", x, perm=[0, 1, 4, 2, 5, 3])
    x = net("Reshape", x, [-1, 3, 48, 48])
    x = net("Add", x, net.keep(np.full((1, 3, 1, 1), 0.45, np.float32)))
    return net.model((x, ["batch", 3, 48, 48]))


@miniature
def autoencoder() -> onnx.ModelProto:
    """A variational autoencoder: mean and variance, noise, and a decoder by ConvTranspose."""
    net = Net(17)
    x = net("Relu", net.conv(image(net, 28), 3, 32, 4, stride=2, pad=1))
    x = net("Relu", net.conv(x, 32, 64, 4, stride=2, pad=1))
    x = net("Flatten", x)
    mean = net("Gemm", x, net.weight(32, 3136), net.weight(32), transB=1)
    log_var = net("Gemm", x, net.weight(32, 3136), net.weight(32), transB=1)
    noise = net.input("noise", [1, 32])
    z = net("Add", mean, net("Mul", net("Exp", net("Mul", log_var, 0.5)), noise))
    x = net("Gemm", z, net.weight(3136, 32), net.weight(3136), transB=1)
    x = net("Reshape", x, [-1, 64, 7, 7])
    for before, after in ((64, 32), (32, 3)):
        kernel, shift = net.weight(before, after, 4, 4), net.weight(after)
        x = net("ConvTranspose", net("Relu", x), kernel, shift, kernel_shape=[4, 4],
                strides=[2, 2], pads=[1] * 4)  # fmt: skip
    return net.model((net("Sigmoid", x), [1, 3, 28, 28]), mean, log_var)


@miniature
def convmixer() -> onnx.ModelProto:
    """Trockman and Kolter, 2022: BatchNormalization behind the activation, where none folds it."""
    net = Net(14)
    x = net.conv(image(net), 3, 96, 4, stride=4, pad=0)
    x = net.norm(net.gelu(x), 96)
    for number in range(2):
        net.scope = f"/{number}"
        y = net.norm(net.gelu(net.conv(x, 96, 96, 5, group=96)), 96)
        x = net("Add", y, x)
        x = net.norm(net.gelu(net.conv(x, 96, 96)), 96)
    return net.model(classifier(net, x, 96))


@miniature
def poolformer() -> onnx.ModelProto:
    """Yu et al., 2022: pooling for attention, GroupNorm of one group, scales of layers."""
    net = Net(17)
    x = net.conv(image(net), 3, 64, 7, stride=4, pad=2)

    def norm(x: str) -> str:
        """GroupNorm with one group, as PyTorch exports it."""
        y = net("Reshape", x, [0, 1, -1])
        y = net("InstanceNormalization", y, np.ones(1, np.float32), np.zeros(1, np.float32))
        y = net("Reshape", y, net("Shape", x))
        y = net("Mul", y, net.weight(64, 1, 1, std=0.1, mean=1.0))
        return net("Add", y, net.weight(64, 1, 1))

    for number in range(2):
        net.scope = f"/network.{number}"
        y = norm(x)
        pooled = net("AveragePool", y, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
        x = net("Add", x, net("Mul", net.weight(64, 1, 1, std=0.1), net("Sub", pooled, y)))
        y = net.conv(net.gelu(net.conv(norm(x), 64, 256)), 256, 64)
        x = net("Add", x, net("Mul", net.weight(64, 1, 1, std=0.1), y))
    return net.model(classifier(net, x, 64))


@miniature
def deeplab() -> onnx.ModelProto:
    """Chen et al., 2017: dilated convolutions side by side, one over the mean of the image."""
    net = Net(11)
    x = net("Relu", net.conv(image(net), 3, 128, 3, stride=4))
    parts = [net("Relu", normed(net, x, 128, 64))]
    for rate in (2, 4):
        y = normed(net, x, 128, 64, 3, dilations=[rate, rate])  # type: ignore[arg-type]
        parts.append(net("Relu", y))
    mean = net("Relu", normed(net, net("GlobalAveragePool", x), 128, 64))
    size = net("Slice", net("Shape", x), [2], [4], [0])
    whole = net("Concat", net("Slice", net("Shape", mean), [0], [2], [0]), size, axis=0)
    empty = net.keep(np.zeros(0, np.float32))
    mean = net("Resize", mean, empty, empty, whole, mode="linear",
               coordinate_transformation_mode="pytorch_half_pixel")  # fmt: skip
    x = net("Concat", *parts, mean, axis=1)
    x = net.conv(net("Relu", normed(net, x, 256, 64)), 64, 21)
    x = net("Resize", x, empty, np.array([1, 1, 4, 4], np.float32), mode="linear",
            coordinate_transformation_mode="pytorch_half_pixel")  # fmt: skip
    return net.model((net("ArgMax", x, axis=1, keepdims=0), [1, 56, 56], 7))
