"""Regions around images whose channels do not fill blocks of the layout of the runtime."""

from __future__ import annotations

from collections.abc import Sequence

from xflow.core.graph import Graph
from xflow.core.node import Node, Value
from xflow.cost import Layouts
from xflow.cost.fusion import operator_name
from xflow.cost.layout import fills_blocks, may_be_blocked
from xflow.cost.target import Layout
from xflow.search.constants import Constants
from xflow.search.cutting import components_of, levels_of, region_of
from xflow.search.region import Region


def cut_unfilled(graph: Graph, constants: Constants, layouts: Layouts) -> list[Region]:
    """The parts of `graph` with images that are outside of the target's layout for their channels.

    Only those in which the runtime may go over to that layout: the heads of an attention are no
    images. However large: with all nodes that have to take part if such images are to fill blocks
    of the layout, from the convolutions that make them to those that read them, and with the nodes
    on ways between two such images. In an order as that of `cut`.
    """
    layout = layouts.target.layout
    if layout is None:
        return []
    regions: list[Region] = []
    sensitive = constants.contexts(graph)
    for nodes in levels_of(graph, late=False):
        between = _between(nodes, _kept_outside(nodes, layout, layouts))
        regions += [
            region_of(graph, part, constants, layouts, sensitive)
            for part in components_of(between)
            if any(operator_name(node) in layout.enters for node in part)
        ]
    return [region for region in regions if region.outputs]


def _kept_outside(nodes: Sequence[Node], layout: Layout, layouts: Layouts) -> set[Node]:
    """The nodes around unfilled images, without groups that are in the layout throughout.

    A group reads or gives the same images, up to the convolutions that make new channels: where all
    of it is in the layout, channels that fill blocks gain nothing.
    """
    images = _unfilled_images(nodes, layout)
    touching: dict[Value, list[Node]] = {}
    for node, values in images.items():
        for value in values:
            touching.setdefault(value, []).append(node)
    waiting = [
        node
        for node in images
        if operator_name(node) in layout.inside and not layouts.is_blocked(node)
    ]
    found = set(waiting)
    while waiting:
        for value in images[waiting.pop()]:
            for other in touching[value]:
                if other not in found:
                    found.add(other)
                    if not _mixes(other):
                        waiting.append(other)
    return found


def _unfilled_images(nodes: Sequence[Node], layout: Layout) -> dict[Node, list[Value]]:
    """The nodes that read or give images whose channels do not fill blocks, with these images.

    Also images that other operators than convolutions compute from these.
    """
    found: dict[Node, list[Value]] = {}
    made: set[Value] = set()
    """Images made of such."""
    for node in nodes:
        read = [
            value
            for value in node.inputs
            if not value.is_constant and (value in made or _is_unfilled(value, layout))
        ]
        if read and not _mixes(node):
            given = [value for value in node.outputs if may_be_blocked(value, layout)]
            made.update(given)
        else:
            given = [value for value in node.outputs if _is_unfilled(value, layout)]
        if read or given:
            found[node] = [*read, *given]
    return found


def _mixes(node: Node) -> bool:
    """Whether it is a convolution that makes new channels of all that it reads."""
    return node.role == "convolution" and node.attributes.get("group", 1) == 1


def _is_unfilled(value: Value, layout: Layout) -> bool:
    """Whether it is known to be an image whose channels do not fill blocks."""
    if not may_be_blocked(value, layout):
        return False
    channels = value.shape[1]
    return isinstance(channels, int) and not fills_blocks(channels, layout)


def _between(nodes: Sequence[Node], some: set[Node]) -> list[Node]:
    """Those of `nodes` that are some of them, or lie on a way from one of these to another."""
    behind, before = set(some), set(some)
    for node in nodes:
        if any(value.node in behind for value in node.inputs):
            behind.add(node)
    for node in reversed(nodes):
        if node in before:
            before.update(value.node for value in node.inputs)
    return [node for node in nodes if node in behind and node in before]
