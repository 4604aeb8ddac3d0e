"""Constants that rules need: operators without inputs, written as weights when exported.

Their `numpy` implementations give float64; callers convert it to other element types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from xflow.core.arguments import declare, integers, size, sizes
from xflow.core.constraint import at_least, equal
from xflow.core.registry import (
    Array,
    Attributes,
    AttributeSpec,
    Example,
    Kind,
    Need,
    Operator,
    Reader,
    RealSymbol,
    Shape,
    register,
    require,
)
from xflow.core.size import Size
from xflow.core.sorts import BOOL, SORTS
from xflow.core.spec import ONE, ZERO, Element, Index, Literal, call, scalar, where
from xflow.core.spec import Scalar as Expression


class Constant(Operator):
    """An operator without inputs."""

    arity = (0, 0)
    sorts = SORTS

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return 0


@register
class Scalar(Constant):
    """A real number of shape []; in a rule it may be a symbol for any."""

    name = "Scalar"
    attributes = declare(value=AttributeSpec(Kind.REAL))
    examples = (
        Example((), {"value": Fraction(1)}),
        Example((), {"value": Fraction(-7, 4)}),
        Example((), {"value": Fraction(0)}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        value = attributes["value"]
        require(isinstance(value, Fraction | RealSymbol), f"{value} is no real number")
        return [()]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Expression:
        value = attributes["value"]
        if isinstance(value, RealSymbol):
            return Element(f"%{value.name}", ())
        assert isinstance(value, Fraction)
        return Literal(value)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        value = attributes["value"]
        assert isinstance(value, Fraction), f"the real {value} has no value"
        return [np.asarray(float(value))]


@register
class Pi(Constant):
    """The number pi, of shape []."""

    name = "Pi"
    elementwise = True
    examples = (Example(()),) * 3

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        return [()]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Expression:
        return call("pi")

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.asarray(math.pi)]


class Shaped(Constant):
    """A tensor of a given shape."""

    attributes = declare(shape=AttributeSpec(Kind.INTS))

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        result = sizes(attributes, "shape")
        for n in result:
            need(at_least(n, 0), f"a size of {self.name} is negative: {n}")
        return [result]


class Filled(Shaped):
    """A tensor of equal elements."""

    examples = (
        Example((), {"shape": (2, 3)}),
        Example((), {"shape": ()}),
        Example((), {"shape": (2, 0)}),
    )
    element: Literal

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Expression:
        return self.element


@register
class Zeros(Filled):
    """Zeros of a given shape."""

    name = "Zeros"
    element = ZERO

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.zeros(integers(attributes, "shape"))]


@register
class Ones(Filled):
    """Ones of a given shape."""

    name = "Ones"
    element = ONE

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.ones(integers(attributes, "shape"))]


@register
class AllTrue(Filled):
    """Booleans of a given shape that are all true."""

    name = "AllTrue"
    gives = (BOOL,)
    element = ONE

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.ones(integers(attributes, "shape"), dtype=bool)]


@register
class Vector(Constant):
    """The integers `values`, of shape [len(values)]."""

    name = "Vector"
    attributes = declare(values=AttributeSpec(Kind.INTS))
    examples = (
        Example((), {"values": (4, 0, -5)}),
        Example((), {"values": (7,)}),
        Example((), {"values": ()}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        return [(len(sizes(attributes, "values")),)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Expression:
        result: Expression = ZERO
        for place, value in enumerate(sizes(attributes, "values")):
            result = where((equal(index[0], place),), scalar(value), result)
        return result

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.asarray(integers(attributes, "values"), dtype=np.float64)]


@register
class Eye(Constant):
    """The identity matrix with `n` rows."""

    name = "Eye"
    attributes = declare(n=AttributeSpec(Kind.INT))
    examples = (Example((), {"n": 3}), Example((), {"n": 1}), Example((), {"n": 0}))

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        n = size(attributes, "n")
        need(at_least(n, 0), f"an identity matrix of negative size {n}")
        return [(n, n)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Expression:
        return where((equal(index[0], index[1]),), ONE, ZERO)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        n = attributes["n"]
        assert isinstance(n, int)
        return [np.eye(n)]


@register
class IdentityKernel(Constant):
    """The kernel [channels, channels, *kernel] of the convolution that keeps its input.

    It is 1 at the centre, position ``(k - 1) // 2`` of each axis, of output channel = input
    channel, else 0.
    """

    name = "IdentityKernel"
    attributes = declare(channels=AttributeSpec(Kind.INT), kernel=AttributeSpec(Kind.INTS))
    examples = (
        Example((), {"channels": 2, "kernel": (3, 1)}),
        Example((), {"channels": 1, "kernel": (4,)}),
        Example((), {"channels": 2, "kernel": (1, 2, 3)}),
        Example((), {"channels": 2, "kernel": ()}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        channels, kernel = size(attributes, "channels"), sizes(attributes, "kernel")
        need(at_least(channels, 0), f"an identity kernel of {channels} channels")
        for k in kernel:
            need(at_least(k, 1), f"an identity kernel of extent {k}")
        return [(channels, channels, *kernel)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Expression:
        centre = [(k - 1) // 2 for k in sizes(attributes, "kernel")]
        at_centre = (equal(i, c) for i, c in zip(index[2:], centre, strict=True))
        return where((equal(index[0], index[1]), *at_centre), ONE, ZERO)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        channels, kernel = attributes["channels"], integers(attributes, "kernel")
        assert isinstance(channels, int)
        result = np.zeros((channels, channels, *kernel))
        diagonal = np.arange(channels)
        position: tuple[Any, ...] = (diagonal, diagonal, *((k - 1) // 2 for k in kernel))
        result[position] = 1
        return [result]


@register
class LowerTriangle(Shaped):
    """Booleans [..., rows, columns], true where ``column <= row + offset``."""

    name = "LowerTriangle"
    gives = (BOOL,)
    attributes = declare(shape=AttributeSpec(Kind.INTS), offset=AttributeSpec(Kind.INT, 0))
    examples = (
        Example((), {"shape": (3, 3)}),
        Example((), {"shape": (2, 5), "offset": 3}),
        Example((), {"shape": (1, 2, 3, 2), "offset": -1}),
        Example((), {"shape": (2, 0), "offset": 1}),
    )

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        size(attributes, "offset")
        require(len(sizes(attributes, "shape")) >= 2, f"{self.name} has rows and columns")
        return super().shape(shapes, attributes, need)

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Expression:
        row, column = index[-2:]
        return where((at_least(row + size(attributes, "offset"), column),), ONE, ZERO)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        shape, offset = integers(attributes, "shape"), attributes["offset"]
        assert isinstance(offset, int)
        rows, columns = shape[-2:]
        return [np.broadcast_to(np.tri(rows, columns, offset, dtype=bool), shape).copy()]
