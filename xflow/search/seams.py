"""Parts of a component of a graph, cut at the seams that the least data passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from xflow.core.node import Node, Value
from xflow.core.size import UNKNOWN_SIZE, product, with_all
from xflow.search.policy import Policy


def parts_of(
    nodes: Sequence[Node],
    shifted: bool,
    kernels: Iterable[frozenset[Node]],
    policy: Policy,
) -> list[list[Node]]:
    """Consecutive stretches of `nodes`, cut where few values or little data passes.

    No cut goes through operators that the runtime computes by one kernel, or may after a rewrite:
    the costs of its parts do not add up to that of the whole.
    """
    most, merged = policy.region_nodes, policy.merged_nodes
    seams = _seams(nodes, most)
    place = {node: i for i, node in enumerate(nodes)}
    for kernel in kernels:
        places = [place[node] for node in kernel if node in place]
        if places and max(places) - min(places) < most:
            for i in range(min(places), max(places)):
                seams[i] = replace(seams[i], within=seams[i].within + 1)
    stretches: list[list[Node]] = [[]]
    for node, seam in zip(nodes, seams, strict=True):
        stretches[-1].append(node)
        if seam.is_bottleneck:
            stretches.append([])
    parts: list[list[Node]] = []
    limit = merged // 2 if shifted else merged
    start = 0
    for stretch in filter(None, stretches):
        those = seams[start : start + len(stretch)]
        start += len(stretch)
        if parts and len(parts[-1]) + len(stretch) <= limit:
            parts[-1].extend(stretch)
            continue
        if parts:
            limit = merged
        parts.extend(_split(stretch, those, most // 2 if shifted else most, most))
        if len(parts[-1]) > merged and not shifted:
            limit = len(parts[-1]) + policy.tail_nodes
    return parts


def _split(nodes: list[Node], seams: Sequence[_Seam], limit: int, most: int) -> list[list[Node]]:
    """Stretches of at most `most` nodes, the first of at most `limit`, cut at the best seams."""
    parts = []
    start = 0
    while len(nodes) - start > limit:
        middle = start + limit // 2
        # Before the middle only where all behind it is inside of one kernel. Where everything is,
        # an attention is rather cut from the scales of its factors than in two.
        badness = {
            i: (seams[i].within, i < middle, seams[i].width, -i)
            for i in range(start, start + limit)
        }
        end = min(badness, key=badness.__getitem__) + 1
        parts.append(nodes[start:end])
        start, limit = end, most
    parts.append(nodes[start:])
    return parts


@dataclass(frozen=True)
class _Seam:
    """The place after a node, which values pass that later nodes read from earlier ones."""

    values: int
    elements: int
    """The number of all their elements."""
    within: int = 0
    """Number of kernels of the runtime, present or possible ones, that it lies inside of."""

    @property
    def is_bottleneck(self) -> bool:
        """Whether the graph is always cut here."""
        return self.values <= 1 and not self.within

    @property
    def width(self) -> tuple[int, int]:
        """The order of seams, the best first: the least data passes it.

        Not the fewest values: the scores of an attention are one value, larger than all that they
        are computed from. A region that has large values inside can be rewritten without them.
        """
        return self.elements, self.values


def _seams(nodes: Sequence[Node], most: int) -> list[_Seam]:
    """The places after each of the nodes, of which a region has at most so many.

    Values from outside pass from their first reader to their last, unless that is so far that no
    region would hold both: what every layer reads ties no layers together.
    """
    start = {value: i for i, node in enumerate(nodes) for value in node.outputs}
    outside = {}
    last: dict[Value, int] = {}
    for i, node in enumerate(nodes):
        for value in node.inputs:
            if not value.is_constant:
                if value not in start:
                    outside[value] = start[value] = i
                last[value] = i
    values, elements = [0] * (len(nodes) + 1), [0] * (len(nodes) + 1)  # how many more pass here
    for value, end in last.items():
        if value not in outside or end - start[value] < most:
            size = with_all(product(value.shape), UNKNOWN_SIZE)
            for place, sign in (start[value], 1), (end, -1):
                values[place] += sign
                elements[place] += sign * size
    return [*map(_Seam, accumulate(values[:-1]), accumulate(elements[:-1]))]
