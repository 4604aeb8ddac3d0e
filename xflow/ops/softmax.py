"""Softmax and its logarithm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from xflow.core.arguments import axis, declare
from xflow.core.composite import Composite, made
from xflow.core.intervals import Floats, Range
from xflow.core.node import Value
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Shape,
    register,
)
from xflow.core.size import Size, product

LONGEST = 64.0
"""More than the logarithm of the extent of any tensor."""
ALONE_SINCE = 13
"""The opset from which on the operators act along `axis` alone; before, on all axes from there."""


class AlongAxis(Composite):
    """An operator on each line along one axis, by default the last."""

    since = 1
    attributes = declare(axis=AttributeSpec(Kind.AXIS, lambda shapes: len(shapes[0]) - 1))
    examples = (
        Example(((2, 3),)),
        Example(((2, 3),), {"axis": 0}),
        Example(((3,),)),
        Example(((2, 3, 2),), {"axis": 1}),
        Example(((2, 3, 1),), {"axis": 1}),
        Example(((2, 1),)),
        Example(((0, 2),)),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        axis(attributes, "axis", len(shapes[0]))
        return [shapes[0]]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 12 * product(outputs[0])

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        source = call.shapes[0]
        if call.opset >= ALONE_SINCE or source is None:
            return super().from_onnx(call)
        if set(call.attributes) - {"axis"}:
            return None
        first, rank = int(call.attributes.get("axis", 1)), len(source)
        if not -rank <= first < rank:
            return None
        # All axes from `first` on are one line: along an axis that alone has more than 1 element.
        joined = range(first % rank, rank)
        long = [k for k in joined if source[k] != 1]
        return ({"axis": long[0] if long else joined[-1]}, (0,)) if len(long) <= 1 else None

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        along = axis(attributes, "axis", len(shapes[0]))
        if opset < ALONE_SINCE and any(n != 1 for n in shapes[0][along + 1 :]):
            return None
        return OnnxCall(self.op_type, opset, "", {"axis": along}, tuple(shapes))


@register
class Softmax(AlongAxis):
    """``exp(x) / sum(exp(x))``, summed along `axis`."""

    name = op_type = "Softmax"
    role = "softmax"
    weights_along = "axis"

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        exponential = made("Exp", inputs[0])
        total = made("ReduceSum", exponential, axes=_axes(inputs[0].shape, attributes))
        return (made("Div", exponential, total),)

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range:
        """The kernel subtracts the greatest element: a NaN or +inf makes the line NaN.

        So does a line that is -inf throughout.
        """
        (x,) = inputs
        along = axis(attributes, "axis", len(shapes[0])) - len(shapes[0])
        covered = x.reached is not None and along not in x.reached
        return Range(0.0, 1.0, nan=x.nan or x.plus or covered)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        (x,) = arrays
        along = axis(attributes, "axis", x.ndim)
        powers = np.exp(x - x.max(axis=along, keepdims=True, initial=-np.inf))
        return [powers / powers.sum(axis=along, keepdims=True)]


@register
class LogSoftmax(AlongAxis):
    """``x - log(sum(exp(x)))``, summed along `axis`: the logarithm of Softmax."""

    name = op_type = "LogSoftmax"
    role = "softmax"

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        (x,) = inputs
        total = made("ReduceLogSumExp", x, axes=_axes(x.shape, attributes))
        return (made("Sub", x, total),)

    def bounds(
        self,
        inputs: Sequence[Range],
        shapes: Sequence[Shape],
        attributes: Attributes,
        floats: Floats,
    ) -> Range:
        """At most 0, and less by the spread of the elements and the logarithm of their number.

        The kernel subtracts the greatest element; NaN and infinities have the effect as in Softmax.
        """
        (x,) = inputs
        rank = len(shapes[0])
        along = axis(attributes, "axis", rank)
        count = shapes[0][along]
        most = math.log(max(count, 1)) if isinstance(count, int) else LONGEST
        covered = x.reached is not None and along - rank not in x.reached
        return floats.closed(
            x.low - x.high - most, 0.0, (x,),
            minus=x.is_infinite, nan=x.nan or x.plus or covered,
        )  # fmt: skip

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        (x,) = arrays
        along = axis(attributes, "axis", x.ndim)
        shifted = x - x.max(axis=along, keepdims=True, initial=-np.inf)
        return [shifted - np.log(np.exp(shifted).sum(axis=along, keepdims=True))]


def _axes(shape: Shape, attributes: Attributes) -> tuple[int, ...]:
    return (axis(attributes, "axis", len(shape)),)
