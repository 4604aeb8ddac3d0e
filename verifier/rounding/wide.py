"""Numbers of 320 bits with unlimited exponents, as elements of numpy arrays.

They are the reference where the float64 values of two sides disagree. The arithmetic is mpmath's,
in integers: the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Array, Operator

BITS = 320
"""Enough for a difference of numbers near 1 to be right down to the least positive number of fp32,
2^-149, and for what is then done to it."""

HIGHEST = 2**20
"""Exponentials of more than this are infinite here too: their exponents would fill the memory."""

_mp = mpmath.mp.clone()
_mp.prec = BITS


class Wide:
    """A number. Functions that numpy calls on the elements of object arrays are methods."""

    __slots__ = ("value",)
    value: Any
    """An mpmath number."""

    def __init__(self, value: Any) -> None:
        if isinstance(value, Wide):
            value = value.value
        elif isinstance(value, Fraction):
            value = _mp.mpf(value.numerator) / value.denominator
        elif isinstance(value, np.generic):
            value = value.item()
        self.value = _mp.mpf(value)

    def __add__(self, other: Any) -> Wide:
        return Wide(self.value + Wide(other).value)

    def __sub__(self, other: Any) -> Wide:
        return Wide(self.value - Wide(other).value)

    def __mul__(self, other: Any) -> Wide:
        return Wide(self.value * Wide(other).value)

    def __truediv__(self, other: Any) -> Wide:
        divisor = Wide(other).value
        if divisor == 0:
            sign = _mp.sign(self.value)
            return Wide(sign * _mp.inf if sign else _mp.nan)
        return Wide(self.value / divisor)

    def __pow__(self, other: Any) -> Wide:
        exponent = Wide(other).value
        if self.value == 0 and exponent < 0:
            return Wide(_mp.inf)
        power = self.value**exponent
        return Wide(power if isinstance(power, _mp.mpf) else _mp.nan)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Wide:
        return Wide(other) - self

    def __rtruediv__(self, other: Any) -> Wide:
        return Wide(other) / self

    def __rpow__(self, other: Any) -> Wide:
        return Wide(other) ** self

    def __neg__(self) -> Wide:
        return Wide(-self.value)

    def __abs__(self) -> Wide:
        return Wide(abs(self.value))

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == Wide(other).value)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < Wide(other).value)

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= Wide(other).value)

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > Wide(other).value)

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= Wide(other).value)

    __hash__ = None  # type: ignore[assignment]

    def exp(self) -> Wide:
        """The exponential."""
        if abs(self.value) > HIGHEST:
            return Wide(_mp.inf if self.value > 0 else 0)
        return Wide(_mp.exp(self.value))

    def expm1(self) -> Wide:
        """The exponential less 1."""
        return self.exp() - 1 if abs(self.value) > 1 else Wide(_mp.expm1(self.value))

    def log(self) -> Wide:
        """The natural logarithm; not a number where there is none."""
        if self.value <= 0:
            return Wide(-_mp.inf if self.value == 0 else _mp.nan)
        return Wide(_mp.log(self.value))

    def log1p(self) -> Wide:
        """The natural logarithm of 1 more."""
        return Wide(_mp.log1p(self.value)) if self.value > -1 else (self + 1).log()

    def sqrt(self) -> Wide:
        """The square root; not a number where there is none."""
        return Wide(_mp.sqrt(self.value) if self.value >= 0 else _mp.nan)

    def tanh(self) -> Wide:
        """The hyperbolic tangent."""
        return Wide(_mp.tanh(self.value) if abs(self.value) < HIGHEST else _mp.sign(self.value))


_widened = np.frompyfunc(Wide, 1, 1)


def run_wide(values: Sequence[Value], feeds: Mapping[str, Array]) -> list[Array] | None:
    """`values` by the operators' numpy readings in wide numbers, as float64 in the end.

    None where a reading does not work on such numbers.
    """
    done: dict[Node, list[Array]] = {}
    try:
        for node in walk(values):
            if isinstance(node.op, Leaf):
                made = [feeds[node.op.key]]
            else:
                assert isinstance(node.op, Operator), node.op
                arrays = [done[source.node][source.index] for source in node.inputs]
                made = node.op.numpy(arrays, node.attributes)
            done[node] = [_wide(array) for array in made]
        return [done[value.node][value.index].astype(np.float64) for value in values]
    except (AttributeError, TypeError, ValueError, ArithmeticError):
        return None


def _wide(array: Array) -> Array:
    """`array` in wide numbers; whole numbers and Booleans stay what they are."""
    if array.dtype.kind not in "fO":
        return array
    widened: Array = np.asarray(_widened(array), dtype=object)
    return widened
