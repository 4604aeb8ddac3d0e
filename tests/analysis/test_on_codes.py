"""Operators that come to stand next to conversions from codes and to codes: what is served then.

Each model has a pair of operators that cancel out, or none in its place. The runtime is asked what
it gives, with its optimizations, for the former and for the latter.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper
from runtime import run_model

import xflow
from xflow.analysis.on_codes import (
    CARRYING,
    FROM_CODES,
    KERNELS,
    PRODUCTS,
    TO_CODES,
    OnCodes,
    anew,
)
from xflow.analysis.ranges import Ranges
from xflow.core.registry import Array
from xflow.cost.target import TargetModel
from xflow.onnx.importer import import_model

HEAD = '<ir_version: 8, opset_import: ["" : 17]> main ({inputs}) => ({outputs}) {{ {body} }}'
IMAGE, CODES = "uint8[1, 3, 8, 8] c", "uint8[1, N, H, W] y"
SUMS, REALS = "int32[1, 3, 8, 8] c", "float[N, M, H, W] y"
ROWS, MATRIX = "uint8[24, 8] c", "float[N, M] y"
FROM, TO = "a = DequantizeLinear(c, s, z) b = ?(a)", "y = QuantizeLinear(v, f, z)"
OF_SUMS = "a = DequantizeLinear(c, s) b = ?(a)"
KERNEL = "w = DequantizeLinear(k, f, i)"
Body = tuple[str, str, str]
"""The inputs, the outputs and the operators of a model."""
MEETINGS: dict[str, Body] = {
    "Transpose of sums": (SUMS, REALS, f"{OF_SUMS} y = Transpose(b)"),
    "Reshape of sums": (SUMS, MATRIX, f"{OF_SUMS} y = Reshape(b, shape)"),
    "Unsqueeze of sums": (SUMS, "float[A, N, M, H, W] y", f"{OF_SUMS} y = Unsqueeze(b, one)"),
    "Slice of sums": (SUMS, REALS, f"{OF_SUMS} y = Slice(b, one, two, one)"),
    "MaxPool of sums": (SUMS, REALS, f"{OF_SUMS} y = MaxPool<kernel_shape = [2, 2]>(b)"),
    "Transpose of codes with a sign and no zero point": (
        *("int8[8, 3] c", MATRIX),
        f"{OF_SUMS} y = Transpose(b)",
    ),
    "Conv, whose weights are floats": (IMAGE, CODES, f"{FROM} v = Conv(b, x) {TO}"),
    "Conv, from what makes codes": (
        *(IMAGE, CODES),
        f"b = DequantizeLinear(c, s, z) a = Conv(b, x) v = ?(a) {TO}",
    ),
    "Conv, before a Relu": (
        *(IMAGE, CODES),
        f"{FROM} r = Conv(b, x) v = Relu(r) y = QuantizeLinear(v, f, o)",
    ),
    "Conv, before a constant": (IMAGE, CODES, f"{FROM} r = Conv(b, x) v = Add(r, bias8) {TO}"),
    "Conv, whose bias is floats": (IMAGE, CODES, f"{FROM} {KERNEL} v = Conv(b, w, bias) {TO}"),
    "Conv by codes": (IMAGE, CODES, f"{FROM} {KERNEL} v = Conv(b, w) {TO}"),
    "ConvTranspose": (IMAGE, CODES, f"{FROM} v = ConvTranspose(b, q) {TO}"),
    "Gemm": (ROWS, "uint8[N, M] y", f"{FROM} v = Gemm(b, m, bias) {TO}"),
    "MatMul, before a bias": (
        *(ROWS, "uint8[N, M] y"),
        f"{FROM} r = MatMul(b, m) v = Add(r, bias) {TO}",
    ),
    "MatMul of codes": (ROWS, MATRIX, f"{FROM} w = DequantizeLinear(d, f, i) y = MatMul(b, w)"),
    "MatMul by codes": (
        *("float[24, 32] c", MATRIX),
        "a = DequantizeLinear(e, f, i) b = ?(a) y = MatMul(c, b)",
    ),
    "Add": (IMAGE, CODES, f"{FROM} v = Add(b, a) {TO}"),
    "Sigmoid": (IMAGE, CODES, f"{FROM} v = Sigmoid(b) y = QuantizeLinear(v, s, z)"),
    "Softmax": (IMAGE, CODES, f"{FROM} v = Softmax(b) y = QuantizeLinear(v, s, z)"),
    "LeakyRelu": (IMAGE, CODES, f"{FROM} v = LeakyRelu(b) {TO}"),
    "AveragePool": (IMAGE, CODES, f"{FROM} v = AveragePool<kernel_shape = [2, 2]>(b) {TO}"),
    "GlobalAveragePool": (IMAGE, CODES, f"{FROM} v = GlobalAveragePool(b) {TO}"),
    "Concat": (IMAGE, CODES, f"{FROM} v = Concat<axis = 1>(b, a) {TO}"),
    "Where": (
        *(f"bool[1, 3, 8, 8] p, {IMAGE}", CODES),
        f"{FROM} v = Where(p, b, h) {TO}",
    ),
    "ArgMax by a negative scale": (
        *(ROWS, "int64[N, M] y"),
        "a = DequantizeLinear(c, n, z) b = ?(a) y = ArgMax(b)",
    ),
    "Relu before a negative scale": (
        *(MATRIX.replace("y", "c"), "int8[N, M] y"),
        "a = Relu(c) v = ?(a) y = QuantizeLinear(v, n, least)",
    ),
    "two conversions": (
        *("float[8, 24] c", MATRIX),
        "d0 = QuantizeLinear(c, s, z) a = DequantizeLinear(d0, s, z) v = ?(a)"
        " d1 = QuantizeLinear(v, t, z) y = DequantizeLinear(d1, t, z)",
    ),
}
"""What is served otherwise once nothing stands in the place of "?" any more."""
HARMLESS: dict[str, Body] = {
    "Transpose of codes": (ROWS, MATRIX, f"{FROM} y = Transpose(b)"),
    "Exp of sums": (SUMS, REALS, f"{OF_SUMS} y = Sigmoid(b)"),
    "Conv without codes behind": (IMAGE, REALS, f"{FROM} y = Conv(b, x)"),
    "MatMul of floats": (ROWS, "uint8[N, M] y", f"{FROM} v = MatMul(b, m) {TO}"),
    "Add of floats": (IMAGE, CODES, f"{FROM} v = Add(b, bias1) {TO}"),
    "ArgMax by a positive scale": (
        *(ROWS, "int64[N, M] y"),
        "a = DequantizeLinear(c, s, z) b = ?(a) y = ArgMax(b)",
    ),
    "the same codes": (ROWS, "uint8[N, M] y", f"{FROM} y = QuantizeLinear(b, s, z)"),
}


def constants() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    numbers = {"s": 0.1, "t": 0.35, "f": 0.07, "n": -0.1, "h": 0.37}
    shapes = {"x": (8, 3, 3, 3), "q": (3, 8, 3, 3), "m": (8, 8)}
    codes = {"k": (8, 3, 3, 3), "d": (8, 8), "e": (32, 8)}
    return {
        **{name: np.asarray(number, np.float32) for name, number in numbers.items()},
        **{name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()},
        **{name: rng.integers(-128, 128, shape).astype(np.int8) for name, shape in codes.items()},
        "bias": rng.normal(0, 3, 8).astype(np.float32),
        "zeros": np.zeros((1, 3, 1, 1), np.float32),
        "ones": np.ones((1, 3, 1, 1), np.float32),
        "bias8": rng.normal(0, 3, (1, 8, 1, 1)).astype(np.float32),
        "bias1": rng.normal(0, 3, (1, 3, 1, 1)).astype(np.float32),
        "z": np.array(128, np.uint8),
        "o": np.array(0, np.uint8),
        "i": np.array(0, np.int8),
        "least": np.array(-128, np.int8),
        "one": np.array([1]),
        "two": np.array([2]),
        "shape": np.array([4, 48]),
    }


CONSTANTS = constants()


def model_of(body: Body, *, pair: bool) -> onnx.ModelProto:
    """A model with a pair of operators that cancel out, or with one that does nothing."""
    inputs, outputs, text = body
    for name, source in (("b", "a"), ("v", "a")):
        place = f"{name} = ?({source})"
        made = f"{name}0 = Neg({source}) {name} = Neg({name}0)"
        text = text.replace(place, made if pair else f"{name} = Identity({source})")
    model = onnx.parser.parse_model(HEAD.format(inputs=inputs, outputs=outputs, body=text))
    read = {name for node in model.graph.node for name in node.input}
    for name, array in CONSTANTS.items():
        if name in read:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def feeds_of(model: onnx.ModelProto) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    made: dict[str, Array] = {}
    for item in model.graph.input:
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type))
        shape = [dim.dim_value or 24 for dim in item.type.tensor_type.shape.dim]
        if kind.kind == "f":
            made[item.name] = rng.normal(0, 3, shape).astype(kind)
        else:
            low, high = (-3000, 3000) if kind.itemsize > 1 else (-128, 127)
            made[item.name] = rng.integers(low, high, shape).astype(kind)
    return made


def served(model: onnx.ModelProto) -> Array:
    return run_model(model, feeds_of(model))[0]


def kept(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """How many conversions of each kind are left when the runtime has loaded a model."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "served.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = Counter(node.op_type for node in onnx.load(folder / "served.onnx").graph.node)
    return Counter({name: names[name] for name in FROM_CODES | TO_CODES})


def meets(body: Body) -> str:
    """What comes to be computed on codes where nothing stands between any more."""
    before, after = (
        import_model(ir.from_proto(model_of(body, pair=pair))) for pair in (True, False)
    )
    made = [OnCodes(each.graph, Ranges(each.constants)) for each in (before, after)]
    return anew(made[0], made[1], {})


@pytest.mark.parametrize("name", MEETINGS)
def test_what_comes_to_be_computed_on_codes_is_known(name: str, tmp_path: Path) -> None:
    """The runtime gives other numbers then, or computes without conversions."""
    body = MEETINGS[name]
    before, after = (model_of(body, pair=pair) for pair in (True, False))
    same = np.array_equal(served(before), served(after))
    assert not same or kept(after, tmp_path) < kept(before, tmp_path)
    assert meets(body)


@pytest.mark.parametrize("name", HARMLESS)
def test_other_operators_may_meet(name: str) -> None:
    body = HARMLESS[name]
    assert np.array_equal(served(model_of(body, pair=True)), served(model_of(body, pair=False)))
    assert not meets(body)


@pytest.mark.parametrize("name", ["Transpose of sums", "Conv, whose weights are floats"])
def test_a_pair_that_keeps_them_apart_stays(name: str) -> None:
    model = model_of(MEETINGS[name], pair=True)
    result = xflow.optimize(model, cost="estimated", budget=1, threads=1, check=1)
    np.testing.assert_array_equal(served(ir.to_proto(result.model)), served(model))


@pytest.mark.parametrize(
    ("outputs", "body"),
    [
        (REALS, "a = DequantizeLinear(c, s) b = Add(a, zeros) y = Transpose(b)"),
        (REALS, "a = DequantizeLinear(c, s) b = Mul(a, ones) y = Transpose(b)"),
        (
            f"{REALS}, {REALS.replace(' y', ' v')}",
            "a = DequantizeLinear(c, s) r = Transpose(a) v = Exp(r)"
            " b = Mul(a, h) u = Transpose(b) y = Exp(u)",
        ),
    ],
    ids=["a tensor of zeros", "a tensor of ones", "another reader"],
)
def test_nothing_is_tried_that_the_runtime_computes_otherwise(outputs: str, body: str) -> None:
    """It leaves tensors of zeros or ones where they are, and computes for all readers at once."""
    model = model_of((SUMS, outputs, body), pair=False)
    result = xflow.optimize(model, cost="estimated", budget=1, threads=1, check=1)
    assert not result.report.warnings
    np.testing.assert_array_equal(served(ir.to_proto(result.model)), served(model))


def test_what_the_estimate_counts_as_computed_on_codes_is_described() -> None:
    target = TargetModel()
    others = {name.split(".")[0] for name in target.coded}
    assert {*target.coded_products} <= PRODUCTS
    assert others <= {*KERNELS, *CARRYING, "Flatten"}
