"""Whole models between protobuf's messages and onnx-ir, maps included.

onnx-ir has no type for a map, and refuses models that have one: the classifiers of scikit-learn, of
which each gives a sequence of maps from classes to probabilities. No rule speaks of maps, so it is
enough that they are kept: a value that is one, or holds some, has no type while onnx-ir has it, and
a note of what it was.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import onnx
import onnx_ir as ir

NOTE = "xflow.type"
"""The key under which a value's metadata hold a type that onnx-ir does not know."""


def from_message(proto: onnx.ModelProto) -> ir.Model:
    """The model that a message holds; raises what onnx-ir raises.

    The message is as it was afterwards. The model's tensors refer to its data.
    """
    held = [(info, info.type.SerializeToString()) for info in _infos(proto.graph) if _maps(info)]
    try:
        for info, kind in held:
            info.metadata_props.add(key=NOTE, value=base64.b64encode(kind).decode())
            info.ClearField("type")
        model: ir.Model = ir.from_proto(proto)
    finally:
        restore(proto.graph)
    return model


def to_message(model: ir.Model) -> onnx.ModelProto:
    """The message that holds a model."""
    proto: onnx.ModelProto = ir.to_proto(model)
    restore(proto.graph)
    return proto


def restore(graph: onnx.GraphProto) -> None:
    """Give each value of a graph the type that its note tells of, in place of the note."""
    for info in _infos(graph):
        for number, entry in enumerate(info.metadata_props):
            if entry.key == NOTE:
                info.type.ParseFromString(base64.b64decode(entry.value))
                del info.metadata_props[number]
                break


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Whatever a graph, or a graph inside it, says of the types of its values."""
    yield from graph.input
    yield from graph.output
    yield from graph.value_info
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _infos(attribute.g)
            for inner in attribute.graphs:
                yield from _infos(inner)


def _maps(info: onnx.ValueInfoProto) -> bool:
    """Whether a value is a map, or holds some."""
    kind = info.type
    while (inside := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, inside).elem_type
    return bool(kind.WhichOneof("value") == "map_type")
