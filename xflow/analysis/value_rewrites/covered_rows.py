"""Takes the guard off weights of attention whose mask of -inf may cover a row, and asks the mask.

Exporters write ``MatMul(Where(IsNaN(p), 0, p), v)`` with ``p = Softmax(s + m)``: a row of which the
mask `m` covers all has no weights, and gives zeros. Where scores `s` are numbers, the mask alone
decides that. With a very low number `c` in the place of -inf, a row of which something is left has
the same weights to the bit, since ``exp(c + s)`` is 0 beside them; and whether a row is covered is
told by the largest element of the mask. So the product is

    Where(ReduceMax(m) < c', 0, MatMul(Softmax(s + Max(m, c)), v))

in which an attention stands whose mask holds numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from xflow.analysis.ranges import LARGEST, Ranges
from xflow.analysis.reach import Reach
from xflow.analysis.value_rewrites.least_float_masks import just_above_least
from xflow.core.assumptions import moderate
from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.node import Opaque, Value, apply
from xflow.core.registry import Operator

FACT = "a-covered-row-is-told-by-its-mask"
"""The name of the fact in reports."""
TYPES = frozenset({"FLOAT", "DOUBLE"})
"""Element types in which a moderate number is lost beside the lowest ones."""


def uncovered(
    graph: Graph, ranges: Ranges, strict: Ranges, reach: Reach
) -> Iterator[tuple[Value, Value, str]]:
    """Products of guarded weights, the same with the mask asked instead, and the fact's name.

    The `strict` ranges, which assume nothing, count where inputs are in the scores themselves.
    """
    for node in graph.nodes:
        if not isinstance(node.op, Operator) or node.op.name != "MatMul":
            continue
        guarded, values = node.inputs
        weights = _guarded(guarded, ranges)
        if weights is None or weights.type.dtype not in TYPES or len(values.shape) < 2:
            continue  # a product with a vector has no axis of rows before its last one
        (total,) = weights.node.inputs
        known = strict if reach.in_scores(total) else ranges
        for scores, mask in _summands(total):
            if _is_moderate(scores, known) and _is_mask(mask, known):
                after = _asked(weights, scores, mask, values)
                if after is not None and after.type == node.types[0]:
                    yield node.outputs[0], after, FACT
                    break


def _guarded(value: Value, ranges: Ranges) -> Value | None:
    """The weights of a softmax that are 0 where they are NaN, along the last axis."""
    choice = value.node
    if not isinstance(choice.op, Operator) or choice.op.name != "Where":
        return None
    test, zero, weights = choice.inputs
    asked = test.node
    is_test = isinstance(asked.op, Opaque) and asked.op.op_type == "IsNaN"
    if not is_test or asked.inputs != (weights,):
        return None
    data, node = ranges.data(zero), weights.node
    if data is None or data.size != 1 or data.any() or node.role != "softmax":
        return None
    return weights if node.attributes.get("axis") == len(weights.shape) - 1 else None


def _summands(total: Value) -> Iterator[tuple[Value, Value]]:
    """What a value is the sum of, either way round."""
    node = total.node
    if isinstance(node.op, Operator) and node.op.name == "Add":
        yield node.inputs[0], node.inputs[1]
        yield node.inputs[1], node.inputs[0]


def _is_moderate(scores: Value, ranges: Ranges) -> bool:
    known = ranges.of(scores)
    return known.is_real and known.within(moderate(scores.type.dtype))


def _is_mask(mask: Value, ranges: Ranges) -> bool:
    """Whether a value holds moderate numbers and -inf."""
    known = ranges.of(mask)
    numbers = known.low > known.high or known.within(moderate(mask.type.dtype))
    return known.minus and known.is_below_infinity and numbers and bool(mask.shape)


def _asked(weights: Value, scores: Value, mask: Value, values: Value) -> Value | None:
    """The product with the mask asked; None where shapes do not fit."""
    dtype = mask.type.dtype
    try:
        (limit,) = apply("Scalar", (), {"value": -Fraction(LARGEST[dtype]) / 2}, dtype=dtype)
        (zero,) = apply("Scalar", (), {"value": Fraction(0)}, dtype=dtype)
        # The least float itself would be taken for -inf, see `least_float_masks`.
        (raised,) = apply("Max", [mask, just_above_least(dtype)])
        (total,) = apply("Add", [scores, raised])
        (sure,) = apply("Softmax", [total], weights.node.attributes)
        (product,) = apply("MatMul", [sure, values])
        (most,) = apply("ReduceMax", [mask], {"axes": (len(mask.shape) - 1,), "keepdims": 1})
        (covered,) = apply("Less", [most, limit])
        return apply("Where", [covered, zero, product])[0]
    except ShapeError:
        return None
