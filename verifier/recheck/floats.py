"""Checks the line ``exact``: whether the sides agree to the last bit in 32-bit floats.

``numbers``: no operation on either side rounds. That is read off the specifications, and holds for
all sizes and numbers.

``bits``: both sides apply the same operations to the same elements. That is a test: both sides are
run at random sizes, operator by operator, on elements with NaN, infinities, zeros, ties and digits
to the last place. An operator that is one operation is computed as such, rounded once, on integers
as the floats that are nearest to them. How a kernel computes any other operator, in which order and
with how many roundings, is unknown: it is replaced by a function that gives random numbers, NaN and
infinities among them, the same for the same operands. So sides agree only if they apply the same
kernels to the same numbers, and by chance hardly ever. Zeros of either sign are equal.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np

from xflow.core.composite import Composite
from xflow.core.constraint import Constraint
from xflow.core.errors import ShapeError
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, TensorType, Value, apply, hidden_positions, leaf
from xflow.core.registry import Array, Attribute, Operator, Reader, RealSymbol
from xflow.core.size import Expr, evaluate, symbol
from xflow.core.sorts import BOOL, CODE, INT, REAL
from xflow.core.spec import (
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
from xflow.core.value_conditions import BELOW_INFINITY, NONNEGATIVE, NONZERO, POSITIVE
from xflow.rewriting.instance import Instance
from xflow.verifier.recheck.comparisons import orders
from xflow.verifier.recheck.defined import read_whole
from xflow.verifier.recheck.evaluate import assignments
from xflow.verifier.recheck.forms import Unreplayable
from xflow.verifier.recheck.ranges import indices_of

CASES = 6
"""Assignments of sizes at which sides that are to agree to the bit are run."""
DRAWS = 8
"""Inputs on which they are run at each."""
LEAST = 2
TRIES = 12
MAX_ELEMENTS = 4000
ROUNDING_FREE = ("max", "min", "abs", "sign", "floor", "round")
"""Functions that give a float for floats."""
SPECIAL = (np.nan, np.inf, -np.inf, 0.0)
STRANGE = (np.nan, np.nan, np.inf, -np.inf)
"""What one in eight results of an operator is whose kernel is unknown."""


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


def rounded(instance: Instance) -> Value | None:
    """An output of either side of which some operation may round its result; None where none is."""
    for value in (*instance.lhs, *instance.rhs):
        index = tuple(symbol(f"_i{axis}") for axis in range(len(value.shape)))
        if may_round(read_whole(value, index)):
            return value
    return None


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
    *,
    cases: int = CASES,
    least: int = LEAST,
) -> OtherBits | None:
    """Where the two sides of an output differ in some bit; None where none was found to.

    With `special`, elements are NaN and infinite, too. Raises Unreplayable where fewer than `least`
    assignments of sizes are found at which both can be run.
    """
    rng = random.Random(f"{sides} {instance.rank}")
    done = 0
    for sizes in assignments(instance, assumed, rng, TRIES * CASES):
        made = _Sides.of(instance, sides, sizes, rng)
        if made is None:
            continue
        compared = False
        for _ in range(DRAWS):
            run = _Run(made, made.inputs(rng, special), special)
            try:
                left, right = map(run.array, made.values)
            except (
                IndexError,
                ShapeError,
                ZeroDivisionError,
            ):  # an invalid place or extent
                break
            compared |= bool(left.size)
            if left.shape != right.shape or not _same(left, right):
                shown = ", ".join(f"{name} = {value}" for name, value in sorted(sizes.items()))
                words = f"{_first_difference(left, right)}, with {shown or 'no sizes'}"
                return OtherBits(words, not run.replaced)
            if not left.size:
                break
        done += compared
        if done == cases:
            break
    if done < least:
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
class _Sides:
    """Both sides of an output at some sizes."""

    instance: Instance
    values: tuple[Value, ...]
    sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        self._relations = _relations(self.instance)
        self._spans = _spans(self.values[:1])
        self._roles: dict[Node, _Role] = {}

    @classmethod
    def of(
        cls,
        instance: Instance,
        sides: Sequence[Value],
        sizes: Mapping[str, int],
        rng: random.Random,
    ) -> _Sides | None:
        """None where the sides cannot be made, or are too large."""
        relations = _relations(instance)
        reals = {name: _real(rng, relations.get(name, ())) for name in sorted(_real_symbols(sides))}
        try:
            made = concrete(sides, sizes, reals)
        except (ShapeError, ZeroDivisionError):
            return None
        values = [value for node in walk(made) for value in node.outputs]
        if sum(map(_count, values)) > MAX_ELEMENTS:
            return None
        return cls(instance, tuple(made), sizes)

    def inputs(self, rng: random.Random, special: bool) -> dict[str, Array]:
        """Random elements of all inputs."""
        found = {}
        for value in self.instance.inputs:
            assert isinstance(value.node.op, Leaf)
            name = value.node.op.key
            shape = [evaluate(size, self.sizes) for size in value.shape]
            generator = np.random.default_rng(rng.getrandbits(32))
            relations = self._relations.get(name, ())
            if value.type.dtype == BOOL:
                drawn = generator.integers(0, 2, shape)
            elif value.type.dtype == INT:
                low, high = self._spans.get(name, (-2, 3))
                drawn = generator.integers(low, max(high, low + 1), shape)
            elif value.type.dtype == CODE:
                drawn = generator.integers(-128, 128, shape)
            else:
                drawn = _numbers(generator, shape, relations)
                if special and set(relations) <= {BELOW_INFINITY}:
                    drawn = _planted(generator, drawn, SPECIAL if not relations else (-np.inf,))
            found[name] = _stored(drawn, value.type)
        return found

    def role(self, node: Node) -> _Role:
        """What is known of the bits that an operator gives."""
        if node not in self._roles:
            self._roles[node] = _role(node)
        return self._roles[node]


class _Role(Enum):
    """What is known of the bits that an operator gives."""

    MOVES = "each element is one of an input, or a number"
    ONCE = "it is one operation on elements"
    FUNCTION = "it computes each element from elements, in some way"
    KERNEL = "it computes tensors from tensors, in some way"


def _role(node: Node) -> _Role:
    op = node.op
    assert isinstance(op, Operator)
    if hidden_positions(node):
        return _Role.FUNCTION if op.elementwise else _Role.KERNEL
    if not node.inputs or all(map(selects, specified(node, zeros=False))):
        return _Role.MOVES
    codes = frozenset(f"#{k}" for k, v in enumerate(node.inputs) if v.type.dtype == CODE)
    if codes and all(kind.dtype != INT for kind in node.types):  # they are read as numbers
        once = sum(_operations(scalar, codes) for scalar in specified(node)) <= 1
        return _Role.ONCE if once else _Role.KERNEL
    if not op.elementwise:
        return _Role.KERNEL
    return _Role.ONCE if _roundings(node) <= 1 else _Role.FUNCTION


@dataclass
class _Run:
    """Both sides on some inputs."""

    sides: _Sides
    inputs: Mapping[str, Array]
    special: bool
    replaced: bool = False
    """Whether random numbers took the place of what some operator computes."""

    def __post_init__(self) -> None:
        self._known: dict[Node, list[Array]] = {}

    def array(self, value: Value) -> Array:
        """The data of a value."""
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
        match self.sides.role(node):
            case _Role.MOVES:
                return op.numpy([_wide(array) for array in arrays], node.attributes)
            case _Role.FUNCTION if self.special:
                self.replaced = True
                return [_random_function(node, arrays)]
            case _Role.KERNEL if self.special:
                return self._replaced(node, arrays)
        # Of numbers alone it is asked where nothing rounds: any reading will do.
        return self._defined(node, arrays)

    def _defined(self, node: Node, arrays: Sequence[Array]) -> list[Array]:
        """An operator's result: computed in 64 bits, and rounded to 32 to the nearest float.

        For sums, products, quotients and roots, 53 digits are enough for 24, see S. A. Figueroa,
        When is double rounding innocuous?, SIGNUM 30 (1995).
        """
        op = node.op
        assert isinstance(op, Operator)
        if isinstance(op, Composite):
            return [self.array(value) for value in op.define(node.inputs, node.attributes)]
        wide = [_wide(array) for array in arrays]
        if not op.elementwise:
            return op.numpy(wide, node.attributes)
        # For powers by one number numpy may take a root, which kernels may do or not.
        spread = np.broadcast_arrays(*wide)
        flat = [array.reshape(-1).copy() for array in spread]
        return [array.reshape(spread[0].shape) for array in op.numpy(flat, node.attributes)]

    def _replaced(self, node: Node, arrays: Sequence[Array]) -> list[Array]:
        """Random numbers for what an operator makes of tensors."""
        self.replaced = True
        made: list[Array] = []
        for number, kind in enumerate(node.types):
            generator = np.random.default_rng(_seed(node, arrays, number))
            shape = [evaluate(size, {}) for size in kind.shape]
            if kind.dtype == BOOL:
                made.append(generator.integers(0, 2, shape).astype(bool))
            elif kind.dtype == INT:
                made.append(generator.integers(0, 3, shape))
            else:
                array = generator.normal(size=shape)
                made.append(np.where(generator.random(shape) < 0.1, np.nan, array))
        return made


def _random_function(node: Node, arrays: Sequence[Array]) -> Array:
    """Random numbers for what an elementwise operator makes of elements, equal for equal ones.

    Some are NaN or infinite: on the left, the operator may have made them of such an element.
    """
    assert isinstance(node.op, Operator)
    state = np.uint64(_seed(node, [], 0))
    for array in np.broadcast_arrays(*arrays):
        plain = array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int32)
        if plain.dtype.kind == "f":
            plain = np.where(np.isnan(plain), np.float32(np.nan), plain)
        state = _mixed(state ^ _mixed(plain.view(np.uint32).astype(np.uint64)))
    numbers = (state >> np.uint64(11)).astype(np.float64) / 2.0**51 - 2
    rest = state & np.uint64(31)  # bits that the number does not have
    kinds = [rest == np.uint64(bits) for bits in range(len(STRANGE))]
    return np.select(kinds, STRANGE, numbers)


def _mixed(state: Any) -> Any:
    """Bits in which each depends on all, see G. L. Steele, D. Lea, C. H. Flood, Fast splittable
    pseudorandom number generators, OOPSLA 2014."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


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


def _seed(node: Node, arrays: Iterable[Array], output: int) -> int:
    """A number that depends on an operator, its attributes and what it is given alone."""
    assert isinstance(node.op, Operator)
    attributes = sorted((key, str(value)) for key, value in node.attributes.items())
    digest = hashlib.blake2b(f"{node.op.name} {attributes} {output}".encode())
    for array in arrays:
        digest.update(str((array.shape, array.dtype)).encode())
        plain = np.where(np.isnan(array), np.nan, array) if array.dtype.kind == "f" else array
        digest.update(np.ascontiguousarray(plain).astype(array.dtype).tobytes())
    return int.from_bytes(digest.digest()[:8], "big")


# What operators are -------------------------------------------------------------------------------


def specified(node: Node, *, zeros: bool = True) -> list[Scalar]:
    """The element of each output, over elements of tensors that stand for the inputs.

    Without `zeros`, with another factor for each that is 0: a kernel multiplies by it all the same.
    """
    op = node.op
    assert isinstance(op, Operator)
    attributes = dict(node.attributes)
    for name, given in node.attributes.items():
        if not zeros and isinstance(given, Fraction) and given == 0:
            attributes[name] = Fraction(2, 5)
    shapes = [source.shape for source in node.inputs]
    readers = [_reader(number, source) for number, source in enumerate(node.inputs)]
    found = []
    for output, kind in enumerate(node.types):
        index = tuple(symbol(f"_i{axis}") for axis in range(len(kind.shape)))
        found.append(op.at(readers, shapes, attributes, output, index))
    return found


def _reader(number: int, source: Value) -> Reader:
    def reader(index: Index) -> Scalar:
        if source.type.dtype == BOOL:
            return truth(f"#{number}", tuple(index))
        return Element(f"#{number}", tuple(index))

    return reader


def selects(scalar: Scalar) -> bool:
    """Whether `scalar` is an element or a number, which one told by what is no real number."""
    match scalar:
        case Element() | Literal():
            return True
        case If(conditions, then, other):
            return not any(orders(conditions)) and selects(then) and selects(other)
    return False


def _roundings(node: Node) -> int:
    """How many operations of an elementwise operator may round."""
    op = node.op
    assert isinstance(op, Operator)
    if isinstance(op, Composite):
        inside = walk(op.define(node.inputs, node.attributes), node.inputs)
        return sum(_roundings(inner) for inner in inside if isinstance(inner.op, Operator))
    return sum(map(_operations, specified(node)))


def _operations(scalar: Scalar, codes: frozenset[str] = frozenset()) -> int:
    """How many operations may round; elements of the tensors `codes` are integers of 8 bits."""

    def inside(scalars: Iterable[Scalar]) -> int:
        return sum(_operations(each, codes) for each in scalars)

    match scalar:
        case Plus(args):
            exact = bool(codes) and all(_is_integer(arg, codes) for arg in args)
            return (0 if exact else len(args) - 1) + inside(args)
        case Times(args):
            factors = [a for a in args if not (isinstance(a, Literal) and abs(a.value) == 1)]
            inverse = [a for a in factors if isinstance(a, Call) and a.function == "reciprocal"]
            # a * (1 / b) is one operation, a quotient
            joined = 1 if inverse and len(factors) > 1 else 0
            return max(len(factors) - 1, 0) - joined + inside(factors)
        case If(conditions, then, other):
            compared = [s for found in orders(conditions) for s in (found.left, found.right)]
            return inside((then, other, *compared))
        case Call("nearest", (Element(),)):
            return 0  # what is computed has the float that is nearest to an integer
        case Call(function, args):
            return (function not in ROUNDING_FREE) + inside(args)
        case SumOver(_, _, body) | ProductOver(_, _, body) | MaxOver(_, _, body):
            return 2 + _operations(body, codes)
    return 0


def _is_integer(scalar: Scalar, codes: frozenset[str]) -> bool:
    """Whether it is a sum of codes, or an integer between two of these: a float of any type."""
    match scalar:
        case Literal(value):
            return value.denominator == 1 and abs(value) < 2**10
        case Element(tensor, _):
            return tensor in codes
        case Plus(args) if len(args) == 2:
            return all(_is_integer(arg, codes) for arg in args)
        case Times((Literal(sign), other)) if abs(sign) == 1:
            return _is_integer(other, codes)
        case Call("max", (Call("min", (Call("round", _), most)), least)):
            return _is_integer(most, codes) and _is_integer(least, codes)
    return False


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


def _numbers(generator: np.random.Generator, shape: Sequence[int], relations: Sequence[str]) -> Any:
    """Numbers that are in these relations to 0, with integers and ties among them."""
    scale = generator.choice((1.0, 1.0, 1.0, 1e-30, 1e30))
    numbers = generator.uniform(-4, 4, shape) * scale
    numbers = np.where(generator.random(shape) < 0.2, generator.integers(-3, 4, shape), numbers)
    if numbers.size:  # ties, of a number and its opposite as well
        others = generator.choice(numbers.reshape(-1), shape) * generator.choice((1, 1, -1), shape)
        numbers = np.where(generator.random(shape) < 0.2, others, numbers)
    if POSITIVE in relations or NONNEGATIVE in relations:
        numbers = np.abs(numbers)
    if POSITIVE in relations or NONZERO in relations:
        numbers = np.where(numbers.astype(np.float32) == 0, 1.0, numbers)
    return numbers


def _planted(generator: np.random.Generator, numbers: Array, kinds: Sequence[float]) -> Array:
    """The numbers with some others among them, at times."""
    share = generator.choice((0.0, 0.2, 0.5))
    planted = generator.choice(kinds, numbers.shape)
    return np.where(generator.random(numbers.shape) < share, planted, numbers)
