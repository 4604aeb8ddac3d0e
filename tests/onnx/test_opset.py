"""Raising a model's opset: where it gains, as a whole or not at all, and with nothing lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper
from products import Unmeasured

import xflow
from xflow.cli.entry import main
from xflow.core.errors import ExitCode, UsageError
from xflow.core.node import apply
from xflow.cost import measure
from xflow.cost.comparison import Comparison, Timing
from xflow.cost.estimate import Estimator
from xflow.cost.target import TargetModel
from xflow.onnx.exporter import export_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.opset import ceiling
from xflow.onnx.writer import UnwritableError
from xflow.pipeline import api, attempts
from xflow.rewriting.replacement import apply_replacements
from xflow.rewriting.text import parse_rules

SWISH = parse_rules(
    """
rule mul-sigmoid-to-swish
  in       x[...]
  from     Mul(x, Sigmoid(x))
  to       Swish(x)
"""
)
"""Swish exists since opset 24."""
MISH = parse_rules(
    """
rule mul-tanh-to-mish
  in       x[...]
  from     Mul(x, Tanh(Softplus(x)))
  to       Mish(x)
"""
)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that has kernels for Swish and Mish, so that they gain."""
    monkeypatch.setattr(attempts, "TargetModel", partial(TargetModel, calls={}))


def model(body: str, opset: int = 18, functions: str = "", imports: str = "") -> onnx.ModelProto:
    """A model from x [2, 3, 4] to y; `body` is the nodes."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}{imports}], producer_name: "tests">
    g (float[2, 3, 4] x) => (float[2, 3, 4] y)
    {{ {body} }} {functions}"""
    made = onnx.parser.parse_model(text)
    helper.set_model_props(made, {"licence": "free"})
    return made


ACTIVATION = "s = Sigmoid(x) y = Mul(x, s)"


def optimized(source: onnx.ModelProto, **options: object) -> api.Result:
    given = {"budget": 5.0, "threads": 1, "cost": "estimated", "check": 1, "rules": SWISH}
    return xflow.optimize(source, **{**given, **options})  # type: ignore[arg-type]


def imported(source: onnx.ModelProto) -> Imported:
    return import_model(ir.from_proto(source))


def raised(source: onnx.ModelProto) -> ir.Model:
    """The model with a Swish behind its output, which needs opset 24."""
    known = imported(source)
    (output,) = known.graph.outputs
    changed = known.graph.replace({output: apply("Swish", [output])[0]})
    return export_model(known, changed)


def agree(source: onnx.ModelProto, result: ir.Model) -> bool:
    """Whether two models compute the same."""
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 4), np.float32)}
    outputs = []
    for proto in (source, ir.to_proto(result)):
        onnx.checker.check_model(proto, full_check=True)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        outputs.append(session.run(None, feeds)[0])
    first, second = outputs
    return bool(np.allclose(first, second, rtol=1e-5, atol=1e-6))


def operators(result: ir.Model) -> list[str]:
    return [node.op_type for node in result.graph]


def test_the_opset_is_raised_where_a_newer_operator_gains_and_that_is_said() -> None:
    source = model(ACTIVATION)
    result = optimized(source)
    assert operators(result.model) == ["Swish"]
    assert result.model.opset_imports[""] == 24
    assert result.model.ir_version >= helper.find_min_ir_version_for([helper.make_opsetid("", 24)])
    assert result.model.metadata_props == {"licence": "free"}
    assert (result.report.opset_before, result.report.opset_after) == (18, 24)
    assert "The opset was raised from 18 to 24." in result.report.messages
    assert agree(source, result.model)


def test_a_model_that_gains_nothing_by_it_keeps_its_opset() -> None:
    result = optimized(model("y = Relu(x)"))
    assert result.model.opset_imports[""] == 18
    assert result.report.opset_before == result.report.opset_after == 18


def test_keep_opset_forbids_it() -> None:
    result = optimized(model(ACTIVATION), keep_opset=True)
    assert operators(result.model) == ["Sigmoid", "Mul"]
    assert result.model.opset_imports[""] == 18


def test_a_target_opset_is_the_one_that_it_is_raised_to() -> None:
    source = model("p = Softplus(x) t = Tanh(p) y = Mul(x, t)", opset=15)
    for target, opset in ((None, 18), (20, 20)):  # Mish exists since opset 18
        result = optimized(source, rules=MISH, target_opset=target)
        assert operators(result.model) == ["Mish"]
        assert result.model.opset_imports[""] == opset
    assert operators(optimized(model(ACTIVATION), target_opset=23).model) == ["Sigmoid", "Mul"]


@pytest.mark.parametrize(
    ("target", "words"), [(17, "17 is older"), (999, "opset 999 is not known")]
)
def test_a_target_that_makes_no_sense_is_refused(target: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        optimized(model(ACTIVATION), target_opset=target)


def test_the_command_line_takes_one_of_both_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(model(ACTIVATION), tmp_path / "in.onnx")
    arguments = [str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx")]
    assert main([*arguments, "--keep-opset", "--target-opset", "24"]) == ExitCode.USAGE
    assert "not allowed with argument" in capsys.readouterr().err
    given = ["--cost", "estimated", "--budget", "5", "--target-opset", "17"]
    assert main([*arguments, *given]) == ExitCode.USAGE
    assert "17 is older" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_rewrites_without_newer_operators_remain_where_raising_does_not_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All together are slower than the input; those that keep the opset are faster."""

    def compare(
        self: object, before: Path, after: Path, *_: object, **__: object
    ) -> tuple[Comparison]:
        opset = onnx.load(after).opset_import[0].version
        ratio = 1.5 if opset == 18 else 0.5
        once = Timing((1.0, 1.0))
        return (Comparison(ratio, ratio - 0.1, ratio + 0.1, once, once, 3),)

    rules = [*SWISH, *parse_rules("rule relus\n  in x[...]\n  from Relu(Relu(x))\n  to Relu(x)\n")]
    monkeypatch.setattr(measure.Measurer, "compare_at_each", compare)
    monkeypatch.setattr(
        attempts, "CostsAtSettings", lambda *a, **k: Unmeasured(Estimator(TargetModel(calls={})))
    )
    source = model(
        "s = Sigmoid(x) m = Mul(x, s) one = Constant<value = int64 {1}>() c = CumSum(m, one)"
        "r = Relu(c) y = Relu(r)"
    )
    result = xflow.optimize(source, rules=rules, budget=5.0, threads=1, check=1)
    assert operators(result.model) == ["Sigmoid", "Mul", "Constant", "CumSum", "Relu"]
    assert result.model.opset_imports[""] == 18
    assert "Rewrites that need a newer opset than 18 did not pay." in result.report.messages


def test_nodes_that_mean_the_same_stay_as_they_are_names_and_metadata_included() -> None:
    source = model(
        "shape = Constant<value = int64[3] {2, 3, 4}>() r = Reshape(x, shape) y = Abs(r)"
    )
    for number, node in enumerate(source.graph.node):
        node.name = f"node {number}"
        node.doc_string = "why"
        node.metadata_props.add(key="origin", value=str(number))
    result = raised(source)
    by_name = {node.name: node for node in result.graph}
    for number, node in enumerate(source.graph.node):
        kept = by_name[f"node {number}"]
        assert kept.op_type == node.op_type
        assert kept.doc_string == "why"
        assert kept.metadata_props["origin"] == str(number)


def test_what_is_written_otherwise_at_the_new_opset_is_written_anew() -> None:
    """ReduceMean had its axes as an attribute before opset 18, Clip its bounds before 11."""
    source = model("m = ReduceMean<axes = [2]>(x) y = Sub(x, m)", opset=13)
    result = raised(source)
    mean = next(node for node in result.graph if node.op_type == "ReduceMean")
    assert "axes" not in mean.attributes
    assert len(mean.inputs) == 2
    onnx.checker.check_model(ir.to_proto(result), full_check=True)


UNTOUCHED = {
    "unknown to the registry": "c = CumSum(x, one) y = Add(c, x)",
    "with a subgraph": """y = If (flag) <
        then_branch = t () => (float[2, 3, 4] a) { a = Relu(x) },
        else_branch = e () => (float[2, 3, 4] b) { b = Neg(x) }>""",
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_operators_that_only_the_converter_knows_pass_through(name: str) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[2, 3, 4] x) => (float[2, 3, 4] y)'
        "<int64 one = {1}, bool flag = {1}>" + f"{{ {UNTOUCHED[name]} }}"
    )
    source = onnx.parser.parse_model(text)
    known = imported(source)
    assert ceiling(known).opset == 24
    result = raised(source)
    assert {node.op_type for node in source.graph.node} < {node.op_type for node in result.graph}
    onnx.checker.check_model(ir.to_proto(result), full_check=True)


MOVED = {
    "Squeeze": "n = Shape(x) k = Slice<starts = [0], ends = [1]>(n) i = Squeeze<axes = [0]>(k)",
    "ReduceProd": "n = Shape(x) i = ReduceProd<keepdims = 0>(n)",
    "ReduceSum": "n = Shape(x) i = ReduceSum<axes = [0], keepdims = 0>(n)",
}


@pytest.mark.parametrize("name", MOVED)
def test_attributes_that_became_inputs_are_moved_in_arithmetic_on_shapes(name: str) -> None:
    """The registry leaves that alone, and every export of opset 12 with a dynamic size has it."""
    text = (
        '<ir_version: 4, opset_import: ["" : 9]> g (float[N, 3, 4] x) => (float[N, 3, 4] y)'
        f"{{ {MOVED[name]} f = Cast<to = 1>(i) y = Mul(x, f) }}"
    )
    source = onnx.parser.parse_model(text)
    assert not ceiling(imported(source)).obstacle
    result = raised(source)
    moved = [node for node in result.graph if node.op_type in (name, "Slice")]
    assert moved
    assert not any({"axes", "starts", "ends"} & set(node.attributes) for node in moved)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = np.random.default_rng(0).standard_normal((2, 3, 4), np.float32)
    before, after = (
        onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})[0]
        for proto in (source, ir.to_proto(result))
    )
    np.testing.assert_allclose(after, before / (1 + np.exp(-before)), rtol=1e-5, atol=1e-5)


ENLARGED = {
    "a factor of 7": (7, 'y = Upsample<mode = "linear", scales = [1.0, 1.0, 1.0, 2.7]>(x)'),
    "one of 9": (9, "y = Upsample(x, scales)"),
    "that is computed": (9, "one = Constant<value = float {1}>() s = Mul(given, one) "
                         "y = Upsample(x, s)"),
    "10": (10, 'y = Resize<mode = "nearest">(x, scales)'),
    "linear": (10, 'y = Resize<mode = "linear">(x, scales)'),
    "smaller": (10, 'y = Resize<mode = "linear">(x, halves)'),
    "whole": (9, 'y = Upsample<mode = "nearest">(x, whole)'),
}  # fmt: skip


@pytest.mark.parametrize("name", ENLARGED)
def test_images_are_enlarged_as_before_at_a_newer_opset(name: str) -> None:
    """Also with what is no number, and by factors that are not whole."""
    opset, body = ENLARGED[name]
    source = onnx.parser.parse_model(
        f'<ir_version: 4, opset_import: ["" : {opset}]> g (float[1, 2, 5, 7] x, float[4] given)'
        " => (float[a, b, c, d] y) <float[4] scales = {1, 1, 1.3, 2.7},"
        f"float[4] halves = {{1, 1, 0.5, 0.7}}, float[4] whole = {{1, 1, 3, 2}}> {{ {body} }}"
    )
    assert not ceiling(imported(source), target=24).obstacle
    result = raised(source)
    node = next(node for node in result.graph if node.op_type == "Resize")
    assert node.attributes.get_string("coordinate_transformation_mode") == "asymmetric"
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 7), np.float32)
    x[0, 0, 1, 2:4] = np.nan, np.inf
    feeds = {"x": x, "given": np.asarray([1, 1, 1.3, 2.7], np.float32)}
    before, after = (
        onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)[0]
        for proto in (source, ir.to_proto(result))
    )
    with np.errstate(over="ignore"):
        swish = before / (1 + np.exp(-before))
    np.testing.assert_allclose(after, swish, rtol=1e-5, atol=1e-6)


OBSTACLES = {
    "one that ONNX does not define": ("y = Resize(x, halves)", "Resize", 10),
    "one whose axis came to mean something else": ("y = Hardmax<axis = 1>(x)", "Hardmax", 12),
}
"""Nodes, the operator that stands in the way, and how far the opset can be raised nevertheless."""


@pytest.mark.parametrize("name", OBSTACLES)
def test_an_operator_without_a_counterpart_keeps_the_whole_model_where_it_is(name: str) -> None:
    body, operator, opset = OBSTACLES[name]
    text = (
        f'<ir_version: 4, opset_import: ["" : {min(opset, 10)}]> g (float[2, 3, 4] x)'
        " => (float[a, b, c] z) <float[3] halves = {1, 1, 0.5}>"
        f"{{ {body} s = Sigmoid(y) z = Mul(y, s) }}"
    )
    source = onnx.parser.parse_model(text)
    assert ceiling(imported(source)).opset == opset
    assert operator in ceiling(imported(source), target=24).obstacle
    with pytest.raises(UnwritableError, match=operator):
        raised(source)
    result = optimized(source, target_opset=24)
    assert result.model.opset_imports[""] == 10
    assert any(operator in message and "kept" in message for message in result.report.messages)


def test_functions_and_other_domains_survive() -> None:
    source = model(
        "t = mine.twice(x) s = Sigmoid(t) y = Mul(t, s)",
        imports=', "mine" : 1, "com.microsoft" : 1',
        functions='<domain: "mine", opset_import: ["" : 18]> twice (a) => (b) { b = Add(a, a) }',
    )
    result = optimized(source)
    assert operators(result.model) == ["twice", "Swish"]
    assert result.model.opset_imports == {"": 24, "mine": 1, "com.microsoft": 1}
    assert len(result.model.functions) == 1
    assert agree(source, result.model)


def test_a_function_with_an_operator_that_has_changed_stands_in_the_way() -> None:
    """Unless it is inlined. One of the runtime's domains is not: who knows which one is meant."""
    for domain, opset in (("mine", 24), ("com.ms.mine", 18)):
        source = model(
            f"s = Sigmoid(x) m = Mul(x, s) y = {domain}.same(m)",
            imports=f', "{domain}" : 1',
            functions=f'<domain: "{domain}", opset_import: ["" : 18]> '
            "same (a) => (b) { b = Identity(a) }",
        )
        assert "Identity in the function same" in ceiling(imported(source)).obstacle
        assert optimized(source).model.opset_imports[""] == opset


def test_the_needed_opset_is_that_of_the_newest_operator_that_runs() -> None:
    known = imported(model(ACTIVATION))
    assert known.graph.needed_opset <= 18
    assert apply_replacements(known.graph, ()).needed_opset <= 18
    (output,) = known.graph.outputs
    swish = apply("Swish", [output])[0]
    assert known.graph.replace({output: swish}).needed_opset == 24


def test_what_is_computed_from_shapes_and_known_is_written_as_a_number() -> None:
    """Also where nothing at the new opset computes it in the way of the old one."""
    source = onnx.parser.parse_model(
        """<ir_version: 4, opset_import: ["" : 9]> g (float[N, 3, 4] x) => (float[N, 3, 4] y)
        { n = Shape(x) k = Slice<starts = [2], ends = [3]>(n) i = Squeeze<axes = [0]>(k)
        f = Cast<to = 1>(i) y = Mul(x, f) }"""
    )
    assert not ceiling(imported(source)).obstacle
    result = raised(source)
    assert not {"Shape", "Slice", "Squeeze"} & {node.op_type for node in result.graph}
    x = np.ones((2, 3, 4), np.float32)
    (after,) = onnxruntime.InferenceSession(ir.to_proto(result).SerializeToString()).run(
        None, {"x": x}
    )
    np.testing.assert_allclose(after, 4 / (1 + np.exp(-4.0)), rtol=1e-5)
