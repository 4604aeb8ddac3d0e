"""Conditions on values: what a rule asks of every element of an input.

``s != 0``, ``s > 0`` and ``s >= 0`` ask for numbers that are so related to 0, ``finite(x)`` for
numbers, and ``m < inf`` for numbers and negative infinities, as masks hold them. A rule applies
only where they are known: of a constant from its data, of what is computed from an analysis of
ranges (`xflow.analysis`), of a real attribute from its value.
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
SIGNS = (NONZERO, POSITIVE, NONNEGATIVE)
"""The relations that ask for more than for numbers."""

_COMPARE = {NONZERO: np.not_equal, POSITIVE: np.greater, NONNEGATIVE: np.greater_equal}
_SYMBOLS = {ast.NotEq: NONZERO, ast.Gt: POSITIVE, ast.GtE: NONNEGATIVE}
_IMPLIED = {
    NONZERO: {NONZERO, FINITE, BELOW_INFINITY},
    POSITIVE: {POSITIVE, NONZERO, NONNEGATIVE, FINITE, BELOW_INFINITY},
    NONNEGATIVE: {NONNEGATIVE, FINITE, BELOW_INFINITY},
    FINITE: {FINITE, BELOW_INFINITY},
    BELOW_INFINITY: {BELOW_INFINITY},
}


@dataclass(frozen=True)
class Fact:
    """That every element of the input (or the real attribute) `name` is as `relation` says."""

    name: str
    relation: str
    """``!=``, ``>`` or ``>=``: a number that is so related to 0. ``finite``: a number.
    ``< inf``: a number or negative infinity."""

    def holds(self, values: np.ndarray[Any, Any] | Fraction) -> bool:
        """Whether it is true of a constant's data; NaN satisfies nothing."""
        array = np.asarray(float(values) if isinstance(values, Fraction) else values)
        if self.relation == BELOW_INFINITY:
            return bool(np.all(array < np.inf))
        if not np.all(np.isfinite(array)):
            return False
        return self.relation == FINITE or bool(np.all(_COMPARE[self.relation](array, 0)))

    def implies(self, other: Fact) -> bool:
        """Whether `other` holds wherever this does."""
        return other.name == self.name and other.relation in _IMPLIED[self.relation]

    def __str__(self) -> str:
        if self.relation == FINITE:
            return f"finite({self.name})"
        if self.relation == BELOW_INFINITY:
            return f"{self.name} < inf"
        return f"{self.name} {self.relation} 0"


def relations(facts: Iterable[Fact]) -> dict[str, str]:
    """The relation in which each name is said to be: the one that tells most of its sign."""
    found: dict[str, str] = {}
    for fact in facts:
        if found.get(fact.name) not in SIGNS:
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
    return None


def is_need(text: str, names: Iterable[str]) -> bool:
    """Whether a condition asks that elements of an input are numbers, and for no more."""
    fact = fact_of(text, names)
    return fact is not None and fact.relation not in SIGNS
