"""Sizes that the conditions of a rule fix: numbers, or others by which its equations give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xflow.core.constraint import Constraint, Relation, equal
from xflow.core.size import Quotient, Size, atoms, coefficient_of, substitute, symbol
from xflow.verifier.recheck.solver import Questions


def fixed_sizes(
    where: Sequence[Constraint], assumed: Sequence[Constraint], questions: Questions
) -> dict[str, Size]:
    """Values of symbols that follow from what is `assumed`, over symbols that have none.

    Linear equations among the conditions `where` are solved. That a symbol is a number is asked of
    the solver: about numbers that a bound of its own or an equation suggests.
    """
    found: dict[str, Size] = {}
    for condition in where:
        if condition.relation is Relation.EQUAL:
            _add(found, _solved(_at(condition, found)))
    for name, number in dict.fromkeys(_suggested(where, assumed, found)):
        if name not in found and questions.implied(equal(symbol(name), number)):
            _add(found, (name, number))
    return found


def _add(found: dict[str, Size], solved: tuple[str, Size] | None) -> None:
    if solved is None:
        return
    name, value = solved
    for other, size in found.items():
        found[other] = substitute(size, {name: value})
    found[name] = value


def _at(condition: Constraint, found: dict[str, Size]) -> Constraint:
    """The condition at the sizes found so far; as it is where it then divides by 0."""
    try:
        return condition.substitute(found)
    except ZeroDivisionError:
        return condition


def _solved(equation: Constraint) -> tuple[str, Size] | None:
    """A symbol of a linear equation and what it is equal to, without divisions."""
    for name in sorted(equation.symbols):
        split = coefficient_of(equation.difference, name)
        if split is not None and split[0] in (1, -1):
            value = -split[0] * split[1]
            if not any(isinstance(atom, Quotient) for atom in atoms(value)):
                return name, value
    return None


def _suggested(
    where: Sequence[Constraint], assumed: Sequence[Constraint], found: dict[str, Size]
) -> Iterator[tuple[str, int]]:
    """Symbols with numbers that they may be."""
    for condition in assumed:
        here = _at(condition, found)
        if len(here.symbols) != 1:
            continue
        (name,) = here.symbols
        split = coefficient_of(here.difference, name)
        if split is None or not isinstance(split[1], int) or not split[0]:
            continue
        if split[0] < 0 or here.relation is Relation.EQUAL:
            yield name, -split[1] // split[0] if split[0] > 0 else split[1] // -split[0]
    for condition in where:
        if condition.relation is Relation.EQUAL:
            for name in sorted(_at(condition, found).symbols):
                yield from ((name, 1), (name, 0))
