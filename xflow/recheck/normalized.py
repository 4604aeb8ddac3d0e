"""Normalizations that are spelled out, which bounds of their parts do not bound."""

from __future__ import annotations

from collections.abc import Callable

from xflow.core.node import Node, Value
from xflow.core.registry import Operator
from xflow.core.size import product
from xflow.recheck.interval import Bounds


def normalized(node: Node, dtype: str, known: Callable[[Value], Bounds]) -> int | None:
    """Of how many elements a node is a normalization, ``d / sqrt(mean(d * d) + e)``.

    No element of that exceeds the root of their number. `d` has to be finite and `e` positive:
    where a square overflows, the quotient is 0.
    """
    assert isinstance(node.op, Operator)
    if node.op.name not in ("Div", "Mul"):
        return None
    pairs = [node.inputs] if node.op.name == "Div" else [node.inputs, node.inputs[::-1]]
    for part, root in pairs:
        below = root if node.op.name == "Div" else _inverted(root, known)
        if below is None or not known(part).is_finite:
            continue
        inner = _radicand(below, known)
        count = None if inner is None else _mean_square(inner, part, dtype, known)
        if count is not None and node.outputs[0].shape == part.shape:
            return count
    return None


def _inverted(value: Value, known: Callable[[Value], Bounds]) -> Value | None:
    """What a value is 1 divided by."""
    node = value.node
    if not isinstance(node.op, Operator):
        return None
    if node.op.name == "Reciprocal":
        return node.inputs[0]
    one = node.op.name == "Div" and known(node.inputs[0]) == Bounds(1.0, 1.0)
    return node.inputs[1] if one else None


def _radicand(value: Value, known: Callable[[Value], Bounds]) -> Value | None:
    """The value of which another one is the square root."""
    node = value.node
    name = node.op.name if isinstance(node.op, Operator) else ""
    is_root = name == "Sqrt" or (name == "Pow" and known(node.inputs[1]) == Bounds(0.5, 0.5))
    return node.inputs[0] if is_root else None


LEAST_EPSILON = {"FLOAT": 1e-37, "DOUBLE": 1e-300, "FLOAT16": 6e-8, "BFLOAT16": 1e-37}
"""What has to be added at least to a mean of squares, so that squares which are lost do no harm."""


def _mean_square(
    value: Value, part: Value, dtype: str, known: Callable[[Value], Bounds]
) -> int | None:
    """The count of elements, if a value is ``mean(part * part) + e``."""
    node = value.node
    if not isinstance(node.op, Operator) or node.op.name != "Add":
        return None
    for mean, epsilon in (node.inputs, node.inputs[::-1]):
        if not known(epsilon).is_finite or known(epsilon).low < LEAST_EPSILON[dtype]:
            continue
        made = mean.node
        if not isinstance(made.op, Operator) or made.op.name != "ReduceMean":
            continue
        (square,) = made.inputs
        is_square = isinstance(square.node.op, Operator) and (
            (square.node.op.name == "Mul" and square.node.inputs == (part, part))
            or (
                square.node.op.name == "Pow"
                and square.node.inputs[0] == part
                and known(square.node.inputs[1]) == Bounds(2.0, 2.0)
            )
        )
        axes = made.attributes["axes"]
        if not is_square or not made.attributes["keepdims"] or not isinstance(axes, tuple):
            continue
        count = product([part.shape[axis] for axis in axes if isinstance(axis, int)])
        return count if isinstance(count, int) and count > 0 else None
    return None
