"""Functions of a model: calls are inlined where a rewrite reaches into them, and stay otherwise."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from certified import optimized as optimized_files
from certified import proved
from products import RULES

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode, NotCertified
from xflow.onnx.inlining import has_calls, inlined
from xflow.pipeline.certify import certify
from xflow.pipeline.log import read_report
from xflow.pipeline.pipeline import Result

HEAD = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
OWN = '<domain: "own", opset_import: ["" : 17, "own" : 1]>\n'
TWICE = OWN + "Twice (x) => (y) { r = Relu(x) y = Relu(r) }\n"
PLAIN = OWN + "Plain (x) => (y) { r = Tanh(x) y = Neg(r) }\n"
SUM = OWN + "Products (x, a, b) => (y) { p = MatMul(x, a) q = MatMul(x, b) y = Add(p, q) }\n"

ONE_OF_TWO = (
    HEAD
    + "g (float[N,4] x) => (float[N,4] y) { h = own.Plain(x) k = own.Twice(h) y = own.Plain(k) }\n"
    + TWICE
    + PLAIN
)
ONE_CALL_OF_TWO = (
    HEAD
    + """g (float[N,4] x) => (float[N,4] y) {
        h = own.Half(x) k = Tanh(h) m = own.Half(k) n = Neg(m) y = Relu(n) }\n"""
    + OWN
    + "Half (x) => (y) { s = Sigmoid(x) t = Neg(s) y = Relu(t) }\n"
)
ACROSS = (
    HEAD
    + "g (float[N,4] x) => (float[N,4] y) { h = own.Ends(x) y = Relu(h) }\n"
    + OWN
    + "Ends (x) => (y) { s = Sigmoid(x) t = Tanh(s) y = Relu(t) }\n"
)
NESTED = (
    HEAD
    + "g (float[N,4] x) => (float[N,4] y) { h = own.Outer(x) y = Neg(h) }\n"
    + OWN
    + "Outer (x) => (y) { a = own.Plain(x) b = own.Twice(a) y = own.Plain(b) }\n"
    + TWICE
    + PLAIN
)
ATTRIBUTES = (
    HEAD
    + """g (float[4,4] x, float[4,4] a, float[4,4] b) => (float[4,4] y, float[4,4] z) {
        y = own.Scaled<alpha = 0.25>(x, a, b) z = own.Scaled(y, a, b) }\n"""
    + OWN
    + """Scaled <alpha: float = 0.5, beta> (x, a, b) => (y) {
        l = LeakyRelu<alpha: float = @alpha>(x) p = MatMul(l, a) q = MatMul(l, b) s = Add(p, q)
        y = Elu<alpha: float = @beta>(s) }\n"""
)
CONTROL = (
    HEAD
    + """g (bool c, float[4,4] x, int64 n, float[4,4] v) => (float[4,4] y, float[4,4] z) {
        on = Constant<value = bool {1}>()
        y = own.Choose(c, x, v) z = own.Repeat(n, on, y, v) }\n"""
    + OWN
    + """Choose (c, x, v) => (y) {
        h = Tanh(x)
        y = If (c) <
            then_branch = one () => (u) { r = Relu(h) s = Relu(r) u = Add(s, v) },
            else_branch = two () => (w) { w = Neg(h) }> }\n"""
    + OWN
    + """Repeat (n, on, x, v) => (y) {
        y = Loop (n, on, x) <body = b (int64 n, bool c, float[4,4] v) => (bool d, float[4,4] w) {
            d = Identity(c) r = Relu(v) s = Relu(r) w = Sub(s, x) }> }\n"""
)
IN_A_BODY = (
    HEAD
    + """g (bool c, float[N,4] x) => (float[N,4] y) {
        y = If (c) <
            then_branch = one () => (float[N,4] u) { u = own.Twice(x) },
            else_branch = two () => (float[N,4] v) { v = own.Plain(x) }> }\n"""
    + TWICE
    + PLAIN
)
OLDER = ONE_OF_TWO.replace('["" : 17, "own" : 1]>\nTwice', '["" : 16, "own" : 1]>\nTwice')
OTHER_MEANING = (
    HEAD.replace("17", "18")
    + "g (float[4,4] x) => (float[4] y) { h = own.Twice(x) k = own.Mean(h) y = Neg(k) }\n"
    + TWICE
    + OWN
    + "Mean (x) => (y) { r = Relu(x) s = Relu(r) y = ReduceMean<axes = [1], keepdims = 0>(s) }\n"
)
OMITTED = (
    HEAD
    + "g (float[2,4] x) => (float[2,4] y) { h = Neg(x) q, z, p = own.Three(h) y = Neg(q) }\n"
    + OWN
    + """Three (x, low) => (y, z, p) {
        p = Clip(x, low) r = Relu(p) z = Relu(r) y = Tanh(z) }\n"""
)
SAME_NAMES = (
    HEAD
    + """g (float[2,4] x, bool c) => (float[2,4] y, float[2,4] r_2) {
        r = own.Twice(x) z = If (c) <
            then_branch = one () => (float[2,4] u) { r_1 = Tanh(r) u = Neg(r_1) },
            else_branch = two () => (float[2,4] v) { r_3 = Abs(r) v = Neg(r_3) }>
        r_2 = own.Twice(z) y = own.Twice(r_2) }\n"""
    + TWICE
)
THROUGH = (
    HEAD
    + "g (float[2,4] x) => (float[2,4] y, float[2,4] z) { y, z = own.Both(x) }\n"
    + OWN
    + "Both (x) => (x, y) { r = Relu(x) y = Relu(r) }\n"
)


def parsed(text: str) -> onnx.ModelProto:
    """The model of a text, without the empty domains that the parser spells out."""
    model = ir.to_proto(ir.from_proto(onnx.parser.parse_model(text)))
    onnx.checker.check_model(model)
    return model


def optimized(text: str) -> tuple[onnx.ModelProto, Result]:
    model = parsed(text)
    result = xflow.optimize(model, rules=RULES, cost="estimated", budget=10, threads=1, check=2)
    return model, result


def kinds(result: Result) -> list[str]:
    return [node.op_type for node in result.model.graph]


def run(model: onnx.ModelProto, condition: bool = True) -> list[np.ndarray]:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    random = np.random.default_rng(0)
    feeds = {}
    for item in session.get_inputs():
        shape = [each if isinstance(each, int) else 3 for each in item.shape]
        feeds[item.name] = random.standard_normal(shape).astype(np.float32)
        if item.name in ("c", "n"):
            feeds[item.name] = np.array(condition if item.name == "c" else 3)
    results: list[np.ndarray] = session.run(None, feeds)
    return results


def functions(model: onnx.ModelProto) -> dict[str, bytes]:
    return {f.name: f.SerializeToString(deterministic=True) for f in model.functions}


@pytest.mark.parametrize(
    ("text", "expected", "left"),
    [
        (ONE_OF_TWO, ["Plain", "Relu", "Plain"], ["Plain"]),
        (ONE_CALL_OF_TWO, ["Half", "Tanh", "Half", "Neg", "Relu"], ["Half"]),
        (ACROSS, ["Sigmoid", "Tanh", "Relu"], []),
        (NESTED, ["Plain", "Relu", "Plain", "Neg"], ["Plain"]),
        (ATTRIBUTES, ["Add", "LeakyRelu", "MatMul", "Elu", "LeakyRelu", "MatMul", "Elu"], []),
        (CONTROL, ["Constant", "Tanh", "If", "Loop"], []),
        (IN_A_BODY, ["If"], ["Twice", "Plain"]),
        (OLDER, ["Plain", "Relu", "Plain"], ["Plain"]),
        (SAME_NAMES, ["Relu", "If", "Relu", "Identity"], []),
        (OMITTED, ["Neg", "Clip", "Relu", "Tanh", "Neg"], []),
    ],
    ids=[
        *("one of two", "no gain", "across", "nested", "attributes", "control flow", "in a body"),
        *("other opset", "same names", "outputs and inputs omitted"),
    ],
)
def test_calls_are_inlined_where_a_rewrite_reaches_into_them(
    text: str, expected: list[str], left: list[str]
) -> None:
    before, result = optimized(text)
    after = ir.to_proto(result.model)
    assert sorted(kinds(result)) == sorted(expected)
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    mine, theirs = functions(before), functions(after)
    assert sorted(theirs) == sorted(left)
    assert all(mine[name] == data for name, data in theirs.items())
    for condition in (True, False):
        for a, b in zip(run(before, condition), run(after, condition), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", [OTHER_MEANING, THROUGH])
def test_what_does_not_mean_the_same_outside_of_its_function_stays(text: str) -> None:
    """An operator that changed between the two opsets; an output that is an input."""
    model = ir.from_proto(onnx.parser.parse_model(text))
    found = inlined(model)
    assert found.calls <= {(0,)}
    assert len(found.model.functions) == 1


def test_a_function_with_the_name_of_an_operator_stays() -> None:
    """ONNX leaves open whether the function is meant or the operator."""
    for domain, name in (("", "Selu"), ("com.microsoft", "Gelu")):
        model = parsed(ONE_OF_TWO)
        model.functions[0].name, model.functions[0].domain = name, domain
        model.graph.node[1].op_type, model.graph.node[1].domain = name, domain
        if domain:
            model.opset_import.add(domain=domain, version=1)
        assert inlined(ir.from_proto(model)).calls == {(0,), (2,)}


def test_functions_that_call_themselves_or_grow_beyond_bounds_are_not_inlined() -> None:
    model = parsed(ONE_OF_TWO)
    assert has_calls(ir.from_proto(model))
    model.functions[0].node[0].op_type, model.functions[0].node[0].domain = "Twice", "own"
    assert not has_calls(ir.from_proto(model))
    doubling = [
        OWN + f"F{k} (x) => (y) {{ r = own.F{k + 1}(x) y = own.F{k + 1}(r) }}\n" for k in range(30)
    ]
    text = HEAD + "g (float[4] x) => (float[4] y) { y = own.F0(x) }\n" + "".join(doubling)
    text += OWN + "F30 (x) => (y) { r = Relu(x) y = Relu(r) }\n"
    assert not has_calls(ir.from_proto(onnx.parser.parse_model(text)))


def test_the_caller_s_model_keeps_its_calls() -> None:
    model = ir.from_proto(parsed(NESTED))
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    found = inlined(model)
    assert found.calls == {(0,), (0, 0), (0, 1), (0, 2)}
    assert found.origin == ((0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 2), None)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("text", [NESTED, CONTROL, IN_A_BODY, ATTRIBUTES])
def test_inlined_calls_are_replayed_and_certified(text: str, tmp_path: Path) -> None:
    before, after, report = optimized_files(parsed(text), tmp_path)
    again = tmp_path / "again.onnx"
    assert entry.main(["replay", str(report), str(before), str(again), "-q"]) == ExitCode.OK
    assert again.read_bytes() == after.read_bytes()
    found = certify(before, after, read_report(report)[1], lambda rule: proved(str(rule)))
    assert found.calls
    assert found.steps


@pytest.mark.parametrize("calls", [[], [[0]], [[0], [0, 1], [0, 2]], [[0], [0, 7]], [[1], [9]]])
def test_other_calls_are_not_certified(calls: list[list[int]], tmp_path: Path) -> None:
    before, after, report = optimized_files(parsed(NESTED), tmp_path)
    told = json.loads(report.read_text())
    assert told["log"]["inlined"] == [[0], [0, 1]]
    told["log"]["inlined"] = calls
    report.write_text(json.dumps(told))
    with pytest.raises(NotCertified):
        certify(before, after, read_report(report)[1], lambda rule: "")
