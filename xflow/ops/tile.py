"""Tile: copies of a tensor side by side."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from xflow.core.arguments import declare, divisor, integers, sizes
from xflow.core.constraint import at_least
from xflow.core.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    Reader,
    Shape,
    register,
)
from xflow.core.size import Size
from xflow.core.spec import Index, Scalar
from xflow.ops.shape import Movement


@register
class Tile(Movement):
    """The input ``repeats[k]`` times along each axis k: ``y[i] = x[i mod n]``."""

    name = op_type = "Tile"
    since = 6
    attributes = declare(repeats=AttributeSpec(Kind.INTS))
    parameters = MappingProxyType({"repeats": 1})
    examples = (
        Example(((2, 3),), {"repeats": (2, 1)}),
        Example(((2, 3),), {"repeats": (1, 3)}),
        Example(((2, 1, 3),), {"repeats": (2, 3, 2)}),
        Example(((3,),), {"repeats": (1,)}),
        Example(((2, 3),), {"repeats": (0, 2)}),
        Example(((0, 2),), {"repeats": (3, 2)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        repeats = sizes(attributes, "repeats", len(shapes[0]))
        for r in repeats:
            need(at_least(r, 0), f"Tile repeats {r} times")
        return [tuple(n * r for n, r in zip(shapes[0], repeats, strict=True))]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        repeats = sizes(attributes, "repeats", len(shapes[0]))
        rows = zip(index, shapes[0], repeats, strict=True)
        return inputs[0](tuple(_source(i, n, r) for i, n, r in rows))

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.tile(arrays[0], integers(attributes, "repeats"))]


def _source(i: Size, extent: Size, repeats: Size) -> Size:
    """Where element `i` comes from; the remainder is left out where it changes nothing."""
    if extent == 1:
        return 0
    return i if repeats == 1 else i % divisor(extent)
