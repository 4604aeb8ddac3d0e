"""Comparisons of real numbers as conditions on opaque integers, in normal form.

A specification compares by the integer `xflow.core.spec.Order`, which carries two scalars. Here it
becomes a `Sign`, which carries the normal form of their difference, so that equal comparisons are
equal atoms: to the arithmetic on conditions they are integers without further properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, Protocol

from xflow.core.constraint import Constraint, at_least, in_range
from xflow.core.hash_once import hash_once
from xflow.core.size import OpaqueInteger, Size, atom_size, opaque_integers, replace_opaque, symbol
from xflow.core.spec import (
    ONE,
    ZERO,
    Bottom,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    order,
    plus,
    times,
    where,
)
from xflow.verifier.algebra.factors import common_powers, without_powers
from xflow.verifier.algebra.normal import Normalizer
from xflow.verifier.algebra.terms import (
    Base,
    Guards,
    Normal,
    Term,
    TooLargeError,
    elements,
    free_of_normal,
    make_normal,
    rename,
    scale,
    substitute_normal,
)


@hash_once
@dataclass(frozen=True)
class Sign(OpaqueInteger):
    """The sign of a real number: 1, 0 or -1. Make it with `sign_of`."""

    normal: Normal

    @cached_property
    def key(self) -> str:
        return f"sign({self.normal.key})"

    @cached_property
    def symbols(self) -> frozenset[str]:
        return free_of_normal(self.normal)

    def substitute(self, values: Mapping[str, Size]) -> Size:
        if not self.symbols & values.keys():
            return atom_size(self)
        return sign_of(substitute_normal(self.normal, values))

    def evaluate(self, values: Mapping[str, int], tensors: Mapping[str, Any]) -> int:
        raise NotImplementedError("normal forms are compared, and not evaluated")

    def __str__(self) -> str:
        return self.key


def sign_of(normal: Normal) -> Size:
    """The sign of a normal form.

    Positive factors do not change it, and ``sign(-x) = -sign(x)``: the leading coefficient is 1.
    """
    if not normal.terms:
        return 0
    lead = normal.terms[0].coefficient
    sign = 1 if lead > 0 else -1
    if len(normal.terms) == 1 and normal.terms[0] == Term(lead):
        return sign
    unit = _with_plain_names(make_normal(scale(normal.terms, 1 / lead)))
    return sign * atom_size(Sign(unit))


def _with_plain_names(normal: Normal) -> Normal:
    """`normal` with names of bound variables that depend on its shape and free names alone."""
    free = free_of_normal(normal)

    def plain(term: Term) -> Term:
        fresh = (name for name in map("_ks{}".format, range(10**9)) if name not in free)
        names = dict(zip(term.variables, fresh, strict=False))
        # By way of unused names, since a new name may be an old one of another variable.
        away = rename(term, {old: f"{old}'" for old in names})
        return rename(away, {f"{old}'": new for old, new in names.items()})

    return make_normal(map(plain, normal.terms))


class Equations(Protocol):
    """The part of `xflow.verifier.matching.match.Equality` that is used here."""

    normalizer: Normalizer

    def equal(self, left: Normal, right: Normal, guards: Guards = ()) -> bool:
        """Whether both are equal wherever `guards` hold."""


class Comparisons:
    """Brings comparisons to normal form; equal ones, and opposite ones, share an atom."""

    def __init__(self, equations: Equations) -> None:
        self._equations = equations
        self._known: dict[tuple[str, ...], list[Sign]] = {}

    def normal(self, scalar: Scalar, path: Guards = ()) -> Normal:
        """The normal form of `scalar` where `path` holds."""
        return self._equations.normalizer.normal(scalar, path)

    def split(self, scalar: Scalar, path: Guards) -> list[tuple[Guards, Scalar]]:
        """Cases that exclude each other and cover `path`."""
        return self._equations.normalizer.split(scalar, path)

    def sign(self, normal: Normal) -> Size:
        """The sign of a normal form, by an atom that is known already if there is one.

        The two are shown to be equal under the present assumptions, which is where the atom is
        going to be read. This finds sums with the same summands in another order, whose normal
        forms have different texts.
        """
        plain = sign_of(self._without_positive(normal))
        atom = next(opaque_integers(plain), None)
        if not isinstance(atom, Sign):
            return plain
        known = self._known.setdefault(_tensors(atom.normal), [])
        if atom in known:
            return plain
        factor = 1 if plain == atom_size(atom) else -1
        opposite = make_normal(scale(atom.normal.terms, Fraction(-1)))
        for other in known:
            for turn, compared in ((1, atom.normal), (-1, opposite)):
                if self._equal(other.normal, compared):
                    return factor * turn * atom_size(other)
        known.append(atom)
        return plain

    def _without_positive(self, normal: Normal) -> Normal:
        """A normal form of the same sign, without positive scales that all its terms share."""
        known = self._equations.normalizer
        if not normal.terms:
            return normal
        shared = common_powers(normal.terms)
        positive: dict[Base, int] = {
            base: exponent
            for base, exponent in shared.items()
            if isinstance(base, Element) and known.facts.get(base.tensor.lstrip("%")) == ">"
        }
        return without_powers(normal, positive)

    def _equal(self, left: Normal, right: Normal) -> bool:
        if not any(term.variables for term in left.terms):
            return False  # without sums, equal normal forms are the same
        try:
            return self._equations.equal(left, right)
        except TooLargeError:
            return False


def _tensors(normal: Normal) -> tuple[str, ...]:
    """The inputs that a normal form reads: the same for equal ones."""
    return tuple(sorted({e.tensor for term in normal.terms for e in elements(term.powers)}))


def orders(conditions: Guards) -> Iterator[Order]:
    """The comparisons that occur in conditions."""
    for condition in conditions:
        for atom in opaque_integers(condition.difference):
            if isinstance(atom, Order):
                yield atom


def has_order(scalar: Scalar) -> bool:
    """Whether some choice in `scalar` depends on a comparison."""
    match scalar:
        case If(conditions, then, other):
            return any(orders(conditions)) or has_order(then) or has_order(other)
        case Plus(args) | Times(args) | Call(_, args):
            return any(map(has_order, args))
        case SumOver(_, _, body) | ProductOver(_, _, body) | MaxOver(_, _, body):
            return has_order(body)
    return False


def has_step(scalar: Scalar) -> bool:
    """Whether `with_choices` makes a choice of something in `scalar`, a maximum of numbers."""
    match scalar:
        case Call(function, args):
            return function in ("abs", "max", "min", "sign") or any(map(has_step, args))
        case If(_, then, other):
            return has_step(then) or has_step(other)
        case Plus(args) | Times(args):
            return any(map(has_step, args))
        case SumOver(_, _, body) | ProductOver(_, _, body) | MaxOver(_, _, body):
            return has_step(body)
    return False


def with_signs(
    scalar: Scalar,
    cases: Comparisons,
    path: Guards = (),
    prepare: Callable[[Scalar], Scalar] = lambda scalar: scalar,
) -> Scalar:
    """`scalar` with every comparison brought to normal form where it is made.

    What is compared may itself contain choices; they are made first. `prepare` changes what is
    compared beforehand. Raises what normalising does.
    """
    if not has_order(scalar):
        return scalar

    def again(inner: Scalar, more: Guards = ()) -> Scalar:
        return with_signs(inner, cases, (*path, *more), prepare)

    match scalar:
        case Plus(args):
            return plus(*map(again, args))
        case Times(args):
            return times(*map(again, args))
        case Call(function, args):
            return Call(function, tuple(map(again, args)))
        case (
            SumOver(variable, extent, body)
            | ProductOver(variable, extent, body)
            | MaxOver(variable, extent, body)
        ):
            span = in_range(symbol(variable), extent)
            return type(scalar)(variable, extent, again(body, span))
        case If(conditions, then, other):
            return decided(If(conditions, again(then), again(other)), cases, path, prepare)
    raise TypeError(type(scalar))


def decided(
    choice: If,
    cases: Comparisons,
    path: Guards,
    prepare: Callable[[Scalar], Scalar] = lambda scalar: scalar,
) -> Scalar:
    """A choice with the comparisons in its conditions in normal form; its branches stay."""
    then, other = choice.then, choice.other
    if not any(orders(choice.conditions)):
        return choice
    (first, *rest) = choice.conditions
    inner = decided(If(tuple(rest), then, other), cases, path, prepare) if rest else then
    found = next(orders((first,)), None)
    if found is None:
        return where((first,), inner, other)
    difference = with_signs(
        plus(prepare(found.left), times(-1, prepare(found.right))), cases, path, prepare
    )
    result: Scalar | None = None
    # The cases cover the path, so that in the last one nothing need be asked.
    for guards, case in reversed(cases.split(difference, path)):
        sign = cases.sign(cases.normal(case, (*path, *guards)))
        known = Constraint(_replaced(first.difference, found, sign), first.relation)
        made = where((known,), inner, other)
        if isinstance(made, If):  # there may be a further comparison in the condition
            made = decided(made, cases, path, prepare) if any(orders((known,))) else made
        result = made if result is None else where(guards, made, result)
    return other if result is None else result  # no cases: it is never read


def _replaced(size: Size, order: Order, sign: Size) -> Size:
    return replace_opaque(size, lambda atom: sign if atom == order else atom_size(atom))


def with_choices(scalar: Scalar, *, strict: bool) -> Scalar:
    """`scalar` with the maxima of numbers, and their signs, as choices on comparisons.

    ``max(a, b)`` is a where ``a > b`` (`strict`) or ``a >= b``, and b elsewhere.
    """

    def again(inner: Scalar) -> Scalar:
        return with_choices(inner, strict=strict)

    def greatest(a: Scalar, b: Scalar) -> Scalar:
        return where((at_least(order(a, b), 1 if strict else 0),), a, b)

    match scalar:
        case Call(function, args):
            given = tuple(map(again, args))
            if function == "abs":
                return greatest(given[0], times(-1, given[0]))
            if function == "sign":
                sign = order(given[0], ZERO)
                below = where((at_least(-sign, 1),), Literal(Fraction(-1)), ZERO)
                return where((at_least(sign, 1),), ONE, below)
            if function not in ("max", "min") or any(map(_has_bottom, given)):
                return Call(function, given)
            sign = 1 if function == "max" else -1
            return times(sign, reduce(greatest, (times(sign, arg) for arg in given)))
        case Plus(args):
            return plus(*map(again, args))
        case Times(args):
            return times(*map(again, args))
        case (
            SumOver(variable, extent, body)
            | ProductOver(variable, extent, body)
            | MaxOver(variable, extent, body)
        ):
            return type(scalar)(variable, extent, again(body))
        case If(conditions, then, other):
            return where(conditions, again(then), again(other))
    return scalar


def _has_bottom(scalar: Scalar) -> bool:
    """Whether a choice may come to nothing, so that there is no number to compare."""
    match scalar:
        case Bottom():
            return True
        case If(_, then, other):
            return _has_bottom(then) or _has_bottom(other)
    return False
