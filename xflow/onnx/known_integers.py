"""What an import knows of small tensors: numbers, and sizes computed from shapes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from xflow.core.node import Value
from xflow.core.registry import Array, Shape
from xflow.core.size import Expr, Size, TooLargeSize
from xflow.core.sorts import INTEGERS, integer_range
from xflow.onnx.nodes import HASHED, RANDOM, evaluate_node
from xflow.onnx.shape_arithmetic import (
    as_shape,
    computed,
    concatenated,
    cut_shape,
    extents,
    joined_shape,
    reshaped,
    resized,
    shape_of,
    tiled,
)
from xflow.onnx.types import UNKNOWN
from xflow.ops import by_onnx

SMALL = 1024
"""Elements up to which a constant may be a parameter, and equal constants are one leaf."""

WHOLE = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
ENLARGING = frozenset({"Resize", "Upsample"})
EXACT = frozenset(
    ("Abs", "Add", "Cast", "Ceil", "Div", "Floor", "Max", "Min", "Mul", "Neg", "Sqrt", "Sub")
)
"""Operators of floats that give the same numbers everywhere: their results are exact, or rounded
as IEEE 754 says. Exporters compute sizes by them, as `ceil(height / 2.0)`."""


class KnownIntegers:
    """The numbers in small tensors of a model that is being imported, and sizes among integers.

    `values` are those of the import, and grow with it; `inferred` are the model's values by name,
    with the types that inference gives them.
    """

    def __init__(
        self, model: ir.Model, inferred: Mapping[str, ir.Value], values: Mapping[ir.Value, Value]
    ) -> None:
        self.opsets = model.graph.opset_imports
        self.inferred = inferred
        self.values = values
        self.known: dict[ir.Value, Array] = {}
        """Numbers, also of small constants that are none of integers."""
        self.computed: dict[ir.Value, Array] = {}
        """What is computed from shapes: arrays of sizes."""
        self.clipped: dict[Size, Size] = {}
        """Sizes that are the lesser of a number and of another size: that size."""

    def of(self, value: ir.Value) -> Array | None:
        """What is known of a tensor of integers: numbers, or sizes."""
        return self.known.get(value, self.computed.get(value))

    def is_whole(self, value: ir.Value) -> bool:
        """Whether something is known of a tensor of integers or truth values."""
        array = self.of(value)
        return array is not None and array.dtype.kind != "f"

    def vectors(self, node: ir.Node) -> dict[int, Shape]:
        """The inputs of a node that are vectors of sizes, some of which are symbols."""
        found = {}
        for position, value in enumerate(node.inputs):
            array = None if value is None else self.computed.get(value)
            if array is not None and array.ndim == 1 and value not in self.known:
                found[position] = tuple(array.tolist())
        return found

    def output_shape(self, node: ir.Node, inferred: Shape) -> Shape:
        """The shape of an output, where sizes that inference does not know follow from others."""
        shape = extents(node, [None if v is None else self.of(v) for v in node.inputs])
        if shape is not None:
            return shape
        inputs = [value for value in node.inputs if value is not None]
        if node.op_type in ENLARGING and not node.domain and inputs and node.inputs[0] is not None:
            source = self.values[node.inputs[0]].type
            others = [None if v is None else self.of(v) for v in node.inputs[1:]]
            target = None if source == UNKNOWN else resized(node, source.shape, others)
            return inferred if target is None else target
        if (
            node.domain
            or len(inputs) < len(node.inputs)
            or any(self.values[value].type == UNKNOWN for value in inputs)
        ):
            return inferred
        shapes = [self.values[value].shape for value in inputs]
        arrays = [self.of(value) for value in inputs]
        if node.op_type == "Slice" and len(inputs) > 2:
            shape, clipped = cut_shape(shapes[0], arrays[1:], inferred)
            self.clipped.update(clipped)
            return shape
        if node.op_type == "Reshape" and len(inputs) == 2 and arrays[1] is not None:
            target = reshaped(node, shapes[0], arrays[1])
            return inferred if target is None else target
        if node.op_type == "Tile" and len(inputs) == 2 and arrays[1] is not None:
            target = tiled(shapes[0], arrays[1])
            return inferred if target is None else target
        if node.op_type == "Concat":
            joined = concatenated(node, shapes)
            return inferred if joined is None else joined
        if node.op_type == "Expand" and len(inputs) == 2 and arrays[1] is not None:
            target = as_shape(arrays[1])
            if target is not None:
                return joined_shape([shapes[0], target], inferred, self.clipped)
        return joined_shape(shapes, inferred, self.clipped) if self.stretches(node) else inferred

    def stretches(self, node: ir.Node) -> bool:
        """Whether an operator takes its inputs element by element, stretched to one shape."""
        version = node.version or self.opsets.get("") or 1
        return any(op.elementwise for op in by_onnx(node.op_type, "", version))

    def note(self, node: ir.Node) -> None:
        """Compute a small integer result, as far as it is determined: it may be a shape."""
        self._note_known(node)
        if node.domain == "" and len(node.outputs) == 1 and node.outputs[0] not in self.known:
            self._note_computed(node)

    def _note_computed(self, node: ir.Node) -> None:
        """Compute a small integer result of shapes, as far as that is determined."""
        (output,) = node.outputs
        found: Array | None = None
        if node.op_type == "Shape" and node.inputs[0] is not None:
            source = self.values[node.inputs[0]].type
            found = shape_of(node, source.shape) if source.dtype != UNKNOWN.dtype else None
        elif all(v is None or self.is_whole(v) for v in node.inputs):
            inputs = [self.of(v) for v in node.inputs if v is not None]
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

    def _note_known(self, node: ir.Node) -> None:
        """Compute a small result of constants: it may be a shape for somebody, or lead to one."""
        opset = self.opsets.get("")
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
            or inferred.dtype not in (FLOATS if node.op_type in EXACT else ()) + WHOLE
            or inferred.shape is None
            or not inferred.shape.is_static()
            or math.prod(inferred.shape.numpy()) > SMALL
            or any(a.type not in HASHED for a in node.attributes.values())
        ):
            return
        if not all(a is None or _is_moderate(a) for a in inputs):
            return  # no size, and a cast of it may be anything
        array = evaluate_node(node, opset, inputs)
        if array is not None:
            self.known[output] = array


def _is_moderate(array: Array) -> bool:
    """Whether floats are numbers that all types of integers hold."""
    return array.dtype.kind != "f" or bool((np.abs(array.astype(np.float64)) < 2**31).all())
