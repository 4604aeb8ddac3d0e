"""Numbers that are known exactly, or to lie between two bounds: interval arithmetic.

What is compared is decided or `UndecidedError` is raised, so that a difference of two of them is a
difference of the real numbers. Rational operations are exact; functions are enclosed by mpmath's
interval arithmetic (R. E. Moore, Interval Analysis, 1966). Elements of numpy arrays of objects may
be such numbers: the functions that numpy calls on these are methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from mpmath.ctx_iv import MPIntervalContext

BITS = 160
"""Precision of the bounds."""

HIGHEST = 2**20
"""Exponentials of more than this are not computed: their exponents would fill the memory."""

PLAIN_BITS = 40
"""A float with more significant bits than these was rounded, as 1/3 is."""

MAX_DENOMINATOR = 10**6
"""The largest denominator of a fraction that a rounded float is read as."""

_iv = MPIntervalContext()
_iv.prec = BITS
_mp = mpmath.mp.clone()
_mp.prec = BITS + 40


class UndecidedError(ArithmeticError):
    """A comparison of numbers whose bounds overlap, or of one that is not defined."""


class Enclosure:
    """A real number: `exact`, between the ends of `bounds`, or not defined if both are None.

    What is computed from a number that is not defined is not defined either. Comparisons raise
    UndecidedError where the bounds do not tell.
    """

    __slots__ = ("bounds", "exact")
    exact: Fraction | None
    bounds: Any
    """An interval of mpmath, None for a number that is not defined."""

    def __init__(self, value: Any = None, bounds: Any = None) -> None:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, Enclosure):
            value, bounds = value.exact, value.bounds
        elif isinstance(value, float):
            value, bounds = _of_float(value)
        self.exact = None if value is None else Fraction(value)
        self.bounds = bounds
        if self.exact is not None:
            self.bounds = _iv.mpf(self.exact.numerator) / self.exact.denominator

    @property
    def is_defined(self) -> bool:
        """Whether there is such a number."""
        return self.bounds is not None

    # Arithmetic

    def __add__(self, other: Any) -> Enclosure:
        return _both(self, other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Enclosure:
        return _both(self, other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Enclosure:
        return Enclosure(other) - self

    def __mul__(self, other: Any) -> Enclosure:
        return _both(self, other, lambda a, b: a * b)

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Enclosure:
        divisor = Enclosure(other)
        if divisor.is_defined and divisor == 0:
            return UNDEFINED
        return _both(self, divisor, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Enclosure:
        return Enclosure(other) / self

    def __pow__(self, other: Any) -> Enclosure:
        exponent = Enclosure(other)
        if not (self.is_defined and exponent.is_defined):
            return UNDEFINED
        power = exponent.exact
        if power is not None and power.denominator == 1 and abs(power) <= HIGHEST:
            if power < 0 and self == 0:
                return UNDEFINED
            if self.exact is not None and abs(power) <= BITS:
                return Enclosure(self.exact ** int(power))
            return Enclosure(None, self.bounds ** int(power))
        if self == 0:
            return UNDEFINED if exponent < 0 else Enclosure(0)
        if self < 0:
            return UNDEFINED
        return self.sqrt() if power == Fraction(1, 2) else (exponent * self.log()).exp()

    def __rpow__(self, other: Any) -> Enclosure:
        return Enclosure(other) ** self

    def __neg__(self) -> Enclosure:
        return self * -1

    def __abs__(self) -> Enclosure:
        return self if not self.is_defined or self >= 0 else -self

    # Comparisons

    def __lt__(self, other: Any) -> bool:
        return _order(self, other) < 0

    def __le__(self, other: Any) -> bool:
        return _order(self, other) <= 0

    def __gt__(self, other: Any) -> bool:
        return _order(self, other) > 0

    def __ge__(self, other: Any) -> bool:
        return _order(self, other) >= 0

    def __eq__(self, other: object) -> bool:
        return _order(self, other) == 0

    def __ne__(self, other: object) -> bool:
        return _order(self, other) != 0

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return self != 0

    def __float__(self) -> float:
        raise TypeError("an enclosed number is not rounded by the way")

    def __floor__(self) -> Enclosure:
        return self._whole(math.floor, "the integer below is not decided")

    def __round__(self) -> Enclosure:
        return self._whole(round, "the nearest integer is not decided")

    def nearest(self) -> Enclosure:
        """An integer in the 24 bits of a float; of two that are as near the even one."""
        if not self.is_defined:
            return UNDEFINED
        if self.exact is None or self.exact.denominator != 1:
            raise UndecidedError("the nearest float is not decided")
        lost = max(abs(self.exact.numerator).bit_length() - 24, 0)
        return Enclosure(round(self.exact / 2**lost) * 2**lost)

    def _whole(self, to_integer: Callable[[Fraction], int], undecided: str) -> Enclosure:
        """What a function is that does not fall and gives integers."""
        if not self.is_defined:
            return UNDEFINED
        if self.exact is not None:
            return Enclosure(to_integer(self.exact))
        low, high = (to_integer(_rational(end)) for end in _ends(self.bounds))
        if low != high:
            raise UndecidedError(undecided)
        return Enclosure(low)

    def __ceil__(self) -> Enclosure:
        return -math.floor(-self)

    # Functions, by the names under which numpy asks for them

    def exp(self) -> Enclosure:
        """The exponential."""
        return self._enclosed(_iv.exp, {0: 1}, limit=HIGHEST)

    def expm1(self) -> Enclosure:
        """The exponential less 1."""
        return self.exp() - 1

    def log(self) -> Enclosure:
        """The natural logarithm."""
        if self.is_defined and self <= 0:
            return UNDEFINED
        return self._enclosed(_iv.log, {1: 0})

    def log1p(self) -> Enclosure:
        """The natural logarithm of 1 more."""
        return (self + 1).log()

    def sqrt(self) -> Enclosure:
        """The square root."""
        if self.is_defined and self < 0:
            return UNDEFINED
        if self.exact is not None:
            number = self.exact
            root = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
            if root * root == number:
                return Enclosure(root)
        return self._enclosed(_iv.sqrt)

    def tanh(self) -> Enclosure:
        """The hyperbolic tangent."""
        return 1 - 2 / ((2 * self).exp() + 1)

    def erf(self) -> Enclosure:
        """The error function, by mpmath's numbers with a margin: it has no intervals of it."""
        return self._enclosed(_erf, {0: 0})

    def sin(self) -> Enclosure:
        """The sine."""
        return self._enclosed(_iv.sin, {0: 0}, limit=HIGHEST)

    def cos(self) -> Enclosure:
        """The cosine."""
        return self._enclosed(_iv.cos, {0: 1}, limit=HIGHEST)

    def _enclosed(
        self,
        function: Callable[[Any], Any],
        known: dict[int, int] | None = None,
        limit: int | None = None,
    ) -> Enclosure:
        """The function's bounds; exact where that is `known`."""
        if not self.is_defined:
            return UNDEFINED
        for argument, value in (known or {}).items():
            if self.exact == argument:
                return Enclosure(value)
        if limit is not None and any(abs(_rational(end)) > limit for end in _ends(self.bounds)):
            raise UndecidedError("a function of too large an argument")
        return Enclosure(None, function(self.bounds))

    def __str__(self) -> str:
        if not self.is_defined:
            return "undefined"
        if self.exact is not None:
            return str(self.exact)
        return f"about {float(_rational(_ends(self.bounds)[0])):.17g}"

    __repr__ = __str__


UNDEFINED = Enclosure()
"""What is not defined: a quotient by 0, a root or a logarithm of a number that has none."""


def pi() -> Enclosure:
    """The number pi."""
    return Enclosure(None, +_iv.pi)


def differ(left: Enclosure, right: Enclosure) -> bool | None:
    """Whether two defined numbers are different; None where their bounds do not tell."""
    try:
        return left != right
    except UndecidedError:
        return None


def _both(left: Any, right: Any, operation: Callable[[Any, Any], Any]) -> Enclosure:
    a, b = Enclosure(left), Enclosure(right)
    if not (a.is_defined and b.is_defined):
        return UNDEFINED
    if a.exact is not None and b.exact is not None:
        return Enclosure(operation(a.exact, b.exact))
    return Enclosure(None, operation(a.bounds, b.bounds))


def _order(left: Enclosure, right: Any) -> int:
    """-1, 0 or 1. Raises UndecidedError."""
    other = Enclosure(right)
    if not (left.is_defined and other.is_defined):
        raise UndecidedError("a comparison with a number that is not defined")
    if left.exact is not None and other.exact is not None:
        return (left.exact > other.exact) - (left.exact < other.exact)
    (low, high), (below, above) = _ends(left.bounds), _ends(other.bounds)
    if high < below or low > above:
        return -1 if high < below else 1
    raise UndecidedError("a comparison of numbers that are almost equal")


def _ends(bounds: Any) -> tuple[Any, Any]:
    """The least and the greatest number of an interval, of which mpmath makes intervals again."""
    low, high = bounds._mpi_
    return _mp.make_mpf(low), _mp.make_mpf(high)


def _rational(end: Any) -> Fraction:
    if not _mp.isfinite(end):
        raise UndecidedError("a number of any size")
    sign, mantissa, exponent, _ = end._mpf_
    scale = Fraction(2) ** int(exponent)
    return (-scale if sign else scale) * int(mantissa)


def _erf(bounds: Any) -> Any:
    margin = _mp.mpf(2) ** (10 - BITS)
    low, high = (_mp.erf(end) for end in _ends(bounds))  # it grows everywhere
    return _iv.mpf([low - margin, high + margin])


def _of_float(value: float) -> tuple[Fraction | None, Any]:
    """A float as the number that was meant: itself, a fraction that rounds to it, or about it."""
    if not math.isfinite(value):
        return None, None
    number = Fraction(value)
    significant = abs(number.numerator) // (number.numerator & -number.numerator or 1)
    if significant < 2**PLAIN_BITS:
        return number, None
    plain = number.limit_denominator(MAX_DENOMINATOR)
    if float(plain) == value:
        return plain, None
    return None, _iv.mpf([math.nextafter(value, -math.inf), math.nextafter(value, math.inf)])
