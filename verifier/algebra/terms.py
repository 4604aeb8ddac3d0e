"""Normal forms: sums of terms ``coefficient * sum_k [guards] * product of powers``.

The sums run over *all* integers; ranges, padding, concatenation and identity matrices are all
guards (Iverson brackets). Powers have integer exponents; a negative one stands for a reciprocal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from xflow.core.constraint import Constraint
from xflow.core.hash_once import hash_once
from xflow.core.size import Expr, Lookup, Size, free_symbols, opaque_integers, substitute, symbol
from xflow.core.spec import Element, fresh_name

Guards: TypeAlias = tuple[Constraint, ...]


class TooLargeError(Exception):
    """The normal form has too many terms; the verdict is `Unknown`."""


@hash_once
@dataclass(frozen=True)
class SizeAtom:
    """A size symbol or quotient as a real number."""

    size: Expr

    @cached_property
    def key(self) -> str:
        return f"({self.size})"


@hash_once
@dataclass(frozen=True)
class Function:
    """A real function of normal forms, not interpreted further."""

    name: str
    args: tuple[Normal, ...]

    @cached_property
    def key(self) -> str:
        return f"{self.name}({', '.join(arg.key for arg in self.args)})"


@hash_once
@dataclass(frozen=True)
class Group:
    """A sum as a factor; occurs with negative exponents only."""

    body: Normal

    @cached_property
    def key(self) -> str:
        return f"({self.body.key})"


@hash_once
@dataclass(frozen=True)
class Option:
    """One of the values that a maximum ranges over: `body` for all `variables` with `guards`."""

    variables: tuple[str, ...]
    guards: Guards
    body: Normal

    @cached_property
    def key(self) -> str:
        guards = ", ".join(map(str, self.guards))
        return f"{' '.join(self.variables)} [{guards}] {self.body.key}"


@hash_once
@dataclass(frozen=True)
class Maximum:
    """The maximum of all options; there is at least one wherever it is read."""

    options: tuple[Option, ...]

    @cached_property
    def key(self) -> str:
        return f"max{{{'; '.join(option.key for option in self.options)}}}"


Base: TypeAlias = Element | SizeAtom | Function | Group | Maximum
Powers: TypeAlias = tuple[tuple[Base, int], ...]


def base_key(base: Base) -> str:
    """A text that identifies `base`."""
    return base.key


@hash_once
@dataclass(frozen=True)
class Term:
    """``coefficient * sum over variables of [guards] * product of powers``."""

    coefficient: Fraction
    variables: tuple[str, ...] = ()
    guards: Guards = ()
    powers: Powers = ()

    @cached_property
    def key(self) -> str:
        """A text that identifies the term up to its coefficient."""
        body = " ".join(
            base_key(base) + ("" if exponent == 1 else f"^{exponent}")
            for base, exponent in self.powers
        )
        guards = ", ".join(map(str, self.guards))
        head = f"sum {' '.join(self.variables)} " if self.variables else ""
        return f"{head}[{guards}] {body}" if guards else f"{head}{body}"

    def times(self, factor: Fraction) -> Term:
        """The same with its coefficient times `factor`."""
        return self.with_coefficient(self.coefficient * factor)

    def with_coefficient(self, coefficient: Fraction) -> Term:
        """The same with another coefficient; the texts that are known of it are kept."""
        if coefficient == self.coefficient:
            return self
        made = Term(coefficient, self.variables, self.guards, self.powers)
        if "key" in self.__dict__:
            made.__dict__["key"] = self.key
        return made

    def __str__(self) -> str:
        return f"{self.coefficient} {self.key}"


@hash_once
@dataclass(frozen=True)
class Normal:
    """A sum of terms, sorted, equal ones collected."""

    terms: tuple[Term, ...]

    @cached_property
    def key(self) -> str:
        return " + ".join(map(str, self.terms)) or "0"


def make_term(
    coefficient: Fraction,
    variables: Iterable[str] = (),
    guards: Iterable[Constraint] = (),
    powers: Mapping[Base, int] | Iterable[tuple[Base, int]] = (),
) -> Term:
    """A term with guards and powers in canonical order; decided true guards are left out."""
    collected: dict[Base, int] = {}
    for base, exponent in powers.items() if isinstance(powers, Mapping) else powers:
        collected[base] = collected.get(base, 0) + exponent
    kept = {guard for guard in guards if guard.decided is not True}
    return Term(
        coefficient,
        tuple(variables),
        tuple(sorted(kept, key=str)),
        tuple(sorted(((b, e) for b, e in collected.items() if e), key=lambda p: base_key(p[0]))),
    )


def make_normal(terms: Iterable[Term]) -> Normal:
    """Collect equal terms and sort; terms with a decided false guard vanish."""
    total: dict[tuple[tuple[str, ...], Guards, Powers], tuple[Term, Fraction]] = {}
    for term in terms:
        if any(guard.decided is False for guard in term.guards):
            continue
        body = term.variables, term.guards, term.powers
        first, sum_ = total.get(body, (term, Fraction(0)))
        total[body] = first, sum_ + term.coefficient
    kept = [first.with_coefficient(c) for first, c in total.values() if c]
    return Normal(tuple(sorted(kept, key=lambda term: term.key)))


def scale(terms: Iterable[Term], factor: Fraction) -> list[Term]:
    """Every coefficient times `factor`."""
    return [term.times(factor) for term in terms]


def multiply(left: Term, right: Term) -> Term:
    """The product of two terms; bound variables that coincide are renamed."""
    clash = set(left.variables) & set(right.variables)
    if clash:
        right = rename(right, {name: fresh_name() for name in sorted(clash)})
    return make_term(
        left.coefficient * right.coefficient,
        left.variables + right.variables,
        left.guards + right.guards,
        (*left.powers, *right.powers),
    )


def rename(term: Term, names: Mapping[str, str]) -> Term:
    """The term with bound variables renamed."""
    substituted = substitute_term(term, {old: symbol(new) for old, new in names.items()})
    variables = tuple(names.get(v, v) for v in term.variables)
    return Term(substituted.coefficient, variables, substituted.guards, substituted.powers)


def substitute_term(term: Term, values: Mapping[str, Size]) -> Term:
    """Replace symbols everywhere in the term; `variables` stay as they are."""
    coefficient = term.coefficient
    powers: list[tuple[Base, int]] = []
    for base, exponent in term.powers:
        if isinstance(base, SizeAtom):
            size = substitute(base.size, values)
            if isinstance(size, Expr):
                powers.append((SizeAtom(size), exponent))
            else:
                # a reciprocal of 0 is undefined, so the term is not read there at all
                coefficient *= Fraction(size) ** exponent if size or exponent > 0 else 0
        else:
            powers.append((substitute_base(base, values), exponent))
    guards = (guard.substitute(values) for guard in term.guards)
    return make_term(coefficient, term.variables, guards, powers)


def substitute_normal(normal: Normal, values: Mapping[str, Size]) -> Normal:
    """Replace unbound symbols everywhere in a normal form; none is captured."""
    return make_normal(_substitute_free(term, values) for term in normal.terms)


def _substitute_free(term: Term, values: Mapping[str, Size]) -> Term:
    names, values = _without_capture(term.variables, values)
    return substitute_term(rename(term, names) if names else term, values)


def _without_capture(
    variables: tuple[str, ...], values: Mapping[str, Size]
) -> tuple[dict[str, str], Mapping[str, Size]]:
    """New names for bound variables that occur in `values`, and `values` of the unbound ones.

    Copies of one normal form share the names of their bound variables, so a name may be bound
    inside a factor of a term that binds it, too.
    """
    if not variables:
        return {}, values
    values = {name: value for name, value in values.items() if name not in variables}
    used = frozenset().union(*map(free_symbols, values.values()))
    return {name: fresh_name() for name in variables if name in used}, values


def substitute_base(base: Base, values: Mapping[str, Size]) -> Base:
    """Replace symbols in a base."""
    if not free_of_base(base) & values.keys():
        return base
    match base:
        case Element(tensor, index):
            return Element(tensor, tuple(substitute(i, values) for i in index))
        case Function(name, args):
            return Function(name, tuple(substitute_normal(arg, values) for arg in args))
        case Group(body):
            return Group(substitute_normal(body, values))
        case Maximum(options):
            return Maximum(tuple(_substitute_option(o, values) for o in options))
    raise TypeError(type(base))


def _substitute_option(option: Option, values: Mapping[str, Size]) -> Option:
    names, values = _without_capture(option.variables, values)
    values = {**values, **{old: symbol(new) for old, new in names.items()}}
    return Option(
        tuple(names.get(v, v) for v in option.variables),
        tuple(g.substitute(values) for g in option.guards),
        substitute_normal(option.body, values),
    )


def free_of_base(base: Base) -> frozenset[str]:
    """Names of the symbols that occur in a base and are not bound inside it."""
    match base:
        case Element(_, index):
            return frozenset().union(*map(free_symbols, index))
        case SizeAtom(size):
            return free_symbols(size)
        case Function(_, args):
            return frozenset().union(*map(free_of_normal, args))
        case Group(body):
            return free_of_normal(body)
        case Maximum(options):
            names: frozenset[str] = frozenset()
            for option in options:
                inside = free_of_normal(option.body).union(*(g.symbols for g in option.guards))
                names |= inside - set(option.variables)
            return names
    raise TypeError(type(base))


def free_of_normal(normal: Normal) -> frozenset[str]:
    """Names of the unbound symbols of a normal form."""
    names: frozenset[str] = frozenset()
    for term in normal.terms:
        inside = frozenset().union(*(g.symbols for g in term.guards))
        for base, _ in term.powers:
            inside |= free_of_base(base)
        names |= inside - set(term.variables)
    return names


def elements(powers: Powers) -> Iterator[Element]:
    """Every tensor access in a product, those inside functions included, in a fixed order."""
    for base, _ in powers:
        yield from _elements_of(base)


def _elements_of(base: Base) -> Iterator[Element]:
    match base:
        case Element():
            # Places that are looked up hint at how to match their own indices, too.
            for i in base.index:
                for atom in opaque_integers(i):
                    if isinstance(atom, Lookup):
                        yield Element(atom.tensor, atom.index)
            yield base
        case Function(_, args):
            for arg in args:
                for term in arg.terms:
                    yield from elements(term.powers)
        case Group(body):
            for term in body.terms:
                yield from elements(term.powers)
        case Maximum(options):
            for option in options:
                for term in option.body.terms:
                    yield from elements(term.powers)


def shape_of(base: Base) -> str:
    """A base without its indices: equal for bases that may be equal."""
    match base:
        case Element(tensor, _):
            return tensor
        case SizeAtom(size):
            return f"({size})" if not _has_bound(size) else "()"
        case Function(name, _):
            return f"{name}()"
        case Group(_):
            return "group"
        case Maximum(_):
            return "max"
    raise TypeError(type(base))


def _has_bound(size: Expr) -> bool:
    return any(name.startswith("_k") for name in free_symbols(size))


def map_powers(powers: Powers, change: Callable[[Base], Base]) -> list[tuple[Base, int]]:
    """Apply `change` to every base."""
    return [(change(base), exponent) for base, exponent in powers]
