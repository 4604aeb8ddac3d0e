"""Slice: ranges of elements along axes, with steps forwards or backwards."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xflow.core.arguments import axes, declare, literals, sizes
from xflow.core.constraint import at_least, less
from xflow.core.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Reader,
    Shape,
    register,
)
from xflow.core.size import Size
from xflow.core.spec import Index, Scalar
from xflow.ops.shape import Movement, Understood

INT64_MAX = 2**63 - 1
FAR = 2**31 - 1
"""An end that exporters write for that of an axis of any extent."""
MOST_ELEMENTS = 2**46
"""More elements than a tensor has: 64 TiB, of the smallest elements that there are."""


@register
class Slice(Movement):
    """The elements ``start, start + step, ...`` before `end`, along each of `axes`.

    Forwards, ``0 <= start <= end <= extent``. A negative step must be a literal; then
    ``-1 <= end <= start < extent``, and an `end` of -1 is the place before the first element.
    """

    name = op_type = "Slice"
    attributes = declare(
        starts=AttributeSpec(Kind.INTS),
        ends=AttributeSpec(Kind.INTS),
        axes=AttributeSpec(Kind.AXES),
        steps=AttributeSpec(Kind.INTS),
    )
    examples = (
        Example(((5,),), {"starts": (1,), "ends": (4,), "axes": (0,), "steps": (1,)}),
        Example(((5, 3),), {"starts": (0, 1), "ends": (5, 3), "axes": (0, 1), "steps": (2, 1)}),
        Example(((2, 7, 3),), {"starts": (1,), "ends": (6,), "axes": (1,), "steps": (3,)}),
        Example(((2, 4),), {"starts": (2,), "ends": (2,), "axes": (1,), "steps": (1,)}),
        Example(((2, 4),), {"starts": (3,), "ends": (4,), "axes": (1,), "steps": (5,)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        result = list(shapes[0])
        for k, start, end, step in self._cuts(attributes, len(result)):
            need(at_least(start, 0), f"Slice starts at {start}")
            if isinstance(step, int) and step < 0:
                need(at_least(start, end), f"Slice ends at {end}, behind its start {start}")
                need(less(start, result[k]), f"Slice starts at {start} of {result[k]}")
                need(at_least(end, -1), f"Slice ends at {end}")
                result[k] = (start - end - step - 1) // -step
                continue
            need(at_least(end, start), f"Slice ends at {end}, before its start {start}")
            need(at_least(result[k], end), f"Slice ends at {end}, beyond the extent {result[k]}")
            need(at_least(step, 1), f"Slice has the step {step}")
            result[k] = (end - start + step - 1) // step
        return [tuple(result)]

    def _cuts(self, attributes: Attributes, rank: int) -> list[tuple[int, Size, Size, Size]]:
        named = axes(attributes, "axes", rank)
        columns = (sizes(attributes, key, len(named)) for key in ("starts", "ends", "steps"))
        return list(zip(named, *columns, strict=True))

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        position = list(index)
        for k, start, _, step in self._cuts(attributes, len(index)):
            position[k] = start + index[k] * step
        return inputs[0](tuple(position))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        cuts = [slice(None)] * arrays[0].ndim
        for k, start, end, step in self._cuts(attributes, len(cuts)):
            cuts[k] = slice(start, None if end == -1 else end, step)
        return [arrays[0][tuple(cuts)]]

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        source = call.shapes[0]
        if source is None:
            return None
        given = _slice_arguments(call)
        if given is None:
            return None
        starts, ends, named, steps = given
        named = named or list(range(len(starts)))
        steps = steps or [1] * len(starts)
        if {len(starts)} != {len(ends), len(named), len(steps)}:
            return None
        if any(not -len(source) <= k < len(source) for k in named):
            return None
        cuts = []
        for start, end, k, step in zip(starts, ends, named, steps, strict=True):
            found = _clamp(start, end, step, source[k], _far(source, k))
            if found is None:
                return None
            cuts.append((k + len(source) if k < 0 else k, *found, step))
        cuts.sort(key=lambda cut: cut[0])
        columns = [tuple(column) for column in zip(*cuts, strict=True)] or [(), (), (), ()]
        return dict(zip(("axes", "starts", "ends", "steps"), columns, strict=True)), (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        cuts = self._cuts(attributes, len(shapes[0]))
        # The end of an axis of unknown extent is written as a number that no extent exceeds, and
        # the place before the first element as one that no extent reaches: -1 is the last.
        far: dict[Size, Size] = {-1: -INT64_MAX}
        columns: list[list[Size]] = [
            [_last(start, shapes[0][k]) for k, start, _, _ in cuts],
            [INT64_MAX if end == shapes[0][k] else far.get(end, end) for k, _, end, _ in cuts],
            [k for k, _, _, _ in cuts],
            [step for _, _, _, step in cuts],
        ]
        known = [literals(column) for column in columns]
        if any(column is None for column in known):
            return None
        if opset < 10:
            if any(step != 1 for _, _, _, step in cuts):
                return None
            plain = dict(zip(("starts", "ends", "axes"), columns, strict=False))
            return OnnxCall("Slice", opset, "", plain, tuple(shapes))
        constants = {k: np.asarray(column, dtype=np.int64) for k, column in enumerate(known, 1)}
        return OnnxCall("Slice", opset, "", {}, tuple(shapes), constants)


def _last(start: Size, extent: Size) -> Size:
    """A start as ONNX counts it: the last element of an axis of unknown extent is number -1."""
    return start if isinstance(start, int) or start != extent - 1 else -1


def _slice_arguments(call: OnnxCall) -> list[list[int]] | None:
    """Starts, ends, axes and steps of a node, empty where omitted; None where not known."""
    if call.opset < 10:
        if set(call.attributes) - {"starts", "ends", "axes"}:
            return None
        return [list(call.attributes.get(key, ())) for key in ("starts", "ends", "axes", "steps")]
    if call.attributes:
        return None
    given: list[list[int]] = []
    for position in range(1, 5):
        if position >= len(call.shapes) or call.shapes[position] is None:
            given.append([])
        elif position in call.constants:
            given.append([int(v) for v in call.constants[position].reshape(-1)])
        else:
            return None
    return given


def _far(shape: Shape, axis: int) -> int:
    """A number that the extent of an axis does not exceed, as far as the other extents tell.

    An exporter of strided slices writes 1e9 for the end of an axis; beside many elements along the
    other ones, no axis is as long.
    """
    others = [size for k, size in enumerate(shape) if k != axis % len(shape)]
    known = math.prod(size for size in others if isinstance(size, int))
    if known < 1 or not all(isinstance(size, int) for size in others):
        return FAR  # along an axis beside an empty one, any number
    return min(FAR, MOST_ELEMENTS // known)


def _clamp(start: int, end: int, step: int, extent: Size, far: int) -> tuple[Size, Size] | None:
    """Start and end within an axis; None for a step of 0 and what the extent decides.

    `far` is what the extent does not exceed.
    """
    if step < 0:
        return _clamp_backwards(start, end, extent)
    if step == 0:
        return None
    if not isinstance(extent, int):
        return (0, extent) if start == 0 and end >= far else None
    start, end = (
        min(max(value + extent if value < 0 else value, 0), extent) for value in (start, end)
    )
    return start, max(start, end)


def _clamp_backwards(start: int, end: int, extent: Size) -> tuple[Size, Size] | None:
    """The same for a negative step, where the place before the first element is -1."""
    if not isinstance(extent, int):
        whole = (start == -1 or start >= FAR) and end <= -(2**31)
        return (extent - 1, -1) if whole else None
    if extent == 0:
        return None
    start, end = (value + extent if value < 0 else value for value in (start, end))
    start, end = min(max(start, 0), extent - 1), min(max(end, -1), extent - 1)
    return start, min(start, end)
