"""Sizes at which an equation is derived: general ones, and the smallest its conditions allow.

In general sizes whatever is independent is different, so that nothing holds because two sizes
happen to be equal. At the edges each symbol in turn is as small as the conditions let it be, and
negative where nothing forbids that; extents of inputs are at least 1.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from xflow.core.constraint import at_least
from xflow.core.node import TensorType, Value, leaf
from xflow.core.registry import Shape
from xflow.core.size import Expr, evaluate
from xflow.core.sorts import AND_INTEGERS, ANY_TYPE, BOOL, INT, REAL, REALS_ONLY
from xflow.rewriting.instance import Instance, attribute_symbols, leaf_name
from xflow.rewriting.match import Match
from xflow.verifier.preconditions import left_conditions, lower_bounds, size_names
from xflow.verifier.refutation.refute import Sampler, real_symbols

ELEMENTS = {REALS_ONLY: "FLOAT", AND_INTEGERS: "INT64", ANY_TYPE: BOOL}
"""In place of ``REAL``, a type for which hardly any rules hold but those for all types claimed."""

SIGNS = (1, -1, 0, 1)
"""Of the real attributes, from draw to draw, as far as the conditions allow."""

TRIES = 200
"""For one draw; few conditions need more than ten."""


def draws(instance: Instance, rng: random.Random, general: int) -> Iterator[Match]:
    """Values for the inputs and symbols of `instance`: `general` draws, then the edges."""
    conditions = left_conditions(instance)
    names = size_names(instance, conditions)
    if instance.broadcast:  # its shapes are drawn apart
        names = sorted(attribute_symbols((*instance.lhs, *instance.rhs)))
        conditions = [c for c in conditions if c.symbols <= set(names)]
    else:
        extents = [size for value in instance.inputs for size in value.shape]
        conditions += [at_least(size, 1) for size in extents if isinstance(size, Expr)]
    sampler = Sampler(names, conditions, rng)
    free = [name for name in names if name not in sampler.defined]
    lows = lower_bounds(conditions)
    for number in range(general):
        sizes = _different(free, sampler, rng) or sampler.draw()
        if sizes is not None:
            yield _match(instance, sizes, rng, SIGNS[number % len(SIGNS)])
    for name in free:
        for value in (lows[name],) if name in lows else (-2, -1, 0):
            sizes = _different(free, sampler, rng, {name: value})
            if sizes is not None:
                yield _match(instance, sizes, rng, 1)
                break


def _different(
    free: Sequence[str],
    sampler: Sampler,
    rng: random.Random,
    fixed: Mapping[str, int] | None = None,
) -> dict[str, int] | None:
    """Sizes that satisfy the conditions and, where they are free, are pairwise different."""
    for attempt in range(TRIES):
        numbers = rng.sample(range(2, 3 * len(free) + 4 + attempt // 4), len(free))
        sizes = {**dict(zip(free, numbers, strict=True)), **(fixed or {})}
        complete = sampler.complete(sizes)
        if complete is not None:
            return complete
    return None


def _match(instance: Instance, sizes: Mapping[str, int], rng: random.Random, sign: int) -> Match:
    leaves, reals = _leaves(instance, sizes, rng), _reals(instance, rng, sign)
    return Match((), leaves, sizes, reals, frozenset(), ELEMENTS[instance.types])


def _leaves(instance: Instance, sizes: Mapping[str, int], rng: random.Random) -> dict[str, Value]:
    """Inputs of the shapes that the sizes give, or of random ones that broadcast."""
    leaves: dict[str, Value] = {}
    common = rng.sample((2, 3, 5, 7), 3)
    for value in instance.inputs:
        if instance.broadcast:
            tail = common[rng.choice((0, 0, 1, 2)) :]
            shape: Shape = tuple(size if rng.random() < 0.8 else 1 for size in tail)
        else:
            shape = tuple(evaluate(size, sizes) for size in value.shape)
        name, sort = leaf_name(value), value.type.dtype
        dtype = {REAL: ELEMENTS[instance.types], INT: "INT64"}.get(sort, sort)
        leaves[name] = leaf(name, TensorType(dtype, shape))
    return leaves


def _reals(instance: Instance, rng: random.Random, sign: int) -> dict[str, Fraction]:
    """Real numbers, pairwise different unless they are 0, that satisfy the facts."""
    names = sorted(real_symbols((*instance.lhs, *instance.rhs)))
    numbers = rng.sample(range(1, 200), len(names))
    reals: dict[str, Fraction] = {}
    for name, number in zip(names, numbers, strict=True):
        value = Fraction(2 * number + 1, 16)
        facts = [fact for fact in instance.facts if fact.name == name]
        signed = sign * rng.choice((1, -1)) * value
        reals[name] = signed if all(fact.holds(signed) for fact in facts) else value
    return reals
