"""Operators that put tensors together or take parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from xflow.constraint import at_least, equal, less
from xflow.ops.arguments import axes, axis, declare, integers, literals, sizes
from xflow.ops.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Reader,
    Shape,
    is_concrete,
    normalise_attribute,
    register,
    require,
)
from xflow.ops.shape import Movement, Understood
from xflow.ops.spec import Index, Scalar, where
from xflow.size import Size

INT64_MAX = 2**63 - 1


@register
class Concat(Movement):
    """The inputs one after the other along `axis`."""

    name = op_type = "Concat"
    since = 4
    arity = (1, None)
    attributes = declare(axis=AttributeSpec(Kind.AXIS))
    examples = (
        Example(((2, 3), (2, 4)), {"axis": 1}),
        Example(((1, 2), (3, 2), (2, 2)), {"axis": 0}),
        Example(((2, 1, 3), (2, 2, 3)), {"axis": 1}),
        Example(((2,),), {"axis": 0}),
        Example(((2, 0), (2, 3), (2, 0)), {"axis": 1}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        first = shapes[0]
        along = axis(attributes, "axis", len(first))
        require(all(len(s) == len(first) for s in shapes), "Concat of tensors of different ranks")
        for other in shapes[1:]:
            for k, (n, m) in enumerate(zip(first, other, strict=True)):
                if k != along:
                    need(equal(n, m), f"Concat of sizes {n} and {m} in axis {k}")
        total = sum((s[along] for s in shapes[1:]), start=first[along])
        return [(*first[:along], total, *first[along + 1 :])]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        along = axis(attributes, "axis", len(index))
        offsets = list(accumulate((s[along] for s in shapes), initial=0))

        def part(number: int) -> Scalar:
            here = index[along] - offsets[number]
            element = inputs[number]((*index[:along], here, *index[along + 1 :]))
            if number == len(inputs) - 1:
                return element
            return where((less(index[along], offsets[number + 1]),), element, part(number + 1))

        return part(0)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.concatenate(arrays, axis=axis(attributes, "axis", arrays[0].ndim))]


@register
class Split(Movement):
    """Consecutive parts along `axis`, of the extents `split`; one output each."""

    name = op_type = "Split"
    since = 2
    attributes = declare(axis=AttributeSpec(Kind.AXIS, 0), split=AttributeSpec(Kind.INTS))
    examples = (
        Example(((5, 2),), {"axis": 0, "split": (2, 3)}),
        Example(((2, 6),), {"axis": 1, "split": (1, 2, 3)}),
        Example(((3, 4),), {"axis": 1, "split": (4,)}),
        Example(((2, 3, 2),), {"axis": 1, "split": (0, 3)}),
        Example(((4,),), {"axis": 0, "split": (1, 1, 1, 1)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        (source,) = shapes
        along, extents = axis(attributes, "axis", len(source)), sizes(attributes, "split")
        require(bool(extents), "Split into no parts")
        for n in extents:
            need(at_least(n, 0), f"Split into a part of extent {n}")
        total = sum(extents[1:], start=extents[0])
        need(
            equal(total, source[along]), f"the parts {list(extents)} do not sum to {source[along]}"
        )
        return [(*source[:along], n, *source[along + 1 :]) for n in extents]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        along, extents = axis(attributes, "axis", len(index)), sizes(attributes, "split")
        here = sum(extents[:output], start=index[along])
        return inputs[0]((*index[:along], here, *index[along + 1 :]))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        along, extents = axis(attributes, "axis", arrays[0].ndim), integers(attributes, "split")
        return list(np.split(arrays[0], list(accumulate(extents))[:-1], axis=along))

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        source = call.shapes[0]
        if source is None or set(call.attributes) - {"axis", "split", "num_outputs"}:
            return None
        along = normalise_attribute(Kind.AXIS, call.attributes.get("axis", 0), len(source))
        assert isinstance(along, int)
        if "split" in call.attributes:
            extents = tuple(int(n) for n in call.attributes["split"])
        elif len(call.shapes) > 1 and call.shapes[1] is not None:
            if 1 not in call.constants:
                return None
            extents = tuple(int(n) for n in call.constants[1].reshape(-1))
        else:
            found = _equal_parts(source[along], call)
            if found is None:
                return None
            extents = found
        return {"axis": along, "split": extents}, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        if not is_concrete(attributes):
            return None
        plain: dict[str, Any] = {"axis": attributes["axis"]}
        extents = list(integers(attributes, "split"))
        if opset < 13:
            return OnnxCall("Split", opset, "", {**plain, "split": extents}, tuple(shapes))
        constants = {1: np.asarray(extents, dtype=np.int64)}
        return OnnxCall("Split", opset, "", plain, tuple(shapes), constants)


def _equal_parts(extent: Size, call: OnnxCall) -> tuple[int, ...] | None:
    """The extents of a Split that names none: equal, since opset 18 the last may be smaller."""
    count = call.attributes.get("num_outputs", call.outputs)
    if not isinstance(extent, int) or count != call.outputs or count < 1:
        return None
    part = -(-extent // count)
    last = extent - part * (count - 1)
    if last < 0 or (last != part and call.opset < 18):
        return None
    return (*(part,) * (count - 1), last)


@register
class Slice(Movement):
    """``x[start : end : step]`` along each of `axes`, with ``0 <= start <= end <= extent``."""

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
            cuts[k] = slice(start, end, step)
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
            found = _clamp(start, end, step, source[k])
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
        # The end of an axis of unknown extent is written as a number that no extent exceeds.
        columns: list[list[Size]] = [
            [start for _, start, _, _ in cuts],
            [INT64_MAX if end == shapes[0][k] else end for k, _, end, _ in cuts],
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


def _clamp(start: int, end: int, step: int, extent: Size) -> tuple[Size, Size] | None:
    """Start and end within an axis; None for a backward step and what the extent decides."""
    if step < 1:
        return None
    if not isinstance(extent, int):
        return (0, extent) if start == 0 and end >= 2**31 - 1 else None
    start, end = (
        min(max(value + extent if value < 0 else value, 0), extent) for value in (start, end)
    )
    return start, max(start, end)
