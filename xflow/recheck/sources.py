"""Float inputs of a model that may hold NaN or infinities, by the operators that read them."""

from __future__ import annotations

from collections.abc import Mapping

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.sorts import BOOL, FLOATS
from xflow.ops.shape import Movement

MOVED = frozenset(
    (
        *("Compress", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
        *("Reshape", "Slice", "Split", "Squeeze", "Tile"),
        *("Transpose", "Trilu", "Unsqueeze", "Concat"),
    )
)
"""Operators that give elements of their inputs, or 0, where the registry does not read them."""


def sources(graph: Graph) -> Mapping[Value, frozenset[Value]]:
    """The float inputs of which elements are read one by one to make those of each value."""
    found: dict[Value, frozenset[Value]] = {}
    for node in graph.nodes:
        below = frozenset[Value]()
        if _reads_elements(node):
            below = below.union(*(found.get(value, frozenset()) for value in node.inputs))
        for value in node.outputs:
            own = isinstance(node.op, Leaf) and not value.is_constant
            found[value] = frozenset((value,)) if own and value.type.dtype in FLOATS else below
    return found


def _reads_elements(node: Node) -> bool:
    if isinstance(node.op, Opaque):
        return node.op.op_type in MOVED or node.op.op_type == "Cast"
    return isinstance(node.op, Operator) and (node.op.elementwise or isinstance(node.op, Movement))


def special(
    graph: Graph, read: Mapping[Value, frozenset[Value]]
) -> tuple[frozenset[Value], frozenset[Value]]:
    """The inputs that are compared, tested or read by an unknown operator, and those of masks."""
    tested, masking = set[Value](), set[Value]()
    for node in graph.nodes:
        below = set[Value]().union(*(read[value] for value in node.inputs))
        is_unknown = isinstance(node.op, Opaque) and not _reads_elements(node)
        if is_unknown or any(kind.dtype == BOOL for kind in node.types):
            tested |= below
        elif isinstance(node.op, Operator) and (
            node.op.weights_along is not None or node.op.mask is not None or node.op.name == "Exp"
        ):
            masking |= below
    return frozenset(tested), frozenset(masking)
