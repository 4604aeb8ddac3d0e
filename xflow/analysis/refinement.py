"""Refinement check of a whole rewrite: new values are numbers wherever the old ones are.

Each step of a rewrite is admitted by the needs of its rule. That is enough if rules and analysis
are right; here the result of all steps together is checked anew, in the manner of translation
validation (Pnueli, Siegel and Singerman, TACAS 1998), by other means. A value that is known to be a
number needs no check. For any other, the conditions under which it is one are collected: that
inputs are numbers, that no divisor is 0 and no exponential overflows; each under the choices by
which it is read. A need of the new value must have been a need of the old one, too: one of the same
value, or, where elements are only moved and read one by one, of the same element. Where that is not
shown, the rewrite is refused.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from xflow.analysis.elements import element_of, names_of, own_index
from xflow.analysis.observers import loses
from xflow.analysis.ranges import Ranges
from xflow.core.errors import ShapeError
from xflow.core.node import Leaf, Opaque, Value
from xflow.core.registry import Operator, broadcast_index
from xflow.core.size import (
    Lookup,
    OpaqueInteger,
    Size,
    opaque_integers,
    replace_opaque,
    substitute,
    symbol,
)
from xflow.core.sorts import BOOL, FLOATS
from xflow.core.spec import (
    PARTIAL,
    Bottom,
    Call,
    Element,
    If,
    Literal,
    MaxOver,
    OfSize,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
    bound_by_depth,
    free_of_scalar,
    substitute_scalar,
    truth,
)

Place: TypeAlias = tuple[Size, ...]
"""An index of a tensor in terms of ``i0, i1, ...``, the index of a result."""


class Guard(NamedTuple):
    """A choice by which something is read."""

    condition: int
    """The number of the condition."""
    element: int | None
    """The number of the one element that is read of it; None where there may be several."""
    holds: bool


Guards: TypeAlias = frozenset[Guard]

OVERFLOWING = PARTIAL | {"exp"}
"""Functions that may give NaN or infinities for numbers."""
DEEPEST = 60
"""Operators below one another through which an element is followed."""
MOST = 4_000
"""Most values that are examined, each once for the choices by which it is read."""


@dataclass(frozen=True)
class Need:
    """A condition under which a value is a number."""

    what: str
    """A function whose argument lies where it is a number, or that a value is one."""
    subject: int
    """The number of that argument, or value, see `_Names`."""
    element: int | None
    """The number of the one element that is read of it; None where there may be several."""
    guards: Guards
    """The choices by which it is read: a condition and whether it holds."""
    lost: bool
    """Whether the value may be a number even if it is not met."""

    def is_implied_by(self, other: Need) -> bool:
        """Whether `other`, which an older value needs, asks for as much."""
        if self.what != other.what or (other.lost and not self.lost):
            return False
        if self.subject == other.subject:
            known = {(guard.condition, guard.holds) for guard in self.guards}
            if all((guard.condition, guard.holds) in known for guard in other.guards):
                return True
        if self.element is None or self.element != other.element:
            return False
        at = {(guard.element, guard.holds) for guard in self.guards if guard.element is not None}
        return all((guard.element, guard.holds) in at for guard in other.guards)


class TooMuchError(Exception):
    """There are more places than are worth examining."""


def objection(
    before: Sequence[Value],
    after: Sequence[Value],
    inputs: Container[Value],
    ranges: Ranges,
    *,
    overflow: bool = False,
) -> str:
    """Why values `after` may be no numbers where those `before` are; empty if they are shown to be.

    Both are computed from `inputs`, and `ranges` knows all of them. With `overflow`, sums and
    products that may overflow are needs, too. Single steps are checked so, but for those that are
    the same to the bit, as one that moves a sum elsewhere.
    """
    names = _Names(inputs)
    for old, new in zip(before, after, strict=True):
        if old == new or old.type.dtype not in FLOATS:
            continue
        if ranges.of(old).is_real:
            if not ranges.of(new).is_real:
                return "from end to end, a result might not be a number"
            continue
        try:
            given = list(_Needs(inputs, ranges, names, overflow).of_all(old))
            wanted = list(_Needs(inputs, ranges, names, overflow).of_all(new))
        except (TooMuchError, ShapeError):
            return "from end to end, there is too much that might not be a number"
        for need in wanted:
            if not any(need.is_implied_by(other) for other in given):
                return f"from end to end, it is not shown that {need.what} is a number"
    return ""


class _Names:
    """Numbers for values, down to `inputs`, and for what is computed from them.

    Those that are the same but for the order of operands have the same number.
    """

    def __init__(self, inputs: Container[Value]) -> None:
        self._inputs = inputs
        self._of: dict[Value, int] = {}
        self._of_elements: dict[tuple[Value, Place], int] = {}
        self._numbers: dict[object, int] = {}

    def number(self, what: object) -> int:
        """The number of anything that can be compared."""
        return self._numbers.setdefault(what, len(self._numbers))

    def value(self, value: Value) -> int:
        """The number of a value."""
        stack = [value]
        while stack:
            inner = stack[-1]
            node = inner.node
            if inner in self._of:
                stack.pop()
            elif inner in self._inputs or not isinstance(node.op, Operator) or not node.inputs:
                self._of[inner] = self.number(inner)
            else:
                unknown = [source for source in node.inputs if source not in self._of]
                if unknown:
                    stack += unknown
                    continue
                found = [self._of[source] for source in node.inputs]
                found = sorted(found) if node.op.commutative else found
                self._of[inner] = self.number((node.kind, tuple(found), node.types, inner.index))
        return self._of[value]

    def scalar(self, scalar: Scalar, sources: Mapping[str, Value]) -> int:
        """The number of a scalar over elements of `sources`. Raises ShapeError."""

        def again(part: Scalar) -> int:
            return self.scalar(part, sources)

        match scalar:
            case Element(tensor, index):
                places = tuple(self._size(size, sources) for size in index)
                return self.number((self.value(sources[tensor]), places))
            case Plus(args) | Times(args):
                return self.number((type(scalar), tuple(sorted(map(again, args)))))
            case Call(function, args):
                return self.number((function, tuple(map(again, args))))
            case (
                SumOver(variable, extent, body)
                | MaxOver(variable, extent, body)
                | ProductOver(variable, extent, body)
            ):
                size = self._size(extent, sources)
                return self.number((type(scalar), variable, size, again(body)))
            case If(conditions, then, other):
                tests = tuple(
                    (test.relation, self._size(test.difference, sources)) for test in conditions
                )
                return self.number((If, tests, again(then), again(other)))
            case OfSize(size):
                return self.number((OfSize, self._size(size, sources)))
        assert isinstance(scalar, Literal | Bottom), scalar
        return self.number(scalar)

    def _size(self, size: Size, sources: Mapping[str, Value]) -> str:
        """A text for an integer that is the same only for the same one. Raises ShapeError."""

        def named(atom: OpaqueInteger) -> Size:
            match atom:
                case Lookup(tensor, index):
                    places = tuple(self._size(each, sources) for each in index)
                    what: object = (Lookup, self.value(sources[tensor]), places)
                case Order(left, right):
                    what = (Order, self.scalar(left, sources), self.scalar(right, sources))
                case _:
                    raise ShapeError(f"{atom} may depend on any tensor")
            return symbol(f"data {self.number(what)}")

        return str(replace_opaque(size, named))

    def element(self, value: Value, at: Place, depth: int = 0) -> int:
        """The number of one element of a value, the same wherever it is moved."""
        key = value, at
        if key not in self._of_elements:
            self._of_elements[key] = self._element(value, at, depth)
        return self._of_elements[key]

    def _element(self, value: Value, at: Place, depth: int) -> int:
        node = value.node
        below = depth + 1
        if (
            value not in self._inputs
            and isinstance(node.op, Operator)
            and node.inputs
            and depth < DEEPEST
        ):
            read = read_at(value, at)
            if read is not None and not node.op.elementwise:
                ((source, place),) = read
                return self.element(source, place, below)
            if read is not None:
                parts = [self.element(source, place, below) for source, place in read]
                parts = sorted(parts) if node.op.commutative else parts
                return self.number((node.kind, value.index, tuple(parts)))
        return self.number((self.value(value), tuple(map(str, at))))

    def scalar_at(self, scalar: Scalar, sources: Mapping[str, Value], at: Place) -> int | None:
        """The number of a scalar over elements of `sources`, for the element at `at`.

        None where it has more than one element for each input.
        """
        match scalar:
            case Element(tensor, index) if tensor in sources:
                place = moved(index, at)
                return None if place is None else self.element(sources[tensor], place)
            case Literal():
                return self.number(scalar)
            case Plus(args) | Times(args) | Call(_, args):
                found = [self.scalar_at(arg, sources, at) for arg in args]
                parts = [each for each in found if each is not None]
                if len(parts) < len(found):
                    return None
                name: object = type(scalar)
                if isinstance(scalar, Call):
                    name = scalar.function
                else:
                    parts.sort()
                return self.number((name, tuple(parts)))
        return None


def moved(index: Sequence[Size], at: Place) -> Place | None:
    """An index of which ``i0, i1, ...`` are the place `at`; None if it depends on data."""
    if any(any(opaque_integers(size)) for size in index):
        return None
    values = {f"i{axis}": size for axis, size in enumerate(at)}
    return tuple(substitute(size, values) for size in index)


def read_at(value: Value, at: Place) -> list[tuple[Value, Place]] | None:
    """Which element of each input an operator reads for its element at `at`.

    None unless it is elementwise, or gives one of the elements of an input, whatever they are.
    """
    node = value.node
    assert isinstance(node.op, Operator)
    if node.op.elementwise:
        return [(source, broadcast_index(source.shape, at)) for source in node.inputs]
    scalar = element_of(value)
    index: Sequence[Size]
    match scalar:
        case Element(tensor, index):
            pass
        case If(conditions=(condition,)) if any(opaque_integers(condition.difference)):
            read, *others = opaque_integers(condition.difference)
            if others or not isinstance(read, Lookup):
                return None
            if scalar != truth(read.tensor, read.index):
                return None
            tensor, index = read.tensor, read.index
        case _:
            return None
    place = moved(index, at)
    sources = dict(zip(names_of(node.inputs), node.inputs, strict=True))
    return None if place is None else [(sources[tensor], place)]


class Weight(NamedTuple):
    """The weight of a score in a softmax, as a product of two factors, and that score."""

    factors: tuple[Scalar, Scalar]
    scores: Scalar


def weight_among(factors: Sequence[Scalar]) -> Weight | None:
    """A weight of a softmax among factors of a product: ``exp(t) * (1 / sum(exp(t)))``."""
    for factor in factors:
        match factor:
            case Call("reciprocal", (SumOver(variable, _, Call("exp", (each,))),)):
                pass
            case _:
                continue
        summed = bound_by_depth(each, prefix="_c")
        for other in factors:
            match other:
                case Call("exp", (score,)):
                    own = free_of_scalar(score) - free_of_scalar(each)
                    for name in own:
                        there = substitute_scalar(score, {name: symbol(variable)})
                        if bound_by_depth(there, prefix="_c") == summed:
                            return Weight((other, factor), score)
    return None


class _Needs:
    """Collects what values need, down to `inputs`."""

    def __init__(
        self, inputs: Container[Value], ranges: Ranges, names: _Names, overflow: bool
    ) -> None:
        self._inputs = inputs
        self._ranges = ranges
        self._names = names
        self._overflow = overflow
        self._seen: set[object] = set()

    def of_all(self, value: Value) -> Iterator[Need]:
        """The needs of each element of a value."""
        return self.of(value, own_index(value))

    def of(
        self, value: Value, at: Place | None, guards: Guards = frozenset(), lost: bool = False
    ) -> Iterator[Need]:
        """The needs of a value where it is read under these choices, only at one place if given."""
        if value.type.dtype not in FLOATS or self._ranges.of(value).is_real:
            return
        if len(self._seen) > MOST // 2:  # the same value at many places
            at = None
        key = value, at, guards, lost
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self._seen) > MOST:
            raise TooMuchError
        node = value.node
        if value in self._inputs or isinstance(node.op, Leaf | Opaque):
            element = None if at is None else self._names.element(value, at)
            yield Need("a value", self._names.value(value), element, guards, lost)
            return
        tests = [k for k, source in enumerate(node.inputs) if source.type.dtype == BOOL]
        if len(tests) == 1 and isinstance(node.op, Operator) and node.op.elementwise:
            (test,) = tests
            condition = node.inputs[test]
            number = self._names.value(condition)
            place = None if at is None else broadcast_index(condition.shape, at)
            element = None if place is None else self._names.element(condition, place)
            for holds in (True, False):
                inner = guards | {Guard(number, element, holds)}
                yield from self._read(value, at, ((test, holds),), inner, lost)
            return
        yield from self._read(value, at, (), guards, lost)

    def _read(
        self,
        value: Value,
        at: Place | None,
        truths: tuple[tuple[int, bool], ...],
        guards: Guards,
        lost: bool,
    ) -> Iterator[Need]:
        """The needs of an operator itself, and those of its inputs."""
        node = value.node
        scalar = element_of(value, truths)
        names = names_of(node.inputs)
        sources = dict(zip(names, node.inputs, strict=True))
        for part in self._failing(value, scalar):
            if isinstance(part, Call):
                what = part.function
                subject = self._names.number(
                    tuple(self._names.scalar(arg, sources) for arg in part.args)
                )
            else:
                what, subject = "a sum or product", self._names.scalar(part, sources)
            element = None if at is None else self._names.scalar_at(part, sources, at)
            yield Need(what, subject, element, guards, lost)
        read = set(_read_names(scalar))
        places = None if at is None else read_at(value, at)
        place_of = dict(places or ())
        for position, source in enumerate(node.inputs):
            if names[position] in read:
                inner = lost or loses(node, position)
                yield from self.of(source, place_of.get(source), guards, inner)

    def _failing(self, value: Value, scalar: Scalar) -> Iterator[Scalar]:
        """The parts of a specification that may give no number where inputs are some.

        Not those within one that gives a number all the same: ``1 / (1 + exp(x))`` does where the
        exponential overflows, and weights of a softmax are numbers where no score is infinite, as
        kernels take the largest one off first.
        """
        sums = Plus | Times | SumOver | ProductOver
        if self._overflow and isinstance(scalar, sums):
            if self._ranges.of_numbers(value, scalar).is_real:
                return
            yield scalar
        match scalar:
            case Times(args) if not self._overflow and (weight := weight_among(args)):
                scores = weight.scores
                is_sure = self._ranges.without_nan(value, scores).is_real
                others = [arg for arg in args if arg not in weight.factors]
                for arg in (scores, *others) if is_sure else args:
                    yield from self._failing(value, arg)
            case Plus(args) | Times(args):
                for arg in args:
                    yield from self._failing(value, arg)
            case SumOver(_, _, body) | MaxOver(_, _, body) | ProductOver(_, _, body):
                yield from self._failing(value, body)
            case If(_, then, other):
                yield from self._failing(value, then)
                yield from self._failing(value, other)
            case Call(function, args):
                if function in OVERFLOWING:
                    if self._ranges.of_numbers(value, scalar).is_real:
                        return
                    yield scalar
                for arg in args:
                    yield from self._failing(value, arg)


def _read_names(scalar: Scalar) -> Iterator[str]:
    """The names of the inputs that `scalar` reads."""
    match scalar:
        case Element(tensor, _):
            yield tensor
        case Plus(args) | Times(args) | Call(_, args):
            for arg in args:
                yield from _read_names(arg)
        case SumOver(_, _, body) | MaxOver(_, _, body) | ProductOver(_, _, body):
            yield from _read_names(body)
        case If(_, then, other):
            yield from _read_names(then)
            yield from _read_names(other)
