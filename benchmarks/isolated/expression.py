"""Small ONNX models written as expressions: ``x @ a + x @ b``, ``node("Relu", x)``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IR_VERSION = 10
"""Old enough for every runtime that knows the operators, and new enough for all of them."""

Operand: TypeAlias = "Tensor | float | Sequence[int] | np.ndarray[Any, Any]"
"""Inputs of a node. Floats become constants of shape [], sequences of integers vectors."""


@dataclass(frozen=True, eq=False)
class Variable:
    """An input of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: int = TensorProto.FLOAT


@dataclass(frozen=True, eq=False)
class Weight:
    """A constant of the model; two models that are to share it call it by the same name."""

    name: str
    array: np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Emptied:
    """Weights that are not in the model yet: `hydrate.py` draws them, with these statistics."""

    name: str
    shape: tuple[int, ...]
    mean: float
    std: float

    def proto(self) -> TensorProto:
        """The initializer without its values."""
        return TensorProto(
            name=self.name,
            dims=self.shape,
            data_type=TensorProto.FLOAT,
            doc_string=f"normal mean={self.mean:g} std={self.std:g}",
        )


@dataclass(frozen=True, eq=False)
class Call:
    """A node: an operator applied to tensors."""

    op: str
    inputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1


Source: TypeAlias = Variable | Weight | Emptied | Call


@dataclass(frozen=True, eq=False)
class Tensor:
    """The value of a variable, a weight or an output of a node."""

    source: Source
    index: int = 0

    def __add__(self, other: Operand) -> Tensor:
        return node("Add", self, other)

    def __radd__(self, other: float) -> Tensor:
        return node("Add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return node("Sub", self, other)

    def __rsub__(self, other: float) -> Tensor:
        return node("Sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return node("Mul", self, other)

    def __rmul__(self, other: float) -> Tensor:
        return node("Mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return node("Div", self, other)

    def __rtruediv__(self, other: float) -> Tensor:
        return node("Div", other, self)

    def __matmul__(self, other: Operand) -> Tensor:
        return node("MatMul", self, other)

    def __neg__(self) -> Tensor:
        return node("Neg", self)


def node(op: str, *inputs: Operand, **attributes: Any) -> Tensor:
    """The output of an operator that has one."""
    return nodes(op, 1, *inputs, **attributes)[0]


def nodes(op: str, outputs: int, *inputs: Operand, **attributes: Any) -> tuple[Tensor, ...]:
    """The outputs of an operator that has several."""
    made = Call(op, tuple(map(tensor, inputs)), attributes, outputs)
    return tuple(Tensor(made, index) for index in range(outputs))


def tensor(value: Operand) -> Tensor:
    """A tensor for whatever a node reads. Equal constants have equal names."""
    if isinstance(value, Tensor):
        return value
    kind = np.float32 if isinstance(value, float | int) else np.int64
    array = value if isinstance(value, np.ndarray) else np.asarray(value, kind)
    if array.size <= 4:
        content = str(array.tolist()).replace(" ", "")
    else:
        content = f"{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()[:8]}"
    return Tensor(Weight(f"{array.dtype}:{content}", array))


def variables(outputs: Sequence[Tensor]) -> set[Variable]:
    """The inputs that `outputs` depend on."""
    return {source for source in _walk(outputs) if isinstance(source, Variable)}


def model(
    outputs: Sequence[Tensor], inputs: set[Variable], opset: int, name: str = "isolated"
) -> onnx.ModelProto:
    """The ONNX model that computes `outputs` from `inputs`, with the shapes that ONNX infers."""
    names: dict[tuple[object, int], str] = {}
    weights: dict[str, onnx.TensorProto] = {}
    calls: list[onnx.NodeProto] = []
    for source in _walk(outputs):
        if isinstance(source, Variable):
            names[source, 0] = source.name
        elif isinstance(source, Weight):
            names[source, 0] = source.name
            weights[source.name] = numpy_helper.from_array(source.array, source.name)
        elif isinstance(source, Emptied):
            names[source, 0] = source.name
            weights[source.name] = source.proto()
        else:
            made = [f"{source.op}_{len(calls)}_{index}" for index in range(source.outputs)]
            names.update(((source, index), name) for index, name in enumerate(made))
            read = [names[value.source, value.index] for value in source.inputs]
            calls.append(helper.make_node(source.op, read, made, **source.attributes))
    # The outputs of all forms of a graph have the same names.
    given = [names[value.source, value.index] for value in outputs]
    results = [f"y{number}" for number in range(len(outputs))]
    for call in calls:
        call.output[:] = [_renamed(name, given, results) for name in call.output]
        call.input[:] = [_renamed(name, given, results) for name in call.input]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    starts = [
        helper.make_tensor_value_info(source.name, source.dtype, source.shape)
        for source in sorted(inputs, key=lambda source: source.name)
    ]
    graph = helper.make_graph(calls, name, starts, ends, list(weights.values()))
    opsets = [helper.make_opsetid("", opset)]
    made_model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return onnx.shape_inference.infer_shapes(made_model, strict_mode=True, data_prop=True)


def _renamed(name: str, old: Sequence[str], new: Sequence[str]) -> str:
    return new[old.index(name)] if name in old else name


def _walk(outputs: Sequence[Tensor]) -> Iterator[Source]:
    """The nodes and inputs that `outputs` depend on, each once, sources before users."""
    seen: set[Source] = set()
    waiting = [value.source for value in reversed(outputs)]
    while waiting:  # no recursion: a network is deeper than Python's stack
        source = waiting[-1]
        inputs = source.inputs if isinstance(source, Call) else ()
        if source in seen:
            waiting.pop()
        elif unseen := [value.source for value in inputs if value.source not in seen]:
            waiting.extend(reversed(unseen))
        else:
            seen.add(source)
            yield waiting.pop()
