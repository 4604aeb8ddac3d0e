"""The elements of inputs that a side reads, and whether a NaN or infinity there can be hidden.

A rule is proved for inputs of numbers, and applied to inputs that are terms, which need not be
numbers: a quotient by 0 is none, which has no effect if a choice does not select it. So the right
side may only read elements that make the left side undefined, too, if they are no numbers. An
element that it reads elsewhere, or that the left side reads by way of an operator that makes a
number of an infinity, has to be a number: that is a condition on its input, see
`xflow.core.value_conditions`.

Negative infinities are values where masks are added to what an exponential is taken of. Both sides
are continuous there if each of them reads such an input as a summand, or under a maximum of
summands, and behind that only by exponentials: what is equal for all numbers is so at the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from xflow.core.constraint import Constraint, in_range
from xflow.core.size import symbol
from xflow.core.spec import (
    JUMPING,
    LOSING,
    MONOTONE,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    substitute_scalar,
)
from xflow.core.value_conditions import BELOW_INFINITY, FINITE, Fact
from xflow.verifier.algebra.choices import branches
from xflow.verifier.algebra.comparisons import decided, orders, with_signs
from xflow.verifier.algebra.terms import Guards, Normal, Term, make_normal
from xflow.verifier.matching.match import Equality
from xflow.verifier.proof.defined import Demand, Domain, folded, tensors
from xflow.verifier.proof.hidden_inputs import is_step, kernel_of

READ = "number"
"""The name under which a read is a `Demand`: that the element is a number."""


@dataclass(frozen=True)
class Read:
    """That a side reads an element of an input wherever `path` holds."""

    subject: Scalar
    """An element of an input, or what a kernel computes, see `read_kernels`."""
    normal: Normal
    names: frozenset[str]
    """The input; all inputs that the kernel reads."""
    path: Guards
    lost: bool
    """Whether the side may be a number though the element is none."""
    summand: bool
    """Whether the side is continuous where the element goes to -inf."""

    @property
    def is_kernel(self) -> bool:
        """Whether it is what a kernel computes."""
        return not isinstance(self.subject, Element)

    @property
    def demand(self) -> Demand:
        """That it is a number, as a demand."""
        return Demand(READ, self.normal, self.path)


@dataclass(frozen=True)
class _Way:
    """The path from a place where elements are read to the result, see `Read`."""

    path: Guards = ()
    lost: bool = False
    summand: bool = True
    continuous: bool = True
    alone: bool = True
    """Whether nothing is done with what is read but that it is moved and selected."""

    def within(self, guards: Iterable[Constraint]) -> _Way:
        return replace(self, path=(*self.path, *guards))


def reads(scalar: Scalar, equality: Equality, way: _Way = _Way()) -> Iterator[Read]:
    """The elements of inputs that `scalar`, from `read_unfolded`, reads."""
    path, lost, continuous = way.path, way.lost, way.continuous
    match scalar:
        case Element(tensor, _):
            if not tensor.startswith("%"):  # those are real attributes, and the constant 0
                unit = make_normal([Term(Fraction(1), powers=((scalar, 1),))])
                yield Read(scalar, unit, frozenset({tensor}), path, lost, way.summand)
        case Plus(args):
            for arg in args:
                yield from reads(arg, equality, replace(way, alone=False))
        case Times(args):
            factors = [arg for arg in args if not _is_positive(arg)]
            summand = way.summand and len(factors) == 1
            inner = replace(way, summand=summand, alone=False)
            for arg in args:
                yield from reads(arg, equality, inner)
        case SumOver(variable, 1, body) | MaxOver(variable, 1, body):
            yield from reads(substitute_scalar(body, {variable: 0}), equality, way)
        case SumOver(variable, extent, body):
            inner = replace(way, alone=False).within(in_range(symbol(variable), extent))
            yield from reads(body, equality, inner)
        case MaxOver(variable, extent, body):
            span = in_range(symbol(variable), extent)
            inner = replace(way.within(span), lost=True)
            yield from reads(body, equality, inner)
        case ProductOver(variable, extent, body):
            span = in_range(symbol(variable), extent)
            yield from reads(body, equality, _Way((*path, *span), lost, False, continuous, False))
        case If(conditions, _, _) if any(orders(conditions)):
            observed = _Way(path, True, False, False, False)
            for order in orders(conditions):
                yield from reads(order.left, equality, observed)
                yield from reads(order.right, equality, observed)
            choice = decided(scalar, equality.comparisons, path, folded)
            yield from reads(choice, equality, observed)
        case If(conditions, then, other):
            for guards, branch in branches(conditions, then, other):
                if not equality.arithmetic.contradictory((*path, *guards)):
                    yield from reads(branch, equality, way.within(guards))
        case Call() if is_step(scalar):
            return  # what a kernel makes of it is read
        case Call() if (kernel := kernel_of(scalar)) is not None:
            op, made = kernel
            names = tensors(scalar)
            plain = with_signs(folded(scalar), equality.comparisons, path, folded)
            for guards, case in equality.normalizer.split(plain, path):
                there = (*path, *guards)
                normal = equality.normalizer.remembered(case, there)
                yield Read(scalar, normal, names, there, lost, way.alone)
            # Of -inf a maximum by such a kernel is the least float, even of a single element.
            inner = _Way(path, lost, False, False, False)
            if op.nan_by_place:
                inner = replace(way, lost=True, summand=way.alone)
            yield from reads(made, equality, inner)
        case Call("exp", (argument,)):
            yield from reads(argument, equality, _Way(path, True, continuous, continuous, False))
        case Call(function, args):
            inner = _Way(
                path,
                lost or function in LOSING,
                way.summand and function in MONOTONE,
                continuous and function not in JUMPING,
                alone=False,
            )
            for arg in args:
                yield from reads(arg, equality, inner)


def _is_positive(scalar: Scalar) -> bool:
    """Whether it is a number greater than 0."""
    return isinstance(scalar, Literal) and scalar.value > 0


def jumps(left: Iterable[Read], right: Iterable[Read]) -> frozenset[str]:
    """The inputs at which a side is not continuous where an element goes to -inf."""
    found = (read.names for read in (*left, *right) if not read.summand)
    return frozenset[str]().union(*found)


def lacking(
    left: Sequence[Read], right: Sequence[Read], equality: Equality, known: Iterable[Fact]
) -> tuple[Fact, ...]:
    """Conditions on inputs under which the right side is a number wherever the left is.

    `known` is known already.
    """
    known = tuple(known)
    given = Domain([read.demand for read in left if not read.lost], equality)
    open_ = [*right, *(read for read in left if read.lost)]
    discontinuous = jumps(left, right)
    found: dict[str, Fact] = {}
    for read in dict.fromkeys(open_):
        facts = {
            name: Fact(name, FINITE if read.is_kernel or name in discontinuous else BELOW_INFINITY)
            for name in read.names - found.keys()
        }
        missing = {
            name: fact
            for name, fact in facts.items()
            if not any(one.implies(fact) for one in known)
        }
        if missing and given.unmet([read.demand]) is not None:
            found |= missing
    return tuple(found[name] for name in sorted(found))
