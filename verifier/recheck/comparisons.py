"""Comparisons of real numbers as conditions on opaque integers.

A specification compares by `xflow.core.spec.Order`, which carries two scalars. Here it becomes a
`Sign` of their difference as a sum of terms, so that comparisons that say the same share an atom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol

from xflow.core.constraint import Constraint, in_range
from xflow.core.size import (
    Expr,
    OpaqueInteger,
    Size,
    atom_size,
    opaque_integers,
    replace_opaque,
    symbol,
)
from xflow.core.spec import (
    Call,
    If,
    MaxOver,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    plus,
    times,
    where,
)
from xflow.verifier.recheck.forms import (
    Sum,
    content,
    free_in_sum,
    replace_sum,
    scaled,
    sign,
    sizes_in,
    sum_key,
)
from xflow.verifier.recheck.laws import constant_of

Guards = tuple[Constraint, ...]
LEVELS = 1000
"""More than binders are ever nested, so that keys of nested signs number their variables apart."""


@dataclass(frozen=True, eq=False)
class Sign(OpaqueInteger):
    """The sign of a sum: 1, 0 or -1. Make it with `sign_of`."""

    body: Sum

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sign) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def _depth(self) -> int:
        """How many signs are nested in this one."""
        inner = (a for t in self.body.terms for size in sizes_in(t) for a in signs_in(size))
        return 1 + max((atom._depth for atom in inner), default=0)

    @cached_property
    def key(self) -> str:
        return f"sign({sum_key(self.body, level=LEVELS * self._depth)})"

    @cached_property
    def symbols(self) -> frozenset[str]:
        return free_in_sum(self.body)

    def substitute(self, values: Mapping[str, Size]) -> Size:
        if not self.symbols & values.keys():
            return atom_size(self)
        return sign_of(replace_sum(self.body, values))

    def evaluate(self, values: Mapping[str, int], tensors: Mapping[str, Any]) -> int:
        raise NotImplementedError("specifications are evaluated, and not forms")

    def __str__(self) -> str:
        return self.key


def signs_in(size: Size) -> Iterator[Sign]:
    """The signs that occur in a size."""
    return (atom for atom in opaque_integers(size) if isinstance(atom, Sign))


def sign_of(total: Sum) -> Size:
    """The sign of a sum: ``sign(c*s) = sign(s)`` for ``c > 0``, and ``sign(-s) = -sign(s)``."""
    constant = constant_of(total)
    if constant is not None:
        return (constant > 0) - (constant < 0)
    turn = sign(total)
    return turn * atom_size(Sign(scaled(total, turn / content([total]))))


class Expands(Protocol):
    """The part of `xflow.verifier.recheck.expand.Expansion` that is used here."""

    sign: Callable[[Sum], Size]

    def sum_of(self, scalar: Scalar, path: Guards) -> Sum:
        """`scalar` where `path` holds."""

    def lifted(self, scalar: Scalar, path: Guards) -> list[tuple[Guards, Scalar]]:
        """Cases of which exactly one holds on `path`."""


def orders(conditions: Iterable[Constraint]) -> Iterator[Order]:
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


def signed(scalar: Scalar, expansion: Expands, path: Guards) -> Scalar:
    """`scalar`, where `path` holds, with every comparison as a condition on a sign."""
    if not has_order(scalar):
        return scalar

    def again(part: Scalar, more: Guards = ()) -> Scalar:
        return signed(part, expansion, (*path, *more))

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
            return decided(If(conditions, again(then), again(other)), expansion, path)
    raise TypeError(type(scalar))


def decided(choice: If, expansion: Expands, path: Guards) -> Scalar:
    """A choice with the comparisons in its conditions as signs; its branches stay as they are.

    What is compared may be a choice itself: that one comes first.
    """
    found = next(orders(choice.conditions), None)
    if found is None:
        return choice
    difference = signed(plus(found.left, times(-1, found.right)), expansion, path)
    result: Scalar | None = None
    # One of the cases holds on the path, so in the last one nothing need be asked.
    for guards, case in reversed(expansion.lifted(difference, path)):
        value = expansion.sign(expansion.sum_of(case, (*path, *guards)))
        known = tuple(
            Constraint(_replaced(c.difference, found, value), c.relation) for c in choice.conditions
        )
        made = where(known, choice.then, choice.other)
        if isinstance(made, If) and made.conditions:
            made = decided(made, expansion, path) if any(orders(made.conditions)) else made
        result = made if result is None else where(guards, made, result)
    return choice.other if result is None else result  # no case at all: it is never read


def _replaced(size: Size, found: Order, value: Size) -> Size:
    def change(atom: OpaqueInteger) -> Expr | Size:
        return value if atom == found else atom_size(atom)

    return replace_opaque(size, change)


class Known:
    """Signs that were met; one of a sum that is equal to a known one's is that one.

    `equal` says whether two sums are equal wherever both are read.
    """

    def __init__(self, equal: Callable[[Sum, Sum], bool]):
        self._equal = equal
        self._known: list[Sign] = []

    def sign(self, total: Sum) -> Size:
        """`sign_of`, by an atom that is known already if there is one."""
        plain = sign_of(total)
        atom = next(opaque_integers(plain), None)
        if not isinstance(atom, Sign) or atom in self._known:
            return plain
        if any(t.variables for t in atom.body.terms):  # without sums, equal ones are the same
            turn = 1 if plain == atom_size(atom) else -1
            for other in self._known:
                for way in (1, -1):
                    if self._equal(other.body, scaled(atom.body, Fraction(way))):
                        return turn * way * atom_size(other)
        self._known.append(atom)
        return plain
