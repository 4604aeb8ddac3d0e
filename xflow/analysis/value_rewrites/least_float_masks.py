"""Raises masks of least floats where ONNX Runtime's kernel deviates from the definition.

ONNX Runtime's `Attention` takes the least float in a mask for -inf. That makes no difference to a
row of which something is left. But where a mask of least floats covers a whole row, the operators
that the rules replace give the mean of all values, as every score is lost beside the mask, and the
kernel gives zeros. One unit in the last place above the least float, the kernel agrees with them;
so much is rounding. A mask is raised to that unless a fact about it says that it need not be. What
is -inf stays that: beside least floats it has no weight, and they have equal ones.

In a row that a mask of -inf covers, the kernel gives zeros as well, and the definition nothing: a
model that has the operator must not lose it, see `count`.

Where a model has the operator itself, and least floats may cover a row of its mask, the zeros of
the kernel are what it means, and the definition is not. So rules know nothing of such an operator,
see `deviates`: its mask must not be raised, however it is rewritten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from xflow.analysis.ranges import LARGEST, Ranges
from xflow.core.graph import Graph, rebuild, walk
from xflow.core.node import Value, apply, with_inputs
from xflow.core.registry import Array, Operator

RAISED = "least-float-is-a-number"
"""The name by which a report says that a mask was raised."""


def raised(
    outputs: Sequence[Value],
    before: Graph,
    own: Mapping[Value, Value],
    ranges: Ranges,
    *,
    wholly: bool = False,
) -> tuple[Value, ...]:
    """`outputs` with the masks raised that may cover a row and that `before` does not have as such.

    Both are over leaves that stand for values of a whole graph: `own` tells for which, and `ranges`
    knows what these are. `wholly` raises -inf as well, so that each row has a number: where it has
    none, the original has none either, and nothing has to be shown.
    """

    kept = {mask for node in before.nodes for mask in _masks(node.op, node.inputs)}
    new: dict[Value, Value] = {}
    for node in walk(outputs):
        inputs = [new.get(value, value) for value in node.inputs]
        for mask in _masks(node.op, node.inputs):
            if mask in kept or mask.type.dtype not in LARGEST:
                continue
            (known,) = rebuild([mask], own)
            if may_cover(known, ranges, ranges.data(known)):
                place = node.inputs.index(mask)
                mixed = not wholly and not ranges.of(known).is_real
                inputs[place] = _above_least(inputs[place], mixed=mixed)
        made = node if tuple(inputs) == node.inputs else with_inputs(node, tuple(inputs))
        new.update(zip(node.outputs, made.outputs, strict=True))
    return tuple(new.get(value, value) for value in outputs)


def may_cover(mask: Value, ranges: Ranges, data: Array | None) -> bool:
    """Whether a row of `mask`, of which `data` is known or not, may consist of least floats."""
    largest = LARGEST[mask.type.dtype]
    if data is not None:
        return bool(np.any(np.all(data <= -largest, axis=-1)))
    known = ranges.of(mask)
    return not known.is_real or known.low <= -largest


def deviates(op: Operator, inputs: Sequence[Value], ranges: Ranges) -> bool:
    """Whether the kernel of `op` may deviate from its definition on `inputs`, by least floats.

    Rows of -inf alone do not count: there the definition says nothing.
    """
    masks = (mask for mask in _masks(op, inputs) if mask.type.dtype in LARGEST)
    return any(_may_be_covered_by_least(mask, ranges) for mask in masks)


def _may_be_covered_by_least(mask: Value, ranges: Ranges) -> bool:
    """`may_cover`, but for rows of -inf alone."""
    largest, data = LARGEST[mask.type.dtype], ranges.data(mask)
    if data is None:
        return ranges.of(mask).low <= -largest
    covered = data[np.all(data <= -largest, axis=-1)]
    return bool(np.any(np.isfinite(covered)))


def count(graph: Graph) -> int:
    """How many operators have a mask: a rewrite of `graph` must not have fewer."""
    return sum(len(_masks(node.op, node.inputs)) for node in graph.nodes)


def _masks(op: object, inputs: Sequence[Value]) -> Sequence[Value]:
    """The mask among the inputs of an operator that has one."""
    if not isinstance(op, Operator) or op.mask is None:
        return ()
    return inputs[op.mask : op.mask + 1]


def just_above_least(dtype: str) -> Value:
    """The number one unit in the last place above the least float of a type."""
    largest = Fraction(LARGEST[dtype])
    unit = Fraction(2) ** math.frexp(LARGEST[dtype])[1] - largest
    return apply("Scalar", (), {"value": unit - largest}, dtype=dtype)[0]


def _above_least(mask: Value, *, mixed: bool) -> Value:
    """A mask with `c` for the least float, which is one unit in the last place above it.

    That is ``max(mask, c)``; if it is `mixed`, with elements that may be -inf, these stay.
    """
    dtype = mask.type.dtype
    above = just_above_least(dtype)
    if not mixed:
        return apply("Max", [mask, above])[0]
    (least,) = apply("Scalar", (), {"value": -Fraction(LARGEST[dtype])}, dtype=dtype)
    (is_least,) = apply("Equal", [mask, least])
    return apply("Where", [is_least, above, mask])[0]
