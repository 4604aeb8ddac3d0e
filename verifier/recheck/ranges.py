"""Checks ranges of indices that are data: assumed for the left side, shown for the right one.

An operator that looks elements up is not defined where one of its indices is out of range,
whether or not anything is read there. So the ranges of the left side's indices hold wherever the
left side is defined, and those of the right side's must follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xflow.core.composite import Composite
from xflow.core.constraint import Constraint, at_least, in_range, less
from xflow.core.evaluation import read
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator
from xflow.core.size import Size, lookup, substitute, symbol
from xflow.core.spec import Element, Literal, OfSize
from xflow.verifier.recheck.comparisons import signed
from xflow.verifier.recheck.expand import Expansion
from xflow.verifier.recheck.integers import Range
from xflow.verifier.recheck.solver import Questions


@dataclass(frozen=True)
class Indices:
    """That every element of `value` is an integer in ``low <= element < high``."""

    value: Value
    low: Size
    high: Size


def indices_of(values: Iterable[Value]) -> list[Indices]:
    """The indices that operators under `values` look up at, those inside composites included."""
    found = []
    for node in _nodes(values):
        assert isinstance(node.op, Operator)
        shapes = [source.shape for source in node.inputs]
        for position, (low, high) in node.op.ranges(shapes, node.attributes).items():
            found.append(Indices(node.inputs[position], low, high))
    return list(dict.fromkeys(found))


def _nodes(values: Iterable[Value]) -> Iterator[Node]:
    for node in walk(values):
        if isinstance(node.op, Composite):
            yield from _nodes(node.op.define(node.inputs, node.attributes))
        elif isinstance(node.op, Operator):
            yield node


def granted(values: Iterable[Value], questions: Questions) -> dict[str, list[Range]]:
    """The ranges of whole inputs that follow from `values` being defined."""
    ranges: dict[str, list[Range]] = {}
    for indices in indices_of(values):
        source = _source(indices.value, questions)
        if source is not None:
            assert isinstance(source.node.op, Leaf)
            known = Range(source.shape, indices.low, indices.high)
            ranges.setdefault(source.node.op.key, []).append(known)
    return ranges


def _source(value: Value, questions: Questions) -> Value | None:
    """The input all of whose elements are among those of `value`; None where none is."""
    if value.is_leaf:
        return value
    places = [f"_p{axis}" for axis in range(len(value.shape))]
    element = read(value, tuple(map(symbol, places)))
    if not isinstance(element, Element):
        return None
    leaves = [node.outputs[0] for node in walk([value]) if isinstance(node.op, Leaf)]
    (source, *others) = leaves
    if others or len(source.shape) != len(element.index):
        return None
    wanted = [symbol(f"_q{axis}") for axis in range(len(source.shape))]
    # Where the element's index names a place, that is where to look; elsewhere, at 0.
    values: dict[str, Size] = dict.fromkeys(places, 0)
    for i, q in zip(element.index, wanted, strict=True):
        if str(i) in values:
            values[str(i)] = q
    if any(substitute(i, values) != q for i, q in zip(element.index, wanted, strict=True)):
        return None
    here = _inside(wanted, source.shape)
    inside = _inside([values[p] for p in places], value.shape)
    return source if all(questions.implied(c, here) for c in inside) else None


def _inside(index: Iterable[Size], shape: Iterable[Size]) -> tuple[Constraint, ...]:
    return tuple(c for i, n in zip(index, shape, strict=True) for c in in_range(i, n))


def out_of_range(
    left: Iterable[Value], right: Iterable[Value], expansion: Expansion, questions: Questions
) -> str | None:
    """An index of the right side that may be out of range, in words; None if there is none."""
    given = indices_of(left)
    for indices in indices_of(right):
        if indices not in given and not _in_range(indices, expansion, questions):
            return f"an index in {indices.value} may be out of range"
    return None


def _in_range(indices: Indices, expansion: Expansion, questions: Questions) -> bool:
    places = tuple(symbol(f"_p{axis}") for axis in range(len(indices.value.shape)))
    path = tuple(c for c in _inside(places, indices.value.shape) if c.decided is not True)
    element = signed(read(indices.value, places), expansion, path)
    for guards, case in expansion.lifted(element, path):
        place: Size
        match case:
            case Literal(number) if number.denominator == 1:
                place = int(number)
            case OfSize(size):
                place = size
            case Element(tensor, index):
                place = lookup(tensor, index)
            case _:
                return False
        for bound in (at_least(place, indices.low), less(place, indices.high)):
            if not questions.implied(bound, (*path, *guards)):
                return False
    return True
