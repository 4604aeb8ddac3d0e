"""Unsqueeze and Squeeze: axes of extent 1, added and removed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xflow.core.arguments import axes, declare, integers, literals, sizes
from xflow.core.constraint import equal
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
    normalise_attribute,
    register,
)
from xflow.core.spec import Index, Scalar
from xflow.ops.shape import Movement, Understood


class AxesParameter(Movement):
    """Reading and writing `axes`, an attribute of ONNX at first and an input since opset 13."""

    attributes = declare(axes=AttributeSpec(Kind.AXES))
    permutes = True

    def to_onnx(
        self, attributes: Attributes, shapes: Sequence[Shape], opset: int
    ) -> OnnxCall | None:
        named = list(integers(attributes, "axes"))
        if opset < 13:
            return OnnxCall(self.op_type, opset, "", {"axes": named}, tuple(shapes))
        constants = {1: np.asarray(named, dtype=np.int64)}
        return OnnxCall(self.op_type, opset, "", {}, tuple(shapes), constants)


@register
class Unsqueeze(AxesParameter):
    """New axes of extent 1; `axes` are their places in the output."""

    name = op_type = "Unsqueeze"
    role = "view"
    adds_axes = True
    examples = (
        Example(((2, 3),), {"axes": (0,)}),
        Example(((2, 3),), {"axes": (1, 3)}),
        Example(((3,),), {"axes": (1, 2)}),
        Example(((),), {"axes": (0,)}),
        Example(((0, 2),), {"axes": (2,)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        rank = len(shapes[0]) + len(sizes(attributes, "axes"))
        new = axes(attributes, "axes", rank)
        rest = iter(shapes[0])
        return [tuple(1 if axis in new else next(rest) for axis in range(rank))]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        new = integers(attributes, "axes")
        return inputs[0](tuple(i for axis, i in enumerate(index) if axis not in new))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.expand_dims(arrays[0], integers(attributes, "axes"))]

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        named = read_axes(call, since=13)
        if named is None or call.shapes[0] is None:
            return None
        rank = len(call.shapes[0]) + len(named)
        return {"axes": normalise_attribute(Kind.AXES, named, rank)}, (0,)


@register
class Squeeze(AxesParameter):
    """Without the named axes, each of extent 1."""

    name = op_type = "Squeeze"
    role = "view"
    examples = (
        Example(((1, 3),), {"axes": (0,)}),
        Example(((2, 1, 3, 1),), {"axes": (1, 3)}),
        Example(((1,),), {"axes": (0,)}),
        Example(((0, 1),), {"axes": (1,)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        dropped = axes(attributes, "axes", len(shapes[0]))
        for axis in dropped:
            need(equal(shapes[0][axis], 1), f"axis {axis} has extent {shapes[0][axis]}, not 1")
        return [tuple(n for axis, n in enumerate(shapes[0]) if axis not in dropped)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        dropped = integers(attributes, "axes")
        rest = iter(index)
        return inputs[0](
            tuple(0 if axis in dropped else next(rest) for axis in range(len(shapes[0])))
        )

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.squeeze(arrays[0], integers(attributes, "axes"))]

    def from_onnx(self, call: OnnxCall) -> Understood | None:
        source = call.shapes[0]
        if source is None:
            return None
        if "axes" not in call.attributes and call.shapes[1:] in ((), (None,)):
            known = literals(source)
            if known is None:
                return None
            return {"axes": tuple(axis for axis, n in enumerate(known) if n == 1)}, (0,)
        named = read_axes(call, since=13)
        if named is None:
            return None
        return {"axes": normalise_attribute(Kind.AXES, named, len(source))}, (0,)


def read_axes(call: OnnxCall, since: int) -> list[int] | None:
    """The axes that a node names, by attribute or from opset `since` on by its second input.

    None where they are not known or the node has other attributes.
    """
    if call.opset < since:
        known = set(call.attributes) == {"axes"} and len(call.shapes) == 1
        return [int(a) for a in call.attributes["axes"]] if known else None
    if call.attributes or 1 not in call.constants:
        return None
    return [int(a) for a in call.constants[1].reshape(-1)]
