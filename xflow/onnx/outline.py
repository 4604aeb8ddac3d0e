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
from xflow.onnx.protobuf_fields import begin, fields, number_of

LARGE = 2**15
"""Bytes from which an initializer is left out: more than the 1024 elements that a shape has."""
GRAPH = number_of(ModelProto, "graph")
INITIALIZER = number_of(GraphProto, "initializer")
RAW_DATA = number_of(TensorProto, "raw_data")


def outline(source: bytes | Path) -> ModelProto:
    """A model in which the elements of large initializers are said to be elsewhere.

    That is in the file `source`, whose folder is the one to look in; of bytes, it is not said
    where. Kept are those in graphs inside operators, and those that are not written as the bytes of
    their elements. Raises ModelError where `source` is no model.
    """
    model = ModelProto()
    try:
        if isinstance(source, bytes):
            model.ParseFromString(_without_weights(memoryview(source), None))
        else:
            model.ParseFromString(_read(source))
    except OSError as error:
        raise ModelError(f"cannot be read ({error.strerror or error})", str(source)) from error
    except DecodeError as error:
        raise ModelError("is not an ONNX model") from error
    if not model.HasField("graph"):
        raise ModelError("is not an ONNX model")
    return model


def _read(path: Path) -> bytes:
    """The bytes of the model in a file without those of large initializers. Raises OSError."""
    with path.open("rb") as file:
        try:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # as of an empty file, or one on some networks
            return file.read()
        with pages, memoryview(pages) as data:
            return _without_weights(data, path.name)


def _without_weights(data: memoryview, name: str | None) -> bytes:
    """The bytes of a model, in a file of that name, without those of large initializers.

    All, where there is something odd about them.
    """
    parts = []
    try:
        for number, start, inside, end in fields(data, 0, len(data)):
            if number == GRAPH:
                graph = _graph_without_weights(data, inside, end, name)
                parts += [begin(ModelProto, "graph", len(graph)), graph]
            else:
                parts.append(bytes(data[start:end]))
    except (IndexError, ValueError):  # protobuf says what is wrong, if anything is
        return bytes(data)
    return b"".join(parts)


def _graph_without_weights(data: memoryview, start: int, end: int, name: str | None) -> bytes:
    parts = []
    kept = start  # from where everything is copied as it is
    for number, first, inside, last in fields(data, start, end):
        if number == INITIALIZER and last - inside >= LARGE:
            tensor = _without_elements(data, inside, last, name)
            parts += [bytes(data[kept:first]), begin(GraphProto, "initializer", len(tensor))]
            parts.append(tensor)
            kept = last
    return b"".join((*parts, bytes(data[kept:end])))


def _without_elements(data: memoryview, start: int, end: int, name: str | None) -> bytes:
    """The bytes of a tensor without its elements, if these are bytes."""
    parts: list[bytes] = []
    where: TensorProto | None = None
    for number, first, inside, last in fields(data, start, end):
        if number == RAW_DATA:
            where = TensorProto(data_location=TensorProto.EXTERNAL)
            told = {"location": name, "offset": inside, "length": last - inside}
            for key, value in told.items() if name is not None else ():
                where.external_data.add(key=key, value=str(value))
        else:
            parts.append(bytes(data[first:last]))
    return b"".join(parts) + (b"" if where is None else where.SerializeToString())
