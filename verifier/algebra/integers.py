"""Integers among normal forms: what rounding leaves as it is, and the ranges of sums of codes.

Elements of some inputs are integers in a known range. Sums and products of such, greatest values of
several, and what was rounded before are integers, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import TypeAlias

from xflow.core.spec import Element
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Maximum,
    Normal,
    SizeAtom,
    Term,
    make_normal,
    scale,
)

INTEGERS = frozenset({"round", "floor", "sign"})
"""Functions that give integers."""

Ranges: TypeAlias = Mapping[str, tuple[int, int]]
"""The least and the greatest element that inputs of integers may have, by their names."""
Interval: TypeAlias = tuple[Fraction | None, Fraction | None]
"""Bounds of a number; None where there is none."""
UNBOUNDED: Interval = (None, None)
ZERO: Interval = (Fraction(0), Fraction(0))


def is_integer(normal: Normal, ranges: Ranges) -> bool:
    """Whether `normal` is shown to be an integer wherever it is read."""
    return all(
        term.coefficient.denominator == 1
        and all(exponent > 0 and _is_integer_base(base, ranges) for base, exponent in term.powers)
        for term in normal.terms
    )


def _is_integer_base(base: Base, ranges: Ranges) -> bool:
    match base:
        case SizeAtom():
            return True
        case Element(tensor, _):
            return tensor in ranges
        case Function(name, _):
            return name in INTEGERS
        case Maximum(options):  # one of its options is there wherever it is read
            return all(is_integer(option.body, ranges) for option in options)
    return False


def without_steps(normal: Normal, ranges: Ranges) -> Normal | None:
    """``a + n`` for ``round(a) + n`` and ``n - a`` for ``n - round(a)``, for an integer n.

    Of both the one is at least 0 where the other is: rounding keeps the order, and integers as they
    are. So does rounding down for the first. None where `normal` is nothing of the kind.
    """
    for term in normal.terms:
        if len(term.powers) != 1 or abs(term.coefficient) != 1 or term.variables or term.guards:
            continue
        ((base, exponent),) = term.powers
        if not isinstance(base, Function) or exponent != 1:
            continue
        kept = base.name == "round" or (base.name == "floor" and term.coefficient == 1)
        rest = [other for other in normal.terms if other is not term]
        if kept and is_integer(Normal(tuple(rest)), ranges):
            return make_normal((*rest, *scale(base.args[0].terms, term.coefficient)))
    return None


def interval(normal: Normal, ranges: Ranges) -> Interval:
    """Bounds of `normal` that follow from the ranges of inputs of integers."""
    return reduce(_plus, (_interval_of_term(term, ranges) for term in normal.terms), ZERO)


def _interval_of_term(term: Term, ranges: Ranges) -> Interval:
    if term.variables:
        return UNBOUNDED
    product: Interval = (term.coefficient, term.coefficient)
    for base, exponent in term.powers:
        if exponent < 0:
            return UNBOUNDED
        for _ in range(exponent):
            product = _times(product, _interval_of_base(base, ranges))
    # Where its guards fail a term is 0.
    return _hull([product, ZERO]) if term.guards else product


def _interval_of_base(base: Base, ranges: Ranges) -> Interval:
    match base:
        case Element(tensor, _):
            low, high = ranges.get(tensor, UNBOUNDED)
            return None if low is None else Fraction(low), None if high is None else Fraction(high)
        case Function("sign", _):
            return Fraction(-1), Fraction(1)
        case Maximum(options):
            return _greatest(base, [interval(option.body, ranges) for option in options])
    return UNBOUNDED


def _greatest(maximum: Maximum, values: Sequence[Interval]) -> Interval:
    """A greatest value is at least each one that is always there, and in the hull of all."""
    low, high = _hull(values)
    always = [
        value[0]
        for option, value in zip(maximum.options, values, strict=True)
        if not option.variables and not option.guards and value[0] is not None
    ]
    lows = [*always, *([] if low is None else [low])]
    return max(lows, default=None), high


def _hull(values: Sequence[Interval]) -> Interval:
    lows, highs = [low for low, _ in values], [high for _, high in values]
    known_lows = [low for low in lows if low is not None]
    known_highs = [high for high in highs if high is not None]
    return (
        min(known_lows) if len(known_lows) == len(lows) else None,
        max(known_highs) if len(known_highs) == len(highs) else None,
    )


def _plus(first: Interval, second: Interval) -> Interval:
    (a, b), (c, d) = first, second
    return (
        None if a is None or c is None else a + c,
        None if b is None or d is None else b + d,
    )


def _times(first: Interval, second: Interval) -> Interval:
    (a, b), (c, d) = first, second
    if ZERO in (first, second):
        return ZERO
    if a is None or b is None or c is None or d is None:
        return _scaled(first, second) or _scaled(second, first) or UNBOUNDED
    products = (a * c, a * d, b * c, b * d)
    return min(products), max(products)


def _scaled(factor: Interval, bounds: Interval) -> Interval | None:
    """The product of one known number with what has a bound on one side alone."""
    number = factor[0]
    if number is None or factor[1] != number:
        return None
    ends = [None if end is None else number * end for end in bounds]
    return (ends[0], ends[1]) if number > 0 else (ends[1], ends[0])
