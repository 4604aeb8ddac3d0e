"""Equality of normal forms by Z3's real arithmetic, with unknown reals for sums and maxima.

Sums over ranges, maxima over ranges and conditions on indices become unknowns, equal ones the
same; what is left is arithmetic with choices, of which Z3 knows all lattice identities.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Protocol

import z3

from xflow.core.constraint import Constraint, at_least
from xflow.verifier.algebra.arithmetic import Arithmetic
from xflow.verifier.algebra.signs import Signs
from xflow.verifier.algebra.terms import (
    Base,
    Function,
    Group,
    Guards,
    Maximum,
    Normal,
    Powers,
    Term,
    make_normal,
    shape_of,
)

RESOURCE_LIMIT = 1_000_000
MAX_SIZE = 60
MAX_EXPONENT = 8
NEVER: Guards = (at_least(-1, 0),)
"""A condition that is nowhere true."""


class Compares(Protocol):
    """The part of `Equality` that is used here."""

    arithmetic: Arithmetic

    def equal(self, left: Normal, right: Normal, guards: Guards = ()) -> bool: ...

    def comparing(
        self, powers: Powers, needed: Guards, guards: Guards
    ) -> AbstractContextManager[None]: ...


def equal_abstractly(
    left: Normal, right: Normal, equality: Compares, facts: Mapping[str, str]
) -> bool:
    """Whether Z3 shows both equal, whatever the unknowns are, where both are defined.

    That both are defined in the same places is for the caller to show. A resource limit, a failure
    or an expression that is too large means "not shown".
    """
    if len(left.terms) + len(right.terms) > MAX_SIZE:
        return False
    abstraction = _Abstraction(equality, facts)
    try:
        a, b = (abstraction.side(side) for side in (left, right))
    except _TooLargeError:
        return False
    solver = z3.Solver(ctx=abstraction.context)
    solver.set("rlimit", RESOURCE_LIMIT)
    solver.add(*abstraction.facts, a != b)
    try:
        shown = solver.check() == z3.unsat
    except z3.Z3Exception:
        return False
    if shown:
        equality.arithmetic.obligations.append({"real arithmetic": solver.sexpr()})
    return bool(shown)


class _TooLargeError(Exception):
    """The expression has too many parts."""


class _Abstraction:
    """Normal forms as terms of Z3.

    Every fact is true of all reals if an expression that is not defined is given some value, but
    for those of `side`, which are about terms that are read at the top.
    """

    def __init__(self, equality: Compares, facts: Mapping[str, str]):
        self.context = z3.Context()
        self.facts: list[z3.BoolRef] = []
        self._equality = equality
        self._signs = Signs(equality.arithmetic, facts)
        self._bases: list[tuple[Base, z3.ArithRef]] = []
        self._sums: list[tuple[Term, z3.ArithRef]] = []
        self._conditions: dict[Constraint, z3.BoolRef] = {}
        self._inverses: dict[Base, z3.ArithRef] = {}

    def side(self, normal: Normal) -> z3.ArithRef:
        """A side of an equation; no denominator that is read there without condition is 0."""
        value = self.normal(normal)
        for term in normal.terms:
            if not term.guards and not term.variables:
                for base, exponent in term.powers:
                    if exponent < 0:
                        self.facts.append(self._base(base) != 0)
        return value

    def normal(self, normal: Normal) -> z3.ArithRef:
        parts = [self._term(term) for term in normal.terms]
        return z3.Sum(parts) if parts else self._number(Fraction(0))

    def _number(self, value: Fraction) -> z3.ArithRef:
        return z3.RealVal(str(value), self.context)

    def _fresh(self) -> z3.ArithRef:
        if len(self._bases) + len(self._sums) + len(self._inverses) > MAX_SIZE:
            raise _TooLargeError
        return z3.FreshReal(ctx=self.context)

    def _term(self, term: Term) -> z3.ArithRef:
        coefficient = self._number(term.coefficient)
        if term.variables:
            return coefficient * self._sum(
                Term(Fraction(1), term.variables, term.guards, term.powers)
            )
        value = coefficient
        for base, exponent in term.powers:
            if abs(exponent) > MAX_EXPONENT:
                raise _TooLargeError
            factor = self._base(base) if exponent > 0 else self._inverse(base)
            for _ in range(abs(exponent)):
                value = value * factor
        if not term.guards:
            return value
        holds = z3.And([self._condition(guard) for guard in term.guards])
        return z3.If(holds, value, self._number(Fraction(0)))

    def _condition(self, guard: Constraint) -> z3.BoolRef:
        if guard not in self._conditions:
            self._conditions[guard] = z3.FreshBool(ctx=self.context)
        return self._conditions[guard]

    def _sum(self, unit: Term) -> z3.ArithRef:
        """An unknown for a sum over a range, the same one for sums that are equal."""
        normal = make_normal([unit])
        for known, unknown in self._sums:
            if known == unit or (
                len(known.powers) == len(unit.powers)
                and self._same(unit.powers, normal, make_normal([known]))
            ):
                return unknown
        unknown = self._fresh()
        self._sums.append((unit, unknown))
        if self._signs.is_nonnegative(normal):
            self.facts.append(unknown >= 0)
        return unknown

    def _same(self, powers: Powers, left: Normal, right: Normal) -> bool:
        """Whether two are equal also where only one of them is read, and so without denominators.

        They stand for one unknown at every point, whichever is read there.
        """
        with self._equality.comparing(powers, NEVER, ()):
            return self._equality.equal(left, right)

    def _inverse(self, base: Base) -> z3.ArithRef:
        for known, inverse in self._inverses.items():
            if known == base:
                return inverse
        value, inverse = self._base(base), self._fresh()
        self._inverses[base] = inverse
        self.facts.append(z3.Implies(value != 0, inverse * value == 1))
        return inverse

    def _base(self, base: Base) -> z3.ArithRef:
        match base:
            case Group(body):
                return self.normal(body)
            case Function(name, args):
                return self._function(name, [self.normal(arg) for arg in args])
            case Maximum(options) if not any(o.variables or o.guards for o in options):
                first, *others = (self.normal(option.body) for option in options)
                for other in others:
                    first = z3.If(first >= other, first, other)
                return first
        return self._unknown(base)

    def _function(self, name: str, args: list[z3.ArithRef]) -> z3.ArithRef:
        real = z3.RealSort(self.context)
        if not args:
            return z3.Real(f"{name}!", self.context)
        value = z3.Function(f"{name}!{len(args)}", *(real for _ in args), real)(*args)
        if name == "exp":
            self.facts.append(value > 0)
        elif name == "sqrt":
            (under,) = args
            self.facts += [value >= 0, z3.Implies(under >= 0, value * value == under)]
        return value

    def _unknown(self, base: Base) -> z3.ArithRef:
        """An unknown for an element, a size or a maximum over a range; the same for equal ones."""
        for known, unknown in self._bases:
            if known == base or (
                shape_of(known) == shape_of(base)
                and self._same(((base, 1),), _only(known), _only(base))
            ):
                return unknown
        unknown = self._fresh()
        self._bases.append((base, unknown))
        if isinstance(base, Maximum):
            for option in base.options:
                if not option.variables and not option.guards:
                    self.facts.append(unknown >= self.normal(option.body))
        if self._signs.is_positive(_only(base)):
            self.facts.append(unknown > 0)
        elif self._signs.is_power_nonnegative(base, 1):
            self.facts.append(unknown >= 0)
        return unknown


def _only(base: Base) -> Normal:
    return make_normal([Term(Fraction(1), powers=((base, 1),))])
