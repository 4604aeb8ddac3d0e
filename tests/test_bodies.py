"""Graphs inside operators are optimized, too, and read what they read from outside."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from products import RULES

import xflow
from xflow.api import Result

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
BRANCHES = """g (bool c, float[N,4] x, float[4,4] a) => (float[N,4] y)
    <float[4,4] b = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2},
     float[4,4] k = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}>
    { h = Tanh(x)
      y = If (c) <
        then_branch = one () => (float[N,4] u)
            { p = MatMul(h, b) q = MatMul(h, k) s = Add(p, q) r = Relu(s) u = Relu(r) },
        else_branch = two () => (float[N,4] v)
            { p2 = MatMul(h, a) q2 = MatMul(h, b) s2 = Add(p2, q2) v = Neg(s2) }> }"""
LOOP = """g (float[4,4] x, int64 n, float[4,4] a) => (float[4,4] y)
    { on = Constant<value = bool {1}>()
      y = Loop (n, on, x) <body = b (int64 i, bool c, float[4,4] v) => (bool d, float[4,4] w)
            { d = Identity(c) p = MatMul(v, a) q = MatMul(v, a) s = Add(p, q) r = Relu(s)
              t = Relu(r) w = Tanh(t) }> }"""
SCAN = """g (float[4] x, float[3,4] xs) => (float[4] y, float[3,4] z)
    { a = Sigmoid(x)
      y, z = Scan<num_scan_inputs = 1, body = b (float[4] v, float[4] e) => (float[4] w, float[4] o)
            { w = Add(v, e) r = Relu(w) s = Relu(r) o = Add(s, a) }>(a, xs) }"""
NESTED = """g (bool c, float[4] x) => (float[4] y)
    { h = Tanh(x)
      y = If (c) <
        then_branch = one () => (float[4] u)
            { k = Neg(h)
              u = If (c) <
                then_branch = three () => (float[4] m) { r = Relu(k) s = Relu(r) m = Add(s, h) },
                else_branch = four () => (float[4] n) { n = Neg(k) }> },
        else_branch = two () => (float[4] v) { v = Neg(h) }> }"""
RANDOM = """g (bool c, float[4] x) => (float[4] y)
    { y = If (c) <
        then_branch = one () => (float[4] u)
            { n = RandomNormalLike(x) r = Relu(n) s = Relu(r) u = Add(s, x) },
        else_branch = two () => (float[4] v) { v = Neg(x) }> }"""
FEEDS: dict[str, np.ndarray] = {
    "x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32),
    "a": np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32),
    "xs": np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32),
    "n": np.array(3),
    "b_folded": np.zeros(2, np.float32),
}


def optimized(text: str) -> tuple[onnx.ModelProto, Result]:
    model = onnx.parser.parse_model(HEAD + text)
    result = xflow.optimize(model, rules=RULES, cost="estimated", budget=10, threads=1, check=2)
    return model, result


def bodies(model: ir.Model) -> dict[str, list[str]]:
    """The operators of each graph inside the operators of a model."""
    found = {}
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                graph = attribute.as_graph()
                found[graph.name or ""] = [inner.op_type for inner in graph]
    return found


def run(model: onnx.ModelProto, condition: bool) -> list[np.ndarray]:
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {}
    for item in session.get_inputs():
        value = np.array(condition) if item.name == "c" else FEEDS[item.name]
        feeds[item.name] = value[0] if len(item.shape) < value.ndim else value
    results: list[np.ndarray] = session.run(None, feeds)
    return results


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BRANCHES, {"one": ["MatMul", "Relu"], "two": ["Add", "MatMul", "Neg"]}),
        (LOOP, {"b": ["Identity", "Add", "MatMul", "Relu", "Tanh"]}),
        (SCAN, {"b": ["Add", "Relu", "Add"]}),
        (NESTED, {"one": ["Neg", "If"], "two": ["Neg"], "three": ["Relu", "Add"], "four": ["Neg"]}),
    ],
    ids=["If", "Loop", "Scan", "If inside If"],
)
def test_a_body_is_rewritten_and_computes_the_same(
    text: str, expected: dict[str, list[str]]
) -> None:
    before, result = optimized(text)
    found = {name: sorted(kinds) for name, kinds in bodies(result.model).items()}
    assert found == {name: sorted(kinds) for name, kinds in expected.items()}
    after = ir.to_proto(result.model)
    assert list(after.graph.input) == list(before.graph.input)
    assert list(after.graph.output) == list(before.graph.output)
    for condition in (True, False):
        for a, b in zip(run(before, condition), run(after, condition), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert any("was rewritten by" in text for text in result.report.messages)


def test_what_is_random_in_a_body_is_drawn_as_often_as_before() -> None:
    _, result = optimized(RANDOM)
    assert bodies(result.model)["one"].count("RandomNormalLike") == 1


def test_weights_from_outside_are_folded_and_new_names_are_new_everywhere() -> None:
    """The folded weight of a body has a name that nothing outside has."""
    text = BRANCHES.replace("float[4,4] a)", "float[4,4] a, float[2] b_folded)")
    before, result = optimized(text)
    after = ir.to_proto(result.model)
    np.testing.assert_allclose(run(before, True)[0], run(after, True)[0], rtol=1e-5)
    (node,) = [node for node in after.graph.node if node.op_type == "If"]
    made = [tensor.name for attribute in node.attribute for tensor in attribute.g.initializer]
    assert made == ["b_folded_1"]
