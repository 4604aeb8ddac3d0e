"""Refutation: run both sides on small random tensors and compare.

Also the cross-check of every proof: it uses the operators' `numpy` implementations, which are
independent of the specifications that the proof used.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import z3

from xflow.core.assignments import connected
from xflow.core.constraint import Constraint, Relation
from xflow.core.errors import ShapeError, SizeError
from xflow.core.evaluation import run
from xflow.core.graph import requirements, walk
from xflow.core.node import Leaf, TensorType, Value, apply, leaf
from xflow.core.registry import Array, Attribute, Operator, RealSymbol, Shape
from xflow.core.size import Expr, Quotient, Size, Symbol, evaluate, product
from xflow.core.sorts import BOOL, CODE, INT, REAL, integer_range
from xflow.core.value_conditions import NONZERO, POSITIVE, SIGNS, Fact
from xflow.rewriting.instance import Instance, leaf_name
from xflow.rewriting.rule import Rule
from xflow.verifier.preconditions import (
    balances,
    definitions,
    left_conditions,
    lower_bounds,
    size_names,
)
from xflow.verifier.proof.code_types import typings
from xflow.verifier.proof.index_bounds import indices_of
from xflow.verifier.refutation.boundaries import BoundaryDraws, boundaries_of
from xflow.verifier.refutation.confirm import is_real
from xflow.verifier.refutation.counterexample import Counterexample, sides, undefined_place

ORDINARY = (0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, -1, -1, -2)
SPREAD = (1, 1, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, -1, -1)
"""Two ways to draw sizes: many middling ones, or a few large among ones: three strides of three
need an image of seven."""

TOLERANCE = 1e-9
RANGES = ((-15, 15), (-15, 15), (-15, 15), (1, 15), (1, 15), (-1, 1), (-1, 1), (-64, 64))
"""Least and largest of the elements of an input, in eighths."""

ENDS = 0.25
"""How many of the codes that are drawn from a type are an end of its range."""
MAX_ELEMENTS = 20_000


CASES = 18
"""How many cases a proof is compared with at each rank."""


@dataclass(frozen=True)
class Survived:
    """No counterexample in `cases` cases that satisfied everything the left side needs."""

    cases: int
    at_first: int = 0
    """How many there are if `CASES` are asked for at each rank: the first of the same ones."""


def search_counterexample(
    rule: Rule, *, cases: int = 32, seed: int = 0
) -> Counterexample | Survived:
    """Evaluate both sides of `rule` at `cases` random sizes for each rank."""
    done = first = 0
    for instance in rule.instances():
        result = _search(instance, f"{seed} {rule.lhs} {rule.rhs} {instance.rank}", cases)
        if isinstance(result, Counterexample):
            return result
        done, first = done + result.cases, first + result.at_first
    return Survived(done, first)


def _search(instance: Instance, seed: str, cases: int) -> Counterexample | Survived:
    """At each assignment of sizes two cases: generic inputs, and inputs at boundaries if any."""
    rng, other_rng = random.Random(seed), random.Random(f"{seed} at boundaries")
    conditions = left_conditions(instance)
    names = size_names(instance, conditions)
    sampler = Sampler(names, conditions, rng, whole_numbers(instance, conditions))
    boundaries = boundaries_of(instance)
    draws = BoundaryDraws(instance, boundaries, real_numbers(instance)) if boundaries else None
    jumps = any(boundary.jumps for boundary in boundaries)
    done = first = 0
    for number in range(3 * cases):  # a draw without elements to compare does not count
        sizes = sampler.draw() if done < cases else None
        if sizes is None:
            break
        compared = 0
        for source, near in ((rng, None), (other_rng, draws)):
            if source is other_rng and (draws is None or number % 2):
                break
            outcome = compare_at(instance, sizes, source, near)
            if not isinstance(outcome, Counterexample):
                compared = max(compared, outcome)
            elif not jumps or is_beyond_rounding(instance, sizes, outcome):
                return outcome
            else:
                compared = 1
        done += compared
        if number < 3 * CASES:
            first = min(done, CASES)
    return Survived(done, first)


def is_beyond_rounding(instance: Instance, sizes: Mapping[str, int], found: Counterexample) -> bool:
    """Whether a counterexample of a rule that jumps somewhere is more than a rounding error."""
    if found.right_outputs is None:
        return True
    pairs = zip(found.left_outputs, found.right_outputs, strict=True)
    if not instance.broadcast and any(a.shape != b.shape for a, b in pairs):
        return True
    shapes = {name: array.shape for name, array in found.inputs.items()}
    left, right = (
        concretize(side, sizes, found.reals, shapes) for side in (instance.lhs, instance.rhs)
    )
    return is_real(left, right, found.inputs)


class Sampler:
    """Random small integers that satisfy conditions.

    `special` are numbers near which a result may change: those that the rule itself names.
    """

    def __init__(
        self,
        names: Sequence[str],
        conditions: Sequence[Constraint],
        rng: random.Random,
        special: Sequence[int] = (),
    ):
        self._names = list(names)
        self._special = list(special)
        self._choices = ORDINARY
        self._conditions = list(conditions)
        self._rng = rng
        self._misses = 0
        self.defined = definitions(conditions)
        """Symbols that the others determine."""
        self._lows = lower_bounds(conditions)
        self._balances = balances(conditions)

    def draw(self) -> dict[str, int] | None:
        """An assignment; None where none was found."""
        if self._misses < 3:
            for _ in range(200):
                self._choices = self._rng.choice((ORDINARY, ORDINARY, SPREAD))
                free = {n: self._value(n) for n in self._names if n not in self.defined}
                if free and self._rng.random() < 0.2:  # one of them is as small as it can be
                    name = self._rng.choice(list(free))
                    free[name] = self._lows.get(name, 0)
                sizes = self.complete(free)
                if sizes is None and self._balances:  # products are hardly ever equal by chance
                    sizes = self.complete(self._shared_out(free))
                if sizes is not None:
                    return sizes
            self._misses += 1
        return self._drawn_apart() if len(self._parts) > 1 else self._solve()

    @cached_property
    def _parts(self) -> list[Sampler]:
        """Samplers of the symbols in groups that no condition connects.

        Each axis of a convolution is one, so that a guess must be lucky for one axis at a time.
        """
        return [
            Sampler(names, conditions, self._rng, self._special)
            for names, conditions in connected(self._names, self._conditions)
        ]

    def _drawn_apart(self) -> dict[str, int] | None:
        """An assignment that is drawn group by group."""
        sizes: dict[str, int] = {}
        for part in self._parts:
            found = part.draw()
            if found is None:
                return None
            sizes |= found
        return sizes if self._holds(sizes) else None

    def complete(self, free: Mapping[str, int]) -> dict[str, int] | None:
        """`free` with the symbols that are not; None where a condition does not hold."""
        sizes = dict(free)
        try:
            for name, value in self.defined.items():
                sizes[name] = evaluate(value, sizes)
        except ZeroDivisionError:
            return None
        return sizes if self._holds(sizes) else None

    def _shared_out(self, free: Mapping[str, int]) -> dict[str, int]:
        """`free` with the product of some sizes shared out among those that it has to equal."""
        sizes = dict(free)
        for given, shared in self._balances:
            if not shared or not free.keys() >= {*given, *shared}:
                continue
            left = math.prod(sizes[name] for name in given)
            names = self._rng.sample(shared, len(shared))
            for name in names[:-1]:
                divisors = [d for d in range(1, abs(left) + 1) if left % d == 0] or [1]
                sizes[name] = self._rng.choice(divisors)
                left //= sizes[name]
            sizes[names[-1]] = left
        return sizes

    def _value(self, name: str) -> int:
        if self._special and self._rng.random() < 0.15:
            value = self._rng.choice(self._special) + self._rng.choice((-1, 0, 0, 1))
        else:
            value = self._rng.choice(self._choices)
        low = self._lows.get(name, value)
        return value if value >= low else low + self._rng.choice((0, 1, 1, 2))

    def _holds(self, sizes: Mapping[str, int]) -> bool:
        try:
            return all(condition.holds(sizes) for condition in self._conditions)
        except (SizeError, ZeroDivisionError):
            return False

    def _solve(self) -> dict[str, int] | None:
        """By Z3, with random values fixed one after the other as far as they go."""
        context = z3.Context()  # of its own: models must not depend on what was asked before
        solver = z3.Solver(ctx=context)
        solver.set("rlimit", 300_000)
        unknowns = {name: z3.Int(name, context) for name in self._names}
        for unknown in unknowns.values():
            solver.add(unknown >= -3, unknown <= 12)
        for condition in self._conditions:
            term = _to_z3(condition.difference, unknowns, solver)
            solver.add(term >= 0 if condition.relation is Relation.AT_LEAST else term == 0)
        if solver.check() != z3.sat:
            return None
        order = list(self._names)
        self._rng.shuffle(order)
        for name in order:
            for _ in range(3):
                solver.push()
                solver.add(unknowns[name] == self._value(name))
                if solver.check() == z3.sat:
                    break
                solver.pop()
        if solver.check() != z3.sat:
            return None
        model = solver.model()
        sizes = {
            name: model.eval(unknown, model_completion=True).as_long()
            for name, unknown in unknowns.items()
        }
        return sizes if self._holds(sizes) else None


def whole_numbers(instance: Instance, conditions: Sequence[Constraint]) -> list[int]:
    """The numbers from 4 to 12 that the rule's attributes and conditions hold, without signs."""
    sizes: list[Size] = [condition.difference for condition in conditions]
    for node in walk((*instance.lhs, *instance.rhs)):
        for attribute in node.attributes.values():
            parts: tuple[Any, ...] = attribute if isinstance(attribute, tuple) else (attribute,)
            sizes += [part for part in parts if isinstance(part, int | Expr)]
    numbers = {
        abs(number)
        for size in sizes
        for number in ([size] if isinstance(size, int) else [c for _, c in size.terms])
    }
    return sorted(number for number in numbers if 4 <= number <= 12)


def real_numbers(instance: Instance) -> list[float]:
    """The real numbers other than 0 that the rule's attributes hold."""
    numbers = {
        float(attribute)
        for node in walk((*instance.lhs, *instance.rhs))
        for attribute in node.attributes.values()
        if isinstance(attribute, Fraction) and attribute
    }
    return sorted(numbers)


def _to_z3(size: Size, unknowns: Mapping[str, Any], solver: Any) -> Any:
    if isinstance(size, int):
        return z3.IntVal(size, solver.ctx)
    total = z3.IntVal(0, solver.ctx)
    for monomial, coefficient in size.terms:
        product = z3.IntVal(coefficient, solver.ctx)
        for atom in monomial:
            if isinstance(atom, Symbol):
                product = product * unknowns[atom.name]
            else:
                assert isinstance(atom, Quotient), "conditions do not depend on data"
                denominator = _to_z3(atom.denominator, unknowns, solver)
                solver.add(denominator >= 1)
                product = product * (_to_z3(atom.numerator, unknowns, solver) / denominator)
        total = total + product
    return total


def compare_at(
    instance: Instance,
    sizes: Mapping[str, int],
    rng: random.Random,
    near: BoundaryDraws | None = None,
) -> Counterexample | int:
    """A counterexample at these sizes, or the number of cases (0 or 1) that were compared.

    The inputs are generic, or at the boundaries that `near` knows of.
    """
    shapes: dict[str, Shape] = {}
    for value in instance.inputs:
        op = value.node.op
        assert isinstance(op, Leaf)
        shapes[op.key] = tuple(evaluate(size, sizes) for size in value.shape)
    if instance.broadcast:
        shapes = broadcast_shapes(shapes, rng)
    if near is not None:
        shapes = near.shapes(shapes, rng)
    reals = {
        name: Fraction(rng.choice((-8, -5, -1, 0, *range(1, 13))), 8)
        for name in sorted(real_symbols((*instance.lhs, *instance.rhs)))
    }
    if near is not None:
        reals = near.reals(reals, rng)
    for fact in instance.facts:
        if fact.name in reals and not fact.holds(reals[fact.name]):
            reals[fact.name] = abs(reals[fact.name]) or Fraction(1, 8)
    ranges = index_ranges(instance, sizes, reals, shapes) | code_spans(instance, rng)
    inputs = {
        leaf_name(value): random_elements(
            value.type.dtype, shapes[leaf_name(value)], rng, ranges.get(leaf_name(value))
        )
        for value in instance.inputs
    }
    numbers = real_numbers(instance)
    kinds = {leaf_name(value): value.type.dtype for value in instance.inputs}
    inputs = {name: sprinkled(array, numbers, rng) for name, array in inputs.items()}
    if near is not None:
        inputs = near.inputs(inputs, reals, sizes, rng)
    for fact in instance.facts:
        if fact.name in inputs:
            whole = kinds[fact.name] == CODE
            inputs[fact.name] = satisfying(fact, inputs[fact.name], whole=whole)
    return compare_on(instance, sizes, reals, inputs)


def compare_on(
    instance: Instance,
    sizes: Mapping[str, int],
    reals: Mapping[str, Fraction],
    inputs: Mapping[str, Array],
) -> Counterexample | int:
    """A counterexample with these very numbers, or how many cases (0 or 1) were compared."""
    values: dict[str, Array | Fraction] = {**reals, **inputs}
    if not all(fact.holds(*(values[name] for name in fact.names)) for fact in instance.facts):
        return 0
    shapes = {name: array.shape for name, array in inputs.items()}
    try:
        left = concretize(instance.lhs, sizes, reals, shapes)
    except (ShapeError, ZeroDivisionError):
        return 0
    if any(element_count(v.shape) > MAX_ELEMENTS for v in left):
        return 0
    try:
        with np.errstate(all="ignore"):
            left_outputs = tuple(run(left, inputs))
    except (IndexError, ShapeError):  # an index or an attribute that is out of range
        return 0

    def shown(attribute: Attribute) -> Attribute:
        try:
            return concrete(attribute, sizes, reals)
        except ZeroDivisionError:  # on a right side that is not defined here
            return attribute

    def counterexample(reason: str, right: tuple[Array, ...] | None) -> Counterexample:
        return Counterexample(
            instance.rank,
            {} if instance.broadcast else dict(sizes),
            dict(reals),
            dict(inputs),
            reason,
            *sides(instance, shown),
            left_outputs,
            right,
        )

    try:
        right = concretize(instance.rhs, sizes, reals, shapes)
    except (ShapeError, ZeroDivisionError) as error:
        needs = _failed_requirement(instance, sizes)
        return counterexample(f"the right side is not defined: {error}{needs}", None)
    if any(element_count(v.shape) > MAX_ELEMENTS for v in right):
        return 0
    try:
        with np.errstate(all="ignore"):
            right_outputs = tuple(run(right, inputs))
    except (IndexError, ShapeError) as error:
        return counterexample(f"the right side is not defined: {error}", None)
    compared = 0
    for number, (before, after) in enumerate(zip(left_outputs, right_outputs, strict=True)):
        a, b = (x.astype(np.float64) if x.dtype.kind in "biu" else x for x in (before, after))
        if a.shape != b.shape:
            if instance.broadcast:
                continue  # a rule without shapes is applied only where the shapes agree
            return counterexample(
                f"output {number} has shape {list(a.shape)} left and {list(b.shape)} right",
                right_outputs,
            )
        defined = np.isfinite(a)
        magnitude = np.abs(a[defined]).max(initial=1.0)
        with np.errstate(all="ignore"):
            wrong = defined & ~(np.abs(a - b) <= TOLERANCE * magnitude)
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            reason = f"output {number} at {list(where)} is {a[where]} left and {b[where]} right"
            if not np.isfinite(b[where]) and (place := undefined_place(right, inputs)):
                reason += f", where {place} is not defined"
            return counterexample(reason, right_outputs)
        compared = max(compared, int(defined.any()))
    return compared


def _failed_requirement(instance: Instance, sizes: Mapping[str, int]) -> str:
    """The first requirement of the right side that these sizes do not meet, in brackets."""
    for condition in requirements(instance.rhs):
        with contextlib.suppress(ZeroDivisionError):
            if condition.substitute(sizes).decided is False:
                return f" (it needs {condition})"
    return ""


def element_count(shape: Shape) -> int:
    """Number of elements of a concrete shape."""
    return evaluate(product(shape), {})


def broadcast_shapes(shapes: Mapping[str, Shape], rng: random.Random) -> dict[str, Shape]:
    """Random shapes that broadcast, for inputs of any shape."""
    common = [rng.randint(1, 3) for _ in range(rng.randint(0, 3))]
    result: dict[str, Shape] = {}
    for name in shapes:
        if rng.random() < 0.5:
            result[name] = tuple(common)
        else:
            rank = rng.randint(0, len(common))
            tail = common[len(common) - rank :]
            result[name] = tuple(size if rng.random() < 0.6 else 1 for size in tail)
    return result


def sprinkled(array: Array, numbers: Sequence[float], rng: random.Random) -> Array:
    """`array` with some of its elements near `numbers`, on either side, at times."""
    if not numbers or array.dtype.kind != "f" or array.size == 0 or rng.random() < 0.6:
        return array
    generator = np.random.default_rng(rng.getrandbits(32))
    near = generator.choice(np.array(numbers), array.shape)
    near = near + generator.integers(-8, 9, array.shape) / 8
    return np.where(generator.random(array.shape) < 0.5, near, array)


def satisfying(fact: Fact, array: Array, *, whole: bool = False) -> Array:
    """`array` with the elements changed of which `fact` is not true; `whole` ones stay whole."""
    if fact.relation not in SIGNS:
        return array  # all that is drawn are numbers
    if whole and fact.relation != NONZERO:
        return np.maximum(array, 1 if fact.relation == POSITIVE else 0)
    if fact.relation == NONZERO:
        return np.where(array == 0, 1.0, array)
    return np.abs(array) + (0.125 if fact.relation == POSITIVE else 0)


def random_array(shape: Shape, rng: random.Random) -> Array:
    """Exact dyadic rationals of both signs; at times only positive ones, many zeros, or large."""
    generator = np.random.default_rng(rng.getrandbits(32))
    low, high = rng.choice(RANGES)
    values = generator.integers(low, high + 1, size=[evaluate(size, {}) for size in shape])
    return values.astype(np.float64) / 8


def random_elements(
    dtype: str, shape: Shape, rng: random.Random, span: tuple[int, int] | None = None
) -> Array:
    """Random data of a sort; integers in ``span[0] <= i < span[1]``, where that is not empty."""
    if dtype == REAL:
        return random_array(shape, rng)
    generator = np.random.default_rng(rng.getrandbits(32))
    extents = [evaluate(size, {}) for size in shape]
    if dtype == BOOL:
        return generator.integers(0, 2, extents).astype(bool)
    if dtype == CODE:
        low, high = span or (0, 6)
        codes = generator.integers(low, high, extents, np.int16)  # a type by which they are known
        if span is None:
            return codes
        ends = generator.choice(np.array([low, high - 1], np.int16), extents)
        return np.where(generator.random(extents) < ENDS, ends, codes)
    low, high = span or (-2, 3)
    return generator.integers(low, max(high, low + 1), extents)


def index_ranges(
    instance: Instance,
    sizes: Mapping[str, int],
    reals: Mapping[str, Fraction],
    shapes: Mapping[str, Shape],
) -> dict[str, tuple[int, int]]:
    """Where the elements of inputs of integers must lie for the left side to be defined."""
    found: dict[str, tuple[int, int]] = {}
    if all(value.type.dtype != INT for value in instance.inputs):
        return found
    with contextlib.suppress(ShapeError, ZeroDivisionError):
        for indices in indices_of(concretize(instance.lhs, sizes, reals, shapes)):
            low, high = evaluate(indices.low, {}), evaluate(indices.high, {})
            for node in walk([indices.value]):
                if isinstance(node.op, Leaf) and node.types[0].dtype == INT:
                    before = found.get(node.op.key, (low, high))
                    found[node.op.key] = (max(low, before[0]), min(high, before[1]))
    return found


def code_spans(instance: Instance, rng: random.Random) -> dict[str, tuple[int, int]]:
    """Where codes are drawn from: their types, for which both sides are defined; at times nowhere.

    They are then small, so that sums of them are near the numbers that a rule names.
    """
    if all(value.type.dtype != CODE for value in instance.inputs):
        return {}
    found = list(typings((*instance.lhs, *instance.rhs)))
    if not found or rng.random() < 0.5:
        return {}
    ranges = {name: integer_range(dtype) for name, dtype in rng.choice(found).items()}
    return {name: (low, high + 1) for name, (low, high) in ranges.items()}


def real_symbols(values: Sequence[Value]) -> frozenset[str]:
    """Names of the real symbols in attributes."""
    return frozenset(
        attribute.name
        for node in walk(values)
        for attribute in node.attributes.values()
        if isinstance(attribute, RealSymbol)
    )


def concrete(
    attribute: Attribute, sizes: Mapping[str, int], reals: Mapping[str, Fraction]
) -> Attribute:
    """An attribute with numbers for its symbols."""
    if isinstance(attribute, RealSymbol):
        return reals[attribute.name]
    if isinstance(attribute, tuple):
        return tuple(evaluate(item, sizes) for item in attribute)
    return evaluate(attribute, sizes) if isinstance(attribute, Expr) else attribute


def concretize(
    values: Sequence[Value],
    sizes: Mapping[str, int],
    reals: Mapping[str, Fraction],
    shapes: Mapping[str, Shape],
) -> list[Value]:
    """Values with all symbols replaced by numbers. Raises ShapeError, ZeroDivisionError."""
    given = (tuple(mapping.items()) for mapping in (sizes, reals, shapes))
    return [*_concretized(tuple(values), *given)]


@lru_cache(maxsize=8)  # the same sizes are drawn inputs for several times
def _concretized(
    values: tuple[Value, ...],
    size_items: tuple[tuple[str, int], ...],
    real_items: tuple[tuple[str, Fraction], ...],
    shape_items: tuple[tuple[str, Shape], ...],
) -> tuple[Value, ...]:
    sizes, reals, shapes = dict(size_items), dict(real_items), dict(shape_items)
    done: dict[Value, Value] = {}
    for node in walk(values):
        if isinstance(node.op, Leaf):
            shape = shapes[node.op.key]
            done[node.outputs[0]] = leaf(node.op.key, TensorType(node.types[0].dtype, shape))
            continue
        assert isinstance(node.op, Operator)
        attributes = {k: concrete(v, sizes, reals) for k, v in node.attributes.items()}
        sources = [done[v] for v in node.inputs]
        made = apply(node.op, sources, attributes, dtype=node.types[0].dtype)
        done.update(zip(node.outputs, made, strict=True))
    return tuple(done[value] for value in values)
