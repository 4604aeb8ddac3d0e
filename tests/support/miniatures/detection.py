"""Miniatures of detectors: heads with many branches, boxes, outputs of unknown size."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from miniatures.net import Net, miniature


def conv_silu(net: Net, x: str, before: int, after: int, size: int = 1, **attributes: int) -> str:
    return net.silu(net.conv(x, before, after, size, **attributes))


def csp(net: Net, x: str, before: int, after: int) -> str:
    """YOLOv5's C3: a bottleneck beside a projection of the same tensor."""
    half = after // 2
    y = conv_silu(net, x, before, half)
    y = net("Add", y, conv_silu(net, conv_silu(net, y, half, half), half, half, 3))
    return conv_silu(net, net("Concat", y, conv_silu(net, x, before, half), axis=1), after, after)


def pyramid(net: Net, x: str, width: int) -> tuple[str, str]:
    """Spatial pooling at one scale, and a larger scale by nearest Resize."""
    y = conv_silu(net, x, width, width // 2)
    pools = [y]
    for _ in range(3):
        pools.append(net("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    x = conv_silu(net, net("Concat", *pools, axis=1), 2 * width, width)
    scales = np.array([1, 1, 2, 2], np.float32)
    up = net("Resize", x, np.zeros(0, np.float32), scales, mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric")  # fmt: skip
    return x, up


@miniature
def yolo_v5() -> onnx.ModelProto:
    """Ultralytics' YOLOv5: anchors, five axes, boxes by Pow and Mul, at two scales."""
    net = Net(12)
    x = conv_silu(net, net.input("images", [1, 3, 64, 64]), 3, 32, 6, stride=2, pad=2)
    large = csp(net, conv_silu(net, x, 32, 64, 3, stride=2), 64, 64)
    small, up = pyramid(net, conv_silu(net, large, 64, 64, 3, stride=2), 64)
    large = csp(net, net("Concat", up, large, axis=1), 128, 64)
    boxes = []
    for x, side, stride in ((large, 16, 4.0), (small, 8, 8.0)):
        y = net("Reshape", net.conv(x, 64, 45), [1, 3, 15, side, side])
        y = net("Sigmoid", net("Transpose", y, perm=[0, 1, 3, 4, 2]))
        place, size, rest = net.ops("Split", 3, y, axis=4, split=[2, 2, 11])
        grid = np.stack(np.meshgrid(range(side), range(side)), -1)[None, None].astype(np.float32)
        place = net("Mul", net("Add", net("Mul", place, 2.0), net.keep(grid - 0.5)), stride)
        anchors = net.keep(np.broadcast_to(
            np.array([[10, 13], [16, 30], [33, 23]], np.float32).reshape(1, 3, 1, 1, 2),
            (1, 3, side, side, 2)).copy())  # fmt: skip
        size = net("Mul", net("Pow", net("Mul", size, 2.0), 2.0), anchors)
        y = net("Concat", place, size, rest, axis=4)
        boxes.append(net("Reshape", y, [1, -1, 15]))
    return net.model((net("Concat", *boxes, axis=1), [1, 960, 15]))


@miniature
def yolo_v8() -> onnx.ModelProto:
    """Ultralytics' YOLOv8: C2f, distances as expectations of a softmax, and NMS in the model."""
    net = Net(17)
    x = conv_silu(net, net.input("images", ["batch", 3, 64, 64]), 3, 32, 3, stride=2)
    x = conv_silu(net, conv_silu(net, x, 32, 64, 3, stride=2), 64, 64)
    left, right = net.ops("Split", 2, x, [32, 32], axis=1)
    inner = conv_silu(net, conv_silu(net, right, 32, 32, 3), 32, 32, 3)
    inner = net("Add", right, inner)
    x = conv_silu(net, net("Concat", left, right, inner, axis=1), 96, 64)
    box = net.conv(conv_silu(net, x, 64, 64, 3), 64, 64)
    kind = net.conv(conv_silu(net, x, 64, 64, 3), 64, 10)
    y = net("Reshape", net("Concat", box, kind, axis=1), [-1, 74, 256])
    box, kind = net.ops("Split", 2, y, [64, 10], axis=1)
    bins = net("Transpose", net("Reshape", box, [-1, 4, 16, 256]), perm=[0, 2, 1, 3])
    weights = net.keep(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1))
    far = net("Conv", net("Softmax", bins, axis=1), weights, kernel_shape=[1, 1])
    far = net("Reshape", far, [-1, 4, 256])
    low = net("Slice", far, [0], [2], [1])
    high = net("Slice", far, [2], [4], [1])
    grid = np.stack(np.meshgrid(range(16), range(16)), 0).reshape(1, 2, 256).astype(np.float32)
    anchors = net.keep(grid + 0.5)
    low, high = net("Sub", anchors, low), net("Add", anchors, high)
    centre = net("Div", net("Add", low, high), 2.0)
    box = net("Mul", net("Concat", centre, net("Sub", high, low), axis=1), 4.0)
    kind = net("Sigmoid", kind)
    boxes = net("Transpose", box, perm=[0, 2, 1])
    kept = net("NonMaxSuppression", boxes, kind, [20], np.array([0.5], np.float32),
               np.array([0.4], np.float32), center_point_box=1)  # fmt: skip
    return net.model(
        (net("Concat", box, kind, axis=1), ["batch", 14, 256]), (kept, ["found", 3], 7)
    )


@miniature
def ssd() -> onnx.ModelProto:
    """Liu et al., 2016: L2 normalization with scale, heads at two scales, channels moved last."""
    net = Net(11)
    x = net("Relu", net.conv(net.input("image", [1, 3, 56, 56]), 3, 64, 3, stride=2))
    large = net("Relu", net.conv(x, 64, 64, 3))
    root = net("Sqrt", net("ReduceSum", net("Mul", large, large), axes=[1], keepdims=1))
    y = net("Div", large, net("Add", root, 1e-10))
    y = net("Mul", y, net.weight(1, 64, 1, 1, std=1.0, mean=20.0))
    small = net("Relu", net.conv(net("Relu", net.conv(y, 64, 64, 3)), 64, 64, 3, stride=2))
    places, kinds = [], []
    for x in (y, small):
        place = net("Transpose", net.conv(x, 64, 16, 3), perm=[0, 2, 3, 1])
        places.append(net("Reshape", place, [1, -1, 4]))
        kind = net("Transpose", net.conv(x, 64, 84, 3), perm=[0, 2, 3, 1])
        kinds.append(net("Reshape", kind, [1, -1, 21]))
    kind = net("Softmax", net("Reshape", net("Concat", *kinds, axis=1), [-1, 21]), axis=1)
    place = net("Concat", *places, axis=1)
    priors = net.keep(net.random.uniform(0.1, 0.9, (1, 3920, 4)).astype(np.float32))
    middle = net("Slice", priors, [0], [2], [2])
    extent = net("Slice", priors, [2], [4], [2])
    at = net("Mul", net("Mul", net("Slice", place, [0], [2], [2]), 0.1), extent)
    size = net("Exp", net("Mul", net("Slice", place, [2], [2**31 - 1], [2]), 0.2))
    size = net("Mul", size, extent)
    low = net("Sub", net("Add", at, middle), net("Div", size, 2.0))
    return net.model(
        (net("Concat", low, net("Add", low, size), axis=2), [1, 3920, 4]),
        (net("Reshape", kind, [1, -1, 21]), [1, 3920, 21]),
    )


@miniature
def detr() -> onnx.ModelProto:
    """Carion et al., 2020: image to sequence, queries that are learned, heads for box and class."""
    net = Net(14)
    width = 128
    x = net("Relu", net.conv(net.input("image", [1, 3, 56, 56]), 3, width, 3, stride=4))
    x = net("Transpose", net("Reshape", x, [1, width, 196]), perm=[0, 2, 1])
    place = net.weight(1, 196, width, std=1.0)
    y, _, _ = net.attention(net("Add", x, place), net("Add", x, place), width, 4)
    memory = net.layer_norm(net("Add", x, y), width)
    queries = net.weight(1, 20, width, std=1.0)
    y, _, _ = net.attention(queries, net("Add", memory, place), width, 4)
    x = net.layer_norm(net("Add", queries, y), width)
    x = net.layer_norm(net("Add", x, net.mlp(x, width, 256, "Relu")), width)
    kind = net.linear(x, width, 11)
    for _ in range(2):
        x = net("Relu", net.linear(x, width, width))
    return net.model((kind, [1, 20, 11]), (net("Sigmoid", net.linear(x, width, 4)), [1, 20, 4]))


@miniature
def faster_rcnn_head() -> onnx.ModelProto:
    """Ren et al., 2015: TopK, NMS, RoiAlign over a number of boxes that only a run tells."""
    net = Net(16)
    image = net.input("features", [1, 64, 28, 28])
    x = net("Relu", net.conv(image, 64, 64, 3))
    scores = net("Reshape", net("Transpose", net.conv(x, 64, 3), perm=[0, 2, 3, 1]), [-1])
    deltas = net("Reshape", net("Transpose", net.conv(x, 64, 12), perm=[0, 2, 3, 1]), [-1, 4])
    best, which = net.ops("TopK", 2, net("Sigmoid", scores), [100], axis=0)
    boxes = net("Mul", net("Gather", net("Sigmoid", deltas), which, axis=0), 28.0)
    kept = net("NonMaxSuppression", net("Unsqueeze", boxes, [0]),
               net("Unsqueeze", net("Unsqueeze", best, [0]), [0]), [20],
               np.array([0.7], np.float32))  # fmt: skip
    kept = net("Squeeze", net("Gather", kept, [2], axis=1), [1])
    boxes = net("Gather", boxes, kept, axis=0)
    batch = net("Cast", net("Mul", kept, np.array([0])), to=TensorProto.INT64)
    y = net("RoiAlign", image, boxes, batch, output_height=7, output_width=7, sampling_ratio=2)
    y = net("Flatten", y, axis=1)
    y = net("Gemm", y, net.weight(128, 64 * 49, std=0.02), net.weight(128), transB=1)
    y = net("Relu", y)
    kind = net("Gemm", y, net.weight(11, 128), net.weight(11), transB=1)
    return net.model((boxes, ["n", 4]), (net("Softmax", kind, axis=-1), ["n", 11]))
