"""Specifications of an operator's output element over elements of its inputs, cached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from xflow.core.constraint import Constraint
from xflow.core.node import Value
from xflow.core.registry import Attribute, Need, Operator, Reader
from xflow.core.size import Size, opaque_integers, symbol
from xflow.core.sorts import BOOL
from xflow.core.spec import (
    APPROXIMATED,
    ONE,
    ZERO,
    Call,
    Element,
    If,
    Order,
    Plus,
    Scalar,
    Times,
    all_comparisons,
    bound_by_depth,
    truth,
)


def names_of(inputs: Sequence[Value]) -> list[str]:
    """A name for each input, the same for inputs that are the same value."""
    numbers: dict[Value, str] = {}
    return [numbers.setdefault(value, str(len(numbers))) for value in inputs]


def likeness(value: Value) -> tuple[object, ...]:
    """All that the specification of a value depends on."""
    node = value.node
    types = tuple([source.type for source in node.inputs])
    return node.kind, types, tuple(names_of(node.inputs)), value.index


def own_index(value: Value) -> tuple[Size, ...]:
    """The index ``i0, i1, ...`` of a value."""
    return tuple(symbol(f"i{axis}") for axis in range(len(value.shape)))


_elements: dict[object, Scalar] = {}
MAX_ELEMENTS = 20_000
"""Most specifications that are kept."""


def element_of(value: Value, truths: tuple[tuple[int, bool], ...] = ()) -> Scalar:
    """The specification of an element of a registered operator's output, see `names_of`.

    The index is ``i0, i1, ...``. Comparisons of an element with itself stay. `truths` are Boolean
    inputs that hold one value everywhere. Raises ShapeError.
    """
    node = value.node
    assert isinstance(node.op, Operator)
    key = *likeness(value), truths
    found = _elements.get(key)
    if found is None:
        names = names_of(node.inputs)
        readers = [_reader(name, source) for name, source in zip(names, node.inputs, strict=True)]
        for position, holds in truths:
            readers[position] = _always(ONE if holds else ZERO)
        index = own_index(value)
        shapes = [source.shape for source in node.inputs]
        with all_comparisons():
            found = node.op.at(readers, shapes, node.attributes, value.index, index)
        found = bound_by_depth(found)  # so that a square of a sum is seen to be one
        if len(_elements) >= MAX_ELEMENTS:
            _elements.clear()
        _elements[key] = found
    return found


def orders(conditions: Iterable[Constraint]) -> Iterator[Order]:
    """The comparisons of numbers in the conditions of a choice."""
    for condition in conditions:
        for atom in opaque_integers(condition.difference):
            if isinstance(atom, Order):
                yield atom


@cache
def approximates(op: Operator, attributes: tuple[tuple[str, Attribute], ...], count: int) -> bool:
    """Whether an elementwise operator of `count` inputs calls one of `APPROXIMATED`."""
    readers = [_reader_of(str(number), op.sort(number)) for number in range(count)]
    shapes = [()] * count
    outputs = len(op.shape(shapes, dict(attributes), Need()))
    return any(
        _approximates(op.at(readers, shapes, dict(attributes), output, ()))
        for output in range(outputs)
    )


def _approximates(scalar: Scalar) -> bool:
    match scalar:
        case Call(function, args):
            return function in APPROXIMATED or any(map(_approximates, args))
        case Plus(args) | Times(args):
            return any(map(_approximates, args))
        case If(conditions, then, other):
            compared = (side for found in orders(conditions) for side in (found.left, found.right))
            return any(map(_approximates, (then, other, *compared)))
    return False


def _always(scalar: Scalar) -> Reader:
    return lambda index: scalar


def _reader(name: str, source: Value) -> Reader:
    return _reader_of(name, source.type.dtype)


def _reader_of(name: str, dtype: str) -> Reader:
    if dtype == BOOL:
        return lambda index: truth(name, index)
    return lambda index: Element(name, index)
