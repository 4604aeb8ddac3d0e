"""Graphs inside operators: the branches of If, the bodies of Loop and Scan, optimized on their own.

A body becomes a model whose inputs are its own and the values that it reads from outside; constants
from outside stay constants. What comes back takes its place, and reads the outside again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx
import onnx_ir as ir

from xflow.onnx.checker import check_message
from xflow.onnx.copying import copy_meta
from xflow.onnx.external_data import has_external_data
from xflow.onnx.inference import infer_shapes
from xflow.onnx.nodes import captured_values, graph_attributes
from xflow.onnx.proto_compat import from_message
from xflow.onnx.types import infer_types

BodyKey: TypeAlias = tuple[int, str]
"""Where a body is: the number of its node in the main graph, and the attribute."""

Optimize = Callable[[BodyKey, ir.Model, float], tuple[ir.Model, Sequence[str]] | None]
"""Gives a better model and what led to it, or None; the number is a share of the time."""

WEIGHT_BYTES = 64 * 2**20
"""Larger weights from outside are inputs of a body, as are those that lie in a file."""
LEAST = 2
"""Operators of a body from which on there may be something to gain."""


@dataclass(frozen=True)
class Rewritten:
    """A model with better bodies, and for each of these where it is and what led to it."""

    model: ir.Model
    places: tuple[BodyKey, ...]
    notes: tuple[str, ...]


def optimize_bodies(model: ir.Model, optimize: Optimize) -> Rewritten | None:
    """A copy of the model with its bodies optimized; None where none becomes better.

    Bodies inside bodies are met by `optimize` itself. The model is not changed.
    """
    copy = model.clone()
    copy_meta(model, copy)
    types = infer_types(copy)[0]
    places = [
        (position, node, attribute, body)
        for position, node in enumerate(copy.graph)
        for attribute, body in _bodies(node, copy)
    ]
    taken = set(_names(copy.graph))
    done: list[BodyKey] = []
    notes: list[str] = []
    for number, (position, node, attribute, body) in enumerate(places):
        place = position, attribute
        alone = _standalone(copy, node, attribute, body, types)
        found = None if alone is None else optimize(place, alone, 1 / (len(places) - number))
        if alone is None or found is None:
            continue
        better, rules = found
        imports = copy.graph.opset_imports
        if {**better.graph.opset_imports, **imports} != dict(better.graph.opset_imports):
            continue
        imports.update(better.graph.opset_imports)  # what an inlined function imports, too
        outer = {value.name or "": value for value in captured_values(node)}
        made = _body_of(better.graph, body, outer, taken)
        node.attributes[attribute] = ir.AttrGraph(attribute, made)
        where = f"{node.op_type} {node.name}".strip()
        done.append(place)
        notes.append(f"The {attribute} of {where} was rewritten by {', '.join(rules)}.")
    return Rewritten(copy, tuple(done), tuple(notes)) if done else None


def has_bodies(model: ir.Model) -> bool:
    """Whether some operator of a model has a graph in it that is worth a look."""
    return any(_bodies(node, model) for node in model.graph)


def _bodies(node: ir.Node, model: ir.Model) -> list[tuple[str, ir.Graph]]:
    """The graphs of a node that are large enough, or call functions, by attribute."""
    return [
        (name, graph)
        for name, graph in graph_attributes(node)
        if len(graph) >= LEAST or any(each.op_identifier() in model.functions for each in graph)
    ]


def _standalone(
    model: ir.Model, node: ir.Node, attribute: str, body: ir.Graph, types: Mapping[str, ir.Value]
) -> ir.Model | None:
    """The body as a model of its own; None where a type from outside is not known."""
    (graph,) = (each.g for each in ir.to_proto(node).attribute if each.name == attribute)
    own = {value.name for value in (*body.inputs, *body.initializers.values())}
    own.update(output.name for inner in body for output in inner.outputs)
    for value in captured_values(node):
        name = value.name or ""
        if not _reads(body, value):
            continue
        known = types.get(name)
        if known is None or known.type is None or known.shape is None or name in own:
            return None
        weight = _weight(value)
        if weight is not None:
            graph.initializer.append(ir.to_proto(weight))
            graph.initializer[-1].name = name
        else:
            info = ir.to_proto(ir.Value(name=name, type=known.type, shape=known.shape))
            graph.input.append(info)
    alone = onnx.ModelProto(ir_version=max(4, model.ir_version), graph=graph)
    for domain, version in model.graph.opset_imports.items():
        alone.opset_import.add(domain=domain, version=version)
    alone.functions.extend(ir.to_proto(function) for function in model.functions.values())
    if has_external_data(alone):  # its files are elsewhere
        return None
    try:
        if not all(output.type.ByteSize() for output in graph.output):  # as in functions
            alone = infer_shapes(alone)
        check_message(alone)
    except Exception:  # inputs without types, and the like
        return None
    made = from_message(alone)
    copy_meta(model, made)
    return made


def _weight(value: ir.Value) -> ir.TensorProtocol | None:
    """The data of a value from outside that the body may take for its own."""
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or isinstance(tensor, ir.ExternalTensor):
        return None
    return tensor if value.is_initializer() and tensor.nbytes <= WEIGHT_BYTES else None


def _reads(body: ir.Graph, value: ir.Value) -> bool:
    """Whether a body reads a value from outside, at any depth."""
    if any(output is value for output in body.outputs):
        return True
    return any(value in node.inputs for node in body.all_nodes())


def _body_of(
    graph: ir.Graph, body: ir.Graph, outer: Mapping[str, ir.Value], taken: set[str]
) -> ir.Graph:
    """The graph of a model as a body again, which reads `outer` and has no name of `taken` anew."""
    old = set(_names(body))
    own = len(body.inputs)
    replaced = {value: outer[value.name or ""] for value in graph.inputs[own:]}
    for name, value in graph.initializers.items():
        if name in outer and name not in body.initializers:
            replaced[value] = outer[name]
    nodes = list(graph)
    for node in graph.all_nodes():
        for position, read in enumerate(node.inputs):
            if read is not None and read in replaced:
                node.replace_input_with(position, replaced[read])
    inputs = list(graph.inputs[:own])
    outputs = list(graph.outputs)
    kept = [value for value in graph.initializers.values() if value not in replaced]
    for value in (*kept, *(each for node in nodes for each in node.outputs)):
        if value.name and value.name not in old and value.name in taken:
            value.name = _fresh(value.name, taken)
        taken.add(value.name or "")
    graph.remove(nodes)
    graph.inputs.clear()
    graph.outputs.clear()
    graph.initializers.clear()
    return ir.Graph(
        inputs,
        outputs,
        nodes=nodes,
        initializers=kept,
        doc_string=body.doc_string,
        name=body.name,
        metadata_props=dict(body.metadata_props),
    )


def _fresh(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _names(graph: ir.Graph) -> Iterator[str]:
    """All names of values in a graph and in the graphs inside it."""
    for value in (*graph.inputs, *graph.initializers.values()):
        yield value.name or ""
    for node in graph:
        for output in node.outputs:
            yield output.name or ""
        for _, inner in graph_attributes(node):
            yield from _names(inner)
