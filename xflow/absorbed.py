"""Scores that a mask replaces by a number beside which any score is lost.

``Where(seen, s, c)`` is no sum over the reals. In floats it is one, ``s + Where(seen, 0, c)``, if
`c` is so low, or -inf, that ``c + s`` is `c` for any moderate `s`: the least float, with which
exporters mask, is. Attention reads sums. Beside -1e9, a score leaves its trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from xflow.errors import ShapeError
from xflow.graph import Graph, Value, apply
from xflow.ops.registry import Operator
from xflow.ops.shape import Movement
from xflow.ops.sorts import FLOATS
from xflow.ranges import Ranges, moderate

FACT = "a-score-is-lost-beside-it"
"""What says so, in reports."""

FARTHEST = 6
"""Most operators between a choice and its softmax, and between scores and their product."""


def absorbed(graph: Graph, ranges: Ranges) -> Iterator[tuple[Value, Value, str]]:
    """Masks of a softmax that replace scores, the same as masks that are added, the fact's name."""
    for node in graph.nodes:
        if not isinstance(node.op, Operator) or node.op.name != "Where" or node.constant:
            continue
        chosen, value = node.inputs[0], node.outputs[0]
        for place in (1, 2):
            scores, mask = node.inputs[3 - place], node.inputs[place]
            if (
                scores.type == value.type
                and _absorbs(mask, ranges)
                and _is_moderate(scores, ranges)
                and _is_weighed(graph, value)
            ):
                (zero,) = apply("Scalar", (), {"value": Fraction(0)}, dtype=value.type.dtype)
                sides = (mask, zero) if place == 1 else (zero, mask)
                try:
                    (added,) = apply("Where", [chosen, *sides])
                    (after,) = apply("Add", [scores, added])
                except ShapeError:
                    continue
                if after.type == value.type:
                    yield value, after, FACT
                break


def _absorbs(mask: Value, ranges: Ranges) -> bool:
    """Whether each element of a constant is what it is with a moderate number added to it."""
    dtype = mask.type.dtype
    data = ranges.data(mask) if dtype in FLOATS else None
    if data is None or not data.size:
        return False
    most = np.asarray(moderate(dtype)).astype(data.dtype)
    with np.errstate(over="ignore"):
        return bool(np.all((data < 0) & (data + most == data) & (data - most == data)))


def _is_moderate(value: Value, ranges: Ranges, depth: int = FARTHEST) -> bool:
    """Whether scores are taken to be moderate numbers, see `xflow.ranges`.

    So are products of tensors, whatever these are: as in proofs, they do not overflow. What is
    added to them may be the least float in its turn, and has to be known.
    """
    known = ranges.of(value)
    if known is not None:
        return known.is_real and known.within(moderate(value.type.dtype))
    op = value.node.op
    if not isinstance(op, Operator) or not depth:
        return False
    if op.role == "contraction":
        return True
    return _carries(op) and all(
        source.type.dtype not in FLOATS or _is_moderate(source, ranges, depth - 1)
        for source in value.node.inputs
    )


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
