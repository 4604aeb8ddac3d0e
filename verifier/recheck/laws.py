"""The laws of real functions that the checker uses; each holds wherever the function is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from xflow.core.spec import FIXING_ZERO
from xflow.verifier.recheck.forms import (
    Apply,
    Factor,
    Nested,
    Sum,
    Term,
    Unreplayable,
    collect,
    factor_key,
    free_in_factor,
    product,
    scaled,
    tensors_in,
    term,
)

ONE = Fraction(1)
MAX_POWER = 8
"""Exponents up to which a power is multiplied out."""
MAX_TERMS = 600
AT_POINT: Mapping[tuple[str, Fraction], Fraction] = {
    ("sqrt", Fraction(0)): Fraction(0),
    ("sqrt", ONE): ONE,
    ("log", ONE): Fraction(0),
    ("tanh", Fraction(0)): Fraction(0),
    ("erf", Fraction(0)): Fraction(0),
    ("sin", Fraction(0)): Fraction(0),
    ("cos", Fraction(0)): ONE,
}


def function_terms(name: str, args: Sequence[Sum]) -> list[Term]:
    """A function of sums as terms. Raises Unreplayable for a division by 0."""
    match name, args:
        case "power", (base, exponent):
            return _power(base, exponent)
        case "reciprocal", (arg,):
            return [inverse(arg)]
        case "exp", (arg,):
            return _exponential(arg)
    if name in FIXING_ZERO and not any(arg.terms for arg in args):
        return []
    if len(args) == 1:
        constant = constant_of(args[0])
        if constant is not None and (name, constant) in AT_POINT:
            value = AT_POINT[name, constant]
            return [term(value)] if value else []
        if name == "log":
            return _logarithm(args[0])
        if name == "sqrt" and _is_inverse(args[0]):
            return [inverse(collect(function_terms("sqrt", [Sum((inverse(args[0]),))])))]
    return [term(ONE, factors=[(Apply(name, tuple(args)), 1)])]


def _is_inverse(arg: Sum) -> bool:
    """Whether a sum is the inverse of a product: ``sqrt(1/a)`` is ``1/sqrt(a)``, for positive a."""
    if len(arg.terms) != 1:
        return False
    (only,) = arg.terms
    divides = bool(only.factors) and all(exponent < 0 for _, exponent in only.factors)
    return divides and not only.variables and not only.guards


def with_one_logarithm(total: Sum) -> Sum:
    """The sum with ``log x - log y`` as ``log (x/y)``, which it is where both have a value."""
    found = {t: arg for t in total.terms if (arg := _argument_of_log(t)) is not None}
    if len(found) < 2 or any(abs(t.coefficient) != 1 for t in found):
        return total
    product = _multiplied(
        [arg.terms if t.coefficient > 0 else [inverse(arg)] for t, arg in found.items()]
    )
    return collect([*(t for t in total.terms if t not in found), *_logarithm(collect(product))])


def _argument_of_log(part: Term) -> Sum | None:
    match part.factors:
        case ((Apply("log", (inside,)), 1),) if not part.variables and not part.guards:
            return inside
    return None


def _multiplied(factors: Sequence[Sequence[Term]]) -> list[Term]:
    result = [term(ONE)]
    for factor in factors:
        if len(result) * len(factor) > MAX_TERMS:
            raise Unreplayable(f"an expansion of more than {MAX_TERMS} terms")
        result = [product(a, b) for a in result for b in factor]
    return result


def _power(base: Sum, exponent: Sum) -> list[Term]:
    """``x^(n/2)`` as a product of x or its root, n times; other powers are left alone."""
    constant = constant_of(exponent)
    if constant is None or constant.denominator > 2 or abs(constant) > MAX_POWER:
        return [term(ONE, factors=[(Apply("power", (base, exponent)), 1)])]
    factor = list(base.terms)
    if constant.denominator == 2:
        factor = function_terms("sqrt", [base])
    if constant < 0:
        factor = [inverse(collect(factor))]
    return _multiplied([factor] * abs(constant.numerator))


def _exponential(arg: Sum) -> list[Term]:
    """``exp(a + b) = exp(a) * exp(b)``, ``exp(n*a/d) = exp(a/d)^n``, ``exp(log a) = a``."""
    powers: list[tuple[Factor, int]] = []
    factors: list[list[Term]] = []
    for t in arg.terms:
        count = t.coefficient
        match t.factors:
            case ((Apply("log", (inner,)), 1),) if (
                not t.variables
                and not t.guards
                and count.denominator == 1
                and abs(count) <= MAX_POWER
            ):
                once = list(inner.terms) if count > 0 else [inverse(inner)]
                factors += [once] * abs(count.numerator)
            case _:
                unit = term(Fraction(1, count.denominator), t.variables, t.guards, t.factors)
                powers.append((Apply("exp", (Sum((unit,)),)), count.numerator))
    return _multiplied([[term(ONE, factors=powers)], *factors])


def _logarithm(arg: Sum) -> list[Term]:
    """``log(exp(c) * a) = c + log(a)``, and ``log(a^e) = e * log(a)`` for an odd e or half of one.

    Every exponential is taken out to its least power among the terms.
    """
    shared = _least_exponentials(arg)
    terms = [t for f, e in shared for t in scaled(_argument(f), Fraction(e)).terms]
    rest = _divided(arg, shared)
    if len(rest.terms) == 1:
        (only,) = rest.terms
        match only.factors:
            case ((factor, exponent),) if (
                exponent % 2 and only.coefficient == 1 and not only.variables and not only.guards
            ):
                match factor:
                    case Nested(body) | Apply("sqrt", (body,)):
                        power = Fraction(exponent, 1 if isinstance(factor, Nested) else 2)
                        return [*terms, *scaled(Sum(tuple(_logarithm(body))), power).terms]
                once = Sum((term(ONE, factors=[(factor, 1)]),))
                return [*terms, term(Fraction(exponent), factors=[(Apply("log", (once,)), 1)])]
    if constant_of(rest) == 1:
        return terms
    return [*terms, term(ONE, factors=[(Apply("log", (rest,)), 1)])]


def _argument(factor: Factor) -> Sum:
    assert isinstance(factor, Apply)
    return factor.args[0]


def without_exponentials(total: Sum, unbounded: frozenset[str] = frozenset()) -> Sum:
    """The sum divided by the exponentials that its terms share: of the same sign everywhere.

    Elements of inputs in `unbounded` may be -inf; an exponential of one stays.
    """
    shared = [
        (f, e) for f, e in _shared_exponentials(total) if not may_vanish(_argument(f), unbounded)
    ]
    return _divided(total, shared) if shared else total


def may_vanish(exponent: Sum, unbounded: frozenset[str]) -> bool:
    """Whether the exponential of a sum may be 0, if elements of inputs in `unbounded` are -inf."""
    return bool(unbounded) and not unbounded.isdisjoint(tensors_in(exponent))


def _shared_exponentials(total: Sum) -> list[tuple[Factor, int]]:
    return [(f, e) for f, e in _shared(total) if isinstance(f, Apply) and f.name == "exp"]


def _least_exponentials(total: Sum) -> list[tuple[Factor, int]]:
    """Exponentials without variables of a term, each to its least power, where that is not 0."""
    found: dict[str, tuple[Factor, list[int]]] = {}
    for t in total.terms:
        for f, e in t.factors:
            is_exponential = isinstance(f, Apply) and f.name == "exp"
            if is_exponential and not free_in_factor(f) & set(t.variables):
                found.setdefault(factor_key(f), (f, []))[1].append(e)
    least = [
        (f, min(powers if len(powers) == len(total.terms) else [*powers, 0]))
        for f, powers in found.values()
    ]
    return [(f, e) for f, e in least if e]


def inverse(total: Sum) -> Term:
    """One divided by a sum; the factors that its terms share are divided by one by one."""
    if not total.terms:
        raise Unreplayable("a division by 0")
    (first, *others) = total.terms
    if not others and not first.variables and not first.guards:
        return term(1 / first.coefficient, factors=[(f, -e) for f, e in first.factors])
    shared = _shared(total)
    rest = Nested(_divided(total, shared))
    return term(ONE, factors=[*((f, -e) for f, e in shared), (rest, -1)])


def _shared(total: Sum) -> list[tuple[Factor, int]]:
    """The factors that every term has and in which nothing bound by a term occurs."""
    common: dict[str, tuple[Factor, int]] | None = None
    for t in total.terms:
        own = {
            factor_key(f): (f, e) for f, e in t.factors if not free_in_factor(f) & set(t.variables)
        }
        if common is None:
            common = own
            continue
        common = {
            key: (f, min(e, own[key][1]) if e > 0 else max(e, own[key][1]))
            for key, (f, e) in common.items()
            if key in own and e * own[key][1] > 0
        }
    return list((common or {}).values())


def _divided(total: Sum, factors: Sequence[tuple[Factor, int]]) -> Sum:
    """The sum divided by factors, term by term."""
    divisor = term(ONE, factors=[(f, -e) for f, e in factors])
    return collect([product(t, divisor) for t in total.terms])


def constant_of(total: Sum) -> Fraction | None:
    """The number that a sum is; None where it is none."""
    if not total.terms:
        return Fraction(0)
    (first, *others) = total.terms
    if others or first.variables or first.guards or first.factors:
        return None
    return first.coefficient
