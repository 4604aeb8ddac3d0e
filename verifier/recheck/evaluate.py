"""Evaluates both sides of a rule at random sizes, in exact arithmetic where possible.

Functions are approximated. A difference found so counts only if it is confirmed by numbers that are
exact or enclosed by bounds; a point at which these do not decide is ignored.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from xflow.core.assignments import Assignment, Assignments, connected
from xflow.core.constraint import Constraint, Relation
from xflow.core.enclosure import UndecidedError, differ
from xflow.core.evaluation import read
from xflow.core.graph import walk
from xflow.core.node import Leaf, Value
from xflow.core.registry import RealSymbol
from xflow.core.size import (
    Expr,
    Size,
    Symbol,
    coefficient_of,
    evaluate,
    free_symbols,
    substitute,
    symbol,
)
from xflow.core.sorts import BOOL, CODE, INT, integer_range
from xflow.core.spec import Call, If, Literal, MaxOver, Plus, ProductOver, Scalar, SumOver, Times
from xflow.core.value_conditions import EXACT_SUMS, Fact
from xflow.rewriting.instance import Instance, attribute_symbols
from xflow.verifier.recheck.comparisons import orders
from xflow.verifier.recheck.compiled import (
    Compiled,
    compiled,
    compiled_conditions,
    compiled_steps,
)
from xflow.verifier.recheck.defined import read_whole
from xflow.verifier.recheck.exact import value_of
from xflow.verifier.recheck.forms import Unreplayable
from xflow.verifier.recheck.ranges import indices_of
from xflow.verifier.recheck.solver import find_integers
from xflow.verifier.recheck.steps import types_of_codes
from xflow.verifier.recheck.verdicts import Difference

TOLERANCE = 1e-7
"""Relative, and only where a function has no exact value."""
POINTS = 3
"""Output elements evaluated at each assignment of sizes."""
AGREEING = 80
"""Assignments of sizes at which expressions are compared that nothing more exact decides on: so
many that a branch is taken which a few large elements alone take."""
MAX_STEPS = 4000
"""Summands that an output element may have."""
AT_ENDS = 0.1
"""How many codes are the least or the greatest one of their type."""
TRIES = 12
GUESSES = 3000
"""Random assignments of connected symbols tried in vain before the solver is asked for others."""
Sizes = Mapping[str, int]
Reader = Mapping[str, Any]


class DifferError(Exception):
    """The two sides are not the same."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


@dataclass(frozen=True)
class _Output:
    """One output of both sides at a symbolic index, to be read and to be run."""

    number: int
    left: Value
    right: Value
    scalars: tuple[Scalar, Scalar]
    run_left: Compiled
    run_right: Compiled
    steps: tuple[Callable[[Sizes], int], ...]

    @classmethod
    def of(cls, number: int, left: Value, right: Value) -> _Output:
        index = _index(left)
        a, b = read(left, index), read(right, index)
        steps = tuple(map(compiled_steps, (a, b)))
        return cls(number, left, right, (a, b), compiled(a), compiled(b), steps)

    @cached_property
    def whole(self) -> tuple[Scalar, Scalar]:
        """Both sides with all that must be defined. Raises ShapeError where there is no reading."""
        index = _index(self.left)
        return read_whole(self.left, index), read_whole(self.right, index)


def _index(value: Value) -> tuple[Size, ...]:
    return tuple(symbol(f"_i{axis}") for axis in range(len(value.shape)))


def compare_at_random(
    instance: Instance,
    assumed: Sequence[Constraint],
    cases: int,
    least: int,
    satisfying: Assignments,
) -> int:
    """Compare at `cases` assignments of sizes; returns the number of elements compared.

    The assignments are put into `satisfying`.
    Raises DifferError, and Unreplayable where fewer than `least` assignments could be compared at.
    """
    rng = random.Random(f"{instance.lhs} {instance.rhs} {instance.rank}")
    sides = zip(instance.lhs, instance.rhs, strict=True)
    outputs = [_Output.of(number, left, right) for number, (left, right) in enumerate(sides)]
    numbers = _literals(scalar for output in outputs for scalar in output.scalars)
    done = points = 0
    for sizes in assignments(instance, assumed, rng, TRIES * cases):
        few = _few(numbers, rng) if done % 2 else None
        satisfying.learn(Assignment(sizes, {}), assumed)
        compared = sum(_compare(instance, output, sizes, rng, few) for output in outputs)
        done, points = done + bool(compared), points + compared
        if done == cases:
            break
    if done < least:
        raise Unreplayable("hardly any sizes were found at which both sides can be evaluated")
    return points


def agree_at_random(
    instance: Instance,
    scalars: tuple[Scalar, Scalar],
    extents: Sequence[Size],
    assumed: Sequence[Constraint],
) -> bool:
    """Whether two expressions of an output's element agree wherever the first one is defined.

    They are compared at random assignments of sizes; False, too, where none were found.
    """
    rng = random.Random(f"{instance.lhs} {instance.rhs} {instance.rank} {extents}")
    first, second = map(compiled, scalars)
    steps = tuple(map(compiled_steps, scalars))
    numbers = _literals(scalars)
    compared = 0
    for number, sizes in enumerate(assignments(instance, assumed, rng, TRIES * AGREEING)):
        shape = [evaluate(size, sizes) for size in extents]
        if 0 in shape or max(count(sizes) for count in steps) > MAX_STEPS:
            continue
        tensors = _inputs(instance, sizes, rng, _few(numbers, rng) if number % 2 else None)
        if not all(_holds(fact, tensors) for fact in instance.facts if fact.name in tensors):
            continue
        for _ in range(POINTS):
            env = {**sizes, **{f"_i{axis}": rng.randrange(n) for axis, n in enumerate(shape)}}
            try:
                expected = first(tensors, env)
            except (ZeroDivisionError, ValueError, OverflowError, IndexError):
                continue  # the first one is not defined here
            try:
                if not _agree(expected, second(tensors, env)):
                    return False
            except (ZeroDivisionError, ValueError, OverflowError, IndexError):
                return False
            compared += 1
        if compared >= AGREEING * POINTS:
            break
    return compared > 0


def _compare(
    instance: Instance,
    output: _Output,
    sizes: Sizes,
    rng: random.Random,
    few: Sequence[Fraction] | None,
) -> int:
    shape = [evaluate(size, sizes) for size in output.left.shape]
    if 0 in shape or max(count(sizes) for count in output.steps) > MAX_STEPS:
        return 0
    tensors = _inputs(instance, sizes, rng, few)
    known = [fact for fact in instance.facts if fact.name in tensors]
    if not all(_holds(fact, tensors) for fact in known):
        return 0
    compared = 0
    points = {tuple(rng.randrange(n) for n in shape) for _ in range(POINTS)}
    for point in sorted(points):
        env = {**sizes, **{f"_i{axis}": p for axis, p in enumerate(point)}}
        try:
            expected = output.run_left(tensors, env)
        except (ZeroDivisionError, ValueError, OverflowError, IndexError):
            continue  # the left side is not defined here
        try:
            agrees = _agree(expected, output.run_right(tensors, env))
        except OverflowError:
            continue
        except (ZeroDivisionError, ValueError, IndexError):
            agrees = False
        if not agrees:
            exactly = _exactly(instance, output, tensors, env)
            if exactly is None:
                continue
            if exactly:
                inputs = {n: array for n, array in tensors.items() if not n.startswith("%")}
                raise DifferError(
                    Difference(instance.rank, sizes, inputs, output.number, point, *exactly)
                )
        compared += 1
    return compared


def _exactly(
    instance: Instance, output: _Output, tensors: Mapping[str, Any], env: Sizes
) -> tuple[str, str] | tuple[()] | None:
    """Both sides where they differ, nothing where they do not; None where it cannot be decided."""
    try:
        whole_left, whole_right = output.whole
        left = value_of(whole_left, tensors, env)
        looks_up = _is_in_range(instance.lhs, tensors, env)
    except (UndecidedError, IndexError, ZeroDivisionError, ValueError, Unreplayable):
        return None
    if left is None or not left.is_defined or not looks_up:
        return None  # the rule claims nothing there
    try:
        right = value_of(whole_right, tensors, env)
    except (IndexError, ZeroDivisionError) as error:
        return str(left), f"undefined ({error})"
    except (UndecidedError, ValueError, Unreplayable):
        return None
    if right is None or not right.is_defined:
        return str(left), "undefined"
    found = differ(left, right)
    return None if found is None else (str(left), str(right)) if found else ()


def _is_in_range(values: Iterable[Value], tensors: Mapping[str, Any], env: Sizes) -> bool:
    """Whether all indices under `values` are in range, those that no element is read at included.

    Raises what `value_of` does.
    """
    for indices in indices_of(values):
        index = _index(indices.value)
        scalar = read_whole(indices.value, index)
        low, high = evaluate(indices.low, env), evaluate(indices.high, env)
        shape = [evaluate(size, env) for size in indices.value.shape]
        for place in itertools.product(*map(range, shape)):
            at = {**env, **{f"_i{axis}": p for axis, p in enumerate(place)}}
            element = value_of(scalar, tensors, at)
            if element is None or not low <= element < high:
                return False
    return True


def _literals(scalars: Iterable[Scalar]) -> list[Fraction]:
    """The numbers that scalars name, at any depth."""
    found: set[Fraction] = set()
    stack = list(scalars)
    while stack:
        match stack.pop():
            case Literal(value):
                found.add(value)
            case Plus(args) | Times(args) | Call(_, args):
                stack += args
            case SumOver(_, _, body) | MaxOver(_, _, body) | ProductOver(_, _, body):
                stack.append(body)
            case If(conditions, then, other):
                stack += (then, other)
                stack += (s for order in orders(conditions) for s in (order.left, order.right))
    return sorted(found)


def _few(numbers: Sequence[Fraction], rng: random.Random) -> list[Fraction]:
    """A few numbers of which all elements are: equal ones meet, and thresholds are met."""
    known = [Fraction(0), Fraction(1), Fraction(rng.randint(-12, 12), 4), *numbers]
    named = numbers if numbers and rng.random() < 0.6 else known
    one, other = rng.choice(named), rng.choice(known)
    beside = rng.choice((Fraction(1, 4), Fraction(1), Fraction(4)))
    made = [other, -one, one - other, one + other, one + beside, one - beside]
    if other:
        made += (one / other, one / other + beside, one * other + beside)
    scale = rng.choice((1, 1, 1, 1, 8, Fraction(1, 8)))
    return [scale * number for number in (one, *rng.sample(made, rng.randint(1, 4)))]


def _agree(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        if not (math.isfinite(a) and math.isfinite(b)):
            return True  # beyond the range of the approximation
        return bool(abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b)))
    return bool(a == b)


def _inputs(
    instance: Instance, sizes: Sizes, rng: random.Random, few: Sequence[Fraction] | None
) -> dict[str, Any]:
    facts = {fact.name: fact.relation for fact in instance.facts}
    tensors: dict[str, Any] = {}
    types = types_of_codes(instance)
    codes = rng.choice(types) if types else {}
    for value in instance.inputs:
        assert isinstance(value.node.op, Leaf)
        name, shape = value.node.op.key, [evaluate(size, sizes) for size in value.shape]
        array = np.empty(shape, dtype=object)
        for position in np.ndindex(*shape):
            element = _element(value.type.dtype, facts.get(name), rng, few)
            array[position] = _code(element, codes[name], rng) if name in codes else element
        tensors[name] = array
    for node in walk((*instance.lhs, *instance.rhs)):
        for attribute in node.attributes.values():
            if isinstance(attribute, RealSymbol):
                array = np.empty((), dtype=object)
                array[()] = _element("", facts.get(attribute.name), rng, few)
                for key in (attribute.name, f"%{attribute.name}"):
                    tensors.setdefault(key, array)
    return tensors


def _holds(fact: Fact, tensors: Mapping[str, Any]) -> bool:
    """Whether a condition holds of elements that are fractions."""
    kind = np.int64 if fact.relation == EXACT_SUMS else np.float64
    return fact.holds(*(tensors[name].astype(kind) for name in fact.names))


def _element(
    dtype: str, relation: str | None, rng: random.Random, few: Sequence[Fraction] | None
) -> Fraction:
    if dtype == BOOL:
        return Fraction(rng.randrange(2))
    if dtype in (INT, CODE):
        return Fraction(rng.randrange(-2, 4))
    if few is None:
        value = Fraction(rng.randint(-12, 12), rng.choice((1, 2, 3, 5)))
    else:
        value = rng.choice(few)
    if relation == ">" or (relation == "!=" and not value):
        return abs(value) + Fraction(1, 7)
    return abs(value) if relation == ">=" else value


def _code(drawn: Fraction, dtype: str, rng: random.Random) -> Fraction:
    """A code of a type, near 0 mostly; an end of its range at times."""
    low, high = integer_range(dtype)
    if rng.random() < AT_ENDS:
        return Fraction(rng.choice((low, high)))
    return min(max(drawn, Fraction(low)), Fraction(high))


def assignments(
    instance: Instance, assumed: Sequence[Constraint], rng: random.Random, tries: int
) -> Iterator[dict[str, int]]:
    """Random integers for all symbols that satisfy what is assumed."""
    names = sorted(
        attribute_symbols((*instance.lhs, *instance.rhs)).union(
            *(c.symbols for c in assumed),
            *(free_symbols(size) for value in instance.inputs for size in value.shape),
        )
    )
    if any(c.decided is False for c in assumed):
        return
    parts = [_Part.of(group, conditions) for group, conditions in connected(names, assumed)]
    for _ in range(tries):
        sizes: dict[str, int] = {}
        for part in parts:
            found = part.draw(rng)
            if found is None:
                return
            sizes |= found
        yield sizes


@dataclass
class _Part:
    """Symbols that conditions connect, to be drawn apart from all others."""

    names: Sequence[str]
    conditions: Sequence[Constraint]
    defined: Mapping[str, Size]
    holds: Callable[[Mapping[str, int]], bool]
    products: Sequence[Sequence[str]]
    """Symbols whose products are to be equal, as in a Reshape."""
    low: Mapping[str, int]
    """Lower bounds of the symbols."""
    guesses: int = GUESSES

    @classmethod
    def of(cls, names: Sequence[str], conditions: Sequence[Constraint]) -> _Part:
        holds = compiled_conditions(conditions)
        low = {name: _least(name, conditions) for name in names}
        return cls(names, conditions, _defined(conditions), holds, _products(conditions), low)

    def draw(self, rng: random.Random) -> dict[str, int] | None:
        """Integers that satisfy the conditions; None where none are found."""
        while self.guesses:
            self.guesses -= 1
            free = (name for name in self.names if name not in self.defined)
            sizes = {name: max(self.low[name], _integer(rng)) for name in free}
            if self.products and self.guesses % 4:
                sizes |= _factors(self.products, rng)
            if _complete(sizes, self.defined) and self.holds(sizes):
                self.guesses = GUESSES
                return sizes
        for _ in range(TRIES):  # what the solver finds need not hold where it divides by 0
            order = rng.sample(self.names, len(self.names))
            wanted = {name: max(self.low[name], _integer(rng)) for name in order}
            found = find_integers(tuple(self.conditions), wanted)
            if found is None or self.holds(found):
                return found
        return None


def _products(conditions: Sequence[Constraint]) -> list[Sequence[str]]:
    """The symbols of both sides of each condition that two products of symbols are equal."""
    found: dict[tuple[str, ...], None] = {}
    for condition in conditions:
        difference = condition.difference
        if condition.relation is not Relation.EQUAL or not isinstance(difference, Expr):
            continue
        sides = [monomial for monomial, _ in difference.terms]
        plain = all(isinstance(atom, Symbol) for side in sides for atom in side)
        if plain and sorted(c for _, c in difference.terms) == [-1, 1] and min(map(len, sides)) > 1:
            found |= {tuple(map(str, side)): None for side in sides}
    return list(found)


def _factors(products: Sequence[Sequence[str]], rng: random.Random) -> dict[str, int]:
    """One number, split into factors at random for each of the products."""
    primes = [rng.choice((2, 2, 3)) for _ in range(rng.randrange(5))]
    sizes: dict[str, int] = {}
    for names in products:
        sizes |= dict.fromkeys(names, 1)
        for prime in primes:
            sizes[rng.choice(names)] *= prime
    return sizes


def _least(name: str, assumed: Sequence[Constraint]) -> int:
    """A lower bound that conditions of their own put on a symbol."""
    low = -2
    for condition in assumed:
        if condition.relation is Relation.AT_LEAST and condition.symbols == {name}:
            split = coefficient_of(condition.difference, name)
            if split is not None and split[0] == 1 and isinstance(split[1], int):
                low = max(low, -split[1])
    return low


def _integer(rng: random.Random) -> int:
    return rng.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, -1))


def _defined(assumed: Sequence[Constraint]) -> dict[str, Size]:
    """Symbols that an equation gives in terms of others."""
    found: dict[str, Size] = {}
    for condition in assumed:
        if condition.relation is not Relation.EQUAL:
            continue
        for name in sorted(condition.symbols - found.keys()):
            split = coefficient_of(condition.difference, name)
            if split is None or abs(split[0]) != 1 or name in free_symbols(split[1]):
                continue
            value = substitute(-split[1] * split[0], found)
            if name not in free_symbols(value):
                found = {n: substitute(size, {name: value}) for n, size in found.items()}
                found[name] = value
                break
    return found


def _complete(sizes: dict[str, int], defined: Mapping[str, Size]) -> bool:
    try:
        for name, value in defined.items():
            sizes[name] = evaluate(value, sizes)
    except ZeroDivisionError:
        return False
    return True
