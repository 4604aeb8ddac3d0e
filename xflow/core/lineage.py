"""Which nodes of a rewritten graph are nodes of the original that only read other values now."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator

_Key = tuple[object, ...]


def lineage(old: Graph, new: Graph) -> Mapping[Node, Node]:
    """For nodes of `new` that are not in `old` the node of `old` that each descends from.

    Both nodes have the same operator, attributes, input types and output types. Every node of
    `old` has at most one descendant, and none if it is still there itself. The result says
    whose name a node inherits; it claims no equality of values.
    """
    return _Lineage(old, new).run()


class _Lineage:
    def __init__(self, old: Graph, new: Graph) -> None:
        self.old, self.new = old, new
        self.old_nodes, self.new_nodes = set(old.nodes), set(new.nodes)
        self.parent: dict[Node, Node] = {}
        self.taken: set[Node] = set()
        self.same: dict[Value, Value] = {}
        """New values and the old values in whose place they stand."""

    def run(self) -> Mapping[Node, Node]:
        self.descend(list(zip(self.new.outputs, self.old.outputs, strict=True)))
        self.recognise()
        self.ascend()
        return self.parent

    def descend(self, pending: list[tuple[Value, Value]]) -> None:
        """From pairs of values down, as far as the operators are the same."""
        while pending:
            new, old = pending.pop()
            if new == old or new in self.same:
                continue
            if new.type == old.type:
                self.same[new] = old
            if new.index == old.index and self.adopt(new.node, old.node):
                pending.extend(zip(_in_order_of(new.node, old.node), old.node.inputs, strict=True))

    def recognise(self) -> None:
        """Nodes that have the same weights, and what lies below them."""
        by_weights: dict[_Key, deque[Node]] = {}
        for node in self.old.nodes:
            if weights := _weights(node):
                by_weights.setdefault((*_kind(node), weights), deque()).append(node)
        for node in reversed(self.new.nodes):
            if node in self.old_nodes or not (weights := _weights(node)):
                continue
            for candidate in by_weights.get((*_kind(node), weights), ()):
                if self.adopt(node, candidate):
                    self.descend(list(zip(node.inputs, candidate.inputs, strict=True)))
                    break

    def ascend(self) -> None:
        """From the leaves up: nodes whose inputs stand for those of an old node."""
        by_inputs = {(*_kind(node), node.inputs): node for node in self.old.nodes}
        for node in self.new.nodes:
            if node in self.old_nodes or isinstance(node.op, Leaf):
                continue
            if node not in self.parent:
                inputs = tuple(self.same.get(value, value) for value in node.inputs)
                found = by_inputs.get((*_kind(node), inputs))
                if found is None or not self.adopt(node, found):
                    continue
            self.same.update(zip(node.outputs, self.parent[node].outputs, strict=True))

    def adopt(self, new: Node, old: Node) -> bool:
        """Make `old` the parent of `new` if both are free and alike."""
        if (
            new in self.old_nodes
            or old in self.new_nodes
            or new in self.parent
            or old in self.taken
            or isinstance(new.op, Leaf)
            or _kind(new) != _kind(old)
        ):
            return False
        self.parent[new] = old
        self.taken.add(old)
        return True


def _in_order_of(new: Node, old: Node) -> tuple[Value, ...]:
    """The inputs of `new`, exchanged if it is a commutative operator and they then suit `old`'s."""
    inputs = new.inputs
    if len(inputs) == 2 and isinstance(new.op, Operator) and new.op.commutative:
        straight = sum(a.node.op == b.node.op for a, b in zip(inputs, old.inputs, strict=True))
        crossed = sum(a.node.op == b.node.op for a, b in zip(inputs[::-1], old.inputs, strict=True))
        return inputs[::-1] if crossed > straight else inputs
    return inputs


def _kind(node: Node) -> _Key:
    return node.kind, tuple(value.type for value in node.inputs), node.types


def _weights(node: Node) -> _Key | None:
    """The constant inputs by position, if one of them is more than a single number."""
    weights = tuple(value if value.is_constant else None for value in node.inputs)
    return weights if any(value is not None and value.shape for value in weights) else None
