"""Conditions on values: what a rule asks of every element of an input.

``s != 0``, ``s > 0`` and ``s >= 0`` ask for numbers that are so related to 0, ``finite(x)`` for
numbers, and ``m < inf`` for numbers and negative infinities, as masks hold them. A rule applies
only where they are known: of a constant from its data, of what is computed from an analysis of
ranges (`xflow.analysis`), of a real attribute from its value.

``exact_sums(w)`` is about products of codes, which are integers of 8 bits. For each place along the
first axis, the positive elements of w sum up to at most 65,793, and so do the negative ones without
their signs; for ``exact_sums(w - v)``, those of w less the one code v. Of products of them with
differences ``x - z``, where z is one code and each x one of the same type, any sum is then an
integer of at most ``255 * 65793 < 2**24`` in magnitude: floats of 32 bits compute it without
rounding, in any order, and integers of 32 bits hold it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from xflow.core.expressions import expression

NONZERO, POSITIVE, NONNEGATIVE, FINITE, BELOW_INFINITY = "!=", ">", ">=", "finite", "< inf"
EXACT_SUMS = "exact_sums"
SIGNS = (NONZERO, POSITIVE, NONNEGATIVE)
"""The relations about signs."""
NEEDS = (FINITE, BELOW_INFINITY)
"""Those that ask for numbers, and for no more."""

MOST_SUM = (2**24 - 1) // 255
"""The largest sum of factors of codes with which sums of products are exact."""

_COMPARE = {NONZERO: np.not_equal, POSITIVE: np.greater, NONNEGATIVE: np.greater_equal}
_SYMBOLS = {ast.NotEq: NONZERO, ast.Gt: POSITIVE, ast.GtE: NONNEGATIVE}
_IMPLIED = {
    NONZERO: {NONZERO, FINITE, BELOW_INFINITY},
    POSITIVE: {POSITIVE, NONZERO, NONNEGATIVE, FINITE, BELOW_INFINITY},
    NONNEGATIVE: {NONNEGATIVE, FINITE, BELOW_INFINITY},
    FINITE: {FINITE, BELOW_INFINITY},
    BELOW_INFINITY: {BELOW_INFINITY},
    EXACT_SUMS: {EXACT_SUMS},
}
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Fact:
    """That every element of the input (or the real attribute) `name` is as `relation` says."""

    name: str
    relation: str
    """``!=``, ``>`` or ``>=``: a number that is so related to 0. ``finite``: a number.
    ``< inf``: a number or negative infinity. ``exact_sums``: see above."""
    less: str = ""
    """The input that is taken from `name` in exact sums, if any."""

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs, or the real attribute, that it is about."""
        return (self.name, self.less) if self.less else (self.name,)

    def holds(self, *data: _Array | Fraction) -> bool:
        """Whether it is true of the data of its `names`; NaN satisfies nothing."""
        values, *others = data
        array = np.asarray(float(values) if isinstance(values, Fraction) else values)
        if self.relation == EXACT_SUMS:
            return exact_sums(array, *map(np.asarray, others))
        if self.relation == BELOW_INFINITY:
            return bool(np.all(array < np.inf))
        if not np.all(np.isfinite(array)):
            return False
        return self.relation == FINITE or bool(np.all(_COMPARE[self.relation](array, 0)))

    def implies(self, other: Fact) -> bool:
        """Whether `other` holds wherever this does."""
        return other.names == self.names and other.relation in _IMPLIED[self.relation]

    def __str__(self) -> str:
        if self.relation == EXACT_SUMS:
            return f"{EXACT_SUMS}({' - '.join(self.names)})"
        if self.relation == FINITE:
            return f"finite({self.name})"
        if self.relation == BELOW_INFINITY:
            return f"{self.name} < inf"
        return f"{self.name} {self.relation} 0"


def exact_sums(codes: _Array, less: _Array | None = None) -> bool:
    """Whether sums of products of codes, less one code, with differences of codes are exact."""
    given = [codes] if less is None else [codes, less]
    if any(array.dtype.kind not in "iu" for array in given):
        return False
    if any(array.size and (array.min() < -128 or array.max() > 255) for array in given):
        return False  # no codes
    if not codes.ndim or (less is not None and less.ndim):
        return False
    differences = codes.astype(np.int64) - (0 if less is None else int(less))
    lines = differences.reshape(len(codes), -1) if codes.size else differences[:0]
    parts = (np.maximum(lines, 0), np.maximum(-lines, 0))
    return all(bool(np.all(part.sum(axis=1) <= MOST_SUM)) for part in parts if part.size)


def relations(facts: Iterable[Fact]) -> dict[str, str]:
    """The relation in which each name is said to be: the one that tells most of its sign."""
    found: dict[str, str] = {}
    for fact in facts:
        if fact.relation != EXACT_SUMS and found.get(fact.name) not in SIGNS:
            found[fact.name] = fact.relation
    return found


def fact_of(text: str, names: Iterable[str]) -> Fact | None:
    """The fact about one of `names` that a condition states; None for one about sizes."""
    match expression(text):
        case ast.Compare(
            left=ast.Name(id=name), ops=[relation], comparators=[ast.Constant(value=0)]
        ) if name in names and type(relation) in _SYMBOLS:
            return Fact(name, _SYMBOLS[type(relation)])
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Lt()], comparators=[ast.Name(id="inf")]
        ) if name in names:
            return Fact(name, BELOW_INFINITY)
        case ast.Call(func=ast.Name(id="finite"), args=[ast.Name(id=name)], keywords=[]) if (
            name in names
        ):
            return Fact(name, FINITE)
        case ast.Call(func=ast.Name(id="exact_sums"), args=[operand], keywords=[]):
            about = _about(operand)
            if about and set(about) <= set(names):
                return Fact(about[0], EXACT_SUMS, *about[1:])
    return None


def _about(operand: ast.expr) -> tuple[str, ...]:
    """The names in ``w`` or ``w - v``; none in anything else."""
    match operand:
        case ast.Name(id=name):
            return (name,)
        case ast.BinOp(left=ast.Name(id=name), op=ast.Sub(), right=ast.Name(id=less)):
            return name, less
    return ()


def is_need(text: str, names: Iterable[str]) -> bool:
    """Whether a condition asks that elements of an input are numbers, and for no more."""
    fact = fact_of(text, names)
    return fact is not None and fact.relation in NEEDS
