"""Ways that led from a region to a better form, tried in regions like it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from doubling import DOUBLE, INVERSE
from graphs import call, tensor

from xflow.core.fold import no_constants
from xflow.core.graph import Graph
from xflow.core.node import Value, apply
from xflow.rewriting.index import RuleIndex
from xflow.search.backtrack import Explorer, Limits
from xflow.search.constants import Constants
from xflow.search.context import DEFAULTS
from xflow.search.cutting import cut
from xflow.search.explorers import Exploration
from xflow.search.policy import POLICY
from xflow.search.region import Region
from xflow.search.states import State, Way
from xflow.search.ways import Ways

RULES = (*DOUBLE, *INVERSE)
CONTEXT = replace(DEFAULTS, policy=replace(POLICY, sweeps=0))


def price(graph: Graph) -> float:
    """Of a graph without Add and Mul nothing; each of these costs, and a mixture more."""
    kinds = {str(node.op) for node in graph.nodes} & {"Add", "Mul"}
    return {0: 0.5, 1: 10.0, 2: 50.0}[len(kinds)]


def explored(ways: Sequence[Way], value: Value | None = None, expansions: int = 0) -> list[State]:
    x = tensor("x", 4)
    graph = Graph((call("Add", x, x) if value is None else value,))
    limits = Limits(expansions=expansions)
    index = RuleIndex(RULES)
    explorer = Explorer(index, price, no_constants, limits, CONTEXT, ways=ways)
    return explorer.explore(graph, keep=3)


def test_a_way_is_gone_before_anything_is_tried() -> None:
    assert len(explored(())) == 1
    best = explored([("double", "inverse")])[-1]
    assert {str(node.op) for node in best.graph.nodes} >= {"Div"}
    assert best.path == ("double", "inverse")
    trail = best.trail
    assert trail is not None
    assert [step.rule for step in trail] == ["double", "inverse"]


def test_what_does_not_apply_is_passed_over() -> None:
    assert explored([("inverse", "double", "unknown", "inverse", "inverse")])[-1].path == (
        "double",
        "inverse",
    )


def test_a_way_that_gains_nothing_leads_nowhere() -> None:
    assert len(explored([("double",)])) == 1


def test_a_step_is_taken_near_what_the_way_has_made() -> None:
    """Of two products, the one that came of the sum: the other one is first in the graph."""
    x, y = tensor("x", 4), tensor("y", 4)
    two = apply("Scalar", (), {"value": Fraction(2)}, dtype="FLOAT")[0]
    other = call("Exp", call("Mul", y, two))

    def price(graph: Graph) -> float:
        kinds = {str(node.op) for node in graph.nodes}
        return 2.0 * ("Add" in kinds) + ("Div" not in kinds)

    graph = Graph((other, call("Relu", call("Add", x, x))))
    ways = [("double", "inverse")]
    explorer = Explorer(
        RuleIndex(RULES), price, no_constants, Limits(expansions=0), CONTEXT, ways=ways
    )
    best = explorer.explore(graph, keep=3)[-1].graph
    assert other in best.outputs
    assert {str(node.op) for node in best.nodes} >= {"Mul", "Div"}


def regions(*chains: Sequence[str]) -> list[Region]:
    """A region for each chain of operators."""
    found: list[Region] = []
    for number, chain in enumerate(chains):
        value = tensor(f"x{number}", 4 + number)
        for name in chain:
            value = call(name, value)
        found += cut(Graph((value,)), Constants(no_constants))
    assert len(found) == len(chains)
    return found


CHAINS = (("Exp", "Relu", "Exp", "Tanh"), ("Exp", "Relu", "Exp", "Tanh"), ("Sqrt", "Neg"))


def test_the_heaviest_of_regions_that_are_alike_comes_first() -> None:
    named = dict(zip("abc", regions(*CHAINS), strict=True))
    ways = Ways(POLICY)
    assert ways.unlike(named, {"a": 1.0, "b": 2.0, "c": 1.0}) == ["b", "c"]
    assert ways.unlike(named, {"a": 2.0, "b": 1.0, "c": 3.0}) == ["a", "c"]


def test_ways_lead_on_in_regions_like_those_where_they_were_found() -> None:
    one, alike, other = regions(*CHAINS)
    ways = Ways(POLICY)
    best = State(one.graph, 1.0, ("double", "inverse"))
    ways.note(one, Exploration([State(one.graph, 2.0), best], exhausted=True))
    ways.note(other, Exploration([State(other.graph, 2.0)], exhausted=True))
    assert ways.to(alike) == [("double", "inverse")]
    assert ways.to(other) == []


@pytest.mark.parametrize("count", [1, 5])
def test_no_more_ways_are_tried_than_the_policy_says(count: int) -> None:
    one, alike, _ = regions(*CHAINS)
    ways = Ways(replace(POLICY, ways=2))
    for number in range(count):
        best = State(one.graph, 1.0, ("double",) * (number + 1))
        ways.note(one, Exploration([State(one.graph, 2.0), best], exhausted=True))
    assert len(ways.to(alike)) == min(count, 2)
