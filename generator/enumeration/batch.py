"""Vectorized evaluation: an operator's numpy implementation on many tuples of inputs at once.

An operator declares what it does to one tuple of arrays. Called once for each of a million terms
that would be slow; so it is called on stacked arrays, with attributes changed to suit, in one of
a few ways that are the same for every operator: a leading axis, with axes counted from one
further on; more groups; a longer first axis. Whether a way is right for an operator is not
declared but tried: a call is lifted only where the result on a sample of the stack is that of
the operator on each element by itself. Where no way is right, elements are taken one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from xflow.core.registry import Array, Attribute, Attributes, Kind, Operator

Stack: TypeAlias = Array
"""Arrays of one shape, along a leading axis."""
Way: TypeAlias = Callable[[Sequence[Stack]], list[Stack]]

FEW = 64
"""For up to so many elements, evaluating one by one is cheaper than looking for a way."""
TRIED = 11
"""How many elements a way is tried on: a number that is no extent in an enumeration."""
CELLS = 2**20
"""Elements of the largest array of one call, so that memory stays bounded."""


class Batch:
    """An operator with fixed attributes, applied to stacks."""

    def __init__(self, op: Operator, attributes: Attributes):
        self.op = op
        self.attributes = attributes
        self._way: Way | None = None
        self._tried = False
        self._met = 0

    def __call__(self, inputs: Sequence[Stack]) -> list[Stack]:
        """The stacks of outputs for stacks of inputs of one length; at least one input.

        Whatever the operator raises on a single element is raised.
        """
        count = len(inputs[0])
        with np.errstate(all="ignore"):
            self._met += count
            if self._met <= FEW:
                return self._one_by_one(inputs)
            if not self._tried:
                self._way = self._choose([_sample(stack) for stack in inputs])
                self._tried = True
            if self._way is None:
                return self._one_by_one(inputs)
            step = max(1, CELLS // max(1, *(prod(stack.shape[1:]) for stack in inputs)))
            parts = [
                self._way([stack[start : start + step] for stack in inputs])
                for start in range(0, count, step)
            ]
        return (
            parts[0] if len(parts) == 1 else [np.concatenate(p) for p in zip(*parts, strict=True)]
        )

    def _one_by_one(self, inputs: Sequence[Stack]) -> list[Stack]:
        rows = [
            self.op.numpy([stack[number] for stack in inputs], self.attributes)
            for number in range(len(inputs[0]))
        ]
        return [np.stack(outputs) for outputs in zip(*rows, strict=True)]

    def _choose(self, sample: Sequence[Stack]) -> Way | None:
        """The first way that is right on a sample; None where none is."""
        wanted = self._one_by_one(sample)
        for way in _ways(self.op, self.attributes):
            try:
                made = way(sample)
            except Exception:  # an operator may raise anything on inputs not meant for it
                continue
            if len(made) == len(wanted) and all(map(_same, made, wanted)):
                return way
        return None


def _sample(stack: Stack) -> Stack:
    """Elements to try a way on: random reals, or elements of the stack where these are integers.

    Reals are not taken from the stack, since its elements may all be equal.
    """
    if stack.dtype.kind == "f":
        return np.random.default_rng(TRIED).standard_normal((TRIED, *stack.shape[1:]))
    return stack[np.linspace(0, len(stack) - 1, TRIED).astype(np.int64)]


def _same(one: Array, other: Array) -> bool:
    """Equal up to the rounding of sums that are taken in another order."""
    return one.shape == other.shape and bool(
        np.allclose(one, other, rtol=1e-13, atol=1e-13, equal_nan=one.dtype.kind == "f")
    )


def _ways(op: Operator, attributes: Attributes) -> Iterator[Way]:
    for prefix in (_keep, _with_count, _with_zeros):
        yield partial(_along_leading_axis, op, attributes, prefix)
    if "group" in attributes:
        yield partial(_in_groups, op, attributes)
    yield partial(_along_first_axis, op, attributes)


Prefix: TypeAlias = Callable[[tuple[int, ...], int], tuple[int, ...]]


def _keep(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    return numbers


def _with_count(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The shape of a stack for the shape of an element."""
    return (count, *numbers)


def _with_zeros(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Numbers for both ends of each axis, none for the leading one."""
    half = len(numbers) // 2
    return (0, *numbers[:half], 0, *numbers[half:])


def _along_leading_axis(
    op: Operator, attributes: Attributes, prefix: Prefix, inputs: Sequence[Stack]
) -> list[Stack]:
    """A leading axis; inputs that have fewer axes get more behind it, as broadcasting does."""
    count, rank = len(inputs[0]), max(stack.ndim for stack in inputs)
    kinds = {name: spec.kind for name, spec in op.attributes.items()}
    lifted = {
        name: _further(value, kinds[name], prefix, count) for name, value in attributes.items()
    }
    stacks = [
        stack.reshape(count, *(1,) * (rank - stack.ndim), *stack.shape[1:]) for stack in inputs
    ]
    made = op.numpy(stacks, lifted)
    assert all(len(stack) == count for stack in made)
    return made


def _further(value: Attribute, kind: Kind, prefix: Prefix, count: int) -> Attribute:
    """An attribute where every axis is one further on."""
    if kind is Kind.AXIS:
        assert isinstance(value, int)
        return value + 1
    numbers = tuple(n for n in value if isinstance(n, int)) if isinstance(value, tuple) else ()
    if kind is Kind.AXES:
        return tuple(n + 1 for n in numbers)
    if kind is Kind.PERMUTATION:
        return (0, *(n + 1 for n in numbers))
    return prefix(numbers, count) if kind is Kind.INTS else value


def _in_groups(op: Operator, attributes: Attributes, inputs: Sequence[Stack]) -> list[Stack]:
    """Every element of the stack as groups of channels of its own."""
    count, group = len(inputs[0]), attributes["group"]
    assert isinstance(group, int)
    first, *others = inputs
    x = np.moveaxis(first, 0, 1)
    x = x.reshape(x.shape[0], count * x.shape[2], *x.shape[3:])
    weights = [stack.reshape(count * stack.shape[1], *stack.shape[2:]) for stack in others]
    made = op.numpy([x, *weights], {**attributes, "group": count * group})
    return [
        np.moveaxis(y.reshape(y.shape[0], count, y.shape[1] // count, *y.shape[2:]), 1, 0)
        for y in made
    ]


def _along_first_axis(op: Operator, attributes: Attributes, inputs: Sequence[Stack]) -> list[Stack]:
    """The stack as part of the first axis, of operators that take that apart."""
    (stack,) = inputs
    count = len(stack)
    made = op.numpy([stack.reshape(count * stack.shape[1], *stack.shape[2:])], attributes)
    return [y.reshape(count, len(y) // count, *y.shape[1:]) for y in made]
