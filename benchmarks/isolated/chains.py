"""Searches a chain of rules from one graph to another, without regard to costs."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Hashable

from isolated.forms import form
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.rewriting.index import RuleIndex
from xflow.search.steps import Steps

STATES = 4000
"""Graphs that are visited before the search gives up."""


def chain(
    start: Graph,
    goal: Hashable,
    rules: RuleIndex,
    constants: ConstantLookup,
    *,
    seconds: float,
    states: int = STATES,
) -> tuple[str, ...] | None:
    """The rules that lead from `start` to a graph of the form `goal`; None if none was found.

    Graphs of few operators are looked at first, and of these the ones that few steps lead to.
    """
    if form(start) == goal:
        return ()
    steps = Steps(rules, constants)
    count = itertools.count()
    queue: list[tuple[float, int, Graph, tuple[str, ...]]] = [(0, next(count), start, ())]
    seen = {steps.key(start)}
    deadline = time.monotonic() + seconds
    while queue:
        _, _, graph, path = heapq.heappop(queue)
        for step in steps.of(graph):
            after = graph.replace(dict(zip(step.before, step.after, strict=True)))
            key = steps.key(after)
            if key in seen:
                continue
            seen.add(key)
            rules_used = (*path, step.rule)
            if form(after) == goal:
                return rules_used
            if len(seen) > states or time.monotonic() > deadline:
                return None
            weight = sum(not node.constant for node in after.nodes) + len(rules_used) / 2
            heapq.heappush(queue, (weight, next(count), after, rules_used))
    return None
