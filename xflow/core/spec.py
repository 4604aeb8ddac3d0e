"""The specification language: what one element of an operator's output is.

An operator's `at` returns a `Scalar`: an expression over elements of its inputs at symbolic
indices, with sums and maxima over ranges, choices on index conditions and a few real functions.
All of it is read over the real numbers: a Boolean is 1 or 0, a choice on one is an `If` whose
condition speaks of the opaque integer that the Boolean is. The verifier reasons about these
expressions; `evaluate` reads them concretely, which is how tests hold them against other readings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

from xflow.core.constraint import Constraint, Relation, at_least, equal
from xflow.core.errors import ShapeError
from xflow.core.hash_once import hash_once
from xflow.core.size import (
    Expr,
    OpaqueInteger,
    Size,
    atom_size,
    free_symbols,
    lookup,
    substitute,
    symbol,
)
from xflow.core.size import evaluate as evaluate_size

Index: TypeAlias = tuple[Size, ...]

MAX_IN_A_ROW = 16
"""How many inputs a specification goes through one after the other. More are halved first, so that
its depth is logarithmic in their number."""


class Scalar:
    """A real number that may depend on tensors, indices and sizes."""

    def __add__(self, other: ScalarLike) -> Scalar:
        return plus(self, other)

    def __radd__(self, other: ScalarLike) -> Scalar:
        return plus(other, self)

    def __neg__(self) -> Scalar:
        return times(-1, self)

    def __sub__(self, other: ScalarLike) -> Scalar:
        return plus(self, times(-1, other))

    def __rsub__(self, other: ScalarLike) -> Scalar:
        return plus(other, times(-1, self))

    def __mul__(self, other: ScalarLike) -> Scalar:
        return times(self, other)

    def __rmul__(self, other: ScalarLike) -> Scalar:
        return times(other, self)

    def __truediv__(self, other: ScalarLike) -> Scalar:
        return times(self, call("reciprocal", other))

    def __rtruediv__(self, other: ScalarLike) -> Scalar:
        return times(other, call("reciprocal", self))


@dataclass(frozen=True)
class Literal(Scalar):
    """A rational constant."""

    value: Fraction


@hash_once
@dataclass(frozen=True)
class OfSize(Scalar):
    """An integer expression over sizes and indices, as a real number."""

    size: Expr


@hash_once
@dataclass(frozen=True)
class Element(Scalar):
    """The element of `tensor` at `index`, which lies in bounds wherever it is read."""

    tensor: str
    index: Index

    @cached_property
    def key(self) -> str:
        """A text that identifies it."""
        return f"{self.tensor}[{', '.join(map(str, self.index))}]"


@hash_once
@dataclass(frozen=True)
class Plus(Scalar):
    """The sum of its arguments."""

    args: tuple[Scalar, ...]


@hash_once
@dataclass(frozen=True)
class Times(Scalar):
    """The product of its arguments."""

    args: tuple[Scalar, ...]


@hash_once
@dataclass(frozen=True)
class SumOver(Scalar):
    """The sum of `body` for ``0 <= variable < extent``; 0 over an empty range."""

    variable: str
    extent: Size
    body: Scalar


@hash_once
@dataclass(frozen=True)
class ProductOver(Scalar):
    """The product of `body` for ``0 <= variable < extent``; 1 over an empty range."""

    variable: str
    extent: Size
    body: Scalar


@hash_once
@dataclass(frozen=True)
class MaxOver(Scalar):
    """The maximum of `body` for ``0 <= variable < extent``; `Bottom` over an empty range."""

    variable: str
    extent: Size
    body: Scalar


@dataclass(frozen=True)
class Bottom(Scalar):
    """The least element, neutral under maximum; an operator's output is never this."""


@hash_once
@dataclass(frozen=True)
class If(Scalar):
    """`then` where all of `conditions` hold, otherwise `other`."""

    conditions: tuple[Constraint, ...]
    then: Scalar
    other: Scalar


@hash_once
@dataclass(frozen=True)
class Call(Scalar):
    """A real function of real arguments; see FUNCTIONS for the names."""

    function: str
    args: tuple[Scalar, ...]


ScalarLike: TypeAlias = Scalar | Size | Fraction

ZERO = Literal(Fraction(0))
ONE = Literal(Fraction(1))


def scalar(value: ScalarLike) -> Scalar:
    """`value` as a `Scalar`; floats must be given as exact fractions."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, Expr):
        return OfSize(value)
    return Literal(Fraction(value))


def plus(*args: ScalarLike) -> Scalar:
    """A sum, flattened."""
    terms: list[Scalar] = []
    for arg in map(scalar, args):
        terms.extend(arg.args if isinstance(arg, Plus) else (arg,))
    terms = [term for term in terms if term != ZERO]
    if not terms:
        return ZERO
    return terms[0] if len(terms) == 1 else Plus(tuple(terms))


def times(*args: ScalarLike) -> Scalar:
    """A product, flattened."""
    factors: list[Scalar] = []
    for arg in map(scalar, args):
        factors.extend(arg.args if isinstance(arg, Times) else (arg,))
    factors = [factor for factor in factors if factor != ONE]
    if ZERO in factors:
        return ZERO
    if not factors:
        return ONE
    return factors[0] if len(factors) == 1 else Times(tuple(factors))


_fresh = itertools.count()


@contextmanager
def fresh_names() -> Iterator[None]:
    """Count the names of bound variables from 0 inside the block, so that they are reproducible.

    Expressions from different blocks must not be mixed.
    """
    global _fresh  # noqa: PLW0603
    outer, _fresh = _fresh, itertools.count()
    try:
        yield
    finally:
        _fresh = outer


def fresh_name() -> str:
    """A name for a bound variable; rules may not use names that start with an underscore."""
    return f"_k{next(_fresh)}"


def _bind(
    make: Callable[[str, Size, Scalar], Scalar], extent: Size, body: Callable[[Expr], ScalarLike]
) -> Scalar:
    variable = fresh_name()
    return make(variable, extent, scalar(body(symbol(variable))))


def sum_over(extent: Size, body: Callable[[Expr], ScalarLike]) -> Scalar:
    """``sum(body(k) for 0 <= k < extent)``."""
    return _bind(SumOver, extent, body)


def product_over(extent: Size, body: Callable[[Expr], ScalarLike]) -> Scalar:
    """The product of ``body(k)`` for ``0 <= k < extent``."""
    return _bind(ProductOver, extent, body)


def max_over(extent: Size, body: Callable[[Expr], ScalarLike]) -> Scalar:
    """``max(body(k) for 0 <= k < extent)``."""
    return _bind(MaxOver, extent, body)


def over_box(
    over: Callable[[Size, Callable[[Expr], ScalarLike]], Scalar],
    extents: tuple[Size, ...],
    body: Callable[[Index], ScalarLike],
) -> Scalar:
    """`sum_over`, `product_over` or `max_over` over a box: one variable for each of `extents`."""

    def inner(index: Index) -> ScalarLike:
        if len(index) == len(extents):
            return body(index)
        return over(extents[len(index)], lambda k: inner((*index, k)))

    return scalar(inner(()))


def where(conditions: tuple[Constraint, ...], then: ScalarLike, other: ScalarLike) -> Scalar:
    """A choice; decided conditions are resolved at once."""
    open_conditions = []
    for condition in conditions:
        if condition.decided is False:
            return scalar(other)
        if condition.decided is None:
            open_conditions.append(condition)
    if not open_conditions:
        return scalar(then)
    return If(tuple(open_conditions), scalar(then), scalar(other))


@hash_once
@dataclass(frozen=True)
class Order(OpaqueInteger):
    """How two real numbers compare: 1 if `left` is greater than `right`, 0 if equal, else -1."""

    left: Scalar
    right: Scalar

    @cached_property
    def key(self) -> str:
        return f"order({self.left!r}, {self.right!r})"

    @cached_property
    def symbols(self) -> frozenset[str]:
        return free_of_scalar(self.left) | free_of_scalar(self.right)

    def substitute(self, values: Mapping[str, Size]) -> Size:
        if not self.symbols & values.keys():
            return atom_size(self)
        return order(substitute_scalar(self.left, values), substitute_scalar(self.right, values))

    def evaluate(self, values: Mapping[str, int], tensors: Mapping[str, Any]) -> int:
        left, right = (evaluate(side, tensors, values) for side in (self.left, self.right))
        assert left is not None
        assert right is not None
        return int(left > right) - int(left < right)

    def __str__(self) -> str:
        return self.key


_compares_equals = False


@contextmanager
def all_comparisons() -> Iterator[None]:
    """Inside the block, `order` keeps the comparison of an expression with itself.

    For numbers it is decided; but it tells NaN from all else, which counts where one asks what a
    side reads.
    """
    global _compares_equals  # noqa: PLW0603
    outer, _compares_equals = _compares_equals, True
    try:
        yield
    finally:
        _compares_equals = outer


def order(left: ScalarLike, right: ScalarLike) -> Size:
    """1 where `left` is greater than `right`, 0 where they are equal, -1 where it is less."""
    a, b = scalar(left), scalar(right)
    if isinstance(a, Literal) and isinstance(b, Literal):
        return (a.value > b.value) - (a.value < b.value)
    return 0 if a == b and not _compares_equals else atom_size(Order(a, b))


def truth(tensor: str, index: Index) -> Scalar:
    """The element of a Boolean tensor, as 1 or 0."""
    return where((at_least(lookup(tensor, index), 1),), ONE, ZERO)


def is_less(left: ScalarLike, right: ScalarLike) -> Scalar:
    """1 where ``left < right``, otherwise 0."""
    return where((at_least(order(right, left), 1),), ONE, ZERO)


def is_equal(left: ScalarLike, right: ScalarLike) -> Scalar:
    """1 where ``left == right``, otherwise 0."""
    return where((equal(order(left, right), 0),), ONE, ZERO)


def choose(condition: Scalar, then: ScalarLike, other: ScalarLike) -> Scalar:
    """`then` where the Boolean `condition` is 1, `other` where it is 0."""
    match condition:
        case Literal(value):
            return scalar(then if value else other)
        case If(conditions, yes, no):
            return where(conditions, choose(yes, then, other), choose(no, then, other))
    raise ShapeError("a choice on what is no Boolean")


def at_integer(value: Scalar, body: Callable[[Size], Scalar]) -> Scalar:
    """`body` at the integer that `value`, an element of a tensor of integers, is."""
    match value:
        case Literal(number) if number.denominator == 1:
            return body(int(number))
        case OfSize(size):
            return body(size)
        case Element(tensor, index):
            return body(lookup(tensor, index))
        case If(conditions, then, other):
            return where(conditions, at_integer(then, body), at_integer(other, body))
    raise ShapeError("an index that is computed from others")


def free_of_scalar(expression: Scalar) -> frozenset[str]:
    """The names of the symbols in `expression` that it does not bind."""
    match expression:
        case OfSize(size):
            return free_symbols(size)
        case Element(_, index):
            return frozenset[str]().union(*map(free_symbols, index))
        case Plus(args) | Times(args) | Call(_, args):
            return frozenset[str]().union(*map(free_of_scalar, args))
        case (
            SumOver(variable, extent, body)
            | ProductOver(variable, extent, body)
            | MaxOver(variable, extent, body)
        ):
            return free_symbols(extent) | (free_of_scalar(body) - {variable})
        case If(conditions, then, other):
            inside = frozenset[str]().union(*(c.symbols for c in conditions))
            return inside | free_of_scalar(then) | free_of_scalar(other)
    return frozenset()


def substitute_scalar(expression: Scalar, values: Mapping[str, Size]) -> Scalar:
    """Replace symbols in a scalar; bound variables are never among them, and none is captured."""

    def again(e: Scalar) -> Scalar:
        return substitute_scalar(e, values)

    match expression:
        case OfSize(size):
            result = substitute(size, values)
            return OfSize(result) if isinstance(result, Expr) else Literal(Fraction(result))
        case Element(tensor, index):
            return Element(tensor, tuple(substitute(i, values) for i in index))
        case Plus(args):
            return plus(*map(again, args))
        case Times(args):
            return times(*map(again, args))
        case (
            SumOver(variable, extent, body)
            | ProductOver(variable, extent, body)
            | MaxOver(variable, extent, body)
        ):
            if any(variable in free_symbols(value) for value in values.values()):
                name = fresh_name()
                body = substitute_scalar(body, {variable: symbol(name)})
                variable = name
            return type(expression)(variable, substitute(extent, values), again(body))
        case If(conditions, then, other):
            return where(tuple(c.substitute(values) for c in conditions), again(then), again(other))
        case Call(function, args):
            return Call(function, tuple(map(again, args)))
    return expression


def bound_by_depth(expression: Scalar, depth: int = 0, prefix: str = "_d") -> Scalar:
    """The same scalar, in which bound variables are named by how many others they are bound in.

    Two scalars that differ by the names of bound variables alone become equal. Comparisons inside
    integers keep theirs. No free variable has a name that starts with `prefix`.
    """

    def again(e: Scalar) -> Scalar:
        return bound_by_depth(e, depth, prefix)

    match expression:
        case Plus(args):
            return plus(*map(again, args))
        case Times(args):
            return times(*map(again, args))
        case SumOver() | ProductOver() | MaxOver():
            name = f"{prefix}{depth}"
            body = substitute_scalar(expression.body, {expression.variable: symbol(name)})
            body = bound_by_depth(body, depth + 1, prefix)
            return type(expression)(name, expression.extent, body)
        case If(conditions, then, other):
            return where(conditions, again(then), again(other))
        case Call(function, args):
            return Call(function, tuple(map(again, args)))
    return expression


def call(function: str, *args: ScalarLike) -> Scalar:
    """A real function of `args`; `function` is a key of FUNCTIONS."""
    assert function in FUNCTIONS, function
    return Call(function, tuple(map(scalar, args)))


def _exact_or_float(
    exact: Callable[[Fraction], Fraction | None], approximate: Callable[..., Any]
) -> Callable[..., Any]:
    def apply(x: Any) -> Any:
        value = exact(x) if isinstance(x, Fraction) else None
        return approximate(float(x)) if value is None else value

    return apply


def _exact_sqrt(x: Fraction) -> Fraction | None:
    if x < 0:
        return None
    root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    return root if root * root == x else None


def _power(x: Any, y: Any) -> Any:
    """``x ** y``; 1 for y = 0. Raises ZeroDivisionError or ValueError where it is undefined."""
    if isinstance(y, Fraction) and y.denominator == 1:
        return x ** int(y)
    return math.pow(x, y)


def _any_of_zero(x: Any, y: Any = 0) -> Any:
    """A polynomial of integers that is 0 at 0, and nothing else that one might think of."""
    both = x * 2 + y * 3
    return both * both - both * 5 + x * y * 3


def _nearest(x: Any) -> Fraction:
    """A number in 24 bits; of two that are as near the even one."""
    exact = Fraction(x)
    if not exact:
        return exact
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    if abs(exact) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 23)
    return round(exact / unit) * unit


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "reciprocal": lambda x: 1 / x,
    "max": max,
    "min": min,
    "abs": abs,
    "exp": _exact_or_float(lambda x: Fraction(1) if x == 0 else None, math.exp),
    "log": _exact_or_float(lambda x: Fraction(0) if x == 1 else None, math.log),
    "sqrt": _exact_or_float(_exact_sqrt, math.sqrt),
    "tanh": _exact_or_float(lambda x: Fraction(0) if x == 0 else None, math.tanh),
    "erf": _exact_or_float(lambda x: Fraction(0) if x == 0 else None, math.erf),
    "sin": _exact_or_float(lambda x: Fraction(0) if x == 0 else None, math.sin),
    "cos": _exact_or_float(lambda x: Fraction(1) if x == 0 else None, math.cos),
    "pi": lambda: math.pi,
    "power": _power,
    "sign": lambda x: Fraction((x > 0) - (x < 0)),
    "floor": lambda x: Fraction(math.floor(x)),
    "round": lambda x: Fraction(round(x)),
    "nearest": _nearest,
    "any": lambda *args: _any_of_zero(*args) + 7,
    "any_of_zero": _any_of_zero,
}
"""The real functions of the language, each with a concrete reading that is exact on fractions
where the result is rational. `power` is partial: it needs ``x > 0``, or ``x = 0 <= y``, or an
integer y, `round` takes the even one of two integers that are as near, and `nearest` is the nearest
float of 32 bits to an integer. Those called `ARBITRARY` are read as one of the functions that they
may be."""


FIXING_ZERO = frozenset({"any_of_zero"})
"""Those of the `ARBITRARY` functions that are 0 at 0."""
ARBITRARY = frozenset({"any"}) | FIXING_ZERO
"""Names for any function at all: it may be undefined or jump anywhere, and be a number where its
argument is infinite. All that is known of it is that it gives the same for the same argument."""
LOSING = ARBITRARY | {"max", "min", "exp", "tanh", "erf", "sign", "reciprocal", "power"}
"""Functions that may give a number where an argument is infinite."""
PARTIAL = ARBITRARY | {"reciprocal", "sqrt", "log", "power"}
"""Functions that are not defined for every number."""
APPROXIMATED = ARBITRARY | {"exp", "log", "tanh", "erf", "sin", "cos", "power"}
"""Functions that kernels approximate: some do so by other instructions at the end of a tensor, so
that the last digit of an element may depend on where it stands."""
MONOTONE = frozenset({"max", "min"})
"""Functions through which a summand that is -inf stays one, or is lost as any lesser number is."""
JUMPING = ARBITRARY | {"sign", "floor", "round", "nearest", "power"}
"""Functions that are not continuous everywhere."""


def evaluate(
    expression: Scalar, tensors: Mapping[str, Any], sizes: Mapping[str, int]
) -> Fraction | float | None:
    """The number that `expression` denotes; exact as long as only rational operations occur.

    `tensors` maps names to arrays (of Fraction for exactness), `sizes` symbols to integers.
    None stands for `Bottom`. Raises IndexError for an access out of bounds, ZeroDivisionError.
    """

    def holds(condition: Constraint, env: Mapping[str, int]) -> bool:
        value = evaluate_size(condition.difference, env, tensors)
        return value >= 0 if condition.relation is Relation.AT_LEAST else value == 0

    def read(e: Scalar, env: Mapping[str, int]) -> Any:
        match e:
            case Literal(value):
                return value
            case OfSize(size):
                return Fraction(evaluate_size(size, env, tensors))
            case Element(tensor, index):
                position = tuple(evaluate_size(i, env, tensors) for i in index)
                array = tensors[tensor]
                if any(not 0 <= p < n for p, n in zip(position, array.shape, strict=True)):
                    raise IndexError(f"{tensor}{list(position)} of shape {list(array.shape)}")
                element = array[position]
                return Fraction(int(element)) if array.dtype.kind in "iu" else element
            case Plus(args):
                return sum((read(arg, env) for arg in args), start=Fraction(0))
            case Times(args):
                return math.prod((read(arg, env) for arg in args), start=Fraction(1))
            case SumOver(variable, extent, body):
                span = range(evaluate_size(extent, env))
                return sum((read(body, {**env, variable: k}) for k in span), start=Fraction(0))
            case ProductOver(variable, extent, body):
                span = range(evaluate_size(extent, env))
                factors = (read(body, {**env, variable: k}) for k in span)
                return math.prod(factors, start=Fraction(1))
            case MaxOver(variable, extent, body):
                span = range(evaluate_size(extent, env))
                values = [read(body, {**env, variable: k}) for k in span]
                return max((value for value in values if value is not None), default=None)
            case Bottom():
                return None
            case If(conditions, then, other):
                return read(then if all(holds(c, env) for c in conditions) else other, env)
            case Call(function, args):
                return FUNCTIONS[function](*(read(arg, env) for arg in args))
        raise TypeError(type(e))

    result: Fraction | float | None = read(expression, sizes)
    return result
