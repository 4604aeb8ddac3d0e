"""Typed access to attributes: the checks that every operator would otherwise repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from xflow.core.registry import Array, Attributes, AttributeSpec, require
from xflow.core.size import Expr, Size
from xflow.core.spec import Scalar, times


def declare(**attributes: AttributeSpec) -> Mapping[str, AttributeSpec]:
    """The declaration of an operator's attributes."""
    return attributes


def size(attributes: Attributes, name: str) -> Size:
    """An integer attribute, symbolic or not."""
    value = attributes[name]
    require(isinstance(value, int | Expr), f"{name} must be an integer, not {value}")
    assert isinstance(value, int | Expr)
    return value


def sizes(attributes: Attributes, name: str, length: int | None = None) -> tuple[Size, ...]:
    """An attribute that lists integers, symbolic or not; of the given length."""
    value = attributes[name]
    require(isinstance(value, tuple), f"{name} must be a list of integers, not {value}")
    assert isinstance(value, tuple)
    if length is not None:
        require(len(value) == length, f"{name} must have {length} elements, not {len(value)}")
    return value


def integers(attributes: Attributes, name: str, length: int | None = None) -> tuple[int, ...]:
    """An attribute that lists literal integers."""
    values = sizes(attributes, name, length)
    require(all(isinstance(v, int) for v in values), f"{name} must be literal integers")
    return tuple(v for v in values if isinstance(v, int))


def divisor(extent: Size) -> Size:
    """An extent by which an index is divided; 1 where it is 0, since nothing is read there."""
    return 1 if extent == 0 else extent


def flag(attributes: Attributes, name: str) -> bool:
    """An attribute that is 0 or 1."""
    value = attributes[name]
    require(isinstance(value, int) and value in (0, 1), f"{name} must be 0 or 1, not {value}")
    return value == 1


def word(attributes: Attributes, name: str, known: Sequence[str]) -> str:
    """An attribute that is one of the words `known`."""
    value = attributes[name]
    require(value in known, f"{name} must be one of {', '.join(known)}, not {value}")
    assert isinstance(value, str)
    return value


def axis(attributes: Attributes, name: str, rank: int) -> int:
    """An attribute that names one of `rank` axes."""
    value = attributes[name]
    require(
        isinstance(value, int) and 0 <= value < rank, f"{name} {value} is no axis of rank {rank}"
    )
    assert isinstance(value, int)
    return value


def axes(attributes: Attributes, name: str, rank: int) -> tuple[int, ...]:
    """An attribute that names some of `rank` axes, ascending, each once."""
    values = integers(attributes, name)
    require(
        all(0 <= a < rank for a in values) and list(values) == sorted(set(values)),
        f"{name} {list(values)} must be different axes of rank {rank}, in ascending order",
    )
    return values


def literals(shape: Sequence[Size] | None) -> tuple[int, ...] | None:
    """`shape` if it is known and holds no symbol, otherwise None."""
    if shape is None or not all(isinstance(n, int) for n in shape):
        return None
    return tuple(n for n in shape if isinstance(n, int))


def number(value: object, like: Array) -> float | Fraction:
    """A real attribute in the arithmetic of the elements of `like`: exact beside exact ones."""
    assert isinstance(value, Fraction), f"the real {value} has no value"
    return value if like.dtype == object else float(value)


def nearest(array: Array) -> Array:
    """The nearest integers, the even ones of two that are as near; exact for exact elements."""
    if array.dtype == object:
        return np.asarray(np.frompyfunc(round, 1, 1)(array), object)
    return np.asarray(np.rint(array))


def quotient(numerator: Scalar, denominator: Size) -> Scalar:
    """A real divided by a size that is required to be positive."""
    if isinstance(denominator, int):
        return times(numerator, Fraction(1, denominator))
    return numerator / denominator
