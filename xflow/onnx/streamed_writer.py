"""A model's bytes in pieces, large weights read only while they are written.

Protobuf makes a message and its bytes, two copies of all weights, before anything is written. But a
message is its fields one behind the other, in any order, each with its length before it. So large
weights are left out of what protobuf writes, and put in where their bytes belong, from where they
are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError

from xflow.core.errors import OutputError
from xflow.onnx.external_data import dump, has_external_data, reference
from xflow.onnx.proto_compat import to_message
from xflow.onnx.protobuf_fields import begin

LARGE = 2**20
"""Bytes from which a tensor is written by itself."""


@dataclass(frozen=True)
class Pieces:
    """What a file consists of, in order, and how many bytes that is."""

    parts: tuple[bytes | ir.TensorProtocol, ...]
    size: int

    @staticmethod
    def of(data: bytes) -> Pieces:
        """A file whose bytes are there already."""
        return Pieces((data,), len(data))

    def write(self, file: BinaryIO) -> None:
        """Write everything; raises OutputError if a tensor is not what it claims to be."""
        start = file.tell()
        for part in self.parts:
            if isinstance(part, bytes):
                file.write(part)
            else:
                dump(part, file)
        if file.tell() - start != self.size:
            raise OutputError("a weight of the model has another size than its shape tells")


def pieces(model: ir.Model, large: int = LARGE) -> Pieces | None:
    """The bytes of a model; None where it has external data, or more than protobuf can write.

    Tensors of `large` bytes or more are written by themselves.
    """
    held: dict[str, ir.TensorProtocol] = {}
    with contextlib.ExitStack() as undo:
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            if tensor is not None and _stands_alone(tensor, large):
                undo.callback(setattr, value, "const_value", tensor)
                value.const_value = reference(tensor, value, "elsewhere", 0)
                held[name] = tensor
        message = to_message(model)
    graph = message.graph
    initializers = [*_initializers(graph, held)]
    if has_external_data(message):
        return None
    del graph.initializer[:]
    try:
        inside = graph.SerializeToString()
        message.ClearField("graph")
        around = message.SerializeToString()
    except EncodeError:
        return None
    rest = sum(map(_size, initializers))
    head = around + begin(onnx.ModelProto, "graph", len(inside) + rest) + inside
    return Pieces((head, *initializers), len(head) + rest)


def _stands_alone(tensor: ir.TensorProtocol, large: int) -> bool:
    """Whether a tensor is written as the bytes of its elements, and is large."""
    if tensor.nbytes < large or tensor.dtype == ir.DataType.STRING:
        return False
    if isinstance(tensor, ir.serde.TensorProtoTensor):
        return bool(tensor.raw.HasField("raw_data"))
    return not isinstance(tensor, ir.ExternalTensor)


def _initializers(
    graph: onnx.GraphProto, held: dict[str, ir.TensorProtocol]
) -> Iterator[bytes | ir.TensorProtocol]:
    """The field of each initializer; those of `held` are references in the message."""
    for initializer in graph.initializer:
        tensor = held.get(initializer.name)
        if tensor is not None:
            initializer.ClearField("external_data")
            initializer.ClearField("data_location")
        body = initializer.SerializeToString()
        if tensor is None:
            yield begin(onnx.GraphProto, "initializer", len(body)) + body
        else:
            body += begin(onnx.TensorProto, "raw_data", tensor.nbytes)
            yield begin(onnx.GraphProto, "initializer", len(body) + tensor.nbytes) + body
            yield tensor


def _size(part: bytes | ir.TensorProtocol) -> int:
    return len(part) if isinstance(part, bytes) else part.nbytes
