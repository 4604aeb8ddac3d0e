"""Case split at ties: where a compared difference is 0, its two numbers replace each other.

Two choices on a comparison, as ``x >= 0`` and ``x > 0``, often differ only in where a tie goes,
and there their branches agree. A term that is read at a tie is cut in three: where the sign is
positive, where it is negative, and at the tie, where one of the numbers is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from xflow.core.constraint import Constraint, at_least, equal
from xflow.core.size import OpaqueInteger, Size, atom_size, opaque_integers, replace_opaque
from xflow.verifier.algebra.comparisons import Sign
from xflow.verifier.algebra.functions import MAX_POWER, apply_function
from xflow.verifier.algebra.normal import ONE_TERM, Normalizer
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Normal,
    Term,
    free_of_base,
    make_normal,
    make_term,
    scale,
)

MAX_CUTS = 4
"""Comparisons at whose ties one term is cut."""


def cut_at_ties(term: Term, normalizer: Normalizer, cuts: int = MAX_CUTS) -> list[Term] | None:
    """Terms that sum to `term`, none of which mixes a tie with anything else; None if it is one.

    The sign is an integer, so that of ``sign >= 1``, ``sign == 0``, ``sign <= -1`` just one holds.
    """
    for sign in dict.fromkeys(_signs(term)):
        value = atom_size(sign)
        cases = at_least(value, 1), equal(value, 0), at_least(-value, 1)
        if not _holds_at(term, sign, 0) or cases[1] in term.guards:
            continue
        solved = _solved(sign.normal)
        if solved is None or cuts == 0:
            continue
        parts: list[Term] = []
        for case in cases:
            part = make_term(term.coefficient, term.variables, (*term.guards, case), term.powers)
            if normalizer.arithmetic.contradictory(part.guards):
                continue
            made = _replaced(part, *solved, normalizer) if case is cases[1] else [part]
            for each in made:
                parts += cut_at_ties(each, normalizer, cuts - 1) or [each]
        return parts
    return None


def _signs(term: Term) -> Iterator[Sign]:
    for guard in term.guards:
        for atom in opaque_integers(guard.difference):
            if isinstance(atom, Sign):
                yield atom


def _holds_at(term: Term, sign: Sign, value: int) -> bool:
    """Whether the guards leave it open that `sign` is `value`."""

    def change(atom: OpaqueInteger) -> Size:
        return value if atom == sign else atom_size(atom)

    made = (Constraint(replace_opaque(g.difference, change), g.relation) for g in term.guards)
    return not any(guard.decided is False for guard in made)


def _solved(normal: Normal) -> tuple[Base, list[Term]] | None:
    """``(base, value)`` with ``base == value`` where `normal` is 0; None if not solvable."""
    for term in normal.terms:
        if len(term.powers) != 1 or term.powers[0][1] != 1 or term.variables or term.guards:
            continue
        base = term.powers[0][0]
        others = [t for t in normal.terms if t is not term]
        # The value may mention the base, but to replace it would lead nowhere.
        if not any(base in dict(t.powers) for t in others):
            return base, scale(others, -1 / Fraction(term.coefficient))
    return None


def _replaced(term: Term, base: Base, value: list[Term], normalizer: Normalizer) -> list[Term]:
    """The term with `value` for the positive powers of `base`, inside of functions, too."""
    made = [Term(term.coefficient, term.variables, term.guards)]
    for factor, exponent in term.powers:
        unit: list[Term] = [make_term(Fraction(1), powers=[(factor, 1)])]
        if 0 < exponent <= MAX_POWER:
            unit = _in_factor(factor, base, value, normalizer)
            for _ in range(exponent):
                made = normalizer.times(made, unit)
        else:
            made = normalizer.times(made, [make_term(Fraction(1), powers=[(factor, exponent)])])
    return made


def _in_factor(factor: Base, base: Base, value: list[Term], normalizer: Normalizer) -> list[Term]:
    if factor == base:
        return value
    if isinstance(factor, Function) and len(factor.args) == 1 and base_inside(factor, base):
        inside: list[Term] = []
        for term in factor.args[0].terms:
            # A bound variable that has the name of a free one of the base is another.
            if set(term.variables) & free_of_base(base):
                return [make_term(Fraction(1), powers=[(factor, 1)])]
            inside += _replaced(term, base, value, normalizer)
        return apply_function(factor.name, make_normal(inside))
    return normalizer.times([ONE_TERM], [make_term(Fraction(1), powers=[(factor, 1)])])


def base_inside(function: Function, base: Base) -> bool:
    """Whether `base` is a factor somewhere in the argument of a function of one argument."""
    return any(
        factor == base or (isinstance(factor, Function) and base_inside(factor, base))
        for arg in function.args
        for term in arg.terms
        for factor, _ in term.powers
    )
