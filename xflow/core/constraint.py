"""Conditions on sizes: what operators require, what a rule's `where` says."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from xflow.core.errors import SizeError
from xflow.core.expressions import expression, shortened
from xflow.core.size import (
    Atom,
    Expr,
    Quotient,
    Size,
    Symbol,
    evaluate,
    free_symbols,
    substitute,
)
from xflow.core.size_text import from_ast, readable


class Relation(Enum):
    """How the difference of the two sides of a condition compares with zero."""

    AT_LEAST = ">="
    EQUAL = "=="


@dataclass(frozen=True)
class Constraint:
    """``difference >= 0`` or ``difference == 0``."""

    difference: Size
    relation: Relation

    @property
    def decided(self) -> bool | None:
        """Whether it holds, where that does not depend on a symbol; otherwise None."""
        if isinstance(self.difference, Expr):
            return None
        return self.difference >= 0 if self.relation is Relation.AT_LEAST else self.difference == 0

    def __reduce__(self) -> tuple[type[Constraint], tuple[Size, Relation]]:
        """Made anew where it is read: in another process, texts have other hashes."""
        return Constraint, (self.difference, self.relation)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.difference, self.relation is Relation.EQUAL))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names of the symbols that it speaks of."""
        return free_symbols(self.difference)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds for these integers.

        Raises SizeError where a symbol has none, and ZeroDivisionError.
        """
        number = evaluate(self.difference, values)
        return number >= 0 if self.relation is Relation.AT_LEAST else number == 0

    def substitute(self, values: Mapping[str, Size]) -> Constraint:
        """The same condition with symbols replaced."""
        return Constraint(substitute(self.difference, values), self.relation)

    def negation(self) -> tuple[Constraint, ...]:
        """Conditions, no two of which hold together, of which one holds when this does not."""
        below = Constraint(-self.difference - 1, Relation.AT_LEAST)
        if self.relation is Relation.AT_LEAST:
            return (below,)
        return (below, Constraint(self.difference - 1, Relation.AT_LEAST))

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if not isinstance(self.difference, Expr):
            return f"{self.difference} {self.relation.value} 0"
        left: Size = 0
        right: Size = 0
        for monomial, coefficient in self.difference.terms:
            part = Expr(((monomial, 1),)) * abs(coefficient) if monomial else abs(coefficient)
            if coefficient > 0:
                left = left + part
            else:
                right = right + part
        if isinstance(left, int):
            flipped = "<=" if self.relation is Relation.AT_LEAST else "=="
            return f"{right} {flipped} {left}"
        return f"{left} {self.relation.value} {right}"


def at_least(left: Size, right: Size) -> Constraint:
    """``left >= right``."""
    return Constraint(left - right, Relation.AT_LEAST)


def less(left: Size, right: Size) -> Constraint:
    """``left < right``, over the integers."""
    return Constraint(right - left - 1, Relation.AT_LEAST)


def equal(left: Size, right: Size) -> Constraint:
    """``left == right``; the sign is normalised, so that both orders are one constraint."""
    difference = left - right
    negated = -difference
    if isinstance(difference, Expr) and isinstance(negated, Expr) and negated < difference:
        difference = negated
    return Constraint(difference, Relation.EQUAL)


def in_range(index: Size, extent: Size) -> tuple[Constraint, Constraint]:
    """``0 <= index < extent``."""
    return at_least(index, 0), less(index, extent)


def parse_constraint(text: str) -> Constraint:
    """Read ``left REL right`` with one of ``>= > <= < ==``. Raises SizeError."""
    try:
        tree = expression(text.strip())
    except SyntaxError:
        raise SizeError(f"{shortened(repr(text))} is no condition on sizes") from None
    return constraint_from_ast(tree)


def constraint_from_ast(tree: ast.expr) -> Constraint:
    """The condition that a Python comparison denotes. Raises SizeError."""
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        left, right = from_ast(tree.left), from_ast(tree.comparators[0])
        match tree.ops[0]:
            case ast.GtE():
                return at_least(left, right)
            case ast.Gt():
                return less(right, left)
            case ast.LtE():
                return at_least(right, left)
            case ast.Lt():
                return less(left, right)
            case ast.Eq():
                return equal(left, right)
    raise SizeError(f"{readable(tree)!r} is no condition on sizes")


def is_true(condition: Constraint) -> bool:
    """Whether a condition on the sizes of a graph holds, whatever its symbolic sizes are.

    Symbolic sizes of a graph are extents of tensors, so they are at least 0.
    """
    if condition.decided is not None:
        return condition.decided
    return condition.relation is Relation.AT_LEAST and _is_natural(condition.difference)


def follows(condition: Constraint, known: Iterable[Constraint]) -> bool:
    """Whether a condition on the sizes of a graph holds, where each of the `known` ones does.

    That is seen if it is one of them, with something that is not negative added. They are not asked
    for where the condition holds by itself.
    """
    if is_true(condition):
        return True
    return condition.relation is Relation.AT_LEAST and any(
        _is_natural(condition.difference - each.difference)
        for each in known
        if each.relation is Relation.AT_LEAST
    )


def follows_at(
    condition: Constraint, values: Mapping[str, Size], known: Iterable[Constraint]
) -> bool:
    """Whether a condition, with symbols replaced, holds where each of the `known` ones does.

    See `follows`. Raises ZeroDivisionError.
    """
    difference = substitute(condition.difference, values)
    if isinstance(difference, int):
        return difference >= 0 if condition.relation is Relation.AT_LEAST else difference == 0
    return follows(Constraint(difference, condition.relation), known)


def _is_natural(size: Size) -> bool:
    """Whether a size is a sum of products of symbols, and of quotients of such by numbers."""
    if not isinstance(size, Expr):
        return size >= 0
    return all(
        coefficient > 0 and all(map(_is_natural_atom, monomial))
        for monomial, coefficient in size.terms
    )


def _is_natural_atom(atom: Atom) -> bool:
    if isinstance(atom, Quotient):
        below = atom.denominator
        return isinstance(below, int) and below > 0 and _is_natural(atom.numerator)
    return isinstance(atom, Symbol)


def all_hold(constraints: Iterable[Constraint]) -> bool:
    """Whether every one is decided and holds."""
    return all(constraint.decided is True for constraint in constraints)
