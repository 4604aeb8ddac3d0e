"""Elementwise operators of several inputs: arithmetic with ONNX broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import ClassVar

import numpy as np

from xflow.ops.registry import (
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
from xflow.ops.spec import Index, Scalar, call, times
from xflow.size import Size, product

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
    """An operator on elements: `of` says what it does to them, `compute` to whole arrays."""

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
    examples = BINARY_EXAMPLES


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
    commutative = True

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] + elements[1]

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.add(*arrays))


@register
class Sub(Binary):
    """``x - y``."""

    name = op_type = "Sub"

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] - elements[1]

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(np.subtract(*arrays))


@register
class Mul(Binary):
    """``x * y``."""

    name = op_type = "Mul"
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

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] if len(elements) == 1 else call("max", *elements)

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(reduce(np.maximum, arrays))


@register
class Min(Variadic):
    """The least of the inputs."""

    name = op_type = "Min"

    def of(self, *elements: Scalar) -> Scalar:
        return elements[0] if len(elements) == 1 else call("min", *elements)

    def compute(self, *arrays: Array) -> Array:
        return np.asarray(reduce(np.minimum, arrays))
