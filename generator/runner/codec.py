"""Graphs and other inputs of chunks as plain data, which can be pickled and hashed.

Interned nodes cannot be pickled: equality is identity, so a copy would equal no other node. They
are encoded as tuples, and rebuilt in the process that receives them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction

from xflow.core.codec import from_plain, to_plain
from xflow.core.graph import Graph
from xflow.core.node import TensorType, Value, leaf


@dataclass(frozen=True)
class Code:
    """Values as plain data: their form, as JSON, and the types of the leaves that it names."""

    form: str
    leaves: tuple[tuple[str, str, tuple[int, ...]], ...]
    """Key, element type and concrete shape of each."""


def encode(values: Sequence[Value]) -> Code:
    """`values` as plain data. They must be of concrete shapes, and not of a model."""
    form = to_plain(values)
    assert form is not None
    leaves = tuple(
        (str(each), each.type.dtype, tuple(int(str(size)) for size in each.shape))
        for each in Graph(tuple(values)).leaves
    )
    return Code(json.dumps(form, sort_keys=True), leaves)


def decode(code: Code) -> tuple[Value, ...]:
    """The values of which `code` was made, interned as ever."""
    leaves = {key: leaf(key, TensorType(dtype, shape)) for key, dtype, shape in code.leaves}
    values = from_plain(json.loads(code.form), leaves)
    assert values is not None
    return values


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
