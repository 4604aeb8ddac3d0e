"""Element types: Booleans, indices, and rules that are applied to integers only if they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from operator_cases import run_onnxruntime
from places import CORPUS

from xflow.core.constraint import at_least, equal, less, parse_constraint
from xflow.core.errors import RuleFileError, ShapeError
from xflow.core.fold import Folder
from xflow.core.graph import Graph, walk
from xflow.core.node import Opaque, TensorType, Value, apply, leaf
from xflow.core.registry import Array, Operator
from xflow.core.size import Expr, Size, lookup, substitute, symbol, symbols
from xflow.core.size import evaluate as evaluate_size
from xflow.core.size_text import parse_size
from xflow.core.sorts import AND_INTEGERS, ANY_TYPE, BOOL, INT, REAL, REALS_ONLY
from xflow.onnx.exporter import export_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.region import region_model
from xflow.onnx.schema import accepts
from xflow.onnx.writer import UnwritableError
from xflow.ops.cast import keeps_values
from xflow.rewriting.match import NoMatch, find_matches
from xflow.rewriting.rewrite import rewrite
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.rewriting.unify import instantiate
from xflow.verifier import database
from xflow.verifier import prove as prover
from xflow.verifier.algebra.arithmetic import Arithmetic, Range
from xflow.verifier.proof.types import claims_too_much, types_of
from xflow.verifier.prove import Proved, Refuted, Unknown, prove
from xflow.verifier.refutation.refute import Survived

GOOD = parse_rules((CORPUS / "typed-good.rules").read_text(), "typed-good.rules")
BAD = parse_rules((CORPUS / "typed-bad.rules").read_text(), "typed-bad.rules")


def one(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


def names(rule: Rule) -> str:
    return rule.name


def equation(inputs: str, lhs: str, rhs: str, types: str | None = None) -> Rule:
    return Rule("example", inputs, lhs, rhs, types=types)


# Proofs


@pytest.mark.parametrize("rule", GOOD, ids=names)
def test_a_true_rule_is_proved_for_the_types_that_it_says(rule: Rule) -> None:
    verdict = prove(rule, both_ways=False)
    assert isinstance(verdict, Proved), str(verdict)
    assert verdict.types == rule.types


@pytest.mark.parametrize("rule", BAD, ids=names)
def test_a_wrong_rule_is_not_proved_even_without_evaluation(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prover, "search_counterexample", lambda *_, **__: Survived(10**6))
    assert isinstance(prove(rule, both_ways=False), Unknown)


@pytest.mark.parametrize("rule", [r for r in BAD if r.name != "integers-halved"], ids=names)
def test_a_wrong_rule_is_refuted(rule: Rule) -> None:
    assert isinstance(prove(rule, both_ways=False, infer=False), Refuted)


def test_a_rule_that_wraps_around_is_not_proved_for_inputs_of_integers() -> None:
    (rule,) = (rule for rule in BAD if rule.name == "integers-halved")
    assert "wrap around" in str(prove(rule))
    reals = replace(rule, inputs=rule.inputs.replace(":int", ""))
    assert isinstance(prove(reals), Proved)


def test_what_a_branch_needs_is_not_taken_for_granted_outside_of_it() -> None:
    inside = equation("c[...]:bool x[...]", "Where(c, Div(x, x), 2)", "Where(c, 1, 2)")
    verdict = prove(inside)
    assert isinstance(verdict, Proved)
    assert verdict.reverse is None
    outside = equation("c[...]:bool x[...]", "Where(c, Div(x, x), 1)", "Div(x, x)")
    assert isinstance(prove(outside), Refuted)


def test_indices_that_only_the_right_side_reads_may_be_out_of_range() -> None:
    rule = equation(
        "x[n, m] i[k]:int j[l]:int", "Gather(x, Gather(i, j))", "Gather(Gather(x, i), j)"
    )
    assert not isinstance(prove(rule), Proved)
    other = replace(rule, lhs=rule.rhs, rhs=rule.lhs)
    assert isinstance(prove(other), Proved)


# What rules say


@pytest.mark.parametrize("rule", GOOD, ids=names)
def test_a_typed_rule_is_read_back_as_it_is_printed(rule: Rule) -> None:
    assert str(one(str(rule))) == str(rule)


@pytest.mark.parametrize(
    ("inputs", "lhs", "rhs"),
    [
        ("c[n]:bool", "Add(c, c)", "c"),
        ("x[n] y[n]", "Where(x, y, y)", "y"),
        ("x[n] y[n]", "Gather(x, y)", "Gather(x, y)"),
        ("c[n]:bool x[n]", "c", "x"),
        ("i[n]:int", 'Cast(i, to="REAL")', 'Cast(i, to="REAL")'),
        ("x[n]:float", "x", "x"),
        ("x[m, i[0]] i[n]:int", "x", "x"),
    ],
)
def test_a_rule_whose_types_make_no_sense_is_refused(inputs: str, lhs: str, rhs: str) -> None:
    with pytest.raises(RuleFileError):
        one(f"rule r\n  in {inputs}\n  from {lhs}\n  to {rhs}\n")


def test_a_number_has_the_type_that_its_place_asks_for() -> None:
    rule = equation("x[n] i[k]:int c[n]:bool", "Gather(x, 0)", "Gather(x, Place(start=0))")
    (value,) = rule.instance(0).lhs
    assert [source.type.dtype for source in value.node.inputs] == [REAL, INT]
    mixed = equation("i[k]:int", "Where(Equal(i, 3), 1, i)", "Where(Equal(i, 3), 1, i)")
    (value,) = mixed.instance(0).lhs
    assert [source.type.dtype for source in value.node.inputs] == [BOOL, INT, INT]


def test_a_rule_that_claims_too_many_types_is_found() -> None:
    mean = equation("x[n, m]", "Add(x, x)", "Mul(x, 2)", AND_INTEGERS)
    assert not claims_too_much(mean)
    assert database.verify_rule(mean) is None
    halves = equation("x[n, m]", "Mul(Add(x, x), 0.5)", "x", AND_INTEGERS)
    assert claims_too_much(halves)
    failure = database.verify_rule(halves)
    assert failure is not None
    assert "types" in str(failure)
    assert not claims_too_much(replace(halves, types=None))


@pytest.mark.parametrize(
    ("inputs", "lhs", "rhs", "types"),
    [
        ("x[n, m]", "Transpose(Transpose(x))", "x", ANY_TYPE),
        (
            "x[n] y[m]",
            "Slice(Concat(x, y, axis=0), starts=[0], ends=[n], axes=[0], steps=[1])",
            "x",
            ANY_TYPE,
        ),
        ("x[n, m]", "Pad(Pad(x, pads=[1, 0, 0, 0]), pads=[1, 0, 0, 0])", "x", ANY_TYPE),
        ("x[...] y[...]", "Add(x, y)", "Add(y, x)", AND_INTEGERS),
        ("x[...] y[...]", "Max(x, y)", "Max(y, x)", AND_INTEGERS),
        ("x[...] y[...]", "Max(Add(x, 1), Add(y, 1))", "Add(Max(x, y), 1)", REALS_ONLY),
        ("x[...] y[...]", "Add(Max(x, y), Min(x, y))", "Add(x, y)", REALS_ONLY),
        ("x[...]", "Mul(x, 0.5)", "Div(x, 2)", REALS_ONLY),
        ("x[n, m]", "ReduceSum(x, axes=[0])", "ReduceSum(x, axes=[0])", AND_INTEGERS),
        ("x[n, m]", "ReduceMean(x, axes=[0])", "ReduceMean(x, axes=[0])", REALS_ONLY),
        ("x[...] y[...]", "Less(x, y)", "Greater(y, x)", AND_INTEGERS),
        ("x[...] y[...]", "Less(Neg(x), Neg(y))", "Less(y, x)", REALS_ONLY),
        ("x[...]", "Exp(x)", "Exp(x)", REALS_ONLY),
    ],
)
def test_the_types_follow_from_the_specifications(
    inputs: str, lhs: str, rhs: str, types: str
) -> None:
    assert types_of(equation(inputs, lhs, rhs)) == types


def test_a_condition_on_values_leaves_only_reals() -> None:
    rule = equation("x[n] s[n]", "Mul(x, s)", "Mul(s, x)")
    assert types_of(rule) == AND_INTEGERS
    assert types_of(replace(rule, where=("s > 0",))) == REALS_ONLY


SIZES = {**dict.fromkeys("nmlNCHWO", 3), **dict.fromkeys("kRS", 2), "p": 1}
EXTREMES = [-128, -127, -1, 0, 1, 2, 100, 127]


def draw_feeds(rule: Rule, dtype: str, rng: np.random.Generator) -> dict[str, Array]:
    """Small inputs of an element type with extreme values; indices that are in range."""
    feeds: dict[str, Array] = {}
    for value in rule.instance(0).inputs:
        shape = tuple(3 if n == symbol("any") else evaluate_size(n, SIZES) for n in value.shape)
        drawn = rng.choice(np.asarray(EXTREMES, np.int8), shape)
        if BOOL in (value.type.dtype, dtype if value.type.dtype == REAL else ""):
            drawn = drawn > 0
        elif value.type.dtype == INT:
            drawn = rng.integers(-2, 2, shape)
        feeds[str(value)] = np.asarray(drawn)
    return feeds


def outputs_on(side: Sequence[Value], feeds: Mapping[str, Array], dtype: str) -> list[Array]:
    """One side of a rule on arrays of an element type, computed in that type."""
    types = {REAL: dtype, BOOL: BOOL, INT: "INT64"}
    made: dict[Value, Value] = {}
    for node in walk(side):
        kind = types[node.types[0].dtype]
        if isinstance(node.op, Operator):
            sources = [made[source] for source in node.inputs]
            attributes = {
                name: instantiate(value, SIZES, {}, types)
                for name, value in node.attributes.items()
            }
            results = apply(node.op, sources, attributes, dtype=kind)  # type: ignore[arg-type]
        else:
            key = str(node.outputs[0])
            results = (leaf(key, TensorType(kind, feeds[key].shape), constant=True),)
        made.update(zip(node.outputs, results, strict=True))
    folder = Folder(lambda value: feeds[str(value)])
    arrays = [folder(made[value]) for value in side]
    return [array for array in arrays if array is not None]


def typed(types: str) -> list[Rule]:
    return [rule for rule in GOOD if rule.types == types and not rule.names.reals]


@pytest.mark.parametrize("rule", typed(AND_INTEGERS) + typed(ANY_TYPE), ids=names)
def test_what_is_said_to_hold_for_integers_holds_where_they_wrap_around(rule: Rule) -> None:
    check_on_type(rule, "INT8")


@pytest.mark.parametrize("rule", typed(ANY_TYPE), ids=names)
def test_what_is_said_to_hold_for_any_type_holds_for_booleans(rule: Rule) -> None:
    check_on_type(rule, BOOL)


def check_on_type(rule: Rule, dtype: str) -> None:
    instance = rule.instance(0)
    rng = np.random.default_rng(0)
    for _ in range(8):
        feeds = draw_feeds(rule, dtype, rng)
        try:
            left, right = (outputs_on(side, feeds, dtype) for side in (instance.lhs, instance.rhs))
        except ShapeError:
            pytest.skip("an operator does not take this type, so that the rule does not match")
        assert len(left) == len(right) == 1
        assert left[0].dtype == right[0].dtype
        assert np.array_equal(left[0], right[0])


@pytest.mark.parametrize("rule", [r for r in GOOD if r.name in ("less-shift", "less-scale")])
def test_what_holds_for_reals_alone_would_be_wrong_for_integers(rule: Rule) -> None:
    with pytest.raises(AssertionError):
        check_on_type(rule, "INT8")


# Models


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, list[int]]],
    output: int,
    initializers: Mapping[str, Array] | None = None,
    opset: int = 20,
) -> onnx.ModelProto:
    """A model of some nodes; the last one's output is that of the model."""
    name = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes,
        "typed",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, output, None)],
        [numpy_helper.from_array(array, n) for n, array in (initializers or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8), strict_mode=True
    )


def imported(model: onnx.ModelProto) -> Imported:
    return import_model(ir.from_proto(model))


def operators_in(graph: Graph) -> list[str]:
    return sorted(node.op.name for node in graph.nodes if isinstance(node.op, Operator))


def rewritten(model: onnx.ModelProto, rule: Rule) -> tuple[onnx.ModelProto, Graph] | None:
    """The model after one application of a rule; None where it does not apply."""
    source = imported(model)
    instance = rule.instance(0)
    for match in find_matches(instance, source.graph, source.constants):
        graph = rewrite(source.graph, instance, match)
        if not isinstance(graph, NoMatch):
            return ir.to_proto(export_model(source, graph)), graph
    return None


def same_results(before: onnx.ModelProto, after: onnx.ModelProto, feeds: Sequence[Array]) -> bool:
    onnx.checker.check_model(after, full_check=True)
    pairs = zip(run_onnxruntime(before, feeds), run_onnxruntime(after, feeds), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


FACTOR = one(
    "rule factor\n  in x[n, m] y[n, m] z[n, m]\n  from Add(Mul(x, z), Mul(y, z))\n"
    "  to Mul(Add(x, y), z)\n  types reals, integers\n"
)


def factored(kind: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Mul", ["x", "z"], ["a"]),
        helper.make_node("Mul", ["y", "z"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["o"]),
    ]
    return model_of(nodes, {name: (kind, [2, 3]) for name in "xyz"}, kind)


def test_a_rule_is_applied_to_integers_if_it_holds_for_them() -> None:
    model = factored(TensorProto.INT32)
    done = rewritten(model, FACTOR)
    assert done is not None
    assert operators_in(done[1]) == ["Add", "Mul"]
    rng = np.random.default_rng(0)
    info = np.iinfo(np.int32)
    feeds = [rng.integers(info.min, info.max, (2, 3)).astype(np.int32) for _ in "xyz"]
    assert same_results(model, done[0], feeds)


@pytest.mark.parametrize("types", [None, REALS_ONLY])
def test_a_rule_over_the_reals_is_not_applied_to_integers(types: str | None) -> None:
    rule = replace(FACTOR, types=types)
    assert rewritten(factored(TensorProto.INT32), rule) is None
    assert rewritten(factored(TensorProto.INT64), rule) is None
    assert rewritten(factored(TensorProto.FLOAT), rule) is not None
    assert rewritten(factored(TensorProto.DOUBLE), rule) is not None


def test_a_rule_for_any_type_is_applied_to_booleans() -> None:
    rule = equation("x[n, m]", "Transpose(Transpose(x))", "x", ANY_TYPE)
    nodes = [
        helper.make_node("Not", ["x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"]),
        helper.make_node("Not", ["c"], ["o"]),
    ]
    model = model_of(nodes, {"x": (TensorProto.BOOL, [2, 3])}, TensorProto.BOOL)
    done = rewritten(model, rule)
    assert done is not None
    assert operators_in(done[1]) == ["Not", "Not"]
    assert same_results(model, done[0], [np.array([[True, False, True], [False, False, True]])])
    assert rewritten(model, replace(rule, types=AND_INTEGERS)) is None


def test_a_mask_by_choice_is_one_by_multiplication() -> None:
    rule = equation("c[n, m]:bool x[n, m]", "Where(c, x, 0)", 'Mul(Cast(c, to="REAL"), x)')
    for kind, dtype in ((TensorProto.FLOAT, np.float32), (TensorProto.DOUBLE, np.float64)):
        nodes = [
            helper.make_node("Greater", ["x", "y"], ["c"]),
            helper.make_node("Where", ["c", "x", "zero"], ["o"]),
        ]
        inputs = {name: (kind, [2, 2]) for name in "xy"}
        model = model_of(nodes, inputs, kind, {"zero": np.asarray(0, dtype)})
        done = rewritten(model, rule)
        assert done is not None
        assert operators_in(done[1]) == ["Cast", "Greater", "Mul"]
        feeds = [np.array([[1, -2], [3, 4]], dtype), np.array([[0, 1], [5, 3]], dtype)]
        assert same_results(model, done[0], feeds)


def test_a_gather_at_a_constant_place_is_a_slice() -> None:
    rule = one(
        "rule g\n  in x[n, m]\n  param p\n  from Gather(x, Place(start=p), axis=1)\n"
        "  to Squeeze(Slice(x, starts=[p], ends=[p + 1], axes=[1], steps=[1]), axes=[1])\n"
        "  where p >= 0, m >= p + 1\n  types any\n"
    )
    nodes = [helper.make_node("Gather", ["x", "i"], ["o"], axis=1)]
    x = {"x": (TensorProto.FLOAT, [2, 3])}
    for dtype in (np.int64, np.int32):
        model = model_of(nodes, x, TensorProto.FLOAT, {"i": np.asarray(2, dtype)})
        done = rewritten(model, rule)
        assert done is not None
        assert operators_in(done[1]) == ["Slice", "Squeeze"]
        assert same_results(model, done[0], [np.arange(6, dtype=np.float32).reshape(2, 3)])
    for place in (3, -1):
        model = model_of(nodes, x, TensorProto.FLOAT, {"i": np.asarray(place)})
        assert rewritten(model, rule) is None


def test_indices_may_be_of_either_index_type() -> None:
    rule = equation(
        "x[n, m] i[k]:int j[l]:int", "Gather(Gather(x, i), j)", "Gather(x, Gather(i, j))"
    )
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["a"]),
        helper.make_node("Gather", ["a", "j"], ["o"]),
    ]
    inputs = {
        "x": (TensorProto.FLOAT, [4, 3]),
        "i": (TensorProto.INT64, [2]),
        "j": (TensorProto.INT32, [5]),
    }
    model = model_of(nodes, inputs, TensorProto.FLOAT)
    done = rewritten(model, rule)
    assert done is not None
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    feeds = [x, np.array([3, -3]), np.array([0, 1, -1, -2, 0], np.int32)]
    assert same_results(model, done[0], feeds)


def test_what_onnx_has_not_for_a_type_is_not_written() -> None:
    x = leaf("x", TensorType("INT32", (2, 3)))
    (largest,) = apply("Max", [x, x])
    with pytest.raises(UnwritableError):
        region_model(Graph((largest,)), lambda _: None, opset=8)
    assert region_model(Graph((largest,)), lambda _: None, opset=13)
    assert accepts("Max", "", 12, {0: "INT32", 1: "INT32"}, ["INT32"])
    assert not accepts("Max", "", 8, {0: "INT32", 1: "INT32"}, ["INT32"])
    assert not accepts("Add", "", 20, {0: BOOL, 1: BOOL}, [BOOL])
    assert accepts("Gather", "", 13, {0: "FLOAT", 1: "INT32"}, ["FLOAT"])
    assert not accepts("Gather", "", 13, {0: "FLOAT", 1: "FLOAT"}, ["FLOAT"])


def test_shape_arithmetic_and_casts_that_round_stay_opaque() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "i"], ["n"]),
        helper.make_node("Mul", ["n", "n"], ["square"]),
        helper.make_node("Cast", ["k"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["a"]),
        helper.make_node("Expand", ["a", "square"], ["o"]),
    ]
    inputs = {"x": (TensorProto.FLOAT, [2, 3]), "k": (TensorProto.INT64, [2, 3])}
    proto = model_of(nodes, inputs, TensorProto.FLOAT, {"i": np.asarray([1])})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    source = imported(proto)
    assert "Gather" not in operators_in(source.graph)
    assert "Cast" not in operators_in(source.graph)
    assert sum(isinstance(node.op, Opaque) for node in source.graph.nodes) >= 1


def test_constants_of_integers_are_folded_as_the_runtime_computes_them() -> None:
    big = np.asarray([[2**62, 2**62 + 1], [-(2**63), 3]], np.int64)
    x = leaf("x", TensorType("INT64", (2, 2)), constant=True)
    (twice,) = apply("Mul", [x, apply("Scalar", (), {"value": Fraction(2)}, dtype="INT64")[0]])
    (sum_of,) = apply("Add", [twice, x])
    found = Folder(lambda _: big)(sum_of)
    assert found is not None
    with np.errstate(over="ignore"):
        assert np.array_equal(found, big * np.int64(3))


def test_only_exact_numbers_are_constants_of_integers() -> None:
    rule = equation("x[n, m]", "Add(Mul(x, 300), x)", "Mul(x, 301)", AND_INTEGERS)
    nodes = [
        helper.make_node("Mul", ["x", "c"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["o"]),
    ]
    x8 = {"x": (TensorProto.INT8, [2, 3])}
    wrapped = np.asarray(300 - 256, np.int8)
    model = model_of(nodes, x8, TensorProto.INT8, {"c": wrapped})
    assert rewritten(model, rule) is None
    x32 = {"x": (TensorProto.INT32, [2, 3])}
    model = model_of(nodes, x32, TensorProto.INT32, {"c": np.asarray(300, np.int32)})
    assert rewritten(model, rule) is not None


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        (BOOL, "FLOAT", True),
        (BOOL, REAL, True),
        ("INT32", "INT64", True),
        ("INT64", "INT32", False),
        ("UINT8", "INT16", True),
        ("UINT8", "INT8", False),
        ("INT8", "UINT8", False),
        ("INT32", "FLOAT", False),
        ("INT32", "DOUBLE", True),
        ("INT64", "DOUBLE", False),
        ("FLOAT16", "FLOAT", True),
        ("FLOAT", "FLOAT16", False),
        ("FLOAT16", "BFLOAT16", False),
        (REAL, REAL, True),
        (INT, INT, False),
        (INT, REAL, False),
        ("FLOAT", "FLOAT", True),
    ],
)
def test_which_casts_keep_the_value(source: str, target: str, kept: bool) -> None:
    assert keeps_values(source, target) is kept


# Lookups


INDEX = st.one_of(
    st.integers(0, 2),
    st.sampled_from(symbols("a b")),
    st.builds(lambda k: symbol("a") + k, st.integers(0, 1)),
)
LOOKUPS = st.lists(INDEX, min_size=1, max_size=2).map(lambda index: lookup(f"t{len(index)}", index))


@settings(deadline=None)
@given(LOOKUPS, LOOKUPS, st.integers(-3, 3), st.integers(0, 1), st.integers(0, 2))
def test_lookups_are_integers_like_any_other(x: Expr, y: Expr, factor: int, a: int, b: int) -> None:
    tensors = {"t1": np.array([5, -3, 7, 2]), "t2": np.arange(16).reshape(4, 4) - 7}
    values = {"a": a, "b": b}

    def value(size: Size) -> int:
        return evaluate_size(size, values, tensors)

    assert value(x + y * factor) == value(x) + value(y) * factor
    assert value(x * y) == value(x) * value(y)
    nested = lookup("t1", [(x * x) % 4])
    assert value(nested) == tensors["t1"][value(x) ** 2 % 4]
    known = substitute(nested, values)
    assert evaluate_size(known, {}, tensors) == value(nested)
    for size in (x, nested, x + 2 * y, nested - x):
        assert parse_size(str(size)) == size
        assert str(parse_constraint(str(at_least(size, 1)))) == str(at_least(size, 1))


def test_a_lookup_out_of_bounds_is_an_error() -> None:
    with pytest.raises(IndexError):
        evaluate_size(lookup("t", [4]), {}, {"t": np.arange(4)})


def test_equal_indices_look_up_equal_elements() -> None:
    i, j, n = symbols("i j n")
    arithmetic = Arithmetic()
    same, other = lookup("t", [i]), lookup("t", [j])
    assert arithmetic.implied(equal(same, other), (equal(i, j),))
    assert not arithmetic.implied(equal(same, other))
    assert not arithmetic.implied(equal(same, lookup("u", [i])))
    nested = equal(lookup("u", [same]), lookup("u", [other]))
    assert arithmetic.implied(nested, (equal(i, j),))
    arithmetic.declare_range("t", Range((n,), -n, n))
    inside = (at_least(i, 0), less(i, n))
    assert arithmetic.implied(less(same, n), inside)
    assert arithmetic.implied(at_least(same, -n), inside)
    assert not arithmetic.implied(less(same, n), (at_least(i, 0),))
    assert not arithmetic.implied(at_least(same, 0), inside)
