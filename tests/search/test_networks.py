"""Networks that the committed rules simplify, from one end of the pipeline to the other.

The cost is the estimate, so that the outcome does not depend on the machine.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from longer import some
from onnx import TensorProto, helper, numpy_helper
from places import MODELS

import xflow
from hydrate import hydrate


class Network:
    """Collects the nodes and random weights of a model with one input and one output."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def weight(self, *shape: int, positive: bool = False) -> str:
        values = self.random.standard_normal(shape).astype(np.float32)
        name = f"w{len(self.weights)}"
        values = np.abs(values) + np.float32(0.5) if positive else values
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def convolution(
        self,
        x: str,
        into: int,
        out: int,
        kernel: Sequence[int],
        *,
        bias: bool = True,
        group: int = 1,
        stride: int = 1,
    ) -> str:
        inputs = [x, self.weight(out, into // group, *kernel)] + [self.weight(out)] * bias
        pads = [(k - 1) // 2 for k in kernel] * 2
        strides = [stride] * len(kernel)
        return self.node("Conv", *inputs, pads=pads, strides=strides, group=group)

    def normalization(self, x: str, channels: int) -> str:
        vectors = [self.weight(channels) for _ in range(3)]
        return self.node(
            "BatchNormalization", x, *vectors, self.weight(channels, positive=True), epsilon=1e-3
        )

    def model(self, output: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "network", [x], [y], self.weights)
        opset = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def optimized(model: onnx.ModelProto, **options: object) -> Counter[str]:
    """Operators of the model after optimization, and how many there are of each."""
    return Counter(in_order(model, **options))


def in_order(model: onnx.ModelProto, **options: object) -> list[str]:
    """Operators of the model after optimization; `optimize` itself checks equivalence."""
    result = xflow.optimize(model, cost="estimated", threads=2, **options)  # type: ignore[arg-type]
    return [node.op_type for node in result.model.graph]


@pytest.mark.parametrize(
    "blocks",
    [
        1,
        pytest.param(3, marks=pytest.mark.many),
        pytest.param(22, marks=pytest.mark.spellings),
    ],
)
def test_the_branches_of_repvgg_become_single_convolutions(blocks: int) -> None:
    """The first blocks, of three one with an identity branch; `make spellings` takes them all."""
    model = hydrate(onnx.load(MODELS / "repvgg_a0.onnx"))
    ends = [node.output[0] for node in model.graph.node if node.op_type == "Relu"]
    if blocks < len(ends):
        model = onnx.utils.Extractor(model).extract_model(["x"], [ends[blocks - 1]])
    operators = optimized(model, budget=200)
    assert operators["Conv"] == operators["Relu"] == blocks
    assert not operators["BatchNormalization"]
    assert not operators["Add"]


def test_without_rules_nothing_is_rewritten(tmp_path: Path) -> None:
    model = hydrate(onnx.load(MODELS / "repvgg_a0.onnx"))
    result = xflow.optimize(model, cost="estimated", rules=tmp_path)
    assert not result.report.changed
    assert result.report.rules == ()


def test_asymmetric_kernels_merge() -> None:
    net = Network([1, 8, 16, 16])
    branches = [net.convolution("x", 8, 8, kernel) for kernel in ((3, 3), (1, 3), (3, 1))]
    total = net.node("Add", net.node("Add", *branches[:2]), branches[2])
    assert optimized(net.model(net.node("Relu", total))) == {"Conv": 1, "Relu": 1}


def test_branches_of_a_strided_grouped_convolution_merge() -> None:
    net = Network([1, 8, 17, 17])
    branches = [
        net.convolution("x", 8, 16, (k, k), group=4, stride=2, bias=k > 1) for k in (1, 3, 5)
    ]
    total = net.node("Add", branches[0], net.node("Add", *branches[1:]))
    assert optimized(net.model(total)) == {"Conv": 1}


@pytest.mark.parametrize("axes", some([2, 1, 3], 3))
def test_an_identity_branch_merges_at_any_number_of_axes(axes: int) -> None:
    net = Network([1, 6, *[5] * axes])
    total = net.node("Add", "x", net.convolution("x", 6, 6, [3] * axes))
    assert optimized(net.model(net.node("Relu", total))) == {"Conv": 1, "Relu": 1}


def test_channels_are_mixed_where_pixels_are_fewest() -> None:
    """Behind the pool of DenseNet's transitions, and before a pool that keeps all pixels."""
    net = Network([1, 64, 28, 28])
    mixed = net.convolution("x", 64, 32, (1, 1), bias=False)
    halved = net.node("AveragePool", mixed, kernel_shape=[2, 2], strides=[2, 2])
    assert in_order(net.model(halved)) == ["AveragePool", "Conv"]
    net = Network([1, 256, 17, 17])
    window: dict[str, object] = {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}
    smooth = net.node("AveragePool", "x", **window)
    mixed = net.convolution(smooth, 256, 32, (1, 1), bias=False)
    assert in_order(net.model(mixed)) == ["Conv", "AveragePool"]


@pytest.mark.parametrize("pool", ["AveragePool", "MaxPool"])
def test_a_pool_of_single_pixels_is_a_stride(pool: str) -> None:
    net = Network([1, 32, 15, 15])
    taken = net.node(pool, "x", kernel_shape=[1, 1], strides=[2, 2])
    assert in_order(net.model(net.convolution(taken, 32, 16, (1, 1)))) == ["Conv"]


def test_a_normalized_identity_branch_merges() -> None:
    net = Network([1, 32, 14, 14])
    total = net.node("Add", net.convolution("x", 32, 32, (3, 3)), net.normalization("x", 32))
    assert optimized(net.model(total)) == {"Conv": 1}


@pytest.mark.spellings
def test_a_classifier_that_reads_one_token_computes_its_last_block_for_that_row() -> None:
    net = Network([1, 64, 128])
    inner = net.node("Add", net.node("MatMul", "x", net.weight(128, 512)), net.weight(512))
    outer = net.node("Add", net.node("MatMul", net.node("Relu", inner), net.weight(512, 128)),
                     net.weight(128))  # fmt: skip
    block = net.node("LayerNormalization", net.node("Add", "x", outer), net.weight(128), axis=-1)
    net.weights.append(numpy_helper.from_array(np.asarray(0), "first"))
    model = net.model(net.node("Gather", block, "first", axis=1))
    result = xflow.optimize(model, cost="estimated", budget=60.0)
    inferred = onnx.shape_inference.infer_shapes(ir.to_proto(result.model))
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
              for v in inferred.graph.value_info}  # fmt: skip
    products = [node for node in inferred.graph.node if node.op_type in ("MatMul", "Gemm")]
    assert len(products) == 2
    assert all(np.prod(shapes[node.output[0]][:-1]) == 1 for node in products)


def test_a_scale_of_channels_behind_a_transpose_goes_into_the_weights_before_it() -> None:
    net = Network([1, 14, 14, 64])
    product = net.node("Add", net.node("MatMul", "x", net.weight(64, 64)), net.weight(64))
    image = net.node("Transpose", product, perm=[0, 3, 1, 2])
    scaled = net.node("Mul", image, net.weight(1, 64, 1, 1))
    assert optimized(net.model(scaled)) == {"MatMul": 1, "Add": 1, "Transpose": 1}


def test_a_scale_goes_past_a_shift_into_a_convolution_with_a_border() -> None:
    """An affine activation: the border stands for zeros behind the shift, which has to stay."""
    net = Network([1, 8, 12, 12])
    scaled = net.node("Mul", net.node("HardSwish", "x"), net.weight(1, positive=True))
    shifted = net.node("Add", scaled, net.weight(1))
    found = in_order(net.model(net.convolution(shifted, 8, 8, (3, 3))))
    assert found == ["HardSwish", "Add", "Conv"]


@pytest.mark.parametrize(
    ("reduction", "operator", "count"),
    [("ReduceMax", "Max", 3), ("ReduceMin", "Min", 2), ("ReduceSum", "Add", 2)],
)
def test_a_stack_that_is_reduced_is_no_stack(reduction: str, operator: str, count: int) -> None:
    """As ``torch.stack(tensors, dim=-1).amax(-1)`` is exported.

    Of tensors so large that copies of them cost more than calls of operators.
    """
    net = Network([1, 120, 160])
    parts = [net.node("Mul", "x", net.weight(160)) for _ in range(count)]
    axis = net.constant(np.array([-1]))
    stack = net.node("Concat", *(net.node("Unsqueeze", part, axis) for part in parts), axis=-1)
    axes = {} if reduction == "ReduceSum" else {"axes": [-1]}
    inputs = (stack, axis) if reduction == "ReduceSum" else (stack,)
    found = optimized(net.model(net.node(reduction, *inputs, keepdims=0, **axes)))
    assert not {"Concat", "Unsqueeze", reduction} & set(found)


def test_convolutions_of_sequences_become_convolutions_of_images() -> None:
    """Runtimes have faster kernels for these; what is between them moves along."""
    net = Network([1, 128, 600])
    first = net.node("LeakyRelu", net.convolution("x", 128, 128, (3,)))
    second = net.node("Add", net.convolution(first, 128, 128, (5,), group=128), first)
    last = net.node("Transpose", net.node("Relu", second), perm=[0, 2, 1])
    found = in_order(net.model(last))
    moved = ["Unsqueeze", "Conv", "LeakyRelu", "Conv", "Add", "Relu", "Squeeze", "Transpose"]
    assert found == moved


def test_a_convolution_of_an_enlarged_image_becomes_four_of_the_image() -> None:
    """Of nine elements of the kernel each of them has four, since pixels are there twice."""
    net = Network([1, 64, 32, 32])
    image = net.node("Relu", net.convolution("x", 64, 128, (1, 1)))
    twice = net.constant(np.array([1, 1, 2, 2], np.float32))
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    enlarged = net.node("Resize", image, "", twice, mode="nearest", **attributes)
    last = net.node("Relu", net.convolution(enlarged, 128, 64, (3, 3)))
    found = optimized(net.model(last))
    assert found == {"Conv": 5, "Relu": 5, "Concat": 1, "DepthToSpace": 1}


def test_every_second_pixel_side_by_side_is_a_strided_convolution() -> None:
    """The first layers of YOLO: rows, then columns, in four slices that are joined."""
    net = Network([1, 3, 64, 64])

    def every_second(x: str, axis: int, start: int) -> str:
        ends = net.constant(np.array([2**31]))
        bounds = [net.constant(np.array([bound])) for bound in (start, axis, 2)]
        return net.node("Slice", x, bounds[0], ends, *bounds[1:])

    starts = [(0, 0), (1, 0), (0, 1), (1, 1)]
    parts = [every_second(every_second("x", 2, row), 3, column) for row, column in starts]
    image = net.convolution(net.node("Concat", *parts, axis=1), 12, 32, (3, 3))
    found = in_order(net.model(net.node("Relu", image)))
    assert found == ["Conv", "Relu"]
