"""Concat and Split: tensors joined along an axis, and cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from xflow.core.arguments import axis, declare, integers, sizes
from xflow.core.constraint import at_least, equal, less
from xflow.core.errors import ShapeError
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
    is_concrete,
    normalise_attribute,
    register,
    require,
)
from xflow.core.size import Size, divide
from xflow.core.spec import MAX_IN_A_ROW, Index, Scalar, where
from xflow.ops.shape import Movement, Understood


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

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        shapes = [shape for shape in call.shapes if shape is not None]
        found = super().from_onnx(call)
        if found is None or not any(0 in shape for shape in shapes):
            return found
        # The runtime joins parts without elements whatever their other extents are.
        need = Need()
        try:
            self.shape(shapes, found[0], need)
        except ShapeError:
            return None
        return None if need.conditions else found

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

        def among(first: int, last: int) -> Scalar:
            if last - first == 1:
                here = index[along] - offsets[first]
                return inputs[first]((*index[:along], here, *index[along + 1 :]))
            few = last - first <= MAX_IN_A_ROW
            middle = first + 1 if few else (first + last) // 2
            condition = less(index[along], offsets[middle])
            return where((condition,), among(first, middle), among(middle, last))

        return among(0, len(inputs))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.concatenate(arrays, axis=axis(attributes, "axis", arrays[0].ndim))]


@register
class Split(Movement):
    """Consecutive parts along `axis`, of the extents `split`; one output each."""

    name = op_type = "Split"
    since = 2
    attributes = declare(axis=AttributeSpec(Kind.AXIS, 0), split=AttributeSpec(Kind.INTS))
    computed = MappingProxyType({"split": 1})
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
        extents: Shape
        if "split" in call.attributes:
            extents = tuple(int(n) for n in call.attributes["split"])
        elif 1 in call.constants:
            extents = tuple(int(n) for n in call.constants[1].reshape(-1))
        elif 1 in call.computed:
            extents = call.computed[1]
        elif len(call.shapes) > 1 and call.shapes[1] is not None:
            return None
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
        extents = list(integers(attributes, "split"))
        call = self.with_computed(attributes, opset)
        if call is None:
            plain = {"axis": attributes["axis"], "split": extents}
            return OnnxCall("Split", opset, "", plain, tuple(shapes))
        constants = {1: np.asarray(extents, dtype=np.int64)}
        return replace(call, shapes=tuple(shapes), constants=constants)

    def with_computed(self, attributes: Attributes, opset: int) -> OnnxCall | None:
        if opset < 13:  # the extents are an attribute
            return None
        return OnnxCall("Split", opset, "", {"axis": attributes["axis"]})


def _equal_parts(extent: Size, call: OnnxCall) -> Shape | None:
    """The extents of a Split that names none: equal, since opset 18 the last may be smaller."""
    count = call.attributes.get("num_outputs", call.outputs)
    if count != call.outputs or count < 1:
        return None
    if not isinstance(extent, int):
        each, rest = divide(extent, count)
        return (each,) * count if rest == 0 else None
    part = -(-extent // count)
    last = extent - part * (count - 1)
    if last < 0 or (last != part and call.opset < 18):
        return None
    return (*(part,) * (count - 1), last)
