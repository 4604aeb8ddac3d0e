"""Equality by Z3's real arithmetic, tried last, for expressions without sums over ranges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import z3

from xflow.core.constraint import Constraint, Relation
from xflow.core.size import Atom, Size
from xflow.core.spec import (
    LOSING,
    Call,
    Element,
    If,
    Literal,
    OfSize,
    Order,
    Plus,
    Scalar,
    Times,
)
from xflow.verifier.algebra.arithmetic import NONLINEAR_LIMIT, Arithmetic


def equal_reals(left: Scalar, right: Scalar, arithmetic: Arithmetic) -> bool:
    """Whether Z3 shows both equal for all reals, wherever both are defined.

    That the right side is defined is for the caller to show. The left side may be a number where
    what it compares is none, and what it applies a function to that may hide an infinity: nothing
    follows from these. Sizes, and elements that are looked up, may be any integers. A resource
    limit, a failure or a sum over a range means "not shown".
    """
    reader = _Reader()
    try:
        b = reader.read(right)
        reader.assumes_all = False
        a = reader.read(left)
    except _NotScalarError:
        return False
    solver = z3.Solver(ctx=reader.context)
    solver.set("rlimit", NONLINEAR_LIMIT)
    solver.add(*reader.facts, a != b)
    try:
        shown = solver.check() == z3.unsat
    except z3.Z3Exception:
        return False
    if shown:
        arithmetic.obligations.append({"real arithmetic": solver.sexpr()})
    return bool(shown)


class _NotScalarError(Exception):
    """The expression contains a sum or a maximum over a range."""


class _Reader:
    """Reads scalars as terms of Z3; `facts` hold wherever what was read is defined."""

    def __init__(self) -> None:
        self.context = z3.Context()
        self.facts: list[z3.BoolRef] = []
        self.assumes_all = True
        """Whether what is read is defined in all its parts, and not only where it shows."""
        self._path: tuple[z3.BoolRef, ...] = ()
        """The choices that led to what is being read: it need not be defined elsewhere."""
        self._shows = True
        """Whether what is being read is a number where the whole is."""
        self._elements: dict[Element, z3.ArithRef] = {}
        self._integers: dict[Atom, z3.ArithRef] = {}
        self._memo: dict[tuple[Scalar, tuple[z3.BoolRef, ...], bool], z3.ArithRef] = {}

    def read(self, scalar: Scalar) -> z3.ArithRef:
        key = (scalar, self._path, self._shows or self.assumes_all)
        if key not in self._memo:
            self._memo[key] = self._read(scalar)
        return self._memo[key]

    def _read(self, scalar: Scalar) -> z3.ArithRef:
        match scalar:
            case Literal(value):
                return z3.RealVal(str(value), self.context)
            case Element():
                if scalar not in self._elements:
                    name = f"e{len(self._elements)}"
                    self._elements[scalar] = z3.Real(name, self.context)
                return self._elements[scalar]
            case OfSize(size):
                return z3.ToReal(self._size(size))
            case Plus(args):
                return z3.Sum([self.read(arg) for arg in args])
            case Times(args):
                return z3.Product([self.read(arg) for arg in args])
            case Call(function, args):
                with self._inside(shows=function not in LOSING):
                    operands = [self.read(arg) for arg in args]
                return self._call(function, operands)
            case If(conditions, then, other):
                holds = z3.And([self._condition(c) for c in conditions])
                with self._where(holds):
                    a = self.read(then)
                with self._where(z3.Not(holds)):
                    b = self.read(other)
                return z3.If(holds, a, b)
        raise _NotScalarError

    @contextmanager
    def _where(self, condition: z3.BoolRef) -> Iterator[None]:
        outer = self._path
        self._path = (*outer, condition)
        try:
            yield
        finally:
            self._path = outer

    @contextmanager
    def _inside(self, *, shows: bool) -> Iterator[None]:
        outer = self._shows
        self._shows = outer and shows
        try:
            yield
        finally:
            self._shows = outer

    def _know(self, fact: z3.BoolRef) -> None:
        """Note what holds because something is defined, where it is read."""
        if not self._shows and not self.assumes_all:
            return
        self.facts.append(z3.Implies(z3.And(self._path), fact) if self._path else fact)

    def _condition(self, condition: Constraint) -> z3.BoolRef:
        difference = self._size(condition.difference)
        at_least = condition.relation is Relation.AT_LEAST
        return difference >= 0 if at_least else difference == 0

    def _size(self, size: Size) -> z3.ArithRef:
        if isinstance(size, int):
            return z3.IntVal(size, self.context)
        parts = []
        for monomial, coefficient in size.terms:
            factors = [self._atom(atom) for atom in monomial]
            parts.append(z3.Product([z3.IntVal(coefficient, self.context), *factors]))
        return z3.Sum(parts)

    def _atom(self, atom: Atom) -> z3.ArithRef:
        """A comparison, or any integer, the same one for the same atom."""
        if isinstance(atom, Order):
            with self._inside(shows=False):
                left, right = self.read(atom.left), self.read(atom.right)
            one, zero = z3.IntVal(1, self.context), z3.IntVal(0, self.context)
            return z3.If(left > right, one, z3.If(left == right, zero, -one))
        if atom not in self._integers:
            name = f"i{len(self._integers)}"
            self._integers[atom] = z3.Int(name, self.context)
        return self._integers[atom]

    def _call(self, function: str, args: list[z3.ArithRef]) -> z3.ArithRef:
        real = z3.RealSort(self.context)
        if len(args) != 1 and function not in ("max", "min"):  # nothing is known of it
            unknown = z3.Function(f"{function}!", *(real for _ in args), real)
            return unknown(*args) if args else z3.Real(f"{function}!", self.context)
        first = args[0]
        if function in ("max", "min"):
            for arg in args[1:]:
                keep = first >= arg if function == "max" else first <= arg
                first = z3.If(keep, first, arg)
            return first
        if function == "abs":
            return z3.If(first >= 0, first, -first)
        value = z3.Function(f"{function}!", real, real)(first)
        if function == "reciprocal":
            self._know(value * first == 1)
        elif function == "sqrt":
            self._know(value >= 0)
            self._know(value * value == first)
        elif function == "exp":
            self.facts.append(value > 0)
        return value
