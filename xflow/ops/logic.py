"""Comparisons, and logical operators on Booleans."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from xflow.core.registry import Array, Example, register
from xflow.core.sorts import BOOL, INT, NUMBERS, SORTS
from xflow.core.spec import ONE, ZERO, Scalar, choose, is_equal, is_less
from xflow.ops.elementwise import BINARY_EXAMPLES, Binary
from xflow.ops.functions import Unary


def negated(condition: Scalar) -> Scalar:
    """1 where a Boolean is 0, and 0 where it is 1."""
    return choose(condition, ZERO, ONE)


class Comparison(Binary):
    """An operator that compares numbers."""

    gives: ClassVar[tuple[str, ...]] = (BOOL,)
    sorts = NUMBERS


class Logic(Binary):
    """An operator of two Booleans."""

    takes: ClassVar[tuple[str, ...]] = (BOOL,)
    gives: ClassVar[tuple[str, ...]] = (BOOL,)
    commutative = True


@register
class Less(Comparison):
    """Whether ``x < y``."""

    name = op_type = "Less"

    def of(self, *elements: Scalar) -> Scalar:
        return is_less(elements[0], elements[1])

    def compute(self, *arrays: Array) -> Array:
        return np.less(*arrays).astype(bool)


@register
class Greater(Comparison):
    """Whether ``x > y``."""

    name = op_type = "Greater"

    def of(self, *elements: Scalar) -> Scalar:
        return is_less(elements[1], elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.greater(*arrays).astype(bool)


@register
class LessOrEqual(Comparison):
    """Whether ``x <= y``."""

    name = op_type = "LessOrEqual"
    since = 12

    def of(self, *elements: Scalar) -> Scalar:
        return negated(is_less(elements[1], elements[0]))

    def compute(self, *arrays: Array) -> Array:
        return np.less_equal(*arrays).astype(bool)


@register
class GreaterOrEqual(Comparison):
    """Whether ``x >= y``."""

    name = op_type = "GreaterOrEqual"
    since = 12

    def of(self, *elements: Scalar) -> Scalar:
        return negated(is_less(elements[0], elements[1]))

    def compute(self, *arrays: Array) -> Array:
        return np.greater_equal(*arrays).astype(bool)


@register
class Equal(Comparison):
    """Whether ``x = y``, for numbers and Booleans."""

    name = op_type = "Equal"
    since = 11
    sorts = SORTS
    commutative = True
    examples = (
        *BINARY_EXAMPLES,
        Example(((2, 3), (3,)), types=(BOOL, BOOL)),
        Example(((2, 3), (2, 1)), types=(INT, INT)),
    )

    def of(self, *elements: Scalar) -> Scalar:
        return is_equal(elements[0], elements[1])

    def compute(self, *arrays: Array) -> Array:
        return np.equal(*arrays).astype(bool)


@register
class And(Logic):
    """Whether both are true."""

    name = op_type = "And"

    def of(self, *elements: Scalar) -> Scalar:
        return choose(elements[0], elements[1], ZERO)

    def compute(self, *arrays: Array) -> Array:
        return np.logical_and(*arrays)


@register
class Or(Logic):
    """Whether one of the two is true, or both are."""

    name = op_type = "Or"

    def of(self, *elements: Scalar) -> Scalar:
        return choose(elements[0], ONE, elements[1])

    def compute(self, *arrays: Array) -> Array:
        return np.logical_or(*arrays)


@register
class Xor(Logic):
    """Whether just one of the two is true."""

    name = op_type = "Xor"

    def of(self, *elements: Scalar) -> Scalar:
        return choose(elements[0], negated(elements[1]), elements[1])

    def compute(self, *arrays: Array) -> Array:
        return np.logical_xor(*arrays)


@register
class Not(Unary):
    """Whether it is false."""

    name = op_type = "Not"
    since = 1
    takes: ClassVar[tuple[str, ...]] = (BOOL,)
    gives: ClassVar[tuple[str, ...]] = (BOOL,)

    def of(self, *elements: Scalar) -> Scalar:
        return negated(elements[0])

    def compute(self, *arrays: Array) -> Array:
        return np.logical_not(arrays[0])
