"""Elementwise operators of several inputs: arithmetic with ONNX broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from typing import ClassVar

import numpy as np

from xflow.core.composite import Composite, made, scaled
from xflow.core.node import Value
from xflow.core.registry import (
    Array,
    Attributes,
    Example,
    Need,
    Operator,
    Reader,
    Shape,
    broadcast,
    broadcast_index,
    register,
)
from xflow.core.size import Size, product
from xflow.core.sorts import NUMBERS
from xflow.core.spec import MAX_IN_A_ROW, Index, Literal, Scalar, call, times

BINARY_EXAMPLES = (
    Example(((2, 3), (2, 3))),
    Example(((2, 3), (3,))),
    Example(((2, 1, 3), (4, 1))),
    Example(((), (2, 2))),
    Example(((), ())),
    Example(((1, 3), (2, 1))),
    Example(((0, 2), (1, 2))),
    Example(((0,), (1,))),
)


class Elementwise(Operator):
    """An operator on elements: `of` specifies it for one element, `compute` for whole arrays."""

    elementwise: ClassVar[bool] = True
    cost: ClassVar[int] = 1
    """Arithmetic operations for each output element, with a function counted as several."""

    def of(self, *elements: Scalar) -> Scalar:
        """The output element from the input elements."""
        raise NotImplementedError

    def compute(self, *arrays: Array) -> Array:
        """The output array from broadcastable input arrays."""
        raise NotImplementedError

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        return [broadcast(shapes, need)]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        return self.of(
            *(
                read(broadcast_index(shape, index))
                for read, shape in zip(inputs, shapes, strict=True)
            )
        )

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.asarray(self.compute(*arrays))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(outputs[0]) * self.cost * max(1, len(shapes) - 1)


class Binary(Elementwise):
    """An elementwise operator of two inputs."""

    since = 7
    arity = (2, 2)
    examples: ClassVar[Sequence[Example]] = BINARY_EXAMPLES


class Variadic(Elementwise):
    """An elementwise operator of one or more inputs."""

    since = 8
    arity = (1, None)
    commutative = True
    examples = (
        *BINARY_EXAMPLES,
        Example(((2, 3),)),
        Example(((2, 3), (3,), (2, 1))),
        Example(((1,), (3, 1), (2, 1, 1), ())),
    )


@register
class Add(Binary):
    """``x + y``."""

    name = op_type = "Add"
    sorts = NUMBERS
    commutative = True

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] + elements[1]

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.add(*arrays))


@register
class Sub(Binary):
    """``x - y``."""

    name = op_type = "Sub"
    sorts = NUMBERS

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] - elements[1]

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.subtract(*arrays))


@register
class Mul(Binary):
    """``x * y``."""

    name = op_type = "Mul"
    sorts = NUMBERS
    commutative = True

    def of(self, *elements: Scalar) -> Scalar:
        return times(*elements)

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.multiply(*arrays))


@register
class Div(Binary):
    """``x / y``."""

    name = op_type = "Div"
    cost = 2

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] / elements[1]

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.true_divide(*arrays))


@register
class Max(Variadic):
    """The greatest of the inputs."""

    name = op_type = "Max"
    sorts = NUMBERS

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] if len(elements) == 1 else call("max", *elements)

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(reduce(np.maximum, arrays))


@register
class Min(Variadic):
    """The least of the inputs."""

    name = op_type = "Min"
    sorts = NUMBERS

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] if len(elements) == 1 else call("min", *elements)

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(reduce(np.minimum, arrays))


class Accumulation(Composite):
    """A variadic elementwise operator that is defined by additions."""

    elementwise = True
    since = Variadic.since
    arity = Variadic.arity
    commutative = True
    examples = (*Variadic.examples, Example(((2, 3), (2, 3), (2, 3))))

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        return [broadcast(shapes, need)]

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        if len(inputs) <= MAX_IN_A_ROW:
            return (reduce(lambda total, x: made("Add", total, x), inputs),)
        middle = len(inputs) // 2
        halves = inputs[:middle], inputs[middle:]
        return (made("Add", *(Accumulation.define(self, half, {})[0] for half in halves)),)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.asarray(reduce(np.add, arrays))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(outputs[0]) * max(1, len(shapes) - 1)


@register
class Sum(Accumulation):
    """The sum of the inputs."""

    name = op_type = "Sum"


@register
class Mean(Accumulation):
    """The mean of the inputs."""

    name = op_type = "Mean"

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        (total,) = super().define(inputs, attributes)
        return (scaled(Fraction(1, len(inputs)), total),)

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        (total,) = super().numpy(arrays, attributes)
        return [np.asarray(total / len(arrays))]


@register
class Pow(Binary):
    """``x ** y``.

    It is defined where x is positive, where y is an integer (not negative at ``x = 0``), and at
    ``x = 0 < y``. A literal exponent that is a small multiple of 1/2 is read as a product of
    copies of x and its root.
    """

    name = op_type = "Pow"
    since = 7
    cost = 16

    def of(self, *elements: Scalar) -> Scalar:
        base, exponent = elements
        if not isinstance(exponent, Literal) or abs(exponent.value) > MAX_EXPONENT:
            return call("power", base, exponent)
        whole, half = divmod(abs(exponent.value), 1)
        if half not in (0, HALF) or exponent.value == 0:  # x ** 0 must not hide x
            return call("power", base, exponent)
        value = times(*[base] * int(whole), *[call("sqrt", base)] * (half == HALF))
        return value if exponent.value > 0 else 1 / value

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.power(*arrays))


HALF = Fraction(1, 2)
MAX_EXPONENT = 8
"""The largest literal exponent that is read as a product."""
