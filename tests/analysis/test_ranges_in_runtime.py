"""Ranges held against what the runtime computes where its kernels go to the edge of them."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from xflow.analysis.ranges import Ranges
from xflow.core.assumptions import Assumption
from xflow.core.registry import Array
from xflow.core.sorts import FLOATS
from xflow.onnx.importer import import_model
from xflow.recheck.bounds import Analysis


def model_of(text: str, **tables: Array) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in tables.items())
    return model


def computed(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """All that the runtime computes, operator by operator."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output]
    del whole.graph.output[:]
    whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        whole.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    return dict(zip(names, session.run(None, feeds), strict=True))


IDS = {"ids": np.array([1, 2])}
ROWS = np.array([[1, 2, 3, 4], [0, 0, 0, 0], [5, 5, 5, 5]], np.float32)
TENTHS = np.array([[[0.03] * 10], [[0.1] * 10], [[0.05] * 10]], np.float32)
SATURATING = np.linspace(-30, 30, 20_001, dtype=np.float32).reshape(-1, 1)
EACH = {"ids": np.arange(SATURATING.size)}


@pytest.mark.parametrize("assumption", Assumption)
@pytest.mark.parametrize(
    ("body", "table", "feeds"),
    [
        ("y = LayerNormalization <epsilon = 0.0> (x, s)", ROWS, IDS),
        ("y = RMSNormalization <epsilon = 0.0> (x, s)", ROWS, IDS),
        ("y = LayerNormalization <epsilon = -1.0> (x, s)", ROWS, IDS),
        ("a = AveragePool <kernel_shape = [9]> (x) d = Sub(k, a) y = Sqrt(d)", TENTHS, IDS),
        ("a = Tanh(x) d = Sub(one, a) y = Sqrt(d)", SATURATING, EACH),
        ("a = Sigmoid(x) d = Sub(one, a) y = Sqrt(d)", SATURATING, EACH),
        ("a = Cos(x) d = Sub(one, a) y = Sqrt(d)", SATURATING, EACH),
        (
            "e = Equal(x, zero) q = Mul(x, x) d = Div(zero, q) y = Where(e, zero, d)",
            np.array([[1], [1e-25], [1]], np.float32),
            IDS,
        ),
        (
            "p = Sigmoid(x) t = Dropout <seed = 1> (p, half, on) d = Sub(one, t) y = Sqrt(d)",
            np.full((3, 64), 50, np.float32),
            IDS,
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_known_of_kernels_is_true_of_what_they_compute(
    body: str, table: Array, feeds: dict[str, Array], assumption: Assumption
) -> None:
    model = model_of(
        f"g (int64[N] ids) => (y) {{ x = Gather(table, ids) {body} }}",
        table=table,
        s=np.ones(4, np.float32),
        k=np.array(0.1, np.float32),
        zero=np.array(0, np.float32),
        half=np.array(0.5, np.float32),
        one=np.array(1, np.float32),
        on=np.array(True),
    )
    results = computed(model, feeds)
    imported = import_model(ir.from_proto(model))
    ranges = Ranges(imported.constants, assumption)
    second = Analysis(imported.graph, imported.constants, assumption)
    compared = 0
    for value, source in imported.origin.items():
        result = results.get(source.name or "")
        if result is None or value.type.dtype not in FLOATS:
            continue
        compared += 1
        numbers = result[np.isfinite(result)]
        for known, is_real in (
            (ranges.of(value), ranges.of(value).is_real),
            (second.of(value), second.of(value).is_finite),
        ):
            assert not is_real or np.isfinite(result).all(), (source.name, known)
            if numbers.size:
                assert known.low <= numbers.min(), (source.name, known)
                assert numbers.max() <= known.high, (source.name, known)
    assert compared > 1
