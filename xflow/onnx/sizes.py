"""Vectors of sizes for a model that does not compute them itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xflow.core.node import Value
from xflow.core.registry import Attribute
from xflow.core.size import Expr

Extent: TypeAlias = "int | tuple[Value, int]"
"""A number, or a dimension of an input: the input and the axis."""

SHAPE_OF_AXES = 15
"""The first opset in which Shape gives some of the dimensions."""


def extents(sizes: Attribute, inputs: Sequence[Value]) -> list[Extent] | None:
    """Each of the sizes as a number or a dimension of an input; None where one is neither."""
    known: dict[object, Extent] = {}
    for value in inputs:
        for axis, size in enumerate(value.shape):
            known.setdefault(size, (value, axis))
    found: list[Extent] = []
    for size in sizes if isinstance(sizes, tuple) else ():
        if isinstance(size, int):
            found.append(size)
        elif isinstance(size, Expr) and size in known:
            found.append(known[size])
        else:
            return None
    return found
