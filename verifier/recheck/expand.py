"""Expands a specification to a sum of terms, by the definition of the language alone.

Sums and products are multiplied out, a range becomes two guards, and a choice becomes its
branches under guards that exclude each other, without those that clash with what is known there.
Nothing else is simplified here; laws of functions are in `laws`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias

from xflow.core.constraint import Constraint, in_range
from xflow.core.size import Expr, Size, substitute, symbol
from xflow.core.spec import (
    Bottom,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    plus,
    times,
    where,
)
from xflow.verifier.recheck.clashes import clash
from xflow.verifier.recheck.comparisons import sign_of, signed
from xflow.verifier.recheck.forms import (
    Choice,
    Most,
    Read,
    Sum,
    Term,
    Unreplayable,
    choice_key,
    collect,
    polynomial,
    product,
    scaled,
    term,
)
from xflow.verifier.recheck.laws import MAX_TERMS, function_terms
from xflow.verifier.recheck.steps import STEPS, Relations, is_whole, stepped
from xflow.verifier.recheck.tidy import pinned_choice

MAX_DEPTH = 14
MAX_FACTORS = 16
ONE = Fraction(1)
Guards: TypeAlias = tuple[Constraint, ...]
NOTHING = Element("%nothing", ())
"""Stands for the constant 0, which would make a product forget its other factors."""
Impossible: TypeAlias = Callable[[Guards], bool]
"""Whether conditions contradict each other; it may always say no."""


def cases_of(
    conditions: Guards, then: Scalar, other: Scalar, path: Guards
) -> list[tuple[Guards, Scalar]]:
    """A choice as cases of which exactly one holds wherever `path` does.

    Those that clash with the path are left out. A table that is written as choices by equations,
    one in the other, has two cases where an equation fails, and 2^n of them in all, of which a
    path leaves one for each value.
    """
    cases: list[tuple[Guards, Scalar]] = [(conditions, then)]
    for count, condition in enumerate(conditions):
        for piece in condition.negation():
            cases.append(((*conditions[:count], piece), other))
    return [(guards, branch) for guards, branch in cases if not clash(guards, path)]


def span_of(variable: str, extent: Size, path: Guards) -> Guards:
    """``0 <= variable < extent``.

    Raises Unreplayable where the path speaks of something else by that name: cases that clash with
    it would be left out.
    """
    if any(variable in condition.symbols for condition in path):
        raise Unreplayable(f"{variable} is bound twice")
    return in_range(symbol(variable), extent)


class Expansion:
    """Expands scalars; `impossible` prunes cases under functions."""

    def __init__(
        self,
        impossible: Impossible,
        tidy: Callable[[Term, Guards], list[Term]],
        sign: Callable[[Sum], Size] = sign_of,
        codes: Collection[str] = (),
        facts: Relations | None = None,
    ):
        self._codes = codes
        """The inputs whose elements are integers."""
        self._facts = facts or {}
        self.sign = sign
        """The integer that stands for the sign of a sum."""
        self._impossible = impossible
        self._tidy = tidy
        """Simplifies a term wherever some conditions hold: arguments of functions are kept tidy."""

    def sum_of(self, scalar: Scalar, path: Guards) -> Sum:
        """`scalar` where `path` holds, tidied. Raises Unreplayable."""
        scalar = signed(scalar, self, path)
        return collect(t for made in self.terms(scalar, path) for t in self._tidy(made, path))

    def terms(self, scalar: Scalar, path: Guards = ()) -> list[Term]:
        """`scalar` where `path` holds. Raises Unreplayable."""
        made = self._terms(scalar, path)
        if len(made) > MAX_TERMS:
            raise Unreplayable(f"an expansion of more than {MAX_TERMS} terms")
        return made

    def _terms(self, scalar: Scalar, path: Guards) -> list[Term]:
        match scalar:
            case Literal(value):
                return [term(value)] if value else []
            case OfSize(size):
                return list(polynomial(size).terms)
            case Element(tensor, index):
                return [] if scalar == NOTHING else [term(ONE, factors=[(Read(tensor, index), 1)])]
            case Plus(args):
                return [t for arg in args for t in self.terms(arg, path)]
            case Times(args):
                result = [term(ONE)]
                for arg in args:
                    result = self._times(result, self.terms(arg, path))
                return result
            case SumOver(variable, extent, body):
                span = span_of(variable, extent, path)
                return [
                    term(t.coefficient, (variable, *t.variables), (*span, *t.guards), t.factors)
                    for t in _apart(self.terms(body, (*path, *span)), variable)
                ]
            case ProductOver(variable, extent, body):
                if not isinstance(extent, int) or extent > MAX_FACTORS:
                    raise Unreplayable(f"a product over {extent} factors has no replay")
                return self.terms(times(*(at(body, {variable: k}) for k in range(extent))), path)
            case If(conditions, then, other):
                return [
                    term(t.coefficient, t.variables, (*guards, *t.guards), t.factors)
                    for guards, branch in cases_of(conditions, then, other, path)
                    for t in self.terms(branch, (*path, *guards))
                ]
            case Call() | MaxOver():
                return [
                    term(t.coefficient, t.variables, (*guards, *t.guards), t.factors)
                    for guards, case in self.lifted(scalar, path)
                    for t in self._function(case, (*path, *guards))
                ]
        raise Unreplayable(f"{type(scalar).__name__} has no replay")

    def _times(self, left: list[Term], right: list[Term]) -> list[Term]:
        if len(left) * len(right) > MAX_TERMS:
            raise Unreplayable(f"an expansion of more than {MAX_TERMS} terms")
        return [product(a, b) for a in left for b in right]

    def lifted(self, scalar: Scalar, path: Guards, depth: int = 0) -> list[tuple[Guards, Scalar]]:
        """Cases, of which exactly one holds, without choices on what is known outside."""
        condition = first_choice(scalar, frozenset())
        if condition is None:
            return [((), scalar)]
        if depth > MAX_DEPTH:
            raise Unreplayable(f"more than {MAX_DEPTH} choices under a function")
        found: list[tuple[Guards, Scalar]] = []
        for number, piece in enumerate((condition, *condition.negation())):
            if not self._impossible((*path, piece)):
                rest = decided(scalar, condition, number == 0)
                for guards, case in self.lifted(rest, (*path, piece), depth + 1):
                    found.append(((piece, *guards), case))
        return found

    def _function(self, scalar: Scalar, path: Guards) -> list[Term]:
        if isinstance(scalar, MaxOver):
            return maximum(self._choices(scalar, path), path, self._impossible)
        assert isinstance(scalar, Call)
        name, args = scalar.function, scalar.args
        match name, args:
            case "max", _:
                return maximum(self._choices(scalar, path), path, self._impossible)
            case "min", _:
                least = Call("max", tuple(times(-1, arg) for arg in args))
                return list(scaled(Sum(tuple(self.terms(least, path))), -ONE).terms)
            case "abs", (arg,):
                return self.terms(Call("max", (arg, times(-1, arg))), path)
        made = stepped(name, args[0], self._facts) if name in STEPS else None
        if made is not None:
            return self.terms(made, path)
        sums = [self.sum_of(arg, path) for arg in args]
        if name in STEPS and is_whole(sums[0], self._codes):
            return list(sums[0].terms)
        return function_terms(name, sums)

    def _choices(self, scalar: Scalar, path: Guards) -> list[Choice]:
        match scalar:
            case Bottom():
                return []
            case Call("max", args):
                return [choice for arg in args for choice in self._choices(arg, path)]
            case MaxOver(variable, extent, body):
                span = span_of(variable, extent, path)
                return [
                    Choice((variable, *c.variables), (*span, *c.guards), c.body)
                    for c in self._choices(body, (*path, *span))
                ]
            case If(conditions, then, other):
                return [
                    Choice(c.variables, (*guards, *c.guards), c.body)
                    for guards, branch in cases_of(conditions, then, other, path)
                    if not self._impossible((*path, *guards))
                    for c in self._choices(branch, (*path, *guards))
                ]
        total = self.sum_of(scalar, path)
        if len(total.terms) == 1:
            (only,) = total.terms
            if not only.variables and not only.guards and only.coefficient > 0:
                match only.factors:
                    case ((Most(choices), 1),):  # c * max(a, b) = max(c*a, c*b) for c > 0
                        return [
                            Choice(c.variables, c.guards, scaled(c.body, only.coefficient))
                            for c in choices
                        ]
        return [Choice((), (), total)]


def _apart(terms: list[Term], variable: str) -> list[Term]:
    """The terms, none of which binds a variable of that name."""
    if any(variable in t.variables for t in terms):
        raise Unreplayable(f"{variable} is bound twice")
    return terms


def maximum(choices: Iterable[Choice], path: Guards, impossible: Impossible) -> list[Term]:
    """A maximum as terms: without choices that cannot hold."""
    kept = [c for c in choices if not impossible((*path, *c.guards))]
    kept = [pinned_choice(c) for c in kept]
    if not kept:
        raise Unreplayable("a maximum over nothing")
    kept = list({choice_key(c): c for c in kept}.values())
    if len(kept) == 1 and not kept[0].variables and not kept[0].guards:
        return list(kept[0].body.terms)
    return [term(ONE, factors=[(Most(tuple(kept)), 1)])]


def changed(scalar: Scalar, change: Callable[[Scalar], Scalar]) -> Scalar:
    """`scalar` with its immediate parts changed."""
    match scalar:
        case Plus(args):
            return plus(*map(change, args))
        case Times(args):
            return times(*map(change, args))
        case SumOver(variable, extent, body):
            return SumOver(variable, extent, change(body))
        case ProductOver(variable, extent, body):
            return ProductOver(variable, extent, change(body))
        case MaxOver(variable, extent, body):
            return MaxOver(variable, extent, change(body))
        case If(conditions, then, other):
            return where(conditions, change(then), change(other))
        case Call(function, args):
            return Call(function, tuple(map(change, args)))
        case Literal() | OfSize() | Element() | Bottom():
            return scalar
    raise Unreplayable(f"{type(scalar).__name__} has no replay")


def at(scalar: Scalar, values: Mapping[str, Size]) -> Scalar:
    """`scalar` with symbols replaced by sizes in which nothing is bound."""
    match scalar:
        case OfSize(size):
            result = substitute(size, values)
            return OfSize(result) if isinstance(result, Expr) else Literal(Fraction(result))
        case Element(tensor, index):
            return Element(tensor, tuple(substitute(i, values) for i in index))
        case SumOver(variable, extent, body):
            return SumOver(variable, substitute(extent, values), at(body, values))
        case ProductOver(variable, extent, body):
            return ProductOver(variable, substitute(extent, values), at(body, values))
        case MaxOver(variable, extent, body):
            return MaxOver(variable, substitute(extent, values), at(body, values))
        case If(conditions, then, other):
            held = tuple(c.substitute(values) for c in conditions)
            return where(held, at(then, values), at(other, values))
    return changed(scalar, lambda part: at(part, values))


def first_choice(scalar: Scalar, bound: frozenset[str]) -> Constraint | None:
    """A condition of a choice inside `scalar` without variables that are bound there."""
    match scalar:
        case If(conditions, then, other):
            for condition in conditions:
                if not condition.symbols & bound:
                    return condition
            return first_choice(then, bound) or first_choice(other, bound)
        case Plus(args) | Times(args) | Call(_, args):
            return next(filter(None, (first_choice(arg, bound) for arg in args)), None)
        case (
            SumOver(variable, _, body) | MaxOver(variable, _, body) | ProductOver(variable, _, body)
        ):
            return first_choice(body, bound | {variable})
    return None


def decided(scalar: Scalar, condition: Constraint, holds: bool) -> Scalar:
    """`scalar` with `condition`, where a choice depends on it, taken to hold or not to hold."""
    if isinstance(scalar, If) and condition in scalar.conditions:
        if not holds:
            return decided(scalar.other, condition, holds)
        rest = tuple(c for c in scalar.conditions if c != condition)
        return where(
            rest, decided(scalar.then, condition, holds), decided(scalar.other, condition, holds)
        )
    return changed(scalar, lambda part: decided(part, condition, holds))
