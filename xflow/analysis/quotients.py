"""Bounds of quotients whose divisor depends on the dividend: normalizations spelled out.

``d / sqrt(mean(d * d) + eps)`` is at most the root of the number of elements in magnitude, however
large d is: the dividend is one of the elements whose squares are summed up; and where a square
overflows, the quotient by its infinite root is 0. Intervals do not show this, since they do not
relate both sides of a quotient. Exporters spell out LayerNormalization in this way, with
``d = x - mean(x)``, and RMSNormalization.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from xflow.analysis.elements import element_of
from xflow.core.intervals import Range
from xflow.core.node import Value
from xflow.core.registry import Operator
from xflow.core.size import symbol
from xflow.core.spec import Call, Element, Literal, Plus, Scalar, SumOver, Times

RangeOf = Callable[[Value], Range]
"""The range of a value below the one in question."""


def bound_of_quotient(value: Value, range_of: RangeOf) -> float | None:
    """The largest magnitude of elements of `value`, if it is such a quotient; None for others."""
    node = value.node
    if not isinstance(node.op, Operator) or not node.op.elementwise or len(node.inputs) != 2:
        return None
    first, second = node.inputs
    if value.shape not in (first.shape, second.shape):
        return None
    scalar = element_of(value)
    if _reads_quotient(scalar):
        return _bound(first, second, range_of)
    if _reads_product(scalar):
        for one, other in ((first, second), (second, first)):
            below = _inverse_of(other, range_of)
            found = None if below is None else _bound(one, below, range_of)
            if found is not None:
                return found
    return None


def _reads_quotient(scalar: Scalar) -> bool:
    match scalar:
        case Times((Element("0", _), Call("reciprocal", (Element("1", _),)))):
            return True
    return False


def _reads_product(scalar: Scalar) -> bool:
    match scalar:
        case Times((Element("0", _), Element("1", _))):
            return True
    return False


def _inverse_of(value: Value, range_of: RangeOf) -> Value | None:
    """The divisor of a value that is an inverse, or a number of at most 1 divided by it."""
    node = value.node
    if not isinstance(node.op, Operator) or not node.op.elementwise or not node.inputs:
        return None
    scalar = element_of(value)
    match scalar:
        case Call("reciprocal", (Element("0", _),)):
            return node.inputs[0]
    if _reads_quotient(scalar):
        above = range_of(node.inputs[0])
        return node.inputs[1] if above.is_real and above.within(1.0) else None
    return None


def _bound(part: Value, root: Value, range_of: RangeOf) -> float | None:
    """The bound of ``part / root``, if root is that of a mean of squares of parts, or more."""
    node, known = root.node, range_of(root)
    if not isinstance(node.op, Operator) or len(node.inputs) != 1 or not range_of(part).is_real:
        return None
    if known.nan or known.minus or known.low <= 0:
        return None
    match element_of(root):
        case Call("sqrt", (Element("0", _),)):
            return _bound_by_mean(part, node.inputs[0], range_of)
    return None


def _bound_by_mean(part: Value, mean: Value, range_of: RangeOf) -> float | None:
    """The same by the mean itself, to which something that is not negative may be added."""
    node = mean.node
    if not isinstance(node.op, Operator):
        return None
    if node.op.elementwise and len(node.inputs) == 2:
        match element_of(mean):
            case Plus((Element("0", _), Element("1", _))):
                for inner, added in (node.inputs, node.inputs[::-1]):
                    known = range_of(added)
                    if known.is_real and known.low >= 0 and inner.shape == mean.shape:
                        found = _bound_by_mean(part, inner, range_of)
                        if found is not None:
                            return found
        return None
    if node.op.elementwise or len(node.inputs) != 1:
        return None
    (square,) = node.inputs
    count = _count_of_mean(mean, square)
    fits = len(mean.shape) == len(part.shape) and square.shape == part.shape
    return math.sqrt(count) if count and fits and _is_square(square, part, range_of) else None


def _count_of_mean(mean: Value, source: Value) -> int | None:
    """The number of elements of a mean along axes that it keeps; None for other values."""
    match element_of(mean):
        case Times((SumOver() as total, Literal(part))) if part > 0:
            pass
        case _:
            return None
    count = 1
    bound: dict[object, str] = {}
    body: Scalar = total
    while isinstance(body, SumOver):
        if not isinstance(body.extent, int):
            return None
        count *= body.extent
        bound[symbol(body.variable)] = body.variable
        body = body.body
    if not isinstance(body, Element) or len(body.index) != len(source.shape):
        return None
    plain = all(i in bound or i == symbol(f"i{k}") for k, i in enumerate(body.index))
    summed = [i for i in body.index if i in bound]
    axes = [n for n, i in zip(source.shape, body.index, strict=True) if i in bound]
    whole = count == math.prod(n for n in axes if isinstance(n, int))
    is_mean = plain and whole and len(summed) == len(set(summed)) == len(bound)
    return count if is_mean and part == Fraction(1, count) else None


def _is_square(square: Value, part: Value, range_of: RangeOf) -> bool:
    """Whether a value is ``part * part``."""
    node = square.node
    if not isinstance(node.op, Operator) or not node.op.elementwise:
        return False
    match element_of(square):
        case Times((Element("0", _), Element("0", _))):
            return node.inputs[0] == part
        case Call("power", (Element("0", _), Element("1", _))):
            known = range_of(node.inputs[1])
            return node.inputs[0] == part and known.is_real and known.low == known.high == 2
    return False
