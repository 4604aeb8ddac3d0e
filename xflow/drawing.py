"""A model before and after as a page draws it, and what was left as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xflow.cost.estimate import Estimator
from xflow.cost.fusion import count_readers
from xflow.graph import Graph, Leaf, Node, Opaque, Value, walk
from xflow.lineage import lineage
from xflow.onnx_import import Imported, is_shape_arithmetic
from xflow.ops.registry import by_onnx
from xflow.report import Missed
from xflow.search import Replacement, apply_round, rounds

Json = dict[str, Any]

MOST = 5000
"""Nodes of a model from which on it is not drawn: nobody would look at them."""


def draw(imported: Imported, trace: Trace, graph: Graph) -> Json | None:
    """A graph and the one that it became, without weights; None for graphs that are too large.

    A node's `region` is the number of a set of rewrites that touch each other, -1 where it is as it
    was; `regions` are these sets, by the numbers of the rewrites in the log from 0.
    """
    if len(imported.graph.nodes) > MOST:
        return None
    regions = trace.regions()
    number = {rewrite: index for index, region in enumerate(regions) for rewrite in region}
    names = [onnx_name(imported, node) for node in imported.graph.nodes]
    before = {
        node: number[trace.replaced[index]]
        for index, node in enumerate(imported.graph.nodes)
        if index in trace.replaced
    }
    after = {node: number[rewrite] for node, rewrite in trace.made.items()}
    own = {node: names[index] for node, index in trace.origin.items()}
    first = {node: names[index] for index, node in enumerate(imported.graph.nodes)}
    return {
        "before": _graph(imported, imported.graph, first, before),
        "after": _graph(imported, graph, own, after),
        "regions": regions,
    }


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


def onnx_name(imported: Imported, node: Node) -> str:
    """The name that the model has for a node, or for the first value that it computes."""
    if isinstance(node.op, Leaf):
        return node.op.key
    for value in node.outputs:
        source = imported.origin.get(value)
        if source is not None:
            producer = source.producer()
            return (producer.name if producer is not None else None) or source.name or ""
    return ""


def _graph(
    imported: Imported, graph: Graph, names: Mapping[Node, str], regions: Mapping[Node, int]
) -> Json:
    """A graph, with the model's outputs as nodes behind it."""
    numbers: dict[Node, int] = {}
    nodes: list[Json] = []
    for node in graph.nodes:
        if node.constant:
            continue
        numbers[node] = len(nodes)
        nodes.append(
            {
                "name": names.get(node, ""),
                "op": _operator(imported, node),
                "inputs": [numbers[value.node] for value in node.inputs if not value.is_constant],
                "shape": ", ".join(map(str, node.types)),
                "region": regions.get(node, -1),
            }
        )
    for value, source in zip(graph.outputs, imported.model.graph.outputs, strict=True):
        nodes.append(
            {
                "name": source.name or "",
                "op": "output",
                "inputs": [numbers[value.node]] if value.node in numbers else [],
                "shape": str(value.type),
                "region": -1,
            }
        )
    return {"nodes": nodes}


def _operator(imported: Imported, node: Node) -> str:
    if isinstance(node.op, Leaf):
        return "input"
    if isinstance(node.op, Opaque):
        return imported.opaque_nodes[node.op.key].op_type
    return node.op.name


def missed(imported: Imported, graph: Graph, estimator: Estimator) -> tuple[Missed, ...]:
    """What no rule can speak of, and what the runtime will not fuse, in `graph`."""
    found: Counter[tuple[str, str]] = Counter()
    for node in graph.nodes:
        if isinstance(node.op, Opaque):
            source = imported.opaque_nodes[node.op.key]
            found[source.op_type, _why_opaque(imported, node)] += 1
    readers = count_readers(graph)
    kernels = estimator.fusions.chosen(graph, readers, graph.outputs)
    fused = {inner for kernel in kernels.values() for inner in kernel.inside} | set(kernels)
    for node in graph.nodes:
        ending = () if node in fused or node.constant else estimator.fusions.ending_at(node)
        if ending and all(fused.isdisjoint(kernel.inside) for kernel in ending):
            result = ending[0].inner and node.outputs[0] in graph.outputs
            why = "it is an output of the model" if result else "others read what lies inside"
            found[ending[0].name, f"the runtime does not fuse it, since {why}"] += 1
    order = sorted(found.items(), key=lambda item: (item[0][1], -item[1], item[0][0]))
    return tuple(Missed(what, count, why) for (what, why), count in order)


def _why_opaque(imported: Imported, node: Node) -> str:
    assert isinstance(node.op, Opaque)
    source = imported.opaque_nodes[node.op.key]
    version = source.version or imported.model.graph.opset_imports.get(source.domain) or 0
    if all(map(is_shape_arithmetic, node.outputs)):
        return "it computes shapes, which takes no time"
    if not by_onnx(source.op_type, source.domain, version):
        return "no operator of xflow's describes it, so it is passed through"
    return "this form of it is not described: its attributes, types or unknown sizes"
