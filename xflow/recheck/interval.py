"""Bounds of the elements of one tensor, and what holds of several of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xflow.core.registry import Array


@dataclass(frozen=True)
class Bounds:
    """Bounds of the finite elements of a tensor, and which others it may have."""

    low: float
    high: float
    nan: bool = False
    plus: bool = False
    minus: bool = False
    lines: frozenset[int] = frozenset()
    """Axes, counted from the last as -1, along which each line has an element that is not -inf."""

    @property
    def is_finite(self) -> bool:
        """Whether every element is a number."""
        return not (self.nan or self.plus or self.minus)

    @property
    def magnitude(self) -> float:
        """The largest magnitude of a finite element."""
        return max(abs(self.low), abs(self.high))


UNKNOWN = Bounds(-math.inf, math.inf, nan=True, plus=True, minus=True)

PRECISION: Mapping[str, tuple[int, int]] = {
    "FLOAT": (24, 127),
    "DOUBLE": (53, 1023),
    "FLOAT16": (11, 15),
    "BFLOAT16": (8, 127),
}
"""The binary digits of a type of floats, and its largest exponent."""


def largest(dtype: str) -> float:
    """The largest number of a type of floats."""
    digits, exponent = PRECISION[dtype]
    return math.ldexp(2 - math.ldexp(1, 1 - digits), exponent)


ZERO = Bounds(0.0, 0.0)


def of_data(array: Array) -> Bounds:
    """The bounds of known elements."""
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if array.dtype.kind in "SUO" or not array.size:
        return ZERO if not array.size else UNKNOWN
    low, high = float(array.min()), float(array.max())
    if math.isfinite(low) and math.isfinite(high):
        return Bounds(low, high)
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    least = wide == -np.inf
    lines = (axis for axis in range(-wide.ndim, 0) if np.all((~least).any(axis=axis)))
    return Bounds(
        float(finite.min(initial=math.inf)) if finite.size else 0.0,
        float(finite.max(initial=-math.inf)) if finite.size else 0.0,
        bool(np.isnan(wide).any()),
        bool((wide == np.inf).any()),
        bool(least.any()),
        frozenset(lines),
    )


def negated(x: Bounds) -> Bounds:
    """Bounds of the elements with the other sign."""
    return Bounds(-x.high, -x.low, x.nan, x.minus, x.plus)


def magnitudes(x: Bounds) -> Bounds:
    """Bounds of the magnitudes of the elements."""
    low = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Bounds(low, x.magnitude, x.nan, x.plus or x.minus)


def joined(parts: Sequence[Bounds]) -> Bounds:
    """What holds of the elements of all of them."""
    return Bounds(
        min(each.low for each in parts),
        max(each.high for each in parts),
        any(each.nan for each in parts),
        any(each.plus for each in parts),
        any(each.minus for each in parts),
    )


def greatest(parts: Sequence[Bounds]) -> Bounds:
    """The greatest of several elements. Where all but one are numbers, a NaN may be lost."""
    found = joined(parts)
    lows = [each.low for each in parts if not (each.minus or each.nan)]
    return replace(found, low=max(lows, default=found.low), minus=found.minus and not lows)
