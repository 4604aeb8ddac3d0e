"""Where two models may differ: rows of their tables, and sizes that they compare with constants.

Random indices reach few rows of a large table, and sizes by default are small. Both models tell
which ones are worth trying.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from xflow.feeds.input_roles import INDEXED, Tracer, attribute_of, graphs, input_of, skeleton
from xflow.onnx.nodes import COMPARISONS

MOST_BYTES = 2**28
"""Bytes of the largest table that is compared."""
MOST_TABLES = 8
"""Tables of one shape in the other model that are compared."""
SIZES = range(2, 4097)
"""Constants that may be meant for sizes."""
MOST_VALUES = 8
"""Elements of a constant that is compared."""
BOUNDING = {*COMPARISONS, "Min", "Max", "Clip", "Mod"}
"""Operators whose results depend on whether a size exceeds a constant."""


def differing_indices(
    models: tuple[ModelProto, ModelProto],
    folders: tuple[Path, Path],
    shapes: Mapping[str, tuple[int, ...]],
    names: Iterable[str],
) -> dict[str, np.ndarray]:
    """Indices for the inputs `names` that read rows in which the tables of two models differ.

    External data is looked for in the `folders` of the models. Where most rows of a table differ,
    any index shows it, and none is given.
    """
    first, second = map(_tensors, models)
    tracer = Tracer(skeleton(models[0], shapes))
    rows: dict[tuple[str, int], np.ndarray] = {}
    found: dict[str, np.ndarray] = {}
    for name in names:
        parts = []
        for node, position, view in tracer.walk(name):
            table, axis = INDEXED.get((node.op_type, position), (0, "last"))
            tensor = first.get(input_of(node, table))
            if tensor is None or axis == "last" or view.low != view.high:
                continue
            place = int(attribute_of(node, "axis", 0)) if axis is None else int(axis)
            key = tensor.name, place
            if key not in rows:
                rows[key] = np.zeros(0, np.int64)
                # A table may be of any type, and its file may be gone.
                with contextlib.suppress(Exception):
                    rows[key] = _differing_rows(tensor, second, folders, place)
            values = rows[key] - view.low
            parts.append(values[values % view.scale == 0] // view.scale)
        joined = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        if joined.size:
            found[name] = joined
    return found


def compared_sizes(model: ModelProto) -> list[int]:
    """The constants with which a model compares what it computes from shapes, or ends slices at.

    The model is not changed.
    """
    reached: set[str] = set()
    constants: dict[str, np.ndarray] = {}
    found: dict[int, None] = {}
    for graph in graphs(skeleton(model, {}).graph):
        for tensor in _tensors_of(graph):
            if math.prod(tensor.dims) <= MOST_VALUES and _is_inside(tensor):
                with contextlib.suppress(Exception):
                    constants[tensor.name] = numpy_helper.to_array(tensor)
        for node in graph.node:
            given = [name for name in node.input if name]
            of_sizes = [name for name in given if name in reached]
            made_of_sizes = of_sizes and all(n in reached or n in constants for n in given)
            if made_of_sizes or node.op_type in ("Shape", "Size"):
                reached.update(node.output)
            compared = given if of_sizes and node.op_type in BOUNDING else []
            if node.op_type == "Slice":
                compared = given[1:3]
            found |= dict.fromkeys(_sizes(constants[n] for n in compared if n in constants))
    return list(found)


def _sizes(arrays: Iterable[np.ndarray]) -> Iterator[int]:
    for array in arrays:
        if array.dtype.kind in "iuf" and np.isfinite(array).all():
            yield from (int(value) for value in array.reshape(-1).tolist() if int(value) in SIZES)


def _tensors(model: ModelProto) -> dict[str, TensorProto]:
    """The constants of a model's main graph by name."""
    return {tensor.name: tensor for tensor in _tensors_of(model.graph)}


def _tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant":
            yield from _literal(node)


def _literal(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.name == "value":
            tensor = TensorProto()
            tensor.CopyFrom(attribute.t)
            tensor.name = node.output[0]
            yield tensor
        elif attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
            value = np.asarray(attribute_of(node, attribute.name, ()))
            yield numpy_helper.from_array(value, node.output[0])


def _is_inside(tensor: TensorProto) -> bool:
    return bool(tensor.data_location != TensorProto.EXTERNAL)


def _differing_rows(
    tensor: TensorProto,
    others: Mapping[str, TensorProto],
    folders: tuple[Path, Path],
    axis: int,
) -> np.ndarray:
    """The indices along an axis at which a table differs from the one most like it."""
    none = np.zeros(0, np.int64)
    key = tensor.data_type, tuple(tensor.dims)
    alike = [each for each in others.values() if (each.data_type, tuple(each.dims)) == key]
    alike.sort(key=lambda each: each.name != tensor.name)
    if any(tensor.raw_data and tensor.raw_data == each.raw_data for each in alike[:1]):
        return none
    table = _rows(tensor, folders[0], axis)
    least = none
    for other in alike[:MOST_TABLES]:
        theirs = _rows(other, folders[1], axis)
        rows = np.flatnonzero((table != theirs).any(1))
        if not rows.size:
            return none
        if 2 * rows.size <= len(table) and (not least.size or rows.size < least.size):
            least = rows
    return least


def _rows(tensor: TensorProto, folder: Path, axis: int) -> np.ndarray:
    """The bytes of each row of a table along an axis. Raises ValueError for a large table."""
    if math.prod(tensor.dims) > MOST_BYTES:
        raise ValueError(tensor.name)
    copy = TensorProto()  # reading external data fills the message
    copy.CopyFrom(tensor)
    array = np.moveaxis(numpy_helper.to_array(copy, str(folder)), axis, 0)
    if array.nbytes > MOST_BYTES:
        raise ValueError(tensor.name)
    return np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
