"""Bounds of masks for scores that are made of masks of ones and zeros: ``(1 - mask) * lowest``.

Exports of transformers turn the mask that users give, 1 for a token and 0 for padding, into what is
added to scores: 1 minus it, times the least float. Were the mask anything else, the product might
overflow, and the softmax behind it give NaN. So a model that has such a product tells that the
mask holds ones and zeros, and it is taken at its word: the product does not overflow. Nothing is
concluded of the mask itself. That goes for masks that are inputs of the model; what it computes may
be anything, and so may what a graph inside an operator is given.
"""

from __future__ import annotations

from collections.abc import Callable

from xflow.analysis.elements import element_of
from xflow.core.errors import ShapeError
from xflow.core.intervals import Range
from xflow.core.node import Leaf, MayBe, Node, Opaque, Value
from xflow.core.registry import Operator
from xflow.core.spec import Element, Literal, Plus, Scalar, Times

MOVING = frozenset(
    (
        *("Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
"""Operators that give elements of their first input, perhaps of another type."""
RangeOf = Callable[[Value], Range]
"""The range of a value below the one in question."""


def range_of_mask(value: Value, range_of: RangeOf) -> Range | None:
    """The range of `value`, if it is such a mask: a number's, with 0; None for others."""
    match _specification(value):
        case Times((Element("0", _), Element("1", _))):
            for mask, factor in (value.node.inputs, value.node.inputs[::-1]):
                known = range_of(factor)
                if factor.is_constant and known.is_real and _is_complement(mask, range_of):
                    return Range(min(known.low, 0.0), max(known.high, 0.0))
    return None


def _is_complement(value: Value, range_of: RangeOf) -> bool:
    """Whether a value is 1 minus a mask."""
    match _specification(value):
        case Plus((Element("0", _), Times((Literal(minus), Element("1", _))))) if minus == -1:
            one, mask = value.node.inputs
            known = range_of(one)
            return known.is_real and known.low == known.high == 1 and _is_given(mask)
    return False


def _is_given(value: Value) -> bool:
    """Whether a value has the elements of an input of the model, perhaps of another type."""
    while _is_moved(value.node):
        value = value.node.inputs[0]
    op = value.node.op
    if not isinstance(op, Leaf) or op.constant or op.known is not None:
        return False
    return op.may_be is not MayBe.ANYTHING


def _is_moved(node: Node) -> bool:
    """Whether an operator gives elements of its first input alone."""
    if not isinstance(node.op, Opaque | Operator) or not node.inputs:
        return False
    return node.op.op_type in MOVING


def _specification(value: Value) -> Scalar | None:
    """An element of what an elementwise operator of two inputs computes; None for others."""
    node = value.node
    if not isinstance(node.op, Operator) or not node.op.elementwise or len(node.inputs) != 2:
        return None
    try:
        return element_of(value)
    except ShapeError:
        return None
