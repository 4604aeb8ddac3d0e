"""Whether two ONNX models are the same up to names: compared node by node, from the outputs up.

Weights must be equal byte for byte. Of constants that were computed, elements may differ by one
unit in the last place, since the order of sums is not the same on all processors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from xflow.onnx.interface import check_interface
from xflow.onnx.nodes import graphs_of
from xflow.onnx.types import interface

IsWeight = Callable[[ir.TensorProtocol], bool]
"""Whether a tensor of the first model is one that must not differ at all."""


def difference(one: ir.Model, other: ir.Model, is_weight: IsWeight) -> str | None:
    """Where `other` first differs from `one`; None where they compute the same, node by node."""
    fault = check_interface(interface(one), interface(other))
    if fault is not None:
        return fault
    if dict(one.graph.opset_imports) != dict(other.graph.opset_imports):
        return "the operator sets are others"
    mine, theirs = (
        {
            key: ir.to_proto(function).SerializeToString()
            for key, function in model.functions.items()
        }
        for model in (one, other)
    )
    if mine != theirs:
        return "the functions of the model are others"
    return _Pairing(is_weight).graphs(one.graph, other.graph)


class _Pairing:
    """Values and nodes of two models that stand for each other."""

    def __init__(self, is_weight: IsWeight) -> None:
        self.is_weight = is_weight
        self.partner: dict[ir.Value | ir.Node, ir.Value | ir.Node] = {}
        self.taken: set[ir.Value | ir.Node] = set()

    def graphs(self, one: ir.Graph, other: ir.Graph) -> str | None:
        """Pair two graphs, of which what they capture is paired already."""
        if len(one.inputs) != len(other.inputs) or len(one.outputs) != len(other.outputs):
            return "a graph has another number of inputs or outputs"
        if len(one) != len(other):
            return f"there are {len(other)} operators where {len(one)} follow"
        for mine, theirs in zip(one.inputs, other.inputs, strict=True):
            if not self.pair(mine, theirs):
                return f"the input {theirs.name} stands for two"
            fault = self.data(mine, theirs)
            if fault is not None:
                return fault
        pending = list(zip(one.outputs, other.outputs, strict=True))[::-1]
        while pending:
            mine, theirs = pending.pop()
            if self.partner.get(mine) is theirs:
                continue
            fault = self.values(mine, theirs)
            if fault is not None:
                return fault
            node, same = mine.producer(), theirs.producer()
            if node is not None and same is not None and node not in self.partner:
                fault = self.nodes(node, same)
                if fault is not None:
                    return fault
                for name, attribute in node.attributes.items():
                    inner = zip(graphs_of(attribute), graphs_of(same.attributes[name]), strict=True)
                    for pair in inner:
                        fault = self.graphs(*pair)
                        if fault is not None:
                            return f"in {_name(same)}: {fault}"
                for a, b in zip(node.inputs, same.inputs, strict=True):
                    if a is not None and b is not None:
                        pending.append((a, b))
        return None

    def pair(self, one: ir.Value | ir.Node, other: ir.Value | ir.Node) -> bool:
        """Take two for the same; False where one of them stands for another one."""
        known = self.partner.get(one)
        if known is not None or other in self.taken:
            return known is other
        self.partner[one] = other
        self.taken.add(other)
        return True

    def values(self, one: ir.Value, other: ir.Value) -> str | None:
        """Pair two values, the nodes that compute them aside."""
        if (one.producer() is None) != (other.producer() is None) or one.index() != other.index():
            return f"{other.name} is computed otherwise"
        if not self.pair(one, other):
            return f"{other.name} stands in the place of another value"
        return self.data(one, other) if one.producer() is None else None

    def data(self, one: ir.Value, other: ir.Value) -> str | None:
        """How two values differ that no operator computes."""
        if one.is_graph_input() != other.is_graph_input():
            return f"{other.name} is an input in one of them alone"
        mine, theirs = one.const_value, other.const_value
        if (mine is None) != (theirs is None):
            return f"{other.name} is a constant in one of them alone"
        if mine is None or theirs is None:
            return None
        fault = _other_data(mine, theirs, exact=self.is_weight(mine))
        return fault and f"the constant {other.name}: {fault}"

    def nodes(self, one: ir.Node, other: ir.Node) -> str | None:
        """Pair two nodes, what they read aside."""
        where = f"the operator {_name(other)}"
        if one.op_identifier() != other.op_identifier():
            return f"{where} is a {other.op_type} where a {one.op_type} follows"
        inputs = [value is None for value in one.inputs]
        if inputs != [value is None for value in other.inputs]:
            return f"{where} has other inputs"
        if len(one.outputs) != len(other.outputs):
            return f"{where} has another number of outputs"
        if one.attributes.keys() != other.attributes.keys():
            return f"{where} has other attributes"
        for name, attribute in one.attributes.items():
            if not _same_attribute(attribute, other.attributes[name]):
                return f"{where} has another {name}"
        return None if self.pair(one, other) else f"{where} stands in the place of another one"


def _name(node: ir.Node) -> str:
    return node.name or node.op_type


def _same_attribute(one: ir.Attr, other: ir.Attr) -> bool:
    """Whether two attributes are equal; graphs are compared elsewhere, here only counted."""
    if one.type != other.type or one.is_ref() != other.is_ref():
        return False
    if graphs_of(one) or graphs_of(other):
        return len(graphs_of(one)) == len(graphs_of(other))
    if one.type == ir.AttributeType.TENSOR and not one.is_ref():
        return _other_data(one.as_tensor(), other.as_tensor(), exact=True) is None
    mine, theirs = (
        ir.to_proto(each).SerializeToString(deterministic=True) for each in (one, other)
    )
    return bool(mine == theirs)


def _other_data(one: ir.TensorProtocol, other: ir.TensorProtocol, *, exact: bool) -> str | None:
    """How the data of two tensors differs."""
    if one.dtype != other.dtype or list(one.shape) != list(other.shape):
        return f"it is {other.dtype.name}{other.shape} where {one.dtype.name}{one.shape} follows"
    if one.dtype == ir.DataType.STRING:
        return None if one.numpy().tolist() == other.numpy().tolist() else "other texts"
    mine, theirs = one.tobytes(), other.tobytes()
    if mine == theirs:
        return None
    if exact or one.dtype not in _ROUNDED:
        return "its data is another"
    apart = int(np.count_nonzero(~_near(one, other)))
    return f"{apart} of its {one.size} elements are others" if apart else None


_ROUNDED = frozenset(ir.DataType[name] for name in ("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE"))
"""Types in which constants are computed with rounding."""


def _near(one: ir.TensorProtocol, other: ir.TensorProtocol) -> np.ndarray:
    """Which elements differ by one unit in the last place at most.

    Numbers that are not zero alone, and of one sign, differ so: beside the largest float stands an
    infinity, and beside the least one a zero.
    """
    kind = np.dtype(f"<i{one.dtype.bitwidth // 8}")
    mine, theirs = (np.frombuffer(each.tobytes(), kind) for each in (one, other))
    near: np.ndarray = (mine < 0) == (theirs < 0)
    for each in (one, other):
        floats = each.numpy().reshape(-1)
        near &= np.isfinite(floats) & (floats != 0)
    near &= np.abs(mine - theirs) <= 1  # of one sign, so the difference does not overflow
    near |= mine == theirs
    return near
