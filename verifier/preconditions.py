"""Preconditions on the sizes of a rule, from its left side and its text, which a proof assumes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xflow.core.constraint import Constraint, Relation, at_least
from xflow.core.graph import requirements
from xflow.core.size import Expr, Size, coefficient_of, free_symbols, substitute
from xflow.rewriting.instance import Instance, attribute_symbols


def size_names(instance: Instance, conditions: Iterable[Constraint] = ()) -> list[str]:
    """The size symbols in a rule's attributes, in its inputs' shapes and in `conditions`."""
    return sorted(
        attribute_symbols((*instance.lhs, *instance.rhs)).union(
            *(condition.symbols for condition in conditions),
            *(free_symbols(size) for value in instance.inputs for size in value.shape),
        )
    )


def left_conditions(instance: Instance) -> list[Constraint]:
    """The assumptions on sizes: dimensions, the left side's requirements, `where`."""
    conditions = [
        at_least(size, 0)
        for value in instance.inputs
        for size in value.shape
        if isinstance(size, Expr)
    ]
    conditions += requirements(instance.lhs)
    conditions += instance.where
    return list(dict.fromkeys(conditions))


def definitions(conditions: Sequence[Constraint]) -> dict[str, Size]:
    """Symbols that equations determine, with their values over other symbols."""
    found: dict[str, Size] = {}
    for condition in conditions:
        if condition.relation is not Relation.EQUAL:
            continue
        for name in sorted(condition.symbols):
            split = coefficient_of(condition.difference, name)
            if split is None or abs(split[0]) != 1:
                continue
            value = substitute(-split[1] * split[0], found)
            if name in found or name in free_symbols(value):
                continue
            found = {other: substitute(size, {name: value}) for other, size in found.items()}
            found[name] = value
            break
    return found


def balances(conditions: Sequence[Constraint]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Equations of two products of symbols, as a Reshape requires one: their factors.

    Those of the second product are in no other equation.
    """
    equations = [c for c in conditions if c.relation is Relation.EQUAL]
    found: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    for equation in equations:
        terms = equation.difference.terms if isinstance(equation.difference, Expr) else ()
        products = [tuple(str(atom) for atom in monomial) for monomial, _ in terms]
        names = [name for product in products for name in product]
        if sorted(number for _, number in terms) != [-1, 1] or len(names) != len(set(names)):
            continue
        if set(names) != equation.symbols:  # a quotient or a maximum is among the factors
            continue
        elsewhere = {name for other in equations if other is not equation for name in other.symbols}
        for given, shared in (products, reversed(products)):
            if not elsewhere.intersection(shared):
                found.append((given, shared))
                break
    return found


def lower_bounds(conditions: Sequence[Constraint]) -> dict[str, int]:
    """The least value of each symbol that a condition on it alone bounds from below."""
    lows: dict[str, int] = {}
    for condition in conditions:
        if condition.relation is Relation.AT_LEAST and len(condition.symbols) == 1:
            (name,) = condition.symbols
            split = coefficient_of(condition.difference, name)
            if split is not None and split[0] == 1 and isinstance(split[1], int):
                lows[name] = max(lows.get(name, -split[1]), -split[1])
    return lows
