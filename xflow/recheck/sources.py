"""Float inputs of a model that may hold NaN or infinities, by the operators that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Opaque, Value
from xflow.core.registry import Array, Operator
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
COUNTING = frozenset(("Shape", "Size"))
"""Operators that read no element of their input."""
MULTIPLIED: Mapping[str, int] = {
    **dict.fromkeys(("Mul", "Div", "Pow", "MatMul", "FusedMatMul", "Gemm"), 2),
    **dict.fromkeys(("Conv", "ConvTranspose", "DeformConv"), 2),
    **dict.fromkeys(("Attention", "CappedAttention", "MaskedAttention", "GRU", "LSTM", "RNN"), 3),
    "Einsum": 26,
}
"""Of how many of its first inputs an operator makes products."""
SUMMED = frozenset(MULTIPLIED) - {"Mul", "Div", "Pow"}
"""Operators that add products up."""
EXAMINED = 2**20
"""Most weights that are looked at."""
Inputs: TypeAlias = frozenset[Value]


class Sources:
    """The float inputs behind each value of a graph; `data` gives that of constants."""

    def __init__(self, graph: Graph, data: Callable[[Value], Array | None]) -> None:
        self._graph = graph
        self._data = data
        self._scores = {node.inputs[0] for node in graph.nodes if _weighs(node)}
        self._elements = self._flow(lambda node: node.inputs if _reads_elements(node) else ())
        self._added = self._flow(self._not_multiplied)

    def in_scores(self, value: Value) -> Inputs:
        """The inputs of which elements are read one by one to make those of a value, or added.

        Through any operator, but not as factors of a product with another input, or summed with
        weights of both signs, where an element that is -inf leaves no number.
        """
        return self._elements.get(value, Inputs()) | self._added.get(value, Inputs())

    @cached_property
    def behind(self) -> Mapping[Value, Inputs]:
        """The inputs that each value of the graph depends on in any way."""
        return self._flow(lambda node: node.inputs)

    @cached_property
    def special(self) -> tuple[Inputs, Inputs]:
        """The inputs that are compared, tested or read by an unknown operator, those of masks."""
        tested, masking = set[Value](), set[Value]()
        behind: Mapping[Value, Inputs] | None = None
        for node in self._graph.nodes:
            below = set[Value]().union(*(self._elements[value] for value in node.inputs))
            known = _reads_elements(node) or _name(node) in COUNTING
            is_unknown = isinstance(node.op, Opaque) and not known
            if is_unknown or any(kind.dtype == BOOL for kind in node.types):
                tested |= below
                for value in self._asked_about(node):
                    behind = self._flow(self._read_from) if behind is None else behind
                    tested |= self.in_scores(value) if value in self._scores else behind[value]
            elif _weighs(node) or _name(node) == "Exp":
                masking |= self.in_scores(node.inputs[0])
            elif isinstance(node.op, Operator) and node.op.mask is not None:
                masking |= below
                masking |= Inputs().union(*map(self.in_scores, node.inputs[node.op.mask :]))
        return frozenset(tested), frozenset(masking)

    def _asked_about(self, node: Node) -> Sequence[Value]:
        """What an operator asks about whether it is a number."""
        tests_inside = isinstance(node.op, Opaque) and node.op.tests
        if tests_inside or _name(node) in ("IsNaN", "IsInf", "com.microsoft::IsAllFinite"):
            return node.inputs
        computed = [v for v in node.inputs if not v.is_constant and v.type.dtype in FLOATS]
        twice = len(set(computed)) < len(computed)
        return computed if twice else [v for v in computed if self._is_zero(v.node)]

    def _is_zero(self, node: Node) -> bool:
        """Whether a value is ``x - x`` or ``x * 0``."""
        if _name(node) == "Sub":
            return node.inputs[0] == node.inputs[1]
        factors = [self._data(v) for v in node.inputs if v.is_constant]
        return _name(node) == "Mul" and any(each is not None and not each.any() for each in factors)

    def _flow(self, follow: Callable[[Node], Iterable[Value]]) -> Mapping[Value, Inputs]:
        """The inputs that reach each value by the inputs of operators that are followed."""
        found: dict[Value, Inputs] = {}
        for node in self._graph.nodes:
            followed = () if _name(node) in COUNTING else follow(node)
            below = Inputs().union(*(found.get(value, Inputs()) for value in followed))
            for value in node.outputs:
                own = isinstance(node.op, Leaf) and not value.is_constant
                found[value] = Inputs((value,)) if own and value.type.dtype in FLOATS else below
        return found

    def _read_from(self, node: Node) -> Iterable[Value]:
        """What an operator reads; of one that makes weights, what is in the scores."""
        return self.in_scores(node.inputs[0]) if _weighs(node) else node.inputs

    def _not_multiplied(self, node: Node) -> Sequence[Value]:
        """The inputs of which an operator makes no products with other computed values."""
        count = MULTIPLIED.get(_name(node), 0)
        factors, others = node.inputs[:count], node.inputs[count:]
        if sum(not value.is_constant for value in factors) > 1:
            return others
        weights = [value for value in factors if value.is_constant]
        signed = _name(node) in SUMMED and any(map(self._has_negative, weights))
        return others if signed else node.inputs

    def _has_negative(self, value: Value) -> bool:
        data = self._data(value)
        if data is None:
            moved = not value.is_leaf and _reads_elements(value.node)
            return moved and any(map(self._has_negative, value.node.inputs))
        return bool((data.reshape(-1)[:EXAMINED] < 0).any())


def _name(node: Node) -> str:
    """What an operator is called in ONNX; nothing for leaves."""
    if isinstance(node.op, Opaque):
        return node.op.op_type
    return node.op.name if isinstance(node.op, Operator) else ""


def _weighs(node: Node) -> bool:
    """Whether an operator makes weights of scores."""
    return isinstance(node.op, Operator) and node.op.weights_along is not None


def _reads_elements(node: Node) -> bool:
    if isinstance(node.op, Opaque):
        return node.op.op_type in MOVED or node.op.op_type == "Cast"
    return isinstance(node.op, Operator) and (node.op.elementwise or isinstance(node.op, Movement))
