"""The float64 version of a model: it computes what the model means, to the last digits."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from xflow.core.deadline import Deadline
from xflow.cost.measure import Target
from xflow.cost.worker import Failed, Worker
from xflow.feeds.inputs import default_shapes, random_inputs
from xflow.validation.exact import Exact, NoExactForm, in_double, widened

Made = Callable[[onnx.ModelProto], tuple[Exact, Mapping[str, Any], Mapping[str, Any]]]
OPTIONS = {**Target("cpu", 1).session_options(), "optimized": False}


def parsed(text: str, opset: int = 18) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    """The float64 version of a model, what it gives on random inputs, and what the model gives."""
    with Worker() as worker:

        def probe(model: onnx.ModelProto) -> Any:
            request = {"kind": "types", "model": model.SerializeToString(), "options": OPTIONS}
            answer = worker.ask(request, Deadline.after(10.0))
            return None if isinstance(answer, Failed) else answer

        def outputs(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
            request = {"kind": "run", "model": model.SerializeToString(), "options": OPTIONS}
            answer = worker.ask({**request, "feeds": [feeds]}, Deadline.after(10.0))
            assert not isinstance(answer, Failed), answer.reason
            found: Mapping[str, Any] = answer[0]
            return found

        def run(model: onnx.ModelProto) -> tuple[Exact, Mapping[str, Any], Mapping[str, Any]]:
            onnx.checker.check_model(model)
            shapes = default_shapes(model)
            feeds = random_inputs(model, 5, shapes)
            own = outputs(model, feeds)
            exact = in_double(model, shapes, probe)
            wide = {name: widened(value) for name, value in feeds.items()}
            return exact, outputs(exact.model, wide), own

        yield run


def agrees(exact: np.ndarray, own: np.ndarray, rtol: float = 1e-5) -> bool:
    """Whether a value is in float64, and another one is near to it but not the same."""
    scale = np.abs(exact).max()
    error = np.abs(exact - own).max()
    return exact.dtype == np.float64 and 0 < error < rtol * scale


def test_it_is_what_numpy_computes_in_float64(made: Made) -> None:
    model = parsed(
        "g (float[4, 32] x) => (float[4, 8] y) <float[32, 8] w, float[8] b> {"
        " p = MatMul(x, w) s = Add(p, b) m = ReduceMean(s) d = Sub(s, m) y = Tanh(d) }"
    )
    generator = np.random.default_rng(1)
    weights = {
        name: generator.standard_normal(shape).astype(np.float32)
        for name, shape in (("w", (32, 8)), ("b", (8,)))
    }
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    x = random_inputs(model, 5)["x"].astype(np.float64)
    exact, found, own = made(model)
    s = x @ weights["w"].astype(np.float64) + weights["b"]
    assert exact.precise
    assert np.abs(found["y"] - np.tanh(s - s.mean())).max() < 1e-13
    assert agrees(found["y"], own["y"])


@pytest.mark.parametrize(
    ("shape", "weights", "attributes"),
    [
        ("1, 3, 9, 11", "5, 3, 3, 3", "pads = [1, 1, 1, 1]"),
        ("2, 4, 9, 12", "6, 2, 3, 2", "group = 2, strides = [2, 3], pads = [1, 0, 2, 1]"),
        ("1, 6, 10, 10", "6, 1, 3, 3", "group = 6, dilations = [2, 2]"),
        ("1, 4, 8, 7", "4, 4, 2, 2", 'auto_pad = "SAME_UPPER", strides = [2, 2]'),
        ("1, 4, 8, 7", "4, 4, 2, 4", 'auto_pad = "SAME_LOWER", strides = [1, 2]'),
        ("1, 4, 8, 7", "4, 4, 1, 1", 'auto_pad = "VALID"'),
        ("2, 3, 50", "4, 3, 7", "strides = [5]"),
        ("1, 2, 5, 6, 7", "3, 2, 2, 3, 2", "pads = [1, 0, 1, 0, 1, 0]"),
    ],
)
@pytest.mark.parametrize("bias", ["", ", b"])
def test_a_convolution_becomes_a_product_with_less_rounding(
    shape: str, weights: str, attributes: str, bias: str, made: Made
) -> None:
    channels, rank = weights.split(",", maxsplit=1)[0], shape.count(",") + 1
    result = ", ".join("UVWXYZ"[:rank])
    text = f"g (float[{shape}] x, float[{weights}] w, float[{channels}] b) => (float[{result}] y)"
    exact, found, own = made(parsed(f"{text} {{ y = Conv<{attributes}>(x, w{bias}) }}"))
    assert exact.precise
    assert "Conv" not in {node.op_type for node in exact.model.graph.node}
    assert found["y"].shape == own["y"].shape
    assert agrees(found["y"], own["y"])


def test_what_the_runtime_has_in_float32_alone_is_said_to_be_less_exact(made: Made) -> None:
    text = "g (float[1, 4, 8, 8] x, float[4] s, float[4] b) => (float[U, V, W, X] y)"
    exact, found, own = made(parsed(f"{text} {{ y = InstanceNormalization(x, s, b) }}"))
    assert not exact.precise
    assert np.abs(found["y"] - own["y"]).max() < 1e-5
    exact, found, own = made(parsed("g (float[64] x) => (float[64] y) { y = Erf(x) }"))
    assert exact.precise, "one rounding of each element does no harm"
    assert found["y"].dtype == np.float64


def test_types_in_attributes_and_constants_are_float64_too(made: Made) -> None:
    text = (
        "g (float16[4] x, int64[4] n) => (double[4] y, float[4] z, float16[4] h) {"
        " a = Constant<value_float = 0.1>() b = Constant<value = float[1] {0.3}>()"
        " c = Cast<to = 1>(x) d = Mul(c, a) e = Add(d, b) s = Constant<value_ints = [4]>()"
        " zero = ConstantOfShape(s) third = ConstantOfShape<value = float[1] {0.333333}>(s)"
        " f = Add(e, zero) g = Mul(f, third) i = Cast<to = 1>(n) z = Div(g, i)"
        " y = Cast<to = 11>(z) h = CastLike(z, x) }"
    )
    exact, found, own = made(parsed(text))
    assert exact.precise
    assert {value.dtype for value in found.values()} == {np.dtype(np.float64)}
    for name in found:
        close = np.isclose(found[name], own[name].astype(np.float64), rtol=1e-2, equal_nan=True)
        assert close.all() | np.isinf(own[name]).any()


def test_graphs_inside_operators_and_functions_are_rewritten(made: Made) -> None:
    text = (
        '<ir_version: 9, opset_import: ["" : 18, "f" : 1]>\n'
        "g (float[8] x, bool c) => (float[8] y, float[8] z, float[8] w) <float[1] k = {0.7}> {"
        " y = If(c) <then_branch = p () => (float[8] u) { m = Mul(x, k) u = Tanh(m) },"
        " else_branch = q () => (float[8] v) { o = Constant<value_float = 0.3>() v = Mul(x, o) }>"
        " n = Constant<value_int = 5>() t = Constant<value_ints = [1]>() u = Cast<to = 9>(t)"
        " s = Squeeze(u) z = Loop(n, s, x) <body = b (int64 i, bool d, float[8] v)"
        " => (bool e, float[8] r) { e = Identity(d) a = Mul(v, k) r = Sin(a) }> w = f.third(x) }\n"
        '<domain: "f", opset_import: ["" : 18]> third (a) => (o) {'
        " c = Constant<value_float = 0.333>() o = Mul(a, c) }"
    )
    exact, found, own = made(onnx.parser.parse_model(text))
    assert not exact.model.functions
    for name in "yzw":
        assert agrees(found[name], own[name]), name


@pytest.mark.parametrize(
    "body",
    [
        "y = RandomNormalLike(x)",
        "y = com.example.Mystery(x)",
        "a = If(c) <then_branch = p () => (float[4] u) { u = RandomNormalLike(x) },"
        " else_branch = q () => (float[4] v) { v = Neg(x) }> y = Neg(a)",
    ],
)
def test_what_is_random_or_unknown_has_none(body: str) -> None:
    model = parsed(f"g (float[4] x, bool c) => (float[4] y) {{ {body} }}")
    with pytest.raises(NoExactForm):
        in_double(model, {"x": (4,), "c": ()}, lambda _: None)


def test_a_dropout_that_does_nothing_is_not_random(made: Made) -> None:
    exact, found, _ = made(parsed("g (float[8] x) => (float[8] y) { a = Dropout(x) y = Exp(a) }"))
    assert exact.precise
    assert found["y"].dtype == np.float64
