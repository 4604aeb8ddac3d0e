"""Whether a rewrite loses digits that the original keeps, at the constants of one model.

``(x - m) @ w`` is ``x @ w - m @ w`` for real numbers. Where x and m are large and near each other,
the first is exact and the second is the difference of two large numbers. Whether that happens
depends on the constants: the mean of an image's pixels is no larger than their deviation, the mean
of coordinates may be a hundred thousand times as large. Rules that may do this say so in their line
``numerics``; where one of them is applied, both sides are evaluated with the constants that stand
there, on inputs that are sought to tell them apart, as Herbie (Panchekha et al., PLDI 2015) and
FPTaylor's authors (Solovyev et al., FM 2015) do: of the magnitude of each constant, near each of
them by about 1 and by about each other constant, and of several magnitudes. What the original loses
itself is no fault of the rewrite, and neither is what has been lost in the values that both sides
read (see `rounded`). Where something divides by the result, they are as near to the
constants as the type allows: then no difference is small enough to be of no account.

Large constants are cut down to a few elements along each axis, in several ways (see `excerpts`):
the rule holds for all sizes, and so do its errors.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, partial

import ml_dtypes
import numpy as np

from xflow.core.constraint import is_true
from xflow.core.errors import ShapeError
from xflow.core.fold import ConstantLookup, Folder, moves
from xflow.core.graph import requirements, walk, with_sizes
from xflow.core.node import Leaf, Node, TensorType, Value, leaf
from xflow.core.registry import Array, Operator, operators
from xflow.core.rounding import limits
from xflow.core.size import Expr, Size, free_symbols, substitute
from xflow.core.sorts import BOOL, FLOATS
from xflow.ops.shape import Movement
from xflow.rewriting.excerpts import CUTS, excerpts, wide
from xflow.rewriting.instance import Instance, leaf_name
from xflow.rewriting.match import Match, NoMatch
from xflow.rewriting.numerics import Hazard
from xflow.rewriting.rewrite import build
from xflow.rewriting.rounded import is_float, is_rounded, may_be_exact
from xflow.rewriting.rule import Rule

BOUND = 2.0**8
"""What a rewrite may lose against the original, as a factor: eight bits."""
EXTENT = 6
"""Extents to which axes are cut down."""
MOST = 4096
"""Most elements of an input that is evaluated."""
LEAST = 4
"""Elements of a slice whose errors are judged by themselves."""
SEED = 20
"""What all that is random is drawn by."""

NEAR = 4.0
"""By how many roundings inputs that are all but equal to a constant differ from it."""
SMALL = 2.0**-14
"""By how much inputs that are near a number that a rule names differ from it."""
HUGE = 1e30
"""Constants from here on are no deviations: masks have such."""
NOT_SEEN = "it may lose digits, and it could not be evaluated with the constants at hand"
LOST = "it loses digits that the original keeps, by a factor of {factor:.0f}"


KEEPS = frozenset({"Concat", "Expand", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators in whose results each element of what they read is found, at all sizes."""
LITERAL = re.compile(r"\b(?:Add|Sub)\((?:\d|(?:[^()]|\((?:[^()]|\([^()]*\))*\))*, \d)")
"""A sum with a number that the text of a rule names."""
ROLES = frozenset({"contraction", "convolution"})
"""What operators are that add products."""
FACTORS = frozenset({"Mul", "Div", "Neg"})
"""Operators through which a factor of a sum is one."""
REDUCTIONS = frozenset({"ReduceSum", "ReduceMean"})
"""Operators that add elements, besides contractions and convolutions."""
SUM = "Sum"
"""The operator that adds any number of operands, in an order that nobody decides."""


def hazard_of(rule: Rule) -> Hazard:
    """Where a direction of a rule may lose digits.

    One that makes a sum of several operands may where two of them are constants, and are added
    before the others. One that adds a number that its text names may near that number. One about
    products with weights may where these are such that the products, and their sums, are exact: the
    numerics of rules are measured with numbers of all digits.
    """
    found = Hazard.NONE if rule.numerics is None else rule.numerics.hazard
    if found or rule.exact is not None:
        return found
    if re.search(rf"\b{SUM}\(", rule.rhs):
        return Hazard.OFFSETS
    if LITERAL.search(rule.lhs):
        return Hazard.CANCELLATION
    return Hazard.WEIGHTS if _sums(operators()).search(rule.lhs) else Hazard.NONE


@cache
def _sums(known: tuple[Operator, ...]) -> re.Pattern[str]:
    """Finds a call of one of the operators that add products, or elements."""
    names = [each.name for each in known if each.role in ROLES or each.name in REDUCTIONS]
    return re.compile(rf"\b({'|'.join(names)})\(")


def loses_digits(
    instance: Instance,
    match: Match,
    constants: ConstantLookup,
    hazard: Hazard,
    *,
    near: bool = False,
) -> str:
    """Why a rule that may lose digits must not be applied at `match`; nothing where it may.

    `hazard` says where it may lose some. With `near`, its errors count where inputs are as near to
    a constant as their type allows, and the result is small: something divides by it.
    """
    if hazard is Hazard.OFFSETS and not any(v.is_constant for v in match.bindings.values()):
        return ""
    try:
        if hazard is Hazard.WEIGHTS and not _may_be_exact(instance, match, constants):
            return ""
        factors = _factors(instance, match, constants, hazard, near=near)
        lost = next((factor for factor in factors if factor > BOUND), 0.0)
    except (ShapeError, ZeroDivisionError, IndexError, ValueError, TypeError, KeyError):
        return NOT_SEEN
    if math.isinf(lost):
        return NOT_SEEN
    return LOST.format(factor=lost) if lost else ""


def _factors(
    instance: Instance, match: Match, constants: ConstantLookup, hazard: Hazard, *, near: bool
) -> Iterator[float]:
    """By what factor the errors of the right side exceed those of the left, at several inputs."""
    data: dict[str, Array] = {}
    placed: dict[str, Array] = {}
    for name, value in match.bindings.items():
        if value.is_constant:
            array = constants(value)
            if array is None:
                array = _at_small_sizes(value, constants)
            if array is None:
                elements = _moved(value, constants)
                if elements is not None:
                    placed[name] = elements
                    array = np.broadcast_to(elements[0], _extents(value))
            if array is not None:
                data[name] = array
            elif hazard is not Hazard.WEIGHTS or name in _weights(instance):
                raise ValueError(f"the data of {name} is not known")
    whole = _at_small(instance, match, data, rounded_leaves(match, constants))
    extents = {name: _extents(whole.leaves[name]) for name in whole.data}
    rng = np.random.default_rng(SEED)
    for wanted in CUTS:
        parts = excerpts(whole.data, extents, wanted, rng)
        for name, elements in placed.items():
            parts[name] = _anywhere(elements, parts[name].shape, rng)
        case = replace(whole, data=parts)
        for feeds in case.near(rng) if near else case.inputs(rng, hazard):
            yield case.factor(feeds)
        if not placed and all(part.size == data[name].size for name, part in case.data.items()):
            break  # nothing is cut away


def _may_be_exact(instance: Instance, match: Match, constants: ConstantLookup) -> bool:
    """Whether sums of the left side may be exact: products with some weights, or of elements.

    So where the data of weights is unknown.
    """
    if match.reals and any(_is_one_of(node, REDUCTIONS) for node in walk(instance.lhs)):
        return True
    weights = (match.bindings[name] for name in _weights(instance) if name in match.bindings)
    arrays = (constants(value) for value in weights if value.is_constant)
    return any(array is None or may_be_exact(array) for array in arrays)


def _weights(instance: Instance) -> set[str]:
    """The leaves that the sums of the left side have as factors."""
    found: set[str] = set()
    for node in walk(instance.lhs):
        waiting = [*node.inputs[:2]] if _is_one_of(node, REDUCTIONS) or node.role in ROLES else []
        while waiting:
            value = waiting.pop()
            if value.is_leaf:
                found.add(leaf_name(value))
            elif _is_one_of(value.node, FACTORS) or isinstance(value.node.op, Movement):
                waiting += value.node.inputs
    return found


def _is_one_of(node: Node, names: Container[str]) -> bool:
    return isinstance(node.op, Operator) and node.op.name in names


def rounded_leaves(match: Match, constants: ConstantLookup) -> frozenset[str]:
    """The leaves of a rule of which the values are rounded already, see `rounded`."""
    return frozenset(name for name, v in match.bindings.items() if is_rounded(v, constants))


def _at_small_sizes(value: Value, constants: ConstantLookup) -> Array | None:
    """The data of a constant expression where the symbols of the graph stand for a small size.

    An example of dynamic sizes is a mask that is expanded to the batch. None where an operator may
    leave out elements at one size that it has at another, as a `Slice` does, or makes other ones.
    """
    data: dict[str, Array | None] = {}
    symbols: set[str] = set()
    for node in walk([value]):
        if isinstance(node.op, Leaf):
            data[node.op.key] = constants(node.outputs[0])
            continue
        if not isinstance(node.op, Operator):
            return None
        shapes = [each.shape for each in (*node.inputs, *node.outputs)]
        dynamic = {size for shape in shapes for size in shape if isinstance(size, Expr)}
        keeps = node.op.elementwise or node.op.name in KEEPS
        if dynamic and not (node.inputs and keeps):
            return None
        symbols.update(name for size in dynamic for name in free_symbols(size))
    (small,) = with_sizes([value], dict.fromkeys(symbols, EXTENT))

    def find(leaf: Value) -> Array | None:
        return data[leaf.node.op.key] if isinstance(leaf.node.op, Leaf) else None

    return Folder(find)(small)


def _moved(value: Value, constants: ConstantLookup) -> Array | None:
    """The elements that a constant consists of, by magnitude, where only their places are unknown.

    An example is a table of which rows are gathered by integers that an opaque operator computes.
    None where any are computed, and where symbols stand for sizes.
    """
    if any(isinstance(size, Expr) for size in value.shape):
        return None
    sources: list[Array] = []
    for node in walk([value], cut=_places(value)):
        if isinstance(node.op, Leaf):
            array = constants(node.outputs[0])
            if array is None:
                return None
            sources.append(array.reshape(-1))
        elif not isinstance(node.op, Operator) or not node.inputs or not moves(node):
            return None
    elements = np.concatenate(sources) if sources else np.zeros(0)
    return elements[np.argsort(np.abs(elements), kind="stable")] if elements.size else None


def _anywhere(elements: Array, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Elements, given by magnitude, at places of which nothing is known.

    Any may stand beside any of another constant: a quarter is as large as there are, another as
    small. The others are of all magnitudes.
    """
    count = math.prod(shape)
    chosen = rng.integers(0, elements.size, count)
    ends = rng.integers(0, 4, count)
    chosen[ends == 0] = 0
    chosen[ends == 1] = elements.size - 1
    return elements[chosen].reshape(shape)


def _places(value: Value) -> set[Value]:
    """The values under a constant that are no floats: they say where elements are."""
    below = (source for node in walk([value]) for source in node.inputs)
    return {source for source in below if source.type.dtype not in FLOATS}


@dataclass(frozen=True)
class _Case:
    """Both sides of a rule at concrete sizes, with the data of its constants."""

    left: tuple[Value, ...]
    right: tuple[Value, ...]
    leaves: Mapping[str, Value]
    data: Mapping[str, Array]
    reals: tuple[float, ...]
    dtype: str
    rounded: frozenset[str]
    """Leaves that are no inputs: the sides read numbers of `dtype`, and exact ones are others."""

    @property
    def _unit(self) -> float:
        return float(limits(self.dtype).eps)

    @property
    def _constants(self) -> list[Array]:
        """The data of the constants, and the numbers of the left side."""
        constants = [wide(array) for array in self.data.values() if is_float(array)]
        return [*constants, *self._numbers]

    @property
    def _numbers(self) -> list[Array]:
        """The numbers that the left side names."""
        named = (attribute for node in walk(self.left) for attribute in node.attributes.values())
        numbers = {float(each) for each in named if isinstance(each, Fraction)}
        return [np.asarray(each) for each in sorted({*numbers, *self.reals})]

    @cached_property
    def _nodes(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """The nodes of each side, inputs first."""
        return tuple(walk(self.left)), tuple(walk(self.right))

    def near(self, rng: np.random.Generator) -> Iterator[dict[str, Array]]:
        """Inputs at which differences are small: all but equal to constants, or to two of them."""
        unit = self._unit
        own = [centre for centre in self._constants if 0 < np.abs(centre).max(initial=0.0) < HUGE]
        for centre in [*own, *_joined(own)]:
            for spread in (NEAR * unit, math.sqrt(unit)):
                for sign in (1, -1):
                    size = spread * float(np.abs(centre).max(initial=0.0))
                    yield self._drawn(rng, partial(_around, sign * centre, size, rng))

    def inputs(self, rng: np.random.Generator, hazard: Hazard) -> Iterator[dict[str, Array]]:
        """Inputs that may tell the sides apart; the constants are as they are."""
        constants = self._constants
        sizes = {float(np.abs(array).max(initial=0)) for array in constants}
        spreads = [1.0, *sorted(size for size in sizes if 0 < size < HUGE)]
        for scale in (1.0, 1e-3, 1e3):
            yield self._drawn(rng, partial(_around, np.zeros(()), scale, rng))
        for centre in constants:
            for spread in spreads:
                for sign in (1, -1):
                    yield self._drawn(rng, partial(_around, sign * centre, spread, rng))
        several = len(self.leaves) - len(self.data) > 1
        if several and hazard is not Hazard.WEIGHTS:
            # Others may hide it: where scores are large, one weight of an attention is 1.
            for name, centre in itertools.product(self._floats, constants):
                for sign in (1, -1):
                    yield self._drawn(rng, partial(_around, sign * centre, 1.0, rng), name)
        if several and hazard is Hazard.CANCELLATION:  # in x * (1 - z), x may be of any size
            for centre in self._numbers:
                for sign in (1, -1):
                    yield self._drawn(rng, partial(_around, sign * centre, SMALL, rng))
        if hazard is Hazard.WEIGHTS or (several and hazard is Hazard.CANCELLATION):
            for size in (1e3, 1e6):  # they may cancel each other, or their own elements do
                for turn in (1.0, -1.0):
                    signs = itertools.cycle((1.0, turn))
                    yield self._drawn(rng, partial(_opposed, size, signs, rng))
        if hazard is Hazard.WEIGHTS:
            yield self._drawn(rng, _one_hot)
            yield self._drawn(rng, partial(_alternating, 1e6, rng))

    @property
    def _floats(self) -> list[str]:
        """The leaves that are floats and no constants."""
        drawn = ((name, v.type.dtype) for name, v in self.leaves.items() if name not in self.data)
        return [name for name, dtype in drawn if dtype in FLOATS]

    def _drawn(
        self,
        rng: np.random.Generator,
        draw: Callable[[tuple[int, ...]], Array],
        only: str | None = None,
    ) -> dict[str, Array]:
        """Inputs, the floats as `draw` has them: all, or one `only` and the others about 1."""
        made: dict[str, Array] = {}
        for name, value in self.leaves.items():
            shape = _extents(value)
            if name in self.data:
                made[name] = self.data[name]
            elif value.type.dtype == BOOL:
                made[name] = rng.random(shape) < 0.5
            elif value.type.dtype in FLOATS:
                drawn = draw(shape) if only in (None, name) else rng.standard_normal(shape)
                made[name] = np.asarray(drawn)
                if name not in self.rounded:  # otherwise both sides round it
                    with np.errstate(over="ignore"):
                        made[name] = _rounded(made[name], self.dtype)
            else:
                made[name] = rng.integers(0, 2, shape)
        return made

    def factor(self, feeds: Mapping[str, Array]) -> float:
        """The error of the right side by that of the left, or by a rounding of the result."""
        with np.errstate(all="ignore"):
            left, right = self._nodes
            exact = _run(self.left, left, feeds, "DOUBLE")
            before = _run(self.left, left, feeds, self.dtype)
            after = _run(self.right, right, feeds, self.dtype, early=self.data)
            triples = zip(exact, before, after, strict=True)
            factors = (_factor(*each, self._unit) for each in triples if is_float(each[0]))
            return max(factors, default=0.0)


def _factor(truth: Array, old: Array, new: Array, unit: float) -> float:
    """The largest error of `new` by that of `old`, or by a rounding of the typical magnitude.

    So of a tensor, or of a slice along any of its axes: one channel may be small beside another.
    """
    if np.array_equal(old, new):  # the usual case
        return 1.0
    numbers = np.isfinite(truth) & np.isfinite(old)
    if not numbers.any():
        return 0.0
    error = np.where(numbers, np.abs(new - truth), 0)
    if not np.isfinite(error).all():
        return math.inf
    own = np.where(numbers, np.abs(old - truth), 0)
    squares = np.where(numbers, np.square(truth), 0)
    axes = range(truth.ndim)
    parts = [n for n in axes if (m := truth.shape[n]) > 1 and truth.size // m >= LEAST]
    worst = 0.0
    for kept in (None, *parts):
        others = tuple(axis for axis in axes if axis != kept)
        count = np.maximum(numbers.sum(others), 1)
        size = np.sqrt(squares.sum(others) / count)
        scale = np.maximum(own.max(others), unit * size)
        most = error.max(others)
        worst = max(worst, float(np.where(most > 0, most / scale, 0).max()))
    return worst


def _at_small(
    instance: Instance, match: Match, data: Mapping[str, Array], rounded: frozenset[str]
) -> _Case:
    """The rule at small sizes that suit it, with whole constants. Raises ShapeError."""
    sizes = _small_sizes(instance, match)
    leaves: dict[str, Value] = {}
    whole: dict[str, Array] = {}
    for pattern in instance.inputs:
        name = leaf_name(pattern)
        if name not in match.bindings:
            continue
        bound = match.bindings[name]
        if instance.broadcast:
            shape = tuple(min(n, EXTENT) for n in map(_plain, bound.shape))
        else:
            shape = tuple(_plain(substitute(n, sizes)) for n in pattern.shape)
        if math.prod(shape) > MOST:
            raise ShapeError("too large to be evaluated")
        leaves[name] = leaf(name, TensorType(bound.type.dtype, shape))
        if name in data:
            array = data[name] if is_float(data[name]) else np.asarray(data[name])
            whole[name] = array if array.ndim == len(shape) else np.broadcast_to(array, shape)
            if any(old < new for old, new in zip(whole[name].shape, shape, strict=True)):
                raise ShapeError("a constant of another shape")
    small = Match((), leaves, sizes, match.reals, frozenset(), match.dtype)
    sides = [build(side, small) for side in (instance.lhs, instance.rhs)]
    for side in sides:
        if isinstance(side, NoMatch):
            raise ShapeError(side.reason)
    left, right = (side.values for side in sides if not isinstance(side, NoMatch))
    reals = tuple(map(float, match.reals.values()))
    return _Case(left, right, leaves, whole, reals, match.dtype, rounded)


def _extents(value: Value) -> tuple[int, ...]:
    return tuple(_plain(n) for n in value.shape)


def _small_sizes(instance: Instance, match: Match) -> Mapping[str, Size]:
    """The symbols of a rule with smaller values, as far as its conditions allow."""
    sizes: Mapping[str, Size] = {name: _plain(size) for name, size in match.sizes.items()}
    conditions = [*instance.where, *requirements(instance.lhs), *requirements(instance.rhs)]

    def suit(values: Mapping[str, Size]) -> bool:
        try:
            return all(is_true(condition.substitute(values)) for condition in conditions)
        except ZeroDivisionError:
            return False

    for name in sorted(sizes, key=lambda name: -abs(_plain(sizes[name]))):
        trials = (_smaller(sizes, name, size) for size in (EXTENT, EXTENT - 2, EXTENT + 2))
        sizes = next((trial for some in trials for trial in some if suit(trial)), sizes)
    return sizes


def _smaller(sizes: Mapping[str, Size], name: str, smaller: int) -> Iterator[Mapping[str, Size]]:
    """Sizes of which one is smaller: it alone, with those equal to it, and with its multiples.

    The channels of an image, those of kernels and the number of groups depend on each other.
    """
    size = _plain(sizes[name])
    if size > smaller:
        times = {other: _plain(each) // size for other, each in sizes.items() if each == size}
        multiples = {o: _plain(n) // size for o, n in sizes.items() if n and not _plain(n) % size}
        for factors in ({name: 1}, times, multiples):
            yield {**sizes, **{other: factor * smaller for other, factor in factors.items()}}


def _plain(size: Size) -> int:
    """A size as a number; symbols of the graph stand for a small one."""
    value = substitute(size, dict.fromkeys(free_symbols(size), EXTENT))
    if not isinstance(value, int):
        raise ShapeError(f"the size {size} is not known")
    return value


def _around(
    centre: Array, spread: float, rng: np.random.Generator, shape: tuple[int, ...]
) -> Array:
    """Data of that spread around a centre."""
    return _fitted(centre, shape, rng) + spread * rng.standard_normal(shape)


def _joined(constants: Sequence[Array]) -> Iterator[Array]:
    """Sums, differences, products and quotients of two of the constants."""
    for one, other in itertools.permutations(constants, 2):
        for operation in (np.add, np.subtract, np.multiply, np.divide):
            with contextlib.suppress(ValueError), np.errstate(all="ignore"):  # of unlike shapes
                made = wide(operation(one, other))
                if 0 < np.abs(made).max(initial=0.0) < HUGE:
                    yield made


def _opposed(
    size: float, signs: Iterator[float], rng: np.random.Generator, shape: tuple[int, ...]
) -> Array:
    """Data of a magnitude, with the next of the signs."""
    return next(signs) * (size + rng.standard_normal(shape))


def _alternating(size: float, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Data of a magnitude, of which neighbours along any axis cancel each other."""
    signs = np.ones(shape)
    for axis, extent in enumerate(shape):
        along = 1 - 2 * (np.arange(extent) % 2)
        if extent > 1 and extent % 2:
            along[-1] = 0  # nothing cancels it
        signs *= along.reshape(-1, *[1] * (len(shape) - axis - 1))
    return size * signs + rng.standard_normal(shape)


def _one_hot(shape: tuple[int, ...]) -> Array:
    """Rows of zeros with one 1 each, which choose rows of weights."""
    rows, columns = (1, 1, *shape)[-2:]
    return np.broadcast_to(np.eye(rows, columns), (*shape[:-2], rows, columns)).reshape(shape)


def _fitted(array: Array, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Data for another shape: broadcast where it fits along the last axes, otherwise drawn."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        return rng.choice(array.reshape(-1), shape) if array.size else np.zeros(shape)


_STORED = {
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "FLOAT16": np.float16,
    "BFLOAT16": ml_dtypes.bfloat16,
}
"""The types of elements."""
_COMPUTED = {**_STORED, "FLOAT16": np.float32, "BFLOAT16": np.float32}
"""The types in which one operator computes."""


def _rounded(array: Array, dtype: str) -> Array:
    """An array with elements that the type has, in the type in which is computed."""
    stored, computed = _STORED[dtype], _COMPUTED[dtype]
    made = array.astype(stored)
    return made if computed is stored else made.astype(computed)


def _added(node: Node, done: Mapping[Value, Array], dtype: str, early: Container[str]) -> Array:
    """A sum, rounded at each addition; the constants that are `early` are added first."""

    def is_late(value: Value) -> bool:
        return not (isinstance(value.node.op, Leaf) and value.node.op.key in early)

    first, *others = (done[source] for source in sorted(node.inputs, key=is_late))
    total = first
    for array in others:
        total = _rounded(total + array, dtype)
    return total


def _run(
    values: Sequence[Value],
    nodes: Sequence[Node],
    feeds: Mapping[str, Array],
    dtype: str,
    early: Container[str] | None = None,
) -> list[Array]:
    """The values in float64, each operator's results rounded to a type.

    The `nodes` are those that they depend on, inputs before users.
    A sum adds its operands in any order. It is exact here, unless `early` names the constants that
    it may add first.
    """
    done: dict[Value, Array] = {}
    for node in nodes:
        if isinstance(node.op, Leaf):
            array = feeds[node.op.key]
            done[node.outputs[0]] = _rounded(array, dtype) if is_float(array) else array
            continue
        assert isinstance(node.op, Operator)
        if early is not None and node.op.name == SUM:
            done[node.outputs[0]] = _added(node, done, dtype, early)
            continue
        outputs = node.op.numpy([done[source] for source in node.inputs], node.attributes)
        for value, array in zip(node.outputs, outputs, strict=True):
            if value.type.dtype in FLOATS:
                done[value] = _rounded(array, dtype)
            elif node.inputs:
                done[value] = array
            else:
                done[value] = array.astype(np.bool_ if value.type.dtype == BOOL else np.int64)
    return [done[v].astype(np.float64) if is_float(done[v]) else done[v] for v in values]
