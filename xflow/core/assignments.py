"""Assignments of integers that satisfy conditions, which answer questions without a solver.

Most questions whether conditions contradict each other are answered no, and the integers by which
a solver says so often satisfy the conditions of further questions: they are remembered, and
evaluated. That is exact, and the answer no is never a step of a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from xflow.core.constraint import Constraint, Relation
from xflow.core.size import Atom, OpaqueInteger, Quotient, Size, Symbol

MOST = 32
"""How many assignments are remembered."""


class Assignment:
    """Integers for symbols and opaque integers; symbols without one are 0."""

    def __init__(self, symbols: Mapping[str, int], opaque: Mapping[OpaqueInteger, int]):
        self._symbols = dict(symbols)
        self._opaque = dict(opaque)
        self._known: dict[Constraint, bool] = {}

    def satisfies(self, condition: Constraint) -> bool:
        """Whether the condition holds; False where an integer is missing, or a divisor is 0."""
        found = self._known.get(condition)
        if found is None:
            found = self._known[condition] = self._evaluated(condition)
        return found

    def _evaluated(self, condition: Constraint) -> bool:
        try:
            number = self._value(condition.difference)
        except (KeyError, ZeroDivisionError):
            return False
        return number >= 0 if condition.relation is Relation.AT_LEAST else number == 0

    def _value(self, size: Size) -> int:
        if isinstance(size, int):
            return size
        total = 0
        for monomial, coefficient in size.terms:
            total += coefficient * prod(map(self._value_of_atom, monomial))
        return total

    def _value_of_atom(self, atom: Atom) -> int:
        if isinstance(atom, Symbol):
            return self._symbols.get(atom.name, 0)
        if isinstance(atom, Quotient):
            return self._value(atom.numerator) // self._value(atom.denominator)
        return self._opaque[atom]


class Assignments:
    """The last assignments that satisfied something, those that did so lately first."""

    def __init__(self) -> None:
        self._known: list[Assignment] = []

    def satisfy(self, *conditions: Iterable[Constraint]) -> bool:
        """Whether one of them is known to satisfy all of some lists of conditions."""
        for number, each in enumerate(self._known):
            if all(each.satisfies(c) for part in conditions for c in part):
                self._known.insert(0, self._known.pop(number))
                return True
        return False

    def learn(self, assignment: Assignment, *conditions: Iterable[Constraint]) -> bool:
        """Remember an assignment if it satisfies all of some conditions; whether it does.

        That of a solver does not where it takes products or quotients for unknowns.
        """
        if not all(assignment.satisfies(c) for part in conditions for c in part):
            return False
        self._known.insert(0, assignment)
        del self._known[MOST:]
        return True
