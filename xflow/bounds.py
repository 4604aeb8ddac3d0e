"""Bounds of real numbers, and what they say of the functions of the specification language."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Ends: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Range:
    """Bounds of all elements of a tensor; each is a number, or -inf where `reached` is not None."""

    low: float
    high: float
    reached: frozenset[int] | None = None
    """None: no element is -inf. Otherwise the axes, counted from the last as -1, along which every
    line has an element that is not."""

    @property
    def is_real(self) -> bool:
        """Whether every element is a number."""
        return self.reached is None

    def within(self, bound: float) -> bool:
        """Whether all numbers are at most `bound` in magnitude."""
        return -bound <= self.low and self.high <= bound

    def join(self, other: Range) -> Range:
        """What holds of the elements of both."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Range(low, high, None if self.is_real and other.is_real else frozenset())


def power(x: Range, count: int) -> Ends:
    """The bounds of a number times itself, `count` times."""
    ends = sorted((x.low**count, x.high**count))
    if count % 2 == 0 and x.low < 0 < x.high:
        return 0.0, ends[1]
    return ends[0], ends[1]


def _rising(function: Callable[[float], float]) -> Callable[[Range, float], Ends | None]:
    return lambda x, most: (function(x.low), function(x.high))


def _exponential(x: Range, most: float) -> Ends:
    def bounded(y: float) -> float:
        return math.exp(y) if y < math.log(2.0**1023) else math.inf

    return bounded(x.low), bounded(x.high)


def _reciprocal(x: Range, most: float) -> Ends | None:
    apart = x.low >= 1 / most or x.high <= -1 / most
    return (1 / x.high, 1 / x.low) if apart else None


def _root(x: Range, most: float) -> Ends | None:
    return (math.sqrt(x.low), math.sqrt(x.high)) if x.low >= 0 else None


def _logarithm(x: Range, most: float) -> Ends | None:
    return (math.log(x.low), math.log(x.high)) if x.low >= 1 / most else None


def _absolute(x: Range, most: float) -> Ends:
    ends = abs(x.low), abs(x.high)
    return (0.0 if x.low <= 0 <= x.high else min(ends)), max(ends)


def _raised(x: Range, y: Range, most: float) -> Ends | None:
    """The bounds of a power whose exponent is one number."""
    if y.low != y.high:
        return None
    if y.low == int(y.low) and 0 <= y.low <= 8:
        return power(x, int(y.low))
    if y.low > 0 and x.low >= 0:
        return x.low**y.low, x.high**y.low
    return (x.high**y.low, x.low**y.low) if x.low >= 1 / most else None


FUNCTIONS: Mapping[str, Callable[..., Ends | None]] = {
    "reciprocal": _reciprocal,
    "max": lambda *xs: (max(x.low for x in xs[:-1]), max(x.high for x in xs[:-1])),
    "min": lambda *xs: (min(x.low for x in xs[:-1]), min(x.high for x in xs[:-1])),
    "abs": _absolute,
    "exp": _exponential,
    "log": _logarithm,
    "sqrt": _root,
    "tanh": _rising(math.tanh),
    "erf": _rising(math.erf),
    "sin": lambda x, most: (-1.0, 1.0),
    "cos": lambda x, most: (-1.0, 1.0),
    "pi": lambda most: (math.pi, math.pi),
    "power": _raised,
    "sign": lambda x, most: (-1.0, 1.0),
    "floor": _rising(math.floor),
}
"""What bounds of the arguments say of a function's value; None where it may not be a number."""
