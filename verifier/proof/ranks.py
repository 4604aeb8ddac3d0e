"""Proofs at any rank: a rule at a higher rank is the rule at its lowest rank, slice by slice.

Where the axes of a rule's vectors are carried along untouched, as the axes of a batch are, every
element of both sides reads all inputs at one and the same position on these axes. Fixing that
position turns the rule at rank r into the rule at its lowest rank, applied to slices of the inputs,
and what was proved there for all inputs holds for these. Whether it is so is read off the
specifications at each rank up to `xflow.rewriting.rule.MAX_RANK`, beyond which no rule is
instantiated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from xflow.core.constraint import Constraint
from xflow.core.evaluation import read
from xflow.core.graph import requirements
from xflow.core.node import Value
from xflow.core.size import Size, free_symbols, opaque_integers, symbol
from xflow.core.spec import (
    Call,
    Element,
    If,
    MaxOver,
    OfSize,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    free_of_scalar,
    fresh_names,
)
from xflow.rewriting.declarations import parse_inputs
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import MAX_RANK, Rule
from xflow.verifier.preconditions import left_conditions
from xflow.verifier.proof.defined import read_unfolded


def holds_at_any_rank(rule: Rule) -> bool:
    """Whether `rule`, proved at its lowest rank, holds at every higher one for the same reason.

    False for a rule without vectors, and for any doubt.
    """
    if not rule.names.vectors or not rule.ranks:
        return False
    base = min(rule.ranks)
    try:
        lowest = _Sliced.of(rule, base)
        return lowest is not None and all(
            lowest.covers(_Sliced.of(rule, rank)) for rank in range(base + 1, MAX_RANK + 1)
        )
    except Exception:  # a rule that is invalid at some rank holds only where it was proved
        return False


@dataclass(frozen=True)
class _Sliced:
    """A rule at one rank, as seen at one position on the axes of its vectors."""

    sides: tuple[tuple[Scalar, ...], ...]
    """Each output's element, as read and as read for definedness."""
    given: frozenset[Constraint]
    needed: frozenset[Constraint]

    @staticmethod
    def of(rule: Rule, rank: int) -> _Sliced | None:
        """None where the axes of the vectors are not carried along untouched."""
        instance = rule.instance(rank)
        axes = _vector_axes(rule, instance)
        sides: list[tuple[Scalar, ...]] = []
        for left, right in zip(instance.lhs, instance.rhs, strict=True):
            if left.shape != right.shape:
                return None
            sliced = _slice(left, right, axes, _components(rule, rank))
            if sliced is None:
                return None
            sides.append(sliced)
        given = left_conditions(instance)
        return _Sliced(tuple(sides), frozenset(given), frozenset(requirements(instance.rhs)))

    def covers(self, higher: _Sliced | None) -> bool:
        """Whether what `higher` says follows from what this says, at every position."""
        return (
            higher is not None
            and higher.sides == self.sides
            and self.given <= higher.given
            and higher.needed <= self.needed | higher.given
        )


def _components(rule: Rule, rank: int) -> frozenset[str]:
    return frozenset(f"{name}_{j}" for name in rule.names.vectors for j in range(rank))


def _vector_axes(rule: Rule, instance: Instance) -> dict[str, list[int]]:
    """For each input its axes that come from starred dimensions, in order."""
    axes: dict[str, list[int]] = {}
    for name, dims in parse_inputs(rule.inputs):
        axes[name] = []
        position = 0
        for dim in dims or ():
            count = instance.rank if isinstance(dim, ast.Starred) else 1
            if isinstance(dim, ast.Starred):
                axes[name] += range(position, position + count)
            position += count
    return axes


def _slice(
    left: Value, right: Value, axes: dict[str, list[int]], components: frozenset[str]
) -> tuple[Scalar, ...] | None:
    """The readings of both sides without the vectors' axes; None if these are not just carried."""
    carried = [a for a, n in enumerate(left.shape) if free_symbols(n) & components]
    names = [f"_i{axis}" for axis in range(len(left.shape))]
    kept = [name for axis, name in enumerate(names) if axis not in carried]
    # The indices of axes that stay are numbered anew, so that ranks can be compared.
    values: dict[str, Size] = {name: symbol(f"_o{k}") for k, name in enumerate(kept)}
    values |= {names[axis]: symbol(f"_b{k}") for k, axis in enumerate(carried)}
    index = tuple(values[name] for name in names)
    batch = [symbol(f"_b{k}") for k in range(len(carried))]
    made: list[Scalar] = []
    read_at: dict[tuple[str, int], bool] = {}
    for reading in (read, read_unfolded):
        with fresh_names():
            for side in (left, right):
                scalar = _without_axes(reading(side, index), axes, batch, read_at)
                if scalar is None:
                    return None
                free = free_of_scalar(scalar)
                if free & components or any(re.fullmatch(r"_b\d+", name) for name in free):
                    return None
                made.append(scalar)
    return tuple(made)


def _without_axes(
    scalar: Scalar,
    axes: dict[str, list[int]],
    batch: Sequence[Size],
    read_at: dict[tuple[str, int], bool],
) -> Scalar | None:
    """`scalar` with the vectors' axes left out of each access, which must read them at `batch`.

    An axis of extent 1 is read at 0 instead; `read_at` notes which it is, since all accesses must
    read one and the same slice of a tensor. None where an access does anything else.
    """

    def again(e: Scalar) -> Scalar:
        match e:
            case Element(tensor, index):
                own = axes.get(tensor, [])
                for position, axis in enumerate(own):
                    at_batch = len(own) == len(batch) and index[axis] == batch[position]
                    known = read_at.setdefault((tensor, axis), at_batch)
                    if known != at_batch or not (at_batch or index[axis] == 0):
                        raise _TouchedError
                return Element(tensor, tuple(i for a, i in enumerate(index) if a not in own))
            case Plus(args):
                return Plus(tuple(map(again, args)))
            case Times(args):
                return Times(tuple(map(again, args)))
            case SumOver() | MaxOver() | ProductOver():
                if any(opaque_integers(e.extent)):
                    raise _TouchedError
                return type(e)(e.variable, e.extent, again(e.body))
            case If(conditions, then, other):
                if any(any(opaque_integers(c.difference)) for c in conditions):
                    raise _TouchedError
                return If(conditions, again(then), again(other))
            case Call(function, args):
                return Call(function, tuple(map(again, args)))
            case OfSize(size):
                if any(opaque_integers(size)):
                    raise _TouchedError
        return e

    try:
        return again(scalar)
    except _TouchedError:
        return None


class _TouchedError(Exception):
    """An access does something else with a vector's axis than to read it at the position."""
