"""Whether graphs inside an operator, or functions that it calls, ask if values are numbers.

What does so in the main graph is told by `xflow.analysis.inputs`; here it is by the operators that
stand for themselves, since of such graphs nothing else is known.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from xflow.analysis.inputs import ENORMOUS
from xflow.core.registry import Array
from xflow.onnx.nodes import COMPARISONS, constant_tensor, graph_attributes

TESTS = frozenset({"IsNaN", "IsInf", "IsAllFinite"})
VANISHING = frozenset({"Sub", "Div"})
"""Operators that give one number of any two that are equal, unless these are none."""
FEW = 64
"""Elements of a constant that are looked at."""


def tests_inside(node: ir.Node, model: ir.Model) -> bool:
    """Whether a node's graphs, or functions that it calls, test values. It does not count itself.

    They do by comparing a value with itself or with a number as large as infinity, or by what is
    the same of all numbers.
    """
    seen: set[ir.OperatorIdentifier] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        graphs: list[Iterable[ir.Node]] = [*(graph for _, graph in graph_attributes(current))]
        called = current.op_identifier()
        if called in model.functions and called not in seen:
            seen.add(called)
            graphs.append(model.functions[called])
        for inner in (each for graph in graphs for each in graph):
            if _tests(inner):
                return True
            stack.append(inner)
    return False


def _tests(node: ir.Node) -> bool:
    same = len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
    match node.op_type:
        case name if name in TESTS:
            return True
        case name if name in VANISHING:
            return same
        case name if name in COMPARISONS:
            return same or any(map(_is_enormous, node.inputs))
        case "Mul":
            return any(map(_is_zero, node.inputs))
    return False


def _is_enormous(value: ir.Value | None) -> bool:
    data = _constant(value)
    if data is None:
        return False
    with np.errstate(invalid="ignore"):
        least = min(ENORMOUS.values()) if data.dtype.itemsize == 2 else ENORMOUS["FLOAT"]
        return not bool(np.all(np.abs(data.astype(np.float64)) < least))


def _is_zero(value: ir.Value | None) -> bool:
    data = _constant(value)
    return data is not None and not np.any(data)


def _constant(value: ir.Value | None) -> Array | None:
    """The data of a small constant of floats; None of anything else."""
    if value is None:
        return None
    producer = value.producer()
    tensor = value.const_value if producer is None else constant_tensor(producer)
    if tensor is None or not tensor.dtype.is_floating_point() or not 0 < tensor.size <= FEW:
        return None
    return np.asarray(tensor.numpy())
