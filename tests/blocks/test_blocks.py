"""Blocks of a model are known by what they compute, and the report says what became of each."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper
from rich.console import Console
from spellings import COMPOSITES, rules_over

import xflow
from xflow.blocks.find import (
    FoundBlock,
    find_blocks,
    find_spelled_out,
    may_be_operators,
)
from xflow.blocks.functions import FURTHEST
from xflow.cost.target import TargetModel
from xflow.onnx.importer import import_model
from xflow.ops.functions import Tanh
from xflow.pipeline import attempts
from xflow.pipeline.explanation import explain_report
from xflow.report.block_account import TAKEN_APART
from xflow.report.report import Block, BlockForm
from xflow.report.sentences import block_lines
from xflow.report.tables import render

EVERY = [(name, each) for name, composite in COMPOSITES.items() for each in composite.spellings]


def blocks_of(model: onnx.ModelProto) -> list[FoundBlock]:
    imported = import_model(ir.from_proto(model))
    passed = {key: node.op_type for key, node in imported.opaque_nodes.items()}
    return find_blocks(imported.graph, imported.constants, passed)


def graph(body: str, inputs: str = "float[2, 64, 64] x", outputs: str = "y") -> onnx.ModelProto:
    """A model of opset 20 over some inputs, with a few constants."""
    typed = ", ".join(f"float[n{k}, m{k}, l{k}] {name}" for k, name in enumerate(outputs.split()))
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]> g ({inputs}) => ({typed})
        <int64[1] last = {{2}}, int64[1] rows = {{1}}, float eps = {{0.00001}},
         float half = {{0.5}}, float one = {{1.0}}, float two = {{2.0}},
         float over = {{0.70710678}}, float part = {{0.125}}> {{ {body} }}"""
    )
    for node in model.graph.node:
        node.name = node.output[0]
    return model


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("name", "spelling"), EVERY)
def test_a_composite_is_found_however_it_is_spelled(
    name: str, spelling: str, dynamic: bool
) -> None:
    composite = COMPOSITES[name]
    (found,) = blocks_of(composite.model(spelling, dynamic=dynamic))
    assert (found.kind, found.name) == (composite.kind, composite.operator)


@pytest.mark.parametrize(
    "body",
    {
        "a line": "a = Mul(x, two) y = Add(a, one)",
        "a loss: squares summed, nothing is divided": """q = Mul(x, x) t = ReduceSum(q, last)
            r = Sqrt(t) y = Add(x, r)""",
        "divided by a root of another tensor's squares": """e = Exp(x) q = Mul(e, e)
            t = ReduceMean(q, last) r = Sqrt(t) y = Div(x, r)""",
        "exponentials divided by the sum of others": """e = Exp(x) h = Mul(x, half) f = Exp(h)
            t = ReduceSum(f, last) y = Div(e, t)""",
    }.values(),
)
def test_what_only_resembles_a_block_is_none(body: str) -> None:
    kinds = {found.kind for found in blocks_of(graph(body))}
    assert not kinds & {"normalization", "softmax", "attention", "activation"}


def test_a_softmax_without_a_product_behind_is_no_attention() -> None:
    model = graph("t = Transpose<perm = [0, 2, 1]>(x) s = MatMul(x, t) p = Softmax(s) y = Exp(p)")
    assert [found.kind for found in blocks_of(model)] == ["softmax"]


def test_a_gate_without_an_operator_is_found_and_has_no_name() -> None:
    (found,) = blocks_of(graph("h = Mul(x, half) t = Tanh(h) g = Add(t, two) y = Mul(x, g)"))
    assert (found.kind, found.name) == ("activation", "")


def test_an_activation_has_its_usual_name() -> None:
    (found,) = blocks_of(graph("r = Relu(x) y = Relu(r)"))
    assert (found.kind, found.name) == ("activation", "Relu")


def test_the_nodes_of_an_attention_are_those_between_its_products() -> None:
    source = import_model(
        ir.from_proto(COMPOSITES["Attention"].model("with a mask, scaled behind", dynamic=False))
    )
    (found,) = find_blocks(source.graph, source.constants, {})
    assert sorted(str(node.op) for node in found.nodes) == [
        *("Add", "Div", "MatMul", "MatMul", "Softmax"),
    ]


GELU = "a = Mul(x, over) e = Erf(a) s = Add(e, one) h = Mul(x, half) y = Mul(h, s)"
OVER_ROWS = """m = ReduceMean(x, rows) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, rows)
    w = Add(v, eps) r = Sqrt(w) y = Div(d, r)"""


@pytest.mark.parametrize(
    ("body", "opset", "may_be"),
    [
        (GELU, None, True),
        (GELU, 20, True),
        (GELU, 19, False),
        (OVER_ROWS, None, False),
        (OVER_ROWS.replace("rows", "last"), 17, True),
        ("s = Sigmoid(x) t = Sin(s) y = Mul(x, t)", None, False),
        ("y = Gelu(x)", None, False),
        ("y = Abs(x)", None, False),
    ],
)
def test_what_may_become_an_operator_is_what_one_computes_up_to_the_opset(
    body: str, opset: int | None, may_be: bool
) -> None:
    imported = import_model(ir.from_proto(graph(body)))
    assert may_be_operators(imported.graph, imported.constants, opset) == may_be


@pytest.mark.parametrize(("opset", "count"), [(None, 1), (20, 1), (19, 0)])
def test_an_activation_of_many_operators_is_found_where_it_may_be_one(
    opset: int | None, count: int
) -> None:
    model = graph(f"{GELU} t = Sigmoid(x) z = Mul(x, t)", outputs="y z")
    imported = import_model(ir.from_proto(model))
    found = find_spelled_out(imported.graph, imported.constants, opset)
    assert [len(nodes) for nodes in found] == [5] * count


@pytest.mark.parametrize("body", ["y = Abs(x)", "y = Max(x, one)", "y = Mul(x, x)"])
def test_a_single_operator_that_is_no_activation_is_no_block(body: str) -> None:
    assert blocks_of(graph(body)) == []


def test_axes_other_than_the_last_are_the_reason() -> None:
    model = graph(
        """m = ReduceMean(x, rows) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, rows)
        e = Add(v, eps) r = Sqrt(e) y = Div(d, r)"""
    )
    report = xflow.optimize(model, cost="estimated", budget=1, check=1, rules=[]).report
    (block,) = report.blocks
    assert not block.recognised
    assert "normalizes axes -2" in block.reason


def test_a_block_whose_inside_is_read_says_by_whom() -> None:
    report = xflow.optimize(
        graph(GELU, outputs="y s"), cost="estimated", budget=1, check=1, rules=[]
    ).report
    (block,) = report.blocks
    assert block.nodes == ("a", "e", "s", "h", "y")
    assert (block.name, block.recognised) == ("Gelu", False)
    assert "others read what lies inside it, at s" in block.reason


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("n = ReduceL2(x, last) c = Max(n, eps) y = Div(x, c)", "LpNormalization"),
        (
            "q = Mul(x, x) t = ReduceSum(q, last) r = Sqrt(t) c = Add(r, eps) y = Div(x, c)",
            "LpNormalization",
        ),
        ("n = ReduceL2(x, last) m = Mul(n, part) y = Div(x, m)", "RMSNormalization"),
        ("n = ReduceL2(x, last) u = Div(x, n) y = Div(u, part)", "RMSNormalization"),
    ],
)
def test_what_is_divided_by_its_length_is_no_rms_norm_unless_by_the_root_of_its_extent(
    body: str, name: str
) -> None:
    (found,) = blocks_of(graph(body))
    assert (found.kind, found.name) == ("normalization", name)


def test_a_tensor_of_unit_length_says_that_no_rule_speaks_of_it() -> None:
    model = graph("n = ReduceL2(x, last) c = Max(n, eps) y = Div(x, c)")
    report = xflow.optimize(model, cost="estimated", budget=1, check=1, rules=[]).report
    (block,) = report.blocks
    assert "no rule speaks of LpNormalization" in block.reason


def test_an_opset_that_must_stay_is_the_reason() -> None:
    spelled = COMPOSITES["Attention"].model("scaled behind, by Mul", dynamic=False)
    report = xflow.optimize(
        spelled, cost="estimated", budget=1, check=1, rules=[], keep_opset=True
    ).report
    (block,) = report.blocks
    assert "came with opset 23, and the model's stays at 20" in block.reason


def test_a_block_is_followed_through_its_rewrite() -> None:
    model = graph(f"{GELU.replace('y = ', 'z = ')} r = Relu(z) y = Tanh(r)")
    rules = rules_over(
        *("Add", "Div", "Erf", "Gelu", "Mul", "Reciprocal", "Relu", "Scalar", "Sqrt", "Tanh")
    )
    report = xflow.optimize(model, cost="estimated", budget=20, check=1, rules=rules).report
    assert [block.name for block in report.blocks] == ["Gelu", "Relu", "Tanh"]
    gelu = report.blocks[0]
    assert (gelu.before.by, gelu.after) == ("none", BlockForm("operator", "Gelu"))
    assert gelu.nodes == ("a", "e", "s", "h", "z")
    assert all(block.recognised for block in report.blocks)


def test_an_operator_that_was_taken_apart_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def target(**given: Any) -> TargetModel:
        plain = TargetModel(**given)
        return replace(plain, slow={**plain.slow, "Mish": 100.0})

    monkeypatch.setattr(attempts, "TargetModel", target)
    model = graph("y = Mish(x)")
    model.opset_import[0].version = 22
    report = xflow.optimize(
        model,
        cost="estimated",
        budget=5,
        check=1,
        rules=rules_over("Mish", "Mul", "Softplus", "Tanh"),
    ).report
    (block,) = report.blocks
    assert (block.before.by, block.recognised) == ("operator", False)
    assert block.reason == TAKEN_APART


def test_the_operators_of_another_domain_are_blocks() -> None:
    model = graph("y = com.microsoft.FastGelu(x)")
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    (found,) = blocks_of(model)
    assert (found.kind, found.name, found.is_operator) == ("activation", "FastGelu", True)


def some_blocks() -> tuple[Block, ...]:
    spelled, whole = BlockForm("none"), BlockForm("operator", "Gelu")
    return (
        Block("activation", "Gelu", ("a", "b"), spelled, whole, True),
        Block("activation", "Gelu", ("c", "d"), spelled, spelled, False, "it is a test"),
        Block("attention", "Attention", ("e", "f"), spelled, spelled, False, "it is a test"),
    )


def test_the_terminal_counts_and_gives_reasons() -> None:
    assert block_lines(some_blocks()) == [
        "In one operator or kernel each: 1 of 2 activations, 0 of 1 attention",
        "In several operators still: 1 x activation (Gelu): it is a test",
        "In several operators still: 1 x attention (Attention): it is a test",
    ]
    assert block_lines(()) == []


def test_explain_names_what_was_missed() -> None:
    report = xflow.optimize(
        graph(GELU, outputs="y s"), cost="estimated", budget=1, check=1, rules=[]
    ).report
    text = " ".join(str(explain_report(report)).split())
    assert (
        "activation Gelu: stays in several operators, since others read what lies inside it" in text
    )
    assert "at y" in text
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(report))
    assert "In one operator or kernel each: 0 of 1 activation" in console.export_text()


def test_outputs_that_nobody_reads_do_not_end_the_report() -> None:
    """A mask of Dropout, the mean of a LayerNormalization: outputs that no operator of ours has."""
    result = xflow.optimize(
        graph("a, m = Dropout(x) y = Relu(a)"), cost="estimated", budget=1, rules=()
    )
    (block,) = result.report.blocks
    assert "y" in block.nodes


def test_a_number_that_depends_on_what_was_not_folded_is_none() -> None:
    """A ConstantOfShape beyond the limits of folding stays one, and is no operator of ours."""
    model = graph("k = ConstantOfShape(large) s = ReduceMax(k, both) y = Add(x, s)")
    for name, values in (("large", [8192, 4096]), ("both", [0, 1])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(values), name))
    report = xflow.optimize(model, cost="estimated", budget=1, check=1, rules=[]).report
    assert report.blocks == ()


def test_a_scaled_relu_is_no_selu() -> None:
    """Of which it is a case, without the exponential."""
    (found,) = blocks_of(graph("a = Mul(x, two) y = Relu(a)"))
    assert (found.name, found.is_operator) == ("Relu", True)


def test_long_chains_of_activations_are_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each end of a chain may be a function of all before it: what is known of one helps others."""
    steps = [f"a{k} = Tanh({'x' if not k else f'b{k - 1}'}) b{k} = Relu(a{k})" for k in range(100)]
    model = graph(" ".join([*steps, "y = Identity(b99)"]))
    original, calls = Tanh.numpy, 0

    def counted(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        return original(*given)

    monkeypatch.setattr(Tanh, "numpy", counted)
    assert len(blocks_of(model)) == 200
    assert calls < 100 * 2 * FURTHEST


def test_a_recurrence_of_which_each_step_is_a_function_of_the_input_is_not_too_deep() -> None:
    """A thousand operators lie between its last step and the input, and none is as far behind."""
    steps = [
        f"d{k} = Div(h{k}, two) q{k} = Div(x, two) h{k + 1} = Add(d{k}, q{k})" for k in range(600)
    ]
    model = graph(" ".join(["h0 = Div(x, half)", *steps, "y = Tanh(h600)"]))
    (found,) = blocks_of(model)
    assert (found.name, found.is_operator) == ("Tanh", True)


def test_activations_of_half_precision_are_told() -> None:
    model = graph("h = Cast <to = 10> (x) a = Mul(h, h) b = Relu(a) y = Cast <to = 1> (b)")
    (found,) = blocks_of(model)
    assert (found.name, found.is_operator) == ("Relu", True)
