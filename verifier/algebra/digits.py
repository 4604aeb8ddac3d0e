"""Merges bound variables of a term that are digits of one number: the inverse of `radix`.

Where two bound variables q and r occur as ``m*q + r`` alone, with ``0 <= r < m``, they are the
digits of one number, and a sum over both is a sum over that number.
"""

from __future__ import annotations

from itertools import permutations

from xflow.core.constraint import Constraint, at_least, in_range
from xflow.core.size import Size, free_symbols, symbol
from xflow.core.spec import fresh_name
from xflow.verifier.algebra.arithmetic import Arithmetic, Guards
from xflow.verifier.algebra.terms import Term, free_of_base, make_term, substitute_base


def merged(term: Term, arithmetic: Arithmetic, path: Guards) -> Term | None:
    """`term` with one pair of digits made one variable; None where there is no such pair."""
    for low, high in permutations(term.variables, 2):
        radix, count = _extent(low, term), _extent(high, term)
        if radix is None or count is None or radix == 1 or count == 1:
            continue
        ranges = {*in_range(symbol(low), radix), *in_range(symbol(high), count)}
        rest = [guard for guard in term.guards if guard not in ranges]
        number = fresh_name()
        value = {low: symbol(number) - radix * symbol(high)}
        guards = [guard.substitute(value) for guard in rest]
        powers = [(substitute_base(base, value), exponent) for base, exponent in term.powers]
        left = frozenset[str]().union(
            *(guard.symbols for guard in guards), *(free_of_base(base) for base, _ in powers)
        )
        if {low, high} & left:
            continue
        # For radix >= 1 this is a bijection between the two ranges, both empty for count <= 0;
        # for radix 0 both are empty.
        if not arithmetic.implied(at_least(radix, 0), (*path, *rest)):
            continue
        variables = [number, *(v for v in term.variables if v not in (low, high))]
        span = in_range(symbol(number), radix * count)
        return make_term(term.coefficient, variables, [*span, *guards], powers)
    return None


def _extent(variable: str, term: Term) -> Size | None:
    """n where the guards say ``0 <= variable < n`` for an n without bound variables."""
    guards: set[Constraint] = set(term.guards)
    if at_least(symbol(variable), 0) not in guards:
        return None
    for guard in sorted(guards, key=str):
        extent = guard.difference + symbol(variable) + 1
        if guard == in_range(symbol(variable), extent)[1] and not (
            free_symbols(extent) & set(term.variables)
        ):
            return extent
    return None
