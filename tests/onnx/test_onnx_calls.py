"""Nodes as models have them: the forms that ONNX allows beyond the one that we write."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest
from operator_cases import (
    as_floats,
    assert_equal,
    exact_inputs,
    onnx_model,
    read_node,
    run_onnxruntime,
)

from xflow.core.fold import no_constants
from xflow.core.graph import Graph
from xflow.core.node import TensorType, apply, complete_attributes, leaf
from xflow.core.registry import Example, OnnxCall, Shape
from xflow.core.size import symbol, symbols
from xflow.onnx.region import region_model
from xflow.ops import by_onnx, operator


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.asarray(values, dtype=np.int64)


def real(value: float) -> np.ndarray[Any, Any]:
    return np.asarray(value, dtype=np.float32)


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.asarray(values, dtype=np.float32)


def node(
    op_type: str,
    shapes: tuple[Shape, ...],
    opset: int,
    constants: Mapping[int, Any] | None = None,
    outputs: int = 1,
    **attributes: Any,
) -> OnnxCall:
    """A node with float inputs of these shapes, and constants at further positions."""
    return OnnxCall(op_type, opset, "", attributes, shapes, constants or {}, outputs)


UNDERSTOOD = [
    node("Reshape", ((2, 3, 4),), 13, {1: ints(0, -1)}),
    node("Reshape", ((2, 3, 4),), 5, {1: ints(-1)}),
    node("Reshape", ((2, 3, 4),), 20, {1: ints(4, -1, 2)}),
    node("Reshape", ((2, 0),), 20, {1: ints(0, 5)}, allowzero=1),
    node("Reshape", ((2, 0),), 20, {1: ints(0, 0)}),
    node("Transpose", ((2, 3, 4),), 13),
    node("Unsqueeze", ((2, 3),), 13, {1: ints(-1, 0)}),
    node("Unsqueeze", ((2, 3),), 11, axes=[-2]),
    node("Unsqueeze", ((2, 3),), 7, axes=[2, 0]),
    node("Squeeze", ((1, 3, 1),), 13),
    node("Squeeze", ((1, 3, 1),), 11),
    node("Squeeze", ((1, 3, 1),), 13, {1: ints(-1)}),
    node("Squeeze", ((1, 3, 1),), 11, axes=[-3]),
    node("Concat", ((2, 3), (2, 1)), 13, axis=-1),
    node("Split", ((2, 6),), 13, None, 3, axis=-1),
    node("Split", ((6, 2),), 11, None, 2),
    node("Split", ((6, 2),), 11, None, 2, split=[5, 1]),
    node("Split", ((7, 2),), 18, None, 3, num_outputs=3),
    node("Split", ((7, 2),), 18, {1: ints(3, 4)}, 2),
    node("Slice", ((5, 4),), 13, {1: ints(-3), 2: ints(2**63 - 1)}),
    node("Slice", ((5, 4),), 13, {1: ints(1, 0), 2: ints(-1, 100), 3: ints(-1, 0)}),
    node("Slice", ((5, 4),), 13, {1: ints(-100), 2: ints(9), 3: ints(1), 4: ints(3)}),
    node("Slice", ((5, 4),), 13, {1: ints(4), 2: ints(2), 3: ints(0)}),
    node("Slice", ((5, 4),), 13, {1: ints(4), 2: ints(0), 3: ints(0), 4: ints(-1)}),
    node("Slice", ((5, 4),), 13, {1: ints(-1), 2: ints(-100), 3: ints(0), 4: ints(-2)}),
    node("Slice", ((5, 4),), 13, {1: ints(9, 2), 2: ints(-5, 3), 3: ints(0, 1), 4: ints(-3, -1)}),
    node("Slice", ((5, 4),), 13, {1: ints(-9), 2: ints(-(2**63)), 3: ints(1), 4: ints(-1)}),
    node("Slice", ((5, 4),), 9, starts=[1, 0], ends=[-1, 2], axes=[1, 0]),
    node("Slice", ((5, 4),), 7, starts=[1], ends=[1000]),
    node("Pad", ((2, 3),), 10, pads=[0, 1, 2, 0]),
    node("Pad", ((2, 3),), 13, {1: ints(0, 1, 2, 0)}, mode="constant"),
    node("Pad", ((2, 3),), 13, {1: ints(0, 1, 2, 0), 2: np.zeros((), np.float32)}),
    node(
        "Pad", ((2, 3, 4),), 18, {1: ints(1, 2, 0, 3), 2: np.zeros((), np.float32), 3: ints(-1, 0)}
    ),
    node("Pad", ((3, 2),), 18, {1: ints(-4, 0, 5, 0)}),
    node("Pad", ((2, 3),), 13, {1: ints(0, 1, 1, 0)}, mode="reflect"),
    node("Pad", ((2, 3),), 13, {1: ints(0, 4, 3, 0), 2: np.ones((), np.float32)}, mode="edge"),
    node("Pad", ((2, 3),), 10, pads=[1, 1, 1, 2], mode="reflect", value=1.0),
    node("Pad", ((2, 3),), 19, {1: ints(1, 2, 2, 3)}, mode="wrap"),
    node("Conv", ((1, 2, 5, 6), (3, 2, 3, 2)), 11, auto_pad="SAME_UPPER", strides=[2, 2]),
    node("Conv", ((1, 2, 5, 6), (3, 2, 2, 2)), 11, auto_pad="SAME_LOWER"),
    node("Conv", ((1, 2, 5), (3, 2, 2), (3,)), 11, auto_pad="VALID", kernel_shape=[2]),
    node("ReduceSum", ((2, 3),), 13),
    node("ReduceSum", ((2, 3),), 13, {1: ints(-1)}, keepdims=0),
    node("ReduceSum", ((2, 3),), 13, {1: ints()}),
    node("ReduceSum", ((2, 3),), 13, {1: ints()}, noop_with_empty_axes=1),
    node("ReduceSum", ((2, 3),), 11, axes=[-2]),
    node("ReduceMean", ((2, 3),), 13, axes=[1, 0], keepdims=0),
    node("ReduceMean", ((2, 3),), 13),
    node("ReduceMean", ((2, 3),), 18, {1: ints(-1)}),
    node("MaxPool", ((1, 2, 5, 6),), 12, kernel_shape=[2, 3], auto_pad="SAME_UPPER"),
    node("MaxPool", ((1, 2, 5, 6),), 8, kernel_shape=[2, 3], storage_order=1),
    node("MaxPool", ((1, 2, 5),), 12, kernel_shape=[3], strides=[2], ceil_mode=1),
    node("MaxPool", ((1, 2, 6),), 12, kernel_shape=[2], strides=[2], auto_pad="VALID"),
    node("AveragePool", ((1, 2, 5, 6),), 11, kernel_shape=[2, 3], auto_pad="SAME_LOWER"),
    node("AveragePool", ((1, 2, 5),), 19, kernel_shape=[3], dilations=[1], strides=[2]),
    node("MaxPool", ((1, 2, 6),), 12, kernel_shape=[3], strides=[2], ceil_mode=1),
    node("MaxPool", ((1, 2, 6, 5),), 12, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    node("MaxPool", ((1, 2, 3),), 22, kernel_shape=[1], strides=[3], ceil_mode=1),
    node("MaxPool", ((1, 2, 4),), 12, kernel_shape=[2], strides=[3], pads=[1, 1], ceil_mode=1),
    node("AveragePool", ((1, 2, 6),), 10, kernel_shape=[3], strides=[2], ceil_mode=1),
    node(
        "AveragePool",
        ((1, 2, 6),),
        22,
        kernel_shape=[3],
        strides=[2],
        ceil_mode=1,
        count_include_pad=1,
    ),
    node(
        "AveragePool",
        ((1, 2, 6, 7),),
        19,
        kernel_shape=[3, 3],
        pads=[1, 0, 0, 1],
        strides=[2, 4],
        ceil_mode=1,
        count_include_pad=1,
    ),
    node("Expand", ((3, 1),), 13, {1: ints(1, 4)}),
    node("Expand", ((2, 3),), 8, {1: ints(1)}),
    node("Expand", ((2, 1, 3),), 13, {1: ints(4, 1)}),
    node("Tile", ((2, 3),), 13, {1: ints(2, 2)}),
    node("Flatten", ((2, 3, 4),), 13, axis=-1),
    node("Flatten", ((2, 3, 4),), 9),
    node("DepthToSpace", ((1, 8, 2, 2),), 13, blocksize=2),
    node("DepthToSpace", ((1, 8, 2, 2),), 9, blocksize=2),
    node("ConvTranspose", ((1, 2, 3), (2, 3, 2)), 11),
    node("ConvTranspose", ((1, 2, 3), (2, 3, 2), (3,)), 11, auto_pad="VALID", strides=[2]),
    node("ConvTranspose", ((1, 2, 3), (2, 1, 4)), 11, auto_pad="SAME_UPPER", strides=[1]),
    node("ConvTranspose", ((1, 2, 3), (2, 1, 4)), 11, auto_pad="SAME_LOWER", strides=[1]),
    node("ConvTranspose", ((1, 2, 3), (2, 1, 4)), 11, output_shape=[4], strides=[2]),
    node(
        "ConvTranspose",
        ((1, 2, 3), (2, 1, 4)),
        11,
        output_shape=[5],
        strides=[2],
        auto_pad="SAME_UPPER",
        kernel_shape=[4],
    ),
    node("ConvTranspose", ((1, 2, 3), (2, 1, 4)), 11, output_padding=[1], strides=[3]),
    node("Upsample", ((1, 2, 2, 3),), 7, scales=[1.0, 1.0, 3.0, 2.0]),
    node("Upsample", ((1, 2, 3),), 9, {1: floats(1, 1, 4)}, mode="nearest"),
    node("Resize", ((1, 2, 3),), 10, {1: floats(1, 1, 3)}),
    node("Resize", ((1, 2, 3),), 11, {1: floats(), 2: floats(1, 1, 3)}),
    node("Resize", ((1, 2, 1),), 13, {1: floats(), 2: floats(1, 1, 3)}, mode="nearest"),
    node(
        "Resize",
        ((1, 2, 3),),
        13,
        {1: floats(), 2: floats(1, 1, 2)},
        coordinate_transformation_mode="asymmetric",
    ),
    node(
        "Resize",
        ((1, 2, 3),),
        19,
        {1: floats(), 2: floats(1, 1, 5)},
        coordinate_transformation_mode="pytorch_half_pixel",
        nearest_mode="round_prefer_ceil",
    ),
    node("Resize", ((1, 2, 3, 2),), 13, {1: floats(), 2: floats(), 3: ints(1, 2, 6, 2)}),
    node("Resize", ((1, 2, 3, 2),), 18, {1: floats(), 2: floats(3, 2)}, axes=[-1, 2]),
    node("Einsum", ((2, 3), (3, 4)), 12, equation="ij, jk"),
    node("Einsum", ((2, 3), (4, 3)), 12, equation="bA,cA -> cb"),
    node("Einsum", ((2, 3, 2), (2, 2, 3)), 13, equation="...zy,...yx"),
    node("Einsum", ((2, 3), (2, 3)), 13, equation="...,..."),
    node("BatchNormalization", ((2, 3, 4), *((3,),) * 4), 9, momentum=0.5, epsilon=0.25),
    node("BatchNormalization", ((2, 3, 4), *((3,),) * 4), 15, training_mode=0),
    node("Gemm", ((2, 3), (4, 3), (4,)), 13, alpha=0.5, beta=2.0, transB=1),
    node("Gemm", ((3, 2), (3, 4)), 13, transA=1),
    node("Clip", ((2, 3),), 6, min=-0.5, max=0.5),
    node("Clip", ((2, 3),), 10, min=-0.5),
    node("Clip", ((2, 3),), 6, min=-3.4028234663852886e38, max=1.0),
    node("Clip", ((2, 3),), 11, {1: real(-0.5), 2: real(1)}),
    node("Clip", ((2, 3),), 12, {1: real(0.25)}),
    node("Clip", ((2, 3),), 13, {2: real(0.25)}),
    node("Clip", ((2, 3),), 13, {1: real(1), 2: real(-1)}),
    node("Clip", ((2, 3),), 13),
    node("LeakyRelu", ((2, 3),), 6),
    node("LeakyRelu", ((2, 3),), 16, alpha=0.3),
    node("PRelu", ((2, 3), (3,)), 7),
    node("PRelu", ((2, 3, 4), (3, 1)), 9),
    node("HardSigmoid", ((2, 3),), 6),
    node("HardSigmoid", ((2, 3),), 22, alpha=1 / 6, beta=0.25),
    node("HardSwish", ((2, 3),), 14),
    node("Elu", ((2, 3),), 6, alpha=0.5),
    node("Selu", ((2, 3),), 22),
    node("Celu", ((2, 3),), 12, alpha=2.0),
    node("Gelu", ((2, 3),), 20),
    node("Gelu", ((2, 3),), 20, approximate="tanh"),
    node("Swish", ((2, 3),), 24, alpha=1.5),
    node("Mish", ((2, 3),), 22),
    node("Sum", ((2, 3), (3,), ()), 8),
    node("Mean", ((2, 3), (2, 1)), 13),
    node("Softmax", ((2, 3),), 11),
    node("Softmax", ((2, 3, 1),), 11),
    node("Softmax", ((2, 1, 3),), 11, axis=-2),
    node("Softmax", ((3, 2, 1, 1),), 7, axis=1),
    node("Softmax", ((2, 1, 1),), 11),
    node("Softmax", ((2, 3, 4),), 11, axis=2),
    node("Softmax", ((2, 3, 4),), 13),
    node("Softmax", ((2, 3, 4),), 13, axis=-2),
    node("LogSoftmax", ((2, 3),), 1),
    node("LogSoftmax", ((2, 3, 4),), 13, axis=0),
    node("ReduceMax", ((2, 3),), 11, axes=[-1]),
    node("ReduceMax", ((2, 3),), 18, {1: ints(0)}, keepdims=0),
    node("ReduceMin", ((2, 3),), 20, {1: ints()}, noop_with_empty_axes=1),
    node("ReduceProd", ((2, 3),), 13, axes=[0, 1]),
    node("ReduceSumSquare", ((2, 3),), 18, {1: ints(-1)}),
    node("ReduceL1", ((2, 3),), 11, axes=[0]),
    node("ReduceL2", ((2, 3),), 18),
    node("ReduceLogSumExp", ((2, 3),), 18, {1: ints()}, keepdims=0),
    node("LayerNormalization", ((2, 3, 4), (4,), (4,)), 17, stash_type=1),
    node("LayerNormalization", ((2, 3, 4), (3, 4)), 17, axis=1, epsilon=0.5),
    node("LayerNormalization", ((2, 3, 4), (3, 4), (3, 4)), 17, axis=-2),
    node("InstanceNormalization", ((2, 3, 4), (3,), (3,)), 6, epsilon=0.25),
    node("GroupNormalization", ((2, 4, 3), (2,), (2,)), 18, num_groups=2),
    node("GroupNormalization", ((2, 4, 3), (4,), (4,)), 21, num_groups=2, stash_type=1),
    node("RMSNormalization", ((2, 3, 4), (4,)), 23, stash_type=1),
    node("RMSNormalization", ((2, 3, 4), (3, 4)), 23, axis=-2, epsilon=0.5),
]

NOT_UNDERSTOOD = [
    node("Gemm", ((2, 3), (3, 4), (4,)), 13, alpha=0.0),
    node("Reshape", ((2, 3), (2,)), 13),
    node("Unsqueeze", ((2, 3), (1,)), 13),
    node("Split", ((7, 2),), 13, None, 2),
    node("Slice", ((5, 4), (1,), (1,)), 13),
    node("Pad", ((2, 3),), 13, {1: ints(0, 1, 1, 0), 2: np.ones((), np.float32)}),
    node("Pad", ((2, 3), (4,)), 13),
    node("Pad", ((2, 3),), 10, pads=[0, 1, 2, 0], value=1.0),
    node("Conv", ((1, 2, 5), (3, 2, 2)), 11, kernel_shape=[3]),
    node("ReduceSum", ((2, 3), (1,)), 13),
    node("MaxPool", ((1, 2, 6),), 12, None, 2, kernel_shape=[3]),
    node("Resize", ((1, 2, 3),), 10, {1: floats(1, 1, 1.5)}),
    node("Upsample", ((2**23,),), 9, {1: floats(3)}),
    node("Resize", ((2**24 + 1,),), 13, {1: floats(), 2: floats(1)}, nearest_mode="floor"),
    node("Upsample", ((1, 2, 3),), 9, {1: floats(1, 1, 2)}, mode="linear"),
    node("Resize", ((1, 2, 3),), 13, {1: floats(), 2: floats(1, 1, 1.5)}),
    node("Resize", ((1, 2, 3),), 13, {1: floats(), 2: floats(1, 1, 2)}, mode="linear"),
    node("Resize", ((1, 2, 3),), 13, {1: floats(), 2: floats(1, 1, 2)}, nearest_mode="floor"),
    node("Resize", ((1, 2, 3),), 13, {1: floats(), 2: floats(), 3: ints(1, 2, 5)}),
    node(
        "Resize",
        ((1, 2, 3),),
        13,
        {1: floats(), 2: floats(1, 1, 3)},
        coordinate_transformation_mode="asymmetric",
    ),
    node(
        "Resize",
        ((1, 2, 3),),
        13,
        {1: floats(), 2: floats(1, 1, 3)},
        coordinate_transformation_mode="align_corners",
    ),
    node("Expand", ((2, 1), (2,)), 13),
    node("Tile", ((2, 3), (2,)), 13),
    node("ConvTranspose", ((1, 2, 3), (2, 1, 1)), 11, output_shape=[8], strides=[2]),
    node("ConvTranspose", ((1, 2, 3), (2, 1, 2)), 11, kernel_shape=[3]),
    node("Einsum", ((2, 2),), 13, equation="ii->i"),
    node("Einsum", ((2, 3), (1, 3)), 13, equation="ij,ij->ij"),
    node("Einsum", ((2, 3, 2), (3, 2)), 13, equation="...j,...j->..."),
    node("Einsum", ((2, 3), (3, 4)), 13, equation="ab,bC"),
    node("AveragePool", ((1, 2, 6),), 19, kernel_shape=[2], dilations=[2]),
    node("BatchNormalization", ((2, 3, 4), *((3,),) * 4), 15, training_mode=1),
    node("BatchNormalization", ((2, 3, 4), *((3,),) * 4), 7, spatial=0),
    node("BatchNormalization", ((2, 3, 4), *((3,),) * 4), 9, None, 5),
    node("Relu", ((2, 3),), 13, unheard_of=1),
    node("Clip", ((2, 3), ()), 13),
    node("Clip", ((2, 3),), 13, {1: real(np.nan)}),
    node("Clip", ((2, 3),), 13, {1: real(np.inf)}),
    node("Clip", ((2, 3),), 13, {1: real(-np.inf), 2: real(0.1)}),  # it keeps -inf
    node("Clip", ((2, 3),), 11, min=0.0),
    node("LeakyRelu", ((2, 3),), 16, alpha=float("inf")),
    node("Gelu", ((2, 3),), 20, approximate="cosine"),
    node("Softmax", ((2, 3, 4),), 11),
    node("Softmax", ((2, 3, 4),), 12, axis=0),
    node("Softmax", ((2, 3),), 11, axis=2),
    node("LogSoftmax", ((2, 3, 4),), 1, axis=1),
    node("ReduceMax", ((2, 3), (1,)), 18),
    node("ReduceL2", ((2, 3),), 18, {1: ints()}, noop_with_empty_axes=1),
    node("GroupNormalization", ((2, 4, 3), (4,), (4,)), 21, num_groups=2, by_group=1),
]


def call_id(call: OnnxCall) -> str:
    constants = {k: array.tolist() for k, array in call.constants.items()}
    return f"{call.op_type}-{call.opset}-{constants or ''}{dict(call.attributes) or ''}"


@pytest.mark.parametrize("call", UNDERSTOOD, ids=call_id)
def test_a_form_of_onnx_is_read_as_onnxruntime_reads_it(call: OnnxCall) -> None:
    (op,) = by_onnx(call.op_type, "", call.opset)
    model = onnx_model(call, call.outputs)
    understood = op.from_onnx(read_node(model))
    assert understood is not None
    found, positions = understood
    shapes = [call.shapes[k] for k in positions]
    known = [tuple(n for n in shape if isinstance(n, int)) for shape in shapes if shape is not None]
    arrays = as_floats(exact_inputs(op, Example(tuple(known))), np.float32)
    attributes = complete_attributes(op, found, known)
    assert_equal(op.numpy(arrays, attributes), run_onnxruntime(model, arrays), rtol=1e-5)


@pytest.mark.parametrize("call", NOT_UNDERSTOOD, ids=call_id)
def test_a_form_that_we_do_not_declare_is_not_understood(call: OnnxCall) -> None:
    (op,) = by_onnx(call.op_type, "", call.opset)
    assert op.from_onnx(read_node(onnx_model(call, call.outputs))) is None


def test_operators_are_not_found_before_the_opset_that_means_them() -> None:
    assert by_onnx("Add", "", 6) == ()
    assert by_onnx("Add", "", 7) == (operator("Add"),)
    assert by_onnx("Add", "com.example", 20) == ()


def test_same_padding_counts_the_dilated_kernel() -> None:
    """By ONNX's formula alone: ONNX Runtime refuses such a node."""
    shapes: tuple[Shape, ...] = ((1, 2, 7), (2, 2, 3))
    call = node("Conv", shapes, 11, auto_pad="SAME_UPPER", dilations=[2])
    understood = operator("Conv").from_onnx(call)
    assert understood is not None
    assert understood[0]["pads"] == (2, 2)


def test_a_dilated_pool_of_the_same_extent_is_not_understood() -> None:
    """The runtime chooses the pads for a kernel without holes, unlike ONNX's formula."""
    shapes: tuple[Shape, ...] = ((1, 2, 7),)
    how: dict[str, Any] = {"kernel_shape": [3], "auto_pad": "SAME_UPPER"}
    for name in ("MaxPool", "AveragePool"):
        assert operator(name).from_onnx(node(name, shapes, 19, **how)) is not None
        assert operator(name).from_onnx(node(name, shapes, 19, **how, dilations=[2])) is None


def test_same_padding_needs_no_extent_where_the_stride_is_1() -> None:
    shapes: tuple[Shape, ...] = ((1, 2, symbol("w")), (2, 2, 4))
    for mode, pads in (("SAME_UPPER", (1, 2)), ("SAME_LOWER", (2, 1))):
        understood = operator("Conv").from_onnx(node("Conv", shapes, 11, auto_pad=mode))
        assert understood is not None
        assert understood[0]["pads"] == pads
        strided = node("Conv", shapes, 11, auto_pad=mode, strides=[2])
        assert operator("Conv").from_onnx(strided) is None


def test_an_omitted_bias_takes_no_position() -> None:
    call = OnnxCall("Conv", 20, "", {}, ((1, 2, 5), (3, 2, 2), None))
    understood = operator("Conv").from_onnx(call)
    assert understood is not None
    assert understood[1] == (0, 1)
    call = OnnxCall("Gemm", 20, "", {}, ((2, 5), (5, 2), None))
    understood = operator("Gemm").from_onnx(call)
    assert understood is not None
    assert understood[1] == (0, 1)


def test_a_bias_that_the_kernel_does_not_read_is_none() -> None:
    call = OnnxCall("Gemm", 20, "", {"beta": 0.0}, ((2, 5), (5, 2), (2,)))
    assert operator("Gemm").from_onnx(call) == ({}, (0, 1))
    arrays = [np.ones(shape, np.float32) for shape in ((2, 5), (5, 2), (2,))]
    arrays[2][0] = np.nan
    (y,) = run_onnxruntime(onnx_model(call, 1), arrays)
    assert np.isfinite(y).all()


def test_reshape_of_unknown_sizes_is_read_and_written() -> None:
    n, m = symbols("n m")
    op = operator("Reshape")
    shapes: tuple[Shape, ...] = ((n, 3, m, 2), (3,))
    read = op.from_onnx(OnnxCall("Reshape", 20, "", {}, shapes, {1: ints(0, -1, 2)}))
    assert read == ({"shape": (n, 3 * m, 2)}, (0,))
    written = op.to_onnx(read[0], shapes[:1], 20)
    assert written is not None
    assert written.constants[1].tolist() == [0, -1, 2]
    assert op.to_onnx({"shape": (m, n, 6)}, shapes[:1], 20) is None


def test_slice_of_an_unknown_extent_is_understood_only_where_the_extent_does_not_matter() -> None:
    n = symbols("n")[0]
    op = operator("Slice")

    def read(start: int, end: int) -> Any:
        constants = {1: ints(start), 2: ints(end)}
        return op.from_onnx(OnnxCall("Slice", 20, "", {}, ((n,), (1,), (1,)), constants))

    whole = read(0, 2**63 - 1)
    assert whole == ({"axes": (0,), "starts": (0,), "ends": (n,), "steps": (1,)}, (0,))
    written = op.to_onnx(whole[0], ((n,),), 20)
    assert written is not None
    assert written.constants[2].tolist() == [2**63 - 1]
    assert read(0, 3) is None
    assert read(-1, 2**63 - 1) is None


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16", "DOUBLE"])
def test_what_onnx_wants_in_float_is_not_converted_with_the_data(dtype: str) -> None:
    image = leaf("x", TensorType(dtype, (1, 2, 3, 3)))
    enlarged = apply("Resize", [image], {"scales": (1, 1, 2, 2)}, dtype=dtype)
    model = onnx.load_from_string(region_model(Graph(enlarged), no_constants))
    onnx.checker.check_model(model, full_check=True)
    bounded = apply("Clip", [image], {"min": Fraction(0)}, dtype=dtype)
    model = onnx.load_from_string(region_model(Graph(bounded), no_constants))
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize(
    ("shape", "end", "whole"),
    [
        ((symbol("b"), 512, 256, 1), 10**9, True),  # an exporter's end of an axis of any extent
        ((symbol("b"), 512, 256, 1), 10**8, False),
        ((symbol("b"),), 2**31 - 1, True),
        ((symbol("b"),), 10**9, False),  # 4 GB of floats are more
        ((symbol("b"), 0, 2**20), 10**9, False),  # beside an axis of no element, any number is
        ((symbol("b"), symbol("s"), 2**20), 10**9, False),
    ],
)
def test_a_slice_is_whole_where_no_tensor_is_as_long(shape: Shape, end: int, whole: bool) -> None:
    shapes: tuple[Shape, ...] = (shape, (1,), (1,), (1,))
    call = node("Slice", shapes, 13, {1: ints(0), 2: ints(end), 3: ints(0)})
    read = operator("Slice").from_onnx(call)
    assert (read is not None) == whole
    if read is not None:
        assert read[0]["ends"] == (shape[0],)
