"""The types of codes for which a side is defined, and the ranges in which its codes are.

A code is an integer of 8 bits with a sign or without. What the operators of a side take leaves a
choice for some of its inputs alone: `QuantizeLinear` has a zero point of the type that it makes,
and the zero point of `DequantizeLinear` is of the type of the codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from xflow.core.errors import ShapeError
from xflow.core.graph import walk
from xflow.core.node import Leaf, Value
from xflow.core.registry import Operator
from xflow.core.sorts import CODE, CODES, REAL, integer_range

MAX_INPUTS = 8
"""Inputs of codes beyond which no types are looked for."""


def typings(values: Sequence[Value]) -> Iterator[Mapping[str, str]]:
    """The types of the inputs of codes, by their keys, for which all of `values` are defined."""
    names = [
        node.op.key
        for node in walk(values)
        if isinstance(node.op, Leaf) and node.types[0].dtype == CODE
    ]
    if len(names) > MAX_INPUTS:
        return
    for types in product(CODES, repeat=len(names)):
        chosen = dict(zip(names, types, strict=True))
        if _is_typed(values, chosen):
            yield chosen


def _is_typed(values: Sequence[Value], chosen: Mapping[str, str]) -> bool:
    found: dict[Value, str] = {}
    for node in walk(values):
        sorts = [kind.dtype for kind in node.types]
        if isinstance(node.op, Leaf):
            found[node.outputs[0]] = chosen.get(node.op.key, sorts[0])
            continue
        assert isinstance(node.op, Operator)
        if CODE not in sorts and CODE not in node.op.takes:
            continue  # it makes something else of codes of either type
        inputs = [found.get(source, source.type.dtype) for source in node.inputs]
        try:
            made = node.op.element_types(inputs, node.attributes, REAL)
        except ShapeError:
            return False
        for position, value in enumerate(node.outputs):
            found[value] = made[min(position, len(made) - 1)]
    return True


def code_ranges(values: Sequence[Value]) -> dict[str, tuple[int, int]]:
    """The least and the greatest element of each input of codes where `values` are defined.

    Of an input that may be of either type these are the ends of both. Empty where `values` are
    defined for no types at all, or where there are too many inputs.
    """
    ranges: dict[str, tuple[int, int]] = {}
    for chosen in typings(values):
        for name, dtype in chosen.items():
            low, high = integer_range(dtype)
            least, most = ranges.get(name, (low, high))
            ranges[name] = min(low, least), max(high, most)
    return ranges
