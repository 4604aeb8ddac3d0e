"""Whether two values are made of the same elements, each of which is followed by a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from xflow.core.fold import FAILURES
from xflow.core.node import Node, Opaque, Value
from xflow.core.registry import Array, Operator

MOST_ELEMENTS = 2**26
"""Elements in all values that are looked at, from which on nothing is shown."""
MOVING = frozenset({"Concat", "Reshape", "Slice"})
"""Operators that are looked into: what they read is followed further."""
SCATTERING = frozenset({"Scatter", "ScatterElements", "ScatterND"})
"""Opaque ones that put elements in the place of others; those that add them have no name."""

Data = Callable[[Value], Array | None]


def moved_elsewhere(before: Value, after: Value, data: Data) -> str:
    """Why `after` may not hold the elements of `before` in their order; nothing where it does.

    All elements that are read get numbers of their own, are moved by the operators, and those of
    both results are compared. `data` gives the indices by which some are scattered.
    """
    if before.type != after.type:
        return "it is of another type"
    numbers: dict[Value, Array] = {}
    used = count = 0
    try:
        for value in _in_order([before, after]):
            sizes = [n for n in value.shape if isinstance(n, int)]
            size = math.prod(sizes)
            used += size
            if len(sizes) < len(value.shape) or used > MOST_ELEMENTS:
                return "its sizes are not known, or too large"
            if _followed(value.node):
                numbers[value] = _moved(value.node, numbers, data)
            else:
                numbers[value] = np.arange(count, count + size, dtype=np.int64).reshape(sizes)
                count += size
    except (ValueError, *FAILURES) as error:
        return f"its elements cannot be followed: {error}"
    return "" if np.array_equal(numbers[before], numbers[after]) else "elements differ"


def _followed(node: Node) -> Sequence[Value]:
    """The inputs of an operator that moves elements, as far as it moves theirs."""
    if isinstance(node.op, Opaque):
        return node.inputs[::2] if node.op.op_type in SCATTERING else ()
    return node.inputs if isinstance(node.op, Operator) and node.op.name in MOVING else ()


def _in_order(values: Sequence[Value]) -> Iterator[Value]:
    """The values, and those whose elements are moved into them, each behind what it is made of."""
    done: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack[-1]
        waiting = [each for each in _followed(value.node) if each not in done]
        if value in done or not waiting:
            stack.pop()
            if value not in done:
                done.add(value)
                yield value
        else:
            stack += waiting


def _moved(node: Node, numbers: dict[Value, Array], data: Data) -> Array:
    """The numbers that an operator moves. Raises ValueError, and what numpy does."""
    if isinstance(node.op, Operator):
        (made,) = node.op.numpy([numbers[value] for value in node.inputs], node.attributes)
        return made
    assert isinstance(node.op, Opaque)
    source, places, new = node.inputs
    indices = data(places)
    if indices is None:
        raise ValueError("an index is no constant")
    made, fresh = numbers[source].copy(), numbers[new]
    if node.op.op_type == "ScatterND":
        place = tuple(indices[..., k] for k in range(indices.shape[-1]))
        count = math.prod(indices.shape[:-1])
    else:
        if indices.shape != fresh.shape:
            raise ValueError("there is not one index for each element")
        place = tuple(np.indices(indices.shape))
        axis = (node.op.axis or 0) % made.ndim
        place = (*place[:axis], indices, *place[axis + 1 :])
        count = indices.size
    target = np.zeros(made.shape[: len(place)], np.int64)
    target[place] = 1
    if target.sum() != count:
        raise ValueError("an element is named twice")
    made[place] = fresh
    return made
