"""Sizes that conditions fix: ``k == 1``, ``n == 2*m``, or ``k <= 1`` where k is at least 1.

They are substituted before a side is read, so that a sum over ``k`` has a single summand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import gcd
from operator import and_

from xflow.core.constraint import Constraint, Relation, equal
from xflow.core.size import Expr, Quotient, Size, atoms, coefficient_of, free_symbols, substitute


def fixed_sizes(where: Sequence[Constraint], given: Sequence[Constraint]) -> dict[str, Size]:
    """The symbols that the conditions fix, each with a number or a size over other symbols.

    Equations in `where` are solved for a symbol. The other conditions, `given`, are used for
    bounds alone: their equations are requirements of operators, such as that two sizes are equal,
    which each reading uses by itself.
    """
    found: dict[str, Size] = {}
    stated, others = list(where), list(given)
    while True:
        lows, highs = _bounds([*stated, *others])
        step = next(_constants(lows, highs), None) or next(_definitions(stated, lows), None)
        if step is None:
            return found
        name, value = step
        try:
            stated, others = (
                [c for c in (c.substitute({name: value}) for c in part) if c.decided is not True]
                for part in (stated, others)
            )
        except ZeroDivisionError:
            return found
        found = {other: substitute(size, {name: value}) for other, size in found.items()}
        found[name] = value


def _bounds(conditions: Iterable[Constraint]) -> tuple[dict[str, int], dict[str, int]]:
    """The least and the greatest value of symbols, as far as conditions on one alone bound it."""
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    for condition in conditions:
        if len(condition.symbols) != 1:
            continue
        (name,) = condition.symbols
        split = coefficient_of(condition.difference, name)
        if split is None or split[0] == 0 or not isinstance(split[1], int):
            continue
        factor, rest = split[0], split[1]
        is_exact = condition.relation is Relation.EQUAL
        if is_exact and factor < 0:
            factor, rest = -factor, -rest
        if factor > 0:
            low = -(rest // factor)
            lows[name] = max(lows.get(name, low), low)
        if factor < 0 or is_exact:
            high = rest // -factor if factor < 0 else -rest // factor
            highs[name] = min(highs.get(name, high), high)
    return lows, highs


def _constants(lows: Mapping[str, int], highs: Mapping[str, int]) -> Iterator[tuple[str, Size]]:
    for name in sorted(lows.keys() & highs.keys()):
        if lows[name] == highs[name]:
            yield name, lows[name]


def _definitions(
    conditions: Iterable[Constraint], lows: Mapping[str, int]
) -> Iterator[tuple[str, Size]]:
    for condition in conditions:
        if condition.relation is not Relation.EQUAL:
            continue
        difference = _without_factors(condition, lows).difference
        for name in sorted(free_symbols(difference)):
            split = coefficient_of(difference, name)
            if split is None or abs(split[0]) != 1 or name in free_symbols(split[1]):
                continue
            value = -split[1] * split[0]
            if not any(isinstance(atom, Quotient) for atom in atoms(value)):
                yield name, value
                break


def _without_factors(condition: Constraint, lows: Mapping[str, int]) -> Constraint:
    """An equation without the factors that all its terms share and that are not 0."""
    if not isinstance(condition.difference, Expr):
        return condition
    terms = condition.difference.terms
    shared = reduce(and_, (Counter(monomial) for monomial, _ in terms))
    positive = Counter({a: n for a, n in shared.items() if lows.get(str(a), 0) >= 1})
    content = gcd(*(coefficient for _, coefficient in terms))
    rest = [(tuple((Counter(m) - positive).elements()), c // content) for m, c in terms]
    return equal(Expr(tuple(rest)) + 0, 0)
