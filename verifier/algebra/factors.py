"""Common factors of the terms of a normal form, and canonical names of bound variables.

Two readings of one tensor are the same expression up to the names of bound variables. Inside of a
function, a denominator or a maximum those names are made canonical, so that equal factors are
equal objects and their powers collect: ``exp(-m) / sum exp(x - m)`` loses its m.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import gcd, lcm

from xflow.core.size import symbol
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Group,
    Maximum,
    Normal,
    Option,
    Term,
    free_of_base,
    make_normal,
    make_term,
    substitute_normal,
    substitute_term,
)


def height(base: Base) -> int:
    """How deep binders of variables are nested inside of a factor."""
    match base:
        case Function(_, args):
            return max((_height_of_normal(arg) for arg in args), default=0)
        case Group(body):
            return _height_of_normal(body)
        case Maximum(options):
            return max((_height_of_normal(o.body) + bool(o.variables) for o in options), default=0)
    return 0


def _height_of_normal(normal: Normal) -> int:
    return max((_height_of_term(term) for term in normal.terms), default=0)


def _height_of_term(term: Term) -> int:
    inside = max((height(base) for base, _ in term.powers), default=0)
    return inside + bool(term.variables)


def canonical(normal: Normal) -> Normal:
    """`normal`, to be a part of a factor, with names of bound variables that tell their depth.

    A binder's names differ from those of every binder around and inside of it, because its
    height does, so nothing is captured.
    """
    return make_normal(map(_canonical_term, normal.terms))


def _canonical_term(term: Term) -> Term:
    names = _names(term.variables, _height_of_term(term))
    if names.keys() == set(names.values()) or not names:
        return term
    free = substitute_term(
        Term(term.coefficient, (), term.guards, term.powers),
        {old: symbol(new) for old, new in names.items()},
    )
    return make_term(free.coefficient, names.values(), free.guards, free.powers)


def canonical_option(option: Option) -> Option:
    """`canonical` for an option of a maximum."""
    body = canonical(option.body)
    names = _names(option.variables, _height_of_normal(body) + 1)
    values = {old: symbol(new) for old, new in names.items()}
    return Option(
        tuple(names.values()),
        tuple(sorted((g.substitute(values) for g in option.guards), key=str)),
        substitute_normal(body, values),
    )


def _names(variables: tuple[str, ...], level: int) -> dict[str, str]:
    return {name: f"_kc{level}_{number}" for number, name in enumerate(variables)}


def common_content(normals: Iterable[Normal]) -> Fraction:
    """The greatest positive rational that divides every coefficient; 1 if all are 0."""
    numerator, denominator = 0, 1
    for normal in normals:
        for term in normal.terms:
            numerator = gcd(numerator, abs(term.coefficient.numerator))
            denominator = lcm(denominator, term.coefficient.denominator)
    return Fraction(numerator, denominator) if numerator else Fraction(1)


def common_powers(terms: Iterable[Term], bound: frozenset[str] = frozenset()) -> dict[Base, int]:
    """The factors, with exponents, that every term has and that no bound variable occurs in.

    Bound are the variables of each term, and `bound` around all of them.
    """
    common: dict[Base, int] | None = None
    for term in terms:
        own = {
            base: exponent
            for base, exponent in term.powers
            if not free_of_base(base) & {*term.variables, *bound}
        }
        common = own if common is None else shared_powers(common, own)
    return common or {}


def shared_powers(left: Mapping[Base, int], right: Mapping[Base, int]) -> dict[Base, int]:
    """The greatest powers that divide two products."""
    shared: dict[Base, int] = {}
    for base, a in left.items():
        b = right.get(base, 0)
        if a * b > 0:
            shared[base] = min(a, b) if a > 0 else max(a, b)
    return shared


def without_powers(normal: Normal, powers: Mapping[Base, int]) -> Normal:
    """`normal` divided by a product of factors that each of its terms has."""
    inverse = [(base, -exponent) for base, exponent in powers.items()]
    return make_normal(
        make_term(t.coefficient, t.variables, t.guards, [*t.powers, *inverse]) for t in normal.terms
    )


def split_exponentials(normal: Normal) -> tuple[dict[Base, int], Normal]:
    """``(powers, rest)`` with ``normal = powers * rest`` where `powers` are all exponentials.

    Exponentials are positive: the sign of `rest`, and whether it is 0, are those of `normal`.
    """
    powers: dict[Base, int] = {
        base: exponent
        for base, exponent in common_powers(normal.terms).items()
        if _is_exponential(base)
    }
    return powers, without_powers(normal, powers) if powers else normal


def least_exponentials(normal: Normal) -> dict[Base, int]:
    """The exponentials in terms, each with its least power; without one it is the power 0.

    Divided by them, no term has an exponential to a negative power, but those in which variables
    of the term occur.
    """
    own = [
        {b: e for b, e in term.powers if not free_of_base(b) & set(term.variables)}
        for term in normal.terms
    ]
    bases = [b for b in dict.fromkeys(b for each in own for b in each) if _is_exponential(b)]
    least = {base: min(each.get(base, 0) for each in own) for base in bases}
    return {base: exponent for base, exponent in least.items() if exponent}


def _is_exponential(base: Base) -> bool:
    return isinstance(base, Function) and base.name == "exp"
