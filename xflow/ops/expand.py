"""Broadcasting as an operator of its own."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from xflow.constraint import at_least
from xflow.ops.arguments import declare, integers, sizes
from xflow.ops.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    Reader,
    Shape,
    broadcast,
    broadcast_index,
    register,
)
from xflow.ops.shape import Movement
from xflow.ops.spec import Index, Scalar


@register
class Expand(Movement):
    """The input, broadcast with `shape` in both directions: the result has the common shape."""

    name = op_type = "Expand"
    since = 8
    attributes = declare(shape=AttributeSpec(Kind.INTS))
    parameters = MappingProxyType({"shape": 1})
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
