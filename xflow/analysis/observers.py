"""Who would notice that a value is another: what is no number, or differs by a rounding.

A rewrite keeps numbers. Where the original is no number, what stands there afterwards may be one,
or another infinity; and where it is a number, it may differ by roundings. Both are harmless unless
something that reads it makes more of the difference: an operator may give a number where it reads
an infinity, or none; and what is compared, or rounded to integers, is another by a rounding.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import IntFlag

from xflow.analysis.elements import element_of, names_of
from xflow.analysis.opaque import MOVES, decides_by
from xflow.analysis.ranges import sums
from xflow.constraint import Constraint
from xflow.errors import ShapeError
from xflow.graph import Graph, Node, Opaque, Value
from xflow.ops.registry import Operator
from xflow.ops.sorts import FLOATS
from xflow.ops.spec import (
    LOSING,
    Call,
    Element,
    If,
    MaxOver,
    Order,
    Plus,
    ProductOver,
    Scalar,
    SumOver,
    Times,
)
from xflow.size import opaque_integers


class Observed(IntFlag):
    """What is sensitive to a value, of all that depends on it."""

    NOWHERE = 0
    LOST = 1
    """Something may make a number of what is none."""
    DISCRETE = 2
    """Something compares it, or makes integers of it, with nothing but elementwise operators and
    movements between."""


EVERYWHERE = Observed.LOST | Observed.DISCRETE
_ways: dict[object, Mapping[str, tuple[bool, bool]]] = {}
MAX_KEPT = 20_000
"""Most operators of which it is kept how they read."""


def loses(node: Node, position: int) -> bool:
    """Whether an operator may give a number where an element of an input is none."""
    if isinstance(node.op, Opaque):
        return node.op.op_type not in MOVES
    return _way(node, position)[0]


def decides(node: Node, position: int) -> bool:
    """Whether an operator compares an input, or makes integers of it."""
    if isinstance(node.op, Opaque):
        named = node.op.op_type not in MOVES
        whole = any(kind.dtype not in FLOATS for kind in node.types)
        return named and (whole or decides_by(node.op.op_type, position))
    return _way(node, position)[1]


def is_deciding(node: Node) -> bool:
    """Whether an operator compares an input of floats, or makes integers of it."""
    return any(
        value.type.dtype in FLOATS and decides(node, position)
        for position, value in enumerate(node.inputs)
    )


def contexts(graph: Graph, outputs: Sequence[Observed]) -> dict[Value, Observed]:
    """What is sensitive to each value of floats of `graph`; `outputs` is so outside of it."""
    found: dict[Value, Observed] = {}
    for value, outside in zip(graph.outputs, outputs, strict=True):
        found[value] = found.get(value, Observed.NOWHERE) | outside
    for node in reversed(graph.nodes):
        for position, value in enumerate(node.inputs):
            if value.type.dtype in FLOATS and not value.is_constant:
                own = read_by(node, position, found)
                found[value] = found.get(value, Observed.NOWHERE) | own
    return found


def read_by(node: Node, position: int, known: Mapping[Value, Observed]) -> Observed:
    """What is sensitive to an input of an operator by way of it; `known` is so to its results."""
    own = behind = Observed.NOWHERE
    for value in node.outputs:
        behind |= known.get(value, Observed.NOWHERE)
    own |= Observed.LOST if loses(node, position) else behind & Observed.LOST
    if decides(node, position):
        own |= Observed.DISCRETE
    elif isinstance(node.op, Opaque):
        own |= behind & Observed.DISCRETE if node.op.op_type in MOVES else own
    elif not sums(node):
        own |= behind & Observed.DISCRETE
    return own


def sensitive_outside(
    graph: Graph,
    value: Value,
    inside: Container[Node],
    known: Mapping[Value, Observed],
    whole: Observed,
) -> Observed:
    """What is sensitive to a value other than by way of the nodes `inside`.

    `known` is what is sensitive to each value of the graph, `whole` what is so to its outputs.
    """
    found = whole if value in graph.outputs else Observed.NOWHERE
    for user in graph.users.get(value, ()):
        if user not in inside:
            for position, source in enumerate(user.inputs):
                if source == value:
                    found |= read_by(user, position, known)
    return found


def _way(node: Node, position: int) -> tuple[bool, bool]:
    """Whether what is read may be lost, and whether it decides."""
    if not isinstance(node.op, Operator):
        return True, True
    names = names_of(node.inputs)
    key = node.kind, tuple(v.type for v in node.inputs), tuple(names)
    found = _ways.get(key)
    if found is None:
        if len(_ways) >= MAX_KEPT:
            _ways.clear()
        found = _ways[key] = _read_ways(node)
    return found.get(names[position], (False, False))


def _read_ways(node: Node) -> dict[str, tuple[bool, bool]]:
    found: dict[str, tuple[bool, bool]] = {}
    for output in node.outputs:
        try:
            scalar = element_of(output)
        except ShapeError:
            return dict.fromkeys(names_of(node.inputs), (True, True))
        for name, lost, decided in _reads(scalar, False, False):
            before = found.get(name, (False, False))
            found[name] = before[0] or lost, before[1] or decided
    assert isinstance(node.op, Operator)
    names = names_of(node.inputs)
    for position in node.op.hides([value.shape for value in node.inputs], node.attributes):
        found[names[position]] = True, found.get(names[position], (False, False))[1]
    return found


def _reads(e: Scalar, lost: bool, decided: bool) -> Iterable[tuple[str, bool, bool]]:
    match e:
        case Element(tensor, _):
            yield tensor, lost, decided
        case Plus(args) | Times(args):
            for arg in args:
                yield from _reads(arg, lost, decided)
        case SumOver(_, _, body) | ProductOver(_, _, body):
            yield from _reads(body, lost, decided)
        case MaxOver(_, extent, body):
            yield from _reads(body, lost or extent != 1, decided)
        case If(conditions, then, other):
            compared = list(_orders(conditions))
            for order in compared:
                for side in (order.left, order.right):
                    yield from _reads(side, True, True)
            for branch in (then, other):
                yield from _reads(branch, lost or bool(compared), decided)
        case Call(function, args):
            for arg in args:
                yield from _reads(arg, lost or function in LOSING, decided or function in STEPS)


STEPS = frozenset({"sign", "floor"})
"""Functions whose values are integers."""


def _orders(conditions: Iterable[Constraint]) -> Iterable[Order]:
    for condition in conditions:
        for atom in opaque_integers(condition.difference):
            if isinstance(atom, Order):
                yield atom
