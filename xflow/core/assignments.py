"""Assignments of integers that satisfy conditions, which answer questions without a solver.

Most questions whether conditions contradict each other are answered no, and the integers by which
a solver says so often satisfy the conditions of further questions: they are remembered, and
evaluated. That is exact, and the answer no is never a step of a proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod

from xflow.core.constraint import Constraint, Relation
from xflow.core.size import Atom, OpaqueInteger, Quotient, Size, Symbol, opaque_integers

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

    def satisfy(self, conditions: Iterable[Constraint], given: Iterable[Constraint] = ()) -> bool:
        """Whether integers are known that satisfy all of some conditions and of those `given`."""
        return not self.unsatisfied(conditions, given)

    def unsatisfied(
        self, conditions: Iterable[Constraint], given: Iterable[Constraint] = ()
    ) -> list[tuple[Constraint, ...]]:
        """Those of the conditions that no integers are known to satisfy, in `independent` parts.

        All others can be satisfied, whatever satisfies these. Each part may be satisfied by another
        assignment: each axis of a convolution by one of its own.
        """
        conditions, given = tuple(conditions), tuple(given)
        for number, each in enumerate(self._known):
            if all(map(each.satisfies, conditions)) and all(map(each.satisfies, given)):
                self._known.insert(0, self._known.pop(number))
                return []
        return [
            part
            for part in independent((*conditions, *given))
            if not any(all(map(each.satisfies, part)) for each in self._known)
        ]

    def learn(self, assignment: Assignment, *conditions: Iterable[Constraint]) -> bool:
        """Remember an assignment if it satisfies all of some conditions; whether it does.

        That of a solver does not where it takes products or quotients for unknowns.
        """
        if not all(assignment.satisfies(c) for part in conditions for c in part):
            return False
        self._known.insert(0, assignment)
        del self._known[MOST:]
        return True


def independent(conditions: Iterable[Constraint]) -> list[tuple[Constraint, ...]]:
    """The conditions in parts that have no symbol in common, and in their order within each.

    All are one part where any speaks of an opaque integer: facts about elements of tensors, such as
    the range that they are in, may connect them with any size.
    """
    conditions = tuple(conditions)
    if any(map(_is_opaque, conditions)):
        return [conditions]
    parts: list[tuple[frozenset[str], list[tuple[int, Constraint]]]] = []
    for numbered in enumerate(conditions):
        names = numbered[1].symbols
        own, rest = [numbered], []
        for part in parts:
            if part[0].isdisjoint(names):
                rest.append(part)
            else:
                names |= part[0]
                own += part[1]
        parts = [*rest, (names, own)]
    return [tuple(c for _, c in sorted(own, key=lambda n: n[0])) for _, own in parts]


def connected(
    names: Iterable[str], conditions: Iterable[Constraint]
) -> list[tuple[list[str], list[Constraint]]]:
    """`names` in groups that no condition connects, each with the conditions on it.

    Each axis of a convolution is one. Conditions without symbols are in no group.
    """
    groups: list[tuple[set[str], list[Constraint]]] = [({name}, []) for name in names]
    for condition in conditions:
        touched = [group for group in groups if group[0] & condition.symbols]
        if touched:
            rest = [group for group in groups if not group[0] & condition.symbols]
            joined = set[str]().union(*(members for members, _ in touched))
            own = [c for _, those in touched for c in those]
            groups = [*rest, (joined, [*own, condition])]
    return [(sorted(members), own) for members, own in sorted(groups, key=lambda g: min(g[0]))]


@lru_cache(50_000)
def _is_opaque(condition: Constraint) -> bool:
    return any(True for _ in opaque_integers(condition.difference))
