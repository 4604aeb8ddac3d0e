"""Evaluation of rules at random sizes: a quick filter before the prover, which decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from xflow.core.constraint import Relation
from xflow.core.errors import ShapeError, SizeError
from xflow.core.evaluation import run
from xflow.core.graph import requirements, walk
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.core.registry import Array, Attribute, Operator, RealSymbol
from xflow.core.size import Size, coefficient_of, evaluate, free_symbols, substitute
from xflow.core.sorts import BOOL, REAL
from xflow.core.value_conditions import SIGNS
from xflow.generator.drawn import random_dyadics
from xflow.rewriting.instance import Instance, attribute_symbols, leaf_name
from xflow.verifier.refutation.refute import index_ranges, real_symbols

EXTENTS = (2, 3, 4, 5, 7, 11)
NUMBERS = (0, 0, 1, 1, 1, 2, 2, 2, 3)
"""The values from which sizes and other numbers are drawn."""


@dataclass(frozen=True)
class SampleResult:
    """How many samples were defined on both sides, and whether some of them differed."""

    samples: int
    differs: bool
    fixed: frozenset[str] = frozenset()
    """Symbols of attributes that had one value in all samples."""

    @property
    def plausible(self) -> bool:
        return self.samples > 0 and not self.differs


def try_instance(instance: Instance, seed: int, wanted: int = 6, tries: int = 120) -> SampleResult:
    """Compare both sides of an instance at random sizes where the left side is defined."""
    rng = np.random.default_rng([seed, 97])
    extents = {s for value in instance.inputs for n in value.shape for s in free_symbols(n)}
    others = attribute_symbols((*instance.lhs, *instance.rhs)) - extents
    names = sorted(extents | others)
    conditions = [*requirements(instance.lhs), *requirements(instance.rhs), *instance.where]
    for left, right in zip(instance.lhs, instance.rhs, strict=True):
        if not instance.broadcast and len(left.shape) != len(right.shape):
            return SampleResult(0, True)
    equations = [c.difference for c in conditions if c.relation is Relation.EQUAL]
    done = 0
    met: dict[str, set[int]] = {name: set() for name in others}
    for attempt in range(5 * tries):
        fixed = frozenset(name for name, known in met.items() if len(known) < 2)
        if done >= wanted and (attempt >= tries or not fixed):
            break
        values = {name: int(rng.choice(EXTENTS if name in extents else NUMBERS)) for name in names}
        try:
            _repair(equations, values)
            if not all(condition.holds(values) for condition in conditions):
                continue
            outcome = _compare(instance, values, rng)
        except (ShapeError, SizeError, ZeroDivisionError, ValueError, IndexError):
            continue
        if outcome is None:
            continue
        if not outcome:
            return SampleResult(done, True)
        done += 1
        for name in others:
            met[name].add(values[name])
    return SampleResult(
        done, False, frozenset(name for name, known in met.items() if len(known) < 2)
    )


def _repair(equations: Sequence[Size], values: dict[str, int]) -> None:
    """Change single values so that equations hold, where one of their symbols can be solved."""
    for _ in range(2):
        for equation in equations:
            if evaluate(equation, values) == 0:
                continue
            for name in sorted(free_symbols(equation)):
                solution = _solution(equation, name, values)
                if solution is not None:
                    values[name] = solution
                    break


def _solution(equation: Size, name: str, values: dict[str, int]) -> int | None:
    """The value of a symbol at which `equation` is 0, all others as they are; None if not found.

    Where the symbol is divided, as in ``M = n * (M // n)``, the values of the others are tried, and
    its own value times each of them.
    """
    known: dict[str, Size] = {k: v for k, v in values.items() if k != name}
    split = coefficient_of(substitute(equation, known), name)
    if split is not None and split[0] != 0 and isinstance(split[1], int):
        solution, rest = divmod(-split[1], split[0])
        return solution if rest == 0 and solution >= 1 else None
    others = [values[other] for other in sorted(free_symbols(equation) - {name})]
    for guess in (*others, *(values[name] * other for other in others)):
        if guess >= 1 and evaluate(equation, {**values, name: guess}) == 0:
            return guess
    return None


def _compare(instance: Instance, values: dict[str, int], rng: np.random.Generator) -> bool | None:
    shapes: dict[str, tuple[int, ...]] = {}
    leaves: dict[Value, Value] = {}
    for value in instance.inputs:
        if instance.broadcast:
            shape = [int(n) if rng.random() < 0.8 else 1 for n in (2, 3)][int(rng.integers(0, 3)) :]
        else:
            shape = [evaluate(n, values) for n in value.shape]
            if min(shape, default=1) < 1:
                return None
        name = leaf_name(value)
        shapes[name] = tuple(shape)
        leaves[value] = leaf(f"sample.{name}", TensorType(value.type.dtype, tuple(shape)))
    ones = {name: Fraction(1) for name in real_symbols((*instance.lhs, *instance.rhs))}
    ranges = index_ranges(instance, values, ones, shapes)
    feeds: dict[str, Array] = {}
    for value in instance.inputs:
        name = leaf_name(value)
        low, high = (0, 2) if value.type.dtype == BOOL else ranges.get(name, (-2, 3))
        if value.type.dtype == REAL:
            feeds[name] = random_dyadics(rng, shapes[name])
        else:
            kind = np.bool_ if value.type.dtype == BOOL else np.int64
            feeds[name] = rng.integers(low, max(high, low + 1), shapes[name]).astype(kind)
    for fact in instance.facts:
        if fact.relation in SIGNS and fact.name in feeds:
            feeds[fact.name] = np.abs(feeds[fact.name])
    reals: dict[str, Fraction] = {}
    left = concrete(instance.lhs, leaves, values, reals)
    right = concrete(instance.rhs, leaves, values, reals)
    keyed = {f"sample.{name}": array for name, array in feeds.items()}
    with np.errstate(all="ignore"):
        results = list(zip(run(left, keyed), run(right, keyed), strict=True))
    for before, after in results:
        a, b = before, after
        if instance.broadcast:
            a, b = np.broadcast_arrays(before, after)
        if a.shape != b.shape:
            return False
        a, b = (np.asarray(x, np.float64) for x in (a, b))
        finite = np.isfinite(a)
        if not finite.any() and a.size:
            return None
        if not np.allclose(a[finite], b[finite], rtol=1e-9, atol=1e-11):
            return False
    return True


def concrete(
    values: Sequence[Value],
    leaves: dict[Value, Value],
    sizes: dict[str, int],
    reals: dict[str, Fraction],
) -> tuple[Value, ...]:
    """`values` over other leaves, with symbols replaced by numbers. Raises ShapeError.

    Real symbols get positive values, which are added to `reals`.
    """
    env: dict[str, Size] = dict(sizes)

    def number(attribute: Attribute) -> Attribute:
        if isinstance(attribute, RealSymbol):
            return reals.setdefault(attribute.name, Fraction(2 * len(reals) + 3, 4))
        if isinstance(attribute, tuple):
            return tuple(substitute(size, env) for size in attribute)
        return attribute if isinstance(attribute, Fraction | str) else substitute(attribute, env)

    made: dict[Value, Value] = dict(leaves)
    for node in walk(values):
        if node.outputs[0] in made and node.inputs == () and not isinstance(node.op, Operator):
            continue
        assert isinstance(node.op, Operator)
        args = [made[value] for value in node.inputs]
        attributes = {name: number(value) for name, value in node.attributes.items()}
        outputs = apply(node.op, args, attributes, dtype=node.types[0].dtype)
        made.update(zip(node.outputs, outputs, strict=True))
    return tuple(made[value] for value in values)
