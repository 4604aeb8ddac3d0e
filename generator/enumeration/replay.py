"""Evaluates enumerated terms again, at independent draws and with inputs of other sizes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np

from xflow.core.errors import ShapeError
from xflow.core.node import TensorType, Value, leaf
from xflow.generator.enumeration.batch import Stack
from xflow.generator.enumeration.fingerprint import Evaluator
from xflow.generator.enumeration.terms import Call, Segment, Table
from xflow.generator.vocabulary import Input, Vocabulary

MANY = 61
"""Extent of inputs of any shape at other sizes."""


def other_sizes(vocabulary: Vocabulary, *, apart: bool = False) -> dict[str, Value]:
    """For each input one that is larger along each axis: by 1, or `apart`, by the axis's name.

    In an enumeration, axes of different names have the same extent, and an equation may hold for
    that reason alone; but few terms fit where the extents differ. The extents of kernels stay,
    since padding depends on them; so do those that rules are stated for alone, such as 1.
    """
    names = dict.fromkeys(name for item in vocabulary.inputs for name in item.names)
    more = {name: i + 2 if apart else 1 for i, name in enumerate(names)}
    return {
        item.name: leaf(item.name, TensorType(item.dtype, _larger(item, vocabulary, more)))
        for item in vocabulary.inputs
    }


def _larger(item: Input, vocabulary: Vocabulary, more: Mapping[str, int]) -> tuple[int, ...]:
    if item.any_shape:
        return (MANY,)
    weight = item.sort in vocabulary.free
    axes = zip(item.sizes, item.names, item.vector, item.literal, strict=True)
    return tuple(
        size if literal or (vector and weight) else size + more[name]
        for size, name, vector, literal in axes
    )


def other_constants(vocabulary: Vocabulary, inputs: Mapping[str, Value]) -> dict[int, int]:
    """The sizes of constants such as ones, mapped as `other_sizes` maps those of the inputs.

    Empty where sizes that mean different things may be equal: then constants stay.
    """
    if not vocabulary.by_example:
        return {}
    return {
        size: int(str(other))
        for item in vocabulary.inputs
        for size, other in zip(item.sizes, inputs[item.name].shape, strict=True)
    }


class Replay:
    """The values of some terms of a table under an evaluator, all terms of a segment together.

    `inputs` replace those of the table, and `constants` the integers of operators without inputs,
    but for those named in `literal`. A term that does not fit them has no values.
    """

    def __init__(
        self,
        table: Table,
        rows: Iterable[int],
        evaluator: Evaluator,
        inputs: Mapping[str, Value] | None = None,
        constants: Mapping[int, int] | None = None,
        *,
        literal: Container[str] = (),
    ):
        self._table = table
        self._evaluator = evaluator
        self._inputs = inputs
        self._constants = constants or {}
        self._literal = literal
        self._values: dict[int, Stack | None] = {}
        self._calls: dict[object, Call | None] = {}
        wanted: dict[int, None] = {}
        pending = list(rows)
        while pending:
            row = pending.pop()
            if row not in wanted:
                wanted[row] = None
                pending += table.args(row)
        by_segment: dict[int, list[int]] = {}
        for row in sorted(wanted):
            by_segment.setdefault(table.find(row)[0], []).append(row)
        for number in sorted(by_segment):  # arguments have smaller numbers
            self._evaluate(table.segments[number], by_segment[number])

    def agree(self, source: int, target: int) -> bool:
        """Whether the terms are equal at all draws where both are defined."""
        left, right = self._values[source], self._values[target]
        if left is None or right is None or left.shape != right.shape:
            return True  # undecided where one of them does not fit
        if left.dtype.kind != "f":
            return bool(np.array_equal(left, right))
        with np.errstate(invalid="ignore"):
            close = np.abs(left - right) <= 1e-9 * (1 + np.abs(left))
        return bool((close | ~np.isfinite(left) | ~np.isfinite(right)).all())

    def _evaluate(self, segment: Segment, rows: Sequence[int]) -> None:
        if segment.leaf is not None:
            value = segment.leaf
            if self._inputs is not None:
                value = self._inputs[str(value)]
            self._values[rows[0]] = self._evaluator.leaf(value)
            return
        groups: dict[tuple[TensorType, ...], list[tuple[int, list[Stack]]]] = {}
        for row in rows:
            args = [self._values[arg] for arg in self._table.args(row)]
            known = [stack for stack in args if stack is not None]
            if len(known) < len(args):
                self._values[row] = None
                continue
            types = tuple(
                TensorType(pool.type.dtype, stack.shape[1:])
                for pool, stack in zip(segment.pools, known, strict=True)
            )
            groups.setdefault(types, []).append((row, known))
        for types, members in groups.items():
            self._fill(segment, types, members)

    def _fill(
        self,
        segment: Segment,
        types: tuple[TensorType, ...],
        members: Sequence[tuple[int, list[Stack]]],
    ) -> None:
        """Values for terms whose arguments have these types."""
        draws = self._evaluator.draws
        call = self._call(segment, types)
        inputs = [
            np.concatenate(stacks) for stacks in zip(*(args for _, args in members), strict=True)
        ]
        made = None if call is None else call.stacks(inputs, draws * len(members))
        for number, (row, _) in enumerate(members):
            output = self._table.find(row)[2]
            part = slice(number * draws, (number + 1) * draws)
            self._values[row] = None if made is None else made[output][part]

    def _call(self, segment: Segment, types: tuple[TensorType, ...]) -> Call | None:
        assert segment.call is not None
        if not types and self._constants and segment.call.written[0] not in self._literal:
            return segment.call.resized(self._constants)
        if types == tuple(pool.type for pool in segment.pools):
            return segment.call
        key = (segment.call.written, types)
        if key not in self._calls:
            try:
                self._calls[key] = segment.call.at(types)
            except ShapeError:
                self._calls[key] = None
        return self._calls[key]
