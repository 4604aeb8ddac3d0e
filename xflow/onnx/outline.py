"""A model without the elements of its large weights, whose bytes are not even read.

Most questions about a model, such as what its inputs take, do not depend on weights, which may be
gigabytes. A message is its fields one behind the other, each with its length before it, so that
fields are skipped for as little as it takes to read their beginnings.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto

from xflow.core.errors import ModelError
from xflow.onnx.protobuf_fields import VARINT, begin, fields, number_of, varint

LARGE = 2**15
"""Bytes from which an initializer is left out: more than the 1024 elements that a shape has."""
ELEMENTS = frozenset(
    number_of(TensorProto, name)
    for name in (
        *("raw_data", "float_data", "int32_data", "int64_data", "uint64_data"),
        *("double_data", "string_data", "data_location"),
    )
)
"""The fields of a tensor that say what its elements are, and where."""
GRAPH = number_of(ModelProto, "graph")
INITIALIZER = number_of(GraphProto, "initializer")
OUTSIDE = varint(number_of(TensorProto, "data_location") << 3 | VARINT)
OUTSIDE += varint(TensorProto.EXTERNAL)
"""The field of a tensor that says that its elements are not here."""


def outline(source: bytes | Path) -> ModelProto:
    """A model in which large initializers are said to be elsewhere, without a word where.

    Those in graphs inside operators are kept. Raises ModelError where `source` is no model.
    """
    model = ModelProto()
    try:
        if isinstance(source, bytes):
            model.ParseFromString(_without_weights(memoryview(source)))
        else:
            with (
                source.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages,
                memoryview(pages) as data,
            ):
                model.ParseFromString(_without_weights(data))
    except OSError as error:
        raise ModelError(f"cannot be read ({error.strerror or error})", str(source)) from error
    except (ValueError, DecodeError) as error:  # the former of an empty file
        raise ModelError("is not an ONNX model") from error
    if not model.HasField("graph"):
        raise ModelError("is not an ONNX model")
    return model


def _without_weights(data: memoryview) -> bytes:
    """The bytes of a model without those of large initializers; all, if they are odd."""
    parts = []
    try:
        for number, start, inside, end in fields(data, 0, len(data)):
            if number == GRAPH:
                graph = _graph_without_weights(data, inside, end)
                parts += [begin(ModelProto, "graph", len(graph)), graph]
            else:
                parts.append(bytes(data[start:end]))
    except (IndexError, ValueError):  # protobuf says what is wrong, if anything is
        return bytes(data)
    return b"".join(parts)


def _graph_without_weights(data: memoryview, start: int, end: int) -> bytes:
    parts = []
    kept = start  # from where everything is copied as it is
    for number, first, inside, last in fields(data, start, end):
        if number == INITIALIZER and last - inside >= LARGE:
            tensor = _without_elements(data, inside, last)
            parts += [bytes(data[kept:first]), begin(GraphProto, "initializer", len(tensor))]
            parts.append(tensor)
            kept = last
    return b"".join((*parts, bytes(data[kept:end])))


def _without_elements(data: memoryview, start: int, end: int) -> bytes:
    parts = [
        bytes(data[first:last])
        for number, first, _, last in fields(data, start, end)
        if number not in ELEMENTS
    ]
    return b"".join((*parts, OUTSIDE))
