"""Checks the element types that a rule claims, from the specifications of its sides.

An equation of real numbers is one of elements of any type if both sides only choose an element;
one of integers that wrap around if both are polynomials with integer coefficients (which are equal
in every commutative ring then), or if both only choose by comparing, or only apply functions that
may be any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xflow.core.constraint import Constraint
from xflow.core.evaluation import read
from xflow.core.size import Lookup, opaque_integers, symbol
from xflow.core.sorts import AND_INTEGERS, ANY_TYPE, CODE, INT, REALS_ONLY
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
)
from xflow.core.value_conditions import SIGNS
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import Rule
from xflow.verifier.recheck.exact_sums import ExactSums

RING, ORDER, FUNCTIONS, REALS = "ring", "order", "functions", "reals"
ALONE = ({RING}, {ORDER}, {FUNCTIONS})
"""What may be done with elements that are integers, if nothing else is."""


def unshown_types(rule: Rule, instances: Iterable[Instance]) -> str | None:
    """Why it does not follow that `rule` holds for the types that it names; None if it does."""
    claimed = rule.types or REALS_ONLY
    if claimed == REALS_ONLY:
        return None
    for instance in instances:
        # That an element is no infinity is true of any integer; of signs that says nothing.
        used = {REALS for fact in instance.facts if fact.relation in SIGNS}
        used = used.union(*map(_uses, _sides(instance)))
        enough = not used or (claimed == AND_INTEGERS and used in ALONE)
        if claimed not in (ANY_TYPE, AND_INTEGERS) or not enough:
            return f"that it holds for the types {claimed!r} has no replay"
    return None


def wraps_around(instance: Instance) -> bool:
    """Whether inputs of integers are computed with in a way that only real numbers allow.

    What is shown over the reals then says nothing: integers wrap around. So do codes, as far as
    integers are computed from them; what gives reals or codes reads them as the numbers they are,
    and sums that are small enough do not wrap around.
    """
    wrapping = (INT, CODE) if ExactSums(instance).wraps else (INT,)
    tensors = {str(value) for value in instance.inputs if value.type.dtype in wrapping}
    if not tensors:
        return False
    sides = list(_sides(instance))
    used = set[str]().union(*map(_uses, sides))
    return used not in (set(), *ALONE) and any(_computes(s, tensors) for s in sides)


def _computes(scalar: Scalar, tensors: set[str], inside: bool = False) -> bool:
    """Whether an element of `tensors` is an operand of anything but a choice, where it is read.

    A place that is looked up is none: an operator reads within a range that it declares.
    """
    match scalar:
        case Element(tensor, _):
            return inside and tensor in tensors
        case Call("nearest", args):  # the float of an integer that is only moved
            return any(_computes(arg, tensors) for arg in args)
        case Call(_, args) | Plus(args) | Times(args):
            return any(_computes(arg, tensors, True) for arg in args)
        case SumOver(_, _, body) | ProductOver(_, _, body) | MaxOver(_, _, body):
            return _computes(body, tensors, True)
        case If(conditions, then, other):
            compared = (s for c in conditions for s in _compared(c))
            return (
                any(_computes(s, tensors) for s in compared)
                or _computes(then, tensors, inside)
                or _computes(other, tensors, inside)
            )
    return False


def _compared(condition: Constraint) -> Iterator[Scalar]:
    for atom in opaque_integers(condition.difference):
        if isinstance(atom, Order):
            yield from (atom.left, atom.right)


def _sides(instance: Instance) -> Iterator[Scalar]:
    for value in (*instance.lhs, *instance.rhs):
        yield read(value, tuple(symbol(f"_i{axis}") for axis in range(len(value.shape))))


def _uses(scalar: Scalar) -> set[str]:
    match scalar:
        case Element():
            return set()
        case Literal(value):
            return set() if value.denominator == 1 else {REALS}
        case OfSize():
            return {RING}
        case Plus(args) | Times(args):
            return {RING}.union(*map(_uses, args))
        case SumOver(_, _, body) | ProductOver(_, _, body):
            return {RING} | _uses(body)
        case MaxOver(_, _, body):
            return {ORDER} | _uses(body)
        case Bottom():
            return {ORDER}
        case Call("max" | "min", args):
            return {ORDER}.union(*map(_uses, args))
        case Call(name, args) if name in ARBITRARY:
            return {FUNCTIONS}.union(*map(_uses, args))
        case If(conditions, then, other):
            compared: set[str] = set()
            for condition in conditions:
                for atom in opaque_integers(condition.difference):
                    if isinstance(atom, Order):
                        compared |= {ORDER} | _uses(atom.left) | _uses(atom.right)
                    elif not isinstance(atom, Lookup):
                        compared.add(REALS)
            return compared | _uses(then) | _uses(other)
    return {REALS}
