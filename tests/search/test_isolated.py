"""The isolated graphs: both forms of each compute the same, and rules find some of them."""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from longer import some
from recognition import searched

from isolated import CASES, SMALL
from isolated.case import Draw, Sizes
from isolated.chains import chain
from isolated.expression import Tensor, model, node, variables
from isolated.forms import form
from judge import TOLERANCE, error
from run_isolated import Runner
from xflow.core.deadline import Deadline
from xflow.core.graph import Graph
from xflow.core.node import Opaque, apply
from xflow.core.registry import Operator
from xflow.cost.estimate import EstimatedCost, Estimator
from xflow.cost.fusion import operator_name
from xflow.cost.target import TargetModel
from xflow.feeds.inputs import random_inputs
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.store import default_directory, load_rules
from xflow.search.backtrack import Explorer, Limits
from xflow.search.constants import Constants
from xflow.search.context import Context
from xflow.search.cutting import cut
from xflow.search.driver import search
from xflow.search.policy import POLICY
from xflow.search.steps import Steps


def run(
    proto: onnx.ModelProto, feeds: dict[str, np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    outputs: list[np.ndarray[Any, Any]] = session.run(None, feeds)
    return outputs


def imported(*outputs: Tensor) -> Imported:
    return import_model(ir.from_proto(model(outputs, variables(outputs), 20)))


@pytest.mark.parametrize("name", CASES)
def test_the_form_made_by_hand_computes_the_same(name: str) -> None:
    plain, by_hand = CASES[name].models(SMALL)
    for proto in (plain, by_hand):
        onnx.checker.check_model(proto, full_check=True)
    for seed in (1, 2):
        feeds = random_inputs(plain, seed)
        assert error(run(plain, feeds), run(by_hand, feeds)) <= TOLERANCE / 100


@pytest.mark.parametrize("name", CASES)
def test_the_registry_knows_all_operators_of_both_forms(name: str) -> None:
    forms = [import_model(ir.from_proto(proto)) for proto in CASES[name].models(SMALL)]
    nodes = [node for imported in forms for node in imported.graph.nodes]
    assert not any(isinstance(node.op, Opaque) for node in nodes)
    assert form(forms[0].graph) != form(forms[1].graph)


def test_weights_do_not_count_in_a_form_but_operators_and_inputs_do() -> None:
    g = Draw(SMALL)
    x, y, a, b = g.tokens, g.tokens, g.weight(SMALL.width), g.weight(SMALL.width)
    same = [form(imported(t).graph) for t in (x * a, x * (a + b), b * x)]
    assert len(set(same)) == 1
    others = [form(imported(t).graph) for t in (y * a, x + a, x * x, x * y, (x * a) * b)]
    assert len({*others, same[0]}) == 1 + len(others)


def test_a_real_attribute_counts_in_a_form_as_the_float_that_it_is_written_as() -> None:
    x = imported(leaky := node("LeakyRelu", Draw(SMALL).planes, alpha=0.1)).graph.leaves[0]
    tenth, fifth = (
        form(Graph(apply("LeakyRelu", [x], {"alpha": alpha})))
        for alpha in (Fraction(1, 10), Fraction(1, 5))
    )
    assert form(imported(leaky).graph) == tenth != fifth


@pytest.fixture(scope="module")
def runner() -> Runner:
    options = argparse.Namespace(estimated=True, budget=20.0)
    return Runner(load_rules(default_directory()), options)


@pytest.mark.parametrize(
    "name",
    [
        "relu-of-relu",
        "quotient-by-vector",
        "convolutions-of-unlike-kernels",
        "repvgg-block",
        "scales-of-one-input",
        "scales-by-one-weight",
        "layer-norm-by-product",
        "instance-norm-by-mean",
        "gelu-tanh-cube",
        "gelu-tanh-products",
    ],
)
def test_the_search_finds_it(name: str, runner: Runner) -> None:
    plain, by_hand = (import_model(ir.from_proto(m)) for m in CASES[name].models(Sizes()))
    found = searched(plain, runner.rules, runner.cost, opset=plain.model.graph.opset_imports[""])
    assert form(found.graph) == form(by_hand.graph)
    assert found.replacements


@pytest.mark.parametrize("seed", some(range(3), 3))
def test_a_gelu_is_found_whatever_an_operator_is_said_to_take(seed: int, runner: Runner) -> None:
    """Where Mean seems cheap, its spellings fill the queue, and all is looked at without it."""
    draw, average = random.Random(seed), TargetModel(threads=1)
    slow = {name: factor * draw.uniform(0.95, 1.05) for name, factor in average.slow.items()}
    cost = EstimatedCost(Estimator(replace(average, slow=slow)))
    plain, _ = CASES["gelu-tanh-products"].models(Sizes())
    source = import_model(ir.from_proto(plain))
    constants = Constants(source.constants)
    (region,) = cut(source.graph, constants, False, cost.layouts)
    explorer = Explorer(
        RuleIndex(runner.rules),
        partial(cost.layouts, uses=region.uses),
        constants.of(region),
        Limits(),
        Context(opset=20),
        doubt=True,
    )
    states = explorer.explore(region.graph, POLICY.forms)
    names = [[operator_name(n) for n in state.graph.nodes if not n.constant] for state in states]
    assert ["Gelu"] in [list(filter(None, each)) for each in names]


def test_a_chain_of_rules_leads_from_tensorflows_layer_norm_to_the_operator(
    runner: Runner,
) -> None:
    plain, by_hand = (
        import_model(ir.from_proto(m)) for m in CASES["layer-norm-by-tensorflow"].models(SMALL)
    )
    goal = form(by_hand.graph)
    found = chain(plain.graph, goal, runner.index, plain.constants, seconds=30)
    assert found is not None
    assert len(found) > 1
    assert chain(plain.graph, goal, RuleIndex([]), plain.constants, seconds=30) is None
    assert chain(by_hand.graph, goal, RuleIndex([]), plain.constants, seconds=30) == ()


@pytest.mark.parametrize(("constant", "allowed"), [(True, True), (False, False)])
def test_operators_are_added_on_constants_alone(
    constant: bool, allowed: bool, runner: Runner
) -> None:
    g = Draw(SMALL)
    x, other = g.tokens, g.weight(SMALL.width) if constant else g.tokens
    source, goal = imported(x - other), imported(x + node("Neg", other))
    steps = [
        step
        for step in Steps(runner.index, source.constants).of(source.graph)
        if form(Graph(step.after)) == form(goal.graph)
    ]
    assert steps
    assert any(not step.expands for step in steps) == allowed


def test_no_operator_is_used_that_the_opset_does_not_have(runner: Runner) -> None:
    g = Draw(Sizes())
    x = g.tokens
    outputs = (x * node("Sigmoid", x),)
    cost = EstimatedCost(
        Estimator(TargetModel(fusions=(), slow={}))
    )  # one kernel is cheaper than two
    for opset, operators in ((20, {"Mul", "Sigmoid"}), (24, {"Swish"})):
        source = import_model(ir.from_proto(model(outputs, variables(outputs), opset)))
        deadline = Deadline.after(20)
        context = Context(opset=opset)
        found = search(source.graph, runner.rules, cost, deadline=deadline, context=context)
        used = {node.op.name for node in found.graph.nodes if isinstance(node.op, Operator)}
        assert used == operators
