"""Models that ONNX Runtime runs though the ONNX checker objects: put right, optimized, and said."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from products import RULES, separated

import xflow
from xflow.cli import entry
from xflow.core.errors import ExitCode, ModelError
from xflow.onnx import files
from xflow.onnx.repairs import put_right, sort_nodes
from xflow.pipeline import api
from xflow.pipeline.certify import certify
from xflow.pipeline.log import read_report
from xflow.rewriting.rule import Rule

X = np.array([[-1, 2, 3, -4]], np.float32)


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def relus(opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """y = Relu(Relu(x + w))."""
    w = numpy_helper.from_array(np.full(4, 0.5, np.float32), "w")
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], name="sum"),
        helper.make_node("Relu", ["a"], ["b"], name="once"),
        helper.make_node("Relu", ["b"], ["y"], name="twice"),
    ]
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:], [w])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def run(model: onnx.ModelProto | Path, **feeds: np.ndarray) -> list[np.ndarray]:
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, feeds)
    return found


def optimized(model: api.Model, rules: Sequence[Rule] = RULES) -> api.Result:
    return xflow.optimize(
        model,
        rules=rules,
        cost="estimated",
        objective="nodes",
        budget=3,
        threads=1,
        check=1,
    )


def shuffled(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The model with the nodes of its main graph in another order."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes = list(model.graph.node)
    random.Random(seed).shuffle(nodes)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


LATE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 4] x) => (float[1, 4] y, float[1, 4] w) {
  early = Neg(x)
  once = Relu(early)
  late = Relu(once)
  c = Constant <value = bool {1}> ()
  w = Add(late, late)
  y = If (c) <
    then_branch = t () => (float[1, 4] o) { q = Neg(late) r = Relu(q) o = Relu(r) },
    else_branch = e () => (float[1, 4] o2) { o2 = Neg(late) }>
}"""
"""A value that only graphs inside an operator read besides another one."""


@pytest.mark.parametrize("seed", range(6))
def test_nodes_in_no_order_are_sorted_and_optimized(seed: int, tmp_path: Path) -> None:
    for number, model in enumerate((separated(), model_of(LATE))):
        source, target = tmp_path / f"{number}.onnx", tmp_path / f"{number}.out.onnx"
        other = shuffled(model, seed)
        onnx.save(other, source)
        x = X if number else np.random.default_rng(0).standard_normal((1, 96)).astype(np.float32)
        expected = run(model, x=x)
        for mine, theirs in zip(run(source, x=x), expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        result = optimized(source)
        assert result.report.changed or number, (
            "what a graph inside reads is touched with more care"
        )
        in_order = [node.SerializeToString() for node in other.graph.node]
        moved = in_order != [node.SerializeToString() for node in model.graph.node]
        said = [text for text in result.report.messages if "order" in text]
        result.save(target)
        if result.report.changed:
            onnx.checker.check_model(target)
        for mine, theirs in zip(run(target, x=x), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
        assert len(said) <= moved


def test_a_sorted_model_is_replayed_and_certified(tmp_path: Path) -> None:
    source, target, report = tmp_path / "in.onnx", tmp_path / "out.onnx", tmp_path / "r.json"
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.rules").write_text("\n".join(map(str, RULES)))
    model = separated()
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    onnx.save(model, source)
    line = [str(source), str(target), "--rules", str(tmp_path / "rules"), "--cost", "estimated"]
    assert entry.main([*line, "--budget", "3", "--report", str(report), "-q"]) == ExitCode.OK
    told, log = read_report(report)
    assert any("order of their inputs" in text for text in told["messages"])
    assert certify(source, target, log, lambda rule: "").rewrites
    again = tmp_path / "again.onnx"
    assert entry.main(["replay", str(report), str(source), str(again), "-q"]) == ExitCode.OK
    assert again.read_bytes() == target.read_bytes()


def test_a_model_that_nothing_is_found_for_is_given_back_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    model = model_of("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 4] x) => (float[1, 4] y) { y = Neg(a) a = Tanh(x) }""")
    onnx.save(model, source)
    result = optimized(source)
    assert not result.report.changed
    result.save(target)
    assert target.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("form", ["message", "model in memory"])
def test_it_does_not_matter_how_such_a_model_is_given(form: str) -> None:
    message = shuffled(separated(), 1)
    before = message.SerializeToString()
    model = message if form == "message" else ir.from_proto(message)
    result = optimized(model)
    assert result.report.changed
    assert any("order of their inputs" in text for text in result.report.messages)
    assert message.SerializeToString() == before
    if isinstance(model, ir.Model):
        assert [node.op_type for node in model.graph] == [n.op_type for n in message.graph.node]


@given(st.data())
def test_any_graph_is_sorted_and_what_is_sorted_stays(data: st.DataObject) -> None:
    """Node k reads of some nodes before it, by itself or from a graph inside it."""
    count = data.draw(st.integers(1, 12))
    nodes = []
    for number in range(count):
        some = st.lists(st.integers(0, max(number - 1, 0)), max_size=3)
        read = [f"v{k}" for k in data.draw(some) if number] or ["x"]
        if data.draw(st.booleans()):
            inner = helper.make_graph([helper.make_node("Op", read, ["inside"])], "b", [], [])
            nodes.append(helper.make_node("Op", [], [f"v{number}"], body=inner))
        else:
            nodes.append(helper.make_node("Op", read, [f"v{number}"]))
    model = helper.make_model(helper.make_graph(nodes, "g", [], []))
    assert not sort_nodes(model)
    order = data.draw(st.permutations(range(count)))
    del model.graph.node[:]
    model.graph.node.extend(nodes[k] for k in order)
    sort_nodes(model)
    place = {node.output[0]: k for k, node in enumerate(model.graph.node)}
    assert sorted(place) == sorted(f"v{k}" for k in range(count))
    for number, node in enumerate(model.graph.node):
        inside = [name for a in node.attribute for inner in a.g.node for name in inner.input]
        assert all(place[name] < number for name in (*node.input, *inside) if name != "x")
    assert not sort_nodes(model)


def test_graphs_inside_operators_and_functions_are_sorted() -> None:
    model = model_of("""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    g (float[4] x, bool c) => (float[4] z) {
      z = own.F(y)
      y = If (c) <then_branch = t () => (float[4] o) { o = Relu(q) q = Neg(x) },
                  else_branch = e () => (float[4] p) { p = Neg(x) }>
    }
    <domain: "own", opset_import: ["" : 17]>
    F (a) => (b) { b = Relu(d) d = Neg(a) }""")
    (note,) = put_right(model)
    assert "order of their inputs" in note
    onnx.checker.check_model(model)
    then = next(a.g for a in model.graph.node[0].attribute if a.name == "then_branch")
    assert [node.op_type for node in then.node] == ["Neg", "Relu"]
    assert [node.op_type for node in model.functions[0].node] == ["Neg", "Relu"]


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ("y = Relu(a) a = Neg(b) b = Add(a, x)", ["circle", "Neg a", "Add b"]),
        ("y = Relu(y)", ["circle", "Relu y"]),
        (
            "y = If (c) <then_branch = t () => (float[4] o) { o = Neg(y) }, else_branch = "
            "e () => (float[4] p) { p = Neg(x) }> c = Constant <value = bool {1}> ()",
            ["circle", "If y"],
        ),
        ("y = Relu(nowhere)", ["nowhere"]),
    ],
)
def test_what_has_no_order_is_one_sentence(nodes: str, told: list[str], tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {{ {nodes} }}'
    path = tmp_path / "model.onnx"
    onnx.save(model_of(text), path)
    with pytest.raises(ModelError) as caught:
        files.load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    for part in told:
        assert part in str(caught.value)


def test_a_long_circle_is_not_told_whole(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", [f"v{k}"], [f"v{(k + 1) % 5000}"]) for k in range(5000)]
    model = relus()
    model.graph.node.extend(nodes)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="circle") as caught:
        files.load_model(tmp_path / "model.onnx")
    assert len(str(caught.value)) < 500


def _no_name(model: onnx.ModelProto) -> None:
    model.graph.name = ""


def _weights_that_are_no_inputs(model: onnx.ModelProto) -> None:
    model.ir_version = 3


def _no_import_of_the_runtime_s_domain(model: onnx.ModelProto) -> None:
    node = helper.make_node("BiasGelu", ["x", "w"], ["a"], domain="com.microsoft")
    model.graph.node[0].CopyFrom(node)
    _told(model)


def _metadata_twice(model: onnx.ModelProto) -> None:
    for value in "ab":
        model.metadata_props.add(key="k", value=value)


def _an_output_without_a_type(model: onnx.ModelProto) -> None:
    model.graph.output[0].ClearField("type")


def _layer_normalization_before_its_time(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 13
    _normalized(model, "LayerNormalization")


def _a_simplified_layer_normalization(model: onnx.ModelProto) -> None:
    _normalized(model, "SimplifiedLayerNormalization", stash_type=1)


def _normalized(model: onnx.ModelProto, op: str, **attributes: int) -> None:
    node = helper.make_node(op, ["x", "w"], ["a"], axis=-1, epsilon=1e-5, **attributes)
    model.graph.node[0].CopyFrom(node)
    _told(model)


def _told(model: onnx.ModelProto) -> None:
    """The type of what an operator gives that ONNX does not know."""
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 4]))


def _all_at_once(model: onnx.ModelProto) -> None:
    for change in (_no_name, _metadata_twice, _an_output_without_a_type):
        change(model)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))


CHANGES: dict[Callable[[onnx.ModelProto], None], str] = {
    _no_name: "without a name",
    _weights_that_are_no_inputs: "IR version was raised from 3 to 4",
    _no_import_of_the_runtime_s_domain: "com.microsoft is imported",
    _metadata_twice: "Metadata",
    _an_output_without_a_type: "without a type",
    _layer_normalization_before_its_time: "",
    _a_simplified_layer_normalization: "",
    _all_at_once: "order of their inputs",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__.strip("_"))
def test_harmless_objections_are_put_right_and_said(
    change: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    model = relus()
    change(model)
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    source.write_bytes(model.SerializeToString())
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(source)
    (expected,) = run(source, x=X)
    result = optimized(source)
    assert result.report.changed
    said = CHANGES[change]
    assert any(said in text for text in result.report.messages)
    result.save(target)
    written = onnx.load(target)
    assert sum(node.op_type == "Relu" for node in written.graph.node) == 1
    np.testing.assert_allclose(run(target, x=X)[0], expected, rtol=1e-5, atol=1e-6)
    if said:
        onnx.checker.check_model(target)
    else:  # the operator is the runtime's: as valid as it was
        (op,) = {node.op_type for node in model.graph.node} - {"Relu"}
        assert [node.op_type for node in written.graph.node].count(op) == 1
        assert written.opset_import == model.opset_import
    if change is _metadata_twice:
        assert {each.key: each.value for each in written.metadata_props} == {"k": "b"}
        read = onnxruntime.InferenceSession(source).get_modelmeta().custom_metadata_map
        assert read == {"k": "b"}, "as the runtime reads them"


@pytest.mark.parametrize("kept", [True, False])
def test_weights_of_old_models_are_constants_whether_or_not_they_are_inputs(
    kept: bool, tmp_path: Path
) -> None:
    model = relus(ir_version=3)
    extra = numpy_helper.from_array(np.full(4, 0.25, np.float32), "v")
    model.graph.initializer.append(extra)
    model.graph.input.append(helper.make_tensor_value_info("v", TensorProto.FLOAT, [4]))
    model.graph.node[1].CopyFrom(helper.make_node("Sub", ["a", "v"], ["b"], name="once"))
    model.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    model.graph.output[0].name = "z"
    path = tmp_path / "in.onnx"
    path.write_bytes(model.SerializeToString())
    (expected,) = run(path, x=X)
    result = xflow.optimize(
        path,
        rules=RULES,
        cost="estimated",
        objective="nodes",
        budget=3,
        check=1,
        keep_initializer_inputs=kept,
    )
    assert result.report.changed
    result.save(tmp_path / "out.onnx")
    onnx.checker.check_model(tmp_path / "out.onnx")
    np.testing.assert_allclose(run(tmp_path / "out.onnx", x=X)[0], expected, rtol=1e-6)


def _an_unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[1].op_type = "NoSuchOperator"


def _a_value_that_is_made_twice(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = "a"


def _a_weight_of_no_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 0


def _no_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 0


@pytest.mark.parametrize(
    "change", [_an_unknown_operator, _a_value_that_is_made_twice, _a_weight_of_no_type, _no_opset]
)
def test_what_the_runtime_does_not_run_either_is_refused(
    change: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    model = relus()
    change(model)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="not a valid"):
        files.load_model(path)
