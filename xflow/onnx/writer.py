"""New ONNX nodes for values of a graph: shared by the export of models and of regions."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from xflow.core.errors import ShapeError, SizeError
from xflow.core.fold import Folder, byte_size, constant_leaves, numpy_dtype
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, TensorType, Value
from xflow.core.registry import Array, Attribute, OnnxCall, Operator
from xflow.core.size import Expr, Size, substitute
from xflow.onnx.schema import accepts
from xflow.onnx.types import tensor_shape


class UnwritableError(ValueError):
    """A graph has no ONNX form at the model's opset; a rewrite that leads to it is impossible."""


def foreign_domains(graph: Graph) -> dict[str, int]:
    """The domains beside ONNX's own of operators that are computed each time, and their version."""
    return {
        node.op.domain: 1
        for node in graph.nodes
        if isinstance(node.op, Operator) and node.op.domain and not node.constant
    }


@dataclass(frozen=True)
class Plan:
    """How a value is going to be written: what must be there before, and the step itself."""

    needs: Sequence[Value]
    build: Callable[[], None]


class Writer(ABC):
    """Writes values of a graph as ONNX nodes and initializers, inputs before users.

    `sizes` replaces size symbols. `allowance` is how many bytes of folded constants may be
    written; what exceeds it is written as nodes, unless it has no ONNX form. `taken` are names
    that new values must not have.
    """

    def __init__(
        self,
        folder: Folder,
        opsets: Mapping[str, int],
        *,
        sizes: Mapping[str, int] | None = None,
        allowance: float = math.inf,
        taken: set[str] | None = None,
    ) -> None:
        self.folder = folder
        self.opsets = opsets
        self.sizes = sizes or {}
        self.allowance = allowance
        self.taken = set() if taken is None else taken
        self.made: dict[Value, ir.Value] = {}
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self._parameters: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    @abstractmethod
    def plan(self, value: Value) -> Plan:
        """How to write a value that is not written yet. Raises UnwritableError."""

    @abstractmethod
    def dimension(self, size: Size) -> int | str | None:
        """A size as a dimension of an ONNX shape; None for one without a name."""

    def write(self, values: Sequence[Value]) -> list[ir.Value]:
        """The ONNX values for `values`, written with everything that they depend on.

        Raises UnwritableError.
        """
        stack = list(reversed(values))
        plans: dict[Value, Plan] = {}
        opened: set[Value] = set()
        while stack:
            value = stack[-1]
            if value in self.made:
                stack.pop()
                continue
            if value not in plans:
                plans[value] = self.plan(value)
            missing = [source for source in plans[value].needs if source not in self.made]
            if missing and value in opened:
                raise UnwritableError(f"{value} has a size that is read off what depends on it")
            if missing:
                opened.add(value)
                stack.extend(reversed(missing))
            else:
                plans[value].build()
                stack.pop()
        return [self.made[value] for value in values]

    def plan_new(self, value: Value) -> Plan:
        """How to write a value by its operator: folded if it is constant, or as a new node."""
        node = value.node
        if not isinstance(node.op, Operator):
            raise UnwritableError(f"{value} has no ONNX form of its own")
        call = self.call(node)
        if value.is_constant:
            size = byte_size(value)
            small = size is not None and size <= self.allowance
            array = self.folder(value) if small or call is None else None
            if array is not None:
                self.allowance -= array.nbytes
                return Plan((), lambda: self.put_constant(value, array))
        if call is None:
            raise UnwritableError(f"{node.op.name} has no ONNX form at opset {self.opsets.get('')}")
        return Plan(node.inputs, lambda: self.put_call(node, call))

    def call(self, node: Node) -> OnnxCall | None:
        """The ONNX call for a node of the registry; None where there is none."""
        op = node.op
        assert isinstance(op, Operator)
        opset = self.opsets.get(op.domain)
        if not op.op_type or opset is None or op.since > opset:
            return None
        attributes = {name: self._concrete(value) for name, value in node.attributes.items()}
        shapes = [self.shape(value) for value in node.inputs]
        try:
            call = op.to_onnx(attributes, shapes, opset)
        except (TypeError, SizeError, ShapeError):  # an attribute depends on a size symbol
            return None
        return call if call is not None and _takes_types(call, node) else None

    def shape(self, value: Value) -> tuple[Size, ...]:
        """The shape of a value with the known symbols replaced."""
        return tuple(substitute(size, self.sizes) for size in value.shape)

    def _concrete(self, attribute: Attribute) -> Attribute:
        if isinstance(attribute, tuple):
            return tuple(substitute(size, self.sizes) for size in attribute)
        return substitute(attribute, self.sizes) if isinstance(attribute, Expr) else attribute

    def put_constant(self, value: Value, array: Array) -> None:
        """Write a constant as an initializer."""
        ops = (source.node.op for source in constant_leaves(value))
        base = next((op.key for op in ops if isinstance(op, Leaf)), "constant")
        if not value.is_leaf:
            base = f"{base}_folded"
        self.made[value] = self.initializer(ir.tensor(array), base)

    def initializer(self, tensor: ir.TensorProtocol, base: str) -> ir.Value:
        """A new initializer; `base` is the name it should have if that is free."""
        made = ir.Value(
            name=self.fresh(base),
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor_shape(tensor)),
            const_value=tensor,
        )
        self.initializers.append(made)
        return made

    def parameter(self, array: Array, base: str) -> ir.Value:
        """An initializer for a parameter such as axes; equal ones are one."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._parameters:
            self._parameters[key] = self.initializer(ir.tensor(array), base)
        return self._parameters[key]

    def put_integers(
        self, op_type: str, inputs: Sequence[ir.Value], attributes: Sequence[ir.Attr], length: int
    ) -> ir.Value:
        """Write a node that gives a vector of so many integers."""
        name = self.fresh(f"xflow_{op_type}")
        kind = ir.TensorType(ir.DataType.INT64)
        output = ir.Value(name=name, type=kind, shape=ir.Shape([length]))
        self.nodes.append(ir.Node("", op_type, inputs, attributes, outputs=[output], name=name))
        return output

    def put_call(self, node: Node, call: OnnxCall, *computed: Value | ir.Value) -> None:
        """Write a node of the registry as a new ONNX node; `computed` sizes follow its inputs."""
        name = self.fresh(f"xflow_{call.op_type}")
        sources = (*node.inputs, *computed)
        inputs: list[ir.Value | None] = []
        for position, number in enumerate(call.own_inputs(len(sources))):
            if position in call.constants:
                array = call.constants[position]
                if array.dtype == "float64":
                    dtype = numpy_dtype(node.types[0].dtype)
                    if dtype.kind in "iu" and not np.isfinite(array).all():
                        inputs.append(None)  # a bound that no integer reaches
                        continue
                    array = array.astype(dtype)
                inputs.append(self.parameter(array, f"{name}_parameter"))
            else:
                source = None if number is None else sources[number]
                inputs.append(self.made[source] if isinstance(source, Value) else source)
        outputs = [
            self.new_value(kind, name if len(node.types) == 1 else f"{name}_{index}", name)
            for index, kind in enumerate(node.types)
        ]
        attributes = [attribute(key, value) for key, value in call.attributes.items()]
        self.nodes.append(
            ir.Node(call.domain, call.op_type, inputs, attributes, outputs=outputs, name=name)
        )
        self.made.update(zip(node.outputs, outputs, strict=True))

    def new_value(self, kind: TensorType, name: str, own: str = "") -> ir.Value:
        """A new ONNX value; `own` is a name that is its node's already, and may be its own too."""
        if kind.dtype not in ir.DataType.__members__:
            raise UnwritableError(f"the type of {name} is not known")
        dimensions = [self.dimension(substitute(size, self.sizes)) for size in kind.shape]
        return ir.Value(
            name=name if name == own else self.fresh(name),
            type=ir.TensorType(ir.DataType[kind.dtype]),
            shape=ir.Shape(dimensions),
        )

    def identity(self, source: ir.Value, name: str) -> ir.Value:
        """A value called `name` that is a copy of `source`."""
        output = ir.Value(name=name, type=source.type, shape=source.shape)
        node_name = self.fresh("xflow_Identity")
        self.nodes.append(ir.Node("", "Identity", [source], outputs=[output], name=node_name))
        return output

    def fresh(self, base: str) -> str:
        """A name like `base` that nothing has yet."""
        stem = re.sub(r"_\d+$", "", base) if base in self.taken else base
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        return name


def _takes_types(call: OnnxCall, node: Node) -> bool:
    """Whether ONNX has the operator for the element types of a node."""
    given = enumerate(call.own_inputs(len(node.inputs)))
    inputs = {k: node.inputs[number].type.dtype for k, number in given if number is not None}
    outputs = [kind.dtype for kind in node.types]
    return accepts(call.op_type, call.domain, call.opset, inputs, outputs)


def attribute(name: str, value: Any) -> ir.Attr:
    """An ONNX attribute for a plain Python value."""
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, str) for item in value):
            return ir.AttrStrings(name, list(value))
        if any(isinstance(item, float) for item in value):
            return ir.AttrFloat32s(name, [float(item) for item in value])
        return ir.AttrInt64s(name, [int(item) for item in value])
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, float):
        return ir.AttrFloat32(name, value)
    return ir.AttrInt64(name, int(value))
