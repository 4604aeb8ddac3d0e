"""Functions that round to integers, which keep the order: they go past maxima and minima.

``round(max{a, b} c) = max{round(a c), round(b c)}`` for ``c >= 0``, and so for minima.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from xflow.core.spec import Bottom, Call, If, MaxOver, Scalar, Times, times

STEPS = frozenset({"round", "floor"})
"""Functions that are monotonic, and leave integers as they are."""
ODD = frozenset({"round"})
"""Those with ``f(-x) = -f(x)``: what is rounded to even is."""
ORDERED = frozenset({"max", "min"})


def distributed(
    function: str, argument: Scalar, is_nonnegative: Callable[[Scalar], bool]
) -> Scalar | None:
    """``function(argument)`` as a maximum or minimum; None where `argument` is none of numbers."""
    inner, factors = argument, tuple[Scalar, ...]()
    if isinstance(argument, Times):
        found = [arg for arg in argument.args if _is_ordered(arg)]
        if len(found) != 1:
            return None
        (inner,) = found
        factors = tuple(arg for arg in argument.args if arg is not inner)
    if not _is_ordered(inner):
        return None
    for sign in (1, -1) if function in ODD else (1,):
        factor = times(sign, *factors)
        if is_nonnegative(factor):
            return times(sign, _inside(inner, partial(_applied, function, factor)))
    return None


def _applied(function: str, factor: Scalar, value: Scalar) -> Scalar:
    return Call(function, (times(factor, value),))


def _is_ordered(scalar: Scalar) -> bool:
    return isinstance(scalar, MaxOver) or (isinstance(scalar, Call) and scalar.function in ORDERED)


def _inside(scalar: Scalar, change: Callable[[Scalar], Scalar]) -> Scalar:
    """A maximum or minimum with `change` of each of its values."""
    match scalar:
        case Bottom():
            return scalar
        case MaxOver(variable, extent, body):
            return MaxOver(variable, extent, _inside(body, change))
        case Call(function, args) if function in ORDERED:
            return Call(function, tuple(_inside(arg, change) for arg in args))
        case If(conditions, then, other):
            return If(conditions, _inside(then, change), _inside(other, change))
    return change(scalar)
