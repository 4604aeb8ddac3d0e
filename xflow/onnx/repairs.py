"""What the ONNX checker objects to though ONNX Runtime does not, put right before anything else.

Deployed models have nodes in any order, graphs without a name, weights that older versions of the
IR want to be inputs, operators of the runtime whose domain is not imported, outputs without a type.
Each of these has one meaning, and the runtime serves them. What has none, as nodes that wait for
one another, is told in one sentence.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

import onnx

from xflow.core.errors import ModelError
from xflow.core.expressions import shortened
from xflow.onnx.external_data import graphs_of
from xflow.onnx.inference import InferenceError, infer_shapes
from xflow.onnx.proto_compat import all_nodes, inner_graphs

PUT_RIGHT = "xflow.put_right"
"""What holds, of a model in memory, the sentences about what was put right in it."""
LONE_WEIGHTS = 4
"""The IR version from which on weights need not be inputs."""
CONTRIB = "com.microsoft"
"""The runtime's own domain, of which there is one version."""
NAME = "graph"
"""The name of a graph that has none."""


def put_right(proto: onnx.ModelProto) -> list[str]:
    """Change what the checker alone objects to; returns a sentence about each sort of change.

    Raises ModelError where the nodes of a graph have no order.
    """
    notes = []
    if sort_nodes(proto):
        notes.append("The nodes of the model were not in the order of their inputs; they are now.")
    nameless = [graph for graph in _graphs(proto) if not graph.name]
    for graph in nameless:
        graph.name = NAME
    if nameless:
        notes.append(f"A graph without a name is called {NAME!r} now.")
    if proto.ir_version < LONE_WEIGHTS and any(map(_lone_weights, graphs_of(proto))):
        notes.append(
            f"The IR version was raised from {proto.ir_version} to {LONE_WEIGHTS}, in which "
            "weights need not be inputs."
        )
        proto.ir_version = LONE_WEIGHTS
    if CONTRIB not in {each.domain for each in proto.opset_import} and any(
        node.domain == CONTRIB for graph in graphs_of(proto) for node in graph.node
    ):
        proto.opset_import.add(domain=CONTRIB, version=1)
        notes.append(f"The domain {CONTRIB} is imported now, of which it has operators.")
    values = {each.key: each.value for each in proto.metadata_props}
    if len(values) < len(proto.metadata_props):
        del proto.metadata_props[:]
        for key, value in values.items():
            proto.metadata_props.add(key=key, value=value)
        notes.append("Metadata that were there twice are there once, as the runtime reads them.")
    if _add_types(proto):
        notes.append("Outputs without a type have the one that follows from the operators.")
    return notes


def sort_nodes(proto: onnx.ModelProto) -> bool:
    """Put the nodes of all graphs behind those whose results they read; says if any had to move.

    Nodes keep their order otherwise. What a graph inside an operator reads is read by the operator.
    Raises ModelError.
    """
    moved = False
    main, *inside = _graphs(proto)
    # The innermost first: what is in a node goes with it when it is moved.
    for part in reversed([main, *proto.functions, *inside]):
        order = _order(part.node)
        if order != list(range(len(order))):
            nodes = onnx.GraphProto(node=[part.node[number] for number in order]).node
            del part.node[:]
            part.node.extend(nodes)
            moved = True
    return moved


def _order(nodes: Iterable[onnx.NodeProto]) -> list[int]:
    """The numbers of nodes in an order in which each comes behind what it reads."""
    nodes = list(nodes)
    makers = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    if len(makers) < sum(name != "" for node in nodes for name in node.output):
        return list(range(len(nodes)))  # two nodes make one value: the checker says so
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for number, node in enumerate(nodes):
        sorter.add(number, *{makers[name] for name in _reads(node) if name in makers})
    try:
        sorter.prepare()
    except CycleError as error:
        circle = [_called(nodes[number]) for number in error.args[1][:-1]]
        shown = ", ".join(circle[:SHOWN]) + (", ..." if len(circle) > SHOWN else "")
        what = f"nodes wait for the results of one another in a circle ({shown})"
        raise ModelError(what, do="export the model again") from None
    order: list[int] = []
    ready: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heapq.heappush(ready, number)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    return order


SHOWN = 5
"""Nodes of a circle that are named."""


def _called(node: onnx.NodeProto) -> str:
    return shortened(f"{node.op_type} {node.name or node.output[0]}", 60)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names of what a node reads, by graphs inside it, too."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if _has_graphs(attribute) else ():
            own = {*(each.name for each in graph.input), *weights(graph)}
            own |= {name for inner in graph.node for name in inner.output}
            read = {name for inner in graph.node for name in _reads(inner)}
            yield from (read | {each.name for each in graph.output}) - own


def _has_graphs(attribute: onnx.AttributeProto) -> bool:
    return bool(attribute.HasField("g") or attribute.graphs)


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """All graphs of a model, those inside operators of functions included."""
    yield proto.graph
    for node in all_nodes(proto):
        yield from inner_graphs(node)


def weights(graph: onnx.GraphProto) -> set[str]:
    """The names of a graph's own weights, dense or sparse."""
    dense = {tensor.name for tensor in graph.initializer}
    return dense | {tensor.values.name for tensor in graph.sparse_initializer}


def _lone_weights(graph: onnx.GraphProto) -> bool:
    """Whether a graph has weights that are no inputs."""
    return bool(weights(graph) - {each.name for each in graph.input})


def _add_types(proto: onnx.ModelProto) -> bool:
    """Give outputs without a type the one that inference finds; says if it found one for any."""
    bare = {each.name for each in proto.graph.output if not each.HasField("type")}
    if not bare:
        return False
    slim = onnx.ModelProto()
    slim.CopyFrom(proto)
    for output in slim.graph.output:
        if output.name in bare:  # what inference does not look for, it does not give
            slim.graph.value_info.add(name=output.name)
    try:
        inferred = infer_shapes(slim)
    except InferenceError:
        return False
    known = {each.name: each.type for each in (*inferred.graph.output, *inferred.graph.value_info)}
    found = False
    for output in proto.graph.output:
        kind = known.get(output.name)
        if output.name in bare and kind is not None and kind.WhichOneof("value"):
            output.type.CopyFrom(kind)
            found = True
    return found
