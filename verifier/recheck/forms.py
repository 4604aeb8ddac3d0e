"""Sums of terms: the checker's own implementation of normal forms.

A term is ``coefficient * sum over variables in Z of [guards] * product of factor^exponent``.
Every object has a `key`: a text in which bound variables are numbered, so that equal keys mean
equal forms up to the names of bound variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd, lcm
from typing import TypeAlias

from xflow.core.constraint import Constraint, Relation
from xflow.core.size import Expr, Size, free_symbols, substitute, symbol

ODD = frozenset({"tanh", "erf", "sin", "round"})
EVEN = frozenset({"cos"})
Names: TypeAlias = Mapping[str, str]
Values: TypeAlias = Mapping[str, Size]
NO_NAMES: Names = {}


class Unreplayable(Exception):  # noqa: N818 - it is a verdict on its way up, not a failure
    """A step for which the checker has no replay; the rule is not confirmed."""


@dataclass(frozen=True)
class Read:
    """An element of an input."""

    tensor: str
    index: tuple[Size, ...]


@dataclass(frozen=True)
class Atom:
    """A size symbol or a quotient as a real number."""

    size: Expr


@dataclass(frozen=True)
class Apply:
    """A real function of sums."""

    name: str
    args: tuple[Sum, ...]


@dataclass(frozen=True)
class Nested:
    """A sum as a factor, with a negative exponent."""

    body: Sum


@dataclass(frozen=True)
class Choice:
    """One value under a maximum: `body` for all `variables` that satisfy `guards`."""

    variables: tuple[str, ...]
    guards: tuple[Constraint, ...]
    body: Sum


@dataclass(frozen=True)
class Most:
    """The maximum of its choices."""

    choices: tuple[Choice, ...]


Factor: TypeAlias = Read | Atom | Apply | Nested | Most


@dataclass(frozen=True)
class Term:
    """See the module; make it with `term`."""

    coefficient: Fraction
    variables: tuple[str, ...]
    guards: tuple[Constraint, ...]
    factors: tuple[tuple[Factor, int], ...]

    @cached_property
    def key(self) -> str:
        """Equal for terms that are equal up to coefficient and names of bound variables."""
        return term_key(self, NO_NAMES, 0)

    def __str__(self) -> str:
        return f"{self.coefficient} * {self.key}"


@dataclass(frozen=True)
class Sum:
    """A sum of terms."""

    terms: tuple[Term, ...]


def canonical(guard: Constraint) -> Constraint:
    """The same condition; of the two ways to write an equation, always the same one."""
    difference = guard.difference
    if guard.relation is Relation.EQUAL and isinstance(difference, Expr):
        negated = -difference
        assert isinstance(negated, Expr)
        if str(negated) < str(difference):
            return Constraint(negated, Relation.EQUAL)
    return guard


def term(
    coefficient: Fraction,
    variables: Sequence[str] = (),
    guards: Iterable[Constraint] = (),
    factors: Iterable[tuple[Factor, int]] = (),
) -> Term:
    """A term with equal factors collected and guards that always hold left out."""
    powers: dict[Factor, int] = {}
    for factor, exponent in factors:
        if isinstance(factor, Atom) and len(factor.size.terms) > 1 and exponent < 0:
            factor = Nested(polynomial(factor.size))  # noqa: PLW2901
        scale, factor = standard(factor)  # noqa: PLW2901
        coefficient *= scale**exponent
        powers[factor] = powers.get(factor, 0) + exponent
    kept = {canonical(guard) for guard in guards if guard.decided is not True}
    return Term(
        coefficient,
        tuple(variables),
        tuple(sorted(kept, key=str)),
        tuple((factor, exponent) for factor, exponent in powers.items() if exponent),
    )


def standard(factor: Factor) -> tuple[Fraction, Factor]:
    """``(c, f)`` with ``factor = c * f``, and f the same for all rational multiples.

    Under a maximum and an odd function only a factor is taken out that may be: a positive one,
    and -1.
    """
    one = Fraction(1)
    match factor:
        case Nested(body) if body.terms:
            scale = content([body]) * sign(body)
            return scale, (factor if scale == 1 else Nested(scaled(body, 1 / scale)))
        case Apply(name, (arg,)) if name in ODD | EVEN and sign(arg) < 0:
            return (-one if name in ODD else one), Apply(name, (scaled(arg, -one),))
        case Most(choices):
            scale = content([c.body for c in choices])
            if scale != 1:
                return scale, Most(
                    tuple(Choice(c.variables, c.guards, scaled(c.body, 1 / scale)) for c in choices)
                )
    return one, factor


def content(sums: Iterable[Sum]) -> Fraction:
    """The greatest positive rational that divides every coefficient; 1 where all are 0."""
    numerator, denominator = 0, 1
    for total in sums:
        for part in total.terms:
            numerator = gcd(numerator, abs(part.coefficient.numerator))
            denominator = lcm(denominator, part.coefficient.denominator)
    return Fraction(numerator, denominator) if numerator else Fraction(1)


def sign(total: Sum) -> int:
    """1 or -1, the opposite for the opposite sum, told by the coefficients if possible."""
    weight = sum(part.coefficient for part in total.terms)
    if not weight and total.terms:
        weight = min(total.terms, key=lambda t: t.key).coefficient
    return -1 if weight < 0 else 1


def collect(terms: Iterable[Term]) -> Sum:
    """The sum of `terms`, with terms of equal keys added up."""
    total: dict[str, Term] = {}
    for part in terms:
        if any(guard.decided is False for guard in part.guards):
            continue
        known = total.get(part.key)
        if known is not None:
            part = with_coefficient(known, known.coefficient + part.coefficient)  # noqa: PLW2901
        total[part.key] = part
    return Sum(tuple(part for part in total.values() if part.coefficient))


def with_coefficient(part: Term, coefficient: Fraction) -> Term:
    """The term with another coefficient."""
    return Term(coefficient, part.variables, part.guards, part.factors)


def scaled(total: Sum, factor: Fraction) -> Sum:
    """The sum times a number."""
    return Sum(tuple(with_coefficient(t, t.coefficient * factor) for t in total.terms))


def polynomial(size: Size) -> Sum:
    """A size as a sum over its symbols and quotients."""
    if isinstance(size, int):
        return Sum((term(Fraction(size)),) if size else ())
    return Sum(
        tuple(
            term(Fraction(c), factors=[(Atom(Expr((((atom,), 1),))), 1) for atom in monomial])
            for monomial, c in size.terms
        )
    )


# Keys ------------------------------------------------------------------------------------------


@lru_cache(200_000)
def _shown(size: Expr, names: tuple[tuple[str, str], ...]) -> str:
    return str(substitute(size, {old: symbol(new) for old, new in names}))


def shown(size: Size, names: Names) -> str:
    """The text of a size with bound variables under other names."""
    if isinstance(size, int):
        return str(size)
    return _shown(size, tuple((n, names[n]) for n in sorted(free_symbols(size)) if n in names))


def guard_key(guard: Constraint, names: Names) -> str:
    """The text of a condition with bound variables under other names."""
    text = shown(guard.difference, names)
    if guard.relation is Relation.EQUAL:
        return f"{min(text, shown(-guard.difference, names))} = 0"
    return f"{text} >= 0"


def _numbered(variables: Sequence[str], names: Names, level: int) -> dict[str, str]:
    # The level distinguishes variables bound inside a factor from those bound outside.
    return {**names, **{v: f"#{level}.{n}" for n, v in enumerate(variables)}}


def term_key(part: Term, names: Names, level: int) -> str:
    """The key of a term inside `level` binders that have named variables as `names` says."""
    inner = _numbered(part.variables, names, level)
    guards = sorted(guard_key(g, inner) for g in part.guards)
    factors = sorted(f"{factor_key(f, inner, level + 1)}^{e}" for f, e in part.factors)
    return f"{len(part.variables)} [{', '.join(guards)}] {' '.join(factors)}"


def factor_key(factor: Factor, names: Names = NO_NAMES, level: int = 0) -> str:
    """The key of a factor."""
    match factor:
        case Read(tensor, index):
            return f"{tensor}[{', '.join(shown(i, names) for i in index)}]"
        case Atom(size):
            return f"({shown(size, names)})"
        case Apply(name, args):
            return f"{name}({', '.join(sum_key(arg, names, level) for arg in args)})"
        case Nested(body):
            return f"<{sum_key(body, names, level)}>"
        case Most(choices):
            return f"max{{{'; '.join(sorted(choice_key(c, names, level) for c in choices))}}}"


def choice_key(choice: Choice, names: Names = NO_NAMES, level: int = 0) -> str:
    """The key of a value under a maximum."""
    inner = _numbered(choice.variables, names, level)
    guards = sorted(guard_key(g, inner) for g in choice.guards)
    body = sum_key(choice.body, inner, level + 1)
    return f"{len(choice.variables)} [{', '.join(guards)}] {body}"


def sum_key(total: Sum, names: Names = NO_NAMES, level: int = 0) -> str:
    """The key of a sum."""
    parts = sorted(f"{t.coefficient}*{term_key(t, names, level)}" for t in total.terms)
    return " + ".join(parts) or "0"


# Substitution ----------------------------------------------------------------------------------

_fresh = itertools.count()


def fresh() -> str:
    """A name for a bound variable that occurs nowhere else."""
    return f"_b{next(_fresh)}"


def _entering(variables: Sequence[str], values: Values) -> tuple[tuple[str, ...], Values]:
    """New bound variables and `values` for the inside of a binder: nothing is captured."""
    outside = {name: value for name, value in values.items() if name not in variables}
    used: set[str] = set().union(*(free_symbols(v) for v in outside.values()))
    names = {v: fresh() for v in variables if v in used}
    inside = {**outside, **{old: symbol(new) for old, new in names.items()}}
    return tuple(names.get(v, v) for v in variables), inside


def replace_term(part: Term, values: Values) -> Term:
    """The term with unbound symbols replaced."""
    variables, inside = _entering(part.variables, values)
    return rebound(part, variables, inside)


def rebound(part: Term, variables: Sequence[str], values: Values) -> Term:
    """The body of a term with symbols, bound ones too, replaced, under other bound variables.

    The caller answers for the change of variables.
    """
    if not values:
        return term(part.coefficient, variables, part.guards, part.factors)
    coefficient = part.coefficient
    factors: list[tuple[Factor, int]] = []
    for factor, exponent in part.factors:
        if isinstance(factor, Atom):
            size = substitute(factor.size, values)
            if isinstance(size, int):
                if size == 0 and exponent < 0:
                    raise Unreplayable("a division by the size 0")
                coefficient *= Fraction(size) ** exponent
                continue
            factors.append((Atom(size), exponent))
        else:
            factors.append((replace_factor(factor, values), exponent))
    return term(coefficient, variables, (g.substitute(values) for g in part.guards), factors)


def replace_sum(total: Sum, values: Values) -> Sum:
    """The sum with unbound symbols replaced."""
    return collect(replace_term(t, values) for t in total.terms)


def replace_factor(factor: Factor, values: Values) -> Factor:
    """The factor, which is no `Atom`, with unbound symbols replaced."""
    match factor:
        case Read(tensor, index):
            return Read(tensor, tuple(substitute(i, values) for i in index))
        case Apply(name, args):
            return Apply(name, tuple(replace_sum(arg, values) for arg in args))
        case Nested(body):
            return Nested(replace_sum(body, values))
        case Most(choices):
            return Most(tuple(replace_choice(c, values) for c in choices))
        case Atom():
            raise TypeError(factor)


def replace_choice(choice: Choice, values: Values) -> Choice:
    """The choice with unbound symbols replaced."""
    variables, inside = _entering(choice.variables, values)
    return Choice(
        variables,
        tuple(g.substitute(inside) for g in choice.guards),
        replace_sum(choice.body, inside),
    )


def renamed_apart(part: Term) -> Term:
    """The term with fresh names for its bound variables."""
    names = {v: fresh() for v in part.variables}
    return rebound(part, tuple(names.values()), {old: symbol(new) for old, new in names.items()})


def product(left: Term, right: Term) -> Term:
    """The product of two terms."""
    if set(left.variables) & set(right.variables):
        right = renamed_apart(right)
    return term(
        left.coefficient * right.coefficient,
        left.variables + right.variables,
        left.guards + right.guards,
        (*left.factors, *right.factors),
    )


# Questions -------------------------------------------------------------------------------------


def free_in_factor(factor: Factor) -> frozenset[str]:
    """Names of the symbols of a factor that are not bound inside it."""
    match factor:
        case Read(_, index):
            return frozenset().union(*map(free_symbols, index))
        case Atom(size):
            return free_symbols(size)
        case Apply(_, args):
            return frozenset().union(*map(free_in_sum, args))
        case Nested(body):
            return free_in_sum(body)
        case Most(choices):
            names: frozenset[str] = frozenset()
            for c in choices:
                inside = free_in_sum(c.body).union(*(g.symbols for g in c.guards))
                names |= inside - set(c.variables)
            return names


def free_in_sum(total: Sum) -> frozenset[str]:
    """Names of the unbound symbols of a sum."""
    names: frozenset[str] = frozenset()
    for t in total.terms:
        inside = frozenset().union(*(g.symbols for g in t.guards))
        inside = inside.union(*(free_in_factor(f) for f, _ in t.factors))
        names |= inside - set(t.variables)
    return names


def tensors_in(total: Sum) -> frozenset[str]:
    """The names of the inputs of which elements are read in a sum, also inside functions."""
    return frozenset[str]().union(
        *(_tensors_in_factor(f) for t in total.terms for f, _ in t.factors)
    )


def _tensors_in_factor(factor: Factor) -> frozenset[str]:
    match factor:
        case Read(tensor, _):
            return frozenset({tensor})
        case Apply(_, args):
            return frozenset[str]().union(*map(tensors_in, args))
        case Nested(body):
            return tensors_in(body)
        case Most(choices):
            return frozenset[str]().union(*(tensors_in(c.body) for c in choices))
    return frozenset()


def sizes_in(part: Term) -> Iterator[Size]:
    """The sizes in guards, indices and factors of a term, also inside functions."""
    for guard in part.guards:
        yield guard.difference
    for factor, _ in part.factors:
        yield from _sizes_in_factor(factor)


def _sizes_in_factor(factor: Factor) -> Iterator[Size]:
    match factor:
        case Read(_, index):
            yield from index
        case Atom(size):
            yield size
        case Apply(_, args):
            for t in itertools.chain.from_iterable(arg.terms for arg in args):
                yield from sizes_in(t)
        case Nested(body):
            for t in body.terms:
                yield from sizes_in(t)
        case Most(choices):
            for choice in choices:
                yield from (g.difference for g in choice.guards)
                for t in choice.body.terms:
                    yield from sizes_in(t)


def map_sizes(part: Term, change: Callable[[Size], Size], names: frozenset[str]) -> Term:
    """The term with the sizes of `sizes_in` changed.

    `names` are the symbols that the change is about. Raises Unreplayable where one of them is
    bound inside the term: it would be another's.
    """
    if names & set(part.variables):
        raise Unreplayable("a variable is bound twice")
    return map_body(part, change, names)


def map_body(part: Term, change: Callable[[Size], Size], names: frozenset[str]) -> Term:
    """`map_sizes` for a change that may be about the term's own bound variables."""
    factors: list[tuple[Factor, int]] = []
    coefficient = part.coefficient
    for factor, exponent in part.factors:
        if isinstance(factor, Atom):
            size = change(factor.size)
            if isinstance(size, int):
                if size == 0 and exponent < 0:
                    raise Unreplayable("a division by the size 0")
                coefficient *= Fraction(size) ** exponent
                continue
            factors.append((Atom(size), exponent))
        else:
            factors.append((_map_factor(factor, change, names), exponent))
    guards = [Constraint(change(g.difference), g.relation) for g in part.guards]
    return term(coefficient, part.variables, guards, factors)


def _map_factor(factor: Factor, change: Callable[[Size], Size], names: frozenset[str]) -> Factor:
    def inside(total: Sum) -> Sum:
        return collect(map_sizes(t, change, names) for t in total.terms)

    match factor:
        case Read(tensor, index):
            return Read(tensor, tuple(map(change, index)))
        case Apply(name, args):
            return Apply(name, tuple(map(inside, args)))
        case Nested(body):
            return Nested(inside(body))
        case Most(choices):
            made = []
            for c in choices:
                if names & set(c.variables):
                    raise Unreplayable("a variable is bound twice")
                guards = tuple(Constraint(change(g.difference), g.relation) for g in c.guards)
                made.append(Choice(c.variables, guards, inside(c.body)))
            return Most(tuple(made))
        case Atom():
            raise TypeError(factor)
