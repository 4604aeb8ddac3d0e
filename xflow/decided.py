"""Tests of values whose answer is known: whether an element is a NaN, where none can be.

Exporters guard each softmax, ``Where(IsNaN(p), 0, p)``, since a mask may leave nothing of a row.
No rule says that the guard does nothing, see `xflow.ranges`. Where a fact about `p` does, its
condition is put to false, and rules about choices whose condition is known do the rest.

Who asks whether a weight of a softmax is a NaN asks about masks, and not about images or features:
that these hold numbers is taken for granted there, see `Ranges`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from xflow.absorbed import absorbed
from xflow.errors import ShapeError
from xflow.fold import ConstantLookup
from xflow.graph import Graph, Node, Opaque, Value, apply
from xflow.ops.registry import Operator
from xflow.ops.sorts import BOOL
from xflow.analysis.ranges import Ranges
from xflow.repeats import repeated

TESTS = {"IsNaN": "no-number-is-nan", "IsInf": "no-number-is-infinite"}
"""Operators of ONNX that ask whether an element is no number, and what says that none is so."""


def decided(graph: Graph, constants: ConstantLookup) -> Iterator[tuple[Value, Value, str]]:
    """Values of `graph` of which a fact tells what else they are, that, and the fact's name.

    They read a test that is false, or a constant whose data tells, see `xflow.repeats` and
    `xflow.absorbed`.
    """
    ranges, trusting = Ranges(constants), Ranges(constants, given=True)
    yield from repeated(graph, constants)
    yield from absorbed(graph, ranges)
    tests = [
        node for node in graph.nodes if isinstance(node.op, Opaque) and node.op.op_type in TESTS
    ]
    for node in tests:
        (tested,) = node.inputs
        known = (trusting if tested.node.role == "softmax" else ranges).of(tested)
        if known is None or not known.is_real:
            continue
        assert isinstance(node.op, Opaque)
        for user in graph.users.get(node.outputs[0], ()):
            after = _without(user, node.outputs[0])
            if after is not None:
                yield user.outputs[0], after, TESTS[node.op.op_type]


def _without(user: Node, test: Value) -> Value | None:
    """What an elementwise operator gives if `test` is false; None for others, and if it grows."""
    if not isinstance(user.op, Operator) or not user.op.elementwise:
        return None
    (false,) = apply("Scalar", (), {"value": Fraction(0)}, dtype=BOOL)
    inputs = [false if value == test else value for value in user.inputs]
    try:
        (after,) = apply(user.op, inputs, user.attributes, dtype=user.types[0].dtype)
    except ShapeError:
        return None
    return after if after.type == user.types[0] else None
