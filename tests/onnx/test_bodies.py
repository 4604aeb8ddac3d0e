"""Graphs inside operators are optimized, too, and read what they read from outside."""

import json
from collections.abc import Callable
from importlib.resources import files as resources
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from certified import Json, proved
from certified import optimized as optimized_files
from onnx import numpy_helper
from products import RULES

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode, NotCertified
from xflow.pipeline.certify import certify
from xflow.pipeline.log import read_report
from xflow.pipeline.pipeline import Result

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
BRANCHES = """g (bool c, float[N,4] x, float[4,4] a) => (float[N,4] y)
    <float[4,4] b = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2},
     float[4] k = {1,2,3,4}, float[4] l = {4,3,2,1}>
    { h = Tanh(x)
      y = If (c) <
        then_branch = one () => (float[N,4] u)
            { p = MatMul(h, b) q = Max(p, k) s = Max(q, l) r = Relu(s) u = Relu(r) },
        else_branch = two () => (float[N,4] v)
            { p2 = MatMul(h, a) q2 = Relu(p2) s2 = Relu(q2) v = Neg(s2) }> }"""
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
    "k_folded": np.zeros(2, np.float32),
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
        (BRANCHES, {"one": ["MatMul", "Max", "Relu"], "two": ["MatMul", "Relu", "Neg"]}),
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
    text = BRANCHES.replace("float[4,4] a)", "float[4,4] a, float[2] k_folded)")
    before, result = optimized(text)
    after = ir.to_proto(result.model)
    np.testing.assert_allclose(run(before, True)[0], run(after, True)[0], rtol=1e-5)
    (node,) = [node for node in after.graph.node if node.op_type == "If"]
    made = [tensor.name for attribute in node.attribute for tensor in attribute.g.initializer]
    assert made == ["k_folded_1"]


def verdict(before: Path, after: Path, report: Path) -> str:
    """The objection of `certify`; nothing where it certifies."""
    try:
        certify(before, after, read_report(report)[1], lambda rule: proved(str(rule)))
    except NotCertified as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "text", [BRANCHES, LOOP, SCAN, NESTED], ids=["If", "Loop", "Scan", "nested"]
)
def test_rewritten_bodies_are_replayed_and_certified(text: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(HEAD + text)
    before, after, report = optimized_files(model, tmp_path)
    told = json.loads(report.read_text())
    schema = json.loads((resources("xflow") / "report.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(told, schema)
    assert told["log"]["bodies"]
    assert verdict(before, after, report) == ""
    again = tmp_path / "again.onnx"
    assert entry.main(["replay", str(report), str(before), str(again), "-q"]) == ExitCode.OK
    assert again.read_bytes() == after.read_bytes()


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A model, what it is rewritten to in its branches, and the report."""
    model = onnx.parser.parse_model(HEAD + BRANCHES)
    return optimized_files(model, tmp_path_factory.mktemp("branches"))


def _without_a_body(log: Json) -> None:
    del log["bodies"][0]


def _another_attribute(log: Json) -> None:
    log["bodies"][0]["attribute"] = "else"


def _another_node(log: Json) -> None:
    log["bodies"][0]["node"] = 0


def _fewer_rewrites(log: Json) -> None:
    log["bodies"][1]["log"]["rounds"] = []


def _another_place(log: Json) -> None:
    log["bodies"][1]["log"]["rounds"][0][0]["steps"][0]["at"][0][0] += 1


def _a_wrong_rule(log: Json) -> None:
    rules = log["bodies"][0]["log"]["rules"]
    name = next(name for name in rules if name == "relu-of-relu")
    rules[name] = rules[name].replace("to       Relu(x)", "to       Neg(Neg(x))")
    assert "Neg" in rules[name]


@pytest.mark.parametrize(
    "change",
    [
        *(_without_a_body, _another_attribute, _another_node, _fewer_rewrites, _another_place),
        _a_wrong_rule,
    ],
)
def test_a_changed_log_of_a_body_is_not_certified(
    change: Callable[[Json], None], branches: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    told = json.loads(branches[2].read_text())
    change(told["log"])
    (tmp_path / "r.json").write_text(json.dumps(told))
    assert verdict(*branches[:2], tmp_path / "r.json")


OWN_WEIGHT = """g (bool c, float[4] x) => (float[4] y)
    { y = If (c) <
        then_branch = one () => (float[4] u)
            <float[4] w = {1, 2, 3, 4}> { m = Mul(x, w) r = Relu(m) u = Relu(r) },
        else_branch = two () => (float[4] v) { v = Neg(x) }> }"""


def changed_weight(model: onnx.ModelProto, steps: int) -> onnx.ModelProto:
    """The model with an element of the only weight in a branch moved by so many last places."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    (node,) = [node for node in model.graph.node if node.op_type == "If"]
    (weight,) = [each for attribute in node.attribute for each in attribute.g.initializer]
    array = numpy_helper.to_array(weight).copy()
    for _ in range(steps):
        array.flat[0] = np.nextafter(array.flat[0], np.float32(100))
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    return model


def test_what_was_computed_for_a_body_may_differ_by_one_unit_in_the_last_place(
    branches: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    for steps, objection in ((1, ""), (2, "1 of its 4 elements")):
        onnx.save(changed_weight(onnx.load(branches[1]), steps), tmp_path / "o.onnx")
        found = verdict(branches[0], tmp_path / "o.onnx", branches[2])
        assert objection in found
        assert bool(objection) == bool(found)


def test_weights_of_a_body_must_be_the_same(tmp_path: Path) -> None:
    before, after, report = optimized_files(onnx.parser.parse_model(HEAD + OWN_WEIGHT), tmp_path)
    onnx.save(changed_weight(onnx.load(after), 1), after)
    assert "its data is another" in verdict(before, after, report)
