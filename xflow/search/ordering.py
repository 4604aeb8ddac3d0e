"""The order of the nodes of a component in which it is cut: what belongs together is neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xflow.core.node import Node


def ordered(nodes: Sequence[Node], kernels: Iterable[frozenset[Node]], most: int) -> Sequence[Node]:
    """`nodes`, which stand behind what they read, in another such order, as near to the old one.

    What stands between the nodes of one of `kernels` and does not depend on them, such as the
    values of an attention between its scores and its sum, or its mask, comes before them all: then
    no cut has to choose between them. Up to `most` nodes need not be cut, and stay as they are.
    """
    if len(nodes) <= most:
        return nodes
    inside = set(nodes)
    order = list(nodes)
    for kernel in (kernel & inside for kernel in kernels):
        places = [i for i, node in enumerate(order) if node in kernel]
        if not places or places[-1] - places[0] < len(kernel):
            continue
        between = order[places[0] : places[-1] + 1]
        behind = _with_users(between, kernel)
        order[places[0] : places[-1] + 1] = sorted(between, key=behind.__contains__)
    return order


def _with_users(nodes: Iterable[Node], chosen: frozenset[Node]) -> set[Node]:
    """Those of `nodes`, given in order, that are chosen or depend on such through others."""
    found: set[Node] = set()
    for node in nodes:
        if node in chosen or any(value.node in found for value in node.inputs):
            found.add(node)
    return found
