"""Finds masks that replace scores and equal masks that are added, by floating-point absorption.

Over the reals, ``Where(seen, s, c)`` is not a sum. In floats it equals ``s + Where(seen, 0, c)`` if
`c` is -inf or so low that ``c + s`` rounds to `c` for all moderate `s`. The least float, with which
exporters mask, is so low; -1e9 is not. Attention needs masks that are added.

A choice hides scores that are no numbers, and a sum does not. So nothing is assumed of scores that
depend on a float input, which a caller may fill with anything where a mask covers it. Of those that
are computed from integers alone, such as tokens, it is assumed that they are moderate.

For the same reason ``Max(s + m, c)``, by which a sum of two such masks is kept finite, is
``s + Max(m, c)``. And ``Where(seen, s, c) + m`` with a mask `m` that is nowhere above 0, as of a
causal choice and padding that is added, is ``s + (Where(seen, 0, c) + m)``: what is below `c`
absorbs what `c` does, and where two least floats come to -inf, they do on both sides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from xflow.analysis.ranges import Ranges
from xflow.analysis.reach import Reach
from xflow.core.assumptions import moderate
from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.node import Node, Value, apply
from xflow.core.registry import Operator
from xflow.core.sorts import FLOATS
from xflow.ops.shape import Movement

FACT = "a-score-is-lost-beside-it"
"""The name of the fact in reports."""

FARTHEST = 6
"""Most operators between a choice and its softmax, and between scores and their product."""


def absorbed(
    graph: Graph, ranges: Ranges, strict: Ranges, reach: Reach
) -> Iterator[tuple[Value, Value, str]]:
    """Masks of a softmax that replace scores, equal ones that are added, and the fact's name.

    The `strict` ranges, which assume nothing, count where scores depend on float inputs.
    """
    readings = {"Where": _chosen, "Max": _kept_finite, "Add": _with_another}
    for node in graph.nodes:
        if not isinstance(node.op, Operator) or node.op.name not in readings or node.constant:
            continue
        value = node.outputs[0]
        for scores, mask in readings[node.op.name](node, ranges):
            known = strict if reach.at_all(scores) else ranges
            if scores.type == value.type and _is_moderate(scores, known):
                after = _added(scores, mask)
                if after is not None and after.type == value.type and _is_weighed(graph, value):
                    yield value, after, FACT
                    break


Made: TypeAlias = tuple[str, Sequence[Value]]
"""An operator and what it is to be applied to."""


def _chosen(node: Node, ranges: Ranges) -> Iterator[tuple[Value, Made]]:
    """The scores of a choice between them and what they are lost beside, and the mask to be added.

    Of ``Where(seen, s, c)`` they are `s` and ``Where(seen, 0, c)``.
    """
    condition = node.inputs[0]
    for place in (1, 2):
        scores, mask = node.inputs[3 - place], node.inputs[place]
        if _absorbs(mask, ranges):
            (zero,) = apply("Scalar", (), {"value": Fraction(0)}, dtype=node.outputs[0].type.dtype)
            sides = (mask, zero) if place == 1 else (zero, mask)
            yield scores, ("Where", (condition, *sides))


def _kept_finite(node: Node, ranges: Ranges) -> Iterator[tuple[Value, Made]]:
    """The scores of a sum that is at least what they are lost beside, and the mask to be added.

    Of ``Max(s + m, c)`` they are `s` and ``Max(m, c)``.
    """
    if len(node.inputs) != 2:
        return
    for total, least in (node.inputs, node.inputs[::-1]):
        made = total.node
        if isinstance(made.op, Operator) and made.op.name == "Add" and _absorbs(least, ranges):
            for scores, mask in (made.inputs, made.inputs[::-1]):
                yield scores, ("Max", (mask, least))


def _with_another(node: Node, ranges: Ranges) -> Iterator[tuple[Value, Made]]:
    """The scores of a choice that another mask is added to, and the sum of both masks.

    Of ``Where(seen, s, c) + m`` they are `s` and ``Where(seen, 0, c) + m``.
    """
    for total, other in (node.inputs, node.inputs[::-1]):
        if total.node.is_operator("Where") and _is_below_zero(other, ranges):
            for scores, (name, inputs) in _chosen(total.node, ranges):
                with contextlib.suppress(ShapeError):
                    yield scores, ("Add", (apply(name, inputs)[0], other))


def _is_below_zero(mask: Value, ranges: Ranges) -> bool:
    """Whether each element of a mask is 0, a number below, or -inf."""
    known = ranges.of(mask)
    return known.low <= known.high <= 0 and not known.plus and not known.nan


def _added(scores: Value, mask: Made) -> Value | None:
    """The sum of scores and a mask; None where their shapes do not fit."""
    name, inputs = mask
    try:
        return apply("Add", [scores, apply(name, inputs)[0]])[0]
    except ShapeError:
        return None


def _absorbs(mask: Value, ranges: Ranges) -> bool:
    """Whether each element of a constant is what it is with a moderate number added to it."""
    dtype = mask.type.dtype
    data = ranges.data(mask) if dtype in FLOATS else None
    if data is None or not data.size:
        return False
    # Twice as much, so that it is no tie: numbers beyond `data` absorb it, too.
    most = 2 * np.asarray(moderate(dtype)).astype(data.dtype)
    with np.errstate(over="ignore"):
        return bool(np.all((data < 0) & (data + most == data) & (data - most == data)))


def _is_moderate(value: Value, ranges: Ranges) -> bool:
    """Whether scores are known to be moderate numbers."""
    known = ranges.of(value)
    return known.is_real and known.within(moderate(value.type.dtype))


def _carries(op: Operator) -> bool:
    """Whether elements of the result are each made of one of each input."""
    return op.elementwise or isinstance(op, Movement)


def _is_weighed(graph: Graph, value: Value, depth: int = FARTHEST) -> bool:
    """Whether a softmax reads a value, or what is made of it element by element."""
    for user in graph.users.get(value, ()):
        if not isinstance(user.op, Operator):
            continue
        if user.op.weights_along is not None:
            return True
        if depth and _carries(user.op) and _is_weighed(graph, user.outputs[0], depth - 1):
            return True
    return False
