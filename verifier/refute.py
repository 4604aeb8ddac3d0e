"""Refutation: run both sides on small random tensors and compare.

Also the cross-check of every proof: it goes through the operators' `numpy` readings, which share
nothing with the specifications that the proof used.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import z3

from xflow.constraint import Constraint, Relation, at_least
from xflow.errors import ShapeError
from xflow.graph import Leaf, TensorType, Value, apply, leaf, requirements, run, walk
from xflow.ops.registry import Array, Attribute, Operator, RealSymbol, Shape
from xflow.rule import Instance, Rule, attribute_symbols
from xflow.size import Expr, Size, coefficient_of, evaluate, free_symbols, product, substitute

TOLERANCE = 1e-9
MAX_ELEMENTS = 20_000


@dataclass(frozen=True)
class Counterexample:
    """Sizes, inputs and both outputs of a case in which the sides of a rule differ."""

    rank: int
    sizes: Mapping[str, int]
    reals: Mapping[str, Fraction]
    inputs: Mapping[str, Array]
    reason: str

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in sorted(self.sizes.items()))
        parts = [f"with {sizes}" if sizes else "at any size", self.reason]
        parts += [f"{name} = {value}" for name, value in sorted(self.reals.items())]
        for name, array in self.inputs.items():
            shown = np.array2string(array, separator=", ", threshold=64, max_line_width=100)
            parts.append(f"{name} = {' '.join(shown.split())}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Survived:
    """No counterexample in `cases` cases that satisfied everything the left side needs."""

    cases: int


def search_counterexample(
    rule: Rule, *, cases: int = 24, seed: int = 0
) -> Counterexample | Survived:
    """Evaluate both sides of `rule` at `cases` random sizes for each rank."""
    done = 0
    for instance in rule.instances():
        rng = random.Random(f"{seed} {rule.lhs} {rule.rhs} {instance.rank}")
        result = _search(instance, rng, cases)
        if isinstance(result, Counterexample):
            return result
        done += result.cases
    return Survived(done)


def _search(instance: Instance, rng: random.Random, cases: int) -> Counterexample | Survived:
    conditions = left_conditions(instance)
    names = sorted(
        attribute_symbols((*instance.lhs, *instance.rhs)).union(
            *(c.symbols for c in conditions),
            *(free_symbols(size) for value in instance.inputs for size in value.shape),
        )
    )
    sampler = Sampler(names, conditions, rng)
    done = 0
    for _ in range(3 * cases):  # a draw without elements to compare does not count
        sizes = sampler.draw() if done < cases else None
        if sizes is None:
            break
        outcome = compare_at(instance, sizes, rng)
        if isinstance(outcome, Counterexample):
            return outcome
        done += outcome
    return Survived(done)


def left_conditions(instance: Instance) -> list[Constraint]:
    """What may be assumed of the sizes: dimensions, the left side's requirements, `where`."""
    conditions = [
        at_least(size, 0)
        for value in instance.inputs
        for size in value.shape
        if isinstance(size, Expr)
    ]
    conditions += requirements(instance.lhs)
    conditions += instance.where
    return list(dict.fromkeys(conditions))


class Sampler:
    """Random small integers that satisfy conditions."""

    def __init__(self, names: Sequence[str], conditions: Sequence[Constraint], rng: random.Random):
        self._names = list(names)
        self._conditions = list(conditions)
        self._rng = rng
        self._misses = 0
        self._defined = definitions(conditions)
        self._lows = lower_bounds(conditions)

    def draw(self) -> dict[str, int] | None:
        """An assignment; None where none was found."""
        if self._misses < 3:
            for _ in range(200):
                sizes = {n: self._value(n) for n in self._names if n not in self._defined}
                try:
                    for name, value in self._defined.items():
                        sizes[name] = evaluate(value, sizes)
                except ZeroDivisionError:
                    continue
                if self._holds(sizes):
                    return sizes
            self._misses += 1
        return self._solve()

    def _value(self, name: str) -> int:
        value = self._rng.choice((0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5, -1, -2))
        return max(value, self._lows.get(name, value))

    def _holds(self, sizes: Mapping[str, int]) -> bool:
        try:
            return all(c.substitute(sizes).decided for c in self._conditions)
        except ZeroDivisionError:
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


def definitions(conditions: Sequence[Constraint]) -> dict[str, Size]:
    """Symbols that equalities give in terms of others, by those."""
    found: dict[str, Size] = {}
    for condition in conditions:
        if condition.relation is not Relation.EQUAL:
            continue
        for name in sorted(condition.symbols):
            split = coefficient_of(condition.difference, name)
            if split is None or abs(split[0]) != 1:
                continue
            value = substitute(-split[1] * split[0], found)
            if name in found or name in free_symbols(value):
                continue
            found = {other: substitute(size, {name: value}) for other, size in found.items()}
            found[name] = value
            break
    return found


def lower_bounds(conditions: Sequence[Constraint]) -> dict[str, int]:
    """The least value of each symbol of which a condition of its own tells one."""
    lows: dict[str, int] = {}
    for condition in conditions:
        if condition.relation is Relation.AT_LEAST and len(condition.symbols) == 1:
            (name,) = condition.symbols
            split = coefficient_of(condition.difference, name)
            if split is not None and split[0] == 1 and isinstance(split[1], int):
                lows[name] = max(lows.get(name, -split[1]), -split[1])
    return lows


def _to_z3(size: Size, unknowns: Mapping[str, Any], solver: Any) -> Any:
    if isinstance(size, int):
        return z3.IntVal(size, solver.ctx)
    total = z3.IntVal(0, solver.ctx)
    for monomial, coefficient in size.terms:
        product = z3.IntVal(coefficient, solver.ctx)
        for atom in monomial:
            if hasattr(atom, "name"):
                product = product * unknowns[atom.name]
            else:
                denominator = _to_z3(atom.denominator, unknowns, solver)
                solver.add(denominator >= 1)
                product = product * (_to_z3(atom.numerator, unknowns, solver) / denominator)
        total = total + product
    return total


def compare_at(
    instance: Instance, sizes: Mapping[str, int], rng: random.Random
) -> Counterexample | int:
    """A counterexample at these sizes, or the number of cases (0 or 1) that were compared."""
    shapes: dict[str, Shape] = {}
    for value in instance.inputs:
        op = value.node.op
        assert isinstance(op, Leaf)
        shapes[op.key] = tuple(evaluate(size, sizes) for size in value.shape)
    if instance.broadcast:
        shapes = broadcast_shapes(shapes, rng)
    reals = {
        name: Fraction(rng.choice((-8, -5, -1, 0, *range(1, 13))), 8)
        for name in sorted(real_symbols((*instance.lhs, *instance.rhs)))
    }
    try:
        left = concretize(instance.lhs, sizes, reals, shapes)
    except (ShapeError, ZeroDivisionError):
        return 0
    if any(element_count(v.shape) > MAX_ELEMENTS for v in left):
        return 0
    inputs = {name: random_array(shape, rng) for name, shape in shapes.items()}

    def counterexample(reason: str) -> Counterexample:
        return Counterexample(instance.rank, dict(sizes), reals, inputs, reason)

    try:
        right = concretize(instance.rhs, sizes, reals, shapes)
    except (ShapeError, ZeroDivisionError) as error:
        return counterexample(f"the right side is not defined: {error}")
    if any(element_count(v.shape) > MAX_ELEMENTS for v in right):
        return 0
    with np.errstate(all="ignore"):
        outputs = run(left, inputs), run(right, inputs)
    compared = 0
    for number, (a, b) in enumerate(zip(*outputs, strict=True)):
        if a.shape != b.shape:
            if instance.broadcast:
                continue  # a rule without shapes is applied only where the shapes agree
            return counterexample(
                f"output {number} has shape {list(a.shape)} left and {list(b.shape)} right"
            )
        defined = np.isfinite(a)
        magnitude = np.abs(a[defined]).max(initial=1.0)
        with np.errstate(all="ignore"):
            wrong = defined & ~(np.abs(a - b) <= TOLERANCE * magnitude)
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            return counterexample(
                f"output {number} at {list(where)} is {a[where]} left and {b[where]} right"
            )
        compared = max(compared, int(defined.any()))
    return compared


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


def random_array(shape: Shape, rng: random.Random) -> Array:
    """Exact dyadic rationals of both signs; at times only positive ones, at times many zeros."""
    generator = np.random.default_rng(rng.getrandbits(32))
    low, high = rng.choice(((-15, 15), (-15, 15), (-15, 15), (1, 15), (1, 15), (-1, 1)))
    values = generator.integers(low, high + 1, size=[evaluate(size, {}) for size in shape])
    return values.astype(np.float64) / 8


def real_symbols(values: Sequence[Value]) -> frozenset[str]:
    """Names of the real symbols in attributes."""
    return frozenset(
        attribute.name
        for node in walk(values)
        for attribute in node.attributes.values()
        if isinstance(attribute, RealSymbol)
    )


def concretize(
    values: Sequence[Value],
    sizes: Mapping[str, int],
    reals: Mapping[str, Fraction],
    shapes: Mapping[str, Shape],
) -> list[Value]:
    """Values with all symbols replaced by numbers. Raises ShapeError, ZeroDivisionError."""

    def concrete(attribute: Attribute) -> Attribute:
        if isinstance(attribute, RealSymbol):
            return reals[attribute.name]
        if isinstance(attribute, tuple):
            return tuple(evaluate(item, sizes) for item in attribute)
        return evaluate(attribute, sizes) if isinstance(attribute, Expr) else attribute

    done: dict[Value, Value] = {}
    for node in walk(values):
        if isinstance(node.op, Leaf):
            shape = shapes[node.op.key]
            done[Value(node, 0)] = leaf(node.op.key, TensorType("REAL", shape))
            continue
        assert isinstance(node.op, Operator)
        attributes = {name: concrete(value) for name, value in node.attributes.items()}
        made = apply(node.op, [done[v] for v in node.inputs], attributes)
        for index, value in enumerate(made):
            done[Value(node, index)] = value
    return [done[value] for value in values]
