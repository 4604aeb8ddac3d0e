"""Shrinking: from a counterexample to a smaller and simpler one of the same rule.

Every step evaluates both sides anew and is kept only if they still differ, so the result is a
counterexample whatever the steps are; they only have to be likely.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

import numpy as np

from xflow.core.registry import Array
from xflow.core.size import evaluate, free_symbols
from xflow.rewriting.instance import Instance, leaf_name
from xflow.rewriting.rule import Rule
from xflow.verifier.preconditions import left_conditions
from xflow.verifier.refutation.boundaries import boundaries_of
from xflow.verifier.refutation.counterexample import Counterexample
from xflow.verifier.refutation.refute import MAX_ELEMENTS, Sampler, compare_on, is_beyond_rounding

Inputs: TypeAlias = dict[str, Array]

SIMPLE_REALS = tuple(map(Fraction, ("1", "0", "2", "-1", "1/2", "-2")))
SIMPLE_NUMBERS = (0, 1, -1, 2, -2, 3)
"""Values that are tried for elements, the simplest first."""


def shrink(rule: Rule, found: Counterexample, *, evaluations: int = 600) -> Counterexample:
    """A counterexample no larger than `found`, after at most so many evaluations."""
    instance = rule.instance(found.rank)
    shrinker = _Shrinker(instance, found, evaluations)
    if instance.broadcast:
        shrinker.drop_axes()
    else:
        shrinker.shrink_sizes()
    shrinker.simplify_reals()
    shrinker.simplify_inputs()
    return shrinker.best


@dataclass
class _Shrinker:
    instance: Instance
    best: Counterexample
    left: int
    """Evaluations that may still be made."""

    def accept(
        self, sizes: Mapping[str, int], reals: Mapping[str, Fraction], inputs: Inputs
    ) -> bool:
        """Whether the sides differ there too; then that is the best case so far."""
        if self.left <= 0:
            return False
        self.left -= 1
        try:
            outcome = compare_on(self.instance, sizes, reals, inputs)
        except (ArithmeticError, LookupError, ValueError):  # inputs outside an operator's domain
            return False
        if not isinstance(outcome, Counterexample):
            return False
        if self.best.right_outputs is not None and outcome.right_outputs is None:
            return False  # different values say more than a right side that is not defined
        if self.jumps and not is_beyond_rounding(self.instance, sizes, outcome):
            return False
        self.best = outcome
        return True

    @cached_property
    def jumps(self) -> bool:
        """Whether a side is discontinuous, so that a rounding error may look like a difference."""
        return any(boundary.jumps for boundary in boundaries_of(self.instance))

    @cached_property
    def extents(self) -> frozenset[str]:
        """The symbols that are sizes of inputs, as opposed to those in attributes alone."""
        return frozenset().union(
            *(free_symbols(size) for value in self.instance.inputs for size in value.shape)
        )

    # Sizes

    def shrink_sizes(self) -> None:
        """Lower sizes, one and two at a time, for as long as that succeeds."""
        conditions = left_conditions(self.instance)
        names = sorted(self.best.sizes)
        sampler = Sampler(names, conditions, random.Random(0))
        budget = self.left // 2
        progress = True
        while progress and self.left > budget:
            progress = False
            for sizes in self._smaller(sampler):
                if self.left <= budget:
                    break
                if any(self.accept(sizes, self.best.reals, i) for i in self._refill(sizes)):
                    progress = True
                    break

    def _smaller(self, sampler: Sampler) -> Iterator[dict[str, int]]:
        sizes = dict(self.best.sizes)
        free = [name for name in sizes if name not in sampler.defined]
        simpler = {name: self._simpler(name, sizes[name]) for name in free}
        changes: list[dict[str, int]] = [{n: v} for n in free for v in simpler[n]]
        # A kernel and an image, or two pads, often have to go together.
        changes += [
            {a: simpler[a][-1], b: simpler[b][-1]}
            for number, a in enumerate(free)
            for b in free[number + 1 :]
            if simpler[a] and simpler[b]
        ]
        for change in changes:
            complete = sampler.complete({name: change.get(name, sizes[name]) for name in free})
            if complete is not None and self._cost(complete) < self._cost(sizes):
                yield complete

    def _simpler(self, name: str, value: int) -> Sequence[int]:
        """Simpler values than `value` for a symbol, the simplest first."""
        values = range(-2, max(abs(value), 2) + 1)
        limit = self._rank(name, value)
        ranked = sorted((self._rank(name, v), v) for v in values)
        return [v for rank, v in ranked if rank < limit]

    def _cost(self, sizes: Mapping[str, int]) -> float:
        return sum(self._rank(name, value) for name, value in sizes.items())

    def _rank(self, name: str, value: int) -> float:
        """How hard a value is to picture; an empty tensor is harder than one of two elements."""
        if value == 0:
            return 2.5 if name in self.extents else 0.5
        return value if value > 0 else 0.5 - 2 * value

    def _refill(self, sizes: Mapping[str, int]) -> Iterator[Inputs]:
        """Inputs of these sizes: what was there as far as it goes, then others."""
        shapes = {
            leaf_name(value): tuple(evaluate(size, sizes) for size in value.shape)
            for value in self.instance.inputs
        }
        if any(np.prod(shape, dtype=float) > MAX_ELEMENTS for shape in shapes.values()):
            return
        old = self.best.inputs
        yield {name: np.resize(_corner(old[name], shape), shape) for name, shape in shapes.items()}
        for multiplier in (3, 5):
            yield {
                name: _scramble(old[name], shape, multiplier + position)
                for position, (name, shape) in enumerate(shapes.items())
            }

    # Inputs of any shape

    def drop_axes(self) -> None:
        """Look at one element alone: all operators are elementwise."""
        best = self.best
        shape = np.broadcast_shapes(*(array.shape for array in best.inputs.values()))
        for place in list(np.ndindex(*shape))[: self.left // 4]:
            scalars = {
                name: np.asarray(np.broadcast_to(array, shape)[place])
                for name, array in best.inputs.items()
            }
            if self.accept(best.sizes, best.reals, scalars):
                return

    # Numbers

    def simplify_reals(self) -> None:
        """Replace the reals, one after the other, by the simplest that will do."""
        for name in sorted(self.best.reals):
            for value in SIMPLE_REALS:
                if value == self.best.reals[name]:
                    break
                if self.accept(
                    self.best.sizes, {**self.best.reals, name: value}, dict(self.best.inputs)
                ):
                    break

    def simplify_inputs(self) -> None:
        """Zeros where they will do, else small integers: whole tensors first, then elements."""
        for name in self.best.inputs:
            for number in SIMPLE_NUMBERS:
                if self._replace(name, np.full_like(self.best.inputs[name], number)):
                    break
        for name in self.best.inputs:
            array = self.best.inputs[name]
            if self._is_real(name) and not self._is_whole(name):
                # Of an array without axes numpy makes a number.
                whole, eighths = np.asarray(np.sign(array)), np.asarray(np.round(array * 8))
                _ = self._replace(name, whole) or self._replace(name, eighths)
        for name in self.best.inputs:
            for place in np.ndindex(*self.best.inputs[name].shape):
                self._simplify_element(name, place)

    def _simplify_element(self, name: str, place: tuple[int, ...]) -> None:
        array = self.best.inputs[name]
        for number in SIMPLE_NUMBERS:
            if array[place] == number or self.left <= 0:
                return
            simpler = array.copy()
            simpler[place] = number
            if simpler[place] == number and self._replace(name, simpler):
                return

    def _replace(self, name: str, array: Array) -> bool:
        if _same(array, self.best.inputs[name]):
            return True
        inputs = {**self.best.inputs, name: array}
        return self.accept(self.best.sizes, self.best.reals, inputs)

    def _is_real(self, name: str) -> bool:
        return self.best.inputs[name].dtype.kind == "f"

    def _is_whole(self, name: str) -> bool:
        array = self.best.inputs[name]
        return bool(np.array_equal(array, np.round(array), equal_nan=True))


def _same(left: Array, right: Array) -> bool:
    return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


def _corner(array: Array, shape: tuple[int, ...]) -> Array:
    """The part of `array` at its origin that fits into `shape`."""
    if array.size == 0:
        return np.zeros(1, array.dtype)
    part = array[tuple(slice(0, max(size, 1)) for size in shape)]
    return part if part.size else array


def _scramble(array: Array, shape: tuple[int, ...], multiplier: int) -> Array:
    """Elements of `array` in another order, so that new ones meet."""
    flat = array.ravel() if array.size else np.ones(1, array.dtype)
    count = int(np.prod(shape))
    return flat[(np.arange(count) * multiplier + 1) % flat.size].reshape(shape)
