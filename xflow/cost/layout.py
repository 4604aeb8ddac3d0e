"""Models which images the runtime keeps in its own layout, and where it converts them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Value
from xflow.core.size import Size, product
from xflow.cost.fusion import operator_name
from xflow.cost.target import Layout


class LayoutModel:
    """Decides where the runtime uses its layout, and caches the answers for nodes."""

    def __init__(self, layout: Layout | None) -> None:
        self.layout = layout
        self._blocked: dict[Node, bool] = {}
        self._wanting: dict[Node, bool] = {}

    def converted(
        self,
        graph: Graph,
        inside: Container[Node] = (),
        wanted: Sequence[bool] = (),
        transposed: Container[Node] = (),
    ) -> set[Value]:
        """The images that the runtime converts to its layout or from it, while it runs.

        `wanted` says which outputs are wanted in the layout; nodes `inside` of fused kernels do
        not count. What a conversion from the layout has `transposed` on the way stands for itself.
        """
        found: set[Value] = set()
        if self.layout is None:
            return found
        if any(map(self.is_blocked, graph.nodes)):
            for node in graph.nodes:
                if node.constant or not node.inputs or node in inside:
                    continue
                wants = self.wants_blocks(node)
                for value in node.inputs:
                    if self._blocked[value.node] != wants and not value.is_constant:
                        found.add(node.outputs[0] if node in transposed and not wants else value)
        for number, value in enumerate(graph.outputs):
            wants = number < len(wanted) and wanted[number]
            if self._blocked.get(value.node, False) != wants and may_be_blocked(value, self.layout):
                found.add(value)
        return found

    def transposed(self, graph: Graph, readers: Mapping[Value, int]) -> set[Node]:
        """The transposes that conversions do on the way.

        From the layout any of them, each in a conversion of its own; to the layout only one that
        is read by an operator in the layout alone (`readers` says how often values are read).
        """
        layout = self.layout
        found: set[Node] = set()
        waiting: set[Value] = set()
        if layout is None:
            return found
        for node in graph.nodes:
            if node.constant or operator_name(node) != "Transpose":
                continue
            perm = node.attributes["perm"]
            if perm == layout.to_last and self.is_blocked(node.inputs[0].node):
                found.add(node)
            elif perm == layout.to_first and readers[node.outputs[0]] == 1:
                waiting.add(node.outputs[0])
        if waiting:
            for node in graph.nodes:
                for value in node.inputs:
                    if value in waiting and self.wants_blocks(node):
                        found.add(value.node)
        return found

    def is_blocked(self, node: Node) -> bool:
        """Whether the runtime gives the result of `node` in its layout."""
        known = self._blocked.get(node)
        if known is not None:
            return known
        stack = [node]
        while node not in self._blocked:
            inner = stack[-1]
            unknown = [value.node for value in inner.inputs if value.node not in self._blocked]
            if unknown:
                stack.extend(unknown)
                continue
            self._blocked[inner] = self._gives_blocks(inner)
            stack.pop()
        return self._blocked[node]

    def wants_blocks(self, node: Node) -> bool:
        """Whether the runtime's operator for `node` reads images in its layout."""
        known = self._wanting.get(node)
        if known is None:
            layout = self.layout
            known = layout is not None and self.is_blocked(node) and not _is_first(node, layout)
            self._wanting[node] = known
        return known

    def tasks(self, node: Node) -> Size | None:
        """How many parts of a convolution in its layout the runtime shares out among threads.

        Each is a row of the result in some blocks of channels. None for other operators.
        """
        layout = self.layout
        if layout is None or operator_name(node) != "Conv" or not self.is_blocked(node):
            return None
        images, channels, rows, _ = node.types[0].shape
        blocks = 1 if node.inputs[1].shape[1] == 1 else layout.blocks_at_once
        return images * rows * -(-channels // (layout.block * blocks))

    def filled(self, node: Node) -> float:
        """The part of what a convolution in its layout computes that is channels of the model.

        The rest fills up blocks: of the result always, and of an image that is read in the layout.
        """
        layout = self.layout
        if layout is None or operator_name(node) != "Conv" or not self.is_blocked(node):
            return 1.0
        outer, inner = node.inputs[1].shape[:2]
        read = self.wants_blocks(node) and node.attributes["group"] == 1
        return _filled(outer, layout) * (_filled(inner, layout) if read else 1.0)

    def _gives_blocks(self, node: Node) -> bool:
        """Whether it gives the layout; that is known of its sources."""
        layout = self.layout
        if layout is None or not may_be_blocked(node.outputs[0], layout):
            return False
        if isinstance(node.op, Leaf):
            return node.op.blocked
        name = operator_name(node)
        if name == "Conv":
            return _suits_layout(node, layout)
        if name in layout.enters:
            return fills_blocks(node.types[0].shape[1], layout)
        if name in layout.behind:
            return operator_name(source := node.inputs[0].node) == "Conv" and self._blocked[source]
        if name not in layout.stays:
            return False
        if not all(v.is_constant or self._blocked[v.node] for v in node.inputs):
            return False
        if name == "Concat":
            axis = node.attributes["axis"]
            return axis == 1 and all(fills_blocks(v.shape[1], layout) for v in node.inputs)
        if name == "Resize":
            # The runtime enlarges pixels of blocks, and neither batches nor channels.
            return node.types[0].shape[:2] == node.inputs[0].shape[:2]
        return all(
            v.shape == node.types[0].shape or (v.is_constant and _is_per_channel(v, node))
            for v in node.inputs
        )


def _is_first(node: Node, layout: Layout) -> bool:
    """Whether it is a convolution that makes blocks of channels out of fewer than one has."""
    return (
        operator_name(node) == "Conv"
        and node.attributes["group"] == 1
        and isinstance(channels := node.inputs[0].shape[1], int)
        and channels < layout.block
    )


def _suits_layout(node: Node, layout: Layout) -> bool:
    """Whether the runtime computes a convolution in its own layout."""
    group, weight = node.attributes["group"], node.inputs[1]
    if not weight.is_constant or len(node.types) > 1:
        return False
    inner, outer = weight.shape[1], weight.shape[0]
    if group == 1:
        return _is_first(node, layout) or _divides(layout.aligned, inner)
    if inner == 1 and outer == group:
        return _divides(layout.aligned, outer)
    return fills_blocks(inner, layout) and fills_blocks(outer, layout)


def may_be_blocked(value: Value, layout: Layout) -> bool:
    """Whether a value is an image such as the runtime may have in its layout."""
    return (
        value.type.dtype == layout.dtype
        and len(value.shape) == layout.rank
        and not value.is_constant
    )


def fills_blocks(channels: Size, layout: Layout) -> bool:
    """Whether so many channels are known to fill blocks of the layout."""
    return _divides(layout.block, channels)


def _filled(channels: Size, layout: Layout) -> float:
    """The part of the blocks for so many channels that they fill."""
    if not isinstance(channels, int) or not channels:
        return 1.0
    return channels / (-(-channels // layout.block) * layout.block)


def _divides(number: int, channels: Size) -> bool:
    return isinstance(channels, int) and channels % number == 0


def _is_per_channel(constant: Value, node: Node) -> bool:
    """Whether a constant that `node` applies is one number for each channel."""
    channels = node.types[0].shape[1]
    return product(constant.shape) == channels and channels in constant.shape[:2]
