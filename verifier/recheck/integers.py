"""Sizes and conditions as terms of cvc5, with facts that hold under any assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from xflow.core.constraint import Constraint, Relation, equal, in_range
from xflow.core.size import Atom, Expr, Lookup, Monomial, Quotient, Size, Symbol, atom_size
from xflow.verifier.recheck.comparisons import Sign

try:
    import cvc5
except ImportError:  # an extra, which is not needed to optimize a model
    cvc5 = None

MAX_PARTNERS = 12
Guards = Sequence[Constraint]


@dataclass(frozen=True)
class Range:
    """That each element of a tensor of this shape is an integer in ``low <= element < high``."""

    shape: tuple[Size, ...]
    low: Size
    high: Size


Ranges = Mapping[str, Sequence[Range]]
NO_RANGES: Ranges = {}


class Kind(Enum):
    """How a question treats products of unknowns; a contradiction at any kind is one."""

    LINEAR = "products of unknowns are unknowns of their own"
    LEMMAS = "the same, with facts about products"
    PRODUCTS = "products are products"


class Integers:
    """Translates sizes; `facts` are true of all integers and of all inputs in range.

    `met` is called with every sign that is met, and the constant that stands for it.
    """

    def __init__(
        self,
        manager: Any,
        kind: Kind,
        ranges: Ranges = NO_RANGES,
        met: Callable[[Sign, Any], None] | None = None,
    ):
        self._manager = manager
        self._kind = kind
        self._ranges = ranges
        self._met = met
        self._integer = manager.getIntegerSort()
        self._names: dict[object, Any] = {}
        self._lookups: dict[str, list[Lookup]] = {}
        self._multiples: dict[Atom, list[tuple[Any, Any]]] = {}
        self._products: dict[Monomial, None] = {}
        self.facts: list[Any] = []
        self.has_products = False

    def conjunction(self, formulas: Sequence[Any]) -> Any:
        """That all formulas hold."""
        if not formulas:
            return self._manager.mkTrue()
        if len(formulas) == 1:
            return formulas[0]
        return self._manager.mkTerm(cvc5.Kind.AND, *formulas)

    def all_hold(self, conditions: Guards) -> Any:
        """That all conditions hold."""
        return self.conjunction([self.formula(c) for c in conditions])

    def formula(self, condition: Constraint) -> Any:
        """That a condition holds."""
        kind = cvc5.Kind.GEQ if condition.relation is Relation.AT_LEAST else cvc5.Kind.EQUAL
        return self._manager.mkTerm(
            kind, self.size(condition.difference), self._manager.mkInteger(0)
        )

    def size(self, size: Size) -> Any:
        """A size as a term."""
        if isinstance(size, int):
            return self._manager.mkInteger(size)
        parts = []
        for monomial, coefficient in size.terms:
            number = self._manager.mkInteger(coefficient)
            if not monomial:
                parts.append(number)
                continue
            value = self._monomial(monomial)
            if coefficient != 1:
                value = self._manager.mkTerm(cvc5.Kind.MULT, number, value)
            parts.append(value)
        return parts[0] if len(parts) == 1 else self._manager.mkTerm(cvc5.Kind.ADD, *parts)

    def _monomial(self, monomial: Monomial) -> Any:
        if len(monomial) == 1:
            return self.atom(monomial[0])
        self.has_products = True
        atoms = [self.atom(atom) for atom in monomial]
        product = (
            self._manager.mkTerm(cvc5.Kind.MULT, *atoms)
            if self._kind is Kind.PRODUCTS
            else self._constant(monomial)
        )
        if self._kind is not Kind.LINEAR and monomial not in self._products:
            self._products[monomial] = None
            self._add_lemmas(monomial, product)
        return product

    def _add_lemmas(self, monomial: Monomial, product: Any) -> None:
        """Facts about ``product = a*b``, and ``a >= 0 and x < b => a*x + a <= a*b``."""
        kinds, make = cvc5.Kind, self._manager.mkTerm
        nothing, one = self._manager.mkInteger(0), self._manager.mkInteger(1)
        for position, atom in enumerate(monomial):
            rest = monomial[:position] + monomial[position + 1 :]
            a, b = self.atom(atom), self._monomial(rest)
            not_negative = make(kinds.GEQ, a, nothing)
            both = make(kinds.AND, not_negative, make(kinds.GEQ, b, nothing))
            present = make(kinds.AND, make(kinds.GEQ, a, one), make(kinds.GEQ, b, one))
            grown = make(kinds.AND, make(kinds.GEQ, product, a), make(kinds.GEQ, product, b))
            self.facts += [
                make(kinds.IMPLIES, both, make(kinds.GEQ, product, nothing)),
                make(kinds.IMPLIES, present, grown),
                make(
                    kinds.IMPLIES,
                    make(kinds.EQUAL, a, nothing),
                    make(kinds.EQUAL, product, nothing),
                ),
                make(kinds.IMPLIES, make(kinds.EQUAL, a, one), make(kinds.EQUAL, product, b)),
            ]
            partners = self._multiples.setdefault(atom, [])
            for x, ax in partners[:MAX_PARTNERS]:
                for low, high, small, large in ((x, b, ax, product), (b, x, product, ax)):
                    premise = make(kinds.AND, not_negative, make(kinds.LT, low, high))
                    step = make(kinds.LEQ, make(kinds.ADD, small, a), large)
                    self.facts.append(make(kinds.IMPLIES, premise, step))
                same = make(kinds.EQUAL, ax, product)
                self.facts.append(make(kinds.IMPLIES, make(kinds.EQUAL, x, b), same))
            partners.append((b, product))

    def _constant(self, key: object) -> Any:
        if key not in self._names:
            self._names[key] = self._manager.mkConst(self._integer, f"v{len(self._names)}")
        return self._names[key]

    def atom(self, atom: Atom) -> Any:
        """The constant that stands for an atom."""
        if isinstance(atom, Symbol) or atom in self._names:
            return self._constant(atom)
        value = self._constant(atom)
        if isinstance(atom, Lookup):
            self.facts += list(self._facts_of_lookup(atom, value))
        if isinstance(atom, Sign):
            make, kinds = self._manager.mkTerm, cvc5.Kind
            self.facts.append(make(kinds.LEQ, value, self._manager.mkInteger(1)))
            self.facts.append(make(kinds.GEQ, value, self._manager.mkInteger(-1)))
            if self._met is not None:
                self._met(atom, value)
        if not isinstance(atom, Quotient):
            return value  # of another opaque integer nothing is known
        # d*q <= n < d*q + d defines the floor for d >= 1; other d are not constrained.
        quotient = Expr((((atom,), 1),))
        rest = atom.numerator - quotient * atom.denominator
        make, kinds = self._manager.mkTerm, cvc5.Kind
        one, nothing = self._manager.mkInteger(1), self._manager.mkInteger(0)
        positive = make(kinds.GEQ, self.size(atom.denominator), one)
        low = make(kinds.GEQ, self.size(rest), nothing)
        high = make(kinds.GEQ, self.size(atom.denominator - rest - 1), nothing)
        self.facts.append(make(kinds.IMPLIES, positive, make(kinds.AND, low, high)))
        return value

    def _facts_of_lookup(self, atom: Lookup, value: Any) -> Iterator[Any]:
        """Where it is in bounds, it is in range; and at equal places there are equal elements."""
        make, kinds = self._manager.mkTerm, cvc5.Kind
        for known in self._ranges.get(atom.tensor, ()):
            inside = [
                c for i, n in zip(atom.index, known.shape, strict=True) for c in in_range(i, n)
            ]
            bounds = in_range(atom_size(atom) - known.low, known.high - known.low)
            there = self.all_hold(inside)
            yield make(kinds.IMPLIES, there, self.all_hold(bounds))
        for other in tuple(self._lookups.setdefault(atom.tensor, [])):
            pairs = zip(atom.index, other.index, strict=True)
            same = self.all_hold([equal(a, b) for a, b in pairs])
            alike = make(kinds.EQUAL, value, self._constant(other))
            yield make(kinds.IMPLIES, same, alike)
        self._lookups[atom.tensor].append(atom)
