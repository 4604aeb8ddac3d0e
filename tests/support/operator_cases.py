"""The implementations of one operator at one example, for tests that compare them."""

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from xflow.core.errors import ShapeError
from xflow.core.node import complete_attributes
from xflow.core.registry import (
    Array,
    Attribute,
    Attributes,
    Example,
    Kind,
    Need,
    OnnxCall,
    Operator,
    Shape,
)
from xflow.core.size import Expr, Size, symbol
from xflow.core.size import evaluate as evaluate_size
from xflow.core.size import substitute as substitute_size
from xflow.core.sorts import BOOL, CODE, CODES, INT, REAL
from xflow.core.spec import Element, evaluate, truth
from xflow.ops import operators

STANDARD = 20
"""The opset of ONNX's own operators beside those of another domain."""

POSITIVE = {
    "Sqrt": (0,),
    "Log": (0,),
    "BatchNormalization": (4,),
    "Pow": (0,),
    "ReduceLogSum": (0,),
}
"""Inputs that must not be negative, because a root or a logarithm is taken of them."""

BROADCASTING = (
    {op.name for op in operators() if op.elementwise}
    | {"MatMul", "MatMulInteger", "Gemm", "Expand", "FusedMatMul"}
    | {op.name for op in operators() if op.role == "attention"}
)
"""Operators that treat an extent that is literally 1 differently from a symbol."""


def cases() -> list[tuple[Operator, Example]]:
    """Every operator at each of its examples, attributes completed."""
    return [
        (op, Example(e.shapes, complete_attributes(op, e.attributes, e.shapes), sorts_of(op, e)))
        for op in operators()
        for e in op.examples
    ]


CHOOSING = {
    op.name: op.takes.index(BOOL)
    for op in operators()
    if op.role == "attention" and BOOL in op.takes
}
"""Inputs of Booleans of which each row has one that is true, because something is divided by how
many there are."""


def at_each_example(
    tried: Sequence[tuple[Operator, Example]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A check of `op` and `example` as one test of each operator, at all of its examples in turn.

    A test of each example would take longer to collect and to report than to run. A failure names
    the example; a test is skipped where each example of its operator is.
    """
    examples: dict[str, list[Example]] = {}
    for op, example in tried:
        examples.setdefault(op.name, []).append(example)

    def as_test(check: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(check)
        def test(op: Operator, **others: Any) -> None:
            skipped: list[BaseException] = []
            for example in examples[op.name]:
                try:
                    check(op=op, example=example, **others)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except BaseException as failure:
                    failure.add_note(f"at the example {case_id(example)}")
                    raise
            if len(skipped) == len(examples[op.name]):
                raise skipped[0]

        signature = inspect.signature(check)
        left = [each for name, each in signature.parameters.items() if name != "example"]
        vars(test)["__signature__"] = signature.replace(parameters=left)
        by_name = {op.name: op for op, _ in tried}
        made: Callable[..., None] = pytest.mark.parametrize("op", by_name.values(), ids=str)(test)
        return made

    return as_test


def sorts_of(op: Operator, example: Example) -> tuple[str, ...]:
    """The sorts of an example's inputs."""
    return example.types or tuple(op.sort(k) for k in range(len(example.shapes)))


def case_id(value: object) -> str:
    """A readable test id."""
    if isinstance(value, Example):
        attributes = ",".join(f"{key}={format_value(v)}" for key, v in value.attributes.items())
        return "x".join(map(format_value, value.shapes)) + (f",{attributes}" if attributes else "")
    return str(value)


def format_value(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(map(str, value)) + "]"
    return str(value)


def exact_inputs(op: Operator, example: Example) -> list[Array]:
    """Arrays of dyadic fractions, none zero, which 32-bit floats hold exactly.

    Booleans and integers for inputs of these sorts; indices lie in their ranges.
    """
    shapes = example.shapes
    rng = np.random.default_rng(zlib.crc32(f"{op.name}{list(shapes)}".encode()))
    ranges = op.ranges(shapes, example.attributes)
    arrays = []
    for position, (shape, sort) in enumerate(zip(shapes, sorts_of(op, example), strict=True)):
        if sort != REAL:
            low, high = (0, 2) if sort == BOOL else ranges.get(position, (-2, 3))
            assert isinstance(low, int)
            assert isinstance(high, int)
            places = rng.integers(low, max(high, low + 1), shape)
            if position == CHOOSING.get(op.name):
                places[..., 0] = 1
            places = places + 2 if sort == CODE else places
            kind = "BOOL" if sort == BOOL else taken_type(op, example, sort)
            arrays.append(np.asarray(places, numpy_type(kind)))
            continue
        quarters = rng.integers(1, 8, shape)
        if position not in POSITIVE.get(op.name, ()):
            quarters = quarters * rng.choice([-1, 1], shape)
        array = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            array[index] = Fraction(int(quarters[index]), 4)
        arrays.append(array)
    return arrays


KINDS = {CODE: CODES[::-1], INT: ("INT64", "INT32")}


def taken_type(op: Operator, example: Example, sort: str) -> str:
    """The type of the codes or the integers in an example: the first that the operator takes."""
    for kind in KINDS[sort]:
        inputs = [kind if each == sort else each for each in sorts_of(op, example)]
        try:
            op.element_types(inputs, example.attributes, REAL)
        except ShapeError:
            continue
        return kind
    raise AssertionError(f"{op.name} takes no {sort}")


def as_floats(arrays: Sequence[Array], dtype: Any = np.float64) -> list[Array]:
    return [array.astype(dtype) if array.dtype == object else array for array in arrays]


def element_types(op: Operator, example: Example, real: str) -> tuple[list[str], list[str]]:
    """The ONNX element types of an example's inputs and outputs, where reals are of type `real`."""
    sorts = sorts_of(op, example)
    onnx_names = {REAL: real, BOOL: "BOOL"}
    onnx_names |= {sort: taken_type(op, example, sort) for sort in KINDS if sort in sorts}
    inputs = [onnx_names[sort] for sort in sorts]
    outputs = len(op.shape(example.shapes, example.attributes, Need()))
    given = op.element_types(inputs, example.attributes, real)
    return inputs, [given[min(k, len(given) - 1)] for k in range(outputs)]


def numpy_type(name: str) -> np.dtype[Any]:
    """The numpy type of an ONNX element type."""
    kind: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(name))
    return np.dtype(kind)


def has_inputs(op: Operator, example: Example) -> bool:
    """Whether there are inputs at which the operator is defined: no index into what is empty."""
    ranges = op.ranges(example.shapes, example.attributes)
    return all(low != high or 0 in example.shapes[k] for k, (low, high) in ranges.items())


def outputs_by_specification(
    op: Operator,
    shapes: Sequence[Shape],
    attributes: Attributes,
    arrays: Sequence[Array],
    sizes: Mapping[str, int],
) -> list[Array]:
    """The outputs as `at` has them, read element by element in exact arithmetic.

    With `sizes` empty, shapes and indices are integers; otherwise the index is symbolic too.
    Raises IndexError for an access out of bounds.
    """
    tensors = {f"x{k}": array for k, array in enumerate(arrays)}

    def reader(k: int) -> Any:
        if arrays[k].dtype == bool:
            return lambda index: truth(f"x{k}", tuple(index))
        return lambda index: Element(f"x{k}", tuple(index))

    readers = [reader(k) for k in range(len(arrays))]
    concrete = complete_attributes(op, substitute(attributes, sizes), [a.shape for a in arrays])
    results = []
    for output, shape in enumerate(op.shape([a.shape for a in arrays], concrete, Need())):
        result = np.empty(tuple(int(n) for n in shape if isinstance(n, int)), dtype=object)
        if sizes:
            names = [f"i{k}" for k in range(result.ndim)]
            index = tuple(symbol(name) for name in names)
            element = op.at(readers, shapes, attributes, output, index)
            for place in np.ndindex(*result.shape):
                env = {**sizes, **dict(zip(names, place, strict=True))}
                result[place] = evaluate(element, tensors, env)
        else:
            for place in np.ndindex(*result.shape):
                element = op.at(readers, shapes, attributes, output, place)
                result[place] = evaluate(element, tensors, {})
        results.append(result)
    return results


@dataclass(frozen=True)
class Symbolic:
    """An example with symbols for its sizes, and the integers that they stand for."""

    shapes: tuple[Shape, ...]
    attributes: dict[str, Attribute]
    values: dict[str, int]
    types: tuple[str, ...] = ()


def symbolise(op: Operator, example: Example, *, attributes: bool) -> Symbolic:
    """Distinct symbols for all extents (and integer attributes) that do not choose a meaning."""
    values: dict[str, int] = {}

    def fresh(value: int) -> Size:
        name = f"n{len(values)}"
        values[name] = value
        return symbol(name)

    literal = {1} if op.name in BROADCASTING else set()
    shapes = tuple(tuple(n if n in literal else fresh(n) for n in s) for s in example.shapes)
    given = dict(example.attributes)
    for name, spec in op.attributes.items() if attributes else ():
        value = given[name]
        if spec.kind is Kind.INT and not spec.flag:
            assert isinstance(value, int)
            given[name] = fresh(value)
        elif spec.kind is Kind.INTS:
            assert isinstance(value, tuple)
            given[name] = tuple(fresh(v) for v in value if isinstance(v, int))
    return Symbolic(shapes, given, values, example.types)


def substitute(attributes: Attributes, values: Mapping[str, int]) -> dict[str, Attribute]:
    """`attributes` with symbols replaced."""

    def one(value: Attribute) -> Attribute:
        if isinstance(value, tuple):
            return tuple(substitute_size(v, values) for v in value)
        return substitute_size(value, values) if isinstance(value, Expr) else value

    return {name: one(value) for name, value in attributes.items()}


def assert_equal(found: Sequence[Array], expected: Sequence[Array], rtol: float = 1e-12) -> None:
    """Same number of outputs, shapes and, within `rtol` of the largest element, elements."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        x, y = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(y).max(initial=1))


def onnx_model(
    call: OnnxCall, outputs: int, types: Sequence[str] = (), results: Sequence[str] = ()
) -> onnx.ModelProto:
    """A model of a single node with inputs ``x0, x1, ...``.

    `types` and `results` are the element types of inputs and outputs, 32-bit floats if left out.
    """

    def kind(names: Sequence[str], number: int) -> int:
        return int(TensorProto.DataType.Value(names[number])) if names else TensorProto.FLOAT

    names, initializers, inputs = [], [], []
    for position, number in enumerate(call.own_inputs(len(call.shapes))):
        if position in call.constants:
            name = f"c{position}"
            array = call.constants[position]
            if array.dtype.kind == "f":
                array = array.astype(np.float32)
            initializers.append(numpy_helper.from_array(array, name))
        else:
            shape = None if number is None else call.shapes[number]
            name = "" if shape is None else f"x{number}"
            if number is not None and shape is not None:
                inputs.append(helper.make_tensor_value_info(name, kind(types, number), shape))
        names.append(name)
    names_out = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(
        call.op_type, names, names_out, domain=call.domain, **dict(call.attributes)
    )
    infos = [
        helper.make_tensor_value_info(name, kind(results, k), None)
        for k, name in enumerate(names_out)
    ]
    inputs.sort(key=lambda value: int(value.name[1:]))
    graph = helper.make_graph([node], "case", inputs, infos, initializers)
    opsets = [helper.make_opsetid(call.domain, call.opset)]
    if call.domain:
        opsets.append(helper.make_opsetid("", STANDARD))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def build(op: Operator, example: Example, opset: int) -> onnx.ModelProto | None:
    """The operator as a model of one node; None where it has no form at `opset`."""
    call = op.to_onnx(example.attributes, example.shapes, opset)
    outputs = len(op.shape(example.shapes, example.attributes, Need()))
    return None if call is None else onnx_model(call, outputs, *element_types(op, example, "FLOAT"))


def run_onnxruntime(
    model: onnx.ModelProto, arrays: Sequence[Array], *, optimized: bool = True
) -> list[Array]:
    """The outputs by ONNX Runtime on the processor."""
    options = ort.SessionOptions()
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = dict(zip((i.name for i in session.get_inputs()), arrays, strict=True))
    return list(session.run(None, feeds))


def read_node(model: onnx.ModelProto) -> OnnxCall:
    """The single node of a model, in the form in which the importer hands it to an operator."""
    (node,) = model.graph.node
    shapes: dict[str, Shape] = {
        value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in model.graph.input
    }
    types: dict[str, str] = {
        value.name: TensorProto.DataType.Name(value.type.tensor_type.elem_type)
        for value in model.graph.input
    }
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    types.update({t.name: TensorProto.DataType.Name(t.data_type) for t in model.graph.initializer})
    shapes.update({name: array.shape for name, array in constants.items()})
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        attributes[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return OnnxCall(
        node.op_type,
        model.opset_import[0].version,
        node.domain,
        attributes,
        tuple(shapes.get(name) for name in node.input),
        {k: constants[name] for k, name in enumerate(node.input) if name in constants},
        len(node.output),
        tuple(types.get(name) for name in node.input),
    )


def neighbours(symbolic: Symbolic) -> Iterator[dict[str, int]]:
    """The example's sizes with one of them changed by one."""
    for name, value in symbolic.values.items():
        for changed in (value - 1, value + 1):
            yield {**symbolic.values, name: changed}


def with_values(symbolic: Symbolic, values: Mapping[str, int]) -> Example:
    """The example at other sizes."""
    shapes = tuple(tuple(evaluate_size(n, values) for n in shape) for shape in symbolic.shapes)
    return Example(shapes, substitute(symbolic.attributes, values), symbolic.types)
