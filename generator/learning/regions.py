"""Regions of a graph: small connected parts with one result, over leaves of their own.

What a region computes is a term, as the terms of an enumeration are; what else reads a value on the
way, or lies in between, is outside. Regions that differ in weights, names and sizes alone are
learned from once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import prod

from xflow.core.errors import ShapeError, SizeError
from xflow.core.graph import Graph
from xflow.core.node import Node, TensorType, Value, apply, leaf
from xflow.core.registry import Array, Attribute, Operator
from xflow.core.size import Expr, Size, evaluate, free_symbols
from xflow.core.sorts import CODES, INT, REAL, sort_of
from xflow.generator.learning.numbers import Numbers, Style
from xflow.generator.vocabulary import DTYPE

FEW_OPERATORS, MOST_OPERATORS = 4, 10
"""Operators of one region: up to few in all combinations, of more only those in a row."""
MOST_LEAVES = 6
NAMES, NAMES_OF_WEIGHTS = "xyzuvgst", "wabcdefo"
MOST_FOR_ONE_RESULT = 40
"""Regions that end in one operator; the smallest ones are taken."""


@dataclass(frozen=True)
class Place:
    """Where a region stands in a graph: its result and its operators."""

    root: Value
    nodes: frozenset[Node]


def places(graph: Graph) -> Iterator[Place]:
    """The parts of a graph with one result, whose inner values nothing else reads.

    For each result in the order of the graph: all of few operators, and of more the ones that hold
    the operators right before the result.
    """
    results = set(graph.outputs)
    number = {node: k for k, node in enumerate(graph.nodes)}

    def is_closed(nodes: frozenset[Node], last: Node) -> bool:
        inner = (value for each in nodes if each is not last for value in each.outputs)
        return all(
            value not in results and nodes.issuperset(graph.users.get(value, ())) for value in inner
        )

    for node in graph.nodes:
        if _is_computed(node) and len(node.outputs) == 1:
            found = (*_growing(node, number), *_behind(node, number))
            for nodes in dict.fromkeys(found):
                if is_closed(nodes, node):
                    yield Place(node.outputs[0], nodes)


def _growing(last: Node, number: Mapping[Node, int]) -> Iterator[frozenset[Node]]:
    """The smallest sets of operators that are connected and end in `last`."""
    found: dict[frozenset[Node], None] = {frozenset({last}): None}
    waiting = list(found)
    while waiting and len(found) <= MOST_FOR_ONE_RESULT:
        nodes = waiting.pop(0)
        yield nodes
        if len(nodes) < FEW_OPERATORS:
            for other in _read_by(nodes, number):
                larger = nodes | {other}
                if larger not in found:
                    found[larger] = None
                    waiting.append(larger)


def _behind(last: Node, number: Mapping[Node, int]) -> Iterator[frozenset[Node]]:
    """Larger sets: each has one operator more than that before, the latest in the graph."""
    nodes = frozenset({last})
    while len(nodes) < MOST_OPERATORS:
        below = _read_by(nodes, number)
        if not below:
            return
        nodes |= {max(below, key=number.__getitem__)}
        if len(nodes) > FEW_OPERATORS:
            yield nodes


def _read_by(nodes: frozenset[Node], number: Mapping[Node, int]) -> list[Node]:
    """The operators outside that some nodes read."""
    found = {
        value.node
        for each in nodes
        for value in each.inputs
        if value.node not in nodes and _is_computed(value.node)
    }
    return sorted(found, key=number.__getitem__)


def siblings(graph: Graph) -> Iterator[tuple[Value, Value]]:
    """Results of operators that do the same to one value with different weights."""
    for value, users in graph.users.items():
        if value.is_constant:
            continue
        for one, other in combinations([user for user in users if _is_computed(user)], 2):
            if one.op is other.op and one.attributes == other.attributes:
                pairs = zip(one.inputs, other.inputs, strict=False)
                same = len(one.inputs) == len(other.inputs) and all(
                    a == b or (a.is_constant and b.is_constant) for a, b in pairs
                )
                if same and one.inputs != other.inputs and len(one.outputs) == 1:
                    yield one.outputs[0], other.outputs[0]


def _is_computed(node: Node) -> bool:
    return isinstance(node.op, Operator) and not node.constant


@dataclass(frozen=True)
class Region:
    """A term over leaves of its own, of which some are weights."""

    root: Value
    weights: frozenset[str]
    reals: Mapping[Fraction, str]
    """Numbers in it that stand for symbols, see `numbers`."""


def regions_of(
    root: Value,
    nodes: frozenset[Node],
    sizes: Mapping[str, int],
    constants: Callable[[Value], Array | None],
) -> Iterator[Region]:
    """A part of a graph over leaves of concrete sizes, with its numbers read in each style.

    `sizes` are those of the graph's symbols. There is none where an operator or a type has no
    reading.
    """
    for style in Style:
        numbers = Numbers(style)
        made = _Stated(nodes, sizes, constants, numbers)
        try:
            value = made.of(root)
        except (ShapeError, SizeError, LookupError, ValueError, ZeroDivisionError):
            return
        leaves = Graph((value,)).leaves
        if len(leaves) <= MOST_LEAVES and any(str(each) not in made.weights for each in leaves):
            yield Region(value, frozenset(made.weights), dict(numbers.reals))
        if not numbers.met:
            return


@dataclass
class _Stated:
    """States values of a graph over leaves of their own. Raises ValueError where that fails."""

    nodes: frozenset[Node]
    sizes: Mapping[str, int]
    constants: Callable[[Value], Array | None]
    numbers: Numbers
    weights: set[str] = field(default_factory=set)
    made: dict[Value, Value] = field(default_factory=dict)

    def of(self, value: Value) -> Value:
        if value not in self.made:
            is_own = value.node in self.nodes
            if is_own or (value.is_constant and not Graph((value,)).leaves):
                self.made.update(zip(value.node.outputs, self._applied(value.node), strict=True))
            else:
                self.made[value] = self._leaf(value)
        return self.made[value]

    def _applied(self, node: Node) -> tuple[Value, ...]:
        if not isinstance(node.op, Operator):
            raise ValueError("an operator without a reading")
        args = [self.of(source) for source in node.inputs]
        attributes = {name: self._attribute(name, each) for name, each in node.attributes.items()}
        return apply(node.op, args, attributes, dtype=_plain(node.types[0].dtype))

    def _leaf(self, value: Value) -> Value:
        dtype = value.type.dtype
        if dtype in CODES or sort_of(dtype) is None:
            raise ValueError(f"elements of type {dtype}")
        shape = tuple(self._size(size) for size in value.shape)
        if value.is_constant and prod(shape) == 1 and sort_of(dtype) == REAL:
            data = self.constants(value) if value.is_leaf else None
            known = None if data is None else self.numbers.constant(float(data.reshape(())))
            if known is not None:
                return known
            shape = ()
        taken = sum(each.is_leaf for each in self.made.values()) - len(self.weights)
        if value.is_constant:
            key = NAMES_OF_WEIGHTS[len(self.weights)]
            self.weights.add(key)
        else:
            key = NAMES[taken]
        return leaf(key, TensorType(_plain(dtype), shape))

    def _attribute(self, name: str, attribute: Attribute) -> Attribute:
        if isinstance(attribute, tuple):
            return tuple(self._size(each) if isinstance(each, Expr) else each for each in attribute)
        if isinstance(attribute, Fraction):
            return self.numbers.attribute(name, attribute)
        return self._size(attribute) if isinstance(attribute, Expr) else attribute

    def _size(self, size: Size) -> int:
        return evaluate(size, {name: self.sizes.get(name, 2) for name in free_symbols(size)})


def _plain(dtype: str) -> str:
    """The type of which terms are enumerated: FLOAT for all floats."""
    sort = sort_of(dtype)
    return DTYPE if sort == REAL else "INT64" if sort == INT else dtype
