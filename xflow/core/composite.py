"""Composite operators: declared by a definition over simpler operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, TypeAlias

import numpy as np

from xflow.core.graph import requirements
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    Need,
    Operator,
    Reader,
    RealSymbol,
    Shape,
    broadcast,
)
from xflow.core.size import Size, product
from xflow.core.sorts import BOOL
from xflow.core.spec import Index, Scalar


class Composite(Operator):
    """An operator that is a graph over simpler ones; shape and specification follow from it.

    Both sides of `definition` make the definitional rule, which holds by declaration.
    """

    @abstractmethod
    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        """The outputs, computed by simpler operators."""

    def check(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> None:
        """Require what the operator needs beyond what its definition does."""

    def definition(
        self, shapes: Sequence[Shape], attributes: Attributes
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Leaves of these shapes, and the outputs that the definition computes from them."""
        leaves = tuple(
            leaf(f"{self.name}.{position}", TensorType(self.sort(position), tuple(shape)))
            for position, shape in enumerate(shapes)
        )
        return leaves, self.define(leaves, attributes)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        self.check(shapes, attributes, need)
        _, outputs = self.definition(shapes, attributes)
        for condition in requirements(outputs):
            need(condition, f"{self.name} needs {condition}")
        return [value.shape for value in outputs]

    def at(
        self,
        inputs: Sequence[Reader],
        shapes: Sequence[Shape],
        attributes: Attributes,
        output: int,
        index: Index,
    ) -> Scalar:
        leaves, outputs = self.definition(shapes, attributes)
        readers = dict(zip(leaves, inputs, strict=True))

        def reader(value: Value) -> Reader:
            if value in readers:
                return readers[value]
            node = value.node
            assert isinstance(node.op, Operator)
            op, sources = node.op, [reader(source) for source in node.inputs]
            below = [source.shape for source in node.inputs]
            return lambda i: op.at(sources, below, node.attributes, value.index, i)

        return reader(outputs[output])(index)


Operand: TypeAlias = "Value | int | Fraction | RealSymbol"
"""An input of an operator in a definition; a number stands for a `Scalar`."""


def made(name: str, *operands: Operand, **attributes: Attribute) -> Value:
    """The output of the operator `name`. Numbers have the type of the first value among `operands`
    that is not Boolean."""
    types = [operand.type.dtype for operand in operands if isinstance(operand, Value)]
    dtype = next((each for each in types if each != BOOL), types[0])

    def value(operand: Operand) -> Value:
        if isinstance(operand, Value):
            return operand
        real = operand if isinstance(operand, RealSymbol) else Fraction(operand)
        return apply("Scalar", (), {"value": real}, dtype=dtype)[0]

    return apply(name, [value(operand) for operand in operands], attributes)[0]


def scaled(factor: Fraction | RealSymbol, value: Value) -> Value:
    """``factor * value``, which is the value itself for a factor of 1."""
    return value if factor == 1 else made("Mul", factor, value)


def real(attributes: Attributes, name: str) -> Fraction | RealSymbol:
    """A real attribute: a number or a symbol for one."""
    value = attributes[name]
    assert isinstance(value, Fraction | RealSymbol), f"{name} must be a real number, not {value}"
    return value


class ElementwiseComposite(Composite):
    """A composite that acts on elements: `formula` defines it, `compute` is its numpy reading."""

    elementwise = True
    cost: ClassVar[int] = 1
    """Arithmetic operations for each output element, with a function counted as several."""

    @abstractmethod
    def formula(self, inputs: Sequence[Value], attributes: Attributes) -> Value:
        """The output, computed by simpler elementwise operators."""

    @abstractmethod
    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        """The output array, by a way that is accurate for floats."""

    def define(self, inputs: Sequence[Value], attributes: Attributes) -> tuple[Value, ...]:
        return (self.formula(inputs, attributes),)

    def shape(self, shapes: Sequence[Shape], attributes: Attributes, need: Need) -> list[Shape]:
        self.check(shapes, attributes, need)
        return [broadcast(shapes, need)]

    def numpy(self, arrays: Sequence[Array], attributes: Attributes) -> list[Array]:
        return [np.asarray(self.compute(arrays, attributes))]

    def flops(
        self, shapes: Sequence[Shape], attributes: Attributes, outputs: Sequence[Shape]
    ) -> Size:
        return product(outputs[0]) * self.cost * max(1, len(shapes) - 1)
