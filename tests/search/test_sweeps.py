"""Sweeps: forms of a region in which a rule is applied wherever it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from doubling import DOUBLE, INVERSE
from graphs import call, tensor

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.fold import no_constants
from xflow.core.graph import Graph
from xflow.core.node import apply
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules
from xflow.search.backtrack import Explorer, Limits
from xflow.search.context import DEFAULTS
from xflow.search.policy import POLICY
from xflow.search.states import State

OTHERWISE = parse_rules("""
rule otherwise
  in       x[...]
  from     Add(x, x)
  to       Div(x, 1/2)
""")
GROWING = parse_rules("""
rule once-more
  in       x[...]
  from     Relu(x)
  to       Relu(Relu(x))
""")
NOTHING = Limits(expansions=0)


def doubled(count: int) -> Graph:
    """So many values, each of them added to itself."""
    values = [tensor(f"x{number}", 4) for number in range(count)]
    return Graph(tuple(call("Add", value, value) for value in values))


def names(graph: Graph) -> set[str]:
    """The operators between two numbers that a graph is made of."""
    return {str(node.op) for node in graph.nodes} & {"Add", "Mul", "Div"}


def all_or_nothing(graph: Graph) -> float:
    """A tenth for a graph without Add, and more than the search keeps for a mixture."""
    kinds = names(graph)
    return {1: 10.0, 2: 50.0}[len(kinds)] if "Add" in kinds else 1.0


def explored(
    graph: Graph,
    rules: Sequence[Rule],
    price: Callable[[Graph], float],
    *,
    limits: Limits = NOTHING,
    sweeps: int = POLICY.sweeps,
    doubt: bool = False,
) -> list[State]:
    policy = replace(POLICY, sweeps=sweeps)
    context = replace(DEFAULTS, policy=policy)
    explorer = Explorer(RuleIndex(rules), price, no_constants, limits, context, doubt=doubt)
    return explorer.explore(graph, keep=3)


def test_a_rule_that_gains_only_where_it_is_applied_at_all_places_is_found() -> None:
    graph = doubled(5)
    deep = Limits()
    assert len(explored(graph, DOUBLE, all_or_nothing, limits=deep, sweeps=0)) == 1
    best = explored(graph, DOUBLE, all_or_nothing)[1]
    assert names(best.graph) == {"Mul"}
    assert best.path == ("double",) * 5


def test_its_steps_can_be_repeated_one_by_one() -> None:
    trail = explored(doubled(4), DOUBLE, all_or_nothing)[1].trail
    assert trail is not None
    assert [step.rule for step in trail] == ["double"] * 4


def test_a_second_rule_follows_where_the_first_one_gains() -> None:
    def price(graph: Graph) -> float:
        kinds = names(graph)
        return 0.1 if kinds == {"Div"} else all_or_nothing(graph)

    best = explored(doubled(3), [*DOUBLE, *INVERSE], price)[1]
    assert names(best.graph) == {"Div"}


def test_what_gains_nothing_is_left() -> None:
    assert len(explored(doubled(4), DOUBLE, lambda graph: 10.0)) == 1


def test_few_places_are_left_to_single_steps() -> None:
    few = doubled(POLICY.swept - 1)
    assert len(explored(few, DOUBLE, all_or_nothing)) == 1


def test_a_rule_that_applies_to_what_it_makes_comes_to_an_end() -> None:
    graph = Graph(tuple(call("Relu", tensor(f"x{number}", 4)) for number in range(4)))

    def price(graph: Graph) -> float:
        return 1.0 / len(graph.nodes)

    best = explored(graph, GROWING, price)[1]
    assert len(best.path) == sum(4 * 2**number for number in range(POLICY.sweeps))


def test_a_sweep_ends_with_the_work() -> None:
    states = explored(doubled(6), DOUBLE, all_or_nothing, limits=replace(NOTHING, work=20))
    assert all("Add" in names(state.graph) for state in states)


@pytest.mark.parametrize("doubt", [False, True])
def test_where_the_estimate_may_be_wrong_another_rule_is_swept_as_well(doubt: bool) -> None:
    def price(graph: Graph) -> float:
        return 2.0 if names(graph) == {"Div"} else all_or_nothing(graph)

    states = explored(doubled(4), [*DOUBLE, *OTHERWISE], price, doubt=doubt)
    assert names(states[1].graph) == {"Mul"}
    assert any(names(state.graph) == {"Div"} for state in states) == doubt


def test_a_step_that_changes_nothing_ends_a_sweep() -> None:
    """The first output of a Split, once it is a Slice, is read by nobody, and still matches."""
    rules = parse_rules("""
rule slice-to-split
  in       x[N, C]
  param    j
  from     Split(x, axis=1, split=[j, C - j])[0]
  to       Slice(x, starts=[0], ends=[j], axes=[1], steps=[1])
""")
    outputs = []
    for number in range(3):
        both = apply("Split", [tensor(f"x{number}", 4, 8)], {"axis": 1, "split": (3, 5)})
        outputs += [call("Relu", value) for value in both]
    explorer = Explorer(RuleIndex(rules), lambda graph: 1.0, no_constants, NOTHING)
    explorer.explore(Graph(tuple(outputs)), keep=3)
    assert explorer.work < 200
