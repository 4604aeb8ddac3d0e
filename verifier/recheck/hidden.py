"""Inputs whose NaN or infinities the left side may hide at run time, unlike its specification.

Some kernels give numbers for such elements, as their operators declare (`hides`). A number on the
left does not imply then that the input's elements are numbers, unless the same kernels read the
same elements on the right: with a function of no meaning in the place of what they compute, both
sides still agree at random sizes and elements, and nothing is computed of the input before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from fractions import Fraction

from xflow.core.constraint import Constraint
from xflow.core.evaluation import read, read_leaf
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Operator, Reader
from xflow.core.size import symbol
from xflow.core.sorts import REAL
from xflow.core.spec import Element, If, Index, Literal, Scalar, call
from xflow.rewriting.instance import Instance
from xflow.verifier.recheck.evaluate import agree_at_random
from xflow.verifier.recheck.floats import selects
from xflow.verifier.recheck.forms import Unreplayable


def hidden_inputs(
    instance: Instance, left: Value, right: Value, assumed: Sequence[Constraint]
) -> frozenset[str]:
    """The names of these inputs."""
    hidden = frozenset(name for operand in _hidden(left) for name in _leaves(operand))
    if not hidden or not _same_kernels(instance, left, right, assumed):
        return hidden
    return hidden - _read_as_they_are(left) & _read_as_they_are(right)


def _same_kernels(
    instance: Instance, left: Value, right: Value, assumed: Sequence[Constraint]
) -> bool:
    index = tuple(symbol(f"_i{axis}") for axis in range(len(left.shape)))
    try:
        scalars = read(left, index, _without_meaning), read(right, index, _without_meaning)
        return agree_at_random(instance, scalars, left.shape, assumed)
    except Unreplayable:
        return False


def _without_meaning(node: Node, made: Scalar) -> Scalar:
    """An element by a function of no meaning where a kernel may hide something."""
    assert isinstance(node.op, Operator)
    if not node.op.hides([source.shape for source in node.inputs], node.attributes):
        return made
    return call("any", Literal(Fraction(zlib.crc32(node.op.name.encode()) % 9973)), made)


def _hidden(side: Value) -> Iterator[Value]:
    """The operands of which kernels hide something."""
    for node in _nodes(side, set()):
        if isinstance(node.op, Operator):
            shapes = [source.shape for source in node.inputs]
            for position in node.op.hides(shapes, node.attributes):
                yield node.inputs[position]


def _read_as_they_are(side: Value) -> frozenset[str]:
    """The inputs of which kernels that hide something read the very elements, wherever they do."""
    names, others = set[str](), set[str]()
    for operand in _hidden(side):
        index = tuple(symbol(f"_i{axis}") for axis in range(len(operand.shape)))
        below = _leaves(operand)
        names |= below
        others |= below - _selected(_read_moves(operand, index))
    return frozenset(names - others)


def _read_moves(value: Value, index: Index) -> Scalar:
    """An element where operators only move and select; else one of no input."""
    node = value.node
    if isinstance(node.op, Leaf):
        return read_leaf(value, index)
    assert isinstance(node.op, Operator), node.op
    plain = [_marker(position) for position in range(len(node.inputs))]
    shapes = [source.shape for source in node.inputs]
    made = node.op.at(plain, shapes, node.attributes, value.index, tuple(index))
    if node.op.hides(shapes, node.attributes) or not selects(made):
        return Element("%computed", ())

    def reader(source: Value) -> Reader:
        return lambda i: _read_moves(source, i)

    inputs = [reader(source) for source in node.inputs]
    return node.op.at(inputs, shapes, node.attributes, value.index, tuple(index))


def _marker(position: int) -> Reader:
    return lambda index: Element(f"%{position}", tuple(index))


def _selected(scalar: Scalar) -> frozenset[str]:
    """The tensors of which it is an element."""
    match scalar:
        case Element(name, _):
            return frozenset({name})
        case If(_, then, other):
            return _selected(then) | _selected(other)
    return frozenset()


def _leaves(value: Value) -> frozenset[str]:
    return frozenset(
        node.op.key
        for node in _nodes(value, set())
        if isinstance(node.op, Leaf) and node.types[0].dtype == REAL
    )


def _nodes(value: Value, seen: set[Node]) -> Iterator[Node]:
    if value.node not in seen:
        seen.add(value.node)
        yield value.node
        for source in value.node.inputs:
            yield from _nodes(source, seen)
