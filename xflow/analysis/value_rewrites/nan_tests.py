"""Replaces IsNaN and IsInf by false where range analysis decides them; collects all facts.

Exporters guard each softmax, ``Where(IsNaN(p), 0, p)``, since a mask may cover a row. No rule can
remove the guard, since rules hold for numbers only. Where the range of `p` excludes NaN, the
condition becomes false, and rules about choices with a constant condition remove the choice.

A test of the weights of a softmax is about masks, and not about images or features: there, the
assumptions about inputs hold, unless inputs are in the scores themselves, as elements or as masks,
see `xflow.analysis.reach`. Any other test must be false for all inputs: a model that tests a value
expects that it may be no number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from xflow.analysis.ranges import Ranges
from xflow.analysis.reach import Reach
from xflow.analysis.value_rewrites.covered_rows import uncovered
from xflow.analysis.value_rewrites.masked_scores import absorbed
from xflow.analysis.value_rewrites.repeated_angles import repeated
from xflow.analysis.value_rewrites.softplus_tails import tails
from xflow.analysis.value_rewrites.written_slices import joined
from xflow.core.assumptions import Assumption
from xflow.core.errors import ShapeError
from xflow.core.graph import Graph
from xflow.core.intervals import Range
from xflow.core.node import Node, Opaque, Value, apply
from xflow.core.registry import Operator
from xflow.core.sorts import BOOL

TESTS: Mapping[str, tuple[str, Callable[[Range], bool]]] = {
    "IsNaN": ("no-number-is-nan", lambda known: not known.nan),
    "IsInf": ("no-number-is-infinite", lambda known: not known.is_infinite),
}
"""ONNX's tests for elements that are no numbers, the fact that none is, and the ranges for which
that is true."""


def decided(graph: Graph, ranges: Ranges) -> Iterator[tuple[Value, Value, str]]:
    """Values of `graph`, equal values by a fact, and the name of the fact.

    They read a test that is false, or that a mask decides, a table that holds each angle
    twice, indices that name a slice, scores lost beside a mask, or an exponential lost beside 1,
    see the other modules of `xflow.analysis.value_rewrites`.
    """
    strict = Ranges(ranges.constants, Assumption.NONE)
    yield from repeated(graph, strict.data)
    yield from joined(graph, strict.data)
    reach = Reach(ranges.constants)
    yield from absorbed(graph, ranges, strict, reach)
    yield from tails(graph, strict)
    yield from uncovered(graph, ranges, strict, reach)
    tests = [
        node for node in graph.nodes if isinstance(node.op, Opaque) and node.op.op_type in TESTS
    ]
    for node in tests:
        (tested,) = node.inputs
        assert isinstance(node.op, Opaque)
        name, is_false = TESTS[node.op.op_type]
        about_masks = tested.node.role == "softmax" and not reach.in_scores(tested.node.inputs[0])
        if not is_false((ranges if about_masks else strict).of(tested)):
            continue  # perhaps its mask tells, see `covered_rows`
        for user in graph.users.get(node.outputs[0], ()):
            after = _without(user, node.outputs[0])
            if after is not None:
                yield user.outputs[0], after, name


def _without(user: Node, test: Value) -> Value | None:
    """The output of an elementwise operator with `test` false; None for others, and if it grows."""
    if not isinstance(user.op, Operator) or not user.op.elementwise:
        return None
    (false,) = apply("Scalar", (), {"value": Fraction(0)}, dtype=BOOL)
    inputs = [false if value == test else value for value in user.inputs]
    try:
        (after,) = apply(user.op, inputs, user.attributes, dtype=user.types[0].dtype)
    except ShapeError:
        return None
    return after if after.type == user.types[0] else None
