"""Refinement check of a whole rewrite: new values are numbers wherever the old ones are.

Each step of a rewrite is admitted by the needs of its rule. That is enough if rules and analysis
are right; here the result of all steps together is checked anew, in the manner of translation
validation (Pnueli, Siegel and Singerman, TACAS 1998), by other means. A value that is known to be a
number needs no check. For any other, the conditions under which it is one are collected: that
inputs are numbers, that no divisor is 0 and no exponential overflows; each under the choices by
which it is read. A need of the new value must have been a need of the old one, too. Where that is
not shown, the rewrite is refused.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xflow.analysis.elements import element_of, names_of
from xflow.analysis.observers import loses
from xflow.analysis.ranges import Ranges
from xflow.core.errors import ShapeError
from xflow.core.node import Leaf, Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.sorts import BOOL, FLOATS
from xflow.core.spec import (
    PARTIAL,
    Call,
    Element,
    If,
    MaxOver,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
)

Guards: TypeAlias = frozenset[tuple[int, bool]]
"""Choices: the number of a condition, and whether it holds."""

OVERFLOWING = PARTIAL | {"exp"}
"""Functions that may give NaN or infinities for numbers."""
MOST = 4_000
"""Most values that are examined, each once for the choices by which it is read."""


@dataclass(frozen=True)
class Need:
    """A condition under which a value is a number."""

    what: str
    """A function whose argument lies where it is a number, or that a value is one."""
    subject: int
    """The number of that argument, or value, see `_Names`."""
    guards: Guards
    """The choices by which it is read: a condition and whether it holds."""
    lost: bool
    """Whether the value may be a number even if it is not met."""

    def is_implied_by(self, other: Need) -> bool:
        """Whether `other`, which an older value needs, asks for as much."""
        same = self.what == other.what and self.subject == other.subject
        return same and other.guards <= self.guards and (self.lost or not other.lost)


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
            given = list(_Needs(inputs, ranges, names, overflow).of(old))
            wanted = list(_Needs(inputs, ranges, names, overflow).of(new))
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
        """The number of a scalar over elements of `sources`."""

        def again(part: Scalar) -> int:
            return self.scalar(part, sources)

        match scalar:
            case Element(tensor, index) if tensor in sources:
                return self.number((self.value(sources[tensor]), tuple(map(str, index))))
            case Plus(args) | Times(args):
                return self.number((type(scalar), tuple(sorted(map(again, args)))))
            case Call(function, args):
                return self.number((function, tuple(map(again, args))))
            case SumOver(_, extent, body) | MaxOver(_, extent, body) | ProductOver(_, extent, body):
                return self.number((type(scalar), str(extent), again(body)))
        return self.number(scalar)


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

    def of(self, value: Value, guards: Guards = frozenset(), lost: bool = False) -> Iterator[Need]:
        """The needs of a value where it is read under these choices."""
        if value.type.dtype not in FLOATS or self._ranges.of(value).is_real:
            return
        key = value, guards, lost
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self._seen) > MOST:
            raise TooMuchError
        node = value.node
        if value in self._inputs or isinstance(node.op, Leaf | Opaque):
            yield Need("a value", self._names.value(value), guards, lost)
            return
        tests = [k for k, source in enumerate(node.inputs) if source.type.dtype == BOOL]
        if len(tests) == 1 and isinstance(node.op, Operator) and node.op.elementwise:
            (test,) = tests
            for holds in (True, False):
                inner = guards | {(self._names.value(node.inputs[test]), holds)}
                yield from self._read(node, value, ((test, holds),), inner, lost)
            return
        yield from self._read(node, value, (), guards, lost)

    def _read(
        self,
        node: Node,
        value: Value,
        truths: tuple[tuple[int, bool], ...],
        guards: Guards,
        lost: bool,
    ) -> Iterator[Need]:
        """The needs of an operator itself, and those of its inputs."""
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
            yield Need(what, subject, guards, lost)
        read = set(_read_names(scalar))
        for position, source in enumerate(node.inputs):
            if names[position] in read:
                inner = lost or loses(node, position)
                yield from self.of(source, guards, inner)

    def _failing(self, value: Value, scalar: Scalar) -> Iterator[Scalar]:
        """The parts of a specification that may give no number where inputs are some.

        Not those within one that gives a number all the same: ``1 / (1 + exp(x))`` does where the
        exponential overflows.
        """
        sums = Plus | Times | SumOver | ProductOver
        if self._overflow and isinstance(scalar, sums):
            if self._ranges.of_numbers(value, scalar).is_real:
                return
            yield scalar
        match scalar:
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
