"""Questions about integers, answered by Z3 on quantifier-free formulas.

Every question is "do these conditions contradict what is assumed?", and only ``unsat`` counts as
yes: ``sat``, ``unknown`` and an exhausted resource limit all mean "not shown". Limits count
solver steps and not seconds, so that a verdict does not depend on the machine.

Three efforts, cheapest first: products of unknowns as fresh names (linear, decidable, sound for
``unsat``); the same with instances of ``t >= 0 and x < y => x*t + t <= y*t`` and sign lemmas; the
products themselves (nonlinear, under a resource limit).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Self

import z3

from xflow.core.assignments import Assignment, Assignments
from xflow.core.constraint import Constraint, Relation, at_least
from xflow.core.size import (
    Atom,
    Expr,
    Lookup,
    Monomial,
    OpaqueInteger,
    Quotient,
    Size,
    Symbol,
    atom_size,
    atoms,
    coefficient_of,
    free_symbols,
    substitute,
)

RESOURCE_LIMITS = (1_000_000, 1_000_000, 2_000_000)
NONLINEAR_LIMIT = 4_000_000
MAX_IN_VAIN = 64
"""Nonlinear questions without an answer after which no more are asked. Proofs leave up to 10 open;
a false claim may raise hundreds, at half a second each."""
MAX_PARTNERS = 12
MAX_DIGIT = 7
"""The greatest value of a factor for which products by all its values are spelled out."""

Guards = tuple[Constraint, ...]


@dataclass(frozen=True)
class Range:
    """That each element of a tensor of this shape is an integer in ``low <= element < high``."""

    shape: tuple[Size, ...]
    low: Size
    high: Size


class Effort(Enum):
    """How far a question is pursued; the value is the number of efforts that are made."""

    LINEAR = 1
    LEMMAS = 2
    NONLINEAR = 3


@dataclass
class Arithmetic:
    """Assumptions over integers and questions under them.

    `obligations` records each question that was answered yes and that a proof relies on, in
    text, for the certificate.  As a context manager, it frees the memory of Z3 at the end: 16 MB,
    which what refers to one another would keep until Python looks for garbage.
    """

    obligations: list[dict[str, object]] = field(default_factory=list)
    satisfying: Assignments = field(default_factory=Assignments)
    """Integers that satisfied conditions before: true of these whatever is assumed."""

    def __post_init__(self) -> None:
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._forget()

    def _forget(self) -> None:
        """Drop the assumptions, all answers, and everything that refers to Z3."""
        self.__dict__.pop("_solvers", None)
        self._asserted = [[0, 0, 0] for _ in RESOURCE_LIMITS]
        self._assumed: list[Constraint] = []
        self._names: dict[str, z3.ArithRef] = {}
        self._products: dict[Monomial, z3.ArithRef] = {}
        self._quotients: dict[Quotient, z3.ArithRef] = {}
        self._sizes: dict[Expr, z3.ArithRef] = {}
        self._definitions: list[z3.BoolRef] = []
        self._lemmas: list[z3.BoolRef] = []
        self._product_definitions: list[z3.BoolRef] = []
        self._factored_products = 0
        self._opaque: dict[OpaqueInteger, z3.ArithRef] = {}
        self._ranges: dict[str, list[Range]] = {}
        self._multiples: dict[Atom, list[tuple[z3.ArithRef, z3.ArithRef]]] = {}
        self._memo: dict[tuple[object, ...], bool] = {}
        self._formulas: dict[Constraint, z3.BoolRef] = {}
        self._assumptions: dict[Guards, z3.BoolRef] = {}
        self._in_vain = 0

    @cached_property
    def _solvers(self) -> list[z3.Solver]:
        """A solver for each effort, in a context of their own, which takes some milliseconds to
        make: many proofs ask nothing."""
        context = z3.Context()
        solvers = [z3.Solver(ctx=context) for _ in RESOURCE_LIMITS]
        for solver, limit in zip(solvers, RESOURCE_LIMITS, strict=True):
            solver.set("rlimit", limit)
        return solvers

    @property
    def _context(self) -> z3.Context:
        return self._solvers[0].ctx

    @property
    def assumed(self) -> tuple[Constraint, ...]:
        """The present assumptions."""
        return tuple(self._assumed)

    @contextmanager
    def assuming(self, conditions: Iterable[Constraint]) -> Iterator[None]:
        """Assume `conditions` inside the block."""
        before = len(self._assumed)
        for condition in conditions:
            if condition not in self._assumed:
                self._assumed.append(condition)
        try:
            yield
        finally:
            del self._assumed[before:]

    def contradictory(
        self, conditions: Iterable[Constraint], effort: Effort = Effort.LINEAR
    ) -> bool:
        """Whether `conditions` cannot all hold under the assumptions."""
        decided = [(c, c.decided) for c in conditions]
        if any(value is False for _, value in decided):
            return True
        rest = tuple(c for c, value in decided if value is None)
        key = (effort, tuple(self._assumed), rest)
        if key not in self._memo:
            self._memo[key] = not self.satisfying.satisfy(rest, self._assumed) and self._unsat(
                [self._assumption(), *map(self._formula, rest)], effort, rest
            )
        return self._memo[key]

    def implied(
        self, condition: Constraint, guards: Guards = (), effort: Effort = Effort.LEMMAS
    ) -> bool:
        """Whether `condition` holds wherever `guards` and the assumptions hold."""
        if condition.decided is not None:
            return condition.decided or self.contradictory(guards)
        if condition in self._assumed or condition in guards:
            return True
        return all(self.contradictory((*guards, piece), effort) for piece in condition.negation())

    def vanishes(self, weighted: Sequence[tuple[Fraction, Guards]]) -> bool:
        """Whether ``sum(weight * [guards])`` is 0 at every assignment."""
        total: dict[frozenset[Constraint], Fraction] = {}
        for weight, guards in weighted:
            if any(guard.decided is False for guard in guards):
                continue
            key = frozenset(guard for guard in guards if guard.decided is None)
            total[key] = total.get(key, Fraction(0)) + weight
        rest = [(weight, tuple(sorted(key, key=str))) for key, weight in total.items() if weight]
        if not rest:
            return True
        if len(rest) == 1:
            return self.contradictory(rest[0][1], Effort.NONLINEAR)
        memo = ("vanishes", tuple(self._assumed), frozenset(rest))
        if memo not in self._memo:
            pieces = []
            for weight, guards in rest:
                holds = z3.And(
                    [self._formula(g) for g in guards] or [z3.BoolVal(True, self._context)]
                )
                value = z3.RealVal(str(weight), self._context)
                pieces.append(z3.If(holds, value, z3.RealVal(0, self._context)))
            formulas = [self._assumption(), z3.Sum(pieces) != 0]
            self._memo[memo] = self._unsat(formulas, Effort.NONLINEAR)
        if self._memo[memo]:
            self.obligations.append(
                {
                    "assume": [str(c) for c in self._assumed],
                    "sum is zero": [
                        [str(weight), [str(g) for g in guards]] for weight, guards in rest
                    ],
                }
            )
        return self._memo[memo]

    def covered(self, guards: Guards, alternatives: Sequence[Guards]) -> bool:
        """Whether wherever `guards` hold, all conditions of some alternative hold."""
        formulas = [self._assumption(), *map(self._formula, guards)]
        false = z3.BoolVal(False, self._context)
        options = [
            z3.And([self._formula(g) for g in option] or [z3.BoolVal(True, self._context)])
            for option in alternatives
        ]
        return self._unsat([*formulas, z3.Not(z3.Or(options or [false]))], Effort.NONLINEAR)

    def _unsat(
        self, formulas: list[z3.BoolRef], effort: Effort, rest: Guards | None = None
    ) -> bool:
        """Whether `formulas` contradict each other: the assumptions, and `rest` if given."""
        for level, solver in enumerate(self._solvers[: effort.value]):
            if level and not self._products:
                return False  # no products: further efforts would ask the same
            if level == len(self._solvers) - 1:
                if self._in_vain == MAX_IN_VAIN:
                    return False
                self._in_vain += 1
            self._add_facts(level)
            solver.push()
            try:
                _add(solver, formulas)
                answer = solver.check()
                if answer == z3.unsat:
                    self._in_vain -= level == len(self._solvers) - 1
                    return True
                if answer == z3.sat and rest is not None:
                    found = self._assignment(solver.model(), (*rest, *self._assumed))
                    if self.satisfying.learn(found, rest, self._assumed):
                        return False
            except z3.Z3Exception:
                return False
            finally:
                solver.pop()
        return False

    def _assignment(self, model: z3.ModelRef, conditions: Guards) -> Assignment:
        """What a model says of the symbols and opaque integers in `conditions`."""
        symbols: dict[str, int] = {}
        opaque: dict[OpaqueInteger, int] = {}
        for atom in {atom for c in conditions for atom in atoms(c.difference)}:
            value = None if isinstance(atom, Quotient) else _value(model, self._atom(atom))
            if value is None:
                continue  # it may be any integer, or is made of others
            if isinstance(atom, Symbol):
                symbols[atom.name] = value
            elif isinstance(atom, OpaqueInteger):
                opaque[atom] = value
        return Assignment(symbols, opaque)

    def _add_facts(self, level: int) -> None:
        """Bring a solver up to date: facts are true of all integers and stay asserted."""
        if level > 0:
            self._extend_lemmas()  # may make further products
        facts = [self._definitions, self._lemmas, self._product_definitions]
        for number, known in enumerate(facts[: level + 1]):
            done = self._asserted[level][number]
            _add(self._solvers[level], known[done:])
            self._asserted[level][number] = len(known)

    def _assumption(self) -> z3.BoolRef:
        """Everything that is assumed, as one formula."""
        key = tuple(self._assumed)
        if key not in self._assumptions:
            true = z3.BoolVal(True, self._context)
            self._assumptions[key] = z3.And([true, *map(self._formula, key)])
        return self._assumptions[key]

    def _formula(self, condition: Constraint) -> z3.BoolRef:
        if condition not in self._formulas:
            if condition.decided is not None:
                formula = z3.BoolVal(condition.decided, self._context)
            else:
                term = self._size(condition.difference)
                at_least = condition.relation is Relation.AT_LEAST
                formula = term >= 0 if at_least else term == 0
            self._formulas[condition] = formula
        return self._formulas[condition]

    def _size(self, size: Size) -> z3.ArithRef:
        if isinstance(size, int):
            return z3.IntVal(size, self._context)
        if size not in self._sizes:
            parts = []
            for monomial, coefficient in size.terms:
                if not monomial:
                    parts.append(z3.IntVal(coefficient, self._context))
                else:
                    parts.append(coefficient * self._monomial(monomial))
            self._sizes[size] = parts[0] if len(parts) == 1 else z3.Sum(parts)
        return self._sizes[size]

    def _monomial(self, monomial: Monomial) -> z3.ArithRef:
        if len(monomial) == 1:
            return self._atom(monomial[0])
        if monomial not in self._products:
            for atom in monomial:
                self._atom(atom)
            # An atom that is a quotient is defined by products, this one perhaps among them.
            name = f"m{len(self._products)}!"
            self._products.setdefault(monomial, z3.Int(name, self._context))
        return self._products[monomial]

    def declare_range(self, tensor: str, given: Range) -> None:
        """Assume that every element of an integer tensor lies in a range."""
        self._ranges.setdefault(tensor, []).append(given)
        for atom, name in list(self._opaque.items()):
            if isinstance(atom, Lookup) and atom.tensor == tensor:
                self._define_range(atom, name, given)

    def _define_range(self, atom: Lookup, name: z3.ArithRef, given: Range) -> None:
        if len(atom.index) != len(given.shape):
            return
        inside = [z3.BoolVal(True, self._context)]
        for i, n in zip(atom.index, given.shape, strict=True):
            inside += [self._size(i) >= 0, self._size(n - i) >= 1]
        low, high = name >= self._size(given.low), name < self._size(given.high)
        self._definitions.append(z3.Implies(z3.And(inside), z3.And(low, high)))

    def _opaque_integer(self, atom: OpaqueInteger) -> z3.ArithRef:
        if atom not in self._opaque:
            name = z3.Int(f"o{len(self._opaque)}!", self._context)
            known = list(self._opaque.items())
            self._opaque[atom] = name
            if isinstance(atom, Lookup):
                # Elements of one tensor at equal indices are equal.
                for other, value in known:
                    if isinstance(other, Lookup) and other.tensor == atom.tensor:
                        pairs = zip(atom.index, other.index, strict=True)
                        same = [self._size(a) == self._size(b) for a, b in pairs]
                        self._definitions.append(z3.Implies(z3.And(same), name == value))
                for given in self._ranges.get(atom.tensor, ()):
                    self._define_range(atom, name, given)
        return self._opaque[atom]

    def _atom(self, atom: Atom) -> z3.ArithRef:
        if isinstance(atom, OpaqueInteger):
            return self._opaque_integer(atom)
        if isinstance(atom, Symbol):
            if atom.name not in self._names:
                self._names[atom.name] = z3.Int(atom.name, self._context)
            return self._names[atom.name]
        if atom not in self._quotients:
            name = z3.Int(f"q{len(self._quotients)}!", self._context)
            self._quotients[atom] = name
            quotient = Expr((((atom,), 1),))
            # d*q <= n < d*q + d defines the floor for d >= 1; other d are not constrained.
            rest = atom.numerator - quotient * atom.denominator
            low, high = self._size(rest), self._size(atom.denominator - rest - 1)
            positive = self._size(atom.denominator) >= 1
            self._definitions.append(z3.Implies(positive, z3.And(low >= 0, high >= 0)))
            self._relate(atom)
        return self._quotients[atom]

    def _relate(self, atom: Quotient) -> None:
        """Relate a quotient to what an assumed equation makes of it: ``b*h // g`` is h.

        As a fact it says under which equation, and that all that is divided by is positive, as
        then numerators, denominators and quotients of equal numbers are equal.
        """
        quotient = atom_size(atom)
        inside = quotients(quotient)
        for equation in self._assumed:
            if equation.relation is not Relation.EQUAL:
                continue
            for name in sorted(equation.symbols):
                split = coefficient_of(equation.difference, name)
                if split is None or abs(split[0]) != 1 or name not in free_symbols(quotient):
                    continue
                try:
                    value = substitute(quotient, {name: -split[0] * split[1]})
                except ZeroDivisionError:
                    continue
                if len(quotients(value)) >= len(inside):
                    continue
                positive = [self._size(each.denominator) >= 1 for each in inside]
                same = self._quotients[atom] == self._size(value)
                given = z3.And(self._formula(equation), *positive)
                self._definitions.append(z3.Implies(given, same))

    def _further_values(self, atom: Atom) -> range:
        """Values from 2 on that an unknown may have where it is assumed to be a small digit.

        Products by each of them are worth a lemma, which is true whatever is assumed.
        """
        for value in range(2, MAX_DIGIT + 1):
            if at_least(value, Expr((((atom,), 1),))) in self._assumed:
                return range(2, value + 1)
        return range(0)

    def _extend_lemmas(self) -> None:
        """True facts about the products that came up since the last call."""
        while self._factored_products < len(self._products):
            monomial, product = list(self._products.items())[self._factored_products]
            self._factored_products += 1
            value = self._atom(monomial[0])
            for atom in monomial[1:]:
                value = value * self._atom(atom)
            self._product_definitions.append(product == value)
            for position, atom in enumerate(monomial):
                other = monomial[:position] + monomial[position + 1 :]
                a, b = self._atom(atom), self._monomial(other)
                self._lemmas += [
                    z3.Implies(z3.And(a >= 0, b >= 0), product >= 0),
                    z3.Implies(z3.And(a >= 1, b >= 1), z3.And(product >= a, product >= b)),
                    z3.Implies(a == 0, product == 0),
                    z3.Implies(a == 1, product == b),
                    *(z3.Implies(a == n, product == n * b) for n in self._further_values(atom)),
                ]
                for x, ax in self._multiples.setdefault(atom, [])[:MAX_PARTNERS]:
                    self._lemmas += [
                        z3.Implies(z3.And(a >= 0, x < b), ax + a <= product),
                        z3.Implies(z3.And(a >= 0, b < x), product + a <= ax),
                        z3.Implies(x == b, ax == product),
                    ]
                self._multiples[atom].append((b, product))


def _add(solver: z3.Solver, formulas: Iterable[z3.BoolRef]) -> None:
    """`solver.add`, which spends as long on checks of its arguments as Z3 on an easy question."""
    for formula in formulas:
        z3.Z3_solver_assert(solver.ctx.ref(), solver.solver, formula.as_ast())


def _value(model: z3.ModelRef, name: z3.ArithRef) -> int | None:
    """`model[name].as_long()`, which spends most of its time on objects for terms in between."""
    context = model.ctx.ref()
    declaration = z3.Z3_get_app_decl(context, name.as_ast())
    value = z3.Z3_model_get_const_interp(context, model.model, declaration)
    return int(z3.Z3_get_numeral_string(context, value)) if value else None


def quotients(size: Size) -> list[Quotient]:
    """The quotients in a size, those inside of others included."""
    return [atom for atom in atoms(size) if isinstance(atom, Quotient)]
