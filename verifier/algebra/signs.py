"""Signs of normal forms: proofs that one is non-negative or positive, without case splits.

Sums and products of non-negatives are non-negative; even powers, roots and exponentials are never
negative, and a maximum is at least each of its values. Nothing is claimed where an expression is
not defined; everything else holds at every point that satisfies the guards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations
from math import lcm

from xflow.core.constraint import at_least
from xflow.core.size import Size, symbol
from xflow.core.spec import Element, fresh_name
from xflow.verifier.algebra.affine import least_points
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.integers import UNBOUNDED, Ranges, interval, without_steps
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Group,
    Guards,
    Maximum,
    Normal,
    Option,
    SizeAtom,
    Term,
    elements,
    make_normal,
    make_term,
    multiply,
    rename,
    scale,
    substitute_normal,
)

MAX_DEPTH = 2
"""How many maxima are replaced by their values on the way to one answer."""
MAX_BOUNDS = 8
"""How many lower bounds are looked at for one expression."""


class Signs:
    """Signs under the assumptions of an `Arithmetic`.

    `facts` holds the relations to 0, ``>`` and ``>=`` among them, of all elements of some inputs.
    Elements of inputs in `unbounded` may be -inf: exponentials of them may be 0. `ranges` holds the
    least and the greatest element of inputs of integers.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        facts: Mapping[str, str],
        unbounded: frozenset[str] = frozenset(),
        ranges: Ranges | None = None,
    ):
        self._arithmetic = arithmetic
        self._facts = facts
        self._unbounded = unbounded
        self._ranges = ranges or {}

    def is_nonnegative(self, normal: Normal, guards: Guards = (), depth: int = MAX_DEPTH) -> bool:
        """Whether `normal` is shown to be at least 0 wherever `guards` hold."""
        low, _ = interval(normal, self._ranges) if self._ranges else UNBOUNDED
        if low is not None and low >= 0:
            return True
        size, others = split_size(normal)
        if self._size_nonnegative(size, guards) and all(
            self._term_nonnegative(term, guards, depth) for term in others
        ):
            return True
        if depth == 0:
            return False
        exact = without_steps(normal, self._ranges) if self._ranges else None
        if exact is not None and self.is_nonnegative(exact, guards, depth - 1):
            return True
        if any(
            all(self.is_nonnegative(value, guards, depth - 1) for value in values)
            for values in self._cases(normal, guards, depth)
        ):
            return True
        bounds = list(self._lower_bounds(normal, guards, depth))
        # What is at least a and at least b is at least (a + b) / 2, as |x| = 2 max{x, 0} - x is.
        return any(self.is_nonnegative(b, guards, depth - 1) for b in bounds) or any(
            self.is_nonnegative(make_normal((*a.terms, *b.terms)), guards, 0)
            for a, b in combinations(bounds, 2)
        )

    def _size_nonnegative(self, size: Size, guards: Guards) -> bool:
        return self._arithmetic.implied(at_least(size, 0), guards)

    def is_positive(self, normal: Normal, guards: Guards = ()) -> bool:
        """Whether `normal` is shown to be greater than 0 wherever `guards` hold."""
        # Term by term: of a sum that is not negative as a whole one positive term says nothing.
        return all(self._term_nonnegative(t, guards, MAX_DEPTH) for t in normal.terms) and any(
            self._term_positive(t, guards) for t in normal.terms
        )

    def is_power_nonnegative(self, base: Base, exponent: int, guards: Guards = ()) -> bool:
        """Whether a power is shown to be at least 0 wherever `guards` hold."""
        return exponent % 2 == 0 or self._base_nonnegative(base, guards, MAX_DEPTH)

    def _lower_bounds(self, normal: Normal, guards: Guards, depth: int) -> Iterator[Normal]:
        """Expressions that `normal` is at least as great as: a maximum replaced by a value."""
        found = 0
        for term in normal.terms:
            for base, exponent in term.powers:
                if not isinstance(base, Maximum) or exponent != 1 or term.variables or term.guards:
                    continue
                rest = make_term(
                    term.coefficient, powers=[(b, e) for b, e in term.powers if b != base]
                )
                # c * max{a, ...} >= c * a needs c >= 0.
                if not self._term_nonnegative(rest, guards, depth - 1):
                    continue
                others = [t for t in normal.terms if t is not term]
                for option in base.options:
                    if option.variables or option.guards or found >= MAX_BOUNDS:
                        continue
                    found += 1
                    value = [multiply(rest, t) for t in option.body.terms]
                    yield make_normal((*others, *value))

    def _cases(self, normal: Normal, guards: Guards, depth: int) -> Iterator[list[Normal]]:
        """Expressions of which `normal` is one: ``d - c max{a, b}`` is ``d - c a`` or ``d - c b``.

        With ``c >= 0`` it is the lesser one, but for that it is enough that it is one of them.
        """
        for term in normal.terms:
            for base, exponent in term.powers:
                if not isinstance(base, Maximum) or exponent != 1 or term.variables or term.guards:
                    continue
                if any(option.variables or option.guards for option in base.options):
                    continue
                if len(base.options) <= MAX_BOUNDS:
                    powers = [(b, e) for b, e in term.powers if b != base]
                    rest = make_term(term.coefficient, powers=powers)
                    others = [t for t in normal.terms if t is not term]
                    yield [
                        make_normal((*others, *(multiply(rest, t) for t in option.body.terms)))
                        for option in base.options
                    ]

    def _term_nonnegative(self, term: Term, guards: Guards, depth: int) -> bool:
        term = apart(term, guards)
        # Where the term's own guards fail it is 0.
        inside = (*guards, *term.guards)
        return term.coefficient >= 0 and all(
            exponent % 2 == 0 or self._base_nonnegative(base, inside, depth)
            for base, exponent in term.powers
        )

    def _base_nonnegative(self, base: Base, guards: Guards, depth: int) -> bool:
        match base:
            case Function("exp" | "sqrt" | "pi", _):
                return True
            case Function("power", (argument, _)):
                return self.is_positive(argument, guards)
            case SizeAtom(size):
                return self._arithmetic.implied(at_least(size, 0), guards)
            case Group(body):
                return self.is_nonnegative(body, guards, max(depth - 1, 0))
            case Element():
                return self.fact(base) in (">", ">=")
            case Maximum(options):
                if depth == 0:
                    return False
                return self._maximum_nonnegative(options, guards, depth)
        return False

    def _maximum_nonnegative(self, options: tuple[Option, ...], guards: Guards, depth: int) -> bool:
        """One option that is always there is enough; else the one that is greatest may be any.

        Of two options that are there together, as x and -x in |x|, the greater one is at least
        half their sum.
        """
        always = [o for o in options if not o.guards and not o.variables]

        def nonnegative(option: Option) -> bool:
            own = option_apart(option, guards)
            if self.is_nonnegative(own.body, (*guards, *own.guards), depth - 1):
                return True
            for other in options[:MAX_BOUNDS]:
                if (other.variables, other.guards) == (option.variables, option.guards):
                    both = Option(
                        option.variables,
                        option.guards,
                        make_normal((*option.body.terms, *other.body.terms)),
                    )
                    own = option_apart(both, guards)
                    if self.is_nonnegative(own.body, (*guards, *own.guards), 0):
                        return True
            return False

        return any(map(nonnegative, always)) or all(map(nonnegative, options))

    def _term_positive(self, term: Term, guards: Guards) -> bool:
        """Whether a term is a sum of positive numbers, of one at least."""
        term = apart(term, guards)
        inside = (*guards, *term.guards)
        return (
            term.coefficient > 0
            and all(self._base_positive(base, inside) for base, _ in term.powers)
            and any(
                all(self._arithmetic.implied(g.substitute(point), guards) for g in term.guards)
                for point in least_points(term.variables, term.guards)
            )
        )

    def _base_positive(self, base: Base, guards: Guards) -> bool:
        match base:
            case Function("pi", _):
                return True
            case Function("exp", (argument,)):
                return not self.may_vanish(argument)
            case Function("sqrt", (argument,)) | Function("power", (argument, _)):
                return self.is_positive(argument, guards)
            case SizeAtom(size):
                return self._arithmetic.implied(at_least(size, 1), guards)
            case Group(body):
                return self.is_positive(body, guards)
            case Element():
                return self.fact(base) == ">"
            case Maximum(options):
                return any(
                    not o.guards and not o.variables and self.is_positive(o.body, guards)
                    for o in options
                )
        return False

    def may_vanish(self, exponent: Normal) -> bool:
        """Whether the exponential of a normal form may be 0, since it may be -inf."""
        read = {e.tensor.lstrip("%") for term in exponent.terms for e in elements(term.powers)}
        return not read.isdisjoint(self._unbounded)

    def fact(self, element: Element) -> str | None:
        """The relation to 0 in which all elements of an input are known to be."""
        return self._facts.get(element.tensor.lstrip("%"))


def split_size(normal: Normal) -> tuple[Size, list[Term]]:
    """``(size, terms)`` with `normal` as a positive multiple of a size, plus the terms."""
    sizes = [
        term
        for term in normal.terms
        if not term.variables
        and not term.guards
        and all(isinstance(b, SizeAtom) and e > 0 for b, e in term.powers)
    ]
    denominator = lcm(*(term.coefficient.denominator for term in sizes))
    size: Size = 0
    for term in sizes:
        part: Size = int(term.coefficient * denominator)
        for base, exponent in term.powers:
            for _ in range(exponent):
                part = part * base.size if isinstance(base, SizeAtom) else part
        size = size + part
    return size, [term for term in normal.terms if term not in sizes]


def apart(term: Term, guards: Guards) -> Term:
    """The term with bound variables renamed that occur in `guards`, as a copy's may."""
    clash = clashing(term.variables, guards)
    return rename(term, {name: fresh_name() for name in clash}) if clash else term


def option_apart(option: Option, guards: Guards) -> Option:
    """`apart` for an option of a maximum."""
    clash = clashing(option.variables, guards)
    return rename_option(option, {name: fresh_name() for name in clash}) if clash else option


def clashing(variables: tuple[str, ...], guards: Guards) -> list[str]:
    """The bound variables whose names occur in guards from outside."""
    used = frozenset[str]().union(*(guard.symbols for guard in guards))
    return [name for name in variables if name in used]


def rename_option(option: Option, names: Mapping[str, str]) -> Option:
    """The option with bound variables renamed."""
    values: dict[str, Size] = {old: symbol(new) for old, new in names.items()}
    return Option(
        tuple(names.get(v, v) for v in option.variables),
        tuple(guard.substitute(values) for guard in option.guards),
        substitute_normal(option.body, values),
    )


def difference(left: Normal, right: Normal) -> Normal:
    """``left - right``."""
    return make_normal((*left.terms, *scale(right.terms, Fraction(-1))))
