"""Enumerated terms, stored as rows of a table; the graph of a term is made on demand.

A *pool* holds the representatives of one level and one sort, with their values; a *segment* holds
terms that apply one operator with fixed attributes to members of two pools. So a term is a number
and the places of its arguments, and a million of them take a few bytes each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from xflow.core.errors import ShapeError
from xflow.core.node import TensorType, Value, apply, leaf
from xflow.core.registry import Array, Attribute, Attributes, Operator
from xflow.generator.enumeration.batch import CELLS, Batch, Stack
from xflow.generator.enumeration.fingerprint import Evaluator, digests, evaluate_stacks
from xflow.generator.vocabulary import type_made
from xflow.ops import operator


class Call:
    """A production applied with fixed attributes to inputs of fixed types. Raises ShapeError."""

    def __init__(self, op: str, attributes: Attributes, types: Sequence[TensorType], then: str):
        self.written = (op, tuple(sorted(attributes.items())), then)
        """The attributes as the production has them, before they are adapted to the types."""
        leaves = [leaf("{}", type) for type in types]
        node = apply(op, leaves, attributes, dtype=type_made(op))[0].node
        assert isinstance(node.op, Operator)
        self._first = Batch(node.op, node.attributes)
        self._then = operator(then) if then else None
        self._second = Batch(self._then, {}) if self._then else None
        self.identity = (op, tuple(sorted(node.attributes.items())), tuple(types), then)
        """Calls with equal keys make the same terms of the same arguments."""
        outputs = self._finish(node.outputs)
        self.types = tuple(output.type for output in outputs)
        self._texts = [str(output) for output in outputs]

    def at(self, types: Sequence[TensorType]) -> Call:
        """The same for other types. Raises ShapeError."""
        op, attributes, then = self.written
        return Call(op, dict(attributes), types, then)

    def resized(self, sizes: Mapping[int, int]) -> Call:
        """The same with other integers for those that `sizes` names, for a call without inputs."""
        op, attributes, then = self.written
        made: dict[str, Attribute] = dict(attributes)
        for name, value in attributes:
            if isinstance(value, tuple):
                made[name] = tuple(sizes.get(n, n) if isinstance(n, int) else n for n in value)
            elif isinstance(value, int):
                made[name] = sizes.get(value, value)
        return Call(op, made, (), then)

    def _finish(self, outputs: Iterable[Value]) -> tuple[Value, ...]:
        if self._then is None:
            return tuple(outputs)
        return tuple(apply(self._then, [output])[0] for output in outputs)

    def text(self, output: int, args: Sequence[str]) -> str:
        """The term as rules write it, given its arguments."""
        return self._texts[output].format(*args)

    def values(self, args: Sequence[Value]) -> tuple[Value, ...]:
        """The graphs of all outputs."""
        op, attributes = self._first.op, self._first.attributes
        return self._finish(apply(op, args, attributes, dtype=type_made(op.name)))

    def stacks(self, inputs: Sequence[Stack], count: int) -> list[Stack] | None:
        """The values of all outputs; None where they are not of the declared shapes."""
        try:
            made = evaluate_stacks(self._first, inputs, count)
            if self._second is not None:
                made = [self._second([stack])[0] for stack in made]
        except ShapeError:
            return None
        right = all(y.shape[1:] == type.shape for y, type in zip(made, self.types, strict=True))
        return made if right else None


@dataclass
class Pool:
    """Terms of one level, sort and type that larger terms contain, in the order of enumeration."""

    sort: str
    type: TensorType
    rows: Array
    """Numbers of the terms."""
    places: Array
    """Places among the terms of this level and sort, whatever their type."""
    serials: Array
    """Places in the order of enumeration."""
    stack: Stack
    """Their values: ``[term * draw, *shape]``."""

    def take(self, chosen: Array, draws: int) -> Stack:
        """The values of some members."""
        shape = self.stack.shape[1:]
        return self.stack.reshape(-1, draws, *shape)[chosen].reshape(-1, *shape)


@dataclass
class Segment:
    """Terms of one operator with one set of attributes over members of the same pools.

    An input is a segment of its own, without a call.
    """

    call: Call | None
    pools: tuple[Pool, ...]
    args: tuple[Array, ...]
    """For each argument the places in its pool."""
    count: int
    """How often the operator is applied."""
    sort: str
    leaf: Value | None = None
    start: int = 0
    """The number of the first term; the outputs of one application follow each other."""

    @property
    def outputs(self) -> int:
        return 1 if self.call is None else len(self.call.types)

    def __len__(self) -> int:
        return self.count * self.outputs

    @property
    def elements(self) -> int:
        """The elements of all terms at one draw."""
        return self.count * sum(prod(self._shape(output)) for output in range(self.outputs))

    def type(self, output: int) -> TensorType:
        """The type of one output of every term."""
        if self.leaf is not None:
            return self.leaf.type
        assert self.call is not None
        return self.call.types[output]

    def stacks(self, evaluator: Evaluator, chosen: Array | slice) -> list[Stack] | None:
        """The values of all outputs of some of the terms."""
        if self.leaf is not None:
            return [evaluator.leaf(self.leaf)]
        assert self.call is not None
        draws = evaluator.draws
        args = [places[chosen] for places in self.args]
        count = draws * (len(args[0]) if args else 1)
        inputs = [pool.take(a, draws) for pool, a in zip(self.pools, args, strict=True)]
        return self.call.stacks(inputs, count)

    def rows(self, output: int) -> Array:
        """The numbers of the terms that are one output."""
        return self.start + output + self.outputs * np.arange(self.count, dtype=np.int64)

    def rows_of(self, place: int) -> list[int]:
        """The numbers of the arguments of one application."""
        return [
            int(pool.rows[places[place]])
            for pool, places in zip(self.pools, self.args, strict=True)
        ]

    def digests(self, evaluator: Evaluator) -> list[tuple[Array, Array]]:
        """For each output the digests of all terms, and which terms are defined everywhere."""
        made = [
            (np.zeros((self.count, 2), np.uint64), np.zeros(self.count, bool))
            for _ in range(self.outputs)
        ]
        largest = max(prod(self._shape(output)) for output in range(self.outputs))
        step = max(1, CELLS // max(1, evaluator.draws * largest))
        for start in range(0, self.count, step):
            part = slice(start, start + step)
            stacks = self.stacks(evaluator, part)
            for (words, defined), stack in zip(made, stacks or (), strict=False):
                count = len(words[part])
                words[part], defined[part] = digests(stack.reshape(count, -1), evaluator.exact)
        return made

    def _shape(self, output: int) -> tuple[int, ...]:
        return tuple(n for n in self.type(output).shape if isinstance(n, int))


@dataclass
class Table:
    """All terms of an enumeration: by number the level, the text and the graph."""

    segments: list[Segment] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    levels: list[tuple[int, int]] = field(default_factory=list)
    """For each segment the operators that cost and the free ones."""
    texts: dict[int, str] = field(default_factory=dict)
    graphs: dict[int, Value] = field(default_factory=dict)

    def append(self, segment: Segment, level: tuple[int, int]) -> None:
        """Give the terms of a segment their numbers."""
        last = self.segments[-1] if self.segments else None
        segment.start = last.start + len(last) if last else 0
        self.segments.append(segment)
        self.starts.append(segment.start)
        self.levels.append(level)

    def __len__(self) -> int:
        return self.segments[-1].start + len(self.segments[-1]) if self.segments else 0

    def find(self, row: int) -> tuple[int, int, int]:
        """The number of a term's segment, its place there and its output."""
        number = bisect_right(self.starts, row) - 1
        segment = self.segments[number]
        return number, *divmod(row - segment.start, segment.outputs)

    def args(self, row: int) -> list[int]:
        """The numbers of a term's arguments."""
        number, place, _ = self.find(row)
        return self.segments[number].rows_of(place)

    def text(self, row: int, keep: bool = True) -> str:
        """The term as rules write it; kept where it is a part of others."""
        text = self.texts.get(row)
        if text is None:
            number, place, output = self.find(row)
            segment = self.segments[number]
            if segment.leaf is not None:
                text = str(segment.leaf)
            else:
                assert segment.call is not None
                text = segment.call.text(output, [self.text(arg) for arg in segment.rows_of(place)])
            if keep:
                self.texts[row] = text
        return text

    def value(self, row: int) -> Value:
        """The term as a graph."""
        value = self.graphs.get(row)
        if value is None:
            number, place, output = self.find(row)
            segment = self.segments[number]
            if segment.leaf is not None:
                value = segment.leaf
            else:
                assert segment.call is not None
                args = [self.value(arg) for arg in segment.rows_of(place)]
                value = segment.call.values(args)[output]
            self.graphs[row] = value
        return value

    def _segment(self, row: int) -> Segment:
        return self.segments[self.find(row)[0]]

    def sort(self, row: int) -> str:
        """The sort of a term."""
        return self._segment(row).sort

    def level(self, row: int) -> tuple[int, int]:
        """How many operators a term has, those that cost and others."""
        return self.levels[self.find(row)[0]]

    def type(self, row: int) -> TensorType:
        """The type of a term."""
        number, _, output = self.find(row)
        return self.segments[number].type(output)

    def siblings(self, row: int) -> range:
        """All outputs of a term's operator; none of an input."""
        number, place, _ = self.find(row)
        segment = self.segments[number]
        if segment.leaf is not None:
            return range(0)
        first = segment.start + place * segment.outputs
        return range(first, first + segment.outputs)

    def stack(self, rows: Array, evaluator: Evaluator) -> Stack:
        """The values of terms of one type."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for i, row in enumerate(rows.tolist()):
            number, place, output = self.find(row)
            found.setdefault((number, output), []).append((i, place))
        parts: list[tuple[Array, Stack]] = []
        for (number, output), members in found.items():
            places, chosen = np.array(members, np.int64).T
            stacks = self.segments[number].stacks(evaluator, chosen)
            assert stacks is not None, "a term without values is in no class"
            stack = stacks[output]
            parts.append((places, stack.reshape(len(places), -1, *stack.shape[1:])))
        made = np.empty((len(rows), *parts[0][1].shape[1:]), parts[0][1].dtype)
        for places, stack in parts:
            made[places] = stack
        return made.reshape(-1, *made.shape[2:])

    def numbers(self, rows: Array) -> Array:
        """The numbers of the segments of some terms."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def terms(self, rows: Array) -> list[Term]:
        """Terms by number."""
        return [
            Term(self, row, self.segments[number].sort, *self.levels[number])
            for row, number in zip(rows.tolist(), self.numbers(rows).tolist(), strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Term:
    """An enumerated value: its sort and how many operators it has, those that cost and others."""

    table: Table = field(repr=False)
    row: int
    sort: str
    ops: int
    free: int

    @cached_property
    def text(self) -> str:
        """The term as rules write it."""
        return self.table.text(self.row, keep=False)

    @cached_property
    def value(self) -> Value:
        """The term as a graph; made when it is first asked for."""
        return self.table.value(self.row)

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Smaller terms first; deterministic."""
        return (self.ops, self.free, len(self.text), self.text)
