"""Finds constants with equal halves: tables of angles, which exporters store twice side by side.

A rotary embedding turns the halves of each head by the same angles, so that models multiply with
cosines in the form ``[c, c]``. Once they are folded into one constant, only its data shows that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.node import Value, apply
from xflow.core.registry import Operator

FACT = "halves-are-equal"
"""The name of the fact in reports."""
RANK, HEADS = 4, 1
"""Tables have the axes [batch, heads, sequence, head size], the first of which may be missing, and
hold the same for all heads."""


def repeated(graph: Graph, constants: ConstantLookup) -> Iterator[tuple[Value, Value, str]]:
    """Products with such a constant, equal products with a `Concat` of halves, the fact's name."""
    for node in graph.nodes:
        if not isinstance(node.op, Operator) or node.op.name != "Mul" or node.constant:
            continue
        if len(node.types[0].shape) != RANK:
            continue
        inputs = [_joined(value, constants) or value for value in node.inputs]
        if tuple(inputs) != node.inputs:
            yield node.outputs[0], apply(node.op, inputs, node.attributes)[0], FACT


def _joined(value: Value, constants: ConstantLookup) -> Value | None:
    """A table [B, 1, S, D] as joined halves [B, S, D / 2]; None for any other value."""
    missing = RANK - len(value.shape)
    shape = (1,) * missing + value.shape
    if not (value.is_leaf and value.is_constant) or missing > HEADS + 1 or shape[HEADS] != 1:
        return None
    array = constants(value)
    if array is None or array.dtype.kind != "f" or array.shape[-1] % 2 or not array.size:
        return None
    half = array.shape[-1] // 2
    if not np.array_equal(array[..., :half], array[..., half:]) or np.ptp(array) == 0:
        return None
    if missing:
        (value,) = apply("Unsqueeze", [value], {"axes": tuple(range(missing))})
    (rows,) = apply("Squeeze", [value], {"axes": (HEADS,)})
    cut = {"starts": (0,), "ends": (half,), "axes": (2,), "steps": (1,)}
    (part,) = apply("Slice", [rows], cut)
    (joined,) = apply("Concat", [part, part], {"axis": 2})
    return apply("Unsqueeze", [joined], {"axes": (HEADS,)})[0]
