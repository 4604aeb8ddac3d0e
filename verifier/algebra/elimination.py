"""Bound variables that guards determine: the sum over one is its summand at that value."""

from __future__ import annotations

from xflow.core.constraint import Constraint, Relation, equal, less
from xflow.core.size import Size, coefficient_of, free_symbols, symbol
from xflow.verifier.algebra.affine import linear_in
from xflow.verifier.algebra.arithmetic import Arithmetic, Effort, Guards
from xflow.verifier.algebra.radix import multiples
from xflow.verifier.algebra.terms import Term


def pinned_value(guard: Constraint, variable: str, guards: Guards) -> Size | None:
    """The value that `guard` (with the others) forces on `variable`, free of the variable."""
    split = coefficient_of(guard.difference, variable)
    if split is None or abs(split[0]) != 1:
        return None
    coefficient, rest = split
    value = -rest if coefficient == 1 else rest
    if guard.relation is Relation.EQUAL:
        return value
    # v >= value together with v <= value
    opposite = Constraint(-guard.difference, Relation.AT_LEAST)
    return value if opposite in guards else None


def pinned_by_floor(variable: str, term: Term, arithmetic: Arithmetic, path: Guards) -> Size | None:
    """q where ``s*k <= s*q + r < s*k + s`` with ``0 <= r < s``: `variable` k can be q alone.

    The form of the guards gives the value, the arithmetic decides that they imply it: at every
    other value of the variable some guard of the term is false.
    """
    lines = [
        split
        for guard in term.guards
        if guard.relation is Relation.AT_LEAST and variable in guard.symbols
        if (split := linear_in(guard.difference, variable))
    ]
    for slope, rest in lines:
        if slope in (1, -1) or free_symbols(slope) & set(term.variables):
            continue
        for other, low in lines:
            # rest - s*k >= 0 and low + s*k >= 0: two values of k need rest + low >= s
            if other != -slope or not arithmetic.implied(
                less(rest + low, other), (*path, *term.guards), Effort.LINEAR
            ):
                continue
            value, _ = multiples(rest, other)
            if variable not in free_symbols(value) and arithmetic.implied(
                equal(symbol(variable), value), (*path, *term.guards)
            ):
                return value
    return None
