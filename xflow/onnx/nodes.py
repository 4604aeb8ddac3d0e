"""Single nodes of an ONNX model: what is inside them, and when two compute the same."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from xflow.core.limits import bounded_memory
from xflow.core.registry import Array

RANDOM = frozenset(
    (
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Bernoulli", "Multinomial", "Dropout"),
    )
)
"""Operators whose results are not determined by their inputs."""

COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
PLAIN = (
    ir.AttributeType.INT,
    ir.AttributeType.INTS,
    ir.AttributeType.FLOAT,
    ir.AttributeType.FLOATS,
    ir.AttributeType.STRING,
    ir.AttributeType.STRINGS,
)
"""Types of attributes that are Python values."""

HASHED = (*PLAIN, ir.AttributeType.TENSOR)
"""Types of attributes that can be told apart by a hash."""

_KNOWN_DOMAINS = ("ai.onnx", "com.microsoft", "com.ms.")
_PURE_DOMAINS = ("", "ai.onnx.ml")


def computation_key(node: ir.Node, model: ir.Model) -> str | None:
    """The same text for nodes that are the same function of their inputs; None for impure ones.

    Impure is what is random, has subgraphs, or belongs to a domain that we do not know.
    """
    version = model.graph.opset_imports.get(node.domain)
    pure = (
        node.domain in _PURE_DOMAINS
        and node.op_type not in RANDOM
        and node.op_identifier() not in model.functions
        and version is not None
        and onnx.defs.has(node.op_type, version, node.domain)
        and all(a.type in HASHED and not a.is_ref() for a in node.attributes.values())
    )
    if not pure:
        return None
    present = "".join("_" if value is None else "x" for value in node.inputs)
    given = "".join("x" if value.name else "_" for value in node.outputs)
    digest = hashlib.sha256(f"{node.domain} {version} {present} {given}".encode())
    for name, attribute in sorted(node.attributes.items()):
        digest.update(f"\0{name}\0{attribute.type}\0".encode())
        if attribute.type == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            strings = tensor.dtype == ir.DataType.STRING
            content = repr(tensor.numpy().tolist()).encode() if strings else tensor.tobytes()
            digest.update(f"{tensor.dtype} {tensor.shape}".encode() + content)
        else:
            digest.update(repr(attribute.value).encode())
    return f"{node.op_type}:{digest.hexdigest()[:16]}"


def has_foreign_operators(model: ir.Model) -> bool:
    """Whether a model has operators that neither it nor ONNX defines, nor the runtime.

    To run it takes a library that is not here.
    """
    own = {identifier[0] for identifier in model.functions}
    return any(
        node.domain not in own and not node.domain.startswith(_KNOWN_DOMAINS)
        for node in model.graph.all_nodes()
        if node.domain
    )


def is_defined_elsewhere(node: ir.Node) -> bool:
    """Whether ONNX or the runtime has an operator of this name, or may have one.

    If the model defines it as well, ONNX leaves open which of the two is meant.
    """
    of_the_runtime = node.domain.startswith(_KNOWN_DOMAINS[1:])
    return of_the_runtime or bool(onnx.defs.has(node.op_type, domain=node.domain))


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor that a Constant node holds; None for other nodes and sparse constants."""
    if node.op_type != "Constant" or node.domain != "" or len(node.attributes) != 1:
        return None
    (attribute,) = node.attributes.values()
    if attribute.is_ref():
        return None
    match attribute.name:
        case "value":
            return attribute.as_tensor()
        case "value_float" | "value_floats":
            return ir.tensor(np.asarray(attribute.value, np.float32))
        case "value_int" | "value_ints":
            return ir.tensor(np.asarray(attribute.value, np.int64))
    return None


def evaluate_node(node: ir.Node, opset: int, inputs: Sequence[Array | None]) -> Array | None:
    """The result of a node on constants by the reference evaluator; None where it fails."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - slow to load, rarely needed

    names = [f"i{k}" if array is not None else "" for k, array in enumerate(inputs)]
    proto = ir.to_proto(node)
    del proto.input[:], proto.output[:]
    proto.input.extend(names)
    proto.output.append("o")
    feeds = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    typed = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    graph = onnx.helper.make_graph([proto], "g", typed, [onnx.ValueInfoProto(name="o")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"), bounded_memory():
            (result,) = ReferenceEvaluator(model).run(None, feeds)
        return np.asarray(result)
    except Exception:  # whatever it cannot do is no constant for us
        return None


def graph_attributes(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """The graphs in a node's attributes, with the names of these."""
    for attribute in node.attributes.values():
        yield from ((attribute.name, graph) for graph in graphs_of(attribute))


def graphs_of(attribute: ir.Attr) -> tuple[ir.Graph, ...]:
    """The graphs that an attribute holds, those inside of them aside."""
    if attribute.is_ref():
        return ()
    if attribute.type == ir.AttributeType.GRAPHS:
        return tuple(attribute.as_graphs())
    return (attribute.as_graph(),) if attribute.type == ir.AttributeType.GRAPH else ()


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs in a node's attributes, at any depth."""
    for _, graph in graph_attributes(node):
        yield graph
        for inner in graph:
            yield from subgraphs(inner)


def captured_values(node: ir.Node) -> tuple[ir.Value, ...]:
    """The values from outside that a node's subgraphs read, each once."""
    graphs = list(subgraphs(node))
    own: set[ir.Value] = set()
    for graph in graphs:
        own.update(graph.inputs, graph.initializers.values())
        for inner in graph:
            own.update(inner.outputs)
    read: dict[ir.Value, None] = {}
    for graph in graphs:
        for inner in graph:
            read.update((value, None) for value in inner.inputs if value is not None)
        read.update((value, None) for value in graph.outputs)
    return tuple(value for value in read if value not in own)


def sorted_nodes(nodes: Sequence[ir.Node], order: Mapping[ir.Node, int]) -> list[ir.Node]:
    """Nodes with inputs before users, by their place in `order` as far as that allows.

    A node without one comes behind what it reads.
    """
    producers = {output: node for node in nodes for output in node.outputs}
    waiting: dict[ir.Node, int] = {}
    users: dict[ir.Node, list[ir.Node]] = {}
    place: dict[ir.Node, tuple[int, int]] = {}
    for number, node in enumerate(nodes):
        read = {*node.inputs, *captured_values(node)}
        before = {producers[value] for value in read if value in producers}
        after = max((place[other][0] for other in before), default=-1)
        place[node] = (order.get(node, after), number)
        waiting[node] = len(before)
        for other in before:
            users.setdefault(other, []).append(node)
    ready = [(place[node], node) for node in nodes if not waiting[node]]
    heapq.heapify(ready)
    result = []
    while ready:
        _, node = heapq.heappop(ready)
        result.append(node)
        for user in users.get(node, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (place[user], user))
    return result
