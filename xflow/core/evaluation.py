"""What a graph computes: single elements as expressions over its leaves, and whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value
from xflow.core.registry import Array, Operator, Reader
from xflow.core.sorts import BOOL, INT
from xflow.core.spec import Element, Index, Scalar, truth


def read_leaf(value: Value, index: Index) -> Scalar:
    """The element of a leaf at `index`; a Boolean as 1 or 0."""
    assert isinstance(value.node.op, Leaf)
    if value.type.dtype == BOOL:
        return truth(value.node.op.key, tuple(index))
    return Element(value.node.op.key, tuple(index))


def read(
    value: Value, index: Index, change: Callable[[Node, Scalar], Scalar] | None = None
) -> Scalar:
    """The element of `value` at `index`, over elements of the leaves, by composed `at`.

    `change` is done to what each operator computes, before anything reads it.
    """
    node = value.node
    if isinstance(node.op, Leaf):
        return read_leaf(value, index)
    assert isinstance(node.op, Operator), node.op

    def reader(source: Value) -> Reader:
        return lambda i: read(source, i, change)

    shapes = [source.shape for source in node.inputs]
    inputs = [reader(source) for source in node.inputs]
    made = node.op.at(inputs, shapes, node.attributes, value.index, tuple(index))
    return made if change is None else change(node, made)


def run(
    values: Sequence[Value],
    feeds: Mapping[str, Array],
    convert: Callable[[Array], Array] | None = None,
) -> list[Array]:
    """Evaluate by the operators' numpy readings; `feeds` maps leaf keys to arrays.

    `convert` is done to each array, fed or computed, before anything reads it.
    """
    done: dict[Node, list[Array]] = {}
    for node in walk(values):
        if isinstance(node.op, Leaf):
            made = [feeds[node.op.key]]
        else:
            assert isinstance(node.op, Operator), node.op
            arrays = [done[source.node][source.index] for source in node.inputs]
            made = node.op.numpy(arrays, node.attributes)
            if not node.inputs and node.types[0].dtype in (BOOL, INT):  # a constant of a rule
                kind = np.bool_ if node.types[0].dtype == BOOL else np.int64
                made = [array.astype(kind) for array in made]
        done[node] = made if convert is None else [convert(array) for array in made]
    return [done[value.node][value.index] for value in values]
