"""Replaces scattering by joining where the indices are constant and name whole slices in order.

Exporters write ``x[:, 1:] += r`` as a ScatterND, and ``x[:, 0] = r`` as a ScatterElements, whose
constant indices name each element of a range along one axis, and all of the other axes. What is
written is then a Concat of what is kept and what is new. Such writes one after the other, as of a
loop that fills a tensor step by step, are one Concat of all parts.

Elements are moved and none is computed, so this holds for what is no number as well. Indices that
name an element twice, out of order, or with gaps between them stay, and so does what is added to
elements and does not replace them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from xflow.core.errors import ShapeError
from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.node import Node, Opaque, Value, apply
from xflow.core.registry import Array
from xflow.core.sorts import BOOL, FLOATS, INDICES

FACT = "indices-name-a-slice"
"""The name of the fact in reports."""
TYPES = frozenset({*FLOATS, *INDICES, BOOL})
"""Element types that the runtime joins and cuts."""


class Write(NamedTuple):
    """What replaces the slice of `source` from `start` to `end` along an axis."""

    source: Value
    axis: int
    start: int
    end: int
    new: Value


class Part(NamedTuple):
    """The slice of a value from `start` to `end` along an axis."""

    value: Value
    start: int
    end: int


def joined(graph: Graph, constants: ConstantLookup) -> Iterator[tuple[Value, Value, str]]:
    """Values in which slices are written, the same as joined parts, and the fact's name.

    `constants` serves constants, computed ones included.
    """
    writes: dict[Value, Write] = {}
    for node in graph.nodes:
        write = _write(node, constants)
        if write is not None:
            writes[node.outputs[0]] = write
    inner = {value for value in writes if _is_passed_on(value, writes, graph)}
    for value, write in writes.items():
        if value in inner:
            continue  # the last one of them has its part
        chain = [write]
        while chain[0].source in inner:
            chain.insert(0, writes[chain[0].source])
        if _is_less(chain, value):
            after = _joined(chain)
            if after is not None and after.type == value.type:
                yield value, after, FACT


def _is_passed_on(value: Value, writes: Mapping[Value, Write], graph: Graph) -> bool:
    """Whether nothing reads a value but one more write along the same axis.

    What else reads it needs it whole, so that joining its parts once more saves nothing.
    """
    users = graph.users.get(value, ())
    if value in graph.outputs or len(users) != 1:
        return False
    after = writes.get(users[0].outputs[0])
    return after is not None and after.source == value and after.axis == writes[value].axis


def _write(node: Node, constants: ConstantLookup) -> Write | None:
    """The slice that an operator writes; None for others, and where sizes are not known."""
    op = node.op
    if not isinstance(op, Opaque) or op.op_type not in ("Scatter", "ScatterElements", "ScatterND"):
        return None
    source, places, new = node.inputs
    if source.type.dtype not in TYPES or not all(isinstance(n, int) for n in source.shape):
        return None
    indices = constants(places)
    if indices is None or not indices.size:
        return None
    extents = tuple(n for n in source.shape if isinstance(n, int))
    ranges = _rows(indices, extents)
    if op.op_type != "ScatterND":
        axis = op.axis or 0
        ranges = _along(indices, extents, axis + len(extents) if axis < 0 else axis)
    if ranges is None or 0 in extents:
        return None
    partial = [k for k, (start, end) in enumerate(ranges) if (start, end) != (0, extents[k])]
    if len(partial) > 1:
        return None
    (axis,) = partial or (0,)
    start, end = ranges[axis]
    shape = (*extents[:axis], end - start, *extents[axis + 1 :])
    if new.shape != shape:
        try:
            (new,) = apply("Reshape", [new], {"shape": shape})
        except ShapeError:
            return None
    return Write(source, axis, start, end, new)


def _rows(indices: Array, extents: Sequence[int]) -> list[tuple[int, int]] | None:
    """The ranges along the first axes of which the rows of indices name each element in order."""
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 < depth <= len(extents):
        return None
    rows = indices.reshape(-1, depth).astype(np.int64)
    rows = np.where(rows < 0, rows + np.asarray(extents[:depth]), rows)
    first, last = rows[0], rows[-1]
    counts = (last - first + 1).tolist()
    if min(counts) < 1 or math.prod(counts) != len(rows):
        return None
    expected = np.stack(np.unravel_index(np.arange(len(rows)), counts), axis=-1) + first
    within = (first >= 0).all() and (last < np.asarray(extents[:depth])).all()
    if not within or not np.array_equal(rows, expected):
        return None
    return list(zip(first.tolist(), (last + 1).tolist(), strict=True))


def _along(indices: Array, extents: Sequence[int], axis: int) -> list[tuple[int, int]] | None:
    """The range along an axis of which indices of single elements name each line in order."""
    if indices.ndim != len(extents) or not 0 <= axis < len(extents):
        return None
    others = [each[:axis] + each[axis + 1 :] for each in (indices.shape, tuple(extents))]
    if others[0] != others[1]:
        return None
    lines = np.moveaxis(indices, axis, -1).reshape(-1, indices.shape[axis]).astype(np.int64)
    lines = np.where(lines < 0, lines + extents[axis], lines)
    start = int(lines[0, 0])
    end = start + lines.shape[1]
    if not 0 <= start < end <= extents[axis] or not (lines == np.arange(start, end)).all():
        return None
    return [(start, end) if k == axis else (0, n) for k, n in enumerate(extents)]


def _is_less(chain: Sequence[Write], value: Value) -> bool:
    """Whether joining moves no more elements than writing does, which copies the whole each time.

    What is kept is cut out and then joined, unless it is constant.
    """
    first, *more = chain
    written, extent = first.end - first.start, value.shape[first.axis]
    assert isinstance(extent, int)
    return bool(more) or first.source.is_constant or 2 * written >= extent


def _joined(chain: Sequence[Write]) -> Value | None:
    """The parts that are left of the first source and of what is written, one after the other."""
    axis, extent = chain[0].axis, chain[0].source.shape[chain[0].axis]
    assert isinstance(extent, int)
    parts: Mapping[int, Part] = {0: Part(chain[0].source, 0, extent)}
    for write in chain:
        left: dict[int, Part] = {write.start: Part(write.new, 0, write.end - write.start)}
        for at, (value, start, end) in parts.items():
            before = min(end, start + write.start - at)
            after = max(start, start + write.end - at)
            if start < before:
                left[at] = Part(value, start, before)
            if after < end:
                left[at + after - start] = Part(value, after, end)
        parts = left
    try:
        pieces = [_cut(parts[at], axis) for at in sorted(parts)]
        return pieces[0] if len(pieces) == 1 else apply("Concat", pieces, {"axis": axis})[0]
    except ShapeError:
        return None


def _cut(part: Part, axis: int) -> Value:
    """A part as a value of its own. Raises ShapeError."""
    value, start, end = part
    if (start, end) == (0, value.shape[axis]):
        return value
    how = {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (1,)}
    return apply("Slice", [value], how)[0]
