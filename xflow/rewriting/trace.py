"""Which nodes of a graph rewrites have replaced, and which they have made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xflow.core.graph import Graph, walk
from xflow.core.lineage import lineage
from xflow.core.node import Node, Value
from xflow.rewriting.replacement import Replacement, apply_round, rounds


def traced(graph: Graph, replacements: Sequence[Replacement]) -> tuple[Trace, Graph]:
    """The graph that replacements lead to, and which of its nodes is what."""
    trace, made = Trace(graph), graph
    for base, items in rounds(graph, replacements):
        made = trace.follow(base, items)
    return trace, made


class Trace:
    """Which nodes rewrites have replaced and made, round after round."""

    def __init__(self, graph: Graph) -> None:
        self.origin: dict[Node, int] = {node: k for k, node in enumerate(graph.nodes)}
        """The number of the first graph's node that a node of the present one is."""
        self.made: dict[Node, int] = {}
        """The rewrite that has made a node."""
        self.replaced: dict[int, int] = {}
        """The rewrite that has replaced a node of the first graph."""
        self.group: list[int] = []
        """For each rewrite another one that it touches, or itself."""

    def follow(self, graph: Graph, items: Sequence[Replacement]) -> Graph:
        """Make a round of rewrites."""
        present = set(graph.nodes)
        made: dict[Node, int] = dict(self.made)
        for item in items:
            number = len(self.group)
            self.group.append(number)
            cut = set(item.inputs)
            gone = _computed(walk(item.before, cut))
            come = _computed(walk(item.after, cut))
            for new, old in lineage(Graph(item.before), Graph(item.after)).items():
                # One that only reads another value is what it was, if its weights are, too.
                if new in come and old in gone and _weights(new) == _weights(old):
                    come.discard(new)
                    gone.discard(old)
                    self.inherit(new, old)
            for node in gone - come:
                if node in self.made:
                    self.group[self.root(number)] = self.root(self.made[node])
                else:
                    self.replaced.setdefault(self.origin[node], number)
            made.update((node, number) for node in come - present)
        moved: dict[Value, Value] = {}
        after = apply_round(graph, items, moved)
        pairs = {old.node: new.node for old, new in moved.items()}
        self.origin = {pairs[n]: k for n, k in self.origin.items() if n in pairs}
        made |= self.made  # what was made before and inherited now, too
        self.made = {pairs[n]: k for n, k in made.items() if n in pairs}
        return after

    def inherit(self, new: Node, old: Node) -> None:
        """Take one node for another that it descends from."""
        for known in (self.origin, self.made):
            if old in known:
                known[new] = known[old]

    def root(self, number: int) -> int:
        """The rewrite that stands for all that a rewrite touches."""
        while self.group[number] != number:
            number = self.group[number]
        return number

    def regions(self) -> list[list[int]]:
        """The sets of rewrites that touch each other."""
        found: dict[int, list[int]] = {}
        for number in range(len(self.group)):
            found.setdefault(self.root(number), []).append(number)
        return list(found.values())


def _weights(node: Node) -> tuple[Value, ...]:
    return tuple(value for value in node.inputs if value.is_constant)


def _computed(nodes: Iterable[Node]) -> set[Node]:
    return {node for node in nodes if not node.constant}
