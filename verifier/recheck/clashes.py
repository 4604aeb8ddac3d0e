"""Contradictions between conditions that are seen without a solver."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

from xflow.core.constraint import Constraint, Relation
from xflow.core.size import Expr, Monomial

Linear: TypeAlias = tuple[tuple[Monomial, int], ...]
"""A sum without its constant, the first coefficient of which is positive."""


def clash(conditions: Iterable[Constraint], known: Iterable[Constraint] = ()) -> bool:
    """Whether some of `conditions` contradict each other, or what is known, as bounds of one sum.

    Only those on sums that differ by constants are compared, so that False says nothing.
    """
    bounds: dict[Linear, tuple[int | None, int | None]] = {}
    for condition in conditions:
        if condition.decided is False:
            return True
        if condition.decided is None:
            linear, low, high = _bounds(condition)
            bounds[linear] = _narrowed(bounds.get(linear, (None, None)), low, high)
    for condition in known:
        if condition.decided is None:
            linear, low, high = _bounds(condition)
            if linear in bounds:
                bounds[linear] = _narrowed(bounds[linear], low, high)
    return any(low is not None and high is not None and low > high for low, high in bounds.values())


@lru_cache(100_000)
def _bounds(condition: Constraint) -> tuple[Linear, int | None, int | None]:
    """``low <= linear <= high``, which is the condition; None for no bound."""
    assert isinstance(condition.difference, Expr)
    constant = 0
    linear: Linear = ()
    for monomial, coefficient in condition.difference.terms:
        if monomial:
            linear = (*linear, (monomial, coefficient))
        else:
            constant = coefficient
    is_opposite = linear[0][1] < 0
    if is_opposite:
        linear = tuple((monomial, -coefficient) for monomial, coefficient in linear)
    bound = constant if is_opposite else -constant
    if condition.relation is Relation.EQUAL:
        return linear, bound, bound
    return (linear, None, bound) if is_opposite else (linear, bound, None)


def _narrowed(
    known: tuple[int | None, int | None], low: int | None, high: int | None
) -> tuple[int | None, int | None]:
    lows = [each for each in (known[0], low) if each is not None]
    highs = [each for each in (known[1], high) if each is not None]
    return max(lows, default=None), min(highs, default=None)
