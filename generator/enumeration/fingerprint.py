"""Fingerprints: digests of the values of a term on a few random inputs.

Inputs are dyadic rationals k/4 with 1 <= |k| <= 7, held in float64. Sums, products and maxima of
them are exact at the depths enumerated here, which is checked; so equal fingerprints differ from
equality only by chance, and order is the true one. Functions that are not rational are compared
to seven digits on other reals, over as many elements; for these a fingerprint proposes and says
nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from xflow.core.errors import ShapeError
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Array, Operator
from xflow.generator.drawn import Drawn
from xflow.generator.enumeration.batch import Batch, Stack

GRID = float(2**20)
BOUND = float(2**30)
DIGITS = 7
"""Digits to which values that are not exact are compared: so few that rounding, which leaves
twelve or more, almost never makes equal terms differ."""
CACHED = 2**14
"""Numbers that are hashed at a time: so many stay in the processor's cache."""


class InexactError(AssertionError):
    """A value that float64 may have rounded, where all values must be exact."""


@dataclass
class Evaluator:
    """Evaluates terms at `draws` random inputs, each node once.

    `first` is the number of the first draw: evaluators with other draws are independent.
    """

    seed: int
    draws: int = 3
    exact: bool = True
    drawn: Drawn = field(default_factory=Drawn)
    """The distribution of the elements of inputs."""
    first: int = 0
    _memo: dict[Node, list[Stack]] = field(default_factory=dict)
    _calls: dict[object, Batch] = field(default_factory=dict)

    def leaf(self, value: Value) -> Stack:
        """Random values for an input, one for each draw."""
        assert isinstance(value.node.op, Leaf)
        name = value.node.op.key
        shape = [int(str(size)) for size in value.shape]
        draws = []
        for draw in range(self.first, self.first + self.draws):
            # The name decides the draw, not the order in which leaves are met.
            rng = np.random.default_rng([self.seed, draw, zlib.crc32(name.encode())])
            array = self.drawn(rng, name, shape, value.type.dtype)
            if not self.exact and not self.drawn.ties and array.dtype.kind == "f":
                # Reals like any other: sums are not 0 and quotients not 1 by accident.
                array = array * rng.uniform(1, 9 / 8, array.shape)
            draws.append(array)
        return np.stack(draws)

    def of(self, node: Node) -> list[Stack]:
        """The outputs of `node`, each for all draws."""
        found = self._memo.get(node)
        if found is None:
            if isinstance(node.op, Leaf):
                found = [self.leaf(node.outputs[0])]
            else:
                assert isinstance(node.op, Operator)
                inputs = [self.of(value.node)[value.index] for value in node.inputs]
                found = evaluate_stacks(self._call(node), inputs, self.draws)
            self._memo[node] = found
        return found

    def _call(self, node: Node) -> Batch:
        assert isinstance(node.op, Operator)
        attributes = tuple(sorted(node.attributes.items()))
        key = (node.op, attributes, tuple(value.type for value in node.inputs))
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = Batch(node.op, node.attributes)
        return call

    def stack(self, value: Value) -> Stack:
        """The values of `value` at all draws.

        Raises ShapeError where the term's arrays are not of its shape.
        """
        stack = self.of(value.node)[value.index]
        if stack.shape[1:] != value.shape:
            raise ShapeError(f"{value} evaluates to {stack.shape[1:]}, not {value.shape}")
        return stack

    def key(self, value: Value) -> bytes | None:
        """A digest of the values of `value`; None where one is not finite. Raises ShapeError."""
        made, finite = digests(self.stack(value)[np.newaxis], self.exact)
        return made.tobytes() if finite.all() else None


def evaluate_stacks(call: Batch, inputs: Sequence[Stack], count: int) -> list[Stack]:
    """The outputs of an operator for stacks of `count` inputs; constants are repeated."""
    if inputs:
        return call(inputs)
    return [
        np.broadcast_to(array, (count, *array.shape))
        for array in call.op.numpy([], call.attributes)
    ]


def digests(stack: Stack, exact: bool) -> tuple[Array, Array]:
    """For each array of a stack 128 bits, as two integers, and whether all of it is finite.

    Equal arrays have equal digests, unequal ones almost never. With `exact`, values must be small
    multiples of 2^-20, else InexactError is raised; otherwise they are rounded to seven digits.
    """
    flat = np.asarray(stack, np.float64).reshape(len(stack), -1)
    made = np.zeros((len(flat), 2), np.uint64)
    finite = np.ones(len(flat), bool)
    step = max(1, CACHED // max(1, flat.shape[1]))
    for start in range(0, len(flat) if flat.size else 0, step):
        part = slice(start, start + step)
        if exact:
            made[part] = _hash(exact_integers(flat[part]))
        else:
            finite[part] = np.isfinite(flat[part]).all(axis=1)
            with np.errstate(invalid="ignore"):
                words = rounded(flat[part], DIGITS) + 0.0  # no negative zero
            made[part] = _hash(words.view(np.int64))
    return made, finite


def exact_integers(array: Array) -> Array:
    """`array` in units of 2^-20. Raises InexactError where float64 may have rounded it."""
    scaled = array * GRID
    if scaled.size and max(scaled.max(), -scaled.min()) >= BOUND * GRID:
        raise InexactError("a value is too large to be exact")
    integers = scaled.astype(np.int64)
    if not np.array_equal(integers, scaled):
        raise InexactError("a value is no multiple of 2^-20")
    return np.asarray(integers)


def _hash(integers: Array) -> Array:
    """128 bits for each row: words are scrambled one by one, weighted and added modulo 2^64."""
    words = integers.view(np.uint64)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(32)
    sums = words @ _weights(words.shape[1])
    sums ^= sums >> np.uint64(31)
    return np.asarray(sums)


@cache
def _weights(count: int) -> Array:
    """Odd numbers of 64 bits, two for each word."""
    drawn = np.random.default_rng(count).integers(0, 2**64, (count, 2), np.uint64)
    return np.asarray(drawn | np.uint64(1))


def rounded(array: Array, digits: int = 9) -> Array:
    """`array` to so many significant digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log10(np.abs(array)))
    exponent = np.where(np.isfinite(exponent), exponent, -12.0)
    scale = 10.0 ** np.maximum(exponent - (digits - 1), -12.0)  # cancelled sums are 0
    return np.asarray(np.rint(array / scale) * scale)
