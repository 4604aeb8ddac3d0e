"""Sums of terms as real arithmetic with choices, for cvc5.

Elements, sums and maxima over ranges become unknown real numbers, equal ones the same; conditions
become formulas over integers, in which the sign of a sum is tied to that sum. What is left is
arithmetic with choices. Every fact about an unknown is true whatever finite value an expression is
given where it is not defined, but for `defined`, for which the caller answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, Protocol

from xflow.core.constraint import Constraint, at_least, equal
from xflow.core.size import Expr
from xflow.verifier.recheck.comparisons import Sign, signs_in
from xflow.verifier.recheck.forms import (
    Apply,
    Atom,
    Choice,
    Factor,
    Most,
    Nested,
    Read,
    Sum,
    Term,
    collect,
    factor_key,
    free_in_factor,
    free_in_sum,
    renamed_apart,
    sum_key,
    term,
    with_coefficient,
)
from xflow.verifier.recheck.groups import apart_choice, least_values, lower_bounds
from xflow.verifier.recheck.integers import Integers, Kind
from xflow.verifier.recheck.laws import may_vanish
from xflow.verifier.recheck.real_terms import RealTerms
from xflow.verifier.recheck.solver import Questions
from xflow.verifier.recheck.steps import bounds_of
from xflow.verifier.recheck.tidy import written_out_choice

try:
    import cvc5
except ImportError:  # see `solver`
    cvc5 = None

LIMIT = 30_000
"""Steps of the solver for each question."""
LIMIT_MS = 30_000
"""Milliseconds for each, which no question that is decided comes near."""
LAST_LIMIT = 3_000_000
"""The same for the final equation of a proof, which no other step shows."""
MAX_SIZE = 80
"""Unknowns that a question may have."""
MAX_EXPONENT = 8
MAX_GIVEN = 8
MAX_FACTORS = 12
"""Factors of a sum for which it is asked whether it is negative anywhere."""
MAX_POINTS = 4
"""Points at which a range of codes is looked for a value."""
MAX_NESTED = 2
"""Depth of sums and maxima down to which signs of their terms are asked for."""
ONE = Fraction(1)
Guards = tuple[Constraint, ...]


@dataclass(frozen=True)
class Given:
    """That a sum is in a relation to 0 wherever `path` holds: ``!=``, ``>`` or ``>=``."""

    relation: str
    total: Sum
    path: Guards


class Compares(Protocol):
    """The part of `xflow.verifier.recheck.replay.Replay` that is used here."""

    questions: Questions
    facts: Mapping[str, str]
    given: Sequence[Given]
    nonnegative: dict[object, bool]
    """Cached results about sums wherever some conditions hold."""

    def same_factor(self, left: Factor, right: Factor, path: Guards) -> bool:
        """Whether two factors are equal wherever `path` holds."""

    def equal(self, left: Sum, right: Sum, path: Guards) -> bool:
        """Whether two sums are equal wherever `path` holds."""


class TooLargeError(Exception):
    """The expression has too many parts."""


@dataclass(frozen=True)
class _Option:
    """A value under a maximum, if it is there."""

    present: Any
    value: Any


class Unknowns(RealTerms):
    """Sums as real terms of cvc5, where `path` holds."""

    def __init__(
        self,
        path: Guards,
        comparing: Compares,
        nested: int = 0,
        limit: int | None = None,
        unbounded: frozenset[str] = frozenset(),
    ):
        super().__init__()
        self._unbounded = unbounded
        self._limit = LIMIT if limit is None else limit
        self._path = path
        self._comparing = comparing
        self._nested = nested
        self._factors: list[tuple[Factor, Any]] = []
        self._sums: list[tuple[Term, Any]] = []
        self._ranges: list[tuple[Choice, _Option]] = []
        self._keys: dict[tuple[str, str], Any] = {}
        self._count = 0
        self._signs: list[tuple[Sign, Any]] = []
        questions = comparing.questions
        self._codes = questions.codes
        self._integers = Integers(
            self.manager, Kind.LEMMAS, questions.ranges, lambda *met: self._signs.append(met)
        )
        self._conditional = any(True for c in path for _ in signs_in(c.difference))
        self._taken = set[str]().union(*(c.symbols for c in (*path, *questions.assumed)))

    def refutes(self, formula: Any) -> bool:
        """Whether `formula` contradicts all that is known."""
        for given in self._comparing.given[:MAX_GIVEN]:
            value = self.related(self.sum(given.total), given.relation)
            self.implies(self._holds(given.path), value) if given.path else self.facts.append(value)
        if self._conditional:
            for condition in (*self._comparing.questions.assumed, *self._path):
                self.facts.append(self._integers.formula(condition))
        while self._signs:  # operands of comparisons may contain other signs
            sign, value = self._signs.pop()
            self.tie(value, self.sum(sign.body))
            self.facts += self.of_elements
            self.of_elements = []
        self.know_order()
        self.know_steps()
        mixed = bool(self._conditional)
        solver = cvc5.Solver(self.manager)
        solver.setOption("rlimit-per", str(self._limit))
        # Some questions between integers and reals take long between two looks at that limit.
        solver.setOption("tlimit-per", str(LIMIT_MS))
        solver.setLogic("QF_UFNIRA" if mixed else "QF_UFNRA")
        for fact in (*self.facts, *(self._integers.facts if mixed else ()), formula):
            solver.assertFormula(fact)
        self._comparing.questions.asked += 1
        return bool(solver.checkSat().isUnsat())

    def refute(self, opposite: str, total: Sum, defined: Iterable[Factor] = ()) -> bool:
        """Whether it cannot be that `total` is in the relation `opposite`, of cvc5, to 0.

        None of `defined` is 0.
        """
        try:
            self.know(defined)
            formula = self.make(getattr(cvc5.Kind, opposite), self.sum(total), self.number(0))
            return self.refutes(formula)
        except (TooLargeError, RuntimeError):  # the latter is what cvc5 raises
            return False

    def know(self, factors: Iterable[Factor]) -> None:
        """Assume that none of `factors` is 0."""
        for factor in factors:
            self.facts.append(self.differs(self._factor(factor), self.number(0)))

    def _unknown(self) -> Any:
        self._count += 1
        if self._count > MAX_SIZE:
            raise TooLargeError
        return self.manager.mkConst(self.real, f"u{self._count}")

    def _holds(self, guards: Guards) -> Any:
        """That all of `guards` hold."""
        self._conditional = True
        return self._integers.all_hold(guards)

    # Sums ----------------------------------------------------------------------------------------

    def sum(self, total: Sum) -> Any:
        """A sum."""
        parts = [self._term(t) for t in total.terms]
        return self.make(cvc5.Kind.ADD, *parts) if parts else self.number(0)

    def _term(self, part: Term) -> Any:
        """A term; factors that all its summands share are taken out of its sum."""
        inner = set(part.variables)
        bound = [(f, e) for f, e in part.factors if free_in_factor(f) & inner]
        outside = [(f, e) for f, e in part.factors if not free_in_factor(f) & inner]
        parts = [self._power(*power) for power in outside]
        if part.coefficient != 1 or not parts:
            parts.insert(0, self.number(part.coefficient))
        value = self.make(cvc5.Kind.MULT, *parts)
        guards = tuple(g for g in part.guards if not g.symbols & inner)
        if part.variables:
            own = tuple(g for g in part.guards if g.symbols & inner)
            unit = term(ONE, part.variables, own, bound)
            # It is not 1 where a factor of a bound one could be taken out.
            value = self.make(cvc5.Kind.MULT, value, self.number(unit.coefficient))
            unknown = self._over_range(with_coefficient(unit, ONE))
            value = self.make(cvc5.Kind.MULT, value, unknown)
        if guards:
            value = self.make(cvc5.Kind.ITE, self._holds(guards), value, self.number(0))
        return value

    def _over_range(self, unit: Term) -> Any:
        """An unknown for a sum over a range, the same for equal ones."""
        key = "sum", unit.key
        if key in self._keys:
            return self._keys[key]
        for known, unknown in self._sums:
            if len(known.variables) == len(unit.variables) and self._comparing.equal(
                Sum((known,)), Sum((unit,)), self._path
            ):
                self._keys[key] = unknown
                return unknown
        unknown = self._keys[key] = self._unknown()
        self._sums.append((unit, unknown))
        apart = renamed_apart(unit) if self._taken & set(unit.variables) else unit
        summand = Sum((term(ONE, factors=apart.factors),))
        if self._is_nonnegative(summand, apart.guards):
            self.facts.append(self.make(cvc5.Kind.GEQ, unknown, self.number(0)))
        return unknown

    def _may_be_nonnegative(self, total: Sum) -> bool:
        """Whether to ask the solver at all: a product with a free factor takes both signs."""
        if len(total.terms) == 1:
            return not any(
                isinstance(f, Read) and e % 2 and f.tensor.lstrip("%") not in self._comparing.facts
                for f, e in total.terms[0].factors
            )
        return sum(len(t.factors) for t in total.terms) <= MAX_FACTORS

    def _is_nonnegative(self, total: Sum, guards: Guards) -> bool:
        """Whether a sum is nowhere negative where `guards` hold, too."""
        if self._nested == MAX_NESTED or not self._may_be_nonnegative(total):
            return False
        path = (*self._path, *guards)
        key = sum_key(total), frozenset(path)
        memo = self._comparing.nonnegative
        if key not in memo:
            inner = Unknowns(path, self._comparing, self._nested + 1, unbounded=self._unbounded)
            memo[key] = inner.refute("LT", total)
        return memo[key]

    # Factors -------------------------------------------------------------------------------------

    def _power(self, factor: Factor, exponent: int) -> Any:
        if abs(exponent) > MAX_EXPONENT:
            raise TooLargeError
        value = self._factor(factor)
        if exponent < 0:
            value = self.inverse(value)
        return self.make(cvc5.Kind.MULT, *[value] * abs(exponent))

    def _factor(self, factor: Factor) -> Any:
        key = "factor", factor_key(factor)
        if key not in self._keys:
            self._keys[key] = self._made(factor)
        return self._keys[key]

    def _made(self, factor: Factor) -> Any:
        match factor:
            case Nested(body):
                return self.sum(body)
            case Apply("exp", (argument,)) if may_vanish(argument, self._unbounded):
                # Of -inf it is 0: that it is not negative is all that is known at any rate.
                unknown = self._same_or_unknown(factor)
                self.facts.append(self.make(cvc5.Kind.GEQ, unknown, self.number(0)))
                return unknown
            case Apply(name, args):
                return self.function(name, [self.sum(arg) for arg in args])
            case Most(choices):
                return self._greatest(choices)
            case Atom(size):
                return self._size(size)
        return self._same_or_unknown(factor)

    def _same_or_unknown(self, factor: Factor) -> Any:
        for known, unknown in self._factors:
            if self._comparing.same_factor(known, factor, self._path):
                return unknown
        unknown = self._unknown()
        self._factors.append((factor, unknown))
        relation = None
        if isinstance(factor, Read):
            relation = self._comparing.facts.get(factor.tensor.lstrip("%"))
        if relation is not None:
            self.facts.append(self.related(unknown, relation))
        if isinstance(factor, Read) and (ends := self._codes.get(factor.tensor.lstrip("%"))):
            self.know_integer(unknown, *ends)
        return unknown

    def _size(self, size: Expr) -> Any:
        known = len(self._factors)
        unknown = self._same_or_unknown(Atom(size))
        if len(self._factors) > known:
            questions = self._comparing.questions
            for low, kind in ((1, cvc5.Kind.GEQ), (0, cvc5.Kind.GEQ)):
                if questions.implied(at_least(size, low), self._path):
                    self.facts.append(self.make(kind, unknown, self.number(low)))
                    break
            else:
                if questions.contradictory((*self._path, equal(size, 0))):
                    self.facts.append(self.differs(unknown, self.number(0)))
        return unknown

    # Maxima --------------------------------------------------------------------------------------

    def _greatest(self, choices: Sequence[Choice]) -> Any:
        """The greatest of the values that are there; anything if none is."""
        kinds = cvc5.Kind
        result: _Option | None = None
        if self._codes:  # what is rounded of each value is asked for
            choices = [each for choice in choices for each in written_out_choice(choice)]
        for option in map(self._option, choices):
            if result is None:
                result = option
                continue
            not_less = self.make(kinds.GEQ, result.value, option.value)
            alone = self.make(kinds.NOT, option.present)
            first = self.make(kinds.AND, result.present, self.make(kinds.OR, alone, not_less))
            result = _Option(
                self.make(kinds.OR, result.present, option.present),
                self.make(kinds.ITE, first, result.value, option.value),
            )
        assert result is not None
        return result.value

    def _option(self, choice: Choice) -> _Option:
        """The greatest value that a choice has; it is ``c*m + d`` for c >= 0 if all of them are."""
        true = self.manager.mkTrue()
        inner = set(choice.variables)
        outer = tuple(g for g in choice.guards if not g.symbols & inner)
        own = tuple(g for g in choice.guards if g.symbols & inner)
        present = self._holds(outer) if outer else true
        if not choice.variables:
            return _Option(present, self.sum(choice.body))
        shift = [t for t in choice.body.terms if not free_in_sum(Sum((t,))) & inner]
        rest = [t for t in choice.body.terms if free_in_sum(Sum((t,))) & inner]
        scale, rest = self._scale(rest, inner)
        unit = Choice(choice.variables, own, collect(rest))
        ranged = self._greatest_in_range(unit)
        value = ranged.value if rest else self.number(0)
        for factor, exponent in scale:
            value = self.make(cvc5.Kind.MULT, value, self._power(factor, exponent))
        value = self.make(cvc5.Kind.ADD, value, self.sum(Sum(tuple(shift))))
        return _Option(self.make(cvc5.Kind.AND, present, ranged.present), value)

    def _scale(
        self, terms: list[Term], inner: set[str]
    ) -> tuple[list[tuple[Factor, int]], list[Term]]:
        """Factors that all terms have, that nothing bound occurs in, and that are not negative."""
        scale: list[tuple[Factor, int]] = []
        if not terms:
            return scale, terms
        inner = inner.union(*(t.variables for t in terms))
        for factor, exponent in terms[0].factors:
            key = factor_key(factor)
            if free_in_factor(factor) & inner or any(
                (key, exponent) not in [(factor_key(f), e) for f, e in t.factors] for t in terms
            ):
                continue
            alone = Sum((term(ONE, factors=[(factor, exponent)]),))
            if self._is_nonnegative(alone, ()):
                scale.append((factor, exponent))
        taken = {factor_key(f) for f, _ in scale}
        made = [
            term(
                t.coefficient,
                t.variables,
                t.guards,
                [(f, e) for f, e in t.factors if factor_key(f) not in taken],
            )
            for t in terms
        ]
        return scale, made

    def _has_values(self, unit: Choice) -> bool:
        """Whether a choice over a range has a value: at least ones, or at some lower bounds."""
        questions = self._comparing.questions
        least = least_values(unit.variables, unit.guards)
        if least is None:
            return False
        reached = (g.substitute(least) for g in unit.guards)
        if all(questions.implied(g, self._path) for g in reached):
            return True
        points = islice(lower_bounds(unit.variables, unit.guards), MAX_POINTS)
        places = [tuple(g.substitute(point) for g in unit.guards) for point in points]
        return bool(self._codes) and questions.covered(self._path, places)

    def _greatest_in_range(self, unit: Choice) -> _Option:
        """An unknown for the greatest of a range, the same for equal ones."""
        key = "range", f"{unit.variables} {sum_key(unit.body)} {unit.guards}"
        if key in self._keys:
            found: _Option = self._keys[key]
            return found
        for known, option in self._ranges:
            if self._comparing.same_factor(Most((known,)), Most((unit,)), self._path):
                self._keys[key] = option
                return option
        self._count += 1
        present = self.manager.mkConst(self.manager.getBooleanSort(), f"p{self._count}")
        option = self._keys[key] = _Option(present, self._unknown())
        self._ranges.append((unit, option))
        if self._has_values(unit):
            self.facts.append(option.present)
        apart = apart_choice(unit) if self._taken & set(unit.variables) else unit
        if self._is_nonnegative(apart.body, apart.guards):
            # All values are: so is the greatest if there is one.
            nonnegative = self.make(cvc5.Kind.GEQ, option.value, self.number(0))
            self.implies(option.present, nonnegative)
        if self._codes and (ends := bounds_of(apart.body, self._codes)):
            for kind, end in zip((cvc5.Kind.GEQ, cvc5.Kind.LEQ), ends, strict=True):
                self.implies(option.present, self.make(kind, option.value, self.number(end)))
        return option
