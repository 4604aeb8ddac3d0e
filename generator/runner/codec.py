"""Graphs and other inputs of chunks as plain data, which can be pickled and hashed.

Interned nodes cannot be pickled: equality is identity, so a copy would equal no other node. They
are encoded as tuples, and rebuilt in the process that receives them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import TypeAlias

from xflow.core.graph import Leaf, Node, TensorType, Value, apply, leaf, walk
from xflow.core.registry import Attribute, Operator

Reference: TypeAlias = tuple[int, int]
"""A node's position among those of a code, and the number of its output."""


@dataclass(frozen=True)
class LeafCode:
    """A leaf of concrete shape."""

    key: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class NodeCode:
    """An operator applied to outputs of nodes before it."""

    op: str
    inputs: tuple[Reference, ...]
    attributes: tuple[tuple[str, Attribute], ...]
    dtype: str


@dataclass(frozen=True)
class Code:
    """Values as plain data: every node once, inputs before users."""

    nodes: tuple[LeafCode | NodeCode, ...]
    roots: tuple[Reference, ...]


def encode(values: Sequence[Value]) -> Code:
    """`values` as plain data. They must be of concrete shapes, and not of a model."""
    position: dict[Node, int] = {}
    nodes: list[LeafCode | NodeCode] = []
    for node in walk(values):
        position[node] = len(nodes)
        if isinstance(node.op, Leaf):
            shape = tuple(int(str(size)) for size in node.types[0].shape)
            nodes.append(LeafCode(node.op.key, node.types[0].dtype, shape))
        else:
            assert isinstance(node.op, Operator)
            inputs = tuple((position[value.node], value.index) for value in node.inputs)
            attributes = tuple(sorted(node.attributes.items(), key=lambda item: item[0]))
            nodes.append(NodeCode(node.op.name, inputs, attributes, node.types[0].dtype))
    return Code(tuple(nodes), tuple((position[value.node], value.index) for value in values))


def decode(code: Code) -> tuple[Value, ...]:
    """The values of which `code` was made, interned as ever."""
    made: list[tuple[Value, ...]] = []
    for node in code.nodes:
        if isinstance(node, LeafCode):
            made.append((leaf(node.key, TensorType(node.dtype, node.shape)),))
        else:
            args = [made[position][output] for position, output in node.inputs]
            made.append(apply(node.op, args, dict(node.attributes), dtype=node.dtype))
    return tuple(made[position][output] for position, output in code.roots)


def canonical(value: object) -> str:
    """A text that equal data share, whatever the order of its sets and mappings.

    Raises TypeError for what has no such text.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | Fraction):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"({','.join(map(canonical, value))})"
    if isinstance(value, set | frozenset):
        return f"{{{','.join(sorted(map(canonical, value)))}}}"
    if isinstance(value, Mapping):
        pairs = sorted((canonical(key), canonical(item)) for key, item in value.items())
        return f"{{{','.join(f'{key}:{item}' for key, item in pairs)}}}"
    if is_dataclass(value) and not isinstance(value, type):
        parts = (f"{f.name}={canonical(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__name__}({','.join(parts)})"
    raise TypeError(f"{type(value).__name__} has no canonical text")


def digest(*parts: object) -> str:
    """A name for data, of 40 hexadecimal digits: equal for equal data, in every process."""
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:40]
