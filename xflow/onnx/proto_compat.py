"""Whole models between protobuf's messages and onnx-ir, with what onnx-ir does not know.

That are maps and sparse tensors; it refuses the ones, and drops the others. Each classifier of
scikit-learn gives a sequence of maps from classes to probabilities. No rule speaks of either, so it
is enough that they are kept: while onnx-ir has a model, a value that is a map, or holds some, has a
note instead of a type, and a sparse tensor is a constant of which nothing is known but the bytes.
One that is what an input is by default becomes dense.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError, Message

PROTOBUF_LIMIT = 2**31 - 1
"""Bytes that one protobuf message may hold; a larger model keeps its weights beside it."""
TRAINED = "xflow.training"
"""What tells of a model in memory whether the message said how to train it, which onnx-ir drops."""
NOTE = "xflow.type"
"""The key under which a value's metadata hold a type that onnx-ir does not know."""
SPARSE = "xflow.sparse"
"""The attribute of a Constant that holds the bytes of a sparse tensor."""
INITIALIZER = "xflow.initializer"
"""The attribute of a Constant that is a sparse initializer."""


def from_message(proto: onnx.ModelProto) -> ir.Model:
    """The model that a message holds; raises what onnx-ir raises, or what `_dense` does.

    The message is not changed. The model's tensors refer to its data.
    """
    if any(_is_unknown(graph) for graph in _graphs(proto)) or any(
        map(_is_sparse, all_nodes(proto))
    ):
        known = onnx.ModelProto()
        known.CopyFrom(proto)
        for graph in _graphs(known):
            _note(graph)
        for node in filter(_is_sparse, all_nodes(known)):
            (tensor,) = (each.sparse_tensor for each in node.attribute)
            attribute = onnx.helper.make_attribute(SPARSE, _text(tensor))
            del node.attribute[:]
            node.attribute.append(attribute)
        proto = known
    model: ir.Model = ir.from_proto(proto)
    model.meta[TRAINED] = bool(proto.training_info)
    return model


def check_no_notes(proto: onnx.ModelProto) -> None:
    """Raise ValueError if a message that somebody else wrote has what looks like a note of ours."""
    if any(map(_has_note, _graphs(proto))) or any(map(_is_noted, all_nodes(proto))):
        raise ValueError(f"names such as {NOTE!r}, in metadata or attributes, are reserved")


def to_message(model: ir.Model) -> onnx.ModelProto:
    """The message that holds a model."""
    proto: onnx.ModelProto = ir.to_proto(model)
    restore(proto)
    return proto


def serialized(proto: onnx.ModelProto, limit: int = PROTOBUF_LIMIT) -> bytes | None:
    """The bytes of a message; None where they are more than `limit`.

    They are written to know that: protobuf counts the bytes of a message by writing them.
    """
    try:
        data: bytes = proto.SerializeToString()
    except EncodeError:  # more than protobuf can write at all
        return None
    return data if len(data) <= limit else None


def restore(proto: onnx.ModelProto) -> None:
    """Put what notes tell of in their place."""
    for graph in _graphs(proto):
        for info in _infos(graph):
            for number, entry in enumerate(info.metadata_props):
                if entry.key == NOTE:
                    info.type.ParseFromString(base64.b64decode(entry.value))
                    del info.metadata_props[number]
                    break
        dense = [node for node in graph.node if not _has(node, INITIALIZER)]
        if len(dense) < len(graph.node):
            for node in graph.node:
                if _has(node, INITIALIZER):
                    (held,) = (each.s for each in node.attribute if each.name == SPARSE)
                    tensor = graph.sparse_initializer.add()
                    tensor.ParseFromString(base64.b64decode(held))
                    tensor.values.name = node.output[0]
            kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in dense]
            del graph.node[:]
            graph.node.extend(kept)
    for node in all_nodes(proto):
        for attribute in node.attribute:
            if attribute.name == SPARSE:
                attribute.sparse_tensor.ParseFromString(base64.b64decode(attribute.s))
                attribute.ClearField("s")
                attribute.name = "sparse_value"
                attribute.type = onnx.AttributeProto.SPARSE_TENSOR


def _note(graph: onnx.GraphProto) -> None:
    """Hide what onnx-ir does not know of one graph in notes."""
    for info in filter(_maps, _infos(graph)):
        info.metadata_props.add(key=NOTE, value=_text(info.type))
        info.ClearField("type")
    if graph.sparse_initializer:
        constants = []
        inputs = {info.name for info in graph.input}
        for tensor in graph.sparse_initializer:
            if tensor.values.name in inputs:  # what an input is by default is no constant
                graph.initializer.append(_dense(tensor))
                continue
            attributes = {SPARSE: _text(tensor), INITIALIZER: 1}
            name = tensor.values.name
            constants.append(onnx.helper.make_node("Constant", [], [name], **attributes))
        nodes = [*constants, *graph.node]
        del graph.sparse_initializer[:]
        graph.ClearField("node")
        graph.node.extend(nodes)


def _dense(tensor: onnx.SparseTensorProto) -> onnx.TensorProto:
    """The same tensor with all of its zeros.

    Raises IndexError where its indices do not fit, and ValueError where it has too many elements.
    """
    if math.prod(tensor.dims) > PROTOBUF_LIMIT:
        raise ValueError("a sparse tensor that is a default of an input has too many elements")
    values, places = map(onnx.numpy_helper.to_array, (tensor.values, tensor.indices))
    array = np.zeros(tuple(tensor.dims), values.dtype)
    if places.ndim == 1:
        array.reshape(-1)[places] = values
    else:
        array[tuple(places.T)] = values
    return onnx.numpy_helper.from_array(array, tensor.values.name)


def _text(message: Message) -> str:
    """A message as a text, which notes have to be."""
    return base64.b64encode(message.SerializeToString()).decode()


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph of a model and those inside operators, of functions, too."""
    yield proto.graph
    for node in all_nodes(proto):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def all_nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those in graphs inside others behind these."""
    waiting = [proto.graph.node, *(function.node for function in proto.functions)]
    for nodes in waiting:
        for node in nodes:
            yield node
            waiting += [graph.node for graph in inner_graphs(node)]


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside an operator, without those inside them."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Whatever a graph says of the types of its values."""
    yield from graph.input
    yield from graph.output
    yield from graph.value_info


def _has_note(graph: onnx.GraphProto) -> bool:
    """Whether the metadata of a value look like a note of this module."""
    return any(entry.key == NOTE for info in _infos(graph) for entry in info.metadata_props)


def _is_noted(node: onnx.NodeProto) -> bool:
    """Whether a node looks like a constant that this module makes."""
    return _has(node, SPARSE) or _has(node, INITIALIZER)


def _is_unknown(graph: onnx.GraphProto) -> bool:
    return bool(graph.sparse_initializer) or any(map(_maps, _infos(graph)))


def _maps(info: onnx.ValueInfoProto) -> bool:
    """Whether a value is a map, or holds some."""
    kind = info.type
    while (inside := kind.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kind = getattr(kind, inside).elem_type
    return bool(kind.WhichOneof("value") == "map_type")


def _is_sparse(node: onnx.NodeProto) -> bool:
    """Whether a node is a constant that is a sparse tensor."""
    return bool(node.op_type == "Constant") and _has(node, "sparse_value")


def _has(node: onnx.NodeProto, name: str) -> bool:
    return any(attribute.name == name for attribute in node.attribute)
