"""Objectives that are computed from a graph without timing: memory, size, operators.

Each is a `CostModel` whose estimate is exact, so that the least gain counts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import onnx_ir as ir

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, TensorType, Value
from xflow.core.registry import Operator
from xflow.core.size import product, substitute, with_all
from xflow.cost import Objective
from xflow.cost.target import TargetModel

OPERATOR_BYTES = 64
"""Bytes that an operator takes in a file and in the runtime, roughly, so that of forms that hold
the same data, the one with fewer operators is better."""


class ExactCost(ABC):
    """An objective computed from a graph. `sizes` has the values of the model's size symbols."""

    measures = False
    layouts = None
    notebook = None
    settings = None
    name: ClassVar[Objective]

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        self._sizes = sizes or {}
        self._bytes: dict[TensorType, int] = {}
        self._target = TargetModel()

    @abstractmethod
    def amount(self, graph: Graph) -> int:
        """The objective's value for `graph`: bytes, or a number of operators."""

    def estimate(self, graph: Graph) -> float:
        """The amount, and a little for each operator, which decides where the rest is equal."""
        return self.amount(graph) + OPERATOR_BYTES * operators(graph)

    def measure(
        self, graphs: Sequence[Graph], seconds: float, *, again: int = 0
    ) -> list[float | None]:
        """Nothing: None for every graph."""
        return [None] * len(graphs)

    def bytes_of(self, value: Value) -> int:
        """Bytes of a value's elements; 0 where its type is not known."""
        kind = value.type
        if kind not in self._bytes:
            try:
                width = ir.DataType[kind.dtype].itemsize
            except (KeyError, TypeError):  # a type that inference did not find, or strings
                width = 0
            size = substitute(product(kind.shape), self._sizes)
            self._bytes[kind] = math.ceil(width * with_all(size, self._target.unknown_size))
        return self._bytes[kind]

    def weight_bytes(self, graph: Graph) -> int:
        """Bytes of the constants that are left once those that depend on nothing else are folded.

        What a constant is computed from does not count, and what several operators read counts
        once.
        """
        read = {value for node in graph.nodes if not node.constant for value in node.inputs}
        return sum(self.bytes_of(value) for value in {*read, *graph.outputs} if value.is_constant)


class OperatorCount(ExactCost):
    """How many operators run each time."""

    name = "nodes"

    def amount(self, graph: Graph) -> int:
        """The number of operators that depend on inputs."""
        return operators(graph)

    def estimate(self, graph: Graph) -> float:
        """The amount, without a term for ties."""
        return operators(graph)


class WeightBytes(ExactCost):
    """Bytes of the weights in the written model; the names and attributes are not known here."""

    name = "size"

    def amount(self, graph: Graph) -> int:
        """Bytes of the folded weights, each once."""
        return self.weight_bytes(graph)


class PeakMemory(ExactCost):
    """The most bytes that activations take at one time, and the weights.

    Operators run in the order of `Graph.nodes`. An activation lives from the operator that makes
    it to its last reader, inputs of the graph from the beginning, outputs to the end. As in the
    runtime, views share the memory of what they show, and an elementwise operator overwrites an
    operand of the same size that is not read later. For a region it is the region's own peak:
    values that bypass it are the same before and after.
    """

    name = "memory"

    def amount(self, graph: Graph) -> int:
        """Bytes at the peak, weights included."""
        return self.weight_bytes(graph) + self._activations(graph)

    def _activations(self, graph: Graph) -> int:
        order = [node for node in graph.nodes if not node.constant]
        end = self._last_uses(order, graph.outputs)
        owner: dict[Value, Value] = {}
        """The value whose memory a value lies in."""
        inputs = [node for node in order if isinstance(node.op, Leaf)]
        live = {node.outputs[0]: self.bytes_of(node.outputs[0]) for node in inputs}
        total = sum(live.values())
        peak = total
        for position, node in enumerate(order):
            if not isinstance(node.op, Leaf):
                for value in node.outputs:
                    shared = self._shared(node, value, position, owner, end)
                    if shared is not None:
                        owner[value] = shared
                        end[shared] = max(end[shared], end[value])
                    else:
                        live[value] = self.bytes_of(value)
                        total += live[value]
                peak = max(peak, total)
            for value in (*node.inputs, *node.outputs):
                held = owner.get(value, value)
                if held in live and end[held] <= position:
                    total -= live.pop(held)
        return peak

    def _last_uses(self, order: Sequence[Node], outputs: Sequence[Value]) -> dict[Value, int]:
        """The position of the last reader of each value, or of a view of it."""
        end = {value: position for position, node in enumerate(order) for value in node.outputs}
        for position, node in enumerate(order):
            for value in node.inputs:
                end[value] = position
        end.update(dict.fromkeys(outputs, len(order)))
        for node in reversed(order):
            if self._is_view(node):
                source = node.inputs[0]
                end[source] = max(end[source], end[node.outputs[0]])
        return end

    def _shared(
        self,
        node: Node,
        value: Value,
        position: int,
        owner: Mapping[Value, Value],
        end: Mapping[Value, int],
    ) -> Value | None:
        """The value in whose memory `node` puts its output; None if it takes its own."""
        if self._is_view(node) and not node.inputs[0].is_constant:
            return owner.get(node.inputs[0], node.inputs[0])
        if not (isinstance(node.op, Operator) and node.op.elementwise):
            return None
        for source in node.inputs:
            held = owner.get(source, source)
            ends = not source.is_constant and not held.is_leaf and end[held] <= position
            if ends and self.bytes_of(held) == self.bytes_of(value):
                return held
        return None

    def _is_view(self, node: Node) -> bool:
        return isinstance(node.op, Operator) and node.op.name in self._target.views


EXACT: Mapping[Objective, type[ExactCost]] = {
    cost.name: cost for cost in (PeakMemory, WeightBytes, OperatorCount)
}


def operators(graph: Graph) -> int:
    """How many operators run each time: those that do not depend on constants alone."""
    return sum(not node.constant and not isinstance(node.op, Leaf) for node in graph.nodes)
