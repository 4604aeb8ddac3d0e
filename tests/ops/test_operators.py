"""Every operator, at each of its examples: all readings of its declaration are one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from operator_cases import (
    BROADCASTING,
    as_floats,
    assert_equal,
    at_each_example,
    build,
    cases,
    element_types,
    exact_inputs,
    has_inputs,
    neighbours,
    numpy_type,
    outputs_by_specification,
    read_node,
    run_onnxruntime,
    sorts_of,
    symbolise,
    with_values,
)

from xflow.core.arguments import integers
from xflow.core.constraint import Constraint
from xflow.core.errors import ShapeError
from xflow.core.node import complete_attributes
from xflow.core.registry import Attributes, Example, Need, Operator, RealSymbol, Shape
from xflow.core.size import Size, substitute, symbol
from xflow.core.size import evaluate as evaluate_size
from xflow.core.spec import MAX_IN_A_ROW, Element, If
from xflow.onnx.importer import import_model
from xflow.ops import operator, operators
from xflow.ops.shape import Movement
from xflow.ops.window import Window

CASES = cases()
RUNTIME_CASES = [(op, example) for op, example in CASES if op.op_type]
ONNX_CASES = [(op, example) for op, example in RUNTIME_CASES if not op.domain]
at_each_case = at_each_example(CASES)
at_each_runtime_case = at_each_example(RUNTIME_CASES)
at_each_onnx_case = at_each_example(ONNX_CASES)


@cache
def leaves_the_rationals(name: str) -> bool:
    """Whether an operator's specification gives a float for fractions, at one of its examples."""
    for op, example in CASES:
        if op.name == name:
            exact = exact_inputs(op, example)
            found = outputs_by_specification(op, example.shapes, example.attributes, exact, {})
            if any(isinstance(element, float) for array in found for element in array.flat):
                return True
    return False


CONSTANTS = {op.name for op in operators() if op.arity == (0, 0)}

OPSET = 20
OTHER_OPSETS = (24, 18)
"""Where operators are tried that have no form at OPSET."""


def build_anywhere(op: Operator, example: Example) -> onnx.ModelProto:
    """The operator as a model of one node, at OPSET if it has a form there."""
    known = (1,) if op.domain else (OPSET, *OTHER_OPSETS)
    opsets = [opset for opset in known if opset >= op.since]
    models = (build(op, example, opset) for opset in opsets)
    return next(model for model in models if model is not None)


def check_specification(op: Operator, example: Example) -> None:
    """`at` at integers, in exact arithmetic, is `numpy`; every access is in bounds."""
    exact = exact_inputs(op, example)
    found = outputs_by_specification(op, example.shapes, example.attributes, exact, {})
    assert_equal(found, op.numpy(as_floats(exact), example.attributes))


def check_symbolic_specification(op: Operator, example: Example) -> None:
    """`at` at symbols, read at integers, is `numpy`; every access is in bounds."""
    exact = exact_inputs(op, example)
    expected = op.numpy(as_floats(exact), example.attributes)
    for attributes in (False, True):
        symbolic = symbolise(op, example, attributes=attributes)
        found = outputs_by_specification(
            op, symbolic.shapes, symbolic.attributes, exact, {"": 0, **symbolic.values}
        )
        assert_equal(found, expected)


def check_shape(op: Operator, example: Example) -> None:
    """`shape` on integers is the shape of numpy's result; on symbols it becomes the same."""
    shapes = op.shape(example.shapes, example.attributes, Need())
    arrays = op.numpy(as_floats(exact_inputs(op, example)), example.attributes)
    assert shapes == [array.shape for array in arrays]
    for attributes in (False, True):
        symbolic = symbolise(op, example, attributes=attributes)
        need = Need()
        general = op.shape(symbolic.shapes, symbolic.attributes, need)
        values = symbolic.values
        assert [tuple(substitute(n, values) for n in s) for s in general] == list(
            map(tuple, shapes)
        )
        assert all(condition.substitute(values).decided for condition in need.conditions)


def test_the_specification_of_a_long_concat_is_shallow() -> None:
    concat = operator("Concat")
    example = Example(tuple((1 + k % 3, 2) for k in range(40)), {"axis": 0})
    check_specification(concat, example)
    check_symbolic_specification(concat, example)
    readers = [partial(Element, f"x{k}") for k in range(4_000)]
    scalar = concat.at(readers, [(1,)] * 4_000, {"axis": 0}, 0, (symbol("i"),))
    depth = 0
    while isinstance(scalar, If):
        scalar, depth = scalar.other, depth + 1
    assert depth < 2 * MAX_IN_A_ROW


@pytest.mark.parametrize("name", ["Sum", "Mean"])
def test_the_definition_of_a_long_sum_is_shallow(name: str) -> None:
    total = operator(name)
    check_specification(total, Example(tuple((1 + k % 2, 2) for k in range(40))))
    readers = [partial(Element, f"x{k}") for k in range(2_000)]
    assert repr(total.at(readers, [()] * 2_000, {}, 0, ())).count("Element") == 2_000


@at_each_case
def test_shape_is_the_same_on_integers_on_symbols_and_in_numpy(
    op: Operator, example: Example
) -> None:
    check_shape(op, example)


@at_each_case
def test_specification_is_numpy(op: Operator, example: Example) -> None:
    check_specification(op, example)


@at_each_case
def test_specification_at_symbolic_sizes_is_numpy(op: Operator, example: Example) -> None:
    check_symbolic_specification(op, example)


@at_each_case
def test_requirements_on_symbols_are_those_on_integers(op: Operator, example: Example) -> None:
    """Sizes next to the example's are accepted as integers exactly where the conditions hold."""
    symbolic = symbolise(op, example, attributes=True)
    need = Need()
    general = op.shape(symbolic.shapes, symbolic.attributes, need)
    for values in neighbours(symbolic):
        near = with_values(symbolic, values)
        if any(n < 0 for shape in near.shapes for n in shape):
            continue
        holds = all(condition.substitute(values).decided for condition in need.conditions)
        try:
            shapes = op.shape(near.shapes, near.attributes, Need())
        except ShapeError:
            assert not holds, values
            continue
        # Integers may broadcast where an extent has become 1; symbols do not.
        assert holds or op.name in BROADCASTING, values
        if holds:
            assert [tuple(substitute(n, values) for n in s) for s in general] == shapes
            if not has_inputs(op, near):
                continue
            arrays = op.numpy(as_floats(exact_inputs(op, near)), near.attributes)
            assert [array.shape for array in arrays] == shapes


@at_each_case
def test_numpy_keeps_the_element_type_and_is_exact_on_fractions(
    op: Operator, example: Example
) -> None:
    exact = exact_inputs(op, example)
    if op.name in CONSTANTS:
        pytest.skip("a constant has no input to take its element type from")
    for name in ("FLOAT",) if op.name == "NearestFloat" else ("FLOAT", "DOUBLE"):
        _, types = element_types(op, example, name)
        arrays = op.numpy(as_floats(exact, numpy_type(name)), example.attributes)
        for array, expected_type in zip(arrays, types, strict=True):
            assert array.dtype == numpy_type(expected_type)
    if not leaves_the_rationals(op.name):
        expected = outputs_by_specification(op, example.shapes, example.attributes, exact, {})
        for a, b in zip(op.numpy(exact, example.attributes), expected, strict=True):
            assert a.shape == b.shape
            assert np.array_equal(a, b)


@at_each_onnx_case
def test_onnx_shape_inference_agrees(op: Operator, example: Example) -> None:
    if op.name == "GroupNormalization":
        pytest.skip("ONNX leaves its shape open")
    model = build_anywhere(op, example)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    onnx.checker.check_model(inferred, full_check=True)
    found = [
        tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in inferred.graph.output
    ]
    assert found == op.shape(example.shapes, example.attributes, Need())


def beyond_reference_evaluator(op: Operator, example: Example) -> str:
    """Why ONNX's ReferenceEvaluator fails here, where ONNX Runtime agrees with us; or nothing."""
    pads = integers(example.attributes, "pads") if "pads" in example.attributes else ()
    if op.name == "Pad" and min(pads) < 0:
        return "it does not crop"
    if op.name == "MaxPool" and len(set(pads)) > 1:
        return "it mistakes unequal pads of MaxPool"
    if op.name == "MaxPool" and len(pads) == 2 and any(pads):
        return "it ignores the pads of MaxPool over one axis"
    if op.name == "AveragePool" and example.attributes["ceil_mode"] and len(pads) == 2:
        return "it moves the window of AveragePool where rounding up adds more than one element"
    if op.name == "Mean" and len(set(example.shapes)) > 1:
        return "it does not broadcast in Mean"
    if op.name in ("Softsign", "ReduceLogSumExp") and not example.shapes[0]:
        return f"it has no array for a {op.name} of shape []"
    if op.name == "GlobalMaxPool" and len(example.shapes[0]) != 4:
        return "it takes two spatial axes for granted"
    if op.name == "ConvTranspose" and example.attributes["group"] != 1:
        return "it expects one output channel in each group of ConvTranspose"
    return ""


@at_each_onnx_case
def test_reference_evaluator_agrees(op: Operator, example: Example) -> None:
    reason = beyond_reference_evaluator(op, example)
    if reason:
        pytest.skip(reason)
    arrays = as_floats(exact_inputs(op, example), np.float32)
    model = build_anywhere(op, example)
    feeds = {f"x{k}": array for k, array in enumerate(arrays)}
    found = ReferenceEvaluator(model).run(None, feeds)
    assert_equal(list(found), op.numpy(arrays, example.attributes), rtol=1e-5)


@at_each_runtime_case
def test_what_is_accepted_onnxruntime_accepts_too(op: Operator, example: Example) -> None:
    for values in neighbours(symbolise(op, example, attributes=True)):
        near = with_values(symbolise(op, example, attributes=True), values)
        if any(n < 0 for shape in near.shapes for n in shape):
            continue
        if "Pool" in op.name and near.shapes[0][1] == 0:
            continue  # ONNX Runtime does not pool tensors without channels
        if op.name == "GroupNormalization" and near.shapes[0][0] == 0:
            continue  # nor does it reshape an empty batch
        if op.role == "attention" and any(0 in shape for shape in near.shapes):
            continue  # nor attend to nothing
        try:
            op.shape(near.shapes, near.attributes, Need())
        except ShapeError:
            continue
        if not has_inputs(op, near):
            continue
        arrays = as_floats(exact_inputs(op, near), np.float32)
        model = build_anywhere(op, near)
        assert_equal(run_onnxruntime(model, arrays), op.numpy(arrays, near.attributes), rtol=1e-5)


DEMANDING = [
    (op, example) for op, example in ONNX_CASES if type(op).demanded is not Operator.demanded
]


@at_each_example(DEMANDING)
def test_what_is_demanded_is_required_and_else_onnxruntime_does_not_run(
    op: Operator, example: Example
) -> None:
    check_demands(op, example)


def test_a_demand_that_onnxruntime_does_not_make_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It lets a pool pass whose window is larger than the image: that was taken for a demand."""
    op = operator("MaxPool")
    example = Example(((1, 1, 4, 4),), {"kernel_shape": (3, 3), "strides": (2, 2)})
    complete = complete_attributes(op, example.attributes, example.shapes)
    wrong = type(op)()

    def demanded(shapes: list[Shape], attributes: Attributes) -> list[Constraint]:
        return [axis.fits for axis in Window.of(shapes[0], (3, 3), attributes).axes]

    monkeypatch.setattr(wrong, "demanded", demanded)
    with pytest.raises(pytest.fail.Exception):
        check_demands(wrong, replace(example, attributes=complete, types=("REAL",)))


def check_demands(op: Operator, example: Example) -> None:
    """An image of which they do not hold is refused, by a graph as it is and as it is served."""
    image, *others = example.shapes
    model = build_anywhere(op, example)
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.Clear()
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    for extents in itertools.product(range(4), repeat=len(image) - 2):
        shapes = [(*image[:2], *extents), *others]
        demanded = op.demanded(shapes, example.attributes)
        assert len(demanded) >= len(extents)
        if all(condition.decided for condition in demanded):
            continue
        with pytest.raises(ShapeError):
            op.shape(shapes, example.attributes, Need())
        arrays = [np.ones(shape, np.float32) for shape in shapes]
        for optimized in (False, True):
            with pytest.raises(Exception, match=r"INVALID_ARGUMENT|[Ii]nvalid input shape"):
                run_onnxruntime(model, arrays, optimized=optimized)


@pytest.mark.parametrize(
    "opset",
    [7, 13, OPSET, 24, *(pytest.param(each, marks=pytest.mark.many) for each in (10, 12, 18))],
)
@at_each_onnx_case
def test_onnxruntime_agrees_and_the_node_is_read_back(
    op: Operator, example: Example, opset: int
) -> None:
    check_runtime(op, example, opset)


@at_each_example([case for case in RUNTIME_CASES if case[0].domain])
def test_onnxruntime_agrees_on_its_own_operators(op: Operator, example: Example) -> None:
    check_runtime(op, example, 1)


def check_runtime(op: Operator, example: Example, opset: int) -> None:
    """ONNX Runtime computes what `numpy` does, and the node is read as it was written."""
    if opset < op.since:
        pytest.skip(f"{op.name} exists since opset {op.since}")
    model = build(op, example, opset)
    if model is None:
        assert build_anywhere(op, example)
        pytest.skip(f"no form at opset {opset}")
    arrays = as_floats(exact_inputs(op, example), np.float32)
    found = run_onnxruntime(model, arrays)
    assert_equal(found, op.numpy(arrays, example.attributes), rtol=1e-5)
    call = read_node(model)
    if op.name == "Cast" and call.types == (example.attributes["to"],):
        call = replace(call, types=())  # known to keep the type, it would be read as Identity
    understood = op.from_onnx(call)
    assert understood is not None
    attributes, positions = understood
    assert complete_attributes(op, attributes, example.shapes) == example.attributes
    written = op.to_onnx(example.attributes, example.shapes, opset)
    assert written is not None
    own = written.own_inputs(len(example.shapes))
    assert [own[position] for position in positions] == [*range(len(example.shapes))]


@pytest.mark.parametrize("op", [op for op in operators() if op.op_type and not op.domain], ids=str)
def test_attributes_that_say_what_holds_anyway_change_nothing(op: Operator) -> None:
    """A model in which all defaults of ONNX are written out is read as the one without them."""
    for example in op.examples:
        if op.mask is not None and len(example.shapes) > op.mask:
            continue  # a mask that is given may cover a row: it is opaque, see `deviates`
        case = Example(
            example.shapes,
            complete_attributes(op, example.attributes, example.shapes),
            sorts_of(op, example),
        )
        model = build_anywhere(op, case)
        (node,) = model.graph.node
        schema = onnx.defs.get_schema(node.op_type, model.opset_import[0].version, "")
        stated = onnx.ModelProto.FromString(model.SerializeToString())
        given = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items():
            if attribute.default_value.type and name not in given:
                stated.graph.node[0].attribute.append(attribute.default_value)
        plain, full = (import_model(ir.from_proto(each)).graph for each in (model, stated))
        assert full == plain
        assert all(isinstance(value.node.op, Operator) for value in plain.outputs)


@pytest.mark.parametrize("op", [op for op in operators() if op.commutative], ids=str)
def test_commutative_operators_do_not_depend_on_the_order(op: Operator) -> None:
    for example in op.examples:
        arrays = as_floats(exact_inputs(op, example))
        assert_equal(op.numpy(arrays[::-1], {}), op.numpy(arrays, {}))


@pytest.mark.parametrize("op", [op for op in operators() if isinstance(op, Movement)], ids=str)
def test_what_permutes_has_each_element_once(op: Movement) -> None:
    for example in op.examples if op.permutes else ():
        (array,) = (np.arange(a.size).reshape(a.shape) for a in exact_inputs(op, example))
        (moved,) = op.numpy([array], complete_attributes(op, example.attributes, [array.shape]))
        assert sorted(moved.reshape(-1)) == [*range(array.size)]


@settings(deadline=None)
@given(st.data())
def test_reshape_moves_elements_as_numpy_does(data: st.DataObject) -> None:
    """For sizes that are products of symbols, cut in two ways, with axes of extent 1 between."""
    factors = data.draw(st.lists(st.integers(1, 3), max_size=4))
    values = {f"f{k}": factor for k, factor in enumerate(factors)}

    def regroup() -> tuple[tuple[Size, ...], tuple[int, ...]]:
        shape: list[Size] = []
        for name in values:
            if shape and data.draw(st.sampled_from((True, False))):
                shape[-1] = shape[-1] * symbol(name)
            else:
                shape += [1] * data.draw(st.integers(0, 1)) + [symbol(name)]
        return tuple(shape), tuple(evaluate_size(n, values) for n in shape)

    (source, before), (target, after) = regroup(), regroup()
    op = operator("Reshape")
    exact = exact_inputs(op, Example((before,)))
    expected = [exact[0].reshape(after)]
    for shape, goal, sizes in ((source, target, {"": 0, **values}), (before, after, {})):
        found = outputs_by_specification(op, [shape], {"shape": goal}, exact, sizes)
        assert_equal(found, expected)


def test_every_operator_has_examples_and_a_documented_meaning() -> None:
    for op in operators():
        assert len(op.examples) >= 3, op
        assert type(op).__doc__, op


def test_a_real_symbol_is_an_unknown_scalar() -> None:
    element = operator("Scalar").at((), (), {"value": RealSymbol("alpha")}, 0, ())
    assert element == Element("%alpha", ())


def _swap(op: Operator) -> Callable[..., Any]:
    return lambda inputs, shapes, *rest: type(op).at(op, inputs[::-1], shapes[::-1], *rest)


def _shift(op: Operator) -> Callable[..., Any]:
    def at(inputs: Any, *rest: Any) -> Any:
        moved = [lambda i, read=read: read((*i[:-1], i[-1] + 1)) for read in inputs]
        return type(op).at(op, moved, *rest)

    return at


def _double(op: Operator) -> Callable[..., Any]:
    return lambda *args: type(op).at(op, *args) * Fraction(2)


@pytest.mark.parametrize(
    ("name", "mutate"),
    [
        ("Sub", _swap),
        ("Div", _swap),
        ("MatMul", _swap),
        ("Concat", _swap),
        ("Conv", _shift),
        ("Pad", _shift),
        ("Slice", _shift),
        ("MaxPool", _shift),
        ("Transpose", _shift),
        ("AveragePool", _double),
        ("ConvTranspose", _shift),
        ("DepthToSpace", _shift),
        ("Resize", _shift),
        ("Tile", _shift),
        ("Einsum", _double),
        ("GlobalMaxPool", _double),
        ("ReduceMean", _double),
        ("BatchNormalization", _double),
    ],
)
@pytest.mark.parametrize("check", [check_specification, check_symbolic_specification])
def test_a_wrong_specification_is_noticed(
    name: str,
    mutate: Callable[[Operator], Callable[..., Any]],
    check: Callable[[Operator, Example], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    op = operator(name)
    wrong = type(op)()
    monkeypatch.setattr(wrong, "at", mutate(op), raising=True)
    noticed = 0
    for example in (example for other, example in CASES if other is op):
        try:
            check(wrong, example)
        except (AssertionError, IndexError):
            noticed += 1
    assert noticed
