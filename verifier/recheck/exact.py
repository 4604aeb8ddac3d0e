"""The value of a specification at given numbers: exact, or enclosed by proved bounds.

Floating-point arithmetic finds candidates for a difference of two sides; exact values decide, since
a rounding error in a comparison looks like a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

from xflow.core.constraint import Constraint, Relation
from xflow.core.enclosure import UNDEFINED, Enclosure, UndecidedError, pi
from xflow.core.size import OpaqueInteger, Quotient, Size, Symbol
from xflow.core.spec import (
    Bottom,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
)
from xflow.verifier.recheck.expand import NOTHING
from xflow.verifier.recheck.forms import Unreplayable

Numbers = Mapping[str, int]
Tensors = Mapping[str, Any]


def _any_of_zero(x: Enclosure, y: Enclosure | int = 0) -> Enclosure:
    """One of the functions that it may be."""
    both = x * 2 + y * 3
    return both * both - both * 5 + x * y * 3


FUNCTIONS: dict[str, Callable[..., Enclosure]] = {
    "reciprocal": lambda x: 1 / x,
    "max": max,
    "min": min,
    "abs": abs,
    "exp": Enclosure.exp,
    "log": Enclosure.log,
    "sqrt": Enclosure.sqrt,
    "tanh": Enclosure.tanh,
    "erf": Enclosure.erf,
    "sin": Enclosure.sin,
    "cos": Enclosure.cos,
    "pi": pi,
    "power": lambda x, y: x**y,
    "sign": lambda x: Enclosure(int(x > 0) - int(x < 0)),
    "floor": math.floor,
    "round": round,
    "nearest": Enclosure.nearest,
    "any": lambda *args: _any_of_zero(*args) + 7,
    "any_of_zero": _any_of_zero,
}


def value_of(scalar: Scalar, tensors: Tensors, at: Numbers) -> Enclosure | None:
    """The number that `scalar`, from `read_whole`, is; None for `Bottom`.

    Raises UndecidedError where bounds do not decide a comparison, IndexError for an
    element out of bounds, ZeroDivisionError for a size that divides by 0, and Unreplayable.
    """
    match scalar:
        case Literal(value):
            return Enclosure(value)
        case OfSize(size):
            return Enclosure(_integer(size, tensors, at))
        case Element(tensor, index):
            if scalar == NOTHING:
                return Enclosure(0)
            position = tuple(_integer(i, tensors, at) for i in index)
            array = tensors[tensor]
            if any(not 0 <= p < n for p, n in zip(position, array.shape, strict=True)):
                raise IndexError(f"{tensor}{list(position)} of shape {list(array.shape)}")
            return Enclosure(array[position])
        case Plus(args):
            return reduce(Enclosure.__add__, (_number(arg, tensors, at) for arg in args))
        case Times(args):
            return reduce(Enclosure.__mul__, (_number(arg, tensors, at) for arg in args))
        case SumOver(variable, extent, body):
            return reduce(
                Enclosure.__add__, _each(variable, extent, body, tensors, at), Enclosure(0)
            )
        case ProductOver(variable, extent, body):
            return reduce(
                Enclosure.__mul__, _each(variable, extent, body, tensors, at), Enclosure(1)
            )
        case MaxOver(variable, extent, body):
            span = range(_integer(extent, tensors, at))
            values = [value_of(body, tensors, {**at, variable: k}) for k in span]
            return _greatest(value for value in values if value is not None)
        case Bottom():
            return None
        case If(conditions, then, other):
            holds = all(_holds(condition, tensors, at) for condition in conditions)
            return value_of(then if holds else other, tensors, at)
        case Call(function, args):
            numbers = [_number(arg, tensors, at) for arg in args]
            if not all(number.is_defined for number in numbers):
                return UNDEFINED
            return FUNCTIONS[function](*numbers)
    raise Unreplayable(f"{type(scalar).__name__} has no replay")


def _number(scalar: Scalar, tensors: Tensors, at: Numbers) -> Enclosure:
    found = value_of(scalar, tensors, at)
    if found is None:
        raise UndecidedError("arithmetic with the greatest of no numbers")
    return found


def _each(
    variable: str, extent: Size, body: Scalar, tensors: Tensors, at: Numbers
) -> Iterable[Enclosure]:
    span = range(_integer(extent, tensors, at))
    return (_number(body, tensors, {**at, variable: k}) for k in span)


def _greatest(values: Iterable[Enclosure]) -> Enclosure | None:
    found: Enclosure | None = None
    for value in values:
        if not value.is_defined:
            return UNDEFINED
        found = value if found is None or value > found else found
    return found


def _holds(condition: Constraint, tensors: Tensors, at: Numbers) -> bool:
    value = _integer(condition.difference, tensors, at)
    return value >= 0 if condition.relation is Relation.AT_LEAST else value == 0


def _integer(size: Size, tensors: Tensors, at: Numbers) -> int:
    if isinstance(size, int):
        return size
    total = 0
    for monomial, coefficient in size.terms:
        total += coefficient * math.prod(_atom(atom, tensors, at) for atom in monomial)
    return total


def _atom(atom: object, tensors: Tensors, at: Numbers) -> int:
    match atom:
        case Symbol(name):
            return at[name]
        case Quotient(numerator, denominator):
            return _integer(numerator, tensors, at) // _integer(denominator, tensors, at)
        case Order(left, right):
            a, b = _number(left, tensors, at), _number(right, tensors, at)
            return int(a > b) - int(a < b)
        case OpaqueInteger():
            return atom.evaluate(at, tensors)
    raise Unreplayable(f"{type(atom).__name__} has no replay")
