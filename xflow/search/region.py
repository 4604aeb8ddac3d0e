"""Regions: the parts of a graph that are searched on their own.

A region is a connected, convex set of registry nodes with the constant expressions that they read:
nothing leaves it and comes back. Its graph stands over numbered leaves, and since graphs are
hash-consed, regions that are equal up to names and weights have one and the same graph: a
solution of one holds for all of them. The data of constants on which rules could depend belongs to
the leaf's key; all other data is hidden from the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xflow.analysis.observers import Observed
from xflow.analysis.on_codes import WHOLE, Border
from xflow.core.graph import Graph, rebuild
from xflow.core.node import Leaf, Node, Value, apply, leaf
from xflow.core.size import Size
from xflow.cost import Layouts, Use
from xflow.rewriting.numerics import Hazard


@dataclass(frozen=True)
class Region:
    """A part of a graph.

    `graph` is over numbered leaves; `leaves` and `inputs` are these leaves and the values of the
    whole graph that they stand for; `outputs` are the values that `graph.outputs` stand for.
    """

    graph: Graph
    leaves: tuple[Value, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    uses: tuple[Use, ...]
    """How the outputs are used outside, as far as costs depend on it."""
    nodes: frozenset[Node]
    """The nodes of the whole graph that are in it, constant expressions aside."""
    outside: tuple[Observed, ...]
    """How the outputs are observed outside."""
    border: Border = WHOLE
    """What there is of codes around it."""
    careful: Hazard = Hazard.NONE
    """How a form of it lost digits: no step is tried that might lose some in that way."""

    @property
    def own(self) -> dict[Value, Value]:
        """The value that each leaf stands for."""
        return dict(zip(self.leaves, self.inputs, strict=True))

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for regions that share a solution."""
        return self.graph.outputs, self.uses, self.outside, self.border, self.careful

    def instantiate(self, outputs: Sequence[Value]) -> tuple[Value, ...]:
        """Values over the region's leaves as values of the whole graph."""
        return rebuild(outputs, self.own)

    def with_weights(self, outputs: Sequence[Value]) -> tuple[Value, ...]:
        """Values over the region's leaves with the graph's own weights; inputs stay leaves.

        Constants that an opaque node computes become inputs.
        """
        own: dict[Value, Value] = {}
        for mine, source in zip(self.leaves, self.inputs, strict=True):
            if source.is_constant:
                key = str(mine)
                own[mine] = source if source.is_leaf else leaf(key, source.type)
        return rebuild(outputs, own)

    def in_place(self, outputs: Sequence[Value]) -> Graph:
        """A graph with the region's own weights that costs what `outputs` cost in their place.

        Images that come in the runtime's own layout, or are wanted in it, pass an operator at the
        border that the runtime computes in that layout and that changes nothing. What several
        operators read is read by one more.
        """
        border = {mine: _in_blocks(mine) for mine in self.leaves if _is_blocked_leaf(mine)}
        inner = rebuild(outputs, border)
        read = [
            _in_blocks(value) if Use.BLOCKS in use else value
            for value, use in zip(inner, self.uses, strict=True)
        ]
        read += [
            _one_element(value)
            for value, use in zip(inner, self.uses, strict=True)
            if Use.SEVERAL in use and value.shape and all(map(_is_positive, value.shape))
        ]
        return Graph(self.with_weights(read))


def _is_blocked_leaf(value: Value) -> bool:
    return isinstance(value.node.op, Leaf) and value.node.op.blocked


def _in_blocks(image: Value) -> Value:
    """An image unchanged, but computed by a pool of single elements."""
    return apply("MaxPool", [image], {"kernel_shape": (1,) * (len(image.shape) - 2)})[0]


def _one_element(value: Value) -> Value:
    """The first element of a tensor, along all of its axes."""
    axes = tuple(range(len(value.shape)))
    starts, ends = (0,) * len(axes), (1,) * len(axes)
    how = {"starts": starts, "ends": ends, "axes": axes, "steps": ends}
    return apply("Slice", [value], how)[0]


def _is_positive(size: Size) -> bool:
    return isinstance(size, int) and size > 0


def passes_blocks(image: Value, layouts: Layouts) -> bool:
    """Whether the runtime computes `_in_blocks` of an image in its own layout."""
    return layouts.is_blocked(_in_blocks(image).node)
