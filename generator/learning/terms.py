"""Terms of regions made again: over other leaves, with other attributes or operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, TensorType, Value, apply, leaf
from xflow.core.registry import Attributes, Operator
from xflow.core.size import evaluate
from xflow.generator.vocabulary import DTYPE

Call: TypeAlias = tuple[Operator | str, Attributes, str]
"""An operator, its attributes, and the element type where no input says it."""


def extents(value: Value) -> tuple[int, ...]:
    """The shape of a value of concrete sizes."""
    return tuple(evaluate(size, {}) for size in value.shape)


def called(node: Node) -> Call:
    """What a node does to its inputs."""
    assert isinstance(node.op, Operator)
    return node.op, node.attributes, node.types[0].dtype


def remade(
    root: Value,
    leaf_for: Callable[[Value], Value] = lambda value: value,
    call_for: Callable[[Node, list[Value]], Call] = lambda node, args: called(node),
) -> Value:
    """A term with other leaves and calls; the latter are told the new inputs. Raises ShapeError."""
    made: dict[Value, Value] = {}
    for node in walk((root,)):
        if isinstance(node.op, Leaf):
            made[node.outputs[0]] = leaf_for(node.outputs[0])
            continue
        args = [made[value] for value in node.inputs]
        op, attributes, dtype = call_for(node, args)
        made.update(zip(node.outputs, apply(op, args, attributes, dtype=dtype), strict=True))
    return made[root]


def typed(root: Value, dtypes: Mapping[str, str]) -> Value:
    """A term over sorts as one over element types of models; `dtypes` are those of its leaves."""

    def call_for(node: Node, args: list[Value]) -> Call:
        op, attributes, dtype = called(node)
        return op, attributes, {"REAL": DTYPE, "INT": "INT64"}.get(dtype, dtype)

    return remade(
        root, lambda value: leaf(str(value), TensorType(dtypes[str(value)], value.shape)), call_for
    )
