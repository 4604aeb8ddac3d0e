"""Choices (conditional scalars) in specifications: their cases, and a scalar under one case."""

from __future__ import annotations

from xflow.core import spec
from xflow.core.constraint import Constraint
from xflow.core.spec import (
    Call,
    If,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    plus,
    where,
)
from xflow.verifier.algebra.terms import Guards


def branches(conditions: Guards, then: Scalar, other: Scalar) -> list[tuple[Guards, Scalar]]:
    """A choice as disjoint cases that cover everything."""
    cases = [(conditions, then)]
    for position, condition in enumerate(conditions):
        cases += [((*conditions[:position], piece), other) for piece in condition.negation()]
    return cases


def outer_condition(scalar: Scalar, bound: frozenset[str]) -> Constraint | None:
    """The first condition of a choice inside `scalar` that no variable of `bound` occurs in."""
    match scalar:
        case If(conditions, then, other):
            for condition in conditions:
                if not condition.symbols & bound:
                    return condition
            return outer_condition(then, bound) or outer_condition(other, bound)
        case Plus(args) | Times(args) | Call(_, args):
            for arg in args:
                inner = outer_condition(arg, bound)
                if inner is not None:
                    return inner
        case (
            SumOver(variable, _, body) | MaxOver(variable, _, body) | ProductOver(variable, _, body)
        ):
            return outer_condition(body, bound | {variable})
    return None


def assume(scalar: Scalar, condition: Constraint, holds: bool) -> Scalar:
    """`scalar` with the choices on `condition` made; `holds` says which way."""

    def again(e: Scalar) -> Scalar:
        return assume(e, condition, holds)

    match scalar:
        case If(conditions, then, other):
            if condition in conditions:
                if not holds:
                    return again(other)
                rest = tuple(c for c in conditions if c != condition)
                return where(rest, again(then), again(other))
            return If(conditions, again(then), again(other))
        case Plus(args):
            return plus(*map(again, args))
        case Times(args):
            return spec.times(*map(again, args))
        case SumOver(variable, extent, body):
            return SumOver(variable, extent, again(body))
        case ProductOver(variable, extent, body):
            return ProductOver(variable, extent, again(body))
        case MaxOver(variable, extent, body):
            return MaxOver(variable, extent, again(body))
        case Call(function, args):
            return Call(function, tuple(map(again, args)))
    return scalar
