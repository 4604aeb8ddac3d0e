"""Numbers in the constants of a graph, as matching compares them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from xflow.core.fold import ConstantLookup
from xflow.core.node import Value, apply
from xflow.core.registry import Array
from xflow.core.size import product


def is_exact(numbers: Array, converted: Array) -> bool:
    """Whether integers say what numbers do, which were perhaps computed as 64-bit floats."""
    exact = numbers.dtype.kind in "biu" or bool(np.all(np.abs(numbers) < 2.0**53))
    return exact and bool(np.all(converted == numbers))


def as_number(target: Value, constants: ConstantLookup) -> Value:
    """The number of shape [] that an elementwise operator reads in a constant of one element.

    Exporters write such with axes of extent 1. `Matcher.fault` checks that these enlarge nothing.
    """
    if not target.shape or not target.is_constant or product(target.shape) != 1:
        return target
    array = constants(target)
    if array is None or array.dtype.kind != "f" or not np.isfinite(array.flat[0]):
        return target
    return scalar(as_fraction(array.flat[0]), target.type.dtype)


def is_same(one: Value, other: Value, constants: ConstantLookup, broadcast: bool) -> bool:
    """Whether two values are one, or constants of one element that hold the same number.

    A model's 0 and the one that a rule brought in are two values. In a `broadcast` their shapes
    may differ: should the other one's have enlarged something, the types of the outputs no longer
    fit, see `replacement`.
    """
    if one == other:
        return True
    if not (one.is_constant and other.is_constant) or one.type.dtype != other.type.dtype:
        return False
    if one.shape != other.shape and not broadcast:
        return False
    if product(one.shape) != 1 or product(other.shape) != 1:
        return False
    first, second = constants(one), constants(other)
    return first is not None and second is not None and bool(first.flat[0] == second.flat[0])


def scalar(value: Fraction, dtype: str) -> Value:
    """A number as a value of shape []."""
    return apply("Scalar", (), {"value": value}, dtype=dtype)[0]


def as_fraction(number: np.generic) -> Fraction:
    """An element of an array as a fraction."""
    return Fraction(int(number) if number.dtype.kind in "biu" else float(number))
