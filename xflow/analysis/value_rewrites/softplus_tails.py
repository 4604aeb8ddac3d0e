"""Finds choices between a Softplus and its argument, by floating-point absorption.

PyTorch computes ``log(1 + exp(x))`` up to a threshold, and gives `x` itself beyond it, where its
own exponential would overflow. Exporters write both, ``Where(x > 20, x, Softplus(x))``. Over the
reals `x` is less than its Softplus by ``log(1 + exp(-x))``. In floats, both are the same where that
exponential, added to 1, is lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from xflow.analysis.ranges import Ranges
from xflow.core.graph import Graph
from xflow.core.node import Node, Value
from xflow.core.registry import Operator
from xflow.core.rounding import limits
from xflow.core.sorts import FLOATS

FACT = "an-exponential-is-lost-beside-one"
"""The name of the fact in reports."""

ROOM = 8
"""By which factor an exponential has to be less than the distance of 1 to the next float."""

ABOVE = {"Greater": 0, "GreaterOrEqual": 0, "Less": 1, "LessOrEqual": 1}
"""The place of the larger input of each comparison."""


def tails(graph: Graph, ranges: Ranges) -> Iterator[tuple[Value, Value, str]]:
    """Such choices, the Softplus that each of them equals, and the name of the fact."""
    for node in graph.nodes:
        if not node.is_operator("Where") or node.constant:
            continue
        condition, *sides = node.inputs
        for place, (kept, smooth) in enumerate((sides, sides[::-1])):
            if (
                smooth.node.is_operator("Softplus")
                and smooth.node.inputs == (kept,)
                and smooth.type == node.types[0]
                and _is_beyond(condition.node, kept, place, ranges)
            ):
                yield node.outputs[0], smooth, FACT
                break


def _is_beyond(comparison: Node, argument: Value, place: int, ranges: Ranges) -> bool:
    """Whether an argument is compared with a number beyond which it is its own Softplus.

    It is chosen where the comparison is true, or, if `place` is 1, where that is false. What is no
    number passes no comparison: then both sides of the choice are none.
    """
    larger = ABOVE.get(comparison.op.name) if isinstance(comparison.op, Operator) else None
    if larger is None or comparison.inputs[larger ^ place] != argument:
        return False
    threshold = comparison.inputs[1 - (larger ^ place)]
    dtype = argument.type.dtype
    data = ranges.data(threshold) if dtype in FLOATS else None
    if data is None or not data.size:
        return False
    least = float(np.min(data.astype(np.float64)))  # NaN where one of them is
    return least > 0 and math.exp(-least) * ROOM < float(limits(dtype).eps)
