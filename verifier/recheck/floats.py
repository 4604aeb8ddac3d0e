"""Whether the sides agree to the last bit where they are computed in 32-bit floats.

``numbers``: no operation on either side rounds. That is read off the specifications, and holds for
all sizes and numbers.

``bits``: both sides apply the same operations to the same elements. That is a test: both sides are
run at random sizes, operator by operator, on elements with NaN, infinities, zeros, ties and digits
to the last place. An operator of which one operation is made is that operation, rounded once. What
another one computes, in which order and with how many roundings, is its kernel's business: a
function takes its place that gives random numbers, the same for the same operands. So sides agree
only if they apply the same kernels to the same numbers, and by chance hardly ever. The sign of a
zero is not told apart.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from xflow.constraint import Constraint
from xflow.errors import ShapeError
from xflow.facts import BELOW_INFINITY, NONNEGATIVE, NONZERO, POSITIVE
from xflow.graph import Leaf, Node, TensorType, Value, apply, leaf, walk
from xflow.ops.composite import Composite
from xflow.ops.registry import Array, Attribute, Operator, Reader, RealSymbol
from xflow.ops.sorts import BOOL, INT, REAL
from xflow.ops.spec import (
    Call,
    Element,
    If,
    Index,
    Literal,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    truth,
)
from xflow.rule import BITS, Instance
from xflow.size import Expr, evaluate, symbol
from xflow.verifier.recheck.comparisons import orders
from xflow.verifier.recheck.defined import read_whole
from xflow.verifier.recheck.evaluate import assignments
from xflow.verifier.recheck.forms import Unreplayable
from xflow.verifier.recheck.ranges import indices_of
from xflow.verifier.recheck.verdicts import BitsError

CASES = 6
"""Assignments of sizes at which sides that are to agree to the bit are run."""
DRAWS = 8
"""Inputs on which they are run at each."""
LEAST = 2
TRIES = 12
MAX_ELEMENTS = 4000
ROUNDING_FREE = ("max", "min", "abs", "sign", "floor")
"""Functions that give a float for floats."""
SPECIAL = (np.nan, np.inf, -np.inf, 0.0)


def may_round(scalar: Scalar) -> bool:
    """Whether an operation in `scalar`, from `read_whole`, may round its result."""
    match scalar:
        case Plus(args):
            return len(args) > 1 or any(map(may_round, args))
        case Times(args):
            factors = [a for a in args if not (isinstance(a, Literal) and abs(a.value) == 1)]
            return len(factors) > 1 or any(map(may_round, factors))
        case SumOver(_, extent, body) | ProductOver(_, extent, body):
            return extent != 1 or may_round(body)
        case MaxOver(_, _, body):
            return may_round(body)
        case If(conditions, then, other):
            compared = [s for found in orders(conditions) for s in (found.left, found.right)]
            return any(map(may_round, (then, other, *compared)))
        case Call(function, args):
            return function not in ROUNDING_FREE or any(map(may_round, args))
    return False


def check_exact(instance: Instance, assumed: Sequence[Constraint]) -> None:
    """Check what the line ``exact`` says. Raises Unreplayable, BitsError."""
    if instance.exact is None:
        return
    if instance.exact != BITS:
        for value in (*instance.lhs, *instance.rhs):
            index = tuple(symbol(f"_i{axis}") for axis in range(len(value.shape)))
            if may_round(read_whole(value, index)):
                raise Unreplayable(
                    f"{value} may round: the sides are not shown to agree for numbers"
                )
    for left, right in zip(instance.lhs, instance.rhs, strict=True):
        difference = find_difference(instance, (left, right), assumed, instance.exact == BITS)
        if difference is not None:
            if difference.is_certain:
                raise BitsError(f"the sides do not agree to the bit: {difference.words}")
            raise Unreplayable(f"the sides are not shown to agree to the bit: {difference.words}")


@dataclass(frozen=True)
class OtherBits:
    """That two outputs differ, in words."""

    words: str
    is_certain: bool
    """Whether nothing took the place of an operator's kernel."""


def find_difference(
    instance: Instance,
    sides: tuple[Value, Value],
    assumed: Sequence[Constraint],
    special: bool = True,
    cases: int = CASES,
) -> OtherBits | None:
    """Where the two sides of an output differ in some bit; None where none was found to.

    With `special`, elements are NaN and infinite, too. Raises Unreplayable where hardly any sizes
    are found at which both can be run.
    """
    rng = random.Random(f"{sides} {instance.rank}")
    done = 0
    for sizes in assignments(instance, assumed, rng, TRIES * cases):
        compared = False
        for _ in range(DRAWS):
            made = _Run.of(instance, sides, sizes, rng, special)
            if made is None:
                break
            left, right = (made.array(value) for value in made.sides)
            compared |= bool(left.size)
            if left.shape != right.shape or not _same(left, right):
                shown = ", ".join(f"{name} = {value}" for name, value in sorted(sizes.items()))
                words = f"{_first_difference(left, right)}, with {shown or 'no sizes'}"
                return OtherBits(words, not made.replaced)
            if not left.size:
                break
        done += compared
        if done == cases:
            break
    if done < LEAST:
        raise Unreplayable("hardly any sizes were found at which both sides can be run in floats")
    return None


def _same(left: Array, right: Array) -> bool:
    if left.dtype.kind != "f":
        return bool(np.array_equal(left, right))
    return bool(np.array_equal(left, right, equal_nan=True))


def _first_difference(left: Array, right: Array) -> str:
    if left.shape != right.shape:
        return f"the shapes are {list(left.shape)} and {list(right.shape)}"
    for place in np.ndindex(*left.shape):
        if not _same(left[place], right[place]):
            return f"at {list(place)} they are {left[place]} and {right[place]}"
    return "they differ"


@dataclass
class _Run:
    """Both sides at some sizes and on some inputs."""

    sides: tuple[Value, ...]
    inputs: Mapping[str, Array]
    special: bool
    replaced: bool = False
    """Whether random numbers took the place of what some operator computes."""

    def __post_init__(self) -> None:
        self._known: dict[Node, list[Array]] = {}

    @classmethod
    def of(
        cls,
        instance: Instance,
        sides: Sequence[Value],
        sizes: Mapping[str, int],
        rng: random.Random,
        special: bool,
    ) -> _Run | None:
        """None where the sides cannot be made, or are too large."""
        relations = _relations(instance)
        reals = {name: _real(rng, relations.get(name, ())) for name in sorted(_real_symbols(sides))}
        try:
            made = concrete(sides, sizes, reals)
        except (ShapeError, ZeroDivisionError):
            return None
        values = [value for node in walk(made) for value in node.outputs]
        if sum(_count(value) for value in values) > MAX_ELEMENTS:
            return None
        spans = _spans(made[:1])
        inputs: dict[str, Array] = {}
        for value in instance.inputs:
            assert isinstance(value.node.op, Leaf)
            name = value.node.op.key
            shape = [evaluate(size, sizes) for size in value.shape]
            drawn = _draw(value.type.dtype, relations.get(name, ()), spans.get(name), rng, special)
            flat = [drawn() for _ in range(int(np.prod(shape)))]
            kind = {REAL: np.float32, BOOL: np.bool_, INT: np.int64}[value.type.dtype]
            inputs[name] = _stored(np.array(flat, dtype=kind).reshape(shape), value.type)
        run = cls(tuple(made), inputs, special)
        try:
            for value in run.sides:
                run.array(value)
        except (IndexError, ShapeError, ZeroDivisionError):  # a place, or an extent, that is none
            return None
        return run

    def array(self, value: Value) -> Array:
        """What a value is."""
        node = value.node
        if node not in self._known:
            if isinstance(node.op, Leaf):
                self._known[node] = [self.inputs[node.op.key]]
            else:
                with np.errstate(all="ignore"):
                    made = self._computed(node)
                self._known[node] = [
                    _stored(array, kind) for array, kind in zip(made, node.types, strict=True)
                ]
        return self._known[node][value.index]

    def _computed(self, node: Node) -> list[Array]:
        op = node.op
        assert isinstance(op, Operator)
        arrays = [self.array(source) for source in node.inputs]
        if not node.inputs or all(map(_selects, _specified(node))):
            return op.numpy([_wide(array) for array in arrays], node.attributes)
        if not self.special:  # nothing rounds: any reading will do, the definition's first of all
            return self._defined(node, arrays)
        if not op.elementwise:
            return self._replaced(node, arrays)
        if _roundings(node) > 1:
            return [self._element_by_element(node, arrays, self._random)]
        if isinstance(op, Composite):
            return self._defined(node, arrays)
        return [self._element_by_element(node, arrays, _one_operation)]

    def _defined(self, node: Node, arrays: Sequence[Array]) -> list[Array]:
        op = node.op
        assert isinstance(op, Operator)
        if isinstance(op, Composite):
            return [self.array(value) for value in op.define(node.inputs, node.attributes)]
        return op.numpy([_wide(array) for array in arrays], node.attributes)

    def _element_by_element(
        self,
        node: Node,
        arrays: Sequence[Array],
        function: Callable[[Node, Sequence[Array]], Array],
    ) -> Array:
        spread = np.broadcast_arrays(*arrays)
        shape = spread[0].shape
        flat = [array.reshape(-1) for array in spread]
        made = [function(node, [array[k : k + 1] for array in flat]) for k in range(flat[0].size)]
        kind = {REAL: np.float64, BOOL: np.bool_, INT: np.int64}.get(
            node.types[0].dtype, np.float64
        )
        return np.array([array.reshape(-1)[0] for array in made], dtype=kind).reshape(shape)

    def _random(self, node: Node, operands: Sequence[Array]) -> Array:
        """A random number for what an operator makes of some elements."""
        self.replaced = True
        return _generator(node, operands, 0).normal(size=1)

    def _replaced(self, node: Node, arrays: Sequence[Array]) -> list[Array]:
        """Random numbers for what an operator makes of tensors."""
        self.replaced = True
        made: list[Array] = []
        for number, kind in enumerate(node.types):
            generator = _generator(node, arrays, number)
            shape = [evaluate(size, {}) for size in kind.shape]
            if kind.dtype == BOOL:
                made.append(generator.integers(0, 2, shape).astype(bool))
            elif kind.dtype == INT:
                made.append(generator.integers(0, 3, shape))
            else:
                array = generator.normal(size=shape)
                made.append(np.where(generator.random(shape) < 0.1, np.nan, array))
        return made


def _one_operation(node: Node, operands: Sequence[Array]) -> Array:
    """What an operator computes: in 64 bits, of which rounding to 32 makes the nearest float.

    For sums, products, quotients and roots, 53 digits are enough for 24, see S. A. Figueroa, When
    is double rounding innocuous?, SIGNUM 30 (1995).
    """
    assert isinstance(node.op, Operator)
    return np.asarray(node.op.numpy([_wide(array) for array in operands], node.attributes)[0])


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _stored(array: Array, kind: TensorType) -> Array:
    """As a tensor holds it: in 32 bits, with one kind of zero."""
    if kind.dtype == BOOL:
        return np.asarray(array).astype(bool)
    if kind.dtype == INT:
        return np.asarray(array).astype(np.int64)
    if kind.dtype != REAL:
        return np.asarray(array)
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(np.float32) + np.float32(0)


def _generator(node: Node, arrays: Iterable[Array], output: int) -> np.random.Generator:
    assert isinstance(node.op, Operator)
    attributes = sorted((key, str(value)) for key, value in node.attributes.items())
    digest = hashlib.blake2b(f"{node.op.name} {attributes} {output}".encode())
    for array in arrays:
        digest.update(str((array.shape, array.dtype)).encode())
        plain = np.where(np.isnan(array), np.nan, array) if array.dtype.kind == "f" else array
        digest.update(np.ascontiguousarray(plain).astype(array.dtype).tobytes())
    return np.random.default_rng(int.from_bytes(digest.digest()[:8], "big"))


# What operators are -------------------------------------------------------------------------------


def _specified(node: Node) -> list[Scalar]:
    """What an element of each output is, over elements of tensors that stand for the inputs."""
    op = node.op
    assert isinstance(op, Operator)
    shapes = [source.shape for source in node.inputs]
    readers = [_reader(number, source) for number, source in enumerate(node.inputs)]
    found = []
    for output, kind in enumerate(node.types):
        index = tuple(symbol(f"_i{axis}") for axis in range(len(kind.shape)))
        found.append(op.at(readers, shapes, node.attributes, output, index))
    return found


def _reader(number: int, source: Value) -> Reader:
    def reader(index: Index) -> Scalar:
        if source.type.dtype == BOOL:
            return truth(f"#{number}", tuple(index))
        return Element(f"#{number}", tuple(index))

    return reader


def _selects(scalar: Scalar) -> bool:
    """Whether `scalar` is an element or a number, which one told by what is no real number."""
    match scalar:
        case Element() | Literal():
            return True
        case If(conditions, then, other):
            return not any(orders(conditions)) and _selects(then) and _selects(other)
    return False


def _roundings(node: Node) -> int:
    """How many operations of an elementwise operator may round."""
    op = node.op
    assert isinstance(op, Operator)
    if isinstance(op, Composite):
        inside = walk(op.define(node.inputs, node.attributes), node.inputs)
        return sum(_roundings(inner) for inner in inside if isinstance(inner.op, Operator))
    return sum(map(_operations, _specified(node)))


def _operations(scalar: Scalar) -> int:
    match scalar:
        case Plus(args):
            return len(args) - 1 + sum(map(_operations, args))
        case Times(args):
            factors = [a for a in args if not (isinstance(a, Literal) and abs(a.value) == 1)]
            inverse = [a for a in factors if isinstance(a, Call) and a.function == "reciprocal"]
            # a * (1 / b) is one operation, a quotient
            joined = 1 if inverse and len(factors) > 1 else 0
            return max(len(factors) - 1, 0) - joined + sum(map(_operations, factors))
        case If(conditions, then, other):
            compared = [s for found in orders(conditions) for s in (found.left, found.right)]
            return sum(map(_operations, (then, other, *compared)))
        case Call(function, args):
            return (function not in ROUNDING_FREE) + sum(map(_operations, args))
        case SumOver(_, _, body) | ProductOver(_, _, body) | MaxOver(_, _, body):
            return 2 + _operations(body)
    return 0


# Making the sides ---------------------------------------------------------------------------------


def concrete(
    values: Sequence[Value], sizes: Mapping[str, int], reals: Mapping[str, Fraction]
) -> list[Value]:
    """The values with numbers for all symbols. Raises ShapeError, ZeroDivisionError."""
    made: dict[Value, Value] = {}

    def number(attribute: Attribute) -> Attribute:
        if isinstance(attribute, RealSymbol):
            return reals[attribute.name]
        if isinstance(attribute, tuple):
            return tuple(evaluate(item, sizes) for item in attribute)
        return evaluate(attribute, sizes) if isinstance(attribute, Expr) else attribute

    for node in walk(values):
        if isinstance(node.op, Leaf):
            shape = tuple(evaluate(size, sizes) for size in node.types[0].shape)
            made[node.outputs[0]] = leaf(node.op.key, TensorType(node.types[0].dtype, shape))
            continue
        assert isinstance(node.op, Operator)
        attributes = {key: number(value) for key, value in node.attributes.items()}
        sources = [made[source] for source in node.inputs]
        outputs = apply(node.op, sources, attributes, dtype=node.types[0].dtype)
        made.update(zip(node.outputs, outputs, strict=True))
    return [made[value] for value in values]


def _count(value: Value) -> int:
    total = 1
    for size in value.shape:
        total *= evaluate(size, {})
    return total


def _real_symbols(values: Sequence[Value]) -> set[str]:
    return {
        attribute.name
        for node in walk(values)
        for attribute in node.attributes.values()
        if isinstance(attribute, RealSymbol)
    }


def _relations(instance: Instance) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for fact in instance.facts:
        found[fact.name] = (*found.get(fact.name, ()), fact.relation)
    return found


def _spans(values: Sequence[Value]) -> dict[str, tuple[int, int]]:
    """Where the elements of inputs of integers have to lie."""
    found: dict[str, tuple[int, int]] = {}
    for indices in indices_of(values):
        low, high = evaluate(indices.low, {}), evaluate(indices.high, {})
        for node in walk([indices.value]):
            if isinstance(node.op, Leaf) and node.types[0].dtype == INT:
                before = found.get(node.op.key, (low, high))
                found[node.op.key] = max(low, before[0]), min(high, before[1])
    return found


def _real(rng: random.Random, relations: Sequence[str]) -> Fraction:
    value = Fraction(rng.randrange(-20, 21), 8)
    if POSITIVE in relations or (NONZERO in relations and not value):
        return abs(value) or Fraction(1, 8)
    return abs(value) if NONNEGATIVE in relations else value


def _draw(
    dtype: str,
    relations: Sequence[str],
    span: tuple[int, int] | None,
    rng: random.Random,
    special: bool,
) -> Callable[[], Any]:
    """What draws the elements of an input."""
    if dtype == BOOL:
        return lambda: rng.random() < 0.5
    if dtype == INT:
        low, high = span or (-2, 3)
        return lambda: rng.randrange(low, max(high, low + 1))
    share = rng.choice((0.0, 0.2, 0.5)) if special else 0.0
    scale = rng.choice((1.0, 1.0, 1.0, 1e-30, 1e30))
    met: list[float] = []

    def number() -> float:
        if met and rng.random() < 0.2:
            value = rng.choice(met) * rng.choice((1, 1, -1))
        elif rng.random() < 0.2:
            value = float(rng.randrange(-3, 4))
        else:
            value = rng.uniform(-4, 4) * scale
        met.append(value)
        if POSITIVE in relations or NONNEGATIVE in relations:
            value = abs(value)
        if (POSITIVE in relations or NONZERO in relations) and not np.float32(value):
            value = 1.0
        return value

    def element() -> float:
        if rng.random() >= share:
            return number()
        if not relations:
            return rng.choice(SPECIAL)
        return -np.inf if set(relations) == {BELOW_INFINITY} else number()

    return element
