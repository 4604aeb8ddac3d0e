"""Inputs at the boundaries of what a rule compares: ties, thresholds and their two sides.

Generic numbers are hardly ever equal, and hardly ever where a Clip begins to cut, so that they do
not tell ``<`` from ``<=``. Here elements are drawn from a few numbers, so that they are equal
within an input and across inputs, and one is moved until two numbers that the specifications
compare are equal, or just below or above each other: boundary value analysis (G. J. Myers, The Art
of Software Testing, 1979). Specifications only propose inputs; both sides are computed from these
by the operators' numpy readings, as from any others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from xflow.core.evaluation import read
from xflow.core.registry import Array, Shape
from xflow.core.size import Size, opaque_integers, symbol
from xflow.core.size import evaluate as evaluate_size
from xflow.core.spec import (
    ZERO,
    Call,
    Element,
    If,
    MaxOver,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    evaluate,
    fresh_name,
    fresh_names,
    substitute_scalar,
)
from xflow.rewriting.instance import Instance

MAX_BOUNDARIES = 24
"""Boundaries of a rule that are kept; those at which something jumps come first."""
MAX_FOUND = 400
"""Most boundaries of a rule that are examined."""
MAX_STEPS = 64
"""Elements that the two numbers which are compared may be computed from."""
MAX_ELEMENTS = 500
"""Elements of an input of which one is moved."""
MOVES = (1, 1, 1, 2)
"""Elements that are moved to a boundary in one draw."""
BESIDE = tuple(map(Fraction, ("1/8", "-1/8", "1", "-1", "4", "-4")))
"""How far from a boundary an element is moved. Where something jumps, mostly onto it."""
FARTHEST = 64
"""The largest number that an element is moved to."""
Binder = tuple[str, Size]
Spans = tuple[Binder, ...]


@dataclass(frozen=True)
class Boundary:
    """Where `left` and `right` are equal, for values of the variables of `spans`.

    With `whole`, where `left` is an integer. `jumps` says that the result may jump there.
    """

    left: Scalar
    right: Scalar
    output: int
    spans: Spans
    whole: bool = False
    jumps: bool = False


def boundaries_of(instance: Instance) -> list[Boundary]:
    """The boundaries in the specifications of both sides, at an index ``_i0, _i1, ...``."""
    found: dict[tuple[Scalar, Scalar, bool], Boundary] = {}
    for side in (instance.lhs, instance.rhs):
        for number, value in enumerate(side):
            index = tuple(symbol(f"_i{axis}") for axis in range(len(value.shape)))
            with fresh_names():
                try:
                    scalar = read(value, index)
                except (ValueError, ArithmeticError):
                    continue  # it has no reading without numbers for its symbols
                for boundary in islice(_boundaries(scalar, number, ()), MAX_FOUND):
                    found.setdefault((boundary.left, boundary.right, boundary.whole), boundary)
    return sorted(found.values(), key=lambda boundary: not boundary.jumps)[:MAX_BOUNDARIES]


def _boundaries(scalar: Scalar, output: int, spans: Spans) -> Iterator[Boundary]:
    match scalar:
        case Plus(args) | Times(args):
            for arg in args:
                yield from _boundaries(arg, output, spans)
        case SumOver(variable, extent, body) | ProductOver(variable, extent, body):
            yield from _boundaries(body, output, (*spans, (variable, extent)))
        case MaxOver(variable, extent, body):
            other = fresh_name()
            another = substitute_scalar(body, {variable: symbol(other)})
            inside = (*spans, (variable, extent))
            yield Boundary(body, another, output, (*inside, (other, extent)))
            yield from _boundaries(body, output, inside)
        case If(conditions, then, other_side):
            for condition in conditions:
                for atom in opaque_integers(condition.difference):
                    if isinstance(atom, Order):
                        yield Boundary(atom.left, atom.right, output, spans, jumps=True)
                        for side in (atom.left, atom.right):
                            yield from _boundaries(side, output, spans)
            for branch in (then, other_side):
                yield from _boundaries(branch, output, spans)
        case Call(function, args):
            if function in ("max", "min"):
                for arg in args[1:]:
                    yield Boundary(args[0], arg, output, spans)
            elif function == "abs":
                yield Boundary(args[0], ZERO, output, spans)
            elif function == "sign":
                yield Boundary(args[0], ZERO, output, spans, jumps=True)
            elif function in ("floor", "round"):
                at = args[0] + Fraction(1, 2) if function == "round" else args[0]
                yield Boundary(at, ZERO, output, spans, whole=True, jumps=True)
            for arg in args:
                yield from _boundaries(arg, output, spans)


class BoundaryDraws:
    """Inputs of a rule at the boundaries of what it compares; `boundaries` must not be empty."""

    def __init__(
        self, instance: Instance, boundaries: Sequence[Boundary], numbers: Sequence[float]
    ) -> None:
        self._instance = instance
        self._boundaries = boundaries
        self._numbers = [Fraction(number).limit_denominator(1024) for number in numbers]
        """The real numbers in the rule's attributes."""

    def shapes(self, shapes: dict[str, Shape], rng: random.Random) -> dict[str, Shape]:
        """`shapes`, or equal ones for inputs of any shape: elements of all inputs meet."""
        if not self._instance.broadcast:
            return shapes
        shape = (rng.randint(2, 6),)
        return dict.fromkeys(shapes, shape)

    def reals(self, reals: Mapping[str, Fraction], rng: random.Random) -> dict[str, Fraction]:
        """`reals`, at times with equal ones among them."""
        if len(reals) < 2 or rng.random() < 0.7:
            return dict(reals)
        few = rng.sample(list(reals.values()), max(1, len(reals) - 1))
        return {name: rng.choice(few) for name in reals}

    def inputs(
        self,
        drawn: Mapping[str, Array],
        reals: Mapping[str, Fraction],
        sizes: Mapping[str, int],
        rng: random.Random,
    ) -> dict[str, Array]:
        """The inputs `drawn` with elements at boundaries."""
        few = self._few(list(reals.values()), rng)
        inputs = {name: _of_few(array, few, rng) for name, array in drawn.items()}
        for _ in range(rng.choice(MOVES)):
            self._move(inputs, reals, sizes, rng)
        return inputs

    def _few(self, reals: Sequence[Fraction], rng: random.Random) -> list[float]:
        """A few numbers: thresholds, their opposites, numbers beside these, or others."""
        eighths = Fraction(rng.randint(-15, 15), 8)
        known = [Fraction(0), Fraction(1), eighths, *self._numbers, *reals]
        chosen = rng.choice(known)
        step = rng.choice((Fraction(1, 8), Fraction(1, 8), Fraction(1, 2), Fraction(1)))
        few = [chosen, chosen + step, chosen - step, -chosen, rng.choice(known)]
        return [float(number) for number in rng.sample(few, rng.randint(2, len(few)))]

    def _move(
        self,
        inputs: dict[str, Array],
        reals: Mapping[str, Fraction],
        sizes: Mapping[str, int],
        rng: random.Random,
    ) -> None:
        """Move one element so that the operands of a comparison are equal, or almost."""
        boundary = rng.choice(self._boundaries)
        try:
            at = self._place(boundary, inputs, sizes, rng)
            if at is None or _steps((boundary.left, boundary.right), at) > MAX_STEPS:
                return
            elements = _elements((boundary.left, boundary.right), at, rng)
            free = [e for e in elements if e[0] in inputs and inputs[e[0]].dtype.kind == "f"]
            if not free or any(array.size > MAX_ELEMENTS for array in inputs.values()):
                return
            name, position = rng.choice(sorted(set(free)))
            value = _solution(boundary, _exact(inputs, reals), name, position, at)
        except (ArithmeticError, LookupError, ValueError, TypeError):
            return  # something is not defined there
        if value is None:
            return
        if not boundary.jumps or rng.random() < 0.4:
            value += rng.choice(BESIDE)
        if abs(value) <= FARTHEST:
            inputs[name] = inputs[name].copy()
            inputs[name][position] = float(value)

    def _place(
        self,
        boundary: Boundary,
        inputs: Mapping[str, Array],
        sizes: Mapping[str, int],
        rng: random.Random,
    ) -> dict[str, int] | None:
        """Sizes, an index of the output and values of the bound variables; None for no elements."""
        at = dict(sizes)
        if self._instance.broadcast:
            at["any"] = max((array.size for array in inputs.values()), default=1)
        shape = self._instance.lhs[boundary.output].shape
        for variable, extent in (*((f"_i{k}", n) for k, n in enumerate(shape)), *boundary.spans):
            count = evaluate_size(extent, at)
            if count < 1:
                return None
            at[variable] = rng.randrange(count)
        return at


def _of_few(array: Array, few: Sequence[float], rng: random.Random) -> Array:
    """The array with its elements, or some of them, drawn from a few numbers."""
    if array.dtype.kind != "f" or not array.size:
        return array
    generator = np.random.default_rng(rng.getrandbits(32))
    chosen = generator.choice(np.array(few), array.shape)
    kept = rng.choice((0.0, 0.0, 0.5, 1.0))
    made = np.where(generator.random(array.shape) < kept, array, chosen)
    if array.ndim and rng.random() < 0.1:  # equal rows
        axis = rng.randrange(array.ndim)
        made = np.broadcast_to(np.take(made, [0], axis=axis), array.shape).copy()
    return np.asarray(made)


def _exact(inputs: Mapping[str, Array], reals: Mapping[str, Fraction]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, array in inputs.items():
        exact = np.empty(array.shape, dtype=object)
        for position in np.ndindex(*array.shape):
            exact[position] = Fraction(array[position].item())
        tensors[name] = exact
    for name, number in reals.items():
        exact = np.empty((), dtype=object)
        exact[()] = number
        tensors[f"%{name}"] = exact
    return tensors


def _elements(
    scalars: Sequence[Scalar], at: Mapping[str, int], rng: random.Random
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Elements that scalars read, one for each sum or maximum."""
    for scalar in scalars:
        match scalar:
            case Element(tensor, index):
                yield tensor, tuple(evaluate_size(i, at) for i in index)
            case Plus(args) | Times(args) | Call(_, args):
                yield from _elements(args, at, rng)
            case (
                SumOver(variable, extent, body)
                | ProductOver(variable, extent, body)
                | MaxOver(variable, extent, body)
            ):
                count = evaluate_size(extent, at)
                if count > 0:
                    yield from _elements([body], {**at, variable: rng.randrange(count)}, rng)
            case If(_, then, other):
                yield from _elements([then, other], at, rng)


def _solution(
    boundary: Boundary,
    tensors: Mapping[str, Any],
    name: str,
    position: tuple[int, ...],
    at: Mapping[str, int],
) -> Fraction | None:
    """The value of an element at which a boundary is met, if both operands are linear in it."""
    array = tensors[name]
    if len(position) != array.ndim or any(
        not 0 <= p < n for p, n in zip(position, array.shape, strict=True)
    ):
        return None
    start: Fraction = array[position]
    goal = Fraction(0)

    def distance(value: Fraction) -> Fraction | None:
        array[position] = value
        left = evaluate(boundary.left, tensors, at)
        right = evaluate(boundary.right, tensors, at)
        if left is None or right is None or not math.isfinite(left) or not math.isfinite(right):
            return None
        return Fraction(left) - Fraction(right) - goal

    before = distance(start)
    if before is None:
        return None
    if boundary.whole:
        goal = Fraction(round(before))
        before -= goal
    after = distance(start + 1)
    if after is None or after == before:
        return None
    value = (start - before / (after - before)).limit_denominator(2**20)
    left = distance(value)
    return value if left is not None and abs(left) < Fraction(1, 2**16) else None


def _steps(scalars: Sequence[Scalar], at: Mapping[str, int]) -> int:
    """About how many elements are read to evaluate `scalars`."""
    total = 0
    for scalar in scalars:
        match scalar:
            case Plus(args) | Times(args) | Call(_, args):
                total += _steps(args, at)
            case (
                SumOver(variable, extent, body)
                | ProductOver(variable, extent, body)
                | MaxOver(variable, extent, body)
            ):
                total += max(0, evaluate_size(extent, at)) * _steps([body], {**at, variable: 0})
            case If(_, then, other):
                total += _steps([then, other], at)
            case _:
                total += 1
    return total
