"""Rotary position embeddings that are spelled out, and the tables of angles that they read.

``x * cos + turned(x) * sin``, where `turned` has the two elements of each pair exchanged and one of
them negated. Tables have a cosine and a sine for each element of a head: those of a pair are equal,
as the tables repeat the angles of all pairs, one after the other or each twice in a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from xflow.core.node import Node, Value
from xflow.core.registry import Operator
from xflow.ops.shape import Movement

FARTHEST = 6
"""Operators from a value that is repeated to what reads the whole."""

HALVES, NEIGHBOURS = "RotaryEmbedding", "InterleavedRotaryEmbedding"
"""The operators for pairs from both halves of a head, and for pairs of neighbours."""


@dataclass(frozen=True)
class Rotation:
    """A rotation of `source` by the angles of two `tables`, which the operator `name` computes."""

    name: str
    source: Value
    tables: tuple[Value, Value]

    @property
    def repeated(self) -> frozenset[Node]:
        """The operators by which the tables repeat their angles."""
        return repeating(self.tables[0]) | repeating(self.tables[1])


def rotation_at(root: Node) -> Rotation | None:
    """The rotation that ends at `root`, if its tables are constant or known to repeat."""
    if not root.is_operator("Add") or root.constant:
        return None
    for kept, moved in permutations(root.inputs):
        for (source, cos), (turned, sin) in _pairs(kept, moved):
            name = _turned(turned, source)
            if name and all(table.is_constant or repeating(table) for table in (cos, sin)):
                return Rotation(name, source, (cos, sin))
    return None


def repeating(value: Value) -> frozenset[Node]:
    """The operators by which a value has each element of another one several times.

    They concatenate a value with itself, or stretch it along an axis that a Reshape then merges
    with another; what else they do is done to each element, or moves it. Empty where that is not
    known of the value.
    """
    found: list[Node] = []
    merges = False
    while len(found) < FARTHEST:
        node = value.node
        sources = {source for source in node.inputs if not source.is_constant}
        if not isinstance(node.op, Operator) or len(sources) != 1:
            break
        found.append(node)
        (value,) = sources
        if node.is_operator("Concat") and len(node.inputs) > 1:
            return frozenset(found)
        if merges and node.is_operator("Expand") and value.node.is_operator("Unsqueeze"):
            return frozenset((*found, value.node))
        if not (node.op.elementwise or node.role == "view" or isinstance(node.op, Movement)):
            break
        merges = node.is_operator("Reshape")
    return frozenset()


def _pairs(kept: Value, moved: Value) -> Iterator[tuple[tuple[Value, ...], tuple[Value, ...]]]:
    """The factors of two products, in all orders."""
    if kept.node.is_operator("Mul") and moved.node.is_operator("Mul"):
        for first in permutations(kept.node.inputs):
            for second in permutations(moved.node.inputs):
                yield first, second


def _turned(value: Value, source: Value) -> str:
    """The operator that turns pairs as `value` has them exchanged; empty where that is another."""
    node, name = value.node, HALVES
    if node.is_operator("Reshape"):
        node, name = node.inputs[0].node, NEIGHBOURS
    if not node.is_operator("Concat") or len(node.inputs) != 2:
        return ""
    negated, plain = node.inputs
    if name == NEIGHBOURS:
        if not (negated.node.is_operator("Unsqueeze") and plain.node.is_operator("Unsqueeze")):
            return ""
        negated, plain = negated.node.inputs[0], plain.node.inputs[0]
    if not negated.node.is_operator("Neg"):
        return ""
    (negated,) = negated.node.inputs
    return name if _is_part(negated, source, 1) and _is_part(plain, source, 0) else ""


def _is_part(value: Value, whole: Value, place: int) -> bool:
    """Whether a value is the first elements of the pairs of another one, or the second ones."""
    node = value.node
    if not node.is_operator("Slice", "Split") or node.inputs[0] != whole:
        return False
    if node.is_operator("Split"):
        return value.index == place
    return (node.attributes["starts"] != (0,)) == bool(place)
