"""Real functions of normal forms: exponentials, logarithms, reciprocals, powers.

Each identity used here holds wherever the function is defined; that both sides of a rule are
defined in the same places is shown apart, see `defined`.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from xflow.verifier.algebra.factors import (
    canonical,
    common_powers,
    least_exponentials,
    without_powers,
)
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Group,
    Normal,
    Term,
    make_normal,
    make_term,
    multiply,
    scale,
)

KNOWN_VALUES = {
    ("sqrt", Fraction(1)): Fraction(1),
    ("sqrt", Fraction(0)): Fraction(0),
    ("log", Fraction(1)): Fraction(0),
    ("tanh", Fraction(0)): Fraction(0),
    ("erf", Fraction(0)): Fraction(0),
    ("sin", Fraction(0)): Fraction(0),
    ("cos", Fraction(0)): Fraction(1),
}
ODD_FUNCTIONS = frozenset({"tanh", "erf", "sin", "round"})
EVEN_FUNCTIONS = frozenset({"cos"})
MAX_DIVISOR = 100
"""Divisors whose squares are taken out of a root."""
MAX_POWER = 8
"""Exponents up to which a power is multiplied out."""

ONE = Fraction(1)


def apply_function(name: str, normal: Normal) -> list[Term]:
    """The terms of a function of one argument; maxima and minima are `Maxima`'s.

    Raises ZeroDivisionError for the reciprocal of 0.
    """
    if name == "reciprocal":
        return reciprocal(normal)
    if name == "exp":
        return exponential(normal)
    constant = constant_of(normal)
    if constant is not None and (name, constant) in KNOWN_VALUES:
        value = KNOWN_VALUES[name, constant]
        return [Term(value)] if value else []
    if name == "log":
        return logarithm(normal)
    if name == "sqrt" and normal.terms:
        return square_root(normal)
    sign = Fraction(1)
    if name in ODD_FUNCTIONS | EVEN_FUNCTIONS and _starts_negative(normal):
        sign = Fraction(-1) if name in ODD_FUNCTIONS else Fraction(1)
        normal = make_normal(scale(normal.terms, Fraction(-1)))
    return [make_term(sign, powers=[(Function(name, (canonical(normal),)), 1)])]


def _starts_negative(normal: Normal) -> bool:
    return bool(normal.terms) and normal.terms[0].coefficient < 0


def exponential(normal: Normal) -> list[Term]:
    """``exp`` of a sum as a product of powers: ``exp(2a + b) = exp(a)^2 exp(b)``.

    A logarithm among the summands is undone, ``exp(log a) = a``: a is positive where it is read.
    """
    powers: list[tuple[Base, int]] = []
    factors: list[list[Term]] = []
    for term in normal.terms:
        inner = argument_of_log(term)
        if inner is not None:
            factor = list(inner.terms) if term.coefficient > 0 else reciprocal(inner)
            factors += [factor] * abs(term.coefficient.numerator)
            continue
        numerator, denominator = term.coefficient.numerator, term.coefficient.denominator
        unit = make_term(Fraction(1, denominator), term.variables, term.guards, term.powers)
        powers.append((Function("exp", (canonical(Normal((unit,))),)), numerator))
    result = [make_term(Fraction(1), powers=powers)]
    for factor in factors:
        result = [multiply(a, b) for a in result for b in factor]
    return result


def argument_of_log(term: Term) -> Normal | None:
    """a where the term is a small integer times ``log(a)``."""
    if term.variables or term.guards or len(term.powers) != 1:
        return None
    base, exponent = term.powers[0]
    if exponent != 1 or term.coefficient.denominator != 1 or abs(term.coefficient) > MAX_POWER:
        return None
    return base.args[0] if isinstance(base, Function) and base.name == "log" else None


def logarithm(normal: Normal) -> list[Term]:
    """``log`` with exponentials taken out, which are positive: ``log(exp(c) a) = c + log(a)``.

    Their least powers are: ``log(1 + exp(-c)) = -c + log(exp(c) + 1)``.
    """
    powers = least_exponentials(normal)
    rest = without_powers(normal, powers)
    terms: list[Term] = []
    for base, exponent in powers.items():
        assert isinstance(base, Function)
        terms += scale(base.args[0].terms, Fraction(exponent))
    factor, root = _odd_root(rest)
    if root != rest:
        return [*terms, *scale(logarithm(root), factor)]
    if constant_of(rest) == 1:
        return terms
    return [*terms, make_term(ONE, powers=[(Function("log", (canonical(rest),)), 1)])]


def _odd_root(normal: Normal) -> tuple[Fraction, Normal]:
    """``(e, a)`` with ``normal = a^e`` for an odd e, or half of one.

    There a is positive exactly where a^e is.
    """
    if len(normal.terms) != 1:
        return Fraction(1), normal
    (term,) = normal.terms
    if term.coefficient != 1 or term.variables or term.guards or len(term.powers) != 1:
        return Fraction(1), normal
    base, exponent = term.powers[0]
    if exponent % 2 == 0:
        return Fraction(1), normal
    if isinstance(base, Group):
        return Fraction(exponent), base.body
    if isinstance(base, Function) and base.name == "sqrt":
        return Fraction(exponent, 2), base.args[0]
    return Fraction(exponent), make_normal([make_term(ONE, powers=[(base, 1)])])


def square_root(normal: Normal) -> list[Term]:
    """``sqrt(f^2 a)`` as ``f sqrt(a)``, with no square left in a's greatest coefficient.

    As f is positive, both are defined where a is not negative. The root of a reciprocal is that of
    the root: both are defined where what is under them is positive.
    """
    if len(normal.terms) == 1:
        (term,) = normal.terms
        plain = not term.variables and not term.guards
        if plain and term.powers and all(exponent < 0 for _, exponent in term.powers):
            return reciprocal(make_normal(square_root(make_normal([_inverse(term)]))))
    factor = _root_of_square(max(abs(term.coefficient) for term in normal.terms))
    inside = canonical(make_normal(scale(normal.terms, 1 / factor**2)))
    if constant_of(inside) == 1:
        return [Term(factor)]
    return [make_term(factor, powers=[(Function("sqrt", (inside,)), 1)])]


def _root_of_square(number: Fraction) -> Fraction:
    """A positive f such that ``number / f^2`` has no square of a small integer in it."""
    return Fraction(_root_of_divisor(number.numerator), _root_of_divisor(number.denominator))


def _root_of_divisor(number: int) -> int:
    # Squares of greater primes may stay: some equations are missed, none becomes wrong.
    root, whole = 1, isqrt(number)
    if whole * whole == number:
        return whole
    for divisor in range(2, MAX_DIVISOR + 1):
        while number % (divisor * divisor) == 0:
            number //= divisor * divisor
            root *= divisor
    return root


def reciprocal(normal: Normal) -> list[Term]:
    """``1/x``; factors that all terms of x share become reciprocals of their own."""
    if not normal.terms:
        raise ZeroDivisionError("a reciprocal of zero")
    if len(normal.terms) == 1:
        (term,) = normal.terms
        if not term.variables and not term.guards:
            return [_inverse(term)]
    common = common_powers(normal.terms)
    rest = without_powers(normal, common)
    lead = rest.terms[0].coefficient
    unit = canonical(make_normal(scale(rest.terms, 1 / lead)))
    inverse: list[tuple[Base, int]] = [(base, -exponent) for base, exponent in common.items()]
    return [make_term(1 / lead, powers=[*inverse, (Group(unit), -1)])]


def _inverse(term: Term) -> Term:
    inverse = [(base, -exponent) for base, exponent in term.powers]
    return make_term(1 / term.coefficient, powers=inverse)


def constant_of(normal: Normal) -> Fraction | None:
    """The rational number that a normal form is, if it is one."""
    if not normal.terms:
        return Fraction(0)
    (term, *others) = normal.terms
    if others or term.variables or term.guards or term.powers:
        return None
    return term.coefficient
