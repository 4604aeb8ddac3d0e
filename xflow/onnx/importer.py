"""ONNX models as graphs: what the registry understands, and opaque nodes for the rest."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from xflow.analysis.inputs import special_inputs
from xflow.core.constraint import Relation
from xflow.core.errors import ModelError, ShapeError
from xflow.core.graph import Graph
from xflow.core.node import Leaf, MayBe, TensorType, Value, apply, leaf, opaque
from xflow.core.registry import Array, Need, OnnxCall, Shape
from xflow.core.size import Expr, Size, TooLargeSize, coefficient_of, free_symbols
from xflow.core.sorts import FLOATS, INT, INTEGERS, integer_range, sort_of
from xflow.onnx.freeze import listed, overridable
from xflow.onnx.nodes import (
    HASHED,
    PLAIN,
    RANDOM,
    captured_values,
    computation_key,
    constant_tensor,
    evaluate_node,
)
from xflow.onnx.shape_arithmetic import (
    as_shape,
    computed,
    cut_shape,
    extents,
    joined_shape,
    shape_of,
)
from xflow.onnx.types import UNKNOWN, SymbolNames, infer_types, refined, tensor_shape, tensor_type
from xflow.ops import by_onnx

_SMALL = 1024
"""Elements up to which a constant may be a parameter, and equal constants are one leaf."""

MOST_TERMS = 30
"""Terms of the number of elements of a tensor, multiplied out, from which on its sizes are not
told by those of others."""


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
    """What operators of the model need to be zero, or else a size to be 1."""
    _tensors: Mapping[str, ir.TensorProtocol] = field(default_factory=dict)

    def constants(self, value: Value) -> Array | None:
        """The data of a constant leaf; None for any other value."""
        tensor = self.tensor(value)
        return None if tensor is None else tensor.numpy()

    def tensor(self, value: Value) -> ir.TensorProtocol | None:
        """The tensor behind a constant leaf; None for any other value."""
        op = value.node.op
        return self._tensors.get(op.key) if isinstance(op, Leaf) and op.constant else None

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


def _solve(size: Size, number: int, sizes: dict[str, int]) -> None:
    """Note the value of the one symbol of `size`, if that is linear in it."""
    symbols = free_symbols(size)
    if len(symbols) == 1:
        (name,) = symbols
        linear = coefficient_of(size, name)
        if linear and isinstance(linear[1], int) and (number - linear[1]) % linear[0] == 0:
            sizes.setdefault(name, (number - linear[1]) // linear[0])


def _check_order(graph: ir.Graph) -> None:
    """Raise ModelError unless everything that is read has been computed before."""
    defined = {*graph.inputs, *graph.initializers.values()}
    for node in graph:
        for value in (*node.inputs, *captured_values(node)):
            if value is not None and value not in defined:
                what = f"nothing before it computes its input {value.name}, or it is sparse"
                raise ModelError(what, f"node {node.name or node.op_type}")
        defined.update(node.outputs)
    for value in graph.outputs:
        if value not in defined:
            raise ModelError("no operator computes it", f"output {value.name}")


def is_shape_arithmetic(value: Value) -> bool:
    """Whether a value is likely a shape or part of one: a scalar or a vector of integers.

    To rewrite how such are computed pays nothing.
    """
    return sort_of(value.type.dtype) == INT and len(value.shape) <= 1


def is_tractable(type: TensorType) -> bool:
    """Whether sizes are simple enough to reckon with how many elements there are.

    Where a hundred images of unknown sizes are put side by side, the sum of these is only a size
    like another one.
    """
    terms = math.prod(len(size.terms) for size in type.shape if isinstance(size, Expr))
    return terms <= MOST_TERMS


def import_model(model: ir.Model, *, inner: bool = False) -> Imported:
    """The graph of a model. Never changes `model`; raises ModelError for one without sense.

    The inputs of a graph that is `inner` to an operator are computed, and may be anything.
    """
    imported = _Importer(model, inner, {}).run()
    special = {} if inner else special_inputs(imported.graph, imported.constants)
    return _Importer(model, inner, special).run() if special else imported


class _Importer:
    def __init__(self, model: ir.Model, inner: bool, special: Mapping[str, MayBe]) -> None:
        self.model = model
        self.others = MayBe.ANYTHING if inner else MayBe.NUMBERS
        self.special = special
        """What inputs may be, by their names, where that is not what others may be."""
        self.names = SymbolNames()
        self.values: dict[ir.Value, Value] = {}
        self.origin: dict[Value, ir.Value] = {}
        self.opaque_nodes: dict[str, ir.Node] = {}
        self.tensors: dict[str, ir.TensorProtocol] = {}
        self.positions: dict[ir.Node, tuple[int, ...]] = {}
        self.small: dict[object, Value] = {}
        self.known: dict[ir.Value, Array] = {}
        self.computed: dict[ir.Value, Array] = {}
        self.clipped: dict[Size, Size] = {}
        """Sizes that are the lesser of a number and of another size: that size."""
        self.warnings: list[str] = []
        self.equations: dict[Size, None] = {}

    def run(self) -> Imported:
        graph = self.model.graph
        _check_order(graph)
        self.inferred, failure = infer_types(self.model)
        if failure:
            self.warnings.append(f"The shapes in the model could not be inferred: {failure}.")
        for value in graph.inputs:
            kind = self.type(value)
            name = value.name or ""
            may_be = self.special.get(name, self.others) if kind.dtype in FLOATS else MayBe.NUMBERS
            self.put(value, leaf(name, kind, may_be=may_be))
        names = overridable(self.model)
        if names:
            self.warnings.append(
                f"{len(names)} of the model's weights are also inputs ({listed(names)}), so they "
                "cannot be taken as constants."
            )
        for name, value in graph.initializers.items():
            if value in self.values:
                continue
            if value.const_value is None:
                self.put(value, leaf(name, self.type(value)))
            else:
                self.put(value, self.constant(name, value.const_value, value))
        for number, node in enumerate(graph):
            self.node(node, number)
        outputs = tuple(self.values[value] for value in graph.outputs)
        return Imported(
            self.model,
            Graph(outputs),
            self.values,
            self.origin,
            self.opaque_nodes,
            self.positions,
            self.known,
            self.names,
            self.computed,
            tuple(self.warnings),
            tuple(self.equations),
            self.tensors,
        )

    def put(self, source: ir.Value, value: Value) -> None:
        self.values[source] = value
        self.origin.setdefault(value, source)

    def type(self, value: ir.Value) -> TensorType:
        inferred = self.inferred.get(value.name or "")
        return UNKNOWN if inferred is None else tensor_type(inferred, self.names)

    def constant(self, name: str, tensor: ir.TensorProtocol, source: ir.Value) -> Value:
        """A leaf for a constant; small ones with the same data share one."""
        kind = TensorType(tensor.dtype.name, tensor_shape(tensor))
        value = leaf(name, kind, constant=True)
        if tensor.size <= _SMALL and tensor.dtype != ir.DataType.STRING:
            array = tensor.numpy()
            self.known[source] = array
            value = self.small.setdefault((kind, array.tobytes()), value)
        if value.node.op == Leaf(name, True):
            self.tensors[name] = tensor
        return value

    def node(self, node: ir.Node, number: int) -> None:
        tensor = constant_tensor(node)
        if tensor is not None:
            (output,) = node.outputs
            self.put(output, self.constant(output.name or f"constant {number}", tensor, output))
            return
        made = self.registered(node)
        if made is None:
            made = self.opaque(node, number)
        for output, value in zip(node.outputs, made, strict=False):
            self.put(output, value)
        self.note_known(node)
        if node.domain == "" and len(node.outputs) == 1 and node.outputs[0] not in self.known:
            self.note_computed(node)

    def registered(self, node: ir.Node) -> tuple[Value, ...] | None:
        """The node as an operator of the registry; None where none describes it."""
        version = node.version or self.model.graph.opset_imports.get(node.domain)
        if version is None or node.op_identifier() in self.model.functions:
            return None
        sources = [None if v is None else self.values.get(v) for v in node.inputs]
        if any(s is None and v is not None for s, v in zip(sources, node.inputs, strict=True)):
            return None
        call: OnnxCall | None = None
        for op in by_onnx(node.op_type, node.domain, version):
            call = call or self.call(node, version, sources)
            if call is None:
                return None
            read = op.from_onnx(call)
            if read is None or not read[1]:
                continue
            attributes, positions = read
            inputs = [sources[i] for i in positions]
            taken = [value for value in inputs if value is not None]
            if len(taken) < len(inputs):
                continue
            need = Need()
            try:
                made = apply(op, taken, attributes, need=need)
            except ShapeError:
                continue
            if any(map(is_shape_arithmetic, made)) or not all(is_tractable(v.type) for v in made):
                continue
            # In ONNX a dimension of unknown size may be 1 and broadcast.
            equal = [each for each in need.conditions if each.relation is Relation.EQUAL]
            self.equations |= dict.fromkeys(condition.difference for condition in equal)
            if equal:
                continue
            if self.agrees(node, made):
                self.positions[node] = positions
                return made
        return None

    def call(self, node: ir.Node, version: int, sources: Sequence[Value | None]) -> OnnxCall | None:
        attributes: dict[str, Any] = {}
        for name, attribute in node.attributes.items():
            if attribute.is_ref() or attribute.type not in PLAIN:
                return None
            value = attribute.value
            attributes[name] = list(value) if isinstance(value, tuple | list) else value
        constants = {
            i: self.known[v] for i, v in enumerate(node.inputs) if v is not None and v in self.known
        }
        if any(s is not None and s.type.dtype == UNKNOWN.dtype for s in sources):
            return None
        shapes = tuple(None if value is None else value.shape for value in sources)
        types = tuple(None if value is None else value.type.dtype for value in sources)
        return OnnxCall(
            node.op_type,
            version,
            node.domain,
            attributes,
            shapes,
            constants,
            len(node.outputs),
            types,
            self.computed_sizes(node),
        )

    def computed_sizes(self, node: ir.Node) -> dict[int, Shape]:
        """The inputs of a node that are vectors of sizes, some of which are symbols."""
        found = {}
        for position, value in enumerate(node.inputs):
            array = None if value is None else self.computed.get(value)
            if array is not None and array.ndim == 1 and value not in self.known:
                found[position] = tuple(array.tolist())
        return found

    def agrees(self, node: ir.Node, made: tuple[Value, ...]) -> bool:
        """Whether the outputs are those of the node, with the types that ONNX infers."""
        if len(made) > len(node.outputs):
            return False
        for output in node.outputs[len(made) :]:
            if output.uses() or output.is_graph_output():
                return False
        for output, value in zip(node.outputs, made, strict=False):
            inferred = self.inferred.get(output.name or "")
            if inferred is None or inferred.shape is None:
                continue  # not needed: ours says it all
            if inferred.dtype is None or inferred.dtype.name != value.type.dtype:
                return False
            if len(inferred.shape) != len(value.shape):
                return False
            for size, dimension in zip(value.shape, inferred.shape, strict=True):
                if isinstance(dimension, int) and dimension >= 0 and size != dimension:
                    return False
        return True

    def opaque(self, node: ir.Node, number: int) -> tuple[Value, ...]:
        captured = captured_values(node)
        inputs = [self.values[v] for v in node.inputs if v is not None]
        inputs += [self.values[v] for v in captured]
        known_key = computation_key(node, self.model)
        key = known_key or f"{node.domain}::{node.op_type}#{number}"
        self.opaque_nodes.setdefault(key, node)
        try:
            types = self.types_of(node, captured)
        except TooLargeSize:
            types = [self.type(output) for output in node.outputs]
        types = [
            known if is_tractable(known) else self.type(output)
            for known, output in zip(types, node.outputs, strict=True)
        ]
        plain = node.domain == "" and node.op_identifier() not in self.model.functions
        # What scatters by a reduction computes with elements, and does not only move them.
        reduces = "reduction" in node.attributes and (
            node.attributes["reduction"].as_string() != "none"
        )
        op_type = node.op_type if plain and not reduces else ""
        return opaque(key, inputs, types, op_type, pure=known_key is not None)

    def types_of(self, node: ir.Node, captured: Sequence[ir.Value]) -> list[TensorType]:
        """The types of a node's outputs, with sizes that follow from others where they do."""
        types = [self.type(output) for output in node.outputs]
        opset = self.model.graph.opset_imports.get("")
        if (
            opset is not None
            and not captured
            and any(isinstance(n, Expr) for t in types for n in t.shape)
        ):
            sources = [None if v is None else self.values[v].type for v in node.inputs]
            types = refined(node, sources, types, opset)
        if len(types) == 1 and types[0].dtype != UNKNOWN.dtype:
            shape = extents(node, [None if v is None else self.integers(v) for v in node.inputs])
            if shape is None:
                shape = self.followed(node, types[0].shape)
            if len(shape) == len(types[0].shape):
                types = [TensorType(types[0].dtype, shape)]
        return types

    def followed(self, node: ir.Node, inferred: Shape) -> Shape:
        """The shape of an output, where sizes that inference does not know follow from others."""
        inputs = [value for value in node.inputs if value is not None]
        if (
            node.domain
            or len(inputs) < len(node.inputs)
            or any(self.values[value].type == UNKNOWN for value in inputs)
        ):
            return inferred
        shapes = [self.values[value].shape for value in inputs]
        arrays = [self.integers(value) for value in inputs]
        if node.op_type == "Slice" and len(inputs) > 2:
            shape, clipped = cut_shape(shapes[0], arrays[1:], inferred)
            self.clipped.update(clipped)
            return shape
        if node.op_type == "Expand" and len(inputs) == 2 and arrays[1] is not None:
            target = as_shape(arrays[1])
            if target is not None:
                return joined_shape([shapes[0], target], inferred, self.clipped)
        version = node.version or self.model.graph.opset_imports.get("") or 1
        if any(op.elementwise for op in by_onnx(node.op_type, "", version)):
            return joined_shape(shapes, inferred, self.clipped)
        return inferred

    def integers(self, value: ir.Value) -> Array | None:
        """What is known of a tensor of integers: numbers, or sizes."""
        return self.known.get(value, self.computed.get(value))

    def note_computed(self, node: ir.Node) -> None:
        """Compute a small integer result of shapes, as far as that is determined."""
        (output,) = node.outputs
        found: Array | None = None
        if node.op_type == "Shape" and node.inputs[0] is not None:
            source = self.values[node.inputs[0]].type
            found = shape_of(node, source.shape) if source.dtype != UNKNOWN.dtype else None
        elif all(v is None or self.integers(v) is not None for v in node.inputs):
            inputs = [self.integers(v) for v in node.inputs if v is not None]
            with contextlib.suppress(TooLargeSize):
                found = computed(node, inputs) if len(inputs) == len(node.inputs) else None
        if found is None:
            return
        inferred = self.inferred.get(output.name or "")
        dtype = None if inferred is None else inferred.dtype
        integers = found.reshape(-1).tolist()
        if dtype is not None and dtype.name in INTEGERS:
            least, most = integer_range(dtype.name)
            if not all(isinstance(n, Expr) or least <= n <= most for n in integers):
                return  # it wraps around, and is no size of anything
        self.computed[output] = found
        if dtype is not None and not any(isinstance(n, Expr) for n in integers):
            self.known[output] = found.astype(dtype.numpy())

    def note_known(self, node: ir.Node) -> None:
        """Compute a small integer result of constants: it may be a shape for somebody."""
        opset = self.model.graph.opset_imports.get("")
        if node.domain or opset is None or len(node.outputs) != 1 or node.op_type in RANDOM:
            return
        (output,) = node.outputs
        if node.op_type == "Shape" and node.inputs[0] is not None:
            shape = self.values[node.inputs[0]].type
            if shape.dtype != UNKNOWN.dtype and not any(isinstance(n, Expr) for n in shape.shape):
                start = node.attributes.get_int("start", 0)
                end = node.attributes.get_int("end", len(shape.shape))
                self.known[output] = np.asarray(shape.shape[start:end], np.int64)
            return
        inputs = [None if v is None else self.known.get(v) for v in node.inputs]
        inferred = self.inferred.get(output.name or "")
        if (
            not inputs
            or any(a is None and v is not None for a, v in zip(inputs, node.inputs, strict=True))
            or inferred is None
            or inferred.dtype not in (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
            or inferred.shape is None
            or not inferred.shape.is_static()
            or math.prod(inferred.shape.numpy()) > _SMALL
            or any(a.type not in HASHED for a in node.attributes.values())
        ):
            return
        array = evaluate_node(node, opset, inputs)
        if array is not None:
            self.known[output] = array
