"""Inputs whose NaN or infinities the left side may hide at run time, unlike its specification.

Some kernels give numbers for such elements, as their operators declare (`hides`). If there are more
such operators between an input and the result on the left side than on the right, a number on the
left does not imply that the input's elements are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator


def hidden_inputs(left: Value, right: Value) -> frozenset[str]:
    """The names of these inputs."""
    before, after = (_pairs(side) for side in (left, right))
    return frozenset(
        name for name, kind in before if _count(before, name, kind) > _count(after, name, kind)
    )


Pairs = list[tuple[str, str]]


def _count(pairs: Pairs, name: str, kind: str) -> int:
    return sum(pair == (name, kind) for pair in pairs)


def _pairs(side: Value) -> Pairs:
    """Each input beside each operator that hides something of it, once for every node."""
    found: Pairs = []
    for node in _nodes(side, set()):
        if isinstance(node.op, Operator):
            shapes = [source.shape for source in node.inputs]
            leaves: set[str] = set()
            for position in node.op.hides(shapes, node.attributes):
                below = _nodes(node.inputs[position], set())
                leaves |= {each.op.key for each in below if isinstance(each.op, Leaf)}
            found += [(name, node.op.name) for name in sorted(leaves)]
    return found


def _nodes(value: Value, seen: set[Node]) -> Iterator[Node]:
    if value.node not in seen:
        seen.add(value.node)
        yield value.node
        for source in value.node.inputs:
            yield from _nodes(source, seen)
