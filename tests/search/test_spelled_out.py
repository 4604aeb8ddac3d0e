"""A block that is spelled out is not cut in two, and half of the expansions begin at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from doubling import DOUBLE, INVERSE
from graphs import call, tensor

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.fold import no_constants
from xflow.core.graph import Graph
from xflow.core.node import Leaf
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.text import parse_rules
from xflow.search.backtrack import Explorer, Limits
from xflow.search.context import DEFAULTS
from xflow.search.ordering import ordered
from xflow.search.policy import POLICY
from xflow.search.states import State

OTHERS = parse_rules("""
rule otherwise
  in       x[...]
  from     Div(x, 1/2)
  to       Sub(x, Neg(x))

rule first-step
  in       x[M, N]
  from     Softmax(x, axis=1)
  to       Exp(LogSoftmax(x, axis=1))

rule second-step
  in       x[M, N]
  from     LogSoftmax(x, axis=1)
  to       Neg(Sigmoid(x))

rule third-step
  in       x[M, N]
  from     Exp(Neg(Sigmoid(x)))
  to       Tanh(x)
""")
RULES = [*DOUBLE, *INVERSE, *OTHERS]
EXPANSIONS = 14
PRICES: Mapping[str, float] = {"Add": 2.0, "Mul": 1.0, "Div": 1.0, "Sub": 1.0, "Tanh": -50.0}
"""Additions become cheaper, and then another form at the same price; the third step gains more."""
COUNT = 60


def graph(weighted: bool) -> Graph:
    """An attention, or if not `weighted` a softmax alone, beside additions."""
    q, k, v = (tensor(name, 8, 8) for name in "qkv")
    scores = call("MatMul", q, k)
    found = call("Softmax", scores, axis=1)
    out = call("MatMul", found, v) if weighted else found
    others = [tensor(f"x{number}", 4) for number in range(COUNT)]
    return Graph((out, *(call("Add", value, value) for value in others)))


def price(graph: Graph) -> float:
    return 100.0 + sum(PRICES.get(str(node.op), 0.0) for node in graph.nodes)


def best(weighted: bool) -> State:
    context = replace(DEFAULTS, policy=replace(POLICY, sweeps=0))
    explorer = Explorer(
        RuleIndex(RULES), price, no_constants, Limits(expansions=EXPANSIONS), context
    )
    return explorer.explore(graph(weighted), keep=1)[-1]


def test_steps_that_gain_nothing_lead_to_it_beside_many_small_gains() -> None:
    assert "third-step" in best(weighted=True).path
    assert "third-step" not in best(weighted=False).path


def test_what_does_not_depend_on_a_kernel_comes_before_its_nodes() -> None:
    q, k, v, m = (tensor(name, 8, 8) for name in "qkvm")
    scores = call("MatMul", q, k)
    mask = call("Neg", call("Abs", m))
    masked = call("Add", scores, mask)
    found = call("Softmax", masked, axis=1)
    changed = call("Exp", found)  # between softmax and sum, and behind the kernel's first nodes
    values = call("Relu", v)
    out = call("MatMul", changed, values)
    kernel = [value.node for value in (scores, masked, found, out)]
    nodes = [node for node in Graph((out,)).nodes if not isinstance(node.op, Leaf)]
    order = list(ordered(nodes, [frozenset(kernel)], 1))
    place = {node: number for number, node in enumerate(order)}
    assert sorted(place.values()) == list(range(len(nodes)))
    assert all(
        place[value.node] < place[node]
        for node in nodes
        for value in node.inputs
        if value.node in place
    )
    assert order[-5:] == [*kernel[:3], changed.node, kernel[3]]
    assert ordered(nodes, [], 1) == nodes
    assert ordered(nodes, [frozenset(kernel)], len(nodes)) == nodes
