"""The element types for which a rule holds, from the specifications of its sides.

A proof is over the reals. Fix sizes, Booleans and indices: both sides are then functions of the
elements in the place of ``REAL``, equal for all real numbers. That carries over in four cases.

- *Movement.* Each side is one of the elements or an integer constant, chosen by what is fixed. Two
  that are equal for all real elements are the same element or the same constant, so the rule holds
  for elements of any type that has the constants.
- *Order.* Besides, elements are compared, and maxima and minima taken. What holds for all real
  numbers holds for all integers, which are among them with the same order: nothing is computed,
  so nothing wraps around.
- *Functions.* Besides, functions of which nothing is known are applied, or known only to be 0 at 0.
  Terms that are equal whatever these are, are the same term once such zeros are 0: so they are for
  functions of integers.
- *Rings.* Elements are added, subtracted and multiplied, with integer coefficients. Both sides are
  polynomials over the integers, and polynomials that are equal as functions on the reals are equal,
  so they agree in every commutative ring, the integers modulo a power of two among them. Sizes as
  numbers are integers, too; ``1/n`` is none, so means do not qualify. Nothing may be compared:
  in rings that wrap around, ``x < y`` says nothing of ``x + 1 < y + 1``.

Order, functions and rings do not mix. Everything else is about reals. A condition on the signs of
inputs would spoil the argument, so that a rule with one is about reals as well; that elements are
no infinities is true of all integers.

Codes are integers of 8 bits, which operators read exactly: they do not wrap around where nothing
that is computed from them is of the sort ``INT``, but for sums that are small enough, see
`xflow.verifier.proof.exact_sums`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntFlag

from xflow.core.evaluation import read
from xflow.core.graph import walk
from xflow.core.node import Leaf
from xflow.core.size import opaque_integers, symbol
from xflow.core.sorts import AND_INTEGERS, ANY_TYPE, CODE, HOLDS_FOR, INT, REALS_ONLY
from xflow.core.spec import (
    ARBITRARY,
    Bottom,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    fresh_names,
)
from xflow.core.value_conditions import SIGNS
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import Rule
from xflow.verifier.proof.exact_sums import wrapping


class Uses(IntFlag):
    """The operations that a specification applies to elements, besides moving them."""

    NOTHING = 0
    ORDER = 1
    """It compares them, or takes the greatest."""
    RING = 2
    """It adds and multiplies them, with integer coefficients."""
    FUNCTIONS = 4
    """It applies functions that may be any."""
    REALS = 8
    """It does what only real numbers allow."""


def types_of(rule: Rule) -> str:
    """The element types for which `rule` holds if it is proved over the reals: of HOLDS_FOR."""
    return min((_types_at(instance) for instance in rule.instances()), key=HOLDS_FOR.index)


def claims_too_much(rule: Rule) -> bool:
    """Whether `rule` says that it holds for more element types than can be shown."""
    return HOLDS_FOR.index(rule.types or REALS_ONLY) > HOLDS_FOR.index(types_of(rule))


def computes_with_integers(rule: Rule) -> bool:
    """Whether inputs of integers are computed with in a way that only reals allow.

    The proof of such a rule says nothing, because integers wrap around.
    """
    return types_of(rule) == REALS_ONLY and any(
        _under_arithmetic(side, instance)
        for instance in rule.instances()
        for side in _sides(instance)
    )


def _sides(instance: Instance) -> Iterator[Scalar]:
    with fresh_names():
        for value in (*instance.lhs, *instance.rhs):
            yield read(value, tuple(symbol(f"_i{axis}") for axis in range(len(value.shape))))


def _types_at(instance: Instance) -> str:
    if any(fact.relation in SIGNS for fact in instance.facts):
        return REALS_ONLY
    uses = Uses.NOTHING
    for side in _sides(instance):
        uses |= uses_of(side)
    if uses == Uses.NOTHING:
        return ANY_TYPE
    alone = uses in (Uses.ORDER, Uses.RING, Uses.FUNCTIONS)
    return AND_INTEGERS if alone else REALS_ONLY


def uses_of(scalar: Scalar) -> Uses:
    """The operations that `scalar` applies to elements."""
    match scalar:
        case Element():
            return Uses.NOTHING
        case Literal(value):
            return Uses.NOTHING if value.denominator == 1 else Uses.REALS
        case OfSize():
            return Uses.RING
        case Plus(args) | Times(args):
            return Uses.RING | _all_uses(args)
        case SumOver(_, _, body) | ProductOver(_, _, body):
            return Uses.RING | uses_of(body)
        case MaxOver(_, _, body):
            return Uses.ORDER | uses_of(body)
        case Bottom():
            return Uses.ORDER
        case Call("max" | "min", args):
            return Uses.ORDER | _all_uses(args)
        case Call(function, args) if function in ARBITRARY:
            return Uses.FUNCTIONS | _all_uses(args)
        case If(_, then, other):
            return uses_of(then) | uses_of(other) | _all_uses(tuple(_compared(scalar)), Uses.ORDER)
    return Uses.REALS


def _all_uses(args: tuple[Scalar, ...], and_also: Uses = Uses.NOTHING) -> Uses:
    uses = and_also if args else Uses.NOTHING
    for arg in args:
        uses |= uses_of(arg)
    return uses


def _compared(choice: If) -> Iterator[Scalar]:
    """The operands of the comparisons in a choice's conditions."""
    for condition in choice.conditions:
        for atom in opaque_integers(condition.difference):
            if isinstance(atom, Order):
                yield from (atom.left, atom.right)


def _under_arithmetic(scalar: Scalar, instance: Instance) -> bool:
    """Whether an element of an input of integers is an operand of arithmetic in `scalar`."""
    nodes = list(walk((*instance.lhs, *instance.rhs)))
    leaves = [node for node in nodes if isinstance(node.op, Leaf)]
    wraps = {INT}
    if wrapping(instance):
        wraps.add(CODE)
    integers = {str(node.outputs[0]) for node in leaves if node.types[0].dtype in wraps}

    def found(e: Scalar, inside: bool) -> bool:
        match e:
            case Element(tensor, _):
                return inside and tensor in integers
            case Call("max" | "min", args):
                return any(found(arg, inside) for arg in args)
            case Call("nearest", args):  # an integer that is read is itself, whatever reads it
                return any(found(arg, False) for arg in args)
            case Plus(args) | Times(args) | Call(_, args):
                return any(found(arg, True) for arg in args)
            case SumOver(_, _, body) | ProductOver(_, _, body):
                return found(body, True)
            case MaxOver(_, _, body):
                return found(body, inside)
            case If(_, then, other):
                compared = any(found(side, False) for side in _compared(e))
                return compared or found(then, inside) or found(other, inside)
        return False

    return bool(integers) and found(scalar, False)
