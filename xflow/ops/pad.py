"""Borders of zeros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xflow.constraint import Constraint, at_least, less
from xflow.ops.arguments import declare, integers, sizes
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
    register,
)
from xflow.ops.shape import Movement, Understood
from xflow.ops.spec import ZERO, Index, Scalar, where
from xflow.size import Size


@register
class Pad(Movement):
    """A border of zeros: `pads` holds the widths before all axes, then those behind.

    A negative width removes instead.
    """

    name = op_type = "Pad"
    attributes = declare(pads=AttributeSpec(Kind.INTS))
    examples = (
        Example(((2, 3),), {"pads": (1, 0, 2, 1)}),
        Example(((3,),), {"pads": (0, 0)}),
        Example(((1, 2, 2),), {"pads": (0, 0, 1, 0, 1, 1)}),
        Example(((4, 3),), {"pads": (-1, 0, -1, 2)}),
        Example(((4,),), {"pads": (-2, 1)}),
        Example(((4,),), {"pads": (2, -3)}),
        Example(((2,),), {"pads": (-1, -1)}),
        Example(((0, 2),), {"pads": (1, 0, 0, 0)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        result = []
        for n, (begin, end) in zip(shapes[0], self._borders(attributes, shapes[0]), strict=True):
            added = begin + end
            if not (isinstance(added, int) and added >= 0):
                need(at_least(n + added, 0), f"Pad removes more than the extent {n}")
            result.append(n + begin + end)
        return [tuple(result)]

    def _borders(self, attributes: Attributes, shape: Shape) -> list[tuple[Size, Size]]:
        rank = len(shape)
        pads = sizes(attributes, "pads", 2 * rank)
        return list(zip(pads[:rank], pads[rank:], strict=True))

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        inside: list[Constraint] = []
        position = []
        borders = self._borders(attributes, shapes[0])
        for i, n, (begin, end) in zip(index, shapes[0], borders, strict=True):
            here = i - begin
            if not (isinstance(begin, int) and begin <= 0):
                inside.append(at_least(here, 0))
            if not (isinstance(end, int) and end <= 0):
                inside.append(less(here, n))
            position.append(here)
        return where(tuple(inside), inputs[0](tuple(position)), ZERO)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        pads = integers(attributes, "pads")
        return [pad(arrays[0], pads)]

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        source = call.shapes[0]
        key = "paddings" if call.opset < 2 else "pads"
        known = {"mode"} if call.opset >= 11 else {"mode", "value", key}
        if source is None or set(call.attributes) - known:
            return None
        if call.attributes.get("mode", "constant") != "constant":
            return None
        if call.opset < 11:
            if call.attributes.get("value", 0) != 0 or key not in call.attributes:
                return None
            return {"pads": tuple(int(v) for v in call.attributes[key])}, (0,)
        for position, shape in enumerate(call.shapes[1:], 1):
            if shape is not None and position not in call.constants:
                return None
        if 1 not in call.constants or np.any(call.constants.get(2, np.zeros(()))):
            return None
        given = [int(v) for v in call.constants[1].reshape(-1)]
        rank = len(source)
        if 3 in call.constants:
            named = [int(k) % rank for k in call.constants[3].reshape(-1)]
            if len(given) != 2 * len(named):
                return None
            widths = dict(zip([*named, *(k + rank for k in named)], given, strict=True))
            given = [widths.get(k, 0) for k in range(2 * rank)]
        return {"pads": tuple(given)}, (0,)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        if not is_concrete(attributes):
            return None
        pads = list(integers(attributes, "pads"))
        if opset < 11:
            key = "paddings" if opset < 2 else "pads"
            return OnnxCall("Pad", opset, "", {key: pads, "mode": "constant"}, tuple(shapes))
        constants = {1: np.asarray(pads, dtype=np.int64)}
        return OnnxCall("Pad", opset, "", {"mode": "constant"}, tuple(shapes), constants)


def pad(array: Array, pads: Sequence[int], value: float = 0) -> Array:
    """`array` with borders of `value`: widths before all axes, then behind; negative ones crop."""
    rank = array.ndim
    if not any(pads):
        return array
    borders = list(zip(array.shape, pads[:rank], pads[rank:], strict=True))
    result = np.full([n + begin + end for n, begin, end in borders], value, dtype=array.dtype)
    source = tuple(slice(max(0, -begin), max(0, n + min(0, end))) for n, begin, end in borders)
    part = array[source]
    target = tuple(
        slice(max(0, begin), max(0, begin) + extent)
        for (_, begin, _), extent in zip(borders, part.shape, strict=True)
    )
    result[target] = part
    return result
