"""Activations, reductions, softmax and normalisations: rules about them, and their ONNX forms."""

import re

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from longer import some
from onnx import helper
from places import CORPUS

from xflow.core.composite import Composite
from xflow.core.evaluation import run
from xflow.core.graph import Graph
from xflow.core.node import Value
from xflow.core.registry import Array, Operator
from xflow.core.size import symbol
from xflow.core.spec import Element, ProductOver, call, evaluate, product_over
from xflow.generator.generalization.definitions import definitional_rules
from xflow.onnx.exporter import export_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.ops import operator
from xflow.rewriting.match import find_matches
from xflow.rewriting.rewrite import rewrite
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.verifier import prove as prover
from xflow.verifier.prove import Proved, Refuted, Unknown, prove
from xflow.verifier.refutation.refute import Survived, search_counterexample

GOOD = parse_rules((CORPUS / "activations.rules").read_text(), "activations.rules")
BAD = parse_rules((CORPUS / "bad_activations.rules").read_text(), "bad_activations.rules")

PENDING = frozenset({"half-swish-by-tanh"})
"""True rules that the prover does not show yet."""


def names(rule: Rule) -> str:
    return rule.name


def one(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


# Rules


@pytest.mark.parametrize("rule", some([r for r in GOOD if r.name not in PENDING], 2), ids=names)
def test_a_true_rule_about_activations_is_proved(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)


@pytest.mark.parametrize("rule", [r for r in GOOD if r.name in PENDING], ids=names)
def test_a_true_rule_that_is_beyond_the_prover_has_no_counterexample(rule: Rule) -> None:
    assert isinstance(search_counterexample(rule, seed=1), Survived)
    assert not isinstance(prove(rule, both_ways=False), Refuted)


def test_the_corpora_are_large_and_name_each_rule_once() -> None:
    assert len({rule.name for rule in GOOD}) == len(GOOD) >= 100
    assert len({rule.name for rule in BAD}) == len(BAD) >= 60


@pytest.mark.parametrize("rule", BAD, ids=names)
def test_a_wrong_rule_about_activations_is_refuted(rule: Rule) -> None:
    verdict = prove(rule, infer=False, both_ways=False)
    assert isinstance(verdict, Refuted), str(verdict)


@pytest.mark.parametrize("rule", BAD, ids=names)
def test_a_wrong_rule_about_activations_is_not_proved_even_without_evaluation(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prover, "search_counterexample", lambda *_, **__: Survived(10**6))
    assert isinstance(prove(rule, infer=False, both_ways=False), Unknown)


# Definedness


@pytest.mark.parametrize(
    ("inputs", "left", "right"),
    [
        ("x[...]", "x", "Mul(Pow(x, 0.5), Pow(x, 0.5))"),
        ("x[...]", "Add(1, Mul(0, x))", "Pow(x, 0)"),
        ("x[...]", "Div(x, x)", "Mul(x, Pow(x, -1))"),
        ("x[...] y[...]", "Sub(x, x)", "Sub(Pow(x, y), Pow(x, y))"),
        ("x[...]", "Clip(x, min=0, max=0)", "HardSigmoid(Log(x), alpha=0, beta=0)"),
        ("x[...]", "Relu(x)", "LeakyRelu(x, alpha=0)"),
        ("x[...]", "Relu(x)", "Add(Relu(x), LeakyRelu(Mul(0, Log(x)), alpha=0))"),
        ("x[n, 3]", "Sub(x, x)", "Mul(0, ReduceProd(Log(x), axes=[1]))"),
    ],
)
def test_what_the_right_side_needs_is_not_forgotten(inputs: str, left: str, right: str) -> None:
    """Proved where nothing is needed that the left side does not need, and only there."""
    verdict = prove(
        one(f"rule r\n  in {inputs}\n  from {left}\n  to {right}\n"), infer=False, both_ways=False
    )
    needed = right in ("Pow(x, 0)", "Mul(x, Pow(x, -1))")
    assert isinstance(verdict, Proved) == needed, str(verdict)


def test_powers_of_a_positive_base_are_defined_for_any_exponent() -> None:
    text = "rule r\n  in x[...] y[...]\n  from Sub(Exp(x), Exp(x))\n"
    text += "  to Sub(Pow(Exp(x), y), Pow(Exp(x), y))\n"
    assert isinstance(prove(one(text), both_ways=False), Proved)


def test_a_long_or_symbolic_product_is_not_unrolled() -> None:
    for extent in ("n", "400"):
        rule = one(
            f"rule r\n  in x[{extent}] y[{extent}]\n  from ReduceProd(Mul(x, y))\n"
            "  to Mul(ReduceProd(x), ReduceProd(y))\n"
        )
        assert isinstance(prove(rule, both_ways=False), Unknown)


def test_a_product_over_nothing_is_1() -> None:
    product = product_over(symbol("n"), lambda k: Element("x", (k,)))
    assert isinstance(product, ProductOver)
    x = np.asarray([2, 3, 5], dtype=object)
    assert [evaluate(product, {"x": x}, {"n": n}) for n in range(4)] == [1, 2, 6, 30]


def test_a_power_outside_of_its_domain_has_no_value() -> None:
    x = np.asarray([0, -2], dtype=object)
    assert evaluate(call("power", Element("x", (0,)), 0), {"x": x}, {}) == 1
    with pytest.raises(ZeroDivisionError):
        evaluate(call("power", Element("x", (0,)), -1), {"x": x}, {})


# Definitions


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("LeakyRelu", {"x[...]"}),
        ("Clip", {"x[...]"}),
        ("Sum", {"x[...]", "x[...] a[...]", "x[...] a[...] b[...]"}),
        ("Gelu", {"x[...]"}),
        ("Softmax", {"x[*B, C]", "x[N, C, *S]"}),
        ("LayerNormalization", {"x[*B, C] a[C]", "x[*B, C] a[C] b[C]"}),
        ("ReduceL2", {"x[*B, C]", "x[N, C, *S]"}),
        ("InstanceNormalization", {"x[N, C, *S] a[C] b[C]"}),
    ],
)
def test_a_definition_is_stated_for_any_number_of_axes(name: str, inputs: set[str]) -> None:
    op = operator(name)
    assert isinstance(op, Composite)
    rules = list(definitional_rules(0, [op]))
    assert inputs <= {rule.inputs for rule in rules}
    assert all(rule.lhs.startswith(f"{name}(") for rule in rules)
    assert not any(f"{name}(" in rule.rhs for rule in rules)


def test_each_equation_of_an_example_has_its_definition() -> None:
    rules = list(definitional_rules(0, [operator("Einsum")]))
    stated = {text for rule in rules for text in re.findall("equation='(.*)'", rule.lhs)}
    assert len(stated) == len(rules)
    # Images and heads, with rows first and with heads first; what merges axes is a family's.
    assert {"abc,abd->acd", "abcd,aecd->acbe", "abcd,adbe->acbe"} <= stated
    assert "abc,cde->abde" not in stated


# Accuracy of the fast readings


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Softmax", [1000.0, 1000.0], [0.5, 0.5]),
        ("Softmax", [-1000.0, 0.0], [0.0, 1.0]),
        ("LogSoftmax", [-1000.0, 0.0], [-1000.0, 0.0]),
        ("ReduceLogSumExp", [1000.0, 1000.0], [1000 + np.log(2)]),
        ("ReduceL2", [3e200, 4e200], [5e200]),
        ("Softplus", [1000.0, -1000.0], [1000.0, 0.0]),
        ("Swish", [1000.0, -1000.0], [1000.0, 0.0]),
        ("Mish", [1000.0, -1000.0], [1000.0, 0.0]),
        ("Elu", [1000.0, -1e-20], [1000.0, -1e-20]),
        ("Gelu", [1000.0, -1000.0], [1000.0, 0.0]),
    ],
)
def test_numpy_readings_are_accurate_at_extremes(
    name: str, value: list[float], expected: list[float]
) -> None:
    op = operator(name)
    attributes = {
        key: spec.default_for([(2,)]) for key, spec in op.attributes.items() if spec is not None
    }
    with np.errstate(all="raise", under="ignore"):
        (found,) = op.numpy(
            [np.asarray(value)], {k: v for k, v in attributes.items() if v is not None}
        )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# Models


def single(
    op_type: str,
    shapes: list[list[int]],
    opset: int,
    kind: int = onnx.TensorProto.FLOAT,
    outputs: int = 1,
    **attributes: object,
) -> Imported:
    """A model of one node over inputs ``x0, x1, ...``, imported."""
    inputs = [f"x{k}" for k in range(len(shapes))]
    results = [f"y{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, inputs, results, **attributes)],
        "g",
        [helper.make_tensor_value_info(x, kind, s) for x, s in zip(inputs, shapes, strict=True)],
        [helper.make_tensor_value_info("y0", kind, shapes[0])],
    )
    opsets = [helper.make_opsetid("", opset)]
    return import_model(ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8)))


def root(imported: Imported) -> Value:
    (output,) = imported.graph.outputs
    return output


def applied(rule: Rule, imported: Imported) -> Graph:
    (match, *_) = find_matches(rule.instance(0), imported.graph, imported.constants)
    after = rewrite(imported.graph, rule.instance(0), match)
    assert isinstance(after, Graph), after
    return after


@pytest.mark.parametrize("opset", [7, 10, 11, 13, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bounds", ["min=-1/4, max=3/4", "min=-1/4", "max=3/4"])
def test_a_new_clip_has_bounds_of_its_own_element_type(
    opset: int, dtype: type, bounds: str
) -> None:
    if opset < 12 and dtype is np.float64:
        pytest.skip("the runtime clips no doubles then")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    imported = single("Identity", [[2, 3]], opset, kind)
    rule = one(f"rule r\n  in x[...]\n  from Identity(x)\n  to Clip(x, {bounds})\n")
    model = export_model(imported, applied(rule, imported))
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    (clip,) = proto.graph.node
    assert clip.op_type == "Clip"
    assert len(clip.attribute) == (bounds.count("=") if opset < 11 else 0)
    x: Array = np.linspace(-1, 1, 6).astype(dtype).reshape(2, 3)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    low, high = -0.25 if "min" in bounds else None, 0.75 if "max" in bounds else None
    (found,) = session.run(None, {"x0": x})
    np.testing.assert_array_equal(found, np.clip(x, low, high))
    again = import_model(ir.from_proto(proto))
    assert str(root(again)).startswith("Clip(")


def test_a_clip_by_computed_bounds_is_left_alone() -> None:
    assert not isinstance(root(single("Clip", [[2, 3], []], 13)).node.op, Operator)


def test_further_outputs_of_a_layer_normalisation_must_be_unused() -> None:
    shapes = [[2, 3], [3], [3]]
    assert isinstance(root(single("LayerNormalization", shapes, 17, outputs=3)).node.op, Operator)


def test_a_softmax_over_joined_axes_is_left_alone() -> None:
    assert not isinstance(root(single("Softmax", [[2, 3, 4]], 11)).node.op, Operator)
    assert isinstance(root(single("Softmax", [[2, 3, 4]], 13)).node.op, Operator)


@pytest.mark.parametrize(("opset", "written"), [(18, True), (20, True), (21, False), (24, False)])
def test_group_normalization_is_scaled_by_group_before_opset_21_only(
    opset: int, written: bool
) -> None:
    op = operator("GroupNormalization")
    attributes = {"num_groups": 2, "epsilon": op.attributes["epsilon"].default, "by_group": 1}
    assert (op.to_onnx(attributes, [(2, 4, 3), (2,), (2,)], opset) is not None) == written
    attributes["by_group"] = 0
    assert (op.to_onnx(attributes, [(2, 4, 3), (4,), (4,)], opset) is None) == written


@pytest.mark.parametrize(
    ("opset", "shape", "axis", "written"),
    [
        (11, (2, 3), 1, True),
        (11, (2, 3, 1), 1, True),
        (11, (2, 3, 4), 1, False),
        (11, (symbol("n"), 3), 0, False),
        (13, (2, 3, 4), 1, True),
    ],
)
def test_softmax_is_written_where_it_means_one_axis(
    opset: int, shape: tuple[int, ...], axis: int, written: bool
) -> None:
    assert (operator("Softmax").to_onnx({"axis": axis}, [shape], opset) is not None) == written


def test_a_decomposed_activation_of_a_model_is_found_by_its_rule() -> None:
    rule = next(rule for rule in GOOD if rule.name == "hard-swish-by-hard-sigmoid")
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) {
        h = HardSigmoid<alpha=0.1666666716337204, beta=0.5>(x) y = Mul(x, h) }"""
    imported = import_model(ir.from_proto(onnx.parser.parse_model(text)))
    after = applied(rule, imported)
    assert str(after) == "HardSwish(x)"
    x = np.linspace(-4, 4, 8).reshape(2, 4)
    (a,), (b,) = run(imported.graph.outputs, {"x": x}), run(after.outputs, {"x": x})
    np.testing.assert_allclose(a, b, atol=1e-6)


GELU = {
    "erf": """<ir_version: 8, opset_import: ["" : 20]> g (float[N, 4] x) => (float[N, 4] y)
        <float half = {0.5}, float one = {1}, float root = {1.4142135381698608}> {
        a = Div(x, root) e = Erf(a) s = Add(e, one) m = Mul(x, s) y = Mul(m, half) }""",
    "tanh": """<ir_version: 8, opset_import: ["" : 20]> g (float[N, 4] x) => (float[N, 4] y)
        <float half = {0.5}, float one = {1}, float c = {0.044714998453855515},
         float root = {0.7978845834732056}, float three = {3}> {
        p = Pow(x, three) q = Mul(p, c) r = Add(x, q) a = Mul(r, root) t = Tanh(a)
        s = Add(t, one) h = Mul(x, half) y = Mul(h, s) }""",
}
"""As exporters write it, with roots rounded to 32 bits."""


@pytest.mark.parametrize(("form", "name"), [("erf", "gelu-late-half"), ("tanh", "gelu-by-tanh")])
def test_a_rounded_constant_is_found_by_what_it_is(form: str, name: str) -> None:
    rule = next(rule for rule in GOOD if rule.name == name)
    imported = import_model(ir.from_proto(onnx.parser.parse_model(GELU[form])))
    after = applied(rule, imported)
    assert str(after).startswith("Gelu(x")
    other = GELU[form].replace("root = {", "root = {1")
    imported = import_model(ir.from_proto(onnx.parser.parse_model(other)))
    assert not list(find_matches(rule.instance(0), imported.graph, imported.constants))
