"""Graphs as plain data, to be kept in a database and read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from xflow.core.errors import XflowError
from xflow.core.expressions import fraction
from xflow.core.graph import walk
from xflow.core.node import Leaf, Node, Value, apply
from xflow.core.registry import Attribute, Operator
from xflow.core.size import Expr
from xflow.core.size_text import parse_size, reads_back

Plain = dict[str, Any]
"""What JSON can hold."""


def to_plain(values: Sequence[Value]) -> Plain | None:
    """`values` with all that they depend on; None where that has no plain form.

    Leaves are told by their keys. Opaque nodes have no plain form.
    """
    numbers: dict[Node, int] = {}
    nodes: list[list[Any]] = []
    for node in walk(values):
        numbers[node] = len(numbers)
        if isinstance(node.op, Leaf):
            nodes.append([node.op.key])
            continue
        attributes = {name: _plain(value) for name, value in node.attributes.items()}
        if not isinstance(node.op, Operator) or None in attributes.values():
            return None
        inputs = [[numbers[value.node], value.index] for value in node.inputs]
        nodes.append([node.op.name, inputs, attributes, node.types[0].dtype])
    outputs = [[numbers[value.node], value.index] for value in values]
    return {"nodes": nodes, "outputs": outputs}


def from_plain(plain: Plain, leaves: Mapping[str, Value]) -> tuple[Value, ...] | None:
    """The values that `to_plain` wrote down; None if it is not understood."""
    made: list[tuple[Value, ...]] = []
    try:
        for item in plain["nodes"]:
            if len(item) == 1:
                made.append((leaves[item[0]],))
                continue
            name, inputs, attributes, dtype = item
            given = {key: _attribute(value) for key, value in attributes.items()}
            sources = [made[number][index] for number, index in inputs]
            made.append(apply(name, sources, given, dtype=dtype))
        return tuple(made[number][index] for number, index in plain["outputs"])
    except (LookupError, TypeError, ValueError, XflowError):
        return None


def _plain(value: Attribute) -> Any:
    """An attribute as JSON has it; None where it has no plain form."""
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return {"word": value}
    if isinstance(value, Fraction):
        return {"ratio": str(value)}
    if isinstance(value, tuple):
        items = [_plain(item) for item in value]
        return None if None in items else items
    return {"size": str(value)} if isinstance(value, Expr) and reads_back(value) else None


def _attribute(plain: Any) -> Attribute:
    if isinstance(plain, int):
        return plain
    if isinstance(plain, list):
        sizes = [_attribute(item) for item in plain]
        return tuple(size for size in sizes if isinstance(size, int | Expr))
    ((kind, text),) = plain.items()
    if kind == "ratio":
        return fraction(text)
    return str(text) if kind == "word" else parse_size(text)
