"""A model before and after as a page draws it, and what was left as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Opaque
from xflow.cost.estimate import Estimator
from xflow.cost.fusion import count_readers
from xflow.onnx.imported import Imported
from xflow.onnx.importer import is_shape_arithmetic
from xflow.ops import by_onnx
from xflow.report.report import Missed
from xflow.rewriting.trace import Trace

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
