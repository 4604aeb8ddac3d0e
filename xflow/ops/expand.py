"""Expand: explicit broadcasting to a shape."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from xflow.core.arguments import declare, integers, sizes
from xflow.core.constraint import at_least
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    OnnxCall,
    Reader,
    Shape,
    broadcast,
    broadcast_index,
    register,
)
from xflow.core.size import Expr
from xflow.core.spec import Index, Scalar
from xflow.ops.shape import Movement


@register
class Expand(Movement):
    """The input, broadcast with `shape` in both directions: the result has the common shape."""

    name = op_type = "Expand"
    role = "view"
    since = 8
    attributes = declare(shape=AttributeSpec(Kind.INTS))
    parameters = MappingProxyType({"shape": 1})
    computed = parameters
    examples = (
        Example(((3, 1),), {"shape": (3, 4)}),
        Example(((3, 1),), {"shape": (2, 3, 4)}),
        Example(((1, 2, 1),), {"shape": (3, 2, 2)}),
        Example(((2, 3),), {"shape": (3,)}),
        Example(((2, 3),), {"shape": ()}),
        Example(((),), {"shape": (2, 2)}),
        Example(((1, 2),), {"shape": (0, 2)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        target = sizes(attributes, "shape")
        for n in target:
            need(at_least(n, 0), f"Expand to the negative size {n}")
        return [broadcast((shapes[0], target), need)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        return inputs[0](broadcast_index(shapes[0], index))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        source, target = arrays[0], integers(attributes, "shape")
        return [np.broadcast_to(source, np.broadcast_shapes(source.shape, target)).copy()]

    def from_onnx(self, call: OnnxCall) -> tuple[dict[str, Attribute], tuple[int, ...]] | None:
        if 1 in call.computed and 1 not in call.constants and not call.attributes:
            return {"shape": call.computed[1]}, (0,)
        return super().from_onnx(call)

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        source, target = shapes[0], sizes(attributes, "shape")
        # An axis that the input has already is written as 1: ONNX has no symbols.
        own = (*([1] * (len(target) - len(source))), *source)[-len(target) :] if target else ()
        written = tuple(
            1 if isinstance(n, Expr) and n == mine else n
            for n, mine in zip(target, own, strict=True)
        )
        return super().to_onnx({"shape": written}, shapes, opset)
