"""A model that was read as a graph, and the way back from each to the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Value
from xflow.core.registry import Array
from xflow.core.size import Size, coefficient_of, free_symbols
from xflow.onnx.types import SymbolNames, infer_types


@dataclass(frozen=True, eq=False)
class Imported:
    """A model and its graph, with the way back from each to the other."""

    model: ir.Model
    graph: Graph
    values: Mapping[ir.Value, Value]
    """What each value of the model's main graph is."""
    origin: Mapping[Value, ir.Value]
    """The first value of the model that is this one."""
    opaque_nodes: Mapping[str, ir.Node]
    """A node of the model for each key of an opaque node."""
    positions: Mapping[ir.Node, tuple[int, ...]]
    """Where the inputs of a node that the registry understands stand in the ONNX node."""
    known: Mapping[ir.Value, Array]
    """The data of values that depend on nothing, where it is small."""
    names: SymbolNames
    computed: Mapping[ir.Value, Array]
    """What small tensors of integers are that are computed from shapes: arrays of sizes."""
    warnings: tuple[str, ...] = ()
    equations: tuple[Size, ...] = ()
    """What operators of the model need to be zero, or else a size to be 1; or what likely is so.
    Inputs are fed accordingly, and nothing is concluded from it: see `SizeOrder` for what is."""
    _tensors: Mapping[str, ir.TensorProtocol] = field(default_factory=dict)

    def constants(self, value: Value) -> Array | None:
        """The data of a constant leaf; None for any other value."""
        return constant_data(self._tensors, value)

    def tensor(self, value: Value) -> ir.TensorProtocol | None:
        """The tensor behind a constant leaf; None for any other value."""
        return _tensor_of(self._tensors, value)

    def sizes(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """What the size symbols are when the inputs have these shapes, as far as that is known."""
        concrete, _ = infer_types(self.model, shapes)
        sizes: dict[str, int] = {}
        for source, value in self.values.items():
            known = concrete.get(source.name or "")
            if known is None or known.shape is None or len(known.shape) != len(value.shape):
                continue
            for size, number in zip(value.shape, known.shape, strict=True):
                if isinstance(number, int):
                    _solve(size, number, sizes)
        return sizes


def constant_data(tensors: Mapping[str, ir.TensorProtocol], value: Value) -> Array | None:
    """The data of a constant leaf, of which the tensor has its key; None for any other value."""
    tensor = _tensor_of(tensors, value)
    return None if tensor is None else tensor.numpy()


def _tensor_of(tensors: Mapping[str, ir.TensorProtocol], value: Value) -> ir.TensorProtocol | None:
    op = value.node.op
    return tensors.get(op.key) if isinstance(op, Leaf) and op.constant else None


def _solve(size: Size, number: int, sizes: dict[str, int]) -> None:
    """Note the value of the one symbol of `size`, if that is linear in it."""
    symbols = free_symbols(size)
    if len(symbols) == 1:
        (name,) = symbols
        linear = coefficient_of(size, name)
        if linear and isinstance(linear[1], int) and (number - linear[1]) % linear[0] == 0:
            sizes.setdefault(name, (number - linear[1]) // linear[0])
