"""Which nodes of a graph are told to have been replaced, and which to have been made."""

import xflow.ops  # noqa: F401 - operators are known by their names
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.rewriting.replacement import Replacement
from xflow.rewriting.trace import traced

X = leaf("x", TensorType("FLOAT", (2, 3)))


def unary(name: str, value: Value) -> Value:
    return apply(name, [value])[0]


def replacement(before: Value, after: Value, source: Value) -> Replacement:
    return Replacement((before,), (after,), ("a-rule",), 0.0, (source,))


def test_what_replaces_another_and_is_replaced_by_it_is_followed_further() -> None:
    """Two rewrites of a round ask for each other's values: the inner one stays as it was."""
    inner = unary("Relu", X)
    outer = unary("Relu", inner)
    graph = Graph((outer, inner))
    first, second = replacement(outer, unary("Abs", inner), inner), replacement(inner, outer, X)
    third = replacement(inner, unary("Neg", unary("Neg", inner)), X)
    trace, made = traced(graph, (first, second, third))
    assert {*trace.origin, *trace.made} >= {*made.nodes}
    assert trace.replaced.keys() == {graph.nodes.index(outer.node)}
