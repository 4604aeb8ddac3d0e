"""Finds constant tables that hold each angle twice, as exporters store those of rotary embeddings.

A rotary embedding turns the two elements of a pair by the same angle, so that models multiply with
cosines in the form ``[c, c]`` where pairs are made of both halves of a head, and with each cosine
twice in a row where they are neighbours. Once a table is one constant, or computed from one, only
its data shows that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from xflow.core.fold import ConstantLookup
from xflow.core.graph import Graph
from xflow.core.node import Value, apply
from xflow.core.registry import Array

HALVES, NEIGHBOURS = "halves-are-equal", "neighbours-are-equal"
"""The names of the facts in reports."""
RANK, HEADS = 4, (1, 2)
"""Tables have the axes [batch, heads, sequence, head size] or [batch, sequence, heads, head size],
the first of which may be missing, and hold the same for all heads."""


def repeated(graph: Graph, constants: ConstantLookup) -> Iterator[tuple[Value, Value, str]]:
    """Products with such a table, equal products with one that repeats angles, the fact's name.

    `constants` serves constants, computed ones included.
    """
    for node in graph.nodes:
        if not node.is_operator("Mul") or node.constant:
            continue
        if len(node.types[0].shape) != RANK:
            continue
        for place, value in enumerate(node.inputs):
            found = _repeating(value, constants)
            if found is not None:
                fact, table = found
                inputs = [*node.inputs]
                inputs[place] = table
                yield node.outputs[0], apply("Mul", inputs)[0], fact
                break


def _repeating(value: Value, constants: ConstantLookup) -> tuple[str, Value] | None:
    """A table [B, 1, S, D] or [B, S, 1, D] as one made of [B, S, D / 2], and the fact.

    None for other values.
    """
    missing = RANK - len(value.shape)
    shape = (1,) * missing + value.shape
    heads = next((axis for axis in HEADS if shape[axis : axis + 1] == (1,)), None)
    if not value.is_constant or heads is None or missing > heads + 1 or _is_spelled(value):
        return None
    array = constants(value)
    if array is None or array.dtype.kind != "f" or array.shape[-1] % 2 or not array.size:
        return None
    fact = _fact(array)
    if not fact or np.ptp(array) == 0:
        return None
    *rows, width = (1,) * missing + array.shape
    del rows[heads]
    if missing:
        (value,) = apply("Unsqueeze", [value], {"axes": tuple(range(missing))})
    (flat,) = apply("Squeeze", [value], {"axes": (heads,)})
    end, step = (width // 2, 1) if fact == HALVES else (width, 2)
    cut = {"starts": (0,), "ends": (end,), "axes": (2,), "steps": (step,)}
    (angles,) = apply("Slice", [flat], cut)
    if fact == HALVES:
        (table,) = apply("Concat", [angles, angles], {"axis": 2})
    else:
        (column,) = apply("Unsqueeze", [angles], {"axes": (3,)})
        (pairs,) = apply("Expand", [column], {"shape": (1, 1, 1, 2)})
        (table,) = apply("Reshape", [pairs], {"shape": (*rows, width)})
    return fact, apply("Unsqueeze", [table], {"axes": (heads,)})[0]


def _is_spelled(value: Value) -> bool:
    """Whether a table is made as `_repeating` makes it."""
    if not value.node.is_operator("Unsqueeze"):
        return False
    node = value.node.inputs[0].node
    if node.is_operator("Concat"):
        return len(set(node.inputs)) == 1
    return node.is_operator("Reshape") and node.inputs[0].node.is_operator("Expand")


def _fact(array: Array) -> str:
    """How a table holds each angle twice, by the name of the fact; empty where it does not."""
    half = array.shape[-1] // 2
    if np.array_equal(array[..., :half], array[..., half:]):
        return HALVES
    return NEIGHBOURS if np.array_equal(array[..., ::2], array[..., 1::2]) else ""
