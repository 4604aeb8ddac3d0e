"""The form of a graph: its operators and wiring, without the data of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from fractions import Fraction

import numpy as np

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Opaque
from xflow.core.registry import Attribute


def form(graph: Graph) -> Hashable:
    """The same for graphs of the same operators over the same inputs.

    The order of commutative arguments does not count, nor do the numbers in constants and their
    shapes: a graph in which they were others would not compute the same.
    """
    digests: dict[Node, str] = {}
    for node in graph.nodes:
        digests[node] = hashlib.sha256(_describe(node, digests).encode()).hexdigest()
    return tuple((digests[value.node], value.index) for value in graph.outputs)


def _describe(node: Node, digests: dict[Node, str]) -> str:
    if node.constant:
        return f"constant {[kind.dtype for kind in node.types]}"
    inputs = [f"{digests[value.node]}.{value.index}" for value in node.inputs]
    if isinstance(node.op, Leaf | Opaque):
        return f"{node.op.key} {node.types} {inputs}"
    if node.op.commutative:
        inputs.sort()
    attributes = sorted((name, _as_written(value)) for name, value in node.attributes.items())
    return f"{node.op.name} {node.types} {inputs} {attributes}"


def _as_written(value: Attribute) -> object:
    """An attribute as ONNX has it: real numbers are floats there, 1/10 is no other one than 0.1."""
    return np.float32(value) if isinstance(value, Fraction) else value
