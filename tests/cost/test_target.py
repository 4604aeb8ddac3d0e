"""The description of the target, held against what ONNX Runtime makes of such graphs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import call, tensor

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, leaf
from xflow.core.registry import Array
from xflow.cost import Use
from xflow.cost.estimate import Estimator
from xflow.cost.fusion import Fusions, count_readers, operator_name
from xflow.cost.layout import LayoutModel
from xflow.cost.target import FUSIONS, Layout, TargetModel
from xflow.onnx.region import region_model

EPSILON = Fraction(1, 100000)
FUSED = {"LayerNormalization", "SkipLayerNormalization", "RMSNormalization", "Gelu", "QuickGelu"}
RUNTIME_NAMES = {
    "SimplifiedLayerNormalization": "RMSNormalization",
    "FastGelu": "Gelu",
}


def number(value: float) -> Value:
    return leaf(f"number {value}", TensorType("FLOAT", ()), constant=True)


def data(value: Value) -> Array | None:
    """The data of the tests' constants: their number, or random weights."""
    key = str(value)
    if key.startswith("number "):
        return np.asarray(float(key.removeprefix("number ")), np.float32)
    if not value.is_constant:
        return None
    shape = [size for size in value.shape if isinstance(size, int)]
    return np.random.default_rng(len(key)).uniform(0.5, 1.0, shape).astype(np.float32)


def as_served(outputs: Sequence[Value], folder: Path) -> Counter[str]:
    """The operators that the runtime computes instead of those of a graph."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "served.onnx")
    options.log_severity_level = 4
    model = region_model(Graph(tuple(outputs)), data)
    onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    nodes = onnx.load(folder / "served.onnx").graph.node
    return Counter(RUNTIME_NAMES.get(node.op_type, node.op_type) for node in nodes)


X, Y = tensor("x", 2, 6, 32), tensor("y", 2, 6, 32)
SCALE, BIAS = tensor("scale", 32, constant=True), tensor("bias", 32, constant=True)


def normal(x: Value) -> Value:
    return call("LayerNormalization", x, SCALE, BIAS, axis=2, epsilon=EPSILON)


def spelled_rms(x: Value, square: str = "Pow", divide: str = "Div") -> Value:
    squared = call("Pow", x, number(2.0)) if square == "Pow" else call("Mul", x, x)
    root = call("Sqrt", call("Add", mean(squared), number(1e-5)))
    scaled = call("Div", x, root) if divide == "Div" else call("Mul", x, call("Reciprocal", root))
    return call("Mul", scaled, SCALE)


def mean(x: Value) -> Value:
    return call("ReduceMean", x, axes=(2,), keepdims=1)


def spelled_normal(x: Value) -> Value:
    centred = call("Sub", x, mean(x))
    variance = mean(call("Pow", centred, number(2.0)))
    root = call("Sqrt", call("Add", variance, number(1e-5)))
    return call("Add", call("Mul", call("Div", centred, root), SCALE), BIAS)


def spelled_gelu(x: Value, half_last: bool = True) -> Value:
    curve = call("Add", call("Erf", call("Div", x, number(2**0.5))), number(1.0))
    if half_last:
        return call("Mul", call("Mul", x, curve), number(0.5))
    return call("Mul", x, call("Mul", curve, number(0.5)))


def tanh_gelu(x: Value) -> Value:
    cubic = call("Add", x, call("Mul", call("Pow", x, number(3.0)), number(0.044715)))
    curve = call("Tanh", call("Mul", cubic, number((2 / np.pi) ** 0.5)))
    return call("Mul", call("Mul", x, number(0.5)), call("Add", curve, number(1.0)))


def slope_gelu(x: Value) -> Value:
    slope = call("Mul", call("Mul", x, number(0.044715)), x)
    scaled = call("Mul", x, number((2 / np.pi) ** 0.5))
    curve = call("Tanh", call("Mul", scaled, call("Add", slope, number(1.0))))
    return call("Mul", call("Mul", x, number(0.5)), call("Add", curve, number(1.0)))


SUM = call("Add", X, Y)
PATTERNS = {
    "add-then-normalization": (normal(SUM),),
    "add-that-others-read": (normal(SUM), call("Relu", SUM)),
    "sum-then-normalization": (normal(call("Sum", X, Y)),),
    "normalization-spelled-out": (spelled_normal(X),),
    "add-then-normalization-spelled-out": (spelled_normal(SUM),),
    "rms-by-division": (spelled_rms(X),),
    "rms-by-reciprocal": (spelled_rms(X, divide="Reciprocal"),),
    "rms-of-product": (spelled_rms(X, square="Mul"),),
    "gelu": (spelled_gelu(X),),
    "gelu-halved-early": (spelled_gelu(X, half_last=False),),
    "gelu-by-tanh": (call("Relu", tanh_gelu(X)),),
    "gelu-by-tanh-that-is-a-result": (tanh_gelu(X),),
    "gelu-by-tanh-of-a-slope": (call("Relu", slope_gelu(X)),),
    "gelu-by-tanh-of-a-slope-that-is-a-result": (slope_gelu(X),),
    "swish": (call("Mul", X, call("Sigmoid", X)),),
    "swish-of-other": (call("Mul", X, call("Sigmoid", Y)),),
    "swish-with-factor": (call("Mul", X, call("Sigmoid", call("Mul", X, number(1.7)))),),
}


@pytest.mark.parametrize("outputs", PATTERNS.values(), ids=PATTERNS)
def test_fusions_are_those_of_the_runtime(outputs: tuple[Value, ...], tmp_path: Path) -> None:
    graph = Graph(outputs)
    kernels = Fusions(FUSIONS).chosen(graph, count_readers(graph), graph.outputs)
    inside = {node for kernel in kernels.values() for node in kernel.inside}
    expected = Counter(kernel.name for kernel in kernels.values())
    expected.update(
        operator_name(node) for node in graph.nodes if node not in kernels and node not in inside
    )
    served = as_served(outputs, tmp_path)
    assert {name: served[name] for name in FUSED} == {name: expected[name] for name in FUSED}


def runtime_block(folder: Path) -> int | None:
    """How many channels the runtime has in a block on this machine."""
    for block in (8, 16):
        pool = call("AveragePool", tensor("i", 1, block, 8, 8), kernel_shape=(2, 2))
        if as_served([call("MaxPool", pool, kernel_shape=(1, 1))], folder)["ReorderInput"]:
            return block
    return None


def conv(x: Value, outer: int, kernel: int = 1, group: int = 1, name: str = "w") -> Value:
    inner = x.shape[1]
    assert isinstance(inner, int)
    weight = tensor(name, outer, inner // group, kernel, kernel, constant=True)
    return call("Conv", x, weight, group=group, pads=(kernel // 2,) * 4)


def between(inner: Value) -> Value:
    return conv(inner, 32, name="last")


IMAGE = tensor("image", 1, 32, 10, 10)
RGB = tensor("rgb", 1, 3, 10, 10)
GATE = call("Sigmoid", conv(call("GlobalAveragePool", IMAGE), 32))
IMAGES = {
    "chain": between(conv(IMAGE, 32)),
    "chain-of-odd-channels": between(conv(IMAGE, 24)),
    "first": between(conv(RGB, 32)),
    "pool": between(call("AveragePool", conv(IMAGE, 32), kernel_shape=(2, 2))),
    "pool-of-odd-channels": between(call("AveragePool", conv(IMAGE, 20), kernel_shape=(2, 2))),
    "global-pool": between(call("GlobalAveragePool", conv(IMAGE, 32))),
    "mean": between(call("ReduceMean", conv(IMAGE, 32), axes=(2, 3), keepdims=1)),
    "depthwise": between(conv(conv(IMAGE, 24), 24, 3, group=24, name="v")),
    "thin-groups": between(conv(conv(IMAGE, 32), 32, 3, group=8, name="v")),
    "sum": between(call("Add", call("Relu", conv(IMAGE, 32)), call("Relu", conv(IMAGE, 32, 3)))),
    "difference": between(call("Sub", conv(IMAGE, 32), conv(IMAGE, 32, 3))),
    "gate": between(call("Mul", IMAGE, GATE)),
    "concat": between(call("Concat", conv(IMAGE, 32), conv(IMAGE, 32, 3), axis=1)),
    "concat-of-odd": between(call("Concat", conv(IMAGE, 20), conv(IMAGE, 20, 3), axis=1)),
    "slice": between(
        call("Slice", conv(IMAGE, 32), starts=(0,), ends=(16,), axes=(1,), steps=(1,))
    ),
    "tanh-of-sum": between(
        call("Tanh", call("Mul", call("Relu", conv(IMAGE, 32)), call("Relu", conv(IMAGE, 32, 3))))
    ),
    "swish": between(call("Mul", conv(IMAGE, 32), call("Sigmoid", conv(IMAGE, 32)))),
    "erf": between(call("Erf", conv(IMAGE, 32))),
    "slope": between(call("LeakyRelu", conv(IMAGE, 32))),
    "slope-of-pool": between(call("LeakyRelu", call("GlobalAveragePool", conv(IMAGE, 32)))),
    "slope-of-sum": between(
        call("LeakyRelu", call("Add", *(call("Relu", conv(IMAGE, 32, k)) for k in (1, 3))))
    ),
}


def to_first(value: Value) -> Value:
    return call("Transpose", value, perm=(0, 3, 1, 2))


def to_last(value: Value) -> Value:
    return call("Transpose", value, perm=(0, 2, 3, 1))


LAST = call("Exp", tensor("last", 1, 10, 10, 32))
TURNED = {
    "from": (call("Exp", to_last(conv(IMAGE, 32))),),
    "from-a-sum": (call("Exp", to_last(call("Add", *(conv(IMAGE, 32, k) for k in (1, 3))))),),
    "from-twice": (call("Exp", to_last(conv(IMAGE, 32))), call("Exp", conv(IMAGE, 32))),
    "from-to-two": tuple(call(op, to_last(conv(IMAGE, 32))) for op in ("Exp", "Neg")),
    "to": (conv(to_first(LAST), 32),),
    "to-a-pool": (call("MaxPool", to_first(LAST), kernel_shape=(2, 2)),),
    "to-two": (conv(to_first(LAST), 32, 1), conv(to_first(LAST), 32, 3)),
    "to-one-and-another": (conv(to_first(LAST), 32, 3), call("Neg", to_first(LAST))),
    "to-an-output": (conv(to_first(LAST), 32, 3), to_first(LAST)),
    "by-another-permutation": (
        conv(call("Transpose", tensor("x", 1, 10, 10, 32), perm=(0, 3, 2, 1)), 32),
    ),
    "there-and-back": (call("Exp", to_last(conv(call("Relu", conv(to_first(LAST), 32)), 32))),),
    "odd": (call("Exp", to_last(conv(tensor("odd", 1, 18, 10, 10), 18))),),
}


@pytest.mark.parametrize("outputs", TURNED.values(), ids=TURNED)
def test_conversions_transpose_where_the_runtime_does(
    outputs: tuple[Value, ...], tmp_path: Path
) -> None:
    block = runtime_block(tmp_path)
    if block is None:
        pytest.skip("the runtime has no layout of its own on this machine")
    graph = Graph(outputs)
    model = LayoutModel(Layout(block=block))
    transposed = model.transposed(graph, count_readers(graph))
    served = as_served(outputs, tmp_path)
    expected = model.converted(graph, transposed=transposed)
    assert served["ReorderInput"] + served["ReorderOutput"] == len(expected)
    transposes = sum(operator_name(node) == "Transpose" for node in graph.nodes)
    assert served["Transpose"] == transposes - len(transposed)


@pytest.mark.parametrize("output", IMAGES.values(), ids=IMAGES)
def test_layout_is_converted_where_the_runtime_does(output: Value, tmp_path: Path) -> None:
    block = runtime_block(tmp_path)
    if block is None:
        pytest.skip("the runtime has no layout of its own on this machine")
    graph = Graph((output,))
    kernels = Fusions(FUSIONS).chosen(graph, count_readers(graph), graph.outputs)
    inside = {node for kernel in kernels.values() for node in kernel.inside}
    expected = LayoutModel(Layout(block=block)).converted(graph, inside)
    served = as_served([output], tmp_path)
    assert served["ReorderInput"] + served["ReorderOutput"] == len(expected)


def test_images_wanted_in_the_layout_need_no_conversion() -> None:
    graph = Graph((conv(IMAGE, 32),))
    estimator = Estimator()
    assert estimator(graph, [Use.BLOCKS]) < estimator(graph)
    blocked = leaf("image", IMAGE.type, blocked=True)
    assert estimator(Graph((conv(blocked, 32),))) < estimator(graph)


def test_where_nothing_was_measured_a_product_is_as_fast_as_the_convolution_that_it_is() -> None:
    x, weights = tensor("x", 1, 64, 128), tensor("w", 128, 128, constant=True)
    image, kernels = tensor("i", 1, 128, 64, 1), tensor("k", 128, 128, 1, 1, constant=True)
    product, pixels = Graph((call("MatMul", x, weights),)), Graph((call("Conv", image, kernels),))
    target = replace(TargetModel(), layout=None)
    unmeasured = Estimator(target.with_equal_products())
    assert unmeasured(product) == pytest.approx(unmeasured(pixels))
    estimator = Estimator(target)
    assert estimator(product) != pytest.approx(estimator(pixels))
