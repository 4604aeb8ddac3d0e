"""What a run says of rewrites that it did not make, since they rest on more than it may assume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from xflow.core.assumptions import Assumption
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.registry import Operator
from xflow.core.wording import counted
from xflow.rewriting.index import RuleIndex
from xflow.rewriting.numerics import ELEMENTS, EVERYWHERE
from xflow.rewriting.rule import Rule
from xflow.search.steps import Steps, replaced

MOST = 64
"""Operators that are tried."""
WORTH = 1.02
"""How much faster a model must become by estimate for the hint to be given."""


@lru_cache(maxsize=2)
def _normwise(rules: tuple[Rule, ...]) -> RuleIndex:
    """The directions that only errors at small elements forbid."""
    found = []
    for rule in rules:
        if f"({ELEMENTS})" not in rule.notes.get("numerics", ""):
            continue
        for direction in rule.directions():
            numerics = direction.numerics
            assert numerics is not None
            if numerics.refused >= EVERYWHERE and not numerics.refused_by(normwise=True):
                found.append(direction)
    return RuleIndex(found)


def faster_normwise(
    graph: Graph,
    rules: Sequence[Rule],
    constants: ConstantLookup,
    estimate: Callable[[Graph], float],
) -> tuple[str, ...]:
    """A sentence on what `--assume normwise` would gain by estimate; none where that is little."""
    index = _normwise(tuple(rules))
    if not index:
        return ()
    steps = Steps(index, constants, assumption=Assumption.NORMWISE)
    nodes = [
        node
        for node in graph.nodes
        if isinstance(node.op, Operator) and node.op.name in index.roots and not node.constant
    ]
    before = now = estimate(graph)
    count = 0
    for node in nodes[: -MOST - 1 : -1]:  # what is before a node stays as it is
        for step in steps.at(node, graph):
            changed, _ = replaced(graph, step)
            after = estimate(changed)
            if after < now:
                graph, now, count = changed, after, count + 1
                break
    if not count or before < WORTH * now:
        return ()
    return (
        f"{counted(count, 'operator')} could be computed with fewer products if errors of rounding "
        "counted against the largest elements of a tensor, which by estimate makes the model "
        f"{before / now:.2f} times as fast: see --assume normwise.",
    )
